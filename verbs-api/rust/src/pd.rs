//! Protection domains, which decide which queue pairs may use which memory. Parent domains are
//! protection domains, too ([`crate::domain`]).

use std::fmt;
use std::sync::{Arc, Mutex};

use urxe_stack::memory::{DeregMrError, PdId};
use urxe_wire::Lkey;

use crate::device::Device;
use crate::domain::ThreadDomain;
use crate::waker_list::lock;

const KEPT: &str = "a region keeps its key until it is deregistered";

/// All protection domains of the device are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {allowed} protection domains and all are in use")]
#[non_exhaustive]
pub struct AllocPdError {
    /// The number of protection domains that the device supports.
    pub allowed: u32,
}

impl AllocPdError {
    /// Returns the errno that `ibv_alloc_pd` sets.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::ENOMEM
    }
}

/// A protection domain (`struct ibv_pd`).
///
/// Regions, windows, queue pairs and address handles belong to a protection domain. A queue pair
/// uses only memory of its own domain. Cloning is cheap. The domain is deallocated when the last
/// clone and the last object in it are dropped.
///
/// ```
/// use urxe::{Access, AllocPdError, ProtectionDomain, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// let allocated: Result<ProtectionDomain, AllocPdError> = device.alloc_pd();
/// let pd = allocated?;
/// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// // The region keeps its domain alive.
/// drop(pd);
/// region.write(0, b"still registered")?;
/// assert_eq!(region.pd().device().name(), "sim0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    device: Device,
    id: PdId,
    /// For a parent domain: the protection domain that it extends, and its thread domain.
    parent: Option<(ProtectionDomain, Option<ThreadDomain>)>,
    /// Regions whose handles are dropped while windows are still bound to them.
    orphaned_regions: Mutex<Vec<Lkey>>,
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut domain = f.debug_struct("ProtectionDomain");
        domain.field("device", &self.device().name()).field("handle", &self.handle());
        domain.finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.destroy("regions and queue pairs keep their protection domain", |core| {
            // Windows and queue pairs keep their domain alive, so no window is bound any more.
            self.deregister_orphans();
            self.device.inner.domains.remove(self.id);
            core.dealloc_pd(self.id)
        });
    }
}

impl Inner {
    /// Deregisters the orphaned regions that have no bound window any more.
    fn deregister_orphans(&self) {
        let memory = self.device.core().memory();
        lock(&self.orphaned_regions)
            .retain(|&lkey| matches!(memory.deregister(lkey), Err(DeregMrError::Busy { .. })));
    }
}

impl Device {
    /// Allocates a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// Fails with [`AllocPdError`] if the device has no free protection domain.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, AllocPdError> {
        let (core, max) = (self.core(), self.core().limits().max_pd);
        let id = core.alloc_pd().ok_or(AllocPdError { allowed: max })?;
        Ok(ProtectionDomain::with(self, id, None))
    }
}

impl ProtectionDomain {
    pub(crate) fn with(
        device: &Device,
        id: PdId,
        parent: Option<(Self, Option<ThreadDomain>)>,
    ) -> Self {
        let inner = Arc::new(Inner {
            device: device.clone(),
            id,
            parent,
            orphaned_regions: Mutex::default(),
        });
        device.inner.domains.insert(id, &inner);
        Self { inner }
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Returns the protection domain that a parent domain extends, and its thread domain.
    pub(crate) fn parent(&self) -> Option<&(Self, Option<ThreadDomain>)> {
        self.inner.parent.as_ref()
    }

    /// Returns the domain that a parent domain extends, or the domain itself if it is none.
    pub(crate) fn base(&self) -> &Self {
        self.parent().map_or(self, |(of, _)| of)
    }

    /// Returns the device of the domain.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Deregisters a region whose handle is dropped: at once, or when the last window that is bound
    /// to the region is gone. Waits for copies in progress, except in a forked child, where the
    /// threads of the parent never finish their copies.
    pub(crate) fn deregister(&self, lkey: Lkey) {
        self.device().destroy(KEPT, |core| match core.memory().deregister(lkey) {
            Err(DeregMrError::Busy { .. }) => {
                lock(&self.base().inner.orphaned_regions).push(lkey);
                // The last window may have been unbound in between.
                self.deregister_orphans();
                Ok(())
            }
            gone => gone,
        });
    }

    /// Deregisters a region whose handle is dropped, at once, and unbinds all windows of the
    /// region. Waits for copies as [`deregister`](Self::deregister) does.
    pub(crate) fn revoke(&self, lkey: Lkey) {
        self.device().destroy(KEPT, |core| core.memory().revoke(lkey));
    }

    /// Deregisters the regions without a handle that have no bound window any more.
    pub(crate) fn deregister_orphans(&self) {
        self.base().inner.deregister_orphans();
    }

    /// Returns the identifier for queue pairs, shared receive queues and address handles.
    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }

    /// Returns the identifier for regions and windows, which belong to the base domain.
    pub(crate) fn memory_id(&self) -> PdId {
        self.base().inner.id
    }
}
