//! The two ends of a ring. The memory is behind a trait, so that loom can model the order of the
//! accesses. See the [module](super).

use crate::sys::shared_memory::{Control, SharedMemory};
use crate::udp::MAX_RUN_BYTES;
use urxe_types::sync::atomic::{Ordering, fence};

/// A record begins at a multiple of this.
const ALIGN: u64 = 64;
/// Bytes of a record before its packets.
const HEADER_LEN: usize = 16;
/// The place from which a ring may restart, and the bytes between two checks for that.
const RESTART: u64 = 16 << 10;

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
#[derive(Debug, Default)]
pub struct Producer {
    head: u64,
    /// The position of the consumer, as this end saw it last. Behind a restart, the new position.
    tail: u64,
    /// The position at which to look for a restart.
    check_at: u64,
    /// The position of the last restart, and the one where the ring went on.
    restart: Option<(u64, u64)>,
    /// The bytes from `head` on that the next record may take; 0 without room that is reserved.
    reserved: u64,
}

impl Producer {
    /// Writes a run. Its packets follow each other in `bytes`.
    ///
    /// # Errors
    /// [`Broken`] if the consumer stored an impossible position.
    pub fn push(&mut self, area: &impl Area, record: Record, bytes: &[u8]) -> Result<Push, Broken> {
        let Some(position) = self.reserve(area, bytes.len())? else { return Ok(Push::Full) };
        area.write(position, bytes);
        Ok(Push::Done { wake: self.publish(area, record, bytes.len()) })
    }

    /// Returns the position of room for a run of at most `length` bytes. The caller writes the
    /// packets there, and calls [`publish`](Self::publish) before any other function. Returns
    /// `None` if the ring has no room, or if no run may have this length.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn reserve(&mut self, area: &impl Area, length: usize) -> Result<Option<u64>, Broken> {
        self.reserved = 0;
        let needed = record_len(length);
        if length == 0 || length > MAX_RUN_BYTES || needed > area.capacity() {
            return Ok(None);
        }
        self.restart(area)?;
        if self.head - self.tail + needed > area.capacity() {
            self.look(area)?;
            if self.head - self.tail + needed > area.capacity() {
                return Ok(None);
            }
        }
        self.reserved = needed;
        Ok(Some(self.head + HEADER_LEN as u64))
    }

    /// Gives the consumer a run of `length` bytes, whose packets are in the room that
    /// [`reserve`](Self::reserve) returned last. Returns whether the consumer sleeps, and the
    /// caller must wake it.
    ///
    /// # Panics
    /// If the run is longer than the room, or there is none.
    pub fn publish(&mut self, area: &impl Area, record: Record, length: usize) -> bool {
        let needed = record_len(length);
        assert!(length > 0 && needed <= self.reserved, "a run of {length} bytes without room");
        self.reserved = 0;
        area.write(self.head, &record.header(length as u32));
        self.head += needed;
        area.control().head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        // Read first, because an exchange takes the cache line from the consumer.
        let asleep = area.control().asleep();
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// Returns whether unread records fill half of the ring.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn is_half_full(&mut self, area: &impl Area) -> Result<bool, Broken> {
        self.look(area)?;
        Ok(self.head - self.tail > area.capacity() / 2)
    }

    /// Returns whether the ring is empty. The bytes of the ring may then be lost. The next record
    /// restarts the ring.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn rest(&mut self, area: &impl Area) -> Result<bool, Broken> {
        self.look(area)?;
        if self.tail != self.head {
            return Ok(false);
        }
        self.check_at = self.head;
        Ok(true)
    }

    /// Goes on at the next beginning of the ring, if the ring is empty and this saves pages. The
    /// whole ring then has room. The next record publishes both at once.
    fn restart(&mut self, area: &impl Area) -> Result<(), Broken> {
        if self.head < self.check_at || self.head & (area.capacity() - 1) < RESTART {
            return Ok(());
        }
        self.check_at = self.head + RESTART;
        self.look(area)?;
        if self.tail == self.head {
            let next = next_beginning(area, self.head);
            area.control().restart().store(self.head, Ordering::Relaxed);
            self.restart = Some((self.head, next));
            (self.head, self.tail) = (next, next);
        }
        Ok(())
    }

    /// Reads the position of the consumer.
    fn look(&mut self, area: &impl Area) -> Result<(), Broken> {
        let stored = area.control().tail().load(Ordering::Acquire);
        let tail = match self.restart {
            // The consumer has not seen the restart. It has nothing left to read before that.
            Some((from, to)) if stored == from => to,
            _ => stored,
        };
        // The consumer only advances, and not beyond this end.
        if tail < self.tail || tail > self.head {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(())
    }
}

/// A run that the consumer has not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The fields of the run.
    pub record: Record,
    /// The position of the packets.
    pub position: u64,
    /// The bytes of the packets.
    pub length: usize,
}

/// The end that reads.
#[derive(Debug, Default)]
pub struct Consumer {
    /// The position up to which the producer may write again.
    tail: u64,
    /// The position of the producer, as this end saw it last.
    head: u64,
    /// The bytes of the record that is not released; 0 if there is none.
    unread: u64,
}

impl Consumer {
    /// Returns the next run, or `None` if the ring is empty. Its bytes stay in the ring until
    /// [`release`](Self::release). The next call releases them, too.
    ///
    /// # Errors
    /// [`Broken`] if the producer stored an impossible position or record.
    pub fn next(&mut self, area: &impl Area) -> Result<Option<Unread>, Broken> {
        self.release(area);
        if self.tail == self.head && !self.look(area)? {
            return Ok(None);
        }
        let (length, record) = self.header(area);
        let needed = record_len(length as usize);
        let is_usual = length > 0 && length as usize <= MAX_RUN_BYTES;
        if !is_usual || record.segment_size == 0 || needed > self.head - self.tail {
            return Err(Broken);
        }
        self.unread = needed;
        let position = self.tail + HEADER_LEN as u64;
        Ok(Some(Unread { record, position, length: length as usize }))
    }

    /// Lets the producer overwrite the run that [`next`](Self::next) returned last.
    pub fn release(&mut self, area: &impl Area) {
        if self.unread > 0 {
            self.tail += std::mem::take(&mut self.unread);
            area.control().tail().store(self.tail, Ordering::Release);
        }
    }

    /// Returns the position up to which runs are released, for [`has_records`].
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Reads the position of the producer. Returns whether there are records.
    fn look(&mut self, area: &impl Area) -> Result<bool, Broken> {
        let control = area.control();
        let head = control.head().load(Ordering::Acquire);
        // The store of `head` publishes the restart before it. There is at most one since the last
        // record, because the ring is empty at a restart.
        let is_restart = head != self.tail
            && control.restart().load(Ordering::Relaxed) == self.tail
            && self.tail & (area.capacity() - 1) != 0;
        if is_restart {
            self.tail = next_beginning(area, self.tail);
        }
        // The difference is at most the capacity, so a position that went back is too far away.
        let unread = head.wrapping_sub(self.tail);
        let is_possible = unread <= area.capacity()
            && unread.is_multiple_of(ALIGN)
            // A record follows a restart.
            && (unread > 0 || !is_restart)
            // Positions that would overflow are far beyond what a process can send.
            && head <= u64::MAX / 2;
        if !is_possible {
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

/// Returns the next position behind `position` that is at the first byte of the ring.
fn next_beginning(area: &impl Area, position: u64) -> u64 {
    (position | (area.capacity() - 1)) + 1
}

/// Returns the bytes that a run takes in the ring.
fn record_len(bytes: usize) -> u64 {
    (HEADER_LEN as u64 + bytes as u64).next_multiple_of(ALIGN)
}

/// Takes the next run: copies its packets, and releases them.
#[cfg(test)]
fn pop(
    consumer: &mut Consumer,
    area: &impl Area,
    out: &mut [u8],
) -> Result<Option<(Record, usize)>, Broken> {
    let Some(Unread { record, position, length }) = consumer.next(area)? else { return Ok(None) };
    area.read(position, &mut out[..length]);
    consumer.release(area);
    Ok(Some((record, length)))
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
