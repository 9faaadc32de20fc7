//! Memory windows.
//!
//! A window's key is in its `ibv_mw`, where programs read it. A bind by `ibv_bind_mw` writes the
//! new one there; with a type 2 window the program chooses the key, posts the bind and writes it
//! there itself, as the manual page of `ibv_bind_mw` has it.

use std::ffi::c_int;

use urxe_stack::memory::{Access, Bind, MwType, inc_rkey};
use urxe_stack::qp::work_request::{Destination, Payload, SendFlags, SendOp, SendRequest};
use urxe_wire::{Lkey, Rkey};

use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use crate::pd::PdObject;
use crate::qp::QpObject;

handle_registry::object!(@plain ibv_mw, ibv_mw, "mw");

/// The part of a key that stays.
const fn identity(key: u32) -> u32 {
    key & !0xff
}

/// `ibv_alloc_mw`, through `ibv_context.ops`
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    ffi::return_ptr("ibv_alloc_mw", || {
        // SAFETY: the ABI's contract.
        let (domain, context) = unsafe { PdObject::from_c(pd) }?;
        let kind = match mw_type {
            1 => MwType::Type1,
            2 => MwType::Type2,
            given => {
                let given = u64::from(given.cast_unsigned());
                let allowed = "IBV_MW_TYPE_1 (1) and IBV_MW_TYPE_2 (2) are there";
                return Err(VerbError::value("type", given, allowed));
            }
        };
        let key = context.device().memory().alloc_mw(domain.memory, kind)?;
        context.objects().mws.insert(identity(key.value()));
        // SAFETY: from_c found the protection domain there.
        let of = unsafe { (*pd).context };
        let handle = context.new_handle();
        Ok(handle_registry::into_raw(Box::new(ibv_mw {
            context: of,
            pd,
            rkey: key.value(),
            handle,
            mw_type,
        })))
    })
}

/// `ibv_dealloc_mw`, through `ibv_context.ops`: when it returns, no peer comes through the window
/// any more.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let end = |object: &ibv_mw, context: &Context| {
        context.device().memory().dealloc_mw(Rkey(object.rkey))?;
        context.objects().mws.remove(&identity(object.rkey));
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { ibv_mw::destroy("ibv_dealloc_mw", mw, end) }
}

/// `ibv_bind_mw`, through `ibv_context.ops`: of type 1 windows alone, to regions of the same
/// domain, which the header's function has checked.
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

/// Refuses at once the one thing that rdma-core's provider does and the header's function does not
/// (`providers/rxe/rxe.c`, `rxe_bind_mw`); the same in an `ibv_send_wr` is told by its completion.
fn check(info: &ibv_mw_bind_info) -> Result<(), VerbError> {
    if !Access::from_bits_retain(info.mw_access_flags).contains(Access::ZERO_BASED) {
        return Ok(());
    }
    let allowed = "addresses of a type 1 window count like those of its region";
    Err(VerbError::value("mw_access_flags", info.mw_access_flags, allowed))
}

/// What a bind asks for.
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
        // Taking a binding away names no region.
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
