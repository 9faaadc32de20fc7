//! Pins: the right to access a region for a short time, and the accesses.
//!
//! A pin prevents the deregistration of its region. Deregistration waits for pins, so a pin must
//! not outlive one batch of packets. Addresses are the peers' (the I/O virtual addresses of the
//! region). Every access checks them again, so no address that a caller computes reaches memory
//! outside the region.

use super::copy::Operation;
use super::error::{AccessError, Fault};
use super::layout::{AccessScope, Region};
use super::slot::Slot;
use super::table::describe;
use super::write_only::WriteOnly;
use super::{Access, Accessor, Memory, Mr, checked_copy, copy, persistence};
use rustix::mm::MsyncFlags;
use std::sync::atomic::{Ordering, fence};
use urxe_wire::{Lkey, Payload};

/// A pinned region. Dropping the pin releases the region.
///
/// A forgotten pin (`mem::forget`) makes deregistration wait without end, and has no other effect.
#[derive(Debug)]
pub struct Pin<'m> {
    count: PinCount<'m>,
    key: u32,
}

/// The counted part of a pin.
struct PinCount<'m>(&'m Slot);

impl Drop for PinCount<'_> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl std::fmt::Debug for PinCount<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinCount")
    }
}

impl Memory {
    /// Pins the region of `key`, if `by` may make an access with the flags `need` to `len` bytes at
    /// `addr`. `need` is empty for a local read. For zero bytes, the address must still be in the
    /// region or at its end.
    ///
    /// # Errors
    /// The first of unknown or stale key, wrong protection domain, wrong queue pair, missing access
    /// flag, out of bounds.
    pub fn pin(
        &self,
        key: u32,
        by: impl Into<Accessor>,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<Pin<'_>, AccessError> {
        let Some(pin) = self.pin_key(key) else {
            let slot = self.slot(self.index(key));
            let changing = slot.is_some_and(|slot| slot.is_changing(key));
            return Err(if changing {
                AccessError::StaleKey { key }
            } else {
                AccessError::UnknownKey { key }
            });
        };
        pin.check(by.into(), need, addr, len)?;
        Ok(pin)
    }

    /// Returns the region that is registered under `lkey`, if there is one.
    #[must_use]
    pub fn query(&self, lkey: Lkey) -> Option<Mr> {
        let pin = self.pin_key(lkey.0)?;
        (pin.region().scope == AccessScope::All).then(|| describe(lkey, &pin.region()))
    }

    pub(super) fn pin_key(&self, key: u32) -> Option<Pin<'_>> {
        let slot = self.slot(self.index(key))?;
        slot.pin(key).then(|| Pin::counted(slot, key))
    }
}

impl<'m> Pin<'m> {
    /// Takes over one count of `slot`, which has the key `key`.
    pub(super) fn counted(slot: &'m Slot, key: u32) -> Self {
        Self { count: PinCount(slot), key }
    }

    /// Returns the memory of the key, which does not change while the key is pinned. The pin does
    /// not store it, because pins are numerous and moved often.
    #[inline(always)]
    pub(super) fn region(&self) -> Region {
        self.count.0.region()
    }

    /// Checks that `by` may make an access with the flags `need` to `len` bytes at `addr`.
    ///
    /// # Errors
    /// The first of wrong protection domain, wrong queue pair, missing access flag, out of bounds.
    #[inline(always)] // in two places, once a pin and once a packet
    pub(super) fn check(
        &self,
        by: Accessor,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<(), AccessError> {
        let (region, key) = (self.region(), self.key);
        if region.pd != by.pd {
            return Err(AccessError::WrongPd { key, given: by.pd, owner: region.pd });
        }
        match region.scope {
            AccessScope::All => {}
            // An access without remote flags is local.
            _ if Access::LOCAL_WRITE.contains(need) => return Err(AccessError::Window { key }),
            AccessScope::PeerOf(owner) if by.qpn != Some(owner) => {
                return Err(AccessError::WrongQp { key, owner });
            }
            AccessScope::Peers | AccessScope::PeerOf(_) => {}
        }
        if !region.access.contains(need) {
            Err(AccessError::Denied { key, need, granted: region.access })
        } else if !region.contains(addr, len) {
            let (start, region_len) = (region.start, region.len);
            Err(AccessError::OutOfBounds { key, addr, len, start, region_len })
        } else {
            Ok(())
        }
    }

    /// Returns whether this pin is of `key` and allows `by` an access with the flags `need` to
    /// `len` bytes at `addr`.
    #[must_use]
    pub fn covers(
        &self,
        key: u32,
        by: impl Into<Accessor>,
        need: Access,
        addr: u64,
        len: u64,
    ) -> bool {
        self.key == key && self.check(by.into(), need, addr, len).is_ok()
    }

    /// Places `src` at `addr`. If another process can change `src`, each of its bytes is read once.
    ///
    /// The last byte is written last, by a release store. Aligned writes of 1, 2, 4 or 8 bytes are
    /// atomic. A program that sees the last byte, or the word, sees everything placed before.
    /// Checked copies keep the order, but write no word atomically.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::ReadOnly`]; with checked copies [`Fault::NotMapped`],
    /// [`Fault::Refused`], after which any part of `src` except its last byte may be in place.
    pub fn write<'a>(&self, addr: u64, src: impl Into<Payload<'a>>) -> Result<(), Fault> {
        let src = src.into();
        self.check_bounds(addr, src.len() as u64)?;
        self.check_writable()?;
        self.each_run(addr, src.len(), |at, done, len| {
            let src = src.slice(done..done + len);
            if self.region().checked {
                // SAFETY: the run is inside the region, whose owner allows system calls to write
                // the memory while it is pinned.
                let written = unsafe { checked_copy::write_any(at, src) };
                return written.map_err(|error| error.into_fault(addr + done as u64, len as u64));
            }
            // SAFETY: the run is inside the region, which stays mapped while it is pinned
            // (`Memory::register`). The run is writable, because the registration with LOCAL_WRITE
            // faulted the region in for writing.
            unsafe {
                match src {
                    Payload::Private(src) => copy::write(at, src),
                    Payload::Shared(src) => copy::write_shared(at, src),
                }
            }
            Ok(())
        })
    }

    /// Copies `dst.len()` bytes at `addr` into `dst`. The program or another peer may write the
    /// bytes meanwhile, so `dst` may contain a mixture. Aligned reads of 1, 2, 4 or 8 bytes are
    /// atomic.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; with checked copies [`Fault::NotMapped`], [`Fault::Refused`], after
    /// which `dst` holds any mixture.
    pub fn read<'a>(&self, addr: u64, dst: impl Into<WriteOnly<'a>>) -> Result<(), Fault> {
        let dst = dst.into();
        self.check_bounds(addr, dst.len() as u64)?;
        let total = dst.len();
        self.each_run(addr, total, |at, done, len| {
            let dst = dst.slice(done..done + len);
            if self.region().checked {
                return checked_copy::read(at, dst)
                    .map_err(|error| error.into_fault(addr + done as u64, len as u64));
            }
            // SAFETY: the run is inside the region, which stays mapped and readable while it is
            // pinned.
            unsafe { copy::read(at, dst.atomics()) };
            Ok(())
        })
    }

    /// Adds `add` to the 8 bytes at `addr`, wrapping, in the host's byte order, by one atomic
    /// instruction. Returns the former value.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::ReadOnly`], [`Fault::Misaligned`]; on demand also
    /// [`Fault::NotMapped`].
    pub fn fetch_add(&self, addr: u64, add: u64) -> Result<u64, Fault> {
        self.operate(addr, Operation::FetchAdd(add))
    }

    /// Stores `swap` in the 8 bytes at `addr` if they equal `compare`, in the host's byte order, by
    /// one atomic instruction. Returns the former value.
    ///
    /// # Errors
    /// As [`Pin::fetch_add`].
    pub fn compare_swap(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.operate(addr, Operation::CompareSwap { compare, swap })
    }

    /// Places the 8 bytes of `src` at `addr` by one store, after everything placed before.
    ///
    /// # Errors
    /// As [`Pin::fetch_add`]; [`Fault::OutOfBounds`] too if `src` has not 8 bytes.
    pub fn write_word<'a>(&self, addr: u64, src: impl Into<Payload<'a>>) -> Result<(), Fault> {
        let src = src.into();
        let Some(bytes) = src.to_array() else {
            return Err(Fault::OutOfBounds { addr, len: src.len() as u64 });
        };
        self.operate(addr, Operation::Store(u64::from_ne_bytes(bytes))).map(|_| ())
    }

    /// Makes writes to the range, or to the whole region, visible to every processor. With
    /// `persist`, the writes also survive a power failure: the call blocks until the device of the
    /// file has the data.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; [`Fault::NotFlushed`] with the `errno` of `msync`, or EINVAL for
    /// memory that is not persistent.
    pub fn flush(&self, range: Option<(u64, u64)>, persist: bool) -> Result<(), Fault> {
        let region = self.region();
        let (addr, len) = range.unwrap_or((region.start, region.len));
        self.check_bounds(addr, len)?;
        fence(Ordering::SeqCst);
        if !persist {
            return Ok(());
        }
        // `check_bounds` found the range inside the region, so its length fits.
        self.each_run(addr, len as usize, |at, _, len| {
            // The program may have replaced the mapping after the registration.
            let lasts = persistence::check(at.addr(), len, Access::FLUSH_PERSISTENT);
            lasts.map_err(|error| Fault::NotFlushed { errno: error.errno() })?;
            let offset = at.addr() % checked_copy::page_size();
            let (from, len) = (at.wrapping_sub(offset).cast(), len + offset);
            // SAFETY: `msync` without MS_INVALIDATE changes no byte and no mapping. It only writes
            // pages of this range that are mapped from a file, and returns ENOMEM for unmapped
            // pages.
            let synced = unsafe { rustix::mm::msync(from, len, MsyncFlags::SYNC) };
            synced.map_err(|errno| Fault::NotFlushed { errno: errno.raw_os_error() })
        })
    }

    pub(super) fn check_bounds(&self, addr: u64, len: u64) -> Result<(), Fault> {
        if self.region().contains(addr, len) {
            Ok(())
        } else {
            Err(Fault::OutOfBounds { addr, len })
        }
    }

    /// Calls `run` in order for each run of contiguous bytes of `[addr, addr + len)`, which must be
    /// inside the region. The arguments are the location of the run, the number of bytes before it,
    /// and its length. Only this function and [`place`](Self::place) translate addresses.
    pub(super) fn each_run(
        &self,
        addr: u64,
        len: usize,
        mut run: impl FnMut(*mut u8, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < len {
            let (at, there) = self.place(addr + done as u64);
            let step = there.min(len - done);
            run(at, done, step)?;
            done += step;
        }
        Ok(())
    }

    /// Returns the location in this process of `addr`, which must be inside the region, and the
    /// number of contiguous bytes from there on. The number may exceed the end of the region.
    pub(super) fn place(&self, addr: u64) -> (*mut u8, usize) {
        // SAFETY: a list is neither changed nor freed while it is pinned.
        unsafe { self.region().place(addr) }
    }

    fn operate(&self, addr: u64, operation: Operation) -> Result<u64, Fault> {
        const LEN: u64 = size_of::<u64>() as u64;
        self.check_bounds(addr, LEN)?;
        self.check_writable()?;
        // An aligned word is in one page.
        let word = self.place(addr).0.cast::<u64>();
        if !addr.is_multiple_of(LEN) || !word.is_aligned() {
            return Err(Fault::Misaligned { addr });
        }
        // SAFETY: the word is aligned and inside the region. The region stays mapped and writable
        // while it is pinned, unless its accesses are checked.
        let before = unsafe { operation.perform(word, self.region().checked) };
        before.map_err(|error| error.into_fault(addr, LEN))
    }

    fn check_writable(&self) -> Result<(), Fault> {
        if self.region().access.contains(Access::LOCAL_WRITE) {
            Ok(())
        } else {
            Err(Fault::ReadOnly)
        }
    }
}

/// A few pins kept for one batch, so that the packets of a batch to the same region pin it once.
///
/// Clear the pins at the end of each batch, and before any wait for pins on the same thread
/// (deregistration, invalidation).
#[derive(Debug)]
pub struct Pins<'m> {
    memory: &'m Memory,
    pins: [Option<Pin<'m>>; Pins::MAX],
    next: usize,
}

impl<'m> Pins<'m> {
    /// Maximum number of pinned regions; the oldest pin is dropped first.
    pub const MAX: usize = 4;

    /// Makes an empty set of pins.
    #[must_use]
    #[inline(always)] // made in place
    pub fn new(memory: &'m Memory) -> Self {
        Self { memory, pins: [const { None }; Self::MAX], next: 0 }
    }

    /// Returns a pin that allows `by` an access with the flags `need` to `len` bytes at `addr`
    /// under `key`: one of the set, or a new one.
    ///
    /// # Errors
    /// As [`Memory::pin`].
    pub fn access(
        &mut self,
        key: u32,
        by: impl Into<Accessor>,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<&Pin<'m>, AccessError> {
        let by = by.into();
        let has_key = |pin: &Option<Pin<'m>>| pin.as_ref().is_some_and(|pin| pin.key == key);
        let place = match self.pins.iter().position(has_key) {
            Some(place) => place,
            None => {
                let pin = self.memory.pin(key, by, need, addr, len)?;
                let place = self.next;
                self.next = (place + 1) % Self::MAX;
                self.pins[place] = Some(pin);
                place
            }
        };
        let pin = self.pins[place].as_ref().ok_or(AccessError::UnknownKey { key })?;
        pin.check(by, need, addr, len)?;
        Ok(pin)
    }

    /// Returns a pin that allows `by` an access with the flags `need` to the whole region under
    /// `key`: one of the set, or a new one.
    ///
    /// # Errors
    /// As [`Memory::pin`].
    pub fn whole(
        &mut self,
        key: u32,
        by: impl Into<Accessor>,
        need: Access,
    ) -> Result<&Pin<'m>, AccessError> {
        let (start, len) = match self.memory.pin_key(key) {
            Some(pin) => (pin.region().start, pin.region().len),
            // The call below refuses the key with the reason.
            None => (0, 0),
        };
        self.access(key, by, need, start, len)
    }

    /// Drops all pins.
    #[inline]
    pub fn clear(&mut self) {
        self.pins = [const { None }; Self::MAX];
        self.next = 0;
    }
}
