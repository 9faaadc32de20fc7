//! Memory to register, for callers that must not be able to go wrong.
//!
//! A [`Buffer`] is an anonymous mapping of its own, so no Rust object lives in it, and it never
//! hands out a reference to its bytes: peers may write them at any time. Reads and writes copy,
//! through the same routines as the peers' (see [`super`]), so whatever threads and peers do at
//! once, each byte read was written by one of them.

use super::helper::Operation;
use super::{copy, guarded};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Page-aligned, zeroed memory that may be registered. Unmapped when dropped: whoever registers it
/// keeps it until after the deregistration.
#[derive(Debug)]
pub struct Buffer {
    base: NonNull<u8>,
    len: usize,
    /// Its pages may go: they are of a file that somebody may shorten.
    guarded: bool,
}

/// Why an access to a [`Buffer`] was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// The access is not wholly inside the buffer.
    #[error("{len} bytes at offset {offset} are not inside a buffer of {buffer_len} bytes")]
    OutOfBounds {
        /// Offset of the access in bytes.
        offset: usize,
        /// Its length in bytes.
        len: usize,
        /// The buffer's length in bytes.
        buffer_len: usize,
    },
    /// The file behind the buffer was shortened, and the access is not wholly inside what is left.
    #[error("{len} bytes at offset {offset}: the file ends before them by now")]
    Gone {
        /// Offset of the access in bytes.
        offset: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// An atomic access at an offset that is not a multiple of 8.
    #[error("atomic access at offset {offset}, which is not a multiple of 8")]
    Misaligned {
        /// Offset of the access in bytes.
        offset: usize,
    },
}

// SAFETY: a buffer is an address range that it alone owns, usable from any thread.
unsafe impl Send for Buffer {}
// SAFETY: every access through `&Buffer` is one of `copy`'s, which may race with each other and
// with peers.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps `len` zeroed bytes. A length of 0 is allowed, maps nothing, and cannot be registered.
    ///
    /// # Errors
    /// What `mmap` says: ENOMEM.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::mapped(NonNull::dangling(), len, false));
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
        Ok(Self::mapped(base, len, false))
    }

    /// Takes over a mapping.
    pub(super) const fn mapped(base: NonNull<u8>, len: usize, guarded: bool) -> Self {
        Self { base, len, guarded }
    }

    /// Whether its pages may go, so that bytes have to move by system calls.
    pub(super) const fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte, for registration. Not valid to make a reference of while anybody may write.
    #[must_use]
    pub const fn addr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`]; of a file also [`BufferError::Gone`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), BufferError> {
        let src = self.locate(offset, dst.len())?;
        if self.guarded {
            let len = dst.len();
            return guarded::read(src, dst).map_err(|_| BufferError::Gone { offset, len });
        }
        // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
        unsafe { copy::read(src, dst) };
        Ok(())
    }

    /// Copies `src` to `offset`, the last byte last, as a peer's write would.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`]; of a file also [`BufferError::Gone`].
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<(), BufferError> {
        let dst = self.locate(offset, src.len())?;
        if self.guarded {
            // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
            let written = unsafe { guarded::write(dst, src) };
            return written.map_err(|_| BufferError::Gone { offset, len: src.len() });
        }
        // SAFETY: `locate` keeps the range inside the mapping, to which no references exist.
        unsafe { copy::write(dst, src) };
        Ok(())
    }

    /// Reads one byte: what a program polls. Acquire: what was written before it can be read after
    /// it.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`].
    pub fn load_u8(&self, offset: usize) -> Result<u8, BufferError> {
        let mut byte = [0];
        self.read(offset, &mut byte)?;
        Ok(byte[0])
    }

    /// Reads the 8 bytes at `offset` at once, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, BufferError> {
        self.operate(offset, Operation::Load)
    }

    /// Writes the 8 bytes at `offset` at once, in the host's byte order.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), BufferError> {
        self.operate(offset, Operation::Store(value)).map(|_| ())
    }

    /// Adds `add` to the 8 bytes at `offset`, wrapping, atomically against peers' atomic operations
    /// as well; returns what was there.
    ///
    /// # Errors
    /// [`BufferError::OutOfBounds`], [`BufferError::Misaligned`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64, BufferError> {
        self.operate(offset, Operation::FetchAdd(add))
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
        self.operate(offset, Operation::CompareSwap { compare, swap })
    }

    fn operate(&self, offset: usize, operation: Operation) -> Result<u64, BufferError> {
        let word = self.locate(offset, size_of::<u64>())?.cast::<u64>();
        if !word.is_aligned() {
            return Err(BufferError::Misaligned { offset });
        }
        // SAFETY: aligned and inside the mapping, which stays; all accesses to it may race (see
        // `copy`). Pages behind a file's end are guarded.
        let before = unsafe { operation.perform(word, self.guarded) };
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
        if self.len != 0 {
            // SAFETY: the mapping is this buffer's own, and goes with it.
            let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
            debug_assert_eq!(unmapped, Ok(()), "a whole mapping can be unmapped");
        }
    }
}
