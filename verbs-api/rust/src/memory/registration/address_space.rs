//! The whole address space as one region: an implicit on-demand region (`ibv_reg_mr` of address 0
//! and length `SIZE_MAX`), and, without rights for peers, what a kernel module knows as
//! `pd->local_dma_lkey`.
//!
//! The key alone reaches nothing: a part of it is named by [`AddressSpace::slice`], whose caller
//! answers for the bytes. That is why the key without rights for peers can be had safely, and why
//! [`import_region`](ProtectionDomain::import_region), whose regions have safe slices, does not
//! find it.

use std::fmt;
use std::ptr::{NonNull, null_mut};

use urxe_stack::memory::{Access, Mr, RegMrError};
use urxe_stack::qp::work_request::Sge;
use urxe_wire::{Lkey, Rkey};

use super::super::{RegionSlice, RemoteRegion};
use crate::pd::ProtectionDomain;

/// The whole address space of the process under one key, made by
/// [`ProtectionDomain::local_dma_key`] or
/// [`register_everything`](ProtectionDomain::register_everything). Dropping it takes the key away
/// and waits for accesses in progress.
///
/// Its pages need not be there ([`Access::ON_DEMAND`]): bytes move by system calls, at more than a
/// microsecond each, and what is not mapped is a protection error.
///
/// ```
/// # use std::cell::UnsafeCell;
/// # use std::ptr::NonNull;
/// # use urxe::{Access, ConnectOptions, RecvRequest, SendRequest, WcStatus, sim::Fabric};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// # let inbox = peer_pd.allocate(64, Access::LOCAL_WRITE)?;
/// # peer.post_recv(&RecvRequest::new(inbox.slice(..)?))?;
/// let everything = pd.local_dma_key()?;
/// // Memory that no call has registered.
/// let message = Box::new(*b"for you");
/// // SAFETY: the box stays, and nobody changes it, until the request has completed.
/// let bytes = unsafe { everything.slice(NonNull::from(message.as_ref()).cast(), message.len() as u32) };
/// qp.post_send(&SendRequest::send(bytes).signaled())?;
/// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
/// # peer_cq.wait_one(None)?;
/// assert_eq!(inbox.read_vec(0, 7)?, b"for you");
/// # Ok(())
/// # }
/// ```
pub struct AddressSpace {
    pd: ProtectionDomain,
    mr: Mr,
}

impl ProtectionDomain {
    /// A key for everything that this process has, for the own work requests alone
    /// (`local_dma_lkey` of a kernel's `struct ib_pd`): messages go from and to memory that was
    /// never registered.
    ///
    /// # Errors
    /// [`RegMrError::TooMany`].
    pub fn local_dma_key(&self) -> Result<AddressSpace, RegMrError> {
        // SAFETY: no peer can use it, and own work requests name parts of it only as
        // `AddressSpace::slice` lets them, whose callers promise of each part what is asked for
        // here of all.
        unsafe { AddressSpace::new(self, Access::LOCAL_WRITE) }
    }

    /// Registers everything that this process has, whatever is mapped when it is used (an implicit
    /// on-demand region). Peers name it by the process's own addresses. [`Access::ON_DEMAND`] goes
    /// without saying.
    ///
    /// # Errors
    /// [`RegMrError`]: rights that do not go together, or that a whole address space cannot have;
    /// too many regions.
    ///
    /// # Safety
    /// With a right for peers, whoever has the key can read any byte of the process, or overwrite
    /// any, at any time until the returned value was dropped (for ever if it is leaked): the caller
    /// answers for it that they touch only what [`register`](Self::register) asks for.
    pub unsafe fn register_everything(&self, access: Access) -> Result<AddressSpace, RegMrError> {
        // SAFETY: the caller's promise, and those of `AddressSpace::slice`.
        unsafe { AddressSpace::new(self, access) }
    }
}

impl AddressSpace {
    /// # Safety
    /// Nothing reaches what the key stands for but as [`ProtectionDomain::register`] asks for.
    unsafe fn new(pd: &ProtectionDomain, access: Access) -> Result<Self, RegMrError> {
        let (memory, access) = (pd.device().core().memory(), access | Access::ON_DEMAND);
        // SAFETY: the caller's promise. Pages may be missing, as on-demand regions' may.
        let mr = unsafe { memory.register(pd.memory_id(), null_mut(), usize::MAX, 0, access) }?;
        Ok(Self { pd: pd.clone(), mr })
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// What it grants.
    #[must_use]
    pub fn access(&self) -> Access {
        self.mr.access
    }

    /// The owner's key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.mr.lkey
    }

    /// The peers' key.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.mr.rkey
    }

    /// What a peer needs to reach `len` bytes at an address of this process: it, the length, the
    /// key.
    #[must_use]
    pub fn remote(&self, addr: NonNull<u8>, len: u64) -> RemoteRegion {
        RemoteRegion { addr: addr.as_ptr().expose_provenance() as u64, len, rkey: self.mr.rkey }
    }

    /// `len` bytes at `addr`, for a work request.
    ///
    /// # Safety
    /// From when a request with it is posted until that has completed, or its queue pair or this
    /// value was dropped:
    /// * What is at `[addr, addr + len)`, if anything is mapped there, is not freed, and is nobody
    ///   else's memory by then.
    /// * A request that takes bytes from there (SEND, WRITE): no `&mut` to any of them is used.
    /// * One that places bytes there (a receive, a READ, an atomic operation's result): neither
    ///   `&mut` nor `&` is, except to atomics or inside an `UnsafeCell` whose users expect it; and
    ///   no value lives there for which some bytes are invalid.
    #[must_use]
    pub unsafe fn slice(&self, addr: NonNull<u8>, len: u32) -> RegionSlice<'_> {
        let addr = addr.as_ptr().expose_provenance() as u64;
        RegionSlice::of(Sge { addr, length: len, lkey: self.mr.lkey })
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.pd.deregister(self.mr.lkey);
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSpace").field("mr", &self.mr).finish_non_exhaustive()
    }
}
