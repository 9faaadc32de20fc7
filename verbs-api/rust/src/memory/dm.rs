//! Device memory: memory of the device's own, which programs reach by copies and peers through
//! regions of it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use urxe_stack::memory::{Access, DmError, DmId, Mr};

use super::region;
use crate::device::Device;
use crate::pd::ProtectionDomain;

/// Device memory (`struct ibv_dm`). Cheap to clone; it is freed when the last clone and the last
/// region of it are gone.
#[derive(Clone)]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    id: DmId,
    len: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.inner.node.is_inherited() {
            return;
        }
        let freed = self.device.core().memory().free_dm(self.id);
        // Regions keep their memory, and none lingers for windows: they are zero-based, to which no
        // window is bound.
        debug_assert_eq!(freed, Ok(()), "only its handle frees device memory");
    }
}

impl DeviceMemory {
    pub(crate) fn new(device: &Device, len: usize, log_align: u32) -> Result<Self, DmError> {
        let id = device.core().memory().alloc_dm(len, log_align)?;
        Ok(Self { inner: Arc::new(Inner { device: device.clone(), id, len }) })
    }

    /// Length in bytes, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Copies `src`, whole words of four bytes, to `offset` (`ibv_memcpy_to_dm`).
    ///
    /// # Errors
    /// [`DmError::OutOfBounds`], [`DmError::Unaligned`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), DmError> {
        self.inner.device.core().memory().copy_to_dm(self.inner.id, offset, src)
    }

    /// Copies `dst.len()` bytes, whole words of four, from `offset` on into `dst`
    /// (`ibv_memcpy_from_dm`).
    ///
    /// # Errors
    /// [`DmError::OutOfBounds`], [`DmError::Unaligned`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), DmError> {
        self.inner.device.core().memory().copy_from_dm(self.inner.id, offset, dst)
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A region of device memory (`ibv_reg_dm_mr`), whose bytes work requests and peers name by
/// addresses from 0 on. Dropping it deregisters.
pub struct DeviceMemoryRegion {
    pd: ProtectionDomain,
    mr: Mr,
    // Freed after the deregistration.
    memory: DeviceMemory,
}

impl DeviceMemoryRegion {
    pub(crate) fn new(
        pd: &ProtectionDomain,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<Self, DmError> {
        // Another device does not know it, whatever has the same number there.
        if !pd.device().is_same(&memory.inner.device) {
            return Err(DmError::Unknown);
        }
        let access = access | Access::ZERO_BASED;
        let mr = pd.device().core().memory().register_dm(
            pd.memory_id(),
            memory.inner.id,
            range,
            access,
        )?;
        Ok(Self { pd: pd.clone(), mr, memory: memory.clone() })
    }

    /// The device memory.
    #[must_use]
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    fn mr(&self) -> &Mr {
        &self.mr
    }
}

region!(DeviceMemoryRegion);

impl Drop for DeviceMemoryRegion {
    fn drop(&mut self) {
        self.pd.deregister(self.mr.lkey);
    }
}

impl fmt::Debug for DeviceMemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemoryRegion").field("mr", &self.mr).finish_non_exhaustive()
    }
}
