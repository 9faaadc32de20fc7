//! Memory windows.
//!
//! Programs read the key of a window from its `ibv_mw`. A bind by `ibv_bind_mw` writes the new key
//! there. For a type 2 window the program chooses the key, posts the bind and writes the key there
//! itself (manual page of `ibv_bind_mw`).

use std::ffi::c_int;

use urxe_stack::memory::{Access, Bind, MwType, inc_rkey};
use urxe_stack::qp::work_request::{Destination, Payload, SendFlags, SendOp, SendRequest};
use urxe_wire::{Lkey, Rkey};

use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use crate::pd::Domain;
use crate::qp::QpObject;

handle_registry::object!(@plain ibv_mw, ibv_mw, "mw");

/// Returns the part of a key that binds do not change.
const fn identity(key: u32) -> u32 {
    key & !0xff
}

/// `ibv_alloc_mw`, through `ibv_context.ops`
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    ffi::return_ptr("ibv_alloc_mw", || {
        // SAFETY: the ABI's contract.
        let (domain, context) = unsafe { Domain::from_c(pd) }?;
        let kind = match mw_type {
            1 => MwType::Type1,
            2 => MwType::Type2,
            given => {
                let given = u64::from(given.cast_unsigned());
                let allowed = "IBV_MW_TYPE_1 (1) and IBV_MW_TYPE_2 (2) are allowed";
                return Err(VerbError::value("type", given, allowed));
            }
        };
        let _held = domain.hold(context)?;
        let key = context.device().memory().alloc_mw(domain.memory, kind)?;
        context.objects().mws.insert(identity(key.value()));
        let handle = context.new_handle();
        Ok(handle_registry::into_raw(Box::new(ibv_mw {
            context: domain.context,
            pd,
            rkey: key.value(),
            handle,
            mw_type,
        })))
    })
}

/// `ibv_dealloc_mw`, through `ibv_context.ops`: on return, no peer accesses memory through the
/// window any more.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let end = |object: &ibv_mw, context: &Context| {
        context.device().memory().dealloc_mw(Rkey(object.rkey))?;
        context.objects().mws.remove(&identity(object.rkey));
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { ibv_mw::destroy("ibv_dealloc_mw", mw, end) }
}

/// `ibv_bind_mw`, through `ibv_context.ops`: binds type 1 windows to regions of the same domain.
/// The header's function has checked both.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    ffi::return_errno("ibv_bind_mw", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        // SAFETY: the ABI's contract; no other thread binds the window meanwhile.
        let window = unsafe { mw.as_mut() }.ok_or(VerbError::Null("mw"))?;
        // SAFETY: the ABI's contract.
        let wanted = unsafe { bind.as_ref() }.ok_or(VerbError::Null("mw_bind"))?;
        check(&wanted.bind_info)?;
        let new_rkey = inc_rkey(Rkey(window.rkey));
        // SAFETY: the ABI's contract.
        let bind = unsafe { request(window, new_rkey, &wanted.bind_info) }?;
        let request = SendRequest {
            wr_id: wanted.wr_id,
            op: SendOp::BindMw(bind),
            to: Destination::Peer,
            flags: SendFlags::from_bits_truncate(wanted.send_flags),
            payload: Payload::Sges(&[]),
        };
        context.engine().post_send(object.handle, &[request]).map_err(|(_, error)| error)?;
        window.rkey = new_rkey.value();
        context.deliver_events();
        Ok(())
    })
}

/// Makes the one check that rdma-core's provider makes and the header's function does not
/// (`providers/rxe/rxe.c`, `rxe_bind_mw`). The same mistake in an `ibv_send_wr` is reported by its
/// completion.
fn check(info: &ibv_mw_bind_info) -> Result<(), VerbError> {
    if !Access::from_bits_retain(info.mw_access_flags).contains(Access::ZERO_BASED) {
        return Ok(());
    }
    let allowed = "a bind of a type 1 window must not set IBV_ACCESS_ZERO_BASED";
    Err(VerbError::value("mw_access_flags", info.mw_access_flags, allowed))
}

/// Converts the arguments of a bind.
///
/// # Safety
/// The ABI's contract: the region is NULL or registered.
pub unsafe fn request(
    window: &ibv_mw,
    new_rkey: Rkey,
    info: &ibv_mw_bind_info,
) -> Result<Bind, VerbError> {
    // SAFETY: the ABI's contract.
    let region = match unsafe { info.mr.as_ref() } {
        Some(mr) => Lkey(mr.lkey),
        // A bind of zero bytes ends the binding and names no region.
        None if info.length == 0 => Lkey(0),
        None => return Err(VerbError::Null("mr")),
    };
    Ok(Bind {
        window: Rkey(window.rkey),
        new_rkey,
        region,
        addr: info.addr,
        length: info.length,
        access: Access::from_bits_retain(info.mw_access_flags),
    })
}
