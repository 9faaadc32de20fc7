//! One entry of the key table: what a key stands for, and who is using it right now.
//!
//! All sharing goes through one atomic word:
//!
//! ```text
//!  63          62      56 55       48 47            0
//! | published | 0       | low byte  | pins           |
//! ```
//! * A pin adds one to the count and looks at the word it changed: published, with the right low
//!   byte, it holds; otherwise it takes the one back. So every pin that holds is ordered before the
//!   bit was cleared.
//! * The other fields are written only by the owner of an unpublished slot whose pins drained, and
//!   read only under a pin that holds or by their writer. They are relaxed atomics, plain loads on
//!   every processor, because that spares this module any `unsafe`; the word orders them (release
//!   when published, acquire when pinned).
//! * Whoever clears the bit is the one who may reuse the slot, after waiting for the pins.
//!
//! What else a key can stand for fits into the same slot: a window has its own range over another
//! slot's memory, a fast-registration region has a page list for `base` and is unpublished while it
//! is free. What only verbs and work requests on the object itself look at stands in [`SlotContent`],
//! under the slot's own lock. Whoever holds that lock may wait for pins, so nobody who holds a pin
//! may wait for it.

use super::layout::{AccessScope, Layout, Region};
use super::pages::PageList;
use super::{Access, Buffer, DmId, MwType, PdId};
use urxe_types::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use urxe_types::sync::{Arc, Mutex, MutexGuard, lock};
use urxe_wire::Qpn;

const PUBLISHED: u64 = 1 << 63;
const LOW_BYTE_SHIFT: u32 = 48;
/// A safe caller may forget pins, so the count must not reach the bits above: at a million
/// forgotten a second, that takes nine years.
const PINS: u64 = (1 << LOW_BYTE_SHIFT) - 1;

/// `shape`: the page shift (0: not paged) in the low byte, then these.
const WHOLE: u32 = 1 << 8;
const GUARDED: u32 = 1 << 9;
const WINDOW: u32 = 1 << 10;

/// What a slot holds beside what its key stands for: things that only verbs and work requests on
/// the object itself look at.
pub(super) enum SlotContent {
    Vacant,
    Region(RegionContent),
    Fast(Box<FastRegion>),
    Window(WindowContent),
}

/// An ordinary region. While it exists, its slot is published.
#[derive(Default)]
pub(super) struct RegionContent {
    /// Memory that stays as long as the region.
    pub(super) kept: Option<Arc<Buffer>>,
    /// The device memory that it registers.
    pub(super) dm: Option<DmId>,
}

/// A fast-registration region. Its slot is published while it is valid.
pub(super) struct FastRegion {
    pub(super) pd: PdId,
    /// How its key ends, whether or not it is valid.
    pub(super) low_byte: u8,
    pub(super) valid: bool,
    /// What its key stands for while it is valid.
    pub(super) active: PageList,
    /// What the next registration will make active.
    pub(super) staged: PageList,
}

/// A memory window. Its slot is published while it is bound.
pub(super) struct WindowContent {
    pub(super) kind: MwType,
    pub(super) pd: PdId,
    /// How its key ends, whether or not it is bound.
    pub(super) low_byte: u8,
    /// Whether binds name it however its key ended when they were posted.
    pub(super) by_handle: bool,
    pub(super) bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The region's slot.
    pub(super) region: u32,
    /// The queue pair that bound a type 2 window.
    pub(super) qpn: Option<Qpn>,
}

/// Aligned to a cache line, so that pins of one region do not slow those of its neighbours.
#[repr(align(64))]
pub(super) struct Slot {
    word: AtomicU64,
    base: AtomicPtr<u8>,
    start: AtomicU64,
    len: AtomicU64,
    skip: AtomicU64,
    pd: AtomicU32,
    access: AtomicU32,
    /// The queue pair of a type 2 window, or 0.
    qpn: AtomicU32,
    shape: AtomicU32,
    /// Whether the content is a fast-registration region or a window, whose key changes while it
    /// lives: for threads that do not hold the lock.
    is_changing: AtomicBool,
    /// How often the slot was given away, modulo 256. Changed under the table's lock only.
    generation: AtomicU8,
    /// Windows bound to the region. It grows only under the lock, while the region is published, so
    /// whoever holds the lock and finds none may take the region away.
    windows: AtomicU32,
    content: Mutex<SlotContent>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            base: AtomicPtr::new(std::ptr::null_mut()),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            skip: AtomicU64::new(0),
            pd: AtomicU32::new(0),
            access: AtomicU32::new(0),
            qpn: AtomicU32::new(0),
            shape: AtomicU32::new(0),
            is_changing: AtomicBool::new(false),
            generation: AtomicU8::new(0),
            windows: AtomicU32::new(0),
            content: Mutex::new(SlotContent::Vacant),
        }
    }

    /// What the slot holds, for whoever changes it. The calling thread holds no pin.
    pub(super) fn content(&self) -> MutexGuard<'_, SlotContent> {
        lock(&self.content)
    }

    /// Tells those without the lock what `object` is.
    pub(super) fn set(&self, place: &mut SlotContent, content: SlotContent) -> SlotContent {
        let is_changing = matches!(content, SlotContent::Fast(_) | SlotContent::Window(_));
        self.is_changing.store(is_changing, Ordering::Relaxed);
        std::mem::replace(place, content)
    }

    /// Whether the slot holds an object whose key changes while it lives.
    pub(super) fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Relaxed)
    }

    /// Counts a window, under the lock.
    pub(super) fn count_window(&self) {
        self.windows.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts one. Release: what was copied through it comes before.
    pub(super) fn uncount_window(&self) {
        let before = self.windows.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before, 0, "more windows released than held");
    }

    /// How many windows are bound to the region.
    pub(super) fn windows(&self) -> u32 {
        self.windows.load(Ordering::Acquire)
    }

    /// Whether the slot answers to keys that end in `low_byte`.
    pub(super) fn answers_to(&self, low_byte: u8) -> bool {
        answers(self.word.load(Ordering::Relaxed), low_byte)
    }

    /// Counts one more use of the slot and returns the count, modulo 256.
    pub(super) fn next_generation(&self) -> u8 {
        self.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Makes the slot answer to keys that end in `low_byte`. The caller owns the slot: it is new,
    /// or was unpublished and drained by the caller.
    pub(super) fn publish(&self, region: &Region, low_byte: u8) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed) & PUBLISHED, 0, "published twice");
        self.base.store(region.base, Ordering::Relaxed);
        self.start.store(region.start, Ordering::Relaxed);
        self.len.store(region.len, Ordering::Relaxed);
        self.pd.store(region.pd.0, Ordering::Relaxed);
        self.access.store(region.access.bits(), Ordering::Relaxed);
        let (shape, skip) = match region.layout {
            Layout::Flat => (0, 0),
            Layout::Whole => (WHOLE, 0),
            Layout::Paged { shift, skip } => (u32::from(shift), skip),
        };
        let (window, qpn) = match region.scope {
            AccessScope::All => (0, 0),
            AccessScope::Peers => (WINDOW, 0),
            AccessScope::PeerOf(qpn) => (WINDOW, qpn.value()),
        };
        let checked = if region.checked { GUARDED } else { 0 };
        self.skip.store(skip, Ordering::Relaxed);
        self.qpn.store(qpn, Ordering::Relaxed);
        self.shape.store(shape | window | checked, Ordering::Relaxed);
        // AccessScope of a stale key may have added themselves to the count and be about to leave, so it
        // is kept.
        let top = PUBLISHED | (u64::from(low_byte) << LOW_BYTE_SHIFT);
        let mut word = self.word.load(Ordering::Relaxed);
        while let Err(now) = self.word.compare_exchange_weak(
            word,
            top | (word & PINS),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            word = now;
        }
    }

    /// Stops the slot from answering to `low_byte` and waits for the pins; false if it did not
    /// answer.
    pub(super) fn unpublish_and_drain(&self, low_byte: u8) -> bool {
        let was_there = self.unpublish(low_byte);
        if was_there {
            self.drain();
        }
        was_there
    }

    /// Stops the slot from answering to `low_byte`; false if it does not. The caller must
    /// [`Slot::drain`] it before anything else.
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

    /// Waits until no pin holds. The acquire load pairs with the release of the last
    /// [`Slot::unpin`], so every copy under a pin happened before this returns.
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

    /// What the slot stands for. The caller holds a pin, or the lock of a slot that is published.
    #[inline(always)] // whoever asks for one field reads that one
    pub(super) fn region(&self) -> Region {
        let shape = self.shape.load(Ordering::Relaxed);
        let layout = match shape as u8 {
            0 if shape & WHOLE != 0 => Layout::Whole,
            0 => Layout::Flat,
            shift => Layout::Paged { shift, skip: self.skip.load(Ordering::Relaxed) },
        };
        let scope = match self.qpn.load(Ordering::Relaxed) {
            _ if shape & WINDOW == 0 => AccessScope::All,
            0 => AccessScope::Peers,
            qpn => AccessScope::PeerOf(Qpn::masked(qpn)),
        };
        Region {
            base: self.base.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            pd: PdId(self.pd.load(Ordering::Relaxed)),
            access: Access::from_bits_retain(self.access.load(Ordering::Relaxed)),
            layout,
            scope,
            checked: shape & GUARDED != 0,
        }
    }
}

fn answers(word: u64, low_byte: u8) -> bool {
    word & PUBLISHED != 0 && (word >> LOW_BYTE_SHIFT) as u8 == low_byte
}

/// Waiting that starts fast and becomes cheap: pins last microseconds, unless their thread lost its
/// processor.
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
            SPINS..SPINS_AND_YIELDS => urxe_types::sync::yield_now(),
            _ => return std::thread::sleep(SLEEP),
        }
        self.rounds += 1;
    }

    #[cfg(loom)]
    fn once(&mut self) {
        urxe_types::sync::yield_now();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
