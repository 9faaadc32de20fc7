//! Device memory. Device memory has no address in the program; the program copies to and from it.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use urxe_stack::memory::{Access, DmId};

use crate::context::Context;
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::mr;
use crate::pd::Domain;

/// Maximum length of a slice, which is beyond all device memory.
const LONGEST: usize = isize::MAX as usize;

/// Device memory, beginning with its C structure.
#[repr(C)]
pub struct DmObject {
    c: ibv_dm,
    id: DmId,
}

handle_registry::object!(DmObject, ibv_dm, "dm");

/// `ibv_alloc_dm`, through `verbs_context`
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    ffi::return_ptr("ibv_alloc_dm", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), 0)?;
        let id = shared.device().memory().alloc_dm(attr.length, attr.log_align_req)?;
        shared.objects().dms.insert(id);
        Ok(to_ibv_dm(context, id))
    })
}

/// Makes the C structure of device memory.
fn to_ibv_dm(context: *mut ibv_context, id: DmId) -> *mut ibv_dm {
    let (memcpy_to_dm, memcpy_from_dm) = (Some(memcpy_to_dm as _), Some(memcpy_from_dm as _));
    let c = ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask: 0, handle: id.0 };
    handle_registry::into_raw(Box::new(DmObject { c, id })).cast()
}

/// Imports device memory that another context allocated.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn import(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_dm, VerbError> {
    // SAFETY: the ABI's contract.
    let shared = unsafe { Context::from_c(context) }?;
    let id = DmId(handle);
    // A copy of zero bytes fails if the device memory does not exist.
    let found = shared.device().memory().copy_to_dm(id, 0, &[]);
    found.map_err(|_| VerbError::Unknown { what: "device memory", handle })?;
    Ok(to_ibv_dm(context, id))
}

/// Frees an imported structure; the device memory stays allocated.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn forget(dm: *mut ibv_dm) {
    // SAFETY: handed out by `to_ibv_dm`.
    drop(unsafe { handle_registry::from_raw(dm.cast::<DmObject>()) });
}

/// `ibv_free_dm`, through `verbs_context`: fails with EBUSY while the memory has registered
/// regions.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let end = |object: &DmObject, context: &Context| {
        context.device().memory().free_dm(object.id)?;
        context.objects().dms.remove(&object.id);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { DmObject::destroy("ibv_free_dm", dm, end) }
}

/// `ibv_memcpy_to_dm`, through `ibv_dm`
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    ffi::return_errno("ibv_memcpy_to_dm", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { DmObject::from_c(dm) }?;
        // SAFETY: the ABI's contract: the program's bytes, which do not change during the call.
        let bytes = unsafe { bytes(from, length) }?;
        Ok(context.device().memory().copy_to_dm(object.id, start(offset), bytes)?)
    })
}

/// `ibv_memcpy_from_dm`, through `ibv_dm`
unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    ffi::return_errno("ibv_memcpy_from_dm", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { DmObject::from_c(dm) }?;
        if length == 0 {
            return Ok(());
        }
        ffi::non_null(to, "host_addr")?;
        // SAFETY: the ABI's contract: `to` has `length` bytes, which no other thread uses during
        // the call. Every byte pattern is valid, and the copy below writes the bytes before any
        // read.
        let place = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length.min(LONGEST)) };
        Ok(context.device().memory().copy_from_dm(object.id, start(offset), place)?)
    })
}

/// `ibv_reg_dm_mr`, through `verbs_context`
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    ffi::return_ptr("ibv_reg_dm_mr", || {
        // SAFETY: the ABI's contract.
        let (domain, context) = unsafe { Domain::from_c(pd) }?;
        // SAFETY: the ABI's contract.
        let object = unsafe { DmObject::from_c_in(context, "dm", dm) }?;
        let first = start(offset);
        // A range end beyond the address space is beyond the memory as well.
        let range = first..first.saturating_add(length);
        let access = Access::from_bits_retain(access);
        let _held = domain.hold(context)?;
        let region =
            context.device().memory().register_dm(domain.memory, object.id, range, access)?;
        Ok(mr::owned_ibv_mr((pd, domain), context, ptr::null_mut(), length, &region))
    })
}

/// Converts an offset. An offset beyond the address space of the process is out of bounds as well.
fn start(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Returns the bytes at `from`.
///
/// # Safety
/// The ABI's contract: `length` bytes are at `from` and do not change while the result is used.
unsafe fn bytes<'a>(from: *const c_void, length: usize) -> Result<&'a [u8], VerbError> {
    match length {
        0 => Ok(&[]),
        _ if from.is_null() => Err(VerbError::Null("host_addr")),
        // SAFETY: as above.
        _ => Ok(unsafe { slice::from_raw_parts(from.cast(), length.min(LONGEST)) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::unimport_dm;

    #[test]
    fn a_structure_is_freed_once() {
        let made = to_ibv_dm(ptr::null_mut(), DmId(7));
        // SAFETY: the structure is not used again; the second call only compares its address.
        unsafe {
            unimport_dm(made);
            unimport_dm(made);
            unimport_dm(ptr::null_mut());
        }
        assert!(handle_registry::check(made.cast::<DmObject>()).is_err());
    }
}
