//! Memory regions.

use std::ffi::{c_int, c_void};

use urxe_stack::memory::Access;
use urxe_wire::Lkey;

use crate::border;
use crate::error::VerbError;
use crate::layout::{ibv_mr, ibv_pd};
use crate::pd::PdObject;

/// `IBV_REREG_MR_ERR_INPUT`: the region is as it was.
const REREG_UNCHANGED: c_int = -1;

/// A region's `ibv_mr` is all there is of it here: the rest is the stack's, by its key.
///
/// # Safety
/// The ABI's contract; and what `urxe_stack::memory::Memory::register` asks of the memory, which is what `ibv_reg_mr(3)` asks.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, VerbError> {
    // SAFETY: the ABI's contract.
    let (object, context) = unsafe { PdObject::from_c(pd) }?;
    let access = Access::from_bits_retain(access);
    // SAFETY: what is registered is the C program's memory, of which no Rust reference exists, and which it keeps mapped until
    // it deregisters it.
    let mr = unsafe { context.device().memory().register(object.id, addr.cast(), length, iova, access) }?;
    context.owned().mrs.insert(mr.lkey);
    let handle = context.new_handle();
    // SAFETY: from_c found the protection domain there.
    let of = unsafe { (*pd).context };
    let mr = ibv_mr { context: of, pd, addr, length, handle, lkey: mr.lkey.0, rkey: mr.rkey.value() };
    Ok(Box::into_raw(Box::new(mr)))
}

/// `ibv_reg_mr`
pub unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = addr.addr() as u64;
    // SAFETY: the ABI's contract.
    border::pointer("ibv_reg_mr", || unsafe { register(pd, addr, length, iova, access.cast_unsigned()) })
}

/// `ibv_reg_mr_iova`
pub unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the ABI's contract.
    border::pointer("ibv_reg_mr_iova", || unsafe { register(pd, addr, length, iova, access.cast_unsigned()) })
}

/// `ibv_reg_mr_iova2`, which the header's `ibv_reg_mr` calls when the access flags are no constant.
pub unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: the ABI's contract.
    border::pointer("ibv_reg_mr", || unsafe { register(pd, addr, length, iova, access) })
}

/// `ibv_reg_dmabuf_mr`: memory of other devices cannot be reached from a process.
pub unsafe extern "C" fn reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    border::pointer("ibv_reg_dmabuf_mr", || Err(VerbError::Unsupported("registering a dma-buf")))
}

/// `ibv_rereg_mr`
pub unsafe extern "C" fn rereg_mr(
    _mr: *mut ibv_mr,
    _flags: c_int,
    _pd: *mut ibv_pd,
    _addr: *mut c_void,
    _length: usize,
    _access: c_int,
) -> c_int {
    border::guard(REREG_UNCHANGED, || {
        border::refuse("ibv_rereg_mr", &VerbError::Unsupported("changing a registered region"));
        REREG_UNCHANGED
    })
}

/// `ibv_dereg_mr`: when it returns, no peer touches the memory any more.
pub unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    border::number("ibv_dereg_mr", || {
        // SAFETY: the ABI's contract.
        let region = unsafe { mr.as_ref() }.ok_or(VerbError::Null("mr"))?;
        // SAFETY: a region's protection domain is there as long as the region.
        let (_, context) = unsafe { PdObject::from_c(region.pd) }?;
        if context.is_inherited() {
            return Ok(());
        }
        let lkey = Lkey(region.lkey);
        context.device().memory().deregister(lkey)?;
        context.owned().mrs.remove(&lkey);
        // SAFETY: made by Box::into_raw in `register`; the program does not use it again.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}
