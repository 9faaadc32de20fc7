//! Registered memory: keys, permissions, pins, and the copies that peers and local work requests
//! ask for.
//!
//! [`Memory`] is a device's key table. A program registers a range; the keys it gets stand for that
//! range, in one protection domain, with some rights. Whoever has to place or fetch bytes pins the
//! key ([`Memory::pin`], or [`Pins`] for a run of packets), which checks key, domain, rights and
//! bounds, and copies under the pin. Deregistration unpublishes the key first and then waits for
//! the pins, so no byte moves after it returned.
//!
//! | file | subject |
//! |---|---|
//! | `keys` | slot index to key and back |
//! | `layout` | what a key stands for, and where its bytes lie |
//! | `slot` | one entry: publication, pin count, drain; the region, fast-registration region or window in it |
//! | `table` | all entries; they never move |
//! | `pin` | checks and translation, [`Pin`], [`Pins`] |
//! | `copy` | the raw copies and atomic operations |
//! | `guarded` | copies through system calls, for memory that may not be there |
//! | `helper` | atomic operations there, by a process that may fault |
//! | `window` | memory windows: bound to part of a region |
//! | `fast`, `pages` | fast registration: page lists, made valid by a work request |
//! | `persistence` | which memory survives a power failure |
//! | `invalidate` | keys that peers and work requests take away |
//! | `reregister` | another place, domain or access for a region |
//! | `advise` | prefetching on-demand pages |
//! | `dm` | device memory |
//! | `buffer` | [`Buffer`]: memory for the safe API, anonymous or of a file |
//! | `error` | errors |
//!
//! # Memory is like device memory
//! Peers write registered memory while the program looks at it; no lock can prevent that, and
//! programs rely on it (they poll the last byte). Rust's and C's data-race rules speak of accesses
//! that the compiler sees. So:
//! * No `&[u8]` and no `&mut [u8]` over registered memory is ever formed, here or by the safe API:
//!   a reference would promise that the bytes keep still. What exists is a raw pointer in a slot,
//!   kept with its provenance.
//! * Bytes move by single atomic instructions (1, 2, 4 or 8 aligned bytes, and the last byte of
//!   every placement), or by the C library's `memmove`, called through a function pointer that an
//!   empty assembly block has passed through. The compiler cannot know what it calls, so it must
//!   take the copy for machine code, which is judged by the least it could be in Rust's terms:
//!   relaxed atomic loads and stores of single bytes, in some order. That is defined whatever other
//!   copies of this module do at the same time. `std::ptr::copy`, or a `memcpy` that the compiler
//!   recognises, would instead assert the absence of races; volatile accesses do not exempt from
//!   them either, and byte by byte they are eight to thirty times as slow.
//! * What remains outside the letter: atomic accesses of different widths may meet (a word that a
//!   peer adds to while another peer's copy overwrites it). Rust leaves their mixture undefined.
//!   Every processor that runs Linux defines it, and the compiler has nothing to exploit: it knows
//!   no other access to those addresses, and must emit each atomic access as the one instruction
//!   that it is.
//! * System calls, which move the bytes of memory that may not be there, act outside the compiler's
//!   sight as well.
//! * What the *program* does to its memory is its own affair, as on a device: a C program reads it
//!   by plain loads after it saw a completion or a polled byte. In the Rust API, [`Buffer`] is the
//!   only kind of memory that safe code can register, and it offers nothing but copies and atomics.
//! * Order: the last byte of a placement is written last, by a release store, and a read ends with
//!   an acquire, so a poller that sees the last byte sees the bytes before it. Packets are placed
//!   in the order of the calls.
//!
//! # Which accesses are allowed
//! A local read needs no flag, a local write [`Access::LOCAL_WRITE`], a peer's access its own flag
//! (IBTA vol. 1, 10.6.3). Flags that let a peer write are refused without `LOCAL_WRITE`, so
//! "writable" is one bit. Messages of zero length name no memory; whoever handles them does not ask
//! here (IBTA C9-88).

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
mod table;
mod window;

pub use advise::{Advice, AdviseError, AdviseRange};
pub use buffer::{Buffer, BufferError, FileError};
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

/// A registered region: a description, which says nothing about whether it still is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// The owner's key.
    pub lkey: Lkey,
    /// The peers' key. Has the same value, as in the kernel's rxe.
    pub rkey: Rkey,
    /// First address, as work requests and peers name it.
    pub iova: u64,
    /// Length in bytes.
    pub len: usize,
    /// What it grants.
    pub access: Access,
    /// The protection domain it belongs to.
    pub pd: PdId,
}

#[cfg(all(test, not(loom)))]
mod tests;
