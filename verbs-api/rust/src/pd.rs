//! Protection domains: which queue pairs may use which memory.

use std::sync::Arc;

use urxe_stack::memory::{Access, PdId};

use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::memory::{AllocateError, MemoryRegion};
use crate::qp::QueuePairBuilder;

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

/// A protection domain (`struct ibv_pd`). Cheap to clone; it ends when the last clone and the last region and queue
/// pair in it are gone.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Device,
    id: PdId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let freed = self.device.core().dealloc_pd(self.id);
        debug_assert_eq!(freed, Ok(()), "regions and queue pairs keep their protection domain");
    }
}

impl ProtectionDomain {
    pub(crate) fn new(device: &Device) -> Result<Self, AllocPdError> {
        let core = device.core();
        let id = core.alloc_pd().ok_or(AllocPdError { allowed: core.limits().max_pd })?;
        Ok(Self { inner: Arc::new(Inner { device: device.clone(), id }) })
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Allocates `len` zeroed bytes and registers them (`ibv_reg_mr`). Peers name them by addresses from 0 on.
    ///
    /// # Errors
    /// [`AllocateError`]: no memory, a length of 0, rights that do not go together, too many regions.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, AllocateError> {
        MemoryRegion::allocate(self, len, 0, access)
    }

    /// The same; peers name the bytes by addresses from `iova` on, which is a multiple of the page size
    /// (`ibv_reg_mr_iova`).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and an `iova` that is no such multiple or leaves 64 bits.
    pub fn allocate_at(&self, len: usize, iova: u64, access: Access) -> Result<MemoryRegion, AllocateError> {
        MemoryRegion::allocate(self, len, iova, access)
    }

    /// Begins a queue pair whose sends and receives complete in `cq`.
    #[must_use]
    pub fn queue_pair(&self, cq: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder::new(self, cq)
    }

    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }
}
