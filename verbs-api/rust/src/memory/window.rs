//! Memory windows: keys for parts of regions, bound and unbound by work requests.

use std::fmt;

use urxe_stack::memory::{Access, AllocMwError, Bind, MwType, inc_rkey};
use urxe_stack::qp::work_request::Sge;
use urxe_wire::Rkey;

use super::{RegionSlice, RemoteRegion};
use crate::pd::ProtectionDomain;

/// A memory window (`struct ibv_mw`): a key of its own for part of a region.
///
/// [`SendRequest::bind`](crate::SendRequest::bind) binds the window. There are two types:
/// * Type 2 ([`alloc_window`](ProtectionDomain::alloc_window)): only the peer of the queue pair
///   that bound the window can use the key. A
///   [`SendRequest::invalidate`](crate::SendRequest::invalidate) on this queue pair, or a SEND with
///   invalidate of the peer, unbinds the window. Then it can be bound again.
/// * Type 1 ([`alloc_window_of_type`](ProtectionDomain::alloc_window_of_type)): the peers of all
///   queue pairs in the protection domain can use the key. Another bind on any of these queue pairs
///   replaces the binding. [`SendRequest::unbind`](crate::SendRequest::unbind) ends it.
///
/// A [`MemoryRegion`](crate::MemoryRegion) that is dropped while windows are bound to it stays
/// registered, with its memory. The device deregisters the region when the last window is unbound
/// or dropped, or the protection domain ends. Dropping another kind of region unbinds its windows.
/// Dropping the window, or the queue pair that bound it, unbinds the window and waits
/// for accesses in progress.
///
/// ```
/// use urxe::{Access, AllocMwError, MemoryWindow, MwType, SendRequest, WcStatus};
/// # use urxe::{ConnectOptions, sim::Fabric};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// # let copy = peer_pd.allocate(64, Access::LOCAL_WRITE)?;
/// let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// region.write(1024, b"for you")?;
/// let allocated: Result<MemoryWindow, AllocMwError> = pd.alloc_window();
/// let mut window = allocated?;
/// let part = region.slice(1024..1088)?;
/// qp.post_send(&SendRequest::bind(&mut window, part, Access::REMOTE_READ).signaled())?;
/// let _bound = cq.wait_one(None)?;
///
/// // The peer can read this part of the region only.
/// let there = window.remote().expect("it is bound");
/// peer.post_send(&SendRequest::read(copy.slice(..)?, there).signaled())?;
/// let _read = peer_cq.wait_one(None)?;
/// assert_eq!(copy.read_vec(0, 7)?, b"for you");
///
/// // The key is invalidated; the region stays.
/// qp.post_send(&SendRequest::invalidate(there.rkey).signaled())?;
/// let _invalidated = cq.wait_one(None)?;
///
/// // A window for the peers of all queue pairs of the domain.
/// let shared = pd.alloc_window_of_type(MwType::Type1)?;
/// assert!(shared.remote().is_none());
/// # Ok(())
/// # }
/// ```
pub struct MemoryWindow {
    pd: ProtectionDomain,
    kind: MwType,
    key: Rkey,
    bound: Option<(u64, u64)>,
}

impl ProtectionDomain {
    /// Allocates a type 2 memory window (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// Fails with [`AllocMwError`] if the device has no free window.
    pub fn alloc_window(&self) -> Result<MemoryWindow, AllocMwError> {
        self.alloc_window_of_type(MwType::Type2)
    }

    /// Allocates a memory window of either type (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// Fails with [`AllocMwError`] if the device has no free window.
    pub fn alloc_window_of_type(&self, kind: MwType) -> Result<MemoryWindow, AllocMwError> {
        let key = self.device().core().memory().alloc_mw_by_handle(self.memory_id(), kind)?;
        Ok(MemoryWindow { pd: self.clone(), kind, key, bound: None })
    }
}

impl MemoryWindow {
    /// Returns the bind of a request and changes the window's key to the next one. If the request
    /// fails or is not posted, the key after that is valid for the next bind: the core accepts
    /// binds of this window under each of its keys.
    pub(crate) fn bind(&mut self, part: &RegionSlice<'_>, access: Access) -> Bind {
        let (window, new_rkey) = (self.key, inc_rkey(self.key));
        let Sge { addr, length, lkey } = part.sge();
        let length = u64::from(length);
        self.key = new_rkey;
        let start = if access.contains(Access::ZERO_BASED) { 0 } else { addr };
        self.bound = (length != 0).then_some((start, length));
        Bind { window, new_rkey, region: lkey, addr, length, access }
    }

    /// Returns the bind of no bytes, which unbinds a type 1 window.
    pub(crate) fn unbind(&mut self) -> Bind {
        let (window, new_rkey) = (self.key, inc_rkey(self.key));
        self.key = new_rkey;
        self.bound = None;
        Bind { window, new_rkey, ..Bind::default() }
    }

    /// Returns the type of the window.
    #[must_use]
    pub fn kind(&self) -> MwType {
        self.kind
    }

    /// Returns the protection domain of the window.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the key of the last bind request, whether or not that request succeeded.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        self.key
    }

    /// Returns the address, length and key that a peer needs to reach the memory of the last bind
    /// request. Returns `None` before the first bind and after an unbind. If the last bind failed
    /// or was not posted, the key gives no access.
    #[must_use]
    pub fn remote(&self) -> Option<RemoteRegion> {
        self.bound.map(|(addr, len)| RemoteRegion { addr, len, rkey: self.key })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        self.pd.device().destroy("only its handle deallocates it", |core| {
            let gone = core.memory().dealloc_mw(self.key);
            self.pd.deregister_orphans();
            gone
        });
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("rkey", &self.key)
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}
