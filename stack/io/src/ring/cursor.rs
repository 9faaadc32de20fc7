//! The two ends of a ring. The memory is behind a trait, so that loom can model the order of the
//! accesses. See the [module](super).

use crate::sys::shared_memory::{Control, SharedMemory};
use crate::udp::MAX_RUN_BYTES;
use urxe_types::sync::atomic::{Ordering, fence};

/// A record begins at a multiple of this.
const ALIGN: u64 = 64;
/// Bytes of a record before its packets.
const HEADER_LEN: usize = 16;
/// The length of a record that skips the rest of the ring.
const SKIP: u32 = u32::MAX;
/// The place from which a new ring may restart, and the bytes between two checks for that.
const RESTART: u64 = 16 << 10;
/// Each time that the ring has no room, the place is multiplied by this, up to half of the ring.
const RESTART_FACTOR: u64 = 4;

/// The fields of a run beside its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Length of every packet except the last, in bytes.
    pub segment_size: u16,
    /// The UDP source port that the packets would have.
    pub from_port: u16,
    /// The type of service or traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
}

impl Record {
    fn header(self, length: u32) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment_size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.from_port.to_ne_bytes());
        bytes[8..10].copy_from_slice(&[self.traffic_class, self.hop_limit]);
        bytes
    }

    fn parse(bytes: [u8; HEADER_LEN]) -> (u32, Self) {
        let [l0, l1, l2, l3, s0, s1, p0, p1, traffic_class, hop_limit, ..] = bytes;
        let record = Self {
            segment_size: u16::from_ne_bytes([s0, s1]),
            from_port: u16::from_ne_bytes([p0, p1]),
            traffic_class,
            hop_limit,
        };
        (u32::from_ne_bytes([l0, l1, l2, l3]), record)
    }
}

/// The memory of a ring.
pub trait Area {
    /// Returns the words that both ends use.
    fn control(&self) -> &Control;
    /// Returns the number of bytes, a power of two.
    fn capacity(&self) -> u64;
    /// Copies bytes to a position.
    fn write(&self, position: u64, bytes: &[u8]);
    /// Copies bytes from a position.
    fn read(&self, position: u64, out: &mut [u8]);
}

impl Area for SharedMemory {
    fn control(&self) -> &Control {
        self.control()
    }

    fn capacity(&self) -> u64 {
        self.capacity() as u64
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        self.write(position, bytes);
    }

    fn read(&self, position: u64, out: &mut [u8]) {
        self.read(position, out);
    }
}

/// The other end stored something impossible. The ring must not be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The outcome of [`Producer::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// The ring has the record.
    Done {
        /// Whether the consumer sleeps, and the caller must wake it.
        wake: bool,
    },
    /// The ring has no room, or the run is longer than any run may be.
    Full,
}

/// The end that writes.
#[derive(Debug)]
pub struct Producer {
    head: u64,
    /// The position of the consumer, as this end saw it last.
    tail: u64,
    /// The position at which to look for a restart.
    check_at: u64,
    /// The place from which the ring may restart. After a restart, no more than the bytes before
    /// that place have room until the consumer follows.
    restart: u64,
}

impl Default for Producer {
    fn default() -> Self {
        Self { head: 0, tail: 0, check_at: 0, restart: RESTART }
    }
}

impl Producer {
    /// Writes a run. Its packets follow each other in `bytes`.
    ///
    /// # Errors
    /// [`Broken`] if the consumer stored an impossible position.
    pub fn push(&mut self, area: &impl Area, record: Record, bytes: &[u8]) -> Result<Push, Broken> {
        let needed = record_len(bytes.len());
        if bytes.is_empty() || bytes.len() > MAX_RUN_BYTES || needed > area.capacity() {
            return Ok(Push::Full);
        }
        let head = self.restart(area, needed)?;
        if head - self.tail + needed > area.capacity() {
            self.look(area)?;
            if head - self.tail + needed > area.capacity() {
                self.restart = (self.restart * RESTART_FACTOR).min(area.capacity() / 2);
                return Ok(Push::Full);
            }
        }
        area.write(head, &record.header(bytes.len() as u32));
        area.write(head + HEADER_LEN as u64, bytes);
        self.head = head + needed;
        area.control().head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        // Read first, because an exchange takes the cache line from the consumer.
        let asleep = area.control().asleep();
        let wake = asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0;
        Ok(Push::Done { wake })
    }

    /// Returns whether unread records fill half of the ring.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn is_half_full(&mut self, area: &impl Area) -> Result<bool, Broken> {
        self.look(area)?;
        Ok(self.head - self.tail > area.capacity() / 2)
    }

    /// Returns the position of the next record of `needed` bytes. If the ring is empty and this
    /// saves pages, that is the next beginning of the ring. Then a record that skips is before it.
    fn restart(&mut self, area: &impl Area, needed: u64) -> Result<u64, Broken> {
        let place = self.head & (area.capacity() - 1);
        // The record then ends before this place, so it does not reach `tail`.
        if self.head < self.check_at || place < needed.max(self.restart) {
            return Ok(self.head);
        }
        self.check_at = self.head + RESTART;
        self.look(area)?;
        if self.tail != self.head {
            return Ok(self.head);
        }
        let none = Record { segment_size: 0, from_port: 0, traffic_class: 0, hop_limit: 0 };
        area.write(self.head, &none.header(SKIP));
        Ok(self.head - place + area.capacity())
    }

    /// Reads the position of the consumer.
    fn look(&mut self, area: &impl Area) -> Result<(), Broken> {
        let tail = area.control().tail().load(Ordering::Acquire);
        // The consumer only advances, and not beyond this end.
        if tail < self.tail || tail > self.head {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(())
    }
}

/// The end that reads.
#[derive(Debug, Default)]
pub struct Consumer {
    tail: u64,
    /// The position of the producer, as this end saw it last.
    head: u64,
}

impl Consumer {
    /// Reads the next run to the beginning of `out`, which must have room for the longest run.
    /// Returns the fields of the run and its length, or `None` if the ring is empty.
    ///
    /// # Errors
    /// [`Broken`] if the producer stored an impossible position or record.
    pub fn pop(
        &mut self,
        area: &impl Area,
        out: &mut [u8],
    ) -> Result<Option<(Record, usize)>, Broken> {
        if self.tail == self.head && !self.look(area)? {
            return Ok(None);
        }
        let (mut length, mut record) = self.header(area);
        if length == SKIP {
            let next = (self.tail | (area.capacity() - 1)) + 1;
            // A record follows, because the producer publishes both at once.
            if next >= self.head {
                return Err(Broken);
            }
            self.tail = next;
            (length, record) = self.header(area);
        }
        let needed = record_len(length as usize);
        let is_usual = length > 0 && length != SKIP && length as usize <= MAX_RUN_BYTES;
        if !is_usual || record.segment_size == 0 || needed > self.head - self.tail {
            return Err(Broken);
        }
        let packets = out.get_mut(..length as usize).ok_or(Broken)?;
        area.read(self.tail + HEADER_LEN as u64, packets);
        self.tail += needed;
        area.control().tail().store(self.tail, Ordering::Release);
        Ok(Some((record, length as usize)))
    }

    /// Returns the position, for [`has_records`].
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Reads the position of the producer. Returns whether there are records.
    fn look(&mut self, area: &impl Area) -> Result<bool, Broken> {
        let head = area.control().head().load(Ordering::Acquire);
        // The difference is at most the capacity, so a position that went back is too far away.
        let unread = head.wrapping_sub(self.tail);
        // Positions that would overflow are far beyond what a process can send.
        if unread > area.capacity() || !unread.is_multiple_of(ALIGN) || head > u64::MAX / 2 {
            return Err(Broken);
        }
        self.head = head;
        Ok(unread > 0)
    }

    /// Copies the header at the position, once.
    fn header(&self, area: &impl Area) -> (u32, Record) {
        let mut bytes = [0; HEADER_LEN];
        area.read(self.tail, &mut bytes);
        Record::parse(bytes)
    }
}

/// Says that a thread of the consumer is about to sleep. Afterwards the caller looks for
/// [records](has_records), and sleeps only if there are none.
pub fn fall_asleep(control: &Control) {
    control.asleep().store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Says that no thread of the consumer sleeps.
pub fn wake_up(control: &Control) {
    control.asleep().store(0, Ordering::Relaxed);
}

/// Returns whether the producer has written beyond `position`.
pub fn has_records(control: &Control, position: u64) -> bool {
    control.head().load(Ordering::Acquire) != position
}

/// Returns the bytes that a run takes in the ring.
fn record_len(bytes: usize) -> u64 {
    (HEADER_LEN as u64 + bytes as u64).next_multiple_of(ALIGN)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
