//! Protection domains, parent domains and thread domains.
//!
//! ```text
//!   queue pair ──made with──> parent domain ──of──> protection domain <── regions, windows
//!                                  └──has──> thread domain
//! ```
//!
//! A *parent domain* (`ibv_alloc_parent_domain`) may stand wherever a protection domain does. An
//! object made with a parent domain belongs to its protection domain. The parent domain stays while
//! a queue pair, shared receive queue, address handle or completion queue is made with it (C
//! programs may name a parent domain for a completion queue). The protection domain stays while a
//! parent domain exists. A parent domain of a parent domain is one of the same protection domain.
//! A call that makes a region or a window in a domain holds the domain, because the memory does not
//! know whether the domain exists.
//!
//! A *thread domain* (`ibv_alloc_td`) is the program's promise that one thread at a time uses the
//! objects made with it. A provider may leave out locks for them. This one does not: an uncontended
//! lock costs a few nanoseconds, and packets of peers arrive on other threads.
//!
//! The memory knows protection domains only. [`Device::protection_domain`] returns the one in which
//! a region is registered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::{Control, Device};
use urxe_memory::PdId;
use urxe_types::sync::lock;

/// The number of a thread domain within its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TdId(pub u32);

/// A domain, and the numbers of the objects made with it. The memory counts the regions of a
/// protection domain.
#[derive(Default)]
pub(super) struct Domain {
    /// The origin of a parent domain.
    parent: Option<Parent>,
    pub qps: u32,
    pub srqs: u32,
    pub ahs: u32,
    /// Completion queues made with a parent domain, and calls that make an object in the domain.
    holds: u32,
    /// Parent domains of a protection domain.
    parents: u32,
}

#[derive(Clone, Copy)]
struct Parent {
    of: PdId,
    td: Option<TdId>,
}

urxe_types::errors! {
    /// The reason why a protection or parent domain was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocPdError {
        #[error("there is no such protection domain")]
        NoPd = EINVAL,
        #[error("the protection domain still has {qps} queue pairs, {srqs} shared receive queues, \
                 {ahs} address handles, {holds} completion queues and running calls, {mrs} memory \
                 regions and windows, and {parents} parent domains")]
        Busy { qps: u32, srqs: u32, ahs: u32, holds: u32, mrs: u32, parents: u32 } = EBUSY,
    }

    /// The reason why a parent domain was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocParentDomainError {
        #[error("there is no such protection domain: it was deallocated")]
        NoPd = EINVAL,
        #[error("there is no such thread domain: it was deallocated, or it belongs to another \
                 device")]
        NoTd = EINVAL,
        #[error("the device has {allowed} protection domains and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
    }

    /// The reason why a thread domain was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocTdError {
        #[error("there is no such thread domain")]
        NoTd = EINVAL,
        #[error("{parents} parent domains use the thread domain")]
        Busy { parents: u32 } = EBUSY,
    }
}

impl Device {
    /// Allocates a protection domain (`ibv_alloc_pd`). `None` if all `max_pd` are in use, or if the
    /// system has no memory.
    #[must_use]
    pub fn alloc_pd(&self) -> Option<PdId> {
        self.place_domain(&mut lock(&self.control), Domain::default())
    }

    /// Allocates a parent domain of `pd`, with a thread domain or without
    /// (`ibv_alloc_parent_domain`). [`dealloc_pd`](Self::dealloc_pd) deallocates the domain.
    ///
    /// # Errors
    /// [`AllocParentDomainError`].
    pub fn alloc_parent_domain(
        &self,
        pd: PdId,
        td: Option<TdId>,
    ) -> Result<PdId, AllocParentDomainError> {
        let mut control = lock(&self.control);
        let of = control.base_of(pd).ok_or(AllocParentDomainError::NoPd)?;
        if td.is_some_and(|td| !control.tds.contains_key(&td)) {
            return Err(AllocParentDomainError::NoTd);
        }
        let domain = Domain { parent: Some(Parent { of, td }), ..Domain::default() };
        let none_left = AllocParentDomainError::NoneLeft { allowed: self.limits.max_pd };
        let made = self.place_domain(&mut control, domain).ok_or(none_left)?;
        control.count_parent(of, td, 1);
        Ok(made)
    }

    fn place_domain(&self, control: &mut Control, domain: Domain) -> Option<PdId> {
        insert(&mut control.pds, &mut control.last_pd, self.limits.max_pd, PdId, domain)
    }

    /// Returns `pd` if it is a protection domain, or the protection domain of a parent domain.
    /// `None` for a deallocated domain.
    #[must_use]
    pub fn protection_domain(&self, pd: PdId) -> Option<PdId> {
        lock(&self.control).base_of(pd)
    }

    /// Deallocates a protection or parent domain that has no objects (`ibv_dealloc_pd`).
    ///
    /// # Errors
    /// [`DeallocPdError`].
    pub fn dealloc_pd(&self, pd: PdId) -> Result<(), DeallocPdError> {
        let mut control = lock(&self.control);
        let &Domain { parent, qps, srqs, ahs, holds, parents } =
            control.pds.get(&pd).ok_or(DeallocPdError::NoPd)?;
        let mrs = self.memory.count_in(pd);
        if [qps, srqs, ahs, holds, mrs, parents].iter().any(|&uses| uses != 0) {
            return Err(DeallocPdError::Busy { qps, srqs, ahs, holds, mrs, parents });
        }
        control.pds.remove(&pd);
        if let Some(Parent { of, td }) = parent {
            control.count_parent(of, td, -1);
        }
        Ok(())
    }

    /// Keeps a protection or parent domain until [`release_domain`](Self::release_domain):
    ///
    /// - while a completion queue is made with a parent domain (`ibv_create_cq_ex`),
    /// - while a call makes a region or a window in a domain, or moves a region there.
    ///
    /// # Errors
    /// [`AllocParentDomainError::NoPd`].
    pub fn hold_domain(&self, pd: PdId) -> Result<(), AllocParentDomainError> {
        let mut control = lock(&self.control);
        control.base_of(pd).ok_or(AllocParentDomainError::NoPd)?;
        control.count(pd, |domain| &mut domain.holds, 1);
        Ok(())
    }

    /// Ends one [`hold_domain`](Self::hold_domain).
    pub fn release_domain(&self, pd: PdId) {
        lock(&self.control).count(pd, |domain| &mut domain.holds, -1);
    }

    /// Allocates a thread domain (`ibv_alloc_td`). `None` if there are `max_pd` already, or if the
    /// system has no memory.
    #[must_use]
    pub fn alloc_td(&self) -> Option<TdId> {
        let control = &mut *lock(&self.control);
        insert(&mut control.tds, &mut control.last_td, self.limits.max_pd, TdId, 0)
    }

    /// Deallocates a thread domain that no parent domain uses (`ibv_dealloc_td`).
    ///
    /// # Errors
    /// [`DeallocTdError`].
    pub fn dealloc_td(&self, td: TdId) -> Result<(), DeallocTdError> {
        let mut control = lock(&self.control);
        match control.tds.get(&td) {
            None => Err(DeallocTdError::NoTd),
            Some(0) => {
                control.tds.remove(&td);
                Ok(())
            }
            Some(&parents) => Err(DeallocTdError::Busy { parents }),
        }
    }
}

impl Control {
    /// Returns the protection domain that `pd` is or belongs to.
    pub(super) fn base_of(&self, pd: PdId) -> Option<PdId> {
        let domain = self.pds.get(&pd)?;
        Some(domain.parent.map_or(pd, |parent| parent.of))
    }

    fn count_parent(&mut self, of: PdId, td: Option<TdId>, change: i32) {
        self.count(of, |domain| &mut domain.parents, change);
        if let Some(parents) = td.and_then(|td| self.tds.get_mut(&td)) {
            *parents = parents.saturating_add_signed(change);
        }
    }

    /// Adds `change` to one of the counts of objects made with `pd`.
    pub(super) fn count(&mut self, pd: PdId, of: fn(&mut Domain) -> &mut u32, change: i32) {
        if let Some(domain) = self.pds.get_mut(&pd) {
            let count = of(domain);
            *count = count.saturating_add_signed(change);
        }
    }
}

/// Inserts `value` under the next number after `last` that is free and not 0. `None` if there are
/// `allowed` values already, or if the system has no memory.
fn insert<K: Copy + Eq + Hash, V>(
    values: &mut HashMap<K, V>,
    last: &mut u32,
    allowed: u32,
    key: fn(u32) -> K,
    value: V,
) -> Option<K> {
    if values.len() >= allowed as usize || values.try_reserve(1).is_err() {
        return None;
    }
    loop {
        *last = last.wrapping_add(1).max(1);
        if let Entry::Vacant(entry) = values.entry(key(*last)) {
            entry.insert(value);
            return Some(key(*last));
        }
    }
}
