//! Protection domains, parent domains and thread domains.
//!
//! C programs use a parent domain in place of a protection domain, so it is also a [`PdObject`].
//! The allocation functions of a parent domain place a provider's queues. The queues of this
//! library are not in memory of the program, so the functions are never called. Providers that
//! allocate nothing behave the same way.

use std::ffi::c_int;

use urxe_stack::device::TdId;
use urxe_stack::memory::PdId;

use crate::context::Context;
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`
const PARENT_ATTRIBUTES: u32 = 1 | 1 << 1;

/// A protection domain or parent domain, beginning with its C structure.
#[repr(C)]
pub struct PdObject {
    c: ibv_pd,
    domain: Domain,
}

handle_registry::object!(PdObject, ibv_pd, "pd");

/// The numbers of a domain.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    /// The domain of queue pairs, queues and address handles.
    pub id: PdId,
    /// The domain of regions and windows: for a parent domain its protection domain, otherwise
    /// `id`.
    pub memory: PdId,
    /// The context of the domain.
    pub context: *mut ibv_context,
}

impl Domain {
    /// Returns the numbers and the context of a protection domain. The numbers are copies, because
    /// another thread may deallocate the domain until an object is made in it. The device then
    /// refuses the object, except a region or a window, see [`hold`](Self::hold).
    ///
    /// # Safety
    /// The ABI's contract: the context of the domain stays open while the result is used.
    pub unsafe fn from_c<'a>(pd: *mut ibv_pd) -> Result<(Self, &'a Context), VerbError> {
        ffi::non_null(pd, "pd")?;
        // SAFETY: the ABI's contract.
        unsafe {
            let domain = handle_registry::read(pd.cast::<PdObject>(), "pd", |pd| pd.domain)?;
            Ok((domain, Context::from_c(domain.context)?))
        }
    }

    /// Lets `ibv_dealloc_pd` of the domain fail with EBUSY while the result lives. The memory
    /// module does not know the domains. So a verb holds the domain while it makes a region or a
    /// window there, or moves a region there. Fails if the domain was deallocated.
    pub fn hold(self, context: &Context) -> Result<HeldDomain<'_>, VerbError> {
        context.device().hold_domain(self.id)?;
        Ok(HeldDomain { context, id: self.id })
    }

    /// Returns the numbers of the protection domain that is the argument `what`. Fails if the
    /// domain belongs to another context than `context`.
    ///
    /// # Safety
    /// As for [`from_c`](Self::from_c).
    pub unsafe fn from_c_in(
        context: &Context,
        what: &'static str,
        pd: *mut ibv_pd,
    ) -> Result<Self, VerbError> {
        // SAFETY: the caller's.
        let (domain, owner) = unsafe { Self::from_c(pd) }?;
        context.check_owner(what, owner).map(|()| domain)
    }
}

/// A domain that no thread deallocates.
#[must_use]
pub struct HeldDomain<'a> {
    context: &'a Context,
    id: PdId,
}

impl Drop for HeldDomain<'_> {
    fn drop(&mut self) {
        self.context.device().release_domain(self.id);
    }
}

/// `ibv_alloc_pd`
pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    ffi::return_ptr("ibv_alloc_pd", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        let max = shared.device().limits().max_pd;
        let id = shared.device().alloc_pd().ok_or(VerbError::NoPdLeft { max })?;
        shared.objects().pds.insert(id);
        Ok(to_ibv_pd(context, id, id))
    })
}

/// Makes the C structure of a domain.
pub fn to_ibv_pd(context: *mut ibv_context, id: PdId, memory: PdId) -> *mut ibv_pd {
    let c = ibv_pd { context, handle: id.0 };
    let domain = Domain { id, memory, context };
    handle_registry::into_raw(Box::new(PdObject { c, domain })).cast()
}

/// `ibv_dealloc_pd`, for parent domains as well.
pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let end = |object: &PdObject, context: &Context| {
        context.device().dealloc_pd(object.domain.id)?;
        context.objects().pds.remove(&object.domain.id);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { PdObject::destroy("ibv_dealloc_pd", pd, end) }
}

/// A thread domain, beginning with its C structure.
#[repr(C)]
pub struct TdObject {
    c: ibv_td,
    id: TdId,
}

handle_registry::object!(TdObject, ibv_td, "td");

/// `ibv_alloc_td`, through `verbs_context`
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    ffi::return_ptr("ibv_alloc_td", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("init_attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), 0)?;
        let max = shared.device().limits().max_pd;
        let id = shared.device().alloc_td().ok_or(VerbError::NoPdLeft { max })?;
        shared.objects().tds.insert(id);
        Ok(handle_registry::into_raw(Box::new(TdObject { c: ibv_td { context }, id })).cast())
    })
}

/// `ibv_dealloc_td`, through `verbs_context`: fails with EBUSY while a parent domain uses the
/// thread domain.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    let end = |object: &TdObject, context: &Context| {
        context.device().dealloc_td(object.id)?;
        context.objects().tds.remove(&object.id);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { TdObject::destroy("ibv_dealloc_td", td, end) }
}

/// `ibv_alloc_parent_domain`, through `verbs_context`
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    ffi::return_ptr("ibv_alloc_parent_domain", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), PARENT_ATTRIBUTES.into())?;
        // SAFETY: the ABI's contract.
        let domain = unsafe { Domain::from_c_in(shared, "pd", attr.pd) }?;
        let td = match attr.td.is_null() {
            true => None,
            // SAFETY: the ABI's contract.
            false => Some(unsafe { TdObject::from_c_in(shared, "td", attr.td) }?.id),
        };
        let id = shared.device().alloc_parent_domain(domain.id, td)?;
        shared.objects().pds.insert(id);
        Ok(to_ibv_pd(context, id, domain.memory))
    })
}
