//! Thread domains and parent domains.
//!
//! A parent domain is handed over wherever a protection domain is, so it is a [`PdObject`] like any
//! other. The allocation functions that a program may give one are for a provider's queues; the
//! queues here are not the program's to place, so they are not called, as by providers that
//! allocate nothing.

use std::ffi::c_int;

use urxe_stack::device::TdId;

use crate::border;
use crate::context::Context;
use crate::cq_ex::refuse_bits;
use crate::error::VerbError;
use crate::layout::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use crate::live;
use crate::object::object;
use crate::pd::{self, PdObject};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`
const PARENT_ATTRIBUTES: u32 = 1 | 1 << 1;

/// A thread domain, with what C sees of it in front.
#[repr(C)]
pub struct TdObject {
    c: ibv_td,
    id: TdId,
}

object!(TdObject, ibv_td, "td");

/// `ibv_alloc_td`, through `verbs_context`
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    border::pointer("ibv_alloc_td", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("init_attr"))?;
        refuse_bits("comp_mask", attr.comp_mask.into(), 0)?;
        let max = shared.device().limits().max_pd;
        let id = shared.device().alloc_td().ok_or(VerbError::NoPdLeft { max })?;
        shared.owned().tds.insert(id);
        Ok(live::hand_out(Box::new(TdObject { c: ibv_td { context }, id })).cast())
    })
}

/// `ibv_dealloc_td`, through `verbs_context`: EBUSY while a parent domain has it.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    border::number("ibv_dealloc_td", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { TdObject::from_c(td) }?;
        if context.is_inherited() {
            return Ok(());
        }
        context.device().dealloc_td(object.id)?;
        context.owned().tds.remove(&object.id);
        // SAFETY: handed out by alloc_td; the program does not use it again.
        unsafe { live::take_back(td.cast::<TdObject>()) };
        Ok(())
    })
}

/// `ibv_alloc_parent_domain`, through `verbs_context`
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    border::pointer("ibv_alloc_parent_domain", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        refuse_bits("comp_mask", attr.comp_mask.into(), PARENT_ATTRIBUTES.into())?;
        // SAFETY: the ABI's contract.
        let (domain, of_pd) = unsafe { PdObject::from_c(attr.pd) }?;
        shared.own("pd", of_pd)?;
        let td = if attr.td.is_null() {
            None
        } else {
            // SAFETY: the ABI's contract.
            let (td, of_td) = unsafe { TdObject::from_c(attr.td) }?;
            shared.own("td", of_td)?;
            Some(td.id)
        };
        let id = shared.device().alloc_parent_domain(domain.id, td)?;
        shared.owned().pds.insert(id);
        Ok(pd::present(context, id, domain.memory))
    })
}
