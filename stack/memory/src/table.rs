//! The key table of a device.
//!
//! Slots live in segments of doubling size that are made when first needed and never move, so a pin
//! is a key's permutation undone, two loads to find the slot, and one atomic addition: no lock, no
//! reference count, no allocation. Registration and deregistration share one lock for what only
//! they touch.

use super::checked_copy::{self, PopulateError};
use super::error::{DeregMrError, RegMrError};
use super::keys::{INDEX_BITS, Keys};
use super::layout::{AccessScope, Layout, Region};
use super::persistence;
use super::slot::{RegionContent, Slot, SlotContent};
use super::{Access, Buffer, DmId, MemoryLimits, Mr, PdId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::OnceLock;
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_wire::Lkey;

/// How many freed slots wait before the first of them is used again, so that a stale key stays
/// stale for long.
const QUARANTINE: usize = 64;

/// Slots of the first segment, and of the second; each later one doubles.
const FIRST_SEGMENT: u32 = 64;
const SEGMENTS: usize = (INDEX_BITS - FIRST_SEGMENT.ilog2() + 1) as usize;

/// How the bytes of regions without [`Access::ON_DEMAND`] are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// By instructions. A program that unmaps what it registered crashes on the next access, in
    /// whichever thread.
    #[default]
    Direct,
    /// By system calls, as on-demand regions always are: what is gone is an error, at about 1.4 µs
    /// a copy more. Atomic operations are still instructions, on a page that was just found there.
    Checked,
}

/// What a slot is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Region,
    Window,
}

/// A device's registered memory. Shared by reference; there is no global one.
pub struct Memory {
    keys: Keys,
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    mode: CopyMode,
    limits: MemoryLimits,
    state: Mutex<MemoryState>,
    dm: Mutex<DeviceMemoryState>,
}

/// What only creating and destroying touch. Locked under a slot's lock or alone, never the other
/// way round.
#[derive(Default)]
struct MemoryState {
    /// Slots below this index were used at least once.
    allocated: u32,
    /// Freed slots, the longest free first.
    free: VecDeque<u32>,
    /// Registered regions, those being deregistered included.
    live: u32,
    /// Regions and windows.
    by_pd: BTreeMap<PdId, u32>,
    /// The slots of all windows.
    windows: BTreeSet<u32>,
}

/// What device memory is allocated.
#[derive(Default)]
pub(super) struct DeviceMemoryState {
    pub(super) next: u32,
    pub(super) used: u64,
    pub(super) live: BTreeMap<DmId, Dm>,
}

pub(super) struct Dm {
    pub(super) buffer: Arc<Buffer>,
    pub(super) len: usize,
    /// Regions of it.
    pub(super) regions: u32,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("mode", &self.mode)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty table whose keys follow from `seed`: a random one where strangers send packets, a
    /// chosen one where runs must repeat. Holds at most `max_mr` regions, and of everything else as
    /// much as a device does.
    #[must_use]
    pub fn new(seed: u64, max_mr: u32) -> Self {
        Self::with_mode(seed, max_mr, CopyMode::Direct)
    }

    /// The same, with a choice of how bytes are moved.
    #[must_use]
    pub fn with_mode(seed: u64, max_mr: u32, mode: CopyMode) -> Self {
        let limits = urxe_types::limits::Limits { max_mr, ..urxe_types::limits::Limits::default() };
        Self::with_limits(seed, limits.memory(), mode)
    }

    /// The same, with a choice of what it may pin_key.
    #[must_use]
    pub fn with_limits(seed: u64, limits: MemoryLimits, mode: CopyMode) -> Self {
        const MOST: u32 = (1 << INDEX_BITS) - QUARANTINE as u32;
        let max_mr = limits.max_mr.min(MOST);
        let limits = MemoryLimits { max_mr, max_mw: limits.max_mw.min(MOST - max_mr), ..limits };
        Self {
            keys: Keys::new(seed),
            segments: [const { OnceLock::new() }; SEGMENTS],
            mode,
            limits,
            state: Mutex::new(MemoryState::default()),
            dm: Mutex::new(DeviceMemoryState::default()),
        }
    }

    /// Registers `len` bytes at `addr`, which peers and work requests will name by addresses from
    /// `iova` on (from 0 on with [`Access::ZERO_BASED`], whatever `iova` is). Faults the pages in,
    /// but for [`Access::ON_DEMAND`] ones.
    ///
    /// Address 0 and length `usize::MAX` mean the whole address space, named by the process's own
    /// addresses (an implicit on-demand region; without any remote right it is what a local DMA key
    /// is). It takes `ON_DEMAND`.
    ///
    /// The rules are the kernel's (`ib_umem_get`, `ib_check_mr_access`, `ib_uverbs_reg_mr`): no
    /// zero length, `addr` and `iova` at the same offset in a page, no right to change for peers
    /// without [`Access::LOCAL_WRITE`], unknown flags refused but for the optional ones, which are
    /// dropped.
    ///
    /// # Errors
    /// [`RegMrError`], which see.
    ///
    /// # Safety
    /// From this call until [`Memory::deregister`] returned, or the table is dropped:
    /// * Without `ON_DEMAND`, and unless the table's mode is [`CopyMode::Checked`], `[addr, addr +
    ///   len)` stays mapped, readable, and with `LOCAL_WRITE` writable. With either, it may come
    ///   and go; but no page is unmapped or made read-only while an atomic operation or ATOMIC
    ///   WRITE on it may be under way, which only `REMOTE_ATOMIC` and `REMOTE_WRITE` regions see.
    /// * Whatever is mapped there may be read by anyone who gets pin_key of the key, and with
    ///   `LOCAL_WRITE` be overwritten at any time, with any bytes.
    /// * No reference exists that such accesses would make invalid: no `&mut T` to any of it, and
    ///   with `LOCAL_WRITE` no `&T` either, except to atomics or inside an `UnsafeCell` whose users
    ///   expect it.
    pub unsafe fn register(
        &self,
        pd: PdId,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        self.publish_region(pd, addr, len, iova, access, RegionContent::default(), false)
    }

    /// Registers the bytes `range` of `buffer`, as [`register`](Self::register) does. The buffer
    /// stays mapped until the region is deregistered or the table dropped.
    ///
    /// # Errors
    /// [`RegMrError::OutsideBuffer`], and those of [`register`](Self::register).
    pub fn register_buffer(
        &self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        let Range { start, end } = range;
        if start > end || end > buffer.len() {
            return Err(RegMrError::OutsideBuffer { start, end, len: buffer.len() });
        }
        // The range lies in the buffer, whose mapping stays as long as the object's count of it. A
        // buffer never hands out references to its bytes; its own methods copy as peers' accesses
        // do.
        let addr = buffer.addr().wrapping_add(start);
        let kept = RegionContent { kept: Some(Arc::clone(buffer)), dm: None };
        self.publish_region(pd, addr, end - start, iova, access, kept, buffer.is_checked())
    }

    /// Registers what the caller answers for, or `object` keeps. `guard`: the bytes may be missing,
    /// whatever `access` says.
    #[allow(clippy::too_many_arguments, reason = "the terms of a registration, each once")]
    pub(super) fn publish_region(
        &self,
        pd: PdId,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
        content: RegionContent,
        guard: bool,
    ) -> Result<Mr, RegMrError> {
        let access = check_access(access)?;
        self.check_len(len)?;
        let zero_based = access.contains(Access::ZERO_BASED);
        let whole = addr.is_null() && len == usize::MAX;
        let start = if zero_based || whole { 0 } else { iova };
        if whole {
            if zero_based || !access.contains(Access::ON_DEMAND) {
                return Err(RegMrError::NotOnDemand);
            }
        } else if len != 0 || content.dm.is_none() {
            // Nothing of device memory is a region like any other: programs register what is left.
            check_range(addr.addr(), len, start, !zero_based)?;
        }
        persistence::check(addr.addr(), len, access)?;
        if !access.contains(Access::ON_DEMAND) {
            populate(addr, len, access.contains(Access::LOCAL_WRITE))?;
        }
        let (index, slot) =
            self.allocate_slot(pd, Class::Region).map_err(|max| RegMrError::TooMany { max })?;
        let key = self.fresh_key(index, slot);
        let layout = if whole { Layout::Whole } else { Layout::Flat };
        let checked = guard || self.is_checked(access);
        let region = Region {
            base: addr,
            start,
            len: len as u64,
            pd,
            access,
            layout,
            scope: AccessScope::All,
            checked,
        };
        let mut place = slot.content();
        slot.set(&mut place, SlotContent::Region(content));
        slot.publish(&region, key as u8);
        Ok(describe(Lkey(key), &region))
    }

    /// Refuses what is longer than a region may be.
    pub(super) fn check_len(&self, len: usize) -> Result<(), RegMrError> {
        let allowed = self.limits.max_mr_size;
        if len as u64 > allowed { Err(RegMrError::TooLong { given: len, allowed }) } else { Ok(()) }
    }

    /// Ends a registration, of an ordinary region or one for fast registration (of whose key the
    /// low 8 bits do not matter: they follow the work requests, of which the caller may not know
    /// yet). The key fails from now on, for everyone, and when this returns no copy is under way
    /// any more: the memory is the caller's alone again.
    ///
    /// Waits for pins, so the calling thread must pin_key none of this region.
    ///
    /// # Errors
    /// [`DeregMrError::UnknownKey`], also for whoever comes second when two threads deregister one
    /// region; [`DeregMrError::Busy`], after which the region is as it was.
    pub fn deregister(&self, lkey: Lkey) -> Result<(), DeregMrError> {
        let index = self.keys.index(lkey.0);
        let unknown = DeregMrError::UnknownKey { lkey };
        let slot = self.slot(index).ok_or(unknown)?;
        let mut content = slot.content();
        let (pd, low_byte, dm) = match &*content {
            SlotContent::Region(region) if slot.answers_to(lkey.0 as u8) => {
                (slot.region().pd, lkey.0 as u8, region.dm)
            }
            SlotContent::Fast(fast) => (fast.pd, fast.low_byte, None),
            _ => return Err(unknown),
        };
        let windows = slot.windows();
        if windows != 0 {
            return Err(DeregMrError::Busy { lkey, windows });
        }
        let was_there = slot.unpublish(low_byte);
        let former = slot.set(&mut content, SlotContent::Vacant);
        // Whoever comes second need not wait for the pins to learn that it is too late. Nobody else
        // is given the slot before.
        drop(content);
        if was_there {
            slot.drain();
        }
        self.free_slot(index, pd, Class::Region);
        drop(former); // may unmap, which needs no lock
        if let Some(dm) = dm {
            self.release_dm(dm);
        }
        Ok(())
    }

    /// How many regions and windows `pd` has, those whose deregistration is waiting included: while
    /// there are any, it cannot be deallocated.
    #[must_use]
    pub fn count_in(&self, pd: PdId) -> u32 {
        lock(&self.state).by_pd.get(&pd).copied().unwrap_or(0)
    }

    /// How many regions there are in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        lock(&self.state).live
    }

    /// What it may pin_key.
    #[must_use]
    pub const fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// How many windows there are in all.
    #[must_use]
    pub fn count_windows(&self) -> u32 {
        lock(&self.state).windows.len() as u32
    }

    pub(super) fn window_slots(&self) -> Vec<u32> {
        lock(&self.state).windows.iter().copied().collect()
    }

    /// Whether bytes of regions with these flags move by system calls.
    pub(super) fn is_checked(&self, access: Access) -> bool {
        self.mode == CopyMode::Checked || access.contains(Access::ON_DEMAND)
    }

    pub(super) fn dm(&self) -> &Mutex<DeviceMemoryState> {
        &self.dm
    }

    pub(super) fn index(&self, key: u32) -> u32 {
        self.keys.index(key)
    }

    /// A key for a slot that was just taken.
    pub(super) fn fresh_key(&self, index: u32, slot: &Slot) -> u32 {
        loop {
            let key = self.keys.key(index, slot.next_generation());
            // Programs take 0 for "no key".
            if key != 0 {
                return key;
            }
        }
    }

    /// A region moved from one protection domain to another.
    pub(super) fn move_to_pd(&self, from: PdId, to: PdId) {
        let mut state = lock(&self.state);
        *state.by_pd.entry(to).or_default() += 1;
        state.release_pd(from);
    }

    pub(super) fn slot(&self, index: u32) -> Option<&Slot> {
        let (segment, offset) = place(index);
        self.segments[segment].get()?.get(offset)
    }

    /// A vacant slot, counted. `Err` with the limit.
    pub(super) fn allocate_slot(&self, pd: PdId, class: Class) -> Result<(u32, &Slot), u32> {
        let mut state = lock(&self.state);
        let (live, most) = match class {
            Class::Region => (state.live, self.limits.max_mr),
            Class::Window => (state.windows.len() as u32, self.limits.max_mw),
        };
        if live >= most {
            return Err(most);
        }
        // At most max_mr + max_mw + QUARANTINE slots are made, which is at most 2^24.
        let recycled = if state.free.len() >= QUARANTINE { state.free.pop_front() } else { None };
        let index = recycled.unwrap_or_else(|| {
            state.allocated += 1;
            state.allocated - 1
        });
        match class {
            Class::Region => state.live += 1,
            Class::Window => drop(state.windows.insert(index)),
        }
        *state.by_pd.entry(pd).or_default() += 1;
        let (segment, offset) = place(index);
        let slots = self.segments[segment].get_or_init(|| {
            let len = if segment == 0 { FIRST_SEGMENT } else { FIRST_SEGMENT << (segment - 1) };
            (0..len).map(|_| Slot::new()).collect()
        });
        Ok((index, &slots[offset]))
    }

    pub(super) fn free_slot(&self, index: u32, pd: PdId, class: Class) {
        let mut state = lock(&self.state);
        state.free.push_back(index);
        match class {
            Class::Region => state.live -= 1,
            Class::Window => drop(state.windows.remove(&index)),
        }
        state.release_pd(pd);
    }
}

impl MemoryState {
    fn release_pd(&mut self, pd: PdId) {
        if let Some(count) = self.by_pd.get_mut(&pd) {
            *count -= 1;
            if *count == 0 {
                self.by_pd.remove(&pd);
            }
        }
    }
}

/// The segment of a slot index below 2²⁴, and the offset in it.
fn place(index: u32) -> (usize, usize) {
    if index < FIRST_SEGMENT {
        return (0, index as usize);
    }
    let top = index.ilog2();
    ((top - FIRST_SEGMENT.ilog2() + 1) as usize, (index - (1 << top)) as usize)
}

/// The flags with unknown optional ones dropped.
pub(super) fn check_access(access: Access) -> Result<Access, RegMrError> {
    let given = access.bits();
    let unknown = given & !Access::all().bits() & !Access::OPTIONAL;
    if unknown != 0 {
        return Err(RegMrError::UnknownAccess { given, unknown });
    }
    let access = Access::from_bits_truncate(given);
    if access.intersects(Access::REMOTE_CHANGE) && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegMrError::NeedsLocalWrite { given: access });
    }
    Ok(access)
}

pub(super) fn check_range(
    addr: usize,
    len: usize,
    start: u64,
    same_offset: bool,
) -> Result<(), RegMrError> {
    let page = checked_copy::page_size();
    if len == 0 {
        return Err(RegMrError::ZeroLength);
    }
    // The last page has to end inside the address space as well.
    if addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page)).is_none() {
        return Err(RegMrError::Wraps { addr, len });
    }
    if start.checked_add(len as u64 - 1).is_none() {
        return Err(RegMrError::IovaWraps { iova: start, len });
    }
    if same_offset && start % page as u64 != (addr % page) as u64 {
        return Err(RegMrError::IovaOffset { addr, iova: start, page });
    }
    Ok(())
}

/// Faults pages in, for what the access needs.
pub(super) fn populate(addr: *mut u8, len: usize, write: bool) -> Result<(), RegMrError> {
    checked_copy::make_present(addr, len, write).map_err(|error| match error {
        PopulateError::NotMapped => RegMrError::NotMapped { addr: addr.addr(), len },
        PopulateError::NotAccessible => RegMrError::NotAccessible { addr: addr.addr(), len, write },
    })
}

/// A region's description.
pub(super) fn describe(lkey: Lkey, region: &Region) -> Mr {
    let Region { start, len, pd, access, .. } = *region;
    Mr { lkey, rkey: urxe_wire::Rkey(lkey.0), iova: start, len: len as usize, access, pd }
}
