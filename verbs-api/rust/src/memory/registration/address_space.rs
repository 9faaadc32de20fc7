//! The whole address space as one region.
//!
//! With access rights for peers, this is an implicit on-demand region (`ibv_reg_mr` of address 0
//! and length `SIZE_MAX`). Without such rights, it is the `pd->local_dma_lkey` of kernel modules.
//!
//! The key is a key to memory with other owners, so making it is unsafe. These rules keep all other
//! safe code from the key:
//!
//! * A work request names memory by [`AddressSpace::slice`], which is unsafe.
//! * [`import_region`](ProtectionDomain::import_region), whose regions have safe slices, does not
//!   return this region.
//! * The device never gives the value of the key to a region of another kind, neither before nor
//!   after. A request with the key of a dropped region therefore never uses this key.
//! * A slice of a region of another device, where a region may have the same key, is refused.

use std::fmt;
use std::ptr::{NonNull, null_mut};

use urxe_stack::memory::{Access, Mr, RegMrError};
use urxe_stack::qp::work_request::Sge;
use urxe_wire::{Lkey, Rkey};

use super::super::{RegionSlice, RemoteRegion};
use crate::pd::ProtectionDomain;

/// The whole address space of the process under one key.
///
/// Made by [`ProtectionDomain::local_dma_key`] or
/// [`register_everything`](ProtectionDomain::register_everything). Dropping the value unbinds all
/// [windows](crate::MemoryWindow) of the key, invalidates the key and waits for accesses in
/// progress.
///
/// Pages need not be mapped ([`Access::ON_DEMAND`]): the device copies by system calls, which take
/// more than a microsecond each. An access to an unmapped page fails with a protection error.
///
/// ```
/// # use std::cell::UnsafeCell;
/// # use std::ptr::NonNull;
/// use urxe::{AddressSpace, SendRequest, WcStatus};
/// # use urxe::{Access, ConnectOptions, RecvRequest, sim::Fabric};
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
/// // SAFETY: only the request below names the key.
/// let everything: AddressSpace = unsafe { pd.local_dma_key() }?;
/// // Memory without a registration of its own.
/// let message = Box::new(*b"for you");
/// let addr = NonNull::from(message.as_ref()).cast();
/// // SAFETY: the box stays allocated and unchanged until the request has completed.
/// let bytes = unsafe { everything.slice(addr, message.len() as u32) };
/// qp.post_send(&SendRequest::send(bytes).signaled())?;
/// let _sent = cq.wait_one(None)?;
/// # let _received = peer_cq.wait_one(None)?;
/// assert_eq!(inbox.read_vec(0, 7)?, b"for you");
/// # Ok(())
/// # }
/// ```
pub struct AddressSpace {
    pd: ProtectionDomain,
    mr: Mr,
}

impl ProtectionDomain {
    /// Returns a key for the whole address space of the process, for requests of the owner only
    /// (`local_dma_lkey` of `struct ib_pd` in the kernel). Messages can then use memory without a
    /// registration of its own.
    ///
    /// # Errors
    /// Fails with [`RegMrError::TooMany`] if the device has no free region.
    ///
    /// # Safety
    /// The key gives requests of this protection domain access to any byte of the process. The
    /// caller promises that all requests that name the key keep the promises of
    /// [`AddressSpace::slice`]. The value of a dropped `AddressSpace`'s key may return after 2^24
    /// keys to the whole address space. Then this includes requests that are outstanding since.
    pub unsafe fn local_dma_key(&self) -> Result<AddressSpace, RegMrError> {
        // SAFETY: no peer can use the key. The callers of this function and of
        // `AddressSpace::slice` make the required promises.
        unsafe { AddressSpace::new(self, Access::LOCAL_WRITE) }
    }

    /// Registers the whole address space of the process: all memory that is mapped when it is
    /// accessed (an implicit on-demand region). Peers use the addresses of this process.
    /// [`Access::ON_DEMAND`] is implied.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use urxe::{Access, ConnectOptions, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = urxe::sim::Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    /// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
    /// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let message = Box::new(*b"hello");
    /// // SAFETY: the only peer reads the message, which stays allocated and unchanged.
    /// let all = unsafe { peer_pd.register_everything(Access::REMOTE_READ) }?;
    /// let there = all.remote(NonNull::from(message.as_ref()).cast(), 5);
    /// let copy = pd.allocate(64, Access::LOCAL_WRITE)?;
    /// qp.post_send(&SendRequest::read(copy.slice(..5)?, there).signaled())?;
    /// let _read = cq.wait_one(None)?;
    /// assert_eq!(copy.read_vec(0, 5)?, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`RegMrError`] in these cases:
    /// * The access rights are inconsistent, or a whole address space cannot have them.
    /// * The device has no free region.
    ///
    /// # Safety
    /// With a right for peers, each holder of the key can read or overwrite any byte of the
    /// process, until the returned value is dropped, or forever if the value is leaked. The caller
    /// promises that they access only memory for which the promises of [`register`](Self::register)
    /// hold. The promises of [`local_dma_key`](Self::local_dma_key) are required as well.
    pub unsafe fn register_everything(&self, access: Access) -> Result<AddressSpace, RegMrError> {
        // SAFETY: the caller makes the required promises, and so do the callers of
        // `AddressSpace::slice`.
        unsafe { AddressSpace::new(self, access) }
    }
}

impl AddressSpace {
    /// # Safety
    /// Each access through the key must respect the promises of [`ProtectionDomain::register`].
    unsafe fn new(pd: &ProtectionDomain, access: Access) -> Result<Self, RegMrError> {
        let (memory, access) = (pd.device().core().memory(), access | Access::ON_DEMAND);
        // SAFETY: the caller makes the required promises. Pages may be missing, because the region
        // is on demand.
        let mr = unsafe { memory.register(pd.memory_id(), null_mut(), usize::MAX, 0, access) }?;
        Ok(Self { pd: pd.clone(), mr })
    }

    /// Returns the protection domain of the key.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the access rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.mr.access
    }

    /// Returns the local key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.mr.lkey
    }

    /// Returns the remote key.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.mr.rkey
    }

    /// Returns the address, length and key that a peer needs to reach `len` bytes at `addr`.
    #[must_use]
    pub fn remote(&self, addr: NonNull<u8>, len: u64) -> RemoteRegion {
        RemoteRegion { addr: addr.as_ptr().expose_provenance() as u64, len, rkey: self.mr.rkey }
    }

    /// Returns a slice of `len` bytes at `addr`, for a work request.
    ///
    /// # Safety
    /// The caller promises the following, from the posting of a request with the slice until the
    /// request has completed, or its queue pair, its shared receive queue or this value is dropped:
    /// * The memory at `[addr, addr + len)`, if it is mapped, is not freed and has no new owner.
    /// * For a request that reads the memory (SEND, WRITE): no `&mut` to the memory is used.
    /// * For a request that writes the memory (a receive, a READ, the result of an atomic
    ///   operation): neither `&mut` nor `&` to the memory is used, except to atomics or inside an
    ///   `UnsafeCell` whose users expect this. The memory holds no value for which some bytes are
    ///   invalid.
    /// * For a request that binds a [window](crate::MemoryWindow) to the memory: the promises of
    ///   [`ProtectionDomain::register`] hold until the window is unbound.
    #[must_use]
    pub unsafe fn slice(&self, addr: NonNull<u8>, len: u32) -> RegionSlice<'_> {
        let addr = addr.as_ptr().expose_provenance() as u64;
        RegionSlice::of(&self.pd, Sge { addr, length: len, lkey: self.mr.lkey })
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // The promises about the key end with this call, so a bound window must not keep the key.
        self.pd.revoke(self.mr.lkey);
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSpace")
            .field("access", &self.mr.access)
            .field("lkey", &self.mr.lkey)
            .finish_non_exhaustive()
    }
}
