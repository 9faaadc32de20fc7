//! Registered memory: keys, access rights, pins, and the copies for peers and local work requests.
//!
//! [`Memory`] is the key table of a device. A program registers a range and gets keys for this
//! range, with a protection domain and access rights. Code that places or fetches bytes pins the
//! key ([`Memory::pin`], or [`Pins`] for a batch of packets). Pinning checks key, domain, rights
//! and bounds, and the copy happens under the pin. Deregistration first unpublishes the key and
//! then waits for the pins, so no byte moves after it returns.
//!
//! | file | subject |
//! |---|---|
//! | `keys` | slot to key and back; classes of keys |
//! | `slot_allocator` | the order in which slots are used again |
//! | `layout` | the range of a key, and the location of its bytes |
//! | `slot` | one entry: publication, pin count, drain; the object in the entry |
//! | `table` | all entries, which never move |
//! | `pin` | checks and translation, [`Pin`], [`Pins`] |
//! | `copy` | the raw copies and atomic operations |
//! | `checked_copy` | copies by system calls, for memory that may be missing |
//! | `atomic_helper` | atomic operations on such memory, by a process that may fault |
//! | `window` | memory windows, which are bound to a part of a region |
//! | `fast`, `pages` | fast registration: page lists that a work request makes valid |
//! | `persistence` | the kinds of memory that survive a power failure |
//! | `invalidate` | invalidation of keys by peers and work requests |
//! | `reregister` | changes of translation, domain or access of a region |
//! | `advise` | prefetching of on-demand pages |
//! | `device_memory` | device memory |
//! | `buffer` | [`Buffer`]: memory for the safe API, anonymous or of a file |
//! | `zeroed` | zeroed memory of any size |
//! | `error` | errors |
//!
//! ```
//! use std::sync::Arc;
//! use urxe_memory::{Access, Buffer, Memory, PdId};
//!
//! let memory = Memory::new(1, 16);
//! let pd = PdId(1);
//! let buffer = Arc::new(Buffer::new(4096)?);
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let mr = memory.register_buffer(pd, &buffer, 0..4096, 0x1000, access)?;
//!
//! // A peer's write: the key, its domain, the right and the bounds are checked once.
//! memory.pin(mr.rkey.0, pd, Access::REMOTE_WRITE, 0x1010, 5)?.write(0x1010, b"hello")?;
//! let mut bytes = [0; 5];
//! buffer.read(0x10, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//!
//! // A read needs another right, and the region ends after 4,096 bytes.
//! assert!(memory.pin(mr.rkey.0, pd, Access::REMOTE_READ, 0x1000, 1).is_err());
//! assert!(memory.pin(mr.rkey.0, pd, Access::REMOTE_WRITE, 0x1ffe, 5).is_err());
//! memory.deregister(mr.lkey)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory is like device memory
//! Peers write registered memory while the program reads it. No lock can prevent that, and programs
//! rely on it, because they poll the last byte. The data-race rules of Rust and C apply to accesses
//! that the compiler sees. Therefore:
//! * No `&[u8]` and no `&mut [u8]` over registered memory exists, here or in the safe API, because
//!   a reference would promise that the bytes do not change. A slot keeps a raw pointer with its
//!   provenance.
//! * Bytes move by single atomic instructions (1, 2, 4 or 8 aligned bytes, and the last byte of
//!   every placement), or by the C library's `memmove`. The call of `memmove` uses a function
//!   pointer that has passed through an empty assembly block. The compiler cannot know the
//!   function, so it must treat the copy as machine code. In terms of Rust, the weakest equivalent
//!   is a series of relaxed atomic loads and stores of single bytes in some order. That is defined
//!   for any simultaneous copies of this module. `std::ptr::copy`, or a `memcpy` that the compiler
//!   recognises, would instead assert that there are no races. Volatile accesses are subject to the
//!   same rule, and byte by byte they are eight to thirty times as slow.
//! * One case is outside the rules of Rust: atomic accesses of different widths may overlap, for
//!   example when a peer adds to a word while another peer's copy overwrites the word. Rust leaves
//!   this case undefined. Every processor that runs Linux defines it. The compiler cannot exploit
//!   the case, because it knows no other access to those addresses and must emit each atomic access
//!   as one instruction.
//! * System calls, which move the bytes of memory that may be missing, are outside the view of the
//!   compiler.
//! * The *program* is responsible for its own accesses, as with a hardware device: a C program
//!   reads its memory by plain loads after a completion or a polled byte. In the Rust API,
//!   [`Buffer`] is the only kind of memory that safe code can register, and it offers only copies
//!   and atomics.
//! * Order: the last byte of a placement is written last, by a release store, and a read ends with
//!   an acquire fence. A thread that polls and sees the last byte therefore sees the bytes before
//!   it. Packets are placed in the order of the calls.
//!
//! # Which accesses are allowed
//! A local read needs no flag, a local write needs [`Access::LOCAL_WRITE`], and a peer's access
//! needs its own flag (IBTA vol. 1, 10.6.3). Flags that allow a peer to write are refused without
//! `LOCAL_WRITE`, so one bit means "writable". Messages of zero length name no memory, and their
//! callers do not pin (IBTA C9-88).

mod advise;
mod atomic_helper;
mod buffer;
mod checked_copy;
mod copy;

mod device_memory;
mod error;
mod fast;
mod invalidate;
mod keys;
mod layout;
mod pages;
mod persistence;
mod pin;
mod reregister;
mod slot;
mod slot_allocator;
mod table;
mod window;
mod write_only;
mod zeroed;

pub use advise::{Advice, AdviseError, AdviseRange};
pub use buffer::{Buffer, BufferError, FileError};
pub use copy::copy_shared;
pub use device_memory::DmError;
pub use error::{
    AccessError, AllocMrError, AllocMwError, BindError, DeallocMwError, DeregMrError, FastRegError,
    Fault, MapError, RegMrError, ReregMrError,
};
pub use invalidate::{InvalidateError, Invalidator};
pub use pages::Piece;
pub use pin::{Pin, Pins};
pub use reregister::{Change, Translation};
pub use table::{CopyMode, Memory};
pub use urxe_types::access::{Access, Accessor, Bind, MwType, inc_rkey};
pub use urxe_types::ids::{DmId, PdId};
pub use urxe_types::limits::MemoryLimits;
use urxe_wire::{Lkey, Rkey};
pub use write_only::WriteOnly;
pub use zeroed::zeroed;

/// The description of a registered region. The region may be deregistered in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// The owner's key.
    pub lkey: Lkey,
    /// The peers' key, which has the same value as in the kernel's rxe.
    pub rkey: Rkey,
    /// First address for work requests and peers.
    pub iova: u64,
    /// Length in bytes.
    pub len: usize,
    /// The access flags of the region.
    pub access: Access,
    /// The protection domain of the region.
    pub pd: PdId,
}

#[cfg(all(test, not(loom)))]
mod tests;
