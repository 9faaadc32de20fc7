//! One entry of the key table: what a key stands for, and who is using it right now.
//!
//! All sharing goes through one atomic word:
//!
//! ```text
//!  63          62      56 55       48 47            0
//! | published | 0       | low byte  | pins           |
//! ```
//! * A pin adds one to the count and looks at the word it changed: published, with the right low byte, it
//!   holds; otherwise it takes the one back. So every pin that holds is ordered before the bit was cleared.
//! * The other fields are written only by the owner of an unpublished slot whose pins drained, and read only under
//!   a pin that holds or by their writer. They are relaxed atomics, plain loads on every processor, because
//!   that spares this module any `unsafe`; the word orders them (release when published, acquire when pinned).
//! * Whoever clears the bit is the one who may reuse the slot, after waiting for the pins.
//!
//! What later kinds of key need fits: a window is a slot whose fields are its own range over another slot's
//! memory, which counts its windows; a fast-registration region is a slot that is unpublished while INVALID, whose low
//! byte its owner chooses and whose `base` becomes a page list, told apart by a kind field beside `access`;
//! reregistration unpublishes, drains and publishes with the same low byte.

use super::{Access, PdId};
use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

const PUBLISHED: u64 = 1 << 63;
const LOW_BYTE_SHIFT: u32 = 48;
/// A safe caller may forget pins, so the count must not reach the bits above: at a million forgotten a second, that takes
/// nine years.
const PINS: u64 = (1 << LOW_BYTE_SHIFT) - 1;

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// First byte in this process.
    pub(super) base: *mut u8,
    /// First address as peers name it.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) pd: PdId,
    pub(super) access: Access,
}

/// Aligned to a cache line, so that pins of one region do not slow those of its neighbours.
#[repr(align(64))]
pub(super) struct Slot {
    word: AtomicU64,
    base: AtomicPtr<u8>,
    start: AtomicU64,
    len: AtomicU64,
    pd: AtomicU32,
    access: AtomicU32,
    /// How often the slot was published, modulo 256. Changed under the table's lock only.
    generation: AtomicU8,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            base: AtomicPtr::new(std::ptr::null_mut()),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            pd: AtomicU32::new(0),
            access: AtomicU32::new(0),
            generation: AtomicU8::new(0),
        }
    }

    /// Counts one more use of the slot and returns the count, modulo 256.
    pub(super) fn next_generation(&self) -> u8 {
        self.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Makes the slot answer to keys that end in `low_byte`. The caller owns the slot: it is new, or was unpublished
    /// and drained by the caller.
    pub(super) fn publish(&self, region: &Region, low_byte: u8) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed) & PUBLISHED, 0, "published twice");
        self.base.store(region.base, Ordering::Relaxed);
        self.start.store(region.start, Ordering::Relaxed);
        self.len.store(region.len, Ordering::Relaxed);
        self.pd.store(region.pd.0, Ordering::Relaxed);
        self.access.store(region.access.bits(), Ordering::Relaxed);
        // Users of a stale key may have added themselves to the count and be about to leave, so it is kept.
        let top = PUBLISHED | (u64::from(low_byte) << LOW_BYTE_SHIFT);
        let mut word = self.word.load(Ordering::Relaxed);
        while let Err(now) =
            self.word.compare_exchange_weak(word, top | (word & PINS), Ordering::AcqRel, Ordering::Relaxed)
        {
            word = now;
        }
    }

    /// Stops the slot from answering to `low_byte`; false if it does not. The caller must [`Slot::drain`] it before
    /// anything else.
    pub(super) fn unpublish(&self, low_byte: u8) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while answers(word, low_byte) {
            match self.word.compare_exchange_weak(
                word,
                word & !PUBLISHED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits until no pin holds. The acquire load pairs with the release of the last [`Slot::unpin`], so every copy under a
    /// pin happened before this returns.
    pub(super) fn drain(&self) {
        let mut wait = Wait::new();
        while self.word.load(Ordering::Acquire) & PINS != 0 {
            wait.once();
        }
    }

    /// Pins the slot if it answers to `low_byte`. Each success is paired with one [`Slot::unpin`].
    pub(super) fn pin(&self, low_byte: u8) -> bool {
        // Looking first keeps packets with wrong keys from writing to the line.
        if !answers(self.word.load(Ordering::Relaxed), low_byte) {
            return false;
        }
        if answers(self.word.fetch_add(1, Ordering::Acquire), low_byte) {
            return true;
        }
        self.unpin();
        false
    }

    /// Ends a pin. Release: what was copied under it comes before.
    pub(super) fn unpin(&self) {
        let before = self.word.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before & PINS, 0, "more unpinned than pinned");
    }

    /// What the slot stands for. The caller holds a pin.
    pub(super) fn region(&self) -> Region {
        Region {
            base: self.base.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            pd: PdId(self.pd.load(Ordering::Relaxed)),
            access: Access::from_bits_retain(self.access.load(Ordering::Relaxed)),
        }
    }
}

fn answers(word: u64, low_byte: u8) -> bool {
    word & PUBLISHED != 0 && (word >> LOW_BYTE_SHIFT) as u8 == low_byte
}

/// Waiting that starts fast and becomes cheap: pins last microseconds, unless their thread lost its processor.
struct Wait {
    #[cfg(not(loom))]
    rounds: u32,
}

impl Wait {
    fn new() -> Self {
        Self {
            #[cfg(not(loom))]
            rounds: 0,
        }
    }

    #[cfg(not(loom))]
    fn once(&mut self) {
        const SPINS: u32 = 64;
        const SPINS_AND_YIELDS: u32 = 128;
        const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);
        match self.rounds {
            0..SPINS => std::hint::spin_loop(),
            SPINS..SPINS_AND_YIELDS => crate::sync::yield_now(),
            _ => return std::thread::sleep(SLEEP),
        }
        self.rounds += 1;
    }

    #[cfg(loom)]
    fn once(&mut self) {
        crate::sync::yield_now();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
