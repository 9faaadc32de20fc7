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
        // Regions keep their memory, and none lingers for windows: they are zero-based, to which no
        // window is bound.
        self.device.destroy("only its handle frees it", |core| core.memory().free_dm(self.id));
    }
}

impl Device {
    /// Allocates `len` zeroed bytes of device memory, aligned to 2^`log_align` bytes
    /// (`ibv_alloc_dm`).
    ///
    /// # Errors
    /// [`DmError`]: none or more than is left, an alignment that is not offered.
    pub fn alloc_device_memory(&self, len: usize, log_align: u32) -> Result<DeviceMemory, DmError> {
        let id = self.core().memory().alloc_dm(len, log_align)?;
        Ok(DeviceMemory { inner: Arc::new(Inner { device: self.clone(), id, len }) })
    }
}

impl DeviceMemory {
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

impl ProtectionDomain {
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
        // Another device does not know it, whatever has the same number there.
        if !self.device().is_same(&memory.inner.device) {
            return Err(DmError::Unknown);
        }
        let (core, id) = (self.device().core().memory(), memory.inner.id);
        let mr = core.register_dm(self.memory_id(), id, range, access | Access::ZERO_BASED)?;
        Ok(DeviceMemoryRegion { pd: self.clone(), mr, memory: memory.clone() })
    }
}

impl DeviceMemoryRegion {
    /// The device memory.
    #[must_use]
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }
}

region!(DeviceMemoryRegion);

impl Drop for DeviceMemoryRegion {
    fn drop(&mut self) {
        self.pd.deregister(self.mr.lkey);
    }
}
