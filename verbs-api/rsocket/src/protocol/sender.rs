//! The sending direction: the send buffer as a ring, the peer's credits, and the memory that the
//! peer lends.

use std::ops::Range;

use super::segment::Segment;

/// Number of entries of the list of targets.
pub const TARGETS: usize = 2;
/// A sender waits until the send buffer has this much room (`RS_SNDLOWAT`).
pub const LOW_WATER: u32 = 2048;

/// The sending direction of a stream.
#[derive(Debug)]
pub struct Sender {
    size: u32,
    inline: u32,
    /// Offset of the next byte.
    offset: u32,
    /// Number of bytes that no pending request uses.
    room: u32,
    /// Number of work requests that may be posted.
    requests: u32,
    /// Number of messages sent, and the number up to which the peer accepts messages.
    sent: u16,
    credits: u16,
    targets: [Segment; TARGETS],
    target: usize,
}

/// The bytes of a message, with their source and destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub len: u32,
    /// Ranges of the send buffer for the bytes. `None`: the request carries the bytes inline.
    pub ring: Option<[Range<usize>; 2]>,
    pub addr: u64,
    pub key: u32,
}

impl Sender {
    pub const fn new(
        size: u32,
        requests: u32,
        inline: u32,
        credits: u16,
        first_target: Segment,
    ) -> Self {
        let targets = [first_target, Segment { addr: 0, key: 0, length: 0 }];
        Self { size, inline, offset: 0, room: size, requests, sent: 0, credits, targets, target: 0 }
    }

    /// Returns whether data can be sent now.
    pub fn is_ready(&self) -> bool {
        self.can_post() && self.targets[self.target].length != 0
    }

    const fn can_post(&self) -> bool {
        self.requests > 0 && self.room >= LOW_WATER && self.sent != self.credits
    }

    /// Returns the next message of at most `wanted` bytes. The sender must be ready.
    pub fn next_message(&mut self, wanted: u32) -> Transfer {
        let target = &mut self.targets[self.target];
        let len = wanted.min(self.room).min(target.length);
        let (addr, key) = (target.addr, target.key);
        target.addr = target.addr.wrapping_add(len.into());
        target.length -= len;
        if target.length == 0 {
            self.target = (self.target + 1) % TARGETS;
        }
        self.sent = self.sent.wrapping_add(1);
        self.take(len, addr, key)
    }

    /// Returns the next WRITE into iomapped memory, of which `left` bytes are at `addr`. Such a
    /// WRITE is no message and needs no credit, but the original also waits for one. The sender
    /// must be ready.
    pub fn next_iomapped(&mut self, wanted: u32, addr: u64, left: u64, key: u32) -> Transfer {
        let len = wanted.min(self.room).min(u32::try_from(left).unwrap_or(u32::MAX));
        self.take(len, addr, key)
    }

    fn take(&mut self, len: u32, addr: u64, key: u32) -> Transfer {
        self.requests -= 1;
        self.room -= len;
        let ring = (len > self.inline).then(|| {
            let start = self.offset as usize;
            let first = len.min(self.size - self.offset) as usize;
            self.offset = (self.offset + len) % self.size;
            [start..start + first, 0..len as usize - first]
        });
        Transfer { len, ring, addr, key }
    }

    /// Accounts for a message about an iomapping. The sender must be ready.
    pub fn send_iomap(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(1);
        self.requests -= 1;
        self.room -= bytes;
    }

    /// Accounts for a completed request with so many bytes of the buffer.
    pub fn complete(&mut self, bytes: u32) {
        self.requests += 1;
        self.room = self.room.saturating_add(bytes).min(self.size);
    }

    pub const fn set_credits(&mut self, credits: u16) {
        self.credits = credits;
    }

    /// Takes new entries from the list that the peer writes. Returns which entries were taken.
    pub fn update_targets(&mut self, list: [Segment; TARGETS]) -> [bool; TARGETS] {
        let mut taken = [false; TARGETS];
        for ((own, written), taken) in self.targets.iter_mut().zip(list).zip(&mut taken) {
            if own.length == 0 && written.length != 0 {
                *own = written;
                *taken = true;
            }
        }
        taken
    }

    /// Returns the number of work requests that may be posted.
    pub const fn requests(&self) -> u32 {
        self.requests
    }
}
