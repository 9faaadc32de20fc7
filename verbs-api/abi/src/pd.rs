//! Protection domains.

use std::ffi::c_int;

use urxe_stack::memory::PdId;

use crate::border;
use crate::context::Context;
use crate::error::VerbError;
use crate::layout::{ibv_context, ibv_pd};
use crate::live;
use crate::object::object;

/// A protection domain, with what C sees of it in front.
#[repr(C)]
pub struct PdObject {
    c: ibv_pd,
    /// What queue pairs, queues and address handles are made with.
    pub id: PdId,
    /// What regions and windows are in: the same, unless it is a parent domain.
    pub memory: PdId,
}

object!(pub PdObject, ibv_pd, "pd");

/// `ibv_alloc_pd`
pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    border::pointer("ibv_alloc_pd", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        let max = shared.device().limits().max_pd;
        let id = shared.device().alloc_pd().ok_or(VerbError::NoPdLeft { max })?;
        shared.owned().pds.insert(id);
        Ok(present(context, id, id))
    })
}

/// What the program gets for a domain.
pub fn present(context: *mut ibv_context, id: PdId, memory: PdId) -> *mut ibv_pd {
    let c = ibv_pd { context, handle: id.0 };
    live::hand_out(Box::new(PdObject { c, id, memory })).cast()
}

/// `ibv_dealloc_pd`, of parent domains as well
pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    border::number("ibv_dealloc_pd", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { PdObject::from_c(pd) }?;
        if context.is_inherited() {
            return Ok(());
        }
        context.device().dealloc_pd(object.id)?;
        context.owned().pds.remove(&object.id);
        // SAFETY: handed out by `present`; the program does not use it again.
        unsafe { live::take_back(pd.cast::<PdObject>()) };
        Ok(())
    })
}
