//! The key table of a device.
//!
//! Slots are in segments of doubling size, which are allocated on first use and never move. A pin
//! costs the inverse permutation of a key, two loads to find the slot, and one atomic addition. It
//! takes no lock, counts no reference and allocates nothing. Registration and deregistration share
//! one lock for state that only they use.

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

/// Number of freed slots that wait before one is used again, so that a stale key stays stale for a
/// long time.
const QUARANTINE: usize = 64;

/// Number of slots of the first and of the second segment; each later segment doubles.
const FIRST_SEGMENT: u32 = 64;
const SEGMENTS: usize = (INDEX_BITS - FIRST_SEGMENT.ilog2() + 1) as usize;

/// The way to move the bytes of regions without [`Access::ON_DEMAND`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// By instructions. If a program unmaps registered memory, the next access of any thread
    /// crashes the program.
    #[default]
    Direct,
    /// By system calls, as for on-demand regions. Missing memory causes an error, and each copy
    /// takes about 1.4 µs more. Atomic operations are still instructions, on a page that was just
    /// found present.
    Checked,
}

/// The kind of object for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Region,
    Window,
}

/// The registered memory of a device. There is no global instance.
pub struct Memory {
    keys: Keys,
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    mode: CopyMode,
    limits: MemoryLimits,
    state: Mutex<MemoryState>,
    dm: Mutex<DeviceMemoryState>,
}

/// State that only creation and destruction use. Its lock may be taken under the lock of a slot,
/// never the other way round.
#[derive(Default)]
struct MemoryState {
    /// Slots below this index were used at least once.
    allocated: u32,
    /// Freed slots, beginning with the oldest.
    free: VecDeque<u32>,
    /// Number of registered regions, including regions whose deregistration waits.
    live: u32,
    /// Number of regions and windows of each protection domain.
    by_pd: BTreeMap<PdId, u32>,
    /// The slots of all windows.
    windows: BTreeSet<u32>,
}

/// The allocated device memory.
#[derive(Default)]
pub(super) struct DeviceMemoryState {
    pub(super) next: u32,
    pub(super) used: u64,
    pub(super) live: BTreeMap<DmId, Dm>,
}

pub(super) struct Dm {
    pub(super) buffer: Arc<Buffer>,
    pub(super) len: usize,
    /// Number of registered regions of the device memory.
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
    /// Makes an empty table for at most `max_mr` regions, with the limits of a device for all other
    /// objects. `seed` determines the keys. Use a random seed if strangers can send packets, and a
    /// fixed one for runs that must repeat.
    #[must_use]
    pub fn new(seed: u64, max_mr: u32) -> Self {
        Self::with_mode(seed, max_mr, CopyMode::Direct)
    }

    /// Makes an empty table with the given way to move bytes.
    #[must_use]
    pub fn with_mode(seed: u64, max_mr: u32, mode: CopyMode) -> Self {
        let limits = urxe_types::limits::Limits { max_mr, ..urxe_types::limits::Limits::default() };
        Self::with_limits(seed, limits.memory(), mode)
    }

    /// Makes an empty table with the given limits.
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

    /// Registers `len` bytes at `addr`. Peers and work requests name them by addresses from `iova`
    /// on, or from 0 on with [`Access::ZERO_BASED`], which ignores `iova`. Faults the pages in,
    /// except for [`Access::ON_DEMAND`].
    ///
    /// Address 0 and length `usize::MAX` select the whole address space, named by the addresses of
    /// the process (an implicit on-demand region). `ON_DEMAND` is required. Without remote flags,
    /// the key of such a region corresponds to a local DMA key.
    ///
    /// The rules are those of the kernel (`ib_umem_get`, `ib_check_mr_access`, `ib_uverbs_reg_mr`):
    /// * the length is not zero;
    /// * `addr` and `iova` have the same offset in a page;
    /// * peers may write only with [`Access::LOCAL_WRITE`];
    /// * unknown flags are refused, except for optional ones, which are dropped.
    ///
    /// # Errors
    /// [`RegMrError`].
    ///
    /// # Safety
    /// Until [`Memory::deregister`] returns, or the table is dropped:
    /// * Without `ON_DEMAND` and without [`CopyMode::Checked`], `[addr, addr + len)` stays mapped
    ///   and readable, and with `LOCAL_WRITE` writable. With one of the two, pages may be mapped
    ///   and unmapped. However, no page is unmapped or made read-only during an atomic operation or
    ///   ATOMIC WRITE on it, which only `REMOTE_ATOMIC` and `REMOTE_WRITE` regions allow.
    /// * Any holder of the key may read the memory, and with `LOCAL_WRITE` overwrite it at any time
    ///   with any bytes.
    /// * No reference exists that such accesses would make invalid: no `&mut T` to any of the
    ///   memory, and with `LOCAL_WRITE` no `&T` either. Allowed are references to atomics or inside
    ///   an `UnsafeCell` whose users expect the accesses.
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
    /// stays mapped until the region is deregistered or the table is dropped.
    ///
    /// # Errors
    /// [`RegMrError::OutsideBuffer`], and the errors of [`register`](Self::register).
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
        // The range is inside the buffer, and the slot content keeps the buffer mapped. A buffer
        // never returns references to its bytes, and its own methods copy as peers' accesses do.
        let addr = buffer.addr().wrapping_add(start);
        let kept = RegionContent { kept: Some(Arc::clone(buffer)), dm: None };
        self.publish_region(pd, addr, end - start, iova, access, kept, buffer.is_checked())
    }

    /// Registers memory that the caller guarantees, or that `object` keeps. `guard`: the bytes may
    /// be missing, whatever `access` says.
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
            // A region of zero bytes is allowed for device memory, because programs register the
            // remaining bytes.
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

    /// Refuses lengths above the limit of a region.
    pub(super) fn check_len(&self, len: usize) -> Result<(), RegMrError> {
        let allowed = self.limits.max_mr_size;
        if len as u64 > allowed { Err(RegMrError::TooLong { given: len, allowed }) } else { Ok(()) }
    }

    /// Ends a registration of an ordinary region or a fast-registration region. For the latter the
    /// low 8 bits of the key are ignored, because work requests change them without the caller's
    /// knowledge. The key is invalid from now on. On return no copy is in progress, and only the
    /// caller uses the memory.
    ///
    /// Waits for pins, so the calling thread must not hold a pin of this region.
    ///
    /// # Errors
    /// [`DeregMrError::UnknownKey`], also for the second of two threads that deregister one region;
    /// [`DeregMrError::Busy`], after which the region is unchanged.
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
        // A second thread gets its error without waiting for the pins. The slot is not reused
        // before the pins are dropped.
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

    /// Returns the number of regions and windows of `pd`, including regions whose deregistration
    /// waits. The domain cannot be deallocated while the number is not 0.
    #[must_use]
    pub fn count_in(&self, pd: PdId) -> u32 {
        lock(&self.state).by_pd.get(&pd).copied().unwrap_or(0)
    }

    /// Returns the number of all regions.
    #[must_use]
    pub fn count(&self) -> u32 {
        lock(&self.state).live
    }

    /// Returns the limits of the table.
    #[must_use]
    pub const fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Returns the number of all windows.
    #[must_use]
    pub fn count_windows(&self) -> u32 {
        lock(&self.state).windows.len() as u32
    }

    pub(super) fn window_slots(&self) -> Vec<u32> {
        lock(&self.state).windows.iter().copied().collect()
    }

    /// Returns whether bytes of regions with these flags move by system calls.
    pub(super) fn is_checked(&self, access: Access) -> bool {
        self.mode == CopyMode::Checked || access.contains(Access::ON_DEMAND)
    }

    pub(super) fn dm(&self) -> &Mutex<DeviceMemoryState> {
        &self.dm
    }

    pub(super) fn index(&self, key: u32) -> u32 {
        self.keys.index(key)
    }

    /// Returns a key for a slot that was just allocated.
    pub(super) fn fresh_key(&self, index: u32, slot: &Slot) -> u32 {
        loop {
            let key = self.keys.key(index, slot.next_generation());
            // Programs use 0 for "no key".
            if key != 0 {
                return key;
            }
        }
    }

    /// Counts a region that moved from one protection domain to another.
    pub(super) fn move_to_pd(&self, from: PdId, to: PdId) {
        let mut state = lock(&self.state);
        *state.by_pd.entry(to).or_default() += 1;
        state.release_pd(from);
    }

    pub(super) fn slot(&self, index: u32) -> Option<&Slot> {
        let (segment, offset) = place(index);
        self.segments[segment].get()?.get(offset)
    }

    /// Allocates and counts a slot. Fails with the limit.
    pub(super) fn allocate_slot(&self, pd: PdId, class: Class) -> Result<(u32, &Slot), u32> {
        let mut state = lock(&self.state);
        let (live, most) = match class {
            Class::Region => (state.live, self.limits.max_mr),
            Class::Window => (state.windows.len() as u32, self.limits.max_mw),
        };
        if live >= most {
            return Err(most);
        }
        // The table has at most max_mr + max_mw + QUARANTINE slots, which is at most 2^24.
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

/// Returns the segment of a slot index below 2²⁴, and the offset in the segment.
fn place(index: u32) -> (usize, usize) {
    if index < FIRST_SEGMENT {
        return (0, index as usize);
    }
    let top = index.ilog2();
    ((top - FIRST_SEGMENT.ilog2() + 1) as usize, (index - (1 << top)) as usize)
}

/// Drops unknown optional flags and checks the rest.
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
    // The last page must also end inside the address space.
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

/// Faults pages in for the required access.
pub(super) fn populate(addr: *mut u8, len: usize, write: bool) -> Result<(), RegMrError> {
    checked_copy::make_present(addr, len, write).map_err(|error| match error {
        PopulateError::NotMapped => RegMrError::NotMapped { addr: addr.addr(), len },
        PopulateError::NotAccessible => RegMrError::NotAccessible { addr: addr.addr(), len, write },
    })
}

/// Returns the description of a region.
pub(super) fn describe(lkey: Lkey, region: &Region) -> Mr {
    let Region { start, len, pd, access, .. } = *region;
    Mr { lkey, rkey: urxe_wire::Rkey(lkey.0), iova: start, len: len as usize, access, pd }
}
