//! The right to touch a region for a short while, and the touching.
//!
//! A pin keeps its region from being deregistered, so it must not outlive one run of packets: whoever deregisters
//! waits for it. Addresses are the peers' (the region's I/O virtual addresses), and every call checks them again,
//! so that nothing outside the region can be reached whatever the caller computed.

use super::error::{AccessError, Fault};
use super::slot::{Region, Slot};
use super::{Access, Memory, PdId, copy, guarded};

/// A region held in place. Dropping it lets go.
///
/// Forgetting a pin (`mem::forget`) makes deregistration wait for ever; nothing worse.
#[derive(Debug)]
pub struct Pin<'m> {
    _held: Held<'m>,
    key: u32,
    region: Region,
    guarded: bool,
}

/// The counted part of a pin.
struct Held<'m>(&'m Slot);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl std::fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl<'m> Pin<'m> {
    /// Takes over one count of `slot`, which answers to `key`.
    pub(super) fn holding(slot: &'m Slot, key: u32, guard_all: bool) -> Self {
        let region = slot.region();
        let guarded = guard_all || region.access.contains(Access::ON_DEMAND);
        Self { _held: Held(slot), key, region, guarded }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Whether `pd` may do what `need` says to `len` bytes at `addr`.
    ///
    /// # Errors
    /// The first of wrong protection domain, missing right, out of bounds.
    pub(super) fn check(&self, pd: PdId, need: Access, addr: u64, len: u64) -> Result<(), AccessError> {
        let region = &self.region;
        if region.pd != pd {
            Err(AccessError::WrongPd { key: self.key, given: pd, owner: region.pd })
        } else if !region.access.contains(need) {
            Err(AccessError::Denied { key: self.key, need, granted: region.access })
        } else if !self.contains(addr, len) {
            let (start, region_len) = (region.start, region.len);
            Err(AccessError::OutOfBounds { key: self.key, addr, len, start, region_len })
        } else {
            Ok(())
        }
    }

    /// Whether this pin answers to `key` and allows `pd` to do what `need` says to `len` bytes at `addr`.
    #[must_use]
    pub fn covers(&self, key: u32, pd: PdId, need: Access, addr: u64, len: u64) -> bool {
        self.key == key && self.check(pd, need, addr, len).is_ok()
    }

    /// Places `src` at `addr`. The last byte is written last, by a release store, and 1, 2, 4 or 8 bytes at an address that is
    /// a multiple of their number are written at once: a program that sees the last byte, or the word, sees everything
    /// placed before. Checked copies keep the order, but write no word at once.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::ReadOnly`]; with checked copies [`Fault::NotMapped`], [`Fault::Refused`],
    /// after which any part of `src` but its last byte may be in place.
    pub fn write(&self, addr: u64, src: &[u8]) -> Result<(), Fault> {
        let len = src.len() as u64;
        let dst = self.locate(addr, len)?;
        self.writable()?;
        if self.guarded {
            // SAFETY: `locate` keeps the range inside the region, whose registrant allows it to be written by system
            // calls while it is pinned.
            return unsafe { guarded::write(dst, src) }.map_err(|error| error.into_fault(addr, len));
        }
        // SAFETY: `locate` keeps the range inside the region, which stays mapped while it is pinned
        // (`Memory::register`) and is writable, since registering with LOCAL_WRITE faulted it in for writing.
        unsafe { copy::write(dst, src) };
        Ok(())
    }

    /// Copies `dst.len()` bytes at `addr` into `dst`. The program or another peer may write them meanwhile, so `dst` may hold a
    /// mixture; an aligned 1, 2, 4 or 8 bytes are read at once.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; with checked copies [`Fault::NotMapped`], [`Fault::Refused`], after which `dst` holds any mixture.
    pub fn read(&self, addr: u64, dst: &mut [u8]) -> Result<(), Fault> {
        let len = dst.len() as u64;
        let src = self.locate(addr, len)?;
        if self.guarded {
            return guarded::read(src, dst).map_err(|error| error.into_fault(addr, len));
        }
        // SAFETY: `locate` keeps the range inside the region, which stays mapped and readable while it is pinned.
        unsafe { copy::read(src, dst) };
        Ok(())
    }

    /// Adds `add` to the 8 bytes at `addr`, wrapping, in the host's byte order, by one atomic instruction; returns
    /// what was there.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`], [`Fault::ReadOnly`], [`Fault::Misaligned`]; on demand also [`Fault::NotMapped`].
    pub fn fetch_add(&self, addr: u64, add: u64) -> Result<u64, Fault> {
        let word = self.locate_word(addr)?;
        // SAFETY: `locate_word` returns an aligned, mapped and writable word inside the region.
        Ok(unsafe { copy::fetch_add(word, add) })
    }

    /// Stores `swap` in the 8 bytes at `addr` if they are `compare`, in the host's byte order, by one atomic
    /// instruction; returns what was there.
    ///
    /// # Errors
    /// As [`Pin::fetch_add`].
    pub fn compare_swap(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        let word = self.locate_word(addr)?;
        // SAFETY: `locate_word` returns an aligned, mapped and writable word inside the region.
        Ok(unsafe { copy::compare_swap(word, compare, swap) })
    }

    fn contains(&self, addr: u64, len: u64) -> bool {
        let region = &self.region;
        addr >= region.start && len <= region.len && addr - region.start <= region.len - len
    }

    /// Where `addr` is in this process. The one place that translates addresses.
    fn locate(&self, addr: u64, len: u64) -> Result<*mut u8, Fault> {
        if !self.contains(addr, len) {
            return Err(Fault::OutOfBounds { addr, len });
        }
        // Registering made sure that the region is inside this process's address space, so its length fits.
        Ok(self.region.base.wrapping_add((addr - self.region.start) as usize))
    }

    fn locate_word(&self, addr: u64) -> Result<*mut u64, Fault> {
        const LEN: u64 = size_of::<u64>() as u64;
        let word = self.locate(addr, LEN)?.cast::<u64>();
        self.writable()?;
        if !addr.is_multiple_of(LEN) || !word.is_aligned() {
            return Err(Fault::Misaligned { addr });
        }
        if self.guarded {
            guarded::make_writable(word.cast(), LEN as usize)
                .map_err(|_| Fault::NotMapped { addr, len: LEN })?;
        }
        Ok(word)
    }

    fn writable(&self) -> Result<(), Fault> {
        if self.region.access.contains(Access::LOCAL_WRITE) { Ok(()) } else { Err(Fault::ReadOnly) }
    }
}

/// A few pins kept for one run, so that the packets of one run to the same region pin it once.
///
/// Clear it at the end of each run, and before anything that waits for pins on the same thread (deregistering, invalidating).
#[derive(Debug)]
pub struct Pins<'m> {
    memory: &'m Memory,
    held: [Option<Pin<'m>>; Pins::MAX],
    next: usize,
}

impl<'m> Pins<'m> {
    /// How many regions are held at a time; the oldest goes first.
    pub const MAX: usize = 4;

    /// Holds nothing yet.
    #[must_use]
    pub fn new(memory: &'m Memory) -> Self {
        Self { memory, held: [const { None }; Self::MAX], next: 0 }
    }

    /// A pin that allows `pd` to do what `need` says to `len` bytes at `addr` under `key`: one already held, or a new one.
    ///
    /// # Errors
    /// As [`Memory::pin`].
    pub fn access(
        &mut self,
        key: u32,
        pd: PdId,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<&Pin<'m>, AccessError> {
        let held = |pin: &Option<Pin<'m>>| pin.as_ref().is_some_and(|pin| pin.key == key);
        let place = match self.held.iter().position(held) {
            Some(place) => place,
            None => {
                let pin = self.memory.pin(key, pd, need, addr, len)?;
                let place = self.next;
                self.next = (place + 1) % Self::MAX;
                self.held[place] = Some(pin);
                place
            }
        };
        let pin = self.held[place].as_ref().ok_or(AccessError::UnknownKey { key })?;
        pin.check(pd, need, addr, len)?;
        Ok(pin)
    }

    /// Lets go of all of them.
    pub fn clear(&mut self) {
        self.held = [const { None }; Self::MAX];
        self.next = 0;
    }
}
