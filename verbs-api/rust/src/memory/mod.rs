//! Registered memory that safe code can use. Why that is sound: [`MemoryRegion`].
//!
//! | file | subject |
//! |---|---|
//! | `change` | reregistering: other memory, domain or access |
//! | `region` | what all kinds of regions tell about themselves |
//! | `registration` | registering with the core, also the whole address space: the only `unsafe` of this crate |
//! | `fast` | fast-registration regions |
//! | `window` | memory windows |
//! | `dm` | device memory |
//! | `slice` | parts of regions, for work requests |
//! | `remote` | a peer's region, as a text and in work requests |

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

use urxe_stack::memory::{
    Access, AdviseError, Buffer, BufferError, FileError, Mr, RegMrError, ReregMrError,
};

pub use self::change::{ChangeRegionError, RegionChange};
pub use self::dm::{DeviceMemory, DeviceMemoryRegion};
pub use self::fast::FastRegion;
pub use self::registration::{AddressSpace, ForeignRegion};
pub use self::remote::{RemoteParseError, RemoteRegion, RemoteSliceError};
pub use self::slice::{RegionSlice, SliceError};
pub use self::window::MemoryWindow;

pub(crate) use self::region::region;
use crate::pd::ProtectionDomain;

urxe_stack::errors! {
    /// Why a region was not allocated.
    #[derive(Debug, thiserror::Error)]
    pub enum AllocateError {
        #[error("cannot allocate {len} bytes: {error}")]
        Memory {
            len: usize,
            #[source] error: io::Error,
        } = error.raw_os_error().unwrap_or(ENOMEM),
        /// It cannot be registered.
        #[error(transparent)] Register(#[from] RegMrError),
    }

    /// Why a file was not registered.
    #[derive(Debug, thiserror::Error)]
    pub enum MapFileError {
        /// It cannot be mapped.
        #[error(transparent)] Map(#[from] FileError),
        /// It cannot be registered.
        #[error(transparent)] Register(#[from] RegMrError),
    }
}

/// A memory region (`struct ibv_mr`) with the memory it registers.
///
/// Not `Clone`: wrap it in an [`Arc`] to share it. Dropping it deregisters and
/// unmaps.
///
/// # Why this is sound
/// Peers and work requests write a region's bytes at any time, from other threads, without any
/// lock. So:
/// * A region owns its bytes, in a mapping of their own where no Rust object lives, and never lends
///   them: no `&[u8]`, no `&mut [u8]`, no pointer. [`read`](Self::read) and [`write`](Self::write)
///   copy, through routines that race with peers' accesses in a defined way (`urxe_stack::memory`
///   argues that); eight aligned bytes can be used atomically. What is read while a peer writes may
///   be a mixture of old and new bytes; it is never undefined.
/// * Bytes move only under a pin of the region's key, which lasts no longer than the handling of a
///   run of packets. Dropping a region takes the key away first, then waits for the pins, and only
///   then unmaps. So no work request keeps a region alive, and none needs to: one, local or a
///   peer's, that still names a dropped region finds no such key and ends with a protection or
///   access error. [Windows](MemoryWindow) that are bound to it do: it stays, with its memory,
///   until the last of them is unbound.
/// * A region that is leaked ([`std::mem::forget`]) stays mapped as well as registered.
///
/// So a posted work request borrows nothing. The [`RegionSlice`] that describes it does: posting
/// part of a region that is gone is a mistake that the compiler finds.
///
/// Memory that somebody else owns can be registered by [`ProtectionDomain::register`], which is
/// `unsafe`.
pub struct MemoryRegion {
    pd: ProtectionDomain,
    mr: Mr,
    /// Kept mapped until the deregistration returned.
    buffer: Arc<Buffer>,
}

impl ProtectionDomain {
    /// Allocates `len` zeroed bytes and registers them (`ibv_reg_mr`). Peers name them by addresses
    /// from 0 on.
    ///
    /// # Errors
    /// [`AllocateError`]: no memory, a length of 0, rights that do not go together, too many
    /// regions.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, AllocateError> {
        self.allocate_at(len, 0, access)
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
        let buffer = Buffer::new(len).map_err(|error| AllocateError::Memory { len, error })?;
        Ok(MemoryRegion::new(self, buffer, iova, access)?)
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

    /// Changes what it grants (`ibv_rereg_mr`), as [`change`](Self::change) does for more; its keys
    /// stay. Accesses meanwhile find the old rights, the new ones, or, for a moment, no such key.
    /// When this returns, none is under way by the old ones.
    ///
    /// # Errors
    /// [`ReregMrError`]: rights that do not go together, windows that are bound to it. It is then
    /// as it was.
    pub fn reregister(&mut self, access: Access) -> Result<(), ReregMrError> {
        self.change_to(None, None, Some(access))
    }

    /// Its number within its device, by which [`ProtectionDomain::import_region`] finds it
    /// (`mr->handle`).
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.lkey().0
    }

    /// Makes `len` bytes from `offset` on present (`ibv_advise_mr`), so that the first accesses are
    /// as fast as later ones. Only for a region with [`Access::ON_DEMAND`].
    ///
    /// ```
    /// # use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// let region = pd.allocate(1 << 20, Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    /// region.prefetch(0, 64 << 10)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AdviseError`].
    pub fn prefetch(&self, offset: usize, len: usize) -> Result<(), AdviseError> {
        registration::prefetch(&self.pd, &self.mr, offset, len)
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), BufferError> {
        self.buffer.read(offset, dst)
    }

    /// Copies `len` bytes from `offset` on into a new vector.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn read_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>, BufferError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(BufferError::OutOfBounds { offset, len, buffer_len: self.len() });
        }
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies `src` to `offset`, the last byte last: who sees it sees the others.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), BufferError> {
        self.buffer.write(offset, src)
    }

    /// Reads one byte, as a program that waits for a peer's write polls it: whoever sees the last
    /// byte of a write sees the bytes before it.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn load_u8(&self, offset: usize) -> Result<u8, BufferError> {
        self.buffer.load_u8(offset)
    }

    /// Reads the 8 bytes at `offset` at once, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, BufferError> {
        self.buffer.load_u64(offset)
    }

    /// Writes the 8 bytes at `offset` at once, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), BufferError> {
        self.buffer.store_u64(offset, value)
    }

    /// Adds `add` to the 8 bytes at `offset`, wrapping, atomically against peers' atomic operations
    /// as well; returns what was there.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64, BufferError> {
        self.buffer.fetch_add_u64(offset, add)
    }

    /// Stores `swap` in the 8 bytes at `offset` if they are `compare`, atomically against peers'
    /// atomic operations as well; returns what was there.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
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
        // Waits for copies in progress.
        self.pd.deregister(self.mr.lkey);
    }
}
