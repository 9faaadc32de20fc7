//! What arrives: messages in the receive buffer, and what is lent to the peer.

use std::collections::VecDeque;
use std::ops::Range;

/// The receiving direction of a stream.
#[derive(Debug)]
pub struct Receiver {
    /// Bytes of the buffer, an even number.
    size: u32,
    /// Messages that may be there at a time.
    queue_size: u16,
    /// Bytes of each message that the program has not consumed.
    queue: VecDeque<u32>,
    queued_bytes: u32,
    /// Where the next byte for the program lies.
    offset: u32,
    /// Bytes that are neither lent nor waiting for the program.
    free: u32,
    /// Where they begin.
    free_offset: u32,
    /// Messages that the program has taken whole.
    consumed: u16,
    /// At that many, credits are due.
    grant_due_at: u16,
}

/// A peer wrote more than was lent, or sent more messages than it was given credits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl Receiver {
    pub fn new(size: u32, queue_size: u16) -> Self {
        let half = size / 2;
        Self {
            size: half * 2,
            queue_size,
            queue: VecDeque::with_capacity(queue_size.into()),
            queued_bytes: 0,
            offset: 0,
            // The first half is lent by the private data.
            free: half,
            free_offset: half,
            consumed: 0,
            grant_due_at: queue_size / 2,
        }
    }

    pub const fn half(&self) -> u32 {
        self.size / 2
    }

    pub fn has_data(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A message came.
    pub fn push(&mut self, bytes: u32) -> Result<(), Overrun> {
        let lent = self.size - self.free - self.queued_bytes;
        if bytes > lent || self.queue.len() >= usize::from(self.queue_size) {
            return Err(Overrun);
        }
        self.queue.push_back(bytes);
        self.queued_bytes += bytes;
        Ok(())
    }

    /// Where up to `wanted` bytes for the program lie: two places, since the buffer is a ring.
    pub fn readable(&self, wanted: usize) -> [Range<usize>; 2] {
        let len = wanted.min(self.queued_bytes as usize);
        let offset = self.offset as usize;
        let first = len.min(self.size as usize - offset);
        [offset..offset + first, 0..len - first]
    }

    /// The program has taken so many of them.
    pub fn consume(&mut self, bytes: usize) {
        let mut left = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.queued_bytes);
        self.queued_bytes -= left;
        self.free += left;
        self.offset = (self.offset + left) % self.size.max(1);
        while let Some(first) = self.queue.front_mut() {
            if *first > left {
                *first -= left;
                return;
            }
            left -= *first;
            self.consumed = self.consumed.wrapping_add(1);
            self.queue.pop_front();
            if left == 0 {
                return;
            }
        }
    }

    /// Whether the peer should hear that it may send more.
    pub const fn is_grant_due(&self) -> bool {
        self.has_free_half() || self.consumed.wrapping_sub(self.grant_due_at).cast_signed() >= 0
    }

    const fn has_free_half(&self) -> bool {
        self.half() > 0 && self.free >= self.half()
    }

    /// The number of the last message that may come now, and where a half begins that is lent with
    /// it.
    pub fn grant(&mut self) -> (u16, Option<u32>) {
        self.grant_due_at = self.consumed.wrapping_add(self.queue_size / 2);
        let credits = self.consumed.wrapping_add(self.queue_size);
        if !self.has_free_half() {
            return (credits, None);
        }
        let lent = self.free_offset;
        self.free -= self.half();
        self.free_offset += self.half();
        if self.free_offset >= self.size {
            self.free_offset = 0;
        }
        (credits, Some(lent))
    }
}
