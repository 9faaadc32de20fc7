//! What can go wrong with fast registration.

use super::RegMrError;
use crate::{Access, PdId};
use urxe_wire::Rkey;

urxe_types::errors! {
    /// Why a fast-registration region was not allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AllocMrError {
        /// `allowed`: the device's `max_fast_reg_page_list_len`.
        #[error("a region of {given} pages; at least 1 and at most {allowed} are allowed")]
        Pages { given: u32, allowed: u32 } = EINVAL,
        #[error("{max} memory regions are registered, and no more are allowed")]
        TooMany { max: u32 } = ENOMEM,
    }

    /// Why nothing was mapped to a fast-registration region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum MapError {
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("a page size of {given}; powers of 2 from 4096 on are allowed")]
        PageSize { given: usize } = EINVAL,
        #[error("nothing to map: at least one piece, each of at least one byte")]
        Empty = EINVAL,
        #[error("piece {index}: bytes {start} to {end} of a buffer of {len}")]
        OutsideBuffer { index: usize, start: usize, end: usize, len: usize } = EINVAL,
        /// A piece is of a file that somebody may shorten, so its pages may go.
        #[error("piece {index} is of a file that is not sealed against shrinking: register it as a \
                 region")]
        MayShrink { index: usize } = EOPNOTSUPP,
        #[error("{len} bytes at {addr:#x} leave the address space")]
        Wraps { addr: usize, len: usize } = EINVAL,
        /// A piece does not begin or end at the boundary of a page where the list goes on.
        #[error("piece {index}, {len} bytes at {addr:#x}: where a list goes on, pieces meet at \
                 boundaries of pages of {page_size} bytes")]
        Gap { index: usize, addr: usize, len: usize, page_size: usize } = EINVAL,
        #[error("{given} pages; the region was allocated for {allowed}")]
        TooManyPages { given: usize, allowed: usize } = ENOMEM,
        /// The I/O virtual address has another offset in its page than the first piece.
        #[error("I/O virtual address {iova:#x} and address {addr:#x} differ in their offset within \
                 a page of {page_size} bytes")]
        IovaOffset { addr: usize, iova: u64, page_size: usize } = EINVAL,
        #[error("{len} bytes at I/O virtual address {iova:#x} exceed 64 bits")]
        IovaWraps { iova: u64, len: u64 } = EINVAL,
        #[error("{len} bytes at {addr:#x} are not all mapped")]
        NotMapped { addr: usize, len: usize } = EFAULT,
        /// Part of a piece is not readable, or not writable.
        #[error(
            "{len} bytes at {addr:#x} are not all {}",
            if *.write { "writable" } else { "readable" }
        )]
        NotAccessible { addr: usize, len: usize, write: bool } = EFAULT,
    }

    /// Why a fast-registration region did not become valid. The work request completes with
    /// [`LocQpOpErr`](urxe_types::completion::WcStatus::LocQpOpErr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum FastRegError {
        /// There is none whose key has these upper 24 bits.
        #[error("no fast-registration region has the key {key}")]
        UnknownKey { key: Rkey } = EINVAL,
        #[error("the region {key} belongs to {owner:?}, not to the queue pair's {given:?}")]
        WrongPd { key: Rkey, given: PdId, owner: PdId } = EPERM,
        #[error("the region {key} is valid already: invalidate it first")]
        NotFree { key: Rkey } = EBUSY,
        #[error("nothing is mapped to the region {key}")]
        NotMapped { key: Rkey } = EINVAL,
        /// A right that the memory which was mapped cannot have.
        #[error(transparent)] Memory(#[from] RegMrError) = EINVAL,
        /// Rights that do not go together, or not with what was mapped.
        #[error("{given:?}: allowed are {allowed:?}, and REMOTE_WRITE and REMOTE_ATOMIC require \
                 LOCAL_WRITE")]
        Access { given: Access, allowed: Access } = EINVAL,
    }
}
