//! Protection domains, parent domains and thread domains.
//!
//! ```text
//!   queue pair ──made with──> parent domain ──of──> protection domain <── regions, windows
//!                                  └──has──> thread domain
//! ```
//! A *parent domain* (`ibv_alloc_parent_domain`) is named wherever a protection domain is: what is
//! made with it belongs to the protection domain that it is of. It stays while a queue pair, shared
//! receive queue or address handle is made with it, or a completion queue (C programs may name
//! one), and the protection domain stays while it does. A parent domain of a parent domain is one
//! of the same protection domain.
//!
//! A *thread domain* (`ibv_alloc_td`) is the program's promise that one thread at a time uses what
//! is made with it. A provider may leave out locks for it. Here they stay: an uncontended one costs
//! a few nanoseconds, and peers' packets come in on other threads in any case.
//!
//! Memory knows protection domains only: [`Device::protection_domain`] says which one a region is
//! to be registered in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::{Control, Device};
use urxe_memory::PdId;
use urxe_types::sync::lock;

/// A thread domain's number within its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TdId(pub u32);

/// A domain and what was made with it, beside the regions of a protection domain, which the memory
/// counts.
#[derive(Default)]
pub(super) struct Domain {
    /// What a parent domain is made of.
    parent: Option<Parent>,
    pub qps: u32,
    pub srqs: u32,
    pub ahs: u32,
    /// Completion queues made with a parent domain, which is all that they have of it.
    cqs: u32,
    /// Parent domains of a protection domain.
    parents: u32,
}

#[derive(Clone, Copy)]
struct Parent {
    of: PdId,
    td: Option<TdId>,
}

urxe_types::errors! {
    /// Why a protection or parent domain was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocPdError {
        #[error("there is no such protection domain")]
        NoPd = EINVAL,
        #[error("the protection domain still has {qps} queue pairs, {srqs} shared receive queues, \
                 {ahs} address handles, {cqs} completion queues, {mrs} memory regions and windows, \
                 and {parents} parent domains")]
        Busy { qps: u32, srqs: u32, ahs: u32, cqs: u32, mrs: u32, parents: u32 } = EBUSY,
    }

    /// Why a parent domain was not made.
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

    /// Why a thread domain was not deallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DeallocTdError {
        #[error("there is no such thread domain")]
        NoTd = EINVAL,
        #[error("{parents} parent domains have the thread domain")]
        Busy { parents: u32 } = EBUSY,
    }
}

impl Device {
    /// Makes a protection domain. `None` when the device has no more.
    #[must_use]
    pub fn alloc_pd(&self) -> Option<PdId> {
        self.place_domain(&mut lock(&self.control), Domain::default())
    }

    /// Makes a parent domain of `pd`, with a thread domain or without (`ibv_alloc_parent_domain`).
    /// It goes by [`dealloc_pd`](Self::dealloc_pd).
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

    /// The protection domain that `pd` is or is of; `None` when it was deallocated.
    #[must_use]
    pub fn protection_domain(&self, pd: PdId) -> Option<PdId> {
        lock(&self.control).base_of(pd)
    }

    /// Ends a protection or parent domain that nothing uses any more.
    ///
    /// # Errors
    /// [`DeallocPdError`].
    pub fn dealloc_pd(&self, pd: PdId) -> Result<(), DeallocPdError> {
        let mut control = lock(&self.control);
        let &Domain { parent, qps, srqs, ahs, cqs, parents } =
            control.pds.get(&pd).ok_or(DeallocPdError::NoPd)?;
        let mrs = self.memory.count_in(pd);
        if [qps, srqs, ahs, cqs, mrs, parents].iter().any(|&uses| uses != 0) {
            return Err(DeallocPdError::Busy { qps, srqs, ahs, cqs, mrs, parents });
        }
        control.pds.remove(&pd);
        if let Some(Parent { of, td }) = parent {
            control.count_parent(of, td, -1);
        }
        Ok(())
    }

    /// Counts a completion queue that is made with a parent domain (`ibv_create_cq_ex`): the domain
    /// stays until it is [released](Self::release_parent_domain).
    ///
    /// # Errors
    /// [`AllocParentDomainError::NoPd`].
    pub fn hold_parent_domain(&self, parent: PdId) -> Result<(), AllocParentDomainError> {
        let mut control = lock(&self.control);
        control.base_of(parent).ok_or(AllocParentDomainError::NoPd)?;
        control.count(parent, |domain| &mut domain.cqs, 1);
        Ok(())
    }

    /// A completion queue that was made with a parent domain is gone.
    pub fn release_parent_domain(&self, parent: PdId) {
        lock(&self.control).count(parent, |domain| &mut domain.cqs, -1);
    }

    /// Makes a thread domain (`ibv_alloc_td`). `None` when the device has no more, as many as
    /// protection domains.
    #[must_use]
    pub fn alloc_td(&self) -> Option<TdId> {
        let control = &mut *lock(&self.control);
        insert(&mut control.tds, &mut control.last_td, self.limits.max_pd, TdId, 0)
    }

    /// Ends a thread domain that no parent domain has any more.
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
    /// The protection domain that `pd` is or is of.
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

    /// Adds `change` to one of the counts of the objects that are made with `pd`.
    pub(super) fn count(&mut self, pd: PdId, of: fn(&mut Domain) -> &mut u32, change: i32) {
        if let Some(domain) = self.pds.get_mut(&pd) {
            let count = of(domain);
            *count = count.saturating_add_signed(change);
        }
    }
}

/// Inserts `value` with the next number after `last` that is free and not 0. `None` if there are
/// `allowed` already.
fn insert<K: Copy + Eq + Hash, V>(
    values: &mut HashMap<K, V>,
    last: &mut u32,
    allowed: u32,
    key: fn(u32) -> K,
    value: V,
) -> Option<K> {
    if values.len() >= allowed as usize {
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
