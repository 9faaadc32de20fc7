//! Memory for registration by safe code.
//!
//! A [`Buffer`] is a separate anonymous mapping, so no Rust object is inside. It never returns a
//! reference to its bytes, because peers may write them at any time. Reads and writes copy by the
//! same routines as the peers' accesses (see [`super`]). Whatever threads and peers do at the same
//! time, each byte that is read was written by one of them.
//!
//! A buffer may also be a mapping of a file or memfd (`ibv_reg_mr` over a shared mapping). Another
//! process may truncate a mapped file, and accesses to its lost pages then raise SIGBUS. Unless a
//! seal forbids that (`F_SEAL_SHRINK`), the bytes of such a buffer move by system calls, which
//! return an error. A helper process executes atomic operations and takes the signal.
//!
//! A dmabuf cannot be a buffer. The processor's view of a dmabuf is correct only between
//! `DMA_BUF_IOCTL_SYNC` calls around each access, and the memory of a device may not be mappable.

use super::copy::Operation;
use super::{checked_copy, copy};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use urxe_types::allocate::OutOfMemory;

/// Page-aligned, zeroed memory that may be registered. Dropping a buffer unmaps it, so the owner of
/// a registration must keep the buffer until after the deregistration.
#[derive(Debug)]
pub struct Buffer {
    base: NonNull<u8>,
    len: usize,
    /// The length of the mapping in bytes. More than `len` if the pages are huge.
    mapped_len: usize,
    /// The pages may vanish, because another process may truncate the file.
    checked: bool,
}

/// An error of an access to a [`Buffer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The access is not completely inside the buffer.
    #[error("{len} bytes at offset {offset} are not inside a buffer of {buffer_len} bytes")]
    OutOfBounds {
        /// Offset of the access in bytes.
        offset: usize,
        /// Length of the access in bytes.
        len: usize,
        /// Length of the buffer in bytes.
        buffer_len: usize,
    },
    /// The file behind the buffer was truncated, and the access is not completely inside the
    /// remaining part.
    #[error("{len} bytes at offset {offset}: the file was truncated and ends before them")]
    Gone {
        /// Offset of the access in bytes.
        offset: usize,
        /// Length of the access in bytes.
        len: usize,
    },
    /// The system has no memory for the copy.
    #[error(transparent)]
    NoMemory(#[from] OutOfMemory),
    /// An atomic access at an offset that is not a multiple of 8.
    #[error("atomic access at offset {offset}, which is not a multiple of 8")]
    Misaligned {
        /// Offset of the access in bytes.
        offset: usize,
    },
}

urxe_types::errors! {
    /// An error of mapping a file.
    #[derive(Debug, thiserror::Error)]
    pub enum FileError {
        #[error("length 0: a buffer of a file has at least one byte")]
        ZeroLength = EINVAL,
        /// The range does not begin at a page of the file.
        #[error("offset {offset} is not a multiple of the page size, {page}")]
        Offset { offset: u64, page: usize } = EINVAL,
        #[error("{len} bytes at offset {offset} are not inside a file of {file_len}")]
        OutsideFile { offset: u64, len: usize, file_len: u64 } = EINVAL,
        #[error("dmabufs cannot be registered: each access by the processor would need the \
                 exporter's synchronisation, and there is no other device here that could do it")]
        Dmabuf = EOPNOTSUPP,
        /// The descriptor is not a regular file or memfd, or its file system does not support
        /// mappings.
        #[error("the descriptor cannot be mapped: {0}")]
        System(#[from] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
    }
}

/// The magic number of the file system behind dmabufs (`DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: u64 = 0x444d_4142;
/// The magic number of the file system of huge pages (`HUGETLBFS_MAGIC`).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

// SAFETY: a buffer is an address range that it alone owns, and any thread may use it.
unsafe impl Send for Buffer {}
// SAFETY: every access through `&Buffer` is one of `copy`'s, which may race with each other and
// with peers.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps `len` zeroed bytes. A length of 0 maps nothing and cannot be registered.
    ///
    /// # Errors
    /// The error of `mmap`: ENOMEM.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { base: NonNull::dangling(), len, mapped_len: 0, checked: false });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, mapped_len: len, checked: false })
    }

    /// Maps `len` bytes at `offset` of a file or memfd that is open for reading and writing. The
    /// buffer and the file share the bytes.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn of_file(file: impl AsFd, offset: u64, len: usize) -> Result<Self, FileError> {
        let file = file.as_fd();
        let page = checked_copy::page_size();
        if len == 0 {
            return Err(FileError::ZeroLength);
        }
        let file_system = rustix::fs::fstatfs(file).map_err(io::Error::from)?;
        // The types of the fields depend on the architecture; the number has 32 bits.
        let kind = file_system.f_type as u64 & 0xffff_ffff;
        if kind == DMA_BUF_MAGIC {
            return Err(FileError::Dmabuf);
        }
        if !offset.is_multiple_of(page as u64) {
            return Err(FileError::Offset { offset, page });
        }
        let file_len = rustix::fs::fstat(file).map_err(io::Error::from)?.st_size as u64;
        if offset.checked_add(len as u64).is_none_or(|end| end > file_len) {
            return Err(FileError::OutsideFile { offset, len, file_len });
        }
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let (flags, prot) = (MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, offset) };
        let base =
            NonNull::new(base.map_err(io::Error::from)?.cast()).ok_or(io::ErrorKind::OutOfMemory);
        let base = base.map_err(io::Error::from)?;
        // The kernel maps whole pages and unmaps no part of a huge page. The block size of
        // hugetlbfs is the size of its pages. The kernel has mapped the sum, so it is a number.
        let mapped_len = match kind {
            HUGETLBFS_MAGIC => len.next_multiple_of(file_system.f_bsize as usize),
            _ => len,
        };
        Ok(Self { base, len, mapped_len, checked: !seals.contains(SealFlags::SHRINK) })
    }

    /// Returns whether pages may vanish, so that bytes must move by system calls.
    pub(super) const fn is_checked(&self) -> bool {
        self.checked
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, for registration. The caller must not make a
    /// reference from it while another thread or a peer may write.
    #[must_use]
    pub const fn addr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`]; for a file also [`BufferError::Gone`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), BufferError> {
        let src = self.locate(offset, dst.len())?;
        if self.checked {
            let len = dst.len();
            return checked_copy::read(src, dst.into())
                .map_err(|_| BufferError::Gone { offset, len });
        }
        // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
        unsafe { copy::read(src, copy::as_atomics(dst)) };
        Ok(())
    }

    /// Copies `src` to `offset`, and stores the last byte last, as a peer's write does.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`]; for a file also [`BufferError::Gone`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), BufferError> {
        let dst = self.locate(offset, src.len())?;
        if self.checked {
            // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
            let written = unsafe { checked_copy::write(dst, src) };
            return written.map_err(|_| BufferError::Gone { offset, len: src.len() });
        }
        // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
        unsafe { copy::write(dst, src) };
        Ok(())
    }

    /// Reads one byte, for programs that poll. The load has acquire order: bytes that were written
    /// before this byte are visible afterwards.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn load_u8(&self, offset: usize) -> Result<u8, BufferError> {
        let mut byte = [0];
        self.read(offset, &mut byte)?;
        Ok(byte[0])
    }

    /// Reads the 8 bytes at `offset` atomically, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, BufferError> {
        self.operate(offset, Operation::Load)
    }

    /// Writes the 8 bytes at `offset` atomically, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), BufferError> {
        self.operate(offset, Operation::Store(value)).map(|_| ())
    }

    /// Adds `add` to the 8 bytes at `offset`, wrapping, and returns the former value. The operation
    /// is also atomic with respect to atomic operations of peers.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64, BufferError> {
        self.operate(offset, Operation::FetchAdd(add))
    }

    /// Stores `swap` in the 8 bytes at `offset` if they equal `compare`, and returns the former
    /// value. The operation is also atomic with respect to atomic operations of peers.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn compare_swap_u64(
        &self,
        offset: usize,
        compare: u64,
        swap: u64,
    ) -> Result<u64, BufferError> {
        self.operate(offset, Operation::CompareSwap { compare, swap })
    }

    fn operate(&self, offset: usize, operation: Operation) -> Result<u64, BufferError> {
        let word = self.locate(offset, size_of::<u64>())?.cast::<u64>();
        if !word.is_aligned() {
            return Err(BufferError::Misaligned { offset });
        }
        // SAFETY: the word is aligned and inside the mapping, which stays. All accesses to the word
        // may race (see `copy`). Accesses to a file that may shrink are checked.
        let before = unsafe { operation.perform(word, self.checked) };
        before.map_err(|_| BufferError::Gone { offset, len: size_of::<u64>() })
    }

    fn locate(&self, offset: usize, len: usize) -> Result<*mut u8, BufferError> {
        if len > self.len || offset > self.len - len {
            return Err(BufferError::OutOfBounds { offset, len, buffer_len: self.len });
        }
        Ok(self.base.as_ptr().wrapping_add(offset))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.mapped_len != 0 {
            // SAFETY: the mapping belongs to this buffer alone, and ends with it.
            let unmapped =
                unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_len) };
            debug_assert_eq!(unmapped, Ok(()), "a whole mapping can be unmapped");
        }
    }
}
