//! Memory of a file or memfd, mapped to be registered (`ibv_reg_mr` over a shared mapping).
//!
//! Somebody may shorten a file while it is mapped, after which its pages raise SIGBUS. Unless a
//! seal forbids that (`F_SEAL_SHRINK`), the bytes of such a buffer move by system calls, which
//! report it, and atomic operations are carried out by a helper process, which may have the signal.
//!
//! A dmabuf cannot be had like this: the processor's view of it is only right between
//! `DMA_BUF_IOCTL_SYNC` calls around each access, and a device's memory need not be mappable at
//! all.

use super::Buffer;
use super::guarded;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

urxe_types::errors! {
    /// Why no buffer was made of a file.
    #[derive(Debug, thiserror::Error)]
    pub enum FileError {
        #[error("length 0: a buffer of a file has at least one byte")]
        ZeroLength = EINVAL,
        /// The range does not begin at a page of the file.
        #[error("offset {offset} is no multiple of the page size, {page}")]
        Offset { offset: u64, page: usize } = EINVAL,
        #[error("{len} bytes at offset {offset} are not inside a file of {file_len}")]
        OutsideFile { offset: u64, len: usize, file_len: u64 } = EINVAL,
        #[error("dmabufs cannot be registered: each access by the processor would need the \
                 exporter's synchronisation, and there is no other device here that could do it")]
        Dmabuf = EOPNOTSUPP,
        /// The descriptor is of no regular file and no memfd, or its file system cannot map it.
        #[error("the descriptor cannot be mapped: {0}")]
        System(#[from] io::Error) => |error| error.raw_os_error().unwrap_or(EINVAL),
    }
}

/// The magic number of the file system behind dmabufs (`DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: u64 = 0x444d_4142;

impl Buffer {
    /// Maps `len` bytes at `offset` of a file or memfd that is open for reading and writing. What
    /// is written to the buffer is written to the file, and the other way round.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn of_file(file: impl AsFd, offset: u64, len: usize) -> Result<Self, FileError> {
        let file = file.as_fd();
        let page = guarded::page_size();
        if len == 0 {
            return Err(FileError::ZeroLength);
        }
        // A field of another type on each architecture; the number has 32 bits.
        let kind = rustix::fs::fstatfs(file).map_err(io::Error::from)?.f_type as u64 & 0xffff_ffff;
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
        Ok(Self::mapped(base.map_err(io::Error::from)?, len, !seals.contains(SealFlags::SHRINK)))
    }
}
