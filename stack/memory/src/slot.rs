//! One entry of the key table: the memory of a key, and the number of its users.
//!
//! All sharing uses one atomic word:
//!
//! ```text
//!  63          62          31 30            0
//! | published | key         | pins           |
//! ```
//! * A pin adds one to the count and checks the former word. If the slot is published with the
//!   right key, the pin is valid; otherwise the pin subtracts the one again. Every valid pin is
//!   therefore ordered before the bit was cleared.
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

use super::keys::is_same_object;
use super::layout::{AccessScope, Layout, Region};
use super::pages::PageList;
use super::{Access, Buffer, DmId, MwType, PdId};
use urxe_types::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use urxe_types::sync::{Arc, Mutex, MutexGuard, lock};
use urxe_wire::Qpn;

const PUBLISHED: u64 = 1 << 63;
const KEY_SHIFT: u32 = 31;
const PINS: u64 = (1 << KEY_SHIFT) - 1;
/// From this many pins on, no thread gets a pin. Safe code may forget pins, and the count must not
/// reach the key.
const MAX_PINS_BITS: u32 = KEY_SHIFT - 1;

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
    /// The present key, whether or not the region is valid.
    pub(super) key: u32,
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
    /// The present key, whether or not the window is bound.
    pub(super) key: u32,
    /// Whether binds ignore the low byte of the key that they name.
    pub(super) by_handle: bool,
    pub(super) bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The index of the region's key.
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
    /// For a fast-registration region or a window, whose key changes during its life: any of its
    /// keys. Otherwise 0. Threads without the lock read this field.
    changing: AtomicU32,
    /// Number of uses of the slot, modulo 2^32. Only the owner of a slot without content changes
    /// it.
    uses: AtomicU32,
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
            changing: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            windows: AtomicU32::new(0),
            content: Mutex::new(SlotContent::Vacant),
        }
    }

    /// Locks and returns the content of the slot. The calling thread must not hold a pin.
    pub(super) fn content(&self) -> MutexGuard<'_, SlotContent> {
        lock(&self.content)
    }

    /// Sets the content of the slot. Threads without the lock see the key of an object whose key
    /// changes.
    pub(super) fn set(&self, place: &mut SlotContent, content: SlotContent) -> SlotContent {
        let changing = match &content {
            SlotContent::Fast(fast) => fast.key,
            SlotContent::Window(window) => window.key,
            SlotContent::Vacant | SlotContent::Region(_) => 0,
        };
        self.changing.store(changing, Ordering::Relaxed);
        std::mem::replace(place, content)
    }

    /// Returns whether the slot holds an object whose key changes, and which may have had `key`.
    pub(super) fn is_changing(&self, key: u32) -> bool {
        let changing = self.changing.load(Ordering::Relaxed);
        changing != 0 && is_same_object(changing, key)
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

    /// Returns whether the slot is published with this key.
    pub(super) fn answers_to(&self, key: u32) -> bool {
        is_published(self.word.load(Ordering::Relaxed), key)
    }

    /// Counts one more use of the slot, and returns the number of uses before, modulo 2^32.
    pub(super) fn next_use(&self) -> u32 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Publishes the slot with this key. The caller owns the slot: the slot is new, or the caller
    /// has unpublished and drained it.
    pub(super) fn publish(&self, region: &Region, key: u32) {
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
        let top = PUBLISHED | (u64::from(key) << KEY_SHIFT);
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

    /// Unpublishes the slot and waits for the pins. Returns false if the slot was not published
    /// with `key`.
    pub(super) fn unpublish_and_drain(&self, key: u32) -> bool {
        let was_there = self.unpublish(key);
        if was_there {
            self.drain();
        }
        was_there
    }

    /// Unpublishes the slot. Returns false if the slot was not published with `key`. The caller
    /// must then call [`Slot::drain`] before anything else.
    pub(super) fn unpublish(&self, key: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while is_published(word, key) {
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

    /// Pins the slot if it is published with `key`. Each success needs one [`Slot::unpin`].
    pub(super) fn pin(&self, key: u32) -> bool {
        // The load first keeps packets with wrong keys from writing to the cache line.
        if !can_be_pinned(self.word.load(Ordering::Relaxed), key) {
            return false;
        }
        if can_be_pinned(self.word.fetch_add(1, Ordering::Acquire), key) {
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

fn is_published(word: u64, key: u32) -> bool {
    word >> KEY_SHIFT == PUBLISHED >> KEY_SHIFT | u64::from(key)
}

/// Returns whether a slot with this word is published with `key`, and has few enough pins.
fn can_be_pinned(word: u64, key: u32) -> bool {
    word >> MAX_PINS_BITS
        == (PUBLISHED >> KEY_SHIFT | u64::from(key)) << (KEY_SHIFT - MAX_PINS_BITS)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys that differ in one bit, the most pins, and the word that both have in common.
    #[test]
    fn a_slot_answers_to_one_key_and_the_count_of_pins_never_reaches_it() {
        let (slot, key) = (Slot::new(), 0xffff_fffe);
        let region = Region {
            base: std::ptr::null_mut(),
            start: 0,
            len: 8,
            pd: PdId(1),
            access: Access::empty(),
            layout: Layout::Flat,
            scope: AccessScope::All,
            checked: false,
        };
        assert!(!slot.pin(0), "a new slot");
        slot.publish(&region, key);
        for bit in 0..32 {
            let other = key ^ (1 << bit);
            assert!(!slot.pin(other) && !slot.answers_to(other) && !slot.unpublish(other));
        }
        let forgotten = 1 << MAX_PINS_BITS;
        slot.word.fetch_add(forgotten - 1, Ordering::Relaxed);
        assert!(slot.pin(key));
        assert!(!slot.pin(key), "too many are forgotten");
        assert!(slot.answers_to(key));
        slot.unpin();
        assert!(slot.pin(key));
        assert!(slot.unpublish(key));
        slot.word.fetch_sub(forgotten, Ordering::Relaxed);
        slot.drain();
        slot.publish(&region, key + 1);
        assert!(!slot.pin(key) && slot.pin(key + 1));
    }

    #[test]
    fn a_slot_takes_two_cache_lines() {
        assert_eq!(size_of::<Slot>(), 128);
    }
}
