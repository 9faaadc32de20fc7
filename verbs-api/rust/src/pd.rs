//! Protection domains: which queue pairs may use which memory. Parent domains are protection
//! domains of their kind ([`crate::domain`]).

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use urxe_stack::memory::{Access, AllocMrError, AllocMwError, DeregMrError, DmError, MwType, PdId};
use urxe_wire::Lkey;

use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::domain::ThreadDomain;
use crate::memory::{
    AllocateError, DeviceMemory, DeviceMemoryRegion, FastRegion, MapFileError, MemoryRegion,
    MemoryWindow,
};
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
    lingering: Mutex<Vec<Lkey>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.inner.node.is_inherited() {
            return;
        }
        // Windows and queue pairs keep their protection domain, so none is bound any more.
        self.sweep();
        self.device.inner.domains.forget(self.id);
        let freed = self.device.core().dealloc_pd(self.id);
        debug_assert_eq!(freed, Ok(()), "regions and queue pairs keep their protection domain");
    }
}

impl Inner {
    /// Deregisters what lingers and has no windows any more.
    fn sweep(&self) {
        let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = self.device.core().memory();
        lingering.retain(|&lkey| matches!(memory.deregister(lkey), Err(DeregMrError::Busy { .. })));
    }
}

impl ProtectionDomain {
    pub(crate) fn new(device: &Device) -> Result<Self, AllocPdError> {
        let core = device.core();
        let id = core.alloc_pd().ok_or(AllocPdError { allowed: core.limits().max_pd })?;
        Ok(Self::with(device, id, None))
    }

    pub(crate) fn with(
        device: &Device,
        id: PdId,
        parent: Option<(Self, Option<ThreadDomain>)>,
    ) -> Self {
        let inner =
            Arc::new(Inner { device: device.clone(), id, parent, lingering: Mutex::default() });
        device.inner.domains.know(id, &inner);
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

    /// Allocates `len` zeroed bytes and registers them (`ibv_reg_mr`). Peers name them by addresses
    /// from 0 on.
    ///
    /// # Errors
    /// [`AllocateError`]: no memory, a length of 0, rights that do not go together, too many
    /// regions.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, AllocateError> {
        MemoryRegion::allocate(self, len, 0, access)
    }

    /// The same; peers name the bytes by addresses from `iova` on, which is a multiple of the page
    /// size (`ibv_reg_mr_iova`).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and an `iova` that is no such multiple or leaves 64 bits.
    pub fn allocate_at(
        &self,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, AllocateError> {
        MemoryRegion::allocate(self, len, iova, access)
    }

    /// Registers `len` bytes at `offset` of a file or memfd that is open for reading and writing,
    /// and shares them with it: what peers write stands in the file. `offset` is a multiple of the
    /// page size. Peers name the bytes by addresses from 0 on.
    ///
    /// If the file is shortened, what is gone is an error of [`MemoryRegion::read`] and of work
    /// requests. A memfd that is sealed against shrinking is used faster, atomic operations above
    /// all: while their page may go, a helper process carries them out.
    ///
    /// ```
    /// # use std::io::Read;
    /// # use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// # let path = std::env::temp_dir().join(format!("urxe-map-file-{}", std::process::id()));
    /// # let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// file.set_len(4096)?;
    /// let region = pd.map_file(&file, 0, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// region.write(0, b"what a peer writes, too")?;
    /// let mut start = [0; 11];
    /// file.read_exact(&mut start)?;
    /// assert_eq!(&start, b"what a peer");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`MapFileError`]: an offset that is no such multiple, a range that is not inside the file, a
    /// file that cannot be mapped, and those of registering.
    pub fn map_file(
        &self,
        file: impl AsFd,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, MapFileError> {
        MemoryRegion::of_file(self, file, offset, len, access)
    }

    /// Allocates a fast-registration region of up to `max_pages` pages of 4 KiB (`ib_alloc_mr`).
    ///
    /// # Errors
    /// [`AllocMrError`]: no pages or more than the device allows, too many regions.
    pub fn alloc_fast_region(&self, max_pages: u32) -> Result<FastRegion, AllocMrError> {
        FastRegion::new(self, max_pages)
    }

    /// Allocates a type 2 memory window (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`AllocMwError`]: the device has no more.
    pub fn alloc_window(&self) -> Result<MemoryWindow, AllocMwError> {
        self.alloc_window_of_type(MwType::Type2)
    }

    /// Allocates a memory window of either type (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`AllocMwError`]: the device has no more.
    pub fn alloc_window_of_type(&self, kind: MwType) -> Result<MemoryWindow, AllocMwError> {
        MemoryWindow::new(self, kind)
    }

    /// Registers bytes `range` of device memory (`ibv_reg_dm_mr`), which peers name by addresses
    /// from 0 on.
    ///
    /// ```
    /// # use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// # let pd = device.alloc_pd()?;
    /// let memory = device.alloc_device_memory(4096, 0)?;
    /// memory.write(64, &7u32.to_ne_bytes())?;
    /// let region = pd.register_device_memory(&memory, 64..128, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// assert_eq!(region.remote().len, 64);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DmError`]: a range that is not inside, memory of another device, and those of registering.
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<DeviceMemoryRegion, DmError> {
        DeviceMemoryRegion::new(self, memory, range, access)
    }

    /// Begins a queue pair whose sends and receives complete in `cq`.
    #[must_use]
    pub fn queue_pair(&self, cq: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder::new(self, cq)
    }

    /// Deregisters a region whose handle is going, at once or when no window is bound to it any
    /// more. Waits for copies in progress, but not in a forked child, where those of the parent's
    /// other threads never end.
    pub(crate) fn deregister(&self, lkey: Lkey) {
        if self.device().inner.node.is_inherited() {
            return;
        }
        match self.device().core().memory().deregister(lkey) {
            Err(DeregMrError::Busy { .. }) => {
                self.base()
                    .inner
                    .lingering
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(lkey);
                // The last window may have gone in between.
                self.sweep();
            }
            gone => {
                debug_assert_eq!(gone, Ok(()), "a region keeps its key until it is deregistered")
            }
        }
    }

    /// Deregisters a region whose handle is going, at once, and takes the bindings of windows to it
    /// away. Waits as [`deregister`](Self::deregister) does.
    pub(crate) fn revoke(&self, lkey: Lkey) {
        if self.device().inner.node.is_inherited() {
            return;
        }
        let gone = self.device().core().memory().revoke(lkey);
        debug_assert_eq!(gone, Ok(()), "a region keeps its key until it is deregistered");
    }

    /// Deregisters the regions without a handle that no window is bound to any more.
    pub(crate) fn sweep(&self) {
        self.base().inner.sweep();
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
