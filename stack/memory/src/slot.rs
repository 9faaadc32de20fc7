//! One entry of the key table: the memory of a key, and the number of its users.
//!
//! All sharing uses one atomic word:
//!
//! ```text
//!  63          62      56 55       48 47            0
//! | published | 0       | low byte  | pins           |
//! ```
//! * A pin adds one to the count and checks the former word. If the slot is published with the
//!   right low byte, the pin is valid; otherwise the pin subtracts the one again. Every valid pin
//!   is therefore ordered before the bit was cleared.
//! * Only the owner of an unpublished slot without pins writes the other fields. Only the writer,
//!   or a thread with a valid pin, reads them. They are relaxed atomics, which are plain loads on
//!   every processor, so that this module needs no `unsafe`. The word orders them (release when
//!   published, acquire when pinned).
//! * The thread that clears the bit may reuse the slot after it has waited for the pins.
//!
//! The other kinds of keys use the same slots. A window has its own range over the memory of
//! another slot. A fast-registration region has a page list for `base`, and is unpublished while it
//! is invalid. [`SlotContent`] holds the state that only verbs and work requests on the object
//! itself use, under the lock of the slot. The holder of that lock may wait for pins, so a thread
//! that holds a pin must not wait for the lock.

use super::layout::{AccessScope, Layout, Region};
use super::pages::PageList;
use super::{Access, Buffer, DmId, MwType, PdId};
use urxe_types::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use urxe_types::sync::{Arc, Mutex, MutexGuard, lock};
use urxe_wire::Qpn;

const PUBLISHED: u64 = 1 << 63;
const LOW_BYTE_SHIFT: u32 = 48;
/// Safe code may forget pins, so the count must not reach the bits above. With a million forgotten
/// pins a second, that takes nine years.
const PINS: u64 = (1 << LOW_BYTE_SHIFT) - 1;

/// `shape`: the page shift (0: not paged) in the low byte, and these flags.
const WHOLE: u32 = 1 << 8;
const GUARDED: u32 = 1 << 9;
const WINDOW: u32 = 1 << 10;

/// The state of a slot that only verbs and work requests on the object itself use.
pub(super) enum SlotContent {
    Vacant,
    Region(RegionContent),
    Fast(Box<FastRegion>),
    Window(WindowContent),
}

/// An ordinary region. While the region exists, its slot is published.
#[derive(Default)]
pub(super) struct RegionContent {
    /// The buffer that stays as long as the region.
    pub(super) kept: Option<Arc<Buffer>>,
    /// The device memory of the region.
    pub(super) dm: Option<DmId>,
}

/// A fast-registration region. Its slot is published while the region is valid.
pub(super) struct FastRegion {
    pub(super) pd: PdId,
    /// The low byte of the key, whether or not the region is valid.
    pub(super) low_byte: u8,
    pub(super) valid: bool,
    /// The pages of the valid region.
    pub(super) active: PageList,
    /// The pages that the next registration makes active.
    pub(super) staged: PageList,
}

/// A memory window. Its slot is published while the window is bound.
pub(super) struct WindowContent {
    pub(super) kind: MwType,
    pub(super) pd: PdId,
    /// The low byte of the key, whether or not the window is bound.
    pub(super) low_byte: u8,
    /// Whether binds ignore the low byte of the key that they name.
    pub(super) by_handle: bool,
    pub(super) bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The slot of the region.
    pub(super) region: u32,
    /// The queue pair that bound a type 2 window.
    pub(super) qpn: Option<Qpn>,
}

/// Aligned to a cache line, so that pins of one region do not slow down pins of its neighbours.
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
    /// Whether the content is a fast-registration region or a window, whose key changes during its
    /// life. Threads without the lock read this field.
    is_changing: AtomicBool,
    /// Number of uses of the slot, modulo 256. Only changed under the lock of the table.
    generation: AtomicU8,
    /// Number of windows bound to the region. The number grows only under the lock and while the
    /// region is published. A thread that holds the lock and finds 0 may therefore remove the
    /// region.
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

    /// Locks and returns the content of the slot. The calling thread must not hold a pin.
    pub(super) fn content(&self) -> MutexGuard<'_, SlotContent> {
        lock(&self.content)
    }

    /// Sets the content of the slot, and whether its key changes, for threads without the lock.
    pub(super) fn set(&self, place: &mut SlotContent, content: SlotContent) -> SlotContent {
        let is_changing = matches!(content, SlotContent::Fast(_) | SlotContent::Window(_));
        self.is_changing.store(is_changing, Ordering::Relaxed);
        std::mem::replace(place, content)
    }

    /// Returns whether the slot holds an object whose key changes during its life.
    pub(super) fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Relaxed)
    }

    /// Counts a window. The caller holds the lock.
    pub(super) fn count_window(&self) {
        self.windows.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a window from the count. Release order: copies through the window come before.
    pub(super) fn uncount_window(&self) {
        let before = self.windows.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before, 0, "more windows released than held");
    }

    /// Returns the number of windows bound to the region.
    pub(super) fn windows(&self) -> u32 {
        self.windows.load(Ordering::Acquire)
    }

    /// Returns whether the slot is published for keys with this low byte.
    pub(super) fn answers_to(&self, low_byte: u8) -> bool {
        answers(self.word.load(Ordering::Relaxed), low_byte)
    }

    /// Counts one more use of the slot and returns the count, modulo 256.
    pub(super) fn next_generation(&self) -> u8 {
        self.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Publishes the slot for keys with this low byte. The caller owns the slot: the slot is new,
    /// or the caller has unpublished and drained it.
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
        // The count is kept, because pins by a stale key may be counted for a moment.
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

    /// Unpublishes the slot and waits for the pins. Returns false if the slot was not published for
    /// `low_byte`.
    pub(super) fn unpublish_and_drain(&self, low_byte: u8) -> bool {
        let was_there = self.unpublish(low_byte);
        if was_there {
            self.drain();
        }
        was_there
    }

    /// Unpublishes the slot. Returns false if the slot was not published for `low_byte`. The caller
    /// must then call [`Slot::drain`] before anything else.
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

    /// Waits until no pin is held. The acquire load pairs with the release of the last
    /// [`Slot::unpin`], so every copy under a pin happened before the return.
    pub(super) fn drain(&self) {
        let mut wait = Wait::new();
        while self.word.load(Ordering::Acquire) & PINS != 0 {
            wait.once();
        }
    }

    /// Pins the slot if it is published for `low_byte`. Each success needs one [`Slot::unpin`].
    pub(super) fn pin(&self, low_byte: u8) -> bool {
        // The load first keeps packets with wrong keys from writing to the cache line.
        if !answers(self.word.load(Ordering::Relaxed), low_byte) {
            return false;
        }
        if answers(self.word.fetch_add(1, Ordering::Acquire), low_byte) {
            return true;
        }
        self.unpin();
        false
    }

    /// Ends a pin. Release order: copies under the pin come before.
    pub(super) fn unpin(&self) {
        let before = self.word.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before & PINS, 0, "more unpinned than pinned");
    }

    /// Returns the memory of the slot. The caller holds a pin, or the lock of a published slot.
    #[inline(always)] // a caller that uses one field loads only that field
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

/// A wait that begins fast and becomes cheap: pins last microseconds, unless the system suspends
/// their thread.
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
