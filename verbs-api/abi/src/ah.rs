//! Address handles.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{Completion, WcFlags};
use urxe_stack::names::DeviceName;
use urxe_stack::qp::work_request::{AhHandle, PostError};
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;
use urxe_wire::Grh;

use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_ah, ibv_ah_attr, ibv_context, ibv_pd, ibv_wc};
use crate::pd::Domain;
use crate::qp_attr;

/// An address handle. The C structure is its first field.
#[repr(C)]
pub struct AhObject {
    c: ibv_ah,
    pub handle: AhHandle,
}

handle_registry::object!(pub AhObject, ibv_ah, "ah");

impl AhObject {
    /// Returns the handle that a work request to a queue pair of `context` names. Handles are
    /// numbered per device, so a handle of another device is refused.
    ///
    /// # Safety
    /// The ABI's contract: the handle is NULL or created.
    pub unsafe fn handle_for(context: &Context, ah: *mut ibv_ah) -> Result<AhHandle, VerbError> {
        // SAFETY: the caller's.
        let (object, of) = unsafe { Self::from_c_unchecked(ah) }?;
        match Arc::ptr_eq(&of.shared_engine, &context.shared_engine) {
            true => Ok(object.handle),
            false => Err(other_device(of, context)),
        }
    }
}

/// The names of devices in errors of address handles.
static NAMES: PerProcess<Mutex<BTreeSet<&'static str>>> = PerProcess::new(Mutex::default);

/// Returns the error for an address handle of `of` in a request to a queue pair of `to`.
#[cold]
fn other_device(of: &Context, to: &Context) -> VerbError {
    let mut names = lock(NAMES.get());
    let [ah, queue] = [of, to].map(|context| {
        let spec = context.shared_engine.engine.link().spec.to_string();
        DeviceName::interned(&mut names, &spec)
    });
    PostError::AhOfOtherDevice { ah, queue }.into()
}

/// `ibv_create_ah`
pub unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    ffi::return_ptr("ibv_create_ah", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        // SAFETY: the ABI's contract.
        unsafe { create(pd, attr) }
    })
}

/// `ibv_create_ah_from_wc`
pub unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut c_void,
    port_num: u8,
) -> *mut ibv_ah {
    ffi::return_ptr("ibv_create_ah_from_wc", || {
        // SAFETY: the ABI's contract.
        unsafe {
            let (_, context) = Domain::from_c(pd)?;
            create(pd, &reply_vector(context, port_num, wc, grh)?)
        }
    })
}

/// `ibv_init_ah_from_wc`
pub unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut c_void,
    attr: *mut ibv_ah_attr,
) -> c_int {
    ffi::return_minus_one("ibv_init_ah_from_wc", || {
        ffi::non_null(attr, "ah_attr")?;
        // SAFETY: the ABI's contract: `attr` is a place for the result.
        unsafe { attr.write(reply_vector(Context::from_c(context)?, port_num, wc, grh)?) };
        Ok(())
    })
}

/// `ibv_destroy_ah`
pub unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    let end = |object: &AhObject, context: &Context| {
        context.device().destroy_ah(object.handle)?;
        context.objects().ahs.remove(&object.handle);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { AhObject::destroy("ibv_destroy_ah", ah, end) }
}

/// # Safety
/// The ABI's contract.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, VerbError> {
    // SAFETY: the ABI's contract.
    let (domain, context) = unsafe { Domain::from_c(pd) }?;
    let handle = context.device().create_ah(domain.id, &qp_attr::address_from_c(attr))?;
    context.objects().ahs.insert(handle);
    // SAFETY: the domain is there, because the new object keeps it.
    let c = ibv_ah { context: unsafe { (*pd).context }, pd, handle: context.new_handle() };
    Ok(handle_registry::into_raw(Box::new(AhObject { c, handle })).cast())
}

/// Returns the attributes of an address handle for a reply to the datagram of `wc`.
///
/// # Safety
/// The ABI's contract: `grh` is NULL or the first bytes of the receive buffer. If `wc_flags` has
/// `IBV_WC_GRH`, the buffer begins with a GRH.
unsafe fn reply_vector(
    context: &Context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut c_void,
) -> Result<ibv_ah_attr, VerbError> {
    // SAFETY: the ABI's contract.
    let wc = unsafe { wc.as_ref() }.ok_or(VerbError::Null("wc"))?;
    if port_num != 1 {
        return Err(VerbError::Port { given: port_num.into() });
    }
    let mut completion = Completion::default();
    completion.sl = wc.sl;
    completion.slid = wc.slid;
    let mut header = [0; Grh::LEN];
    if wc.wc_flags & u32::from(WcFlags::GRH.bits()) != 0 {
        completion = completion.with_grh();
        ffi::non_null(grh, "grh")?;
        // SAFETY: the ABI's contract: the header is there, in a buffer that belongs to the program
        // again.
        unsafe { ptr::copy_nonoverlapping(grh.cast::<u8>(), header.as_mut_ptr(), Grh::LEN) };
    }
    let found = context.device().ah_from_wc(&completion, &header)?;
    Ok(qp_attr::address_to_c(&found))
}
