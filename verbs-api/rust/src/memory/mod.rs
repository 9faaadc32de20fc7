//! Registered memory for safe code. [`MemoryRegion`] explains why this is sound.
//!
//! | file | subject |
//! |---|---|
//! | `change` | reregistration: new memory, domain or access rights |
//! | `region` | the methods that all kinds of regions share |
//! | `registration` | the program's memory or whole address space: the crate's only `unsafe` code |
//! | `fast` | fast-registration regions |
//! | `window` | memory windows |
//! | `dm` | device memory |
//! | `slice` | slices of regions, for work requests |
//! | `remote` | regions of a peer, as text and in work requests |

mod change;
mod dm;
mod fast;
mod region;
mod registration;
mod remote;
mod slice;
mod window;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use urxe_stack::allocate;
use urxe_stack::memory::{
    Access, AdviseError, Buffer, BufferError, FileError, Mr, RegMrError, ReregMrError,
};

pub use self::change::{ChangeRegionError, RegionChange};
pub use self::dm::{DeviceMemory, DeviceMemoryRegion};
pub use self::fast::FastRegion;
pub use self::registration::{AddressSpace, ForeignRegion};
pub use self::remote::{RemoteBytesError, RemoteParseError, RemoteRegion, RemoteSliceError};
pub use self::slice::{RegionSlice, SliceError};
pub use self::window::MemoryWindow;

pub(crate) use self::region::region;
use crate::pd::ProtectionDomain;

urxe_stack::errors! {
    /// The reason why a region was not allocated.
    #[derive(Debug, thiserror::Error)]
    pub enum AllocateError {
        /// The system has no memory, or `len` is 0.
        #[error("cannot allocate {len} bytes: {error}")]
        Memory {
            len: usize,
            #[source] error: io::Error,
        } = error.raw_os_error().unwrap_or(ENOMEM),
        /// The device refuses to register the memory.
        #[error(transparent)] Register(#[from] RegMrError),
    }

    /// The reason why a file was not registered.
    #[derive(Debug, thiserror::Error)]
    pub enum MapFileError {
        /// The system cannot map the file.
        #[error(transparent)] Map(#[from] FileError),
        /// The device refuses to register the memory.
        #[error(transparent)] Register(#[from] RegMrError),
    }
}

/// A memory region (`struct ibv_mr`) and its memory.
///
/// Threads can share a region in an [`Arc`]. Dropping the region deregisters and unmaps its memory.
///
/// ```
/// use urxe::{Access, BufferError, Lkey, MemoryRegion, RemoteRegion, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
/// let region: MemoryRegion = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// region.write(0, b"hello")?;
/// assert_eq!(region.read_vec(0, 5)?, b"hello");
/// region.store_u64(8, 40)?;
/// assert_eq!((region.fetch_add_u64(8, 2)?, region.load_u64(8)?), (40, 42));
/// // A peer reaches the region by this address, length and key.
/// let remote: RemoteRegion = region.remote();
/// println!("{remote}");
/// // Work requests of the owner use the local key.
/// let key: Lkey = region.lkey();
/// assert_eq!(region.slice(..)?.sge().lkey, key);
/// let error: BufferError = region.write(4095, b"hello").unwrap_err();
/// assert_eq!(error, BufferError::OutOfBounds { offset: 4095, len: 5, buffer_len: 4096 });
/// # Ok(())
/// # }
/// ```
///
/// # Why this is sound
/// Peers and work requests may write the memory of a region at any time, from other threads and
/// without a lock. Therefore:
/// * A region owns its memory, in a mapping without any Rust object, and never lends it as
///   `&[u8]`, `&mut [u8]` or a pointer. [`read`](Self::read) and [`write`](Self::write) copy by
///   routines whose races with peers are defined, as `urxe_stack::memory` explains. Eight aligned
///   bytes can be accessed atomically. A read during a write of a peer may return a mixture of old
///   and new bytes, but is never undefined behaviour.
/// * The device accesses the memory only under a pin of the region's key, which lasts at most for
///   one run of packets. Dropping a region first invalidates the key, then waits for the pins, then
///   unmaps the memory. Work requests need not keep the region alive: a request that names a
///   dropped region finds no such key and fails with a protection or access error. Bound
///   [windows](MemoryWindow) keep the region and its memory until the last window is unbound.
/// * A leaked region ([`std::mem::forget`]) stays mapped and registered.
///
/// A posted work request therefore borrows nothing. The [`RegionSlice`] that describes its memory
/// borrows the region, so the compiler rejects a program that posts part of a dropped region.
///
/// The key of a dropped region has no new owner for 2^24 registrations. After that, a request that
/// is posted since may reach another region of the protection domain. It never reaches memory that
/// is not registered, because a key to the [whole address space](AddressSpace) has other values.
///
/// [`ProtectionDomain::register`] registers memory with another owner and is `unsafe`.
pub struct MemoryRegion {
    pd: ProtectionDomain,
    mr: Mr,
    /// The memory stays mapped until the deregistration is complete.
    buffer: Arc<Buffer>,
}

impl ProtectionDomain {
    /// Allocates `len` zeroed bytes and registers them (`ibv_reg_mr`). The addresses of the region
    /// start at 0.
    ///
    /// # Errors
    /// Fails with [`AllocateError`] in these cases:
    /// * `len` is 0, or no memory is available.
    /// * The access rights are inconsistent.
    /// * The device has no free region.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, AllocateError> {
        self.allocate_at(len, 0, access)
    }

    /// Allocates and registers memory whose addresses start at `iova` (`ibv_reg_mr_iova`), a
    /// multiple of the page size.
    ///
    /// # Errors
    /// Fails as [`allocate`](Self::allocate) does, and if `iova` is not a multiple of the page size
    /// or the addresses exceed 64 bits.
    pub fn allocate_at(
        &self,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, AllocateError> {
        let buffer = Buffer::new(len).map_err(|error| AllocateError::Memory { len, error })?;
        Ok(MemoryRegion::new(self, buffer, iova, access)?)
    }

    /// Registers `len` bytes at `offset` of a file or memfd.
    ///
    /// The file must be open for reading and writing. The region shares its memory with the file,
    /// so the file has the data that peers write. `offset` is a multiple of the page size. The
    /// addresses of the region start at 0.
    ///
    /// If the file is shortened, accesses to the missing bytes fail. This applies to
    /// [`MemoryRegion::read`] and to work requests. A memfd that is sealed against shrinking is
    /// faster: for other files a helper process performs atomic operations, because their pages may
    /// vanish.
    ///
    /// ```
    /// # use std::io::Read;
    /// use urxe::{Access, FileError, MapFileError};
    /// # use urxe::sim::Fabric;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// # let path = std::env::temp_dir().join(format!("urxe-map-file-{}", std::process::id()));
    /// # let mut options = std::fs::File::options();
    /// # let mut file = options.read(true).write(true).create_new(true).open(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// file.set_len(4096)?;
    /// let region = pd.map_file(&file, 0, 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// region.write(0, b"what a peer writes, too")?;
    /// let mut start = [0; 11];
    /// file.read_exact(&mut start)?;
    /// assert_eq!(&start, b"what a peer");
    /// let error: MapFileError = pd.map_file(&file, 0, 8192, Access::empty()).unwrap_err();
    /// assert!(matches!(error, MapFileError::Map(FileError::OutsideFile { file_len: 4096, .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`MapFileError`] in these cases:
    /// * `offset` is not a multiple of the page size, or the range exceeds the file.
    /// * The system cannot map the file.
    /// * The device refuses the registration.
    pub fn map_file(
        &self,
        file: impl AsFd,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, MapFileError> {
        Ok(MemoryRegion::new(self, Buffer::of_file(file, offset, len)?, 0, access)?)
    }
}

impl MemoryRegion {
    fn new(
        pd: &ProtectionDomain,
        buffer: Buffer,
        iova: u64,
        access: Access,
    ) -> Result<Self, RegMrError> {
        let (memory, buffer) = (pd.device().core().memory(), Arc::new(buffer));
        let range = 0..buffer.len();
        let mr = memory.register_buffer(pd.memory_id(), &buffer, range, iova, access)?;
        Ok(Self { pd: pd.clone(), mr, buffer })
    }

    /// Changes the access rights of the region (`ibv_rereg_mr`). The keys stay the same.
    /// [`change`](Self::change) can change other properties, too.
    ///
    /// A concurrent access finds the former rights, the new rights, or for a short time no region.
    /// When this call returns, no access under the former rights is in progress.
    ///
    /// # Errors
    /// Fails with [`ReregMrError`] if the access rights are inconsistent or a window is bound to
    /// the region. The region is unchanged then.
    pub fn reregister(&mut self, access: Access) -> Result<(), ReregMrError> {
        self.change_to(None, None, Some(access))
    }

    /// Returns the number of the region in its device, for [`ProtectionDomain::import_region`]
    /// (`mr->handle`).
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.lkey().0
    }

    /// Faults in `len` bytes at `offset` (`ibv_advise_mr`), so that the first accesses are as fast
    /// as later ones. The region must have [`Access::ON_DEMAND`].
    ///
    /// ```
    /// use urxe::{Access, AdviseError};
    /// # use urxe::sim::Fabric;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let region = pd.allocate(1 << 20, Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    /// region.prefetch(0, 64 << 10)?;
    /// let error: AdviseError = region.prefetch(1 << 20, 1).unwrap_err();
    /// assert!(matches!(error, AdviseError::OutOfBounds { len: 1, .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`AdviseError`].
    pub fn prefetch(&self, offset: usize, len: usize) -> Result<(), AdviseError> {
        registration::prefetch(&self.pd, &self.mr, offset, len)
    }

    /// Copies `dst.len()` bytes at `offset` into `dst`.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), BufferError> {
        self.buffer.read(offset, dst)
    }

    /// Copies `len` bytes at `offset` into a new vector.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`] or [`BufferError::NoMemory`].
    pub fn read_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>, BufferError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(BufferError::OutOfBounds { offset, len, buffer_len: self.len() });
        }
        let mut bytes = allocate::slice(0, len)?.into_vec();
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies `src` to `offset`. The last byte is written last: a thread that reads the new last
    /// byte also reads the other new bytes.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), BufferError> {
        self.buffer.write(offset, src)
    }

    /// Reads one byte. A program may poll the last byte of a peer's WRITE this way: after reading
    /// the new last byte, it also reads the other new bytes.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`].
    pub fn load_u8(&self, offset: usize) -> Result<u8, BufferError> {
        self.buffer.load_u8(offset)
    }

    /// Reads 8 bytes at `offset` atomically, in the byte order of this host.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`] or [`BufferError::Misaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, BufferError> {
        self.buffer.load_u64(offset)
    }

    /// Writes 8 bytes at `offset` atomically, in the byte order of this host.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`] or [`BufferError::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), BufferError> {
        self.buffer.store_u64(offset, value)
    }

    /// Adds `add` to the 8 bytes at `offset` and wraps. Returns the former value. The operation is
    /// atomic with respect to atomic operations of peers.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`] or [`BufferError::Misaligned`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64, BufferError> {
        self.buffer.fetch_add_u64(offset, add)
    }

    /// Stores `swap` in the 8 bytes at `offset` if they equal `compare`. Returns the former value.
    /// The operation is atomic with respect to atomic operations of peers.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`] or [`BufferError::Misaligned`].
    pub fn compare_swap_u64(
        &self,
        offset: usize,
        compare: u64,
        swap: u64,
    ) -> Result<u64, BufferError> {
        self.buffer.compare_swap_u64(offset, compare, swap)
    }
}

region!(MemoryRegion);

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // This waits for copies in progress.
        self.pd.deregister(self.mr.lkey);
    }
}
