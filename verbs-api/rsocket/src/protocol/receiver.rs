//! The receiving direction: messages in the receive buffer, and memory lent to the peer.

use std::collections::VecDeque;
use std::ops::Range;

use urxe_stack::allocate::{self, OutOfMemory};

/// The receiving direction of a stream.
#[derive(Debug)]
pub struct Receiver {
    /// Size of the buffer in bytes, an even number.
    size: u32,
    /// Maximum number of messages at a time.
    queue_size: u16,
    /// For each message, the number of bytes that the program has not consumed.
    queue: VecDeque<u32>,
    queued_bytes: u32,
    /// Offset of the next byte for the program.
    offset: u32,
    /// Number of bytes that are neither lent nor waiting for the program.
    free: u32,
    /// Offset of the free bytes.
    free_offset: u32,
    /// Number of messages that the program has consumed completely, and of messages about mappings.
    consumed: u16,
    /// Number of consumed messages at which a grant is due.
    grant_due_at: u16,
}

/// The peer wrote more bytes than were lent, or sent more messages than it had credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl Receiver {
    /// Makes an empty receiver of `size` bytes and `queue_size` messages.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(size: u32, queue_size: u16) -> Result<Self, OutOfMemory> {
        let half = Self::half_of(size);
        let mut queue = VecDeque::new();
        let error = || OutOfMemory::of::<u32>(queue_size.into());
        allocate::reserved(queue.try_reserve_exact(queue_size.into()), error)?;
        Ok(Self {
            size: half * 2,
            queue_size,
            queue,
            queued_bytes: 0,
            offset: 0,
            // The private data lends the first half.
            free: half,
            free_offset: half,
            consumed: 0,
            grant_due_at: queue_size / 2,
        })
    }

    /// Returns the bytes of half a buffer of `size` bytes.
    pub const fn half_of(size: u32) -> u32 {
        size / 2
    }

    pub const fn half(&self) -> u32 {
        Self::half_of(self.size)
    }

    pub fn has_data(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Adds a message.
    pub fn push(&mut self, bytes: u32) -> Result<(), Overrun> {
        let lent = self.size - self.free - self.queued_bytes;
        if bytes > lent || self.queue.len() >= usize::from(self.queue_size) {
            return Err(Overrun);
        }
        self.queue.push_back(bytes);
        self.queued_bytes += bytes;
        Ok(())
    }

    /// Returns the ranges of up to `wanted` bytes for the program: two ranges, because the buffer
    /// is a ring.
    pub fn readable(&self, wanted: usize) -> [Range<usize>; 2] {
        let len = wanted.min(self.queued_bytes as usize);
        let offset = self.offset as usize;
        let first = len.min(self.size as usize - offset);
        [offset..offset + first, 0..len - first]
    }

    /// Removes bytes that the program has taken.
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

    /// Accounts for a message that is no data. Its receive is posted again, so the peer may send
    /// another message.
    pub const fn skip_message(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
    }

    /// Returns whether the peer should get a grant.
    pub const fn is_grant_due(&self) -> bool {
        self.has_free_half() || self.consumed.wrapping_sub(self.grant_due_at).cast_signed() >= 0
    }

    const fn has_free_half(&self) -> bool {
        self.half() > 0 && self.free >= self.half()
    }

    /// Returns the number of the last message that the peer may send, and the offset of a half that
    /// is lent with the grant.
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
