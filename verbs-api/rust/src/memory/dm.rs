//! Device memory, which programs access by copies and peers through regions.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use urxe_stack::memory::{Access, DmError, DmId, Mr};

use super::region;
use crate::device::Device;
use crate::pd::ProtectionDomain;

/// Device memory (`struct ibv_dm`), made by [`Device::alloc_device_memory`].
///
/// Cloning is cheap. The memory is freed when the last clone and the last region of it are dropped.
///
/// ```
/// use urxe::{Access, DeviceMemory, DeviceMemoryRegion, DmError, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// let pd = device.alloc_pd()?;
/// let memory: DeviceMemory = device.alloc_device_memory(4096, 6)?;
/// memory.write(0, b"data")?;
/// let region: DeviceMemoryRegion =
///     pd.register_device_memory(&memory, 0..4096, Access::REMOTE_READ)?;
/// assert_eq!((region.memory().len(), region.remote().addr), (4096, 0));
/// // Copies consist of words of four bytes.
/// assert!(matches!(memory.write(2, b"data"), Err(DmError::Unaligned { .. })));
/// # Ok(())
/// # }
/// ```
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
        // Regions keep their memory alive. No region outlives its handle because of a window,
        // because no window can be bound to a zero-based region.
        self.device.destroy("only its handle frees it", |core| core.memory().free_dm(self.id));
    }
}

impl Device {
    /// Allocates `len` zeroed bytes of device memory, aligned to 2^`log_align` bytes
    /// (`ibv_alloc_dm`).
    ///
    /// # Errors
    /// Fails with [`DmError`] if `len` is 0 or exceeds the free device memory, or if the device
    /// does not support the alignment.
    pub fn alloc_device_memory(&self, len: usize, log_align: u32) -> Result<DeviceMemory, DmError> {
        let id = self.core().memory().alloc_dm(len, log_align)?;
        Ok(DeviceMemory { inner: Arc::new(Inner { device: self.clone(), id, len }) })
    }
}

impl DeviceMemory {
    /// Returns the length in bytes, which is at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Copies `src` to `offset` (`ibv_memcpy_to_dm`). Both are multiples of four bytes.
    ///
    /// # Errors
    /// Fails with [`DmError::OutOfBounds`] or [`DmError::Unaligned`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), DmError> {
        self.inner.device.core().memory().copy_to_dm(self.inner.id, offset, src)
    }

    /// Copies `dst.len()` bytes at `offset` into `dst` (`ibv_memcpy_from_dm`). Both are multiples
    /// of four bytes.
    ///
    /// # Errors
    /// Fails with [`DmError::OutOfBounds`] or [`DmError::Unaligned`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), DmError> {
        self.inner.device.core().memory().copy_from_dm(self.inner.id, offset, dst)
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A region of device memory (`ibv_reg_dm_mr`). Its addresses start at 0. Dropping the region
/// deregisters it.
pub struct DeviceMemoryRegion {
    pd: ProtectionDomain,
    mr: Mr,
    // This field is dropped after the region is deregistered.
    memory: DeviceMemory,
}

impl ProtectionDomain {
    /// Registers the bytes `range` of device memory (`ibv_reg_dm_mr`). The addresses of the region
    /// start at 0.
    ///
    /// ```
    /// # use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// # let pd = device.alloc_pd()?;
    /// let memory = device.alloc_device_memory(4096, 0)?;
    /// memory.write(64, &7u32.to_ne_bytes())?;
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    /// let region = pd.register_device_memory(&memory, 64..128, rights)?;
    /// assert_eq!(region.remote().len, 64);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`DmError`] if the range exceeds the device memory, if the memory belongs to
    /// another device, or if the device refuses the registration.
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<DeviceMemoryRegion, DmError> {
        // The same number may denote other memory on another device.
        if !self.device().is_same(&memory.inner.device) {
            return Err(DmError::Unknown);
        }
        let (core, id) = (self.device().core().memory(), memory.inner.id);
        let mr = core.register_dm(self.memory_id(), id, range, access | Access::ZERO_BASED)?;
        Ok(DeviceMemoryRegion { pd: self.clone(), mr, memory: memory.clone() })
    }
}

impl DeviceMemoryRegion {
    /// Returns the device memory of the region.
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
