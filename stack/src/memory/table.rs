//! The key table of a device.
//!
//! Slots live in segments of doubling size that are made when first needed and never move, so a pin is
//! a key's permutation undone, two loads to find the slot, and one atomic addition: no lock, no reference count, no
//! allocation. Registration and deregistration share one lock for what only they touch.

use super::error::{AccessError, DeregMrError, RegMrError};
use super::guarded::{self, PopulateError};
use super::keys::{INDEX_BITS, Keys};
use super::pin::Pin;
use super::slot::{Region, Slot};
use super::{Access, Buffer, Mr, PdId};
use crate::sync::{Arc, Mutex, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;
use urxe_wire::{Lkey, Rkey};

/// How many freed slots wait before the first of them is used again, so that a stale key stays stale for long.
const QUARANTINE: usize = 64;

/// Slots of the first segment, and of the second; each later one doubles.
const FIRST_SEGMENT: u32 = 64;
const SEGMENTS: usize = (INDEX_BITS - FIRST_SEGMENT.ilog2() + 1) as usize;

/// How the bytes of regions without [`Access::ON_DEMAND`] are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// By instructions. A program that unmaps what it registered crashes on the next access, in whichever thread.
    #[default]
    Direct,
    /// By system calls, as on-demand regions always are: what is gone is an error, at about 1.4 µs a copy more.
    Checked,
}

/// A device's registered memory. Shared by reference; there is no global one.
pub struct Memory {
    keys: Keys,
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    mode: CopyMode,
    max_mr: u32,
    book: Mutex<Book>,
}

/// What only registration and deregistration touch.
#[derive(Default)]
struct Book {
    /// Slots below this index were used at least once.
    made: u32,
    /// Freed slots, the longest free first.
    free: VecDeque<u32>,
    /// Registered regions, those being deregistered included.
    live: u32,
    by_pd: BTreeMap<PdId, u32>,
    /// Buffers kept alive for their regions, by slot.
    kept: BTreeMap<u32, Arc<Buffer>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("mode", &self.mode)
            .field("max_mr", &self.max_mr)
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty table whose keys follow from `seed`: a random one where strangers send packets, a chosen one where runs must
    /// repeat. Holds at most `max_mr` regions, and never more than 2²⁴ less 64.
    #[must_use]
    pub fn new(seed: u64, max_mr: u32) -> Self {
        Self::with_mode(seed, max_mr, CopyMode::Direct)
    }

    /// The same, with a choice of how bytes are moved.
    #[must_use]
    pub fn with_mode(seed: u64, max_mr: u32, mode: CopyMode) -> Self {
        Self {
            keys: Keys::new(seed),
            segments: [const { OnceLock::new() }; SEGMENTS],
            mode,
            max_mr: max_mr.min((1 << INDEX_BITS) - QUARANTINE as u32),
            book: Mutex::new(Book::default()),
        }
    }

    /// Registers `len` bytes at `addr`, which peers and work requests will name by addresses from `iova` on (from 0
    /// on with [`Access::ZERO_BASED`], whatever `iova` is). Faults the pages in, but for [`Access::ON_DEMAND`] ones.
    ///
    /// The rules are the kernel's (`ib_umem_get`, `ib_check_mr_access`, `ib_uverbs_reg_mr`): no zero length, `addr` and `iova`
    /// at the same offset in a page, no right to change for peers without [`Access::LOCAL_WRITE`], unknown flags refused
    /// but for the optional ones, which are dropped.
    ///
    /// # Errors
    /// [`RegMrError`], which see.
    ///
    /// # Safety
    /// From this call until [`Memory::deregister`] returned, or the table is dropped:
    /// * Without `ON_DEMAND`, and unless the table's mode is [`CopyMode::Checked`], `[addr, addr + len)` stays mapped, readable,
    ///   and with `LOCAL_WRITE` writable. With either, it may come and go; but no page is unmapped or made read-only while an
    ///   atomic operation on it may be under way, which only `REMOTE_ATOMIC` regions see.
    /// * Whatever is mapped there may be read by anyone who gets hold of the key, and with `LOCAL_WRITE` be overwritten at any
    ///   time, with any bytes.
    /// * No reference exists that such accesses would make invalid: no `&mut T` to any of it, and with `LOCAL_WRITE` no `&T`
    ///   either, except to atomics or inside an `UnsafeCell` whose users expect it.
    pub unsafe fn register(
        &self,
        pd: PdId,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        let access = supported(access)?;
        let start = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        check_range(addr.addr(), len, start, !access.contains(Access::ZERO_BASED))?;
        if !access.contains(Access::ON_DEMAND) {
            let write = access.contains(Access::LOCAL_WRITE);
            let outcome =
                if write { guarded::make_writable(addr, len) } else { guarded::make_readable(addr, len) };
            outcome.map_err(|error| match error {
                PopulateError::NotMapped => RegMrError::NotMapped { addr: addr.addr(), len },
                PopulateError::NotAccessible => RegMrError::NotAccessible { addr: addr.addr(), len, write },
            })?;
        }
        let (index, slot) = self.take_slot(pd)?;
        let key = loop {
            let key = self.keys.key(index, slot.next_generation());
            // Programs take 0 for "no key".
            if key != 0 {
                break key;
            }
        };
        slot.publish(&Region { base: addr, start, len: len as u64, pd, access }, key as u8);
        Ok(Mr { lkey: Lkey(key), rkey: Rkey(key), iova: start, len, access, pd })
    }

    /// Ends a registration. The key fails from now on, for everyone, and when this returns no copy is under way any
    /// more: the memory is the caller's alone again.
    ///
    /// Waits for pins, so the calling thread must hold none of this region.
    ///
    /// # Errors
    /// [`DeregMrError::UnknownKey`], also for whoever comes second when two threads deregister one region.
    pub fn deregister(&self, lkey: Lkey) -> Result<(), DeregMrError> {
        let index = self.keys.index(lkey.0);
        let unknown = DeregMrError::UnknownKey { lkey };
        let slot = self.slot(index).ok_or(unknown)?;
        if !slot.unpublish(lkey.0 as u8) {
            return Err(unknown);
        }
        slot.drain();
        // Unpublished by this call and drained, so nobody else writes the fields.
        let pd = slot.region().pd;
        self.give_back(index, pd);
        Ok(())
    }

    /// Holds the region of `key` in place, if `pd` may do what `need` says to `len` bytes at `addr`. `need` is empty for a local read.
    /// Of zero bytes, the address still has to lie in the region or at its end.
    ///
    /// # Errors
    /// The first of unknown key, wrong protection domain, missing right, out of bounds.
    pub fn pin(&self, key: u32, pd: PdId, need: Access, addr: u64, len: u64) -> Result<Pin<'_>, AccessError> {
        let pin = self.hold(key).ok_or(AccessError::UnknownKey { key })?;
        pin.check(pd, need, addr, len)?;
        Ok(pin)
    }

    /// What is registered under `lkey`, if anything is.
    #[must_use]
    pub fn query(&self, lkey: Lkey) -> Option<Mr> {
        let pin = self.hold(lkey.0)?;
        let Region { start, len, pd, access, .. } = *pin.region();
        Some(Mr { lkey, rkey: Rkey(lkey.0), iova: start, len: len as usize, access, pd })
    }

    /// How many regions `pd` has, those whose deregistration is waiting included: while there are any, it cannot be deallocated.
    #[must_use]
    pub fn count_in(&self, pd: PdId) -> u32 {
        lock(&self.book).by_pd.get(&pd).copied().unwrap_or(0)
    }

    /// How many regions there are in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        lock(&self.book).live
    }

    /// The most regions there may be.
    #[must_use]
    pub const fn max_mr(&self) -> u32 {
        self.max_mr
    }

    fn hold(&self, key: u32) -> Option<Pin<'_>> {
        let slot = self.slot(self.keys.index(key))?;
        slot.pin(key as u8).then(|| Pin::holding(slot, key, self.mode == CopyMode::Checked))
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let (segment, offset) = place(index);
        self.segments[segment].get()?.get(offset)
    }

    fn take_slot(&self, pd: PdId) -> Result<(u32, &Slot), RegMrError> {
        let mut book = lock(&self.book);
        if book.live >= self.max_mr {
            return Err(RegMrError::TooMany { max: self.max_mr });
        }
        // At most max_mr + QUARANTINE slots are made, which is at most 2^24.
        let recycled = if book.free.len() >= QUARANTINE { book.free.pop_front() } else { None };
        let index = recycled.unwrap_or_else(|| {
            book.made += 1;
            book.made - 1
        });
        book.live += 1;
        *book.by_pd.entry(pd).or_default() += 1;
        let (segment, offset) = place(index);
        let slots = self.segments[segment].get_or_init(|| {
            let len = if segment == 0 { FIRST_SEGMENT } else { FIRST_SEGMENT << (segment - 1) };
            (0..len).map(|_| Slot::new()).collect()
        });
        Ok((index, &slots[offset]))
    }

    /// Keeps `buffer` alive as long as the region `lkey`.
    pub(super) fn keep(&self, lkey: Lkey, buffer: Arc<Buffer>) {
        lock(&self.book).kept.insert(self.keys.index(lkey.0), buffer);
    }

    fn give_back(&self, index: u32, pd: PdId) {
        let mut book = lock(&self.book);
        let kept = book.kept.remove(&index);
        book.free.push_back(index);
        book.live -= 1;
        if let Some(count) = book.by_pd.get_mut(&pd) {
            *count -= 1;
            if *count == 0 {
                book.by_pd.remove(&pd);
            }
        }
        drop(book);
        drop(kept); // may unmap, which needs no lock
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
fn supported(access: Access) -> Result<Access, RegMrError> {
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

fn check_range(addr: usize, len: usize, start: u64, same_offset: bool) -> Result<(), RegMrError> {
    let page = guarded::page_size();
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
