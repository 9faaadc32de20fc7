//! The key table of a device.
//!
//! Slots are in segments, which are allocated on first use and never move. A pin costs the inverse
//! permutation of a key, two loads to find the slot, and one atomic addition. It takes no lock,
//! counts no reference and allocates nothing. Registration and deregistration share one lock for
//! state that only they use.
//!
//! A key of a region that ended stays invalid for 2^24 registrations (`slot_allocator`). A key to
//! the whole address space never has the value of another region's key (`keys`).

use super::checked_copy::{self, PopulateError};
use super::error::{AllocMrError, AllocMwError, DeregMrError, RegMrError};
use super::keys::{Class, Keys, Position, SEGMENT_INDEX_BITS, SEGMENTS, is_same_object};
use super::layout::{AccessScope, Layout, Region};
use super::persistence;
use super::slot::{RegionContent, Slot, SlotContent};
use super::slot_allocator::{SlotAllocator, max_objects};
use super::{Access, Buffer, DmId, MemoryLimits, Mr, PdId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_wire::Lkey;

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
pub(super) enum Kind {
    Region,
    /// A region of the whole address space.
    Whole,
    /// A fast-registration region.
    Fast,
    Window,
}

impl Kind {
    fn class(self) -> Class {
        match self {
            Self::Region => Class::Region,
            Self::Whole => Class::Whole,
            Self::Fast | Self::Window => Class::Changing,
        }
    }
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
struct MemoryState {
    slots: [SlotAllocator; 3],
    /// Number of registered regions, including regions whose deregistration waits.
    live: u32,
    /// Number of regions and windows of each protection domain.
    by_pd: BTreeMap<PdId, u32>,
    /// The indices of the keys of all windows.
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
        const MAX_MR: u32 = max_objects(Class::Region);
        // Fast-registration regions are regions, and have their slots from the same class as
        // windows.
        const MAX_MW: u32 = max_objects(Class::Changing) - MAX_MR;
        let (max_mr, max_mw) = (limits.max_mr.min(MAX_MR), limits.max_mw.min(MAX_MW));
        let limits = MemoryLimits { max_mr, max_mw, ..limits };
        Self {
            keys: Keys::new(seed),
            segments: [const { OnceLock::new() }; SEGMENTS],
            mode,
            limits,
            state: Mutex::new(MemoryState::new()),
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
        let (kind, layout) =
            if whole { (Kind::Whole, Layout::Whole) } else { (Kind::Region, Layout::Flat) };
        let (key, slot) = self.allocate_slot(pd, kind)?;
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
        slot.publish(&region, key);
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
        let (pd, key, dm) = match &*content {
            SlotContent::Region(region) if slot.answers_to(lkey.0) => {
                (slot.region().pd, lkey.0, region.dm)
            }
            SlotContent::Fast(fast) if is_same_object(fast.key, lkey.0) => {
                (fast.pd, fast.key, None)
            }
            _ => return Err(unknown),
        };
        let windows = slot.windows();
        if windows != 0 {
            return Err(DeregMrError::Busy { lkey, windows });
        }
        let was_there = slot.unpublish(key);
        let former = slot.set(&mut content, SlotContent::Vacant);
        // A second thread gets its error without waiting for the pins. The slot is not reused
        // before the pins are dropped.
        drop(content);
        if was_there {
            slot.drain();
        }
        self.free_slot(index, pd, Kind::Region);
        drop(former); // may unmap, which needs no lock
        if let Some(dm) = dm {
            self.release_dm(dm);
        }
        Ok(())
    }

    /// Returns whether the table owns the memory of this region, as for
    /// [`register_buffer`](Self::register_buffer) and device memory. Safe code cannot change the
    /// region to memory with another owner. Returns false for fast-registration regions, whose next
    /// registration may have other memory, and for a key without a region.
    #[must_use]
    pub fn owns_memory_of(&self, lkey: Lkey) -> bool {
        self.slot(self.index(lkey.0)).is_some_and(|slot| {
            let content = slot.content();
            let is_kept = matches!(&*content, SlotContent::Region(region) if region.kept.is_some());
            is_kept && slot.answers_to(lkey.0)
        })
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

    /// Returns the smallest index of a window's key that is at least `from`.
    pub(super) fn next_window(&self, from: u32) -> Option<u32> {
        lock(&self.state).windows.range(from..).next().copied()
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

    /// Counts a region that moved from one protection domain to another.
    pub(super) fn move_to_pd(&self, from: PdId, to: PdId) {
        let mut state = lock(&self.state);
        *state.by_pd.entry(to).or_default() += 1;
        state.release_pd(from);
    }

    /// Returns the slot of an index, which is below 2^24.
    pub(super) fn slot(&self, index: u32) -> Option<&Slot> {
        let segment = self.segments[index as usize >> SEGMENT_INDEX_BITS & (SEGMENTS - 1)].get()?;
        // The number of slots is a power of two.
        segment.get(index as usize & (segment.len() - 1))
    }

    /// Allocates and counts a slot. Returns the slot and a key that no object had for a long time.
    pub(super) fn allocate_slot(
        &self,
        pd: PdId,
        kind: Kind,
    ) -> Result<(u32, &Slot), AllocateSlotError> {
        let mut state = lock(&self.state);
        let (live, most) = match kind {
            Kind::Region | Kind::Whole | Kind::Fast => (state.live, self.limits.max_mr),
            Kind::Window => (state.windows.len() as u32, self.limits.max_mw),
        };
        let too_many = AllocateSlotError::TooMany { max: most };
        if live >= most {
            return Err(too_many);
        }
        // The limits leave enough slots that this succeeds.
        let position = state.slots[kind.class() as usize].allocate()?.ok_or(too_many)?;
        let slots = match self.ensure_segment(position) {
            Ok(slots) => slots,
            Err(error) => {
                state.slots[kind.class() as usize].free(position);
                return Err(error.into());
            }
        };
        let slot = &slots[position.offset()];
        let key = loop {
            let key = self.keys.key(position, slot.next_use());
            // Programs use 0 for "no key".
            if key != 0 {
                break key;
            }
        };
        match kind {
            Kind::Region | Kind::Whole | Kind::Fast => state.live += 1,
            Kind::Window => drop(state.windows.insert(self.keys.index(key))),
        }
        *state.by_pd.entry(pd).or_default() += 1;
        Ok((key, slot))
    }

    /// Returns the slots of the segment of `position`. The caller must hold the lock of the state.
    fn ensure_segment(&self, position: Position) -> Result<&[Slot], OutOfMemory> {
        let segment = &self.segments[position.segment()];
        if segment.get().is_none() {
            let slots = (0..1_usize << position.segment_bits()).map(|_| Slot::new());
            let slots = allocate::collected(slots)?.into_boxed_slice();
            return Ok(segment.get_or_init(|| slots));
        }
        Ok(segment.get().map_or(&[], |slots| slots))
    }

    /// Frees the slot of the key with this index.
    pub(super) fn free_slot(&self, index: u32, pd: PdId, kind: Kind) {
        let position = Position::of_index(index);
        let mut state = lock(&self.state);
        state.slots[position.class() as usize].free(position);
        match kind {
            Kind::Region | Kind::Whole | Kind::Fast => state.live -= 1,
            Kind::Window => drop(state.windows.remove(&index)),
        }
        state.release_pd(pd);
    }
}

/// The reason why an object got no slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum AllocateSlotError {
    /// There are as many objects of the kind as allowed.
    TooMany { max: u32 },
    /// The system has no memory for the slot.
    NoMemory(OutOfMemory),
}

impl From<OutOfMemory> for AllocateSlotError {
    fn from(error: OutOfMemory) -> Self {
        Self::NoMemory(error)
    }
}

impl From<AllocateSlotError> for RegMrError {
    fn from(error: AllocateSlotError) -> Self {
        match error {
            AllocateSlotError::TooMany { max } => Self::TooMany { max },
            AllocateSlotError::NoMemory(error) => Self::NoMemory(error),
        }
    }
}

impl From<AllocateSlotError> for AllocMrError {
    fn from(error: AllocateSlotError) -> Self {
        match error {
            AllocateSlotError::TooMany { max } => Self::TooMany { max },
            AllocateSlotError::NoMemory(error) => Self::NoMemory(error),
        }
    }
}

impl From<AllocateSlotError> for AllocMwError {
    fn from(error: AllocateSlotError) -> Self {
        match error {
            AllocateSlotError::TooMany { max } => Self::TooMany { max },
            AllocateSlotError::NoMemory(error) => Self::NoMemory(error),
        }
    }
}

impl MemoryState {
    fn new() -> Self {
        let slots = [Class::Region, Class::Whole, Class::Changing].map(SlotAllocator::new);
        Self { slots, live: 0, by_pd: BTreeMap::new(), windows: BTreeSet::new() }
    }

    fn release_pd(&mut self, pd: PdId) {
        if let Some(count) = self.by_pd.get_mut(&pd) {
            *count -= 1;
            if *count == 0 {
                self.by_pd.remove(&pd);
            }
        }
    }
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
