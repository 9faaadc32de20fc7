//! Protection domains: which queue pairs may use which memory. Parent domains are protection
//! domains of their kind ([`crate::domain`]).

use std::sync::{Arc, Mutex};

use urxe_stack::memory::{DeregMrError, PdId};
use urxe_wire::Lkey;

use crate::device::Device;
use crate::domain::ThreadDomain;
use crate::waker_list::lock;

const KEPT: &str = "a region keeps its key until it is deregistered";

/// Why there is no more protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {allowed} protection domains and all are in use")]
pub struct AllocPdError {
    /// How many there are.
    pub allowed: u32,
}

impl AllocPdError {
    /// The errno that `ibv_alloc_pd` sets.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::ENOMEM
    }
}

/// A protection domain (`struct ibv_pd`). Cheap to clone; it ends when the last clone and the last
/// region and queue pair in it are gone.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    device: Device,
    id: PdId,
    /// What a parent domain is of, and its thread domain.
    parent: Option<(ProtectionDomain, Option<ThreadDomain>)>,
    /// Regions without a handle that windows are still bound to.
    orphaned_regions: Mutex<Vec<Lkey>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.destroy("regions and queue pairs keep their protection domain", |core| {
            // Windows and queue pairs keep their protection domain, so none is bound any more.
            self.deregister_orphans();
            self.device.inner.domains.remove(self.id);
            core.dealloc_pd(self.id)
        });
    }
}

impl Inner {
    /// Deregisters what lingers and has no windows any more.
    fn deregister_orphans(&self) {
        let memory = self.device.core().memory();
        lock(&self.orphaned_regions)
            .retain(|&lkey| matches!(memory.deregister(lkey), Err(DeregMrError::Busy { .. })));
    }
}

impl Device {
    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`AllocPdError`]: the device has no more.
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

    /// What a parent domain is of, and its thread domain.
    pub(crate) fn parent(&self) -> Option<&(Self, Option<ThreadDomain>)> {
        self.inner.parent.as_ref()
    }

    /// The protection domain that a parent domain is of; another is its own.
    pub(crate) fn base(&self) -> &Self {
        self.parent().map_or(self, |(of, _)| of)
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Deregisters a region whose handle is going, at once or when no window is bound to it any
    /// more. Waits for copies in progress, but not in a forked child, where those of the parent's
    /// other threads never end.
    pub(crate) fn deregister(&self, lkey: Lkey) {
        self.device().destroy(KEPT, |core| match core.memory().deregister(lkey) {
            Err(DeregMrError::Busy { .. }) => {
                lock(&self.base().inner.orphaned_regions).push(lkey);
                // The last window may have gone in between.
                self.deregister_orphans();
                Ok(())
            }
            gone => gone,
        });
    }

    /// Deregisters a region whose handle is going, at once, and takes the bindings of windows to it
    /// away. Waits as [`deregister`](Self::deregister) does.
    pub(crate) fn revoke(&self, lkey: Lkey) {
        self.device().destroy(KEPT, |core| core.memory().revoke(lkey));
    }

    /// Deregisters the regions without a handle that no window is bound to any more.
    pub(crate) fn deregister_orphans(&self) {
        self.base().inner.deregister_orphans();
    }

    /// What queue pairs, shared receive queues and address handles are made with.
    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }

    /// What regions and windows are in.
    pub(crate) fn memory_id(&self) -> PdId {
        self.base().inner.id
    }
}
