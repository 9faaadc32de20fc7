//! Counters of packets, and a running hash of all events in the network. Two runs with the same
//! seed have the same hash, unless something other than the seed influences the network.

use urxe_types::time::Time;

/// Counters of packets. A packet to a multicast group counts once for each node that receives it.
/// When no packet is in flight, [`accepted`](Self::accepted) equals [`fates`](Self::fates).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SimCounters {
    /// Packets that nodes sent and the network did not refuse.
    pub sent: u64,
    /// Second copies that links created.
    pub duplicated: u64,
    /// Packets that links lost by chance.
    pub lost: u64,
    /// Packets that a link of limited rate lost because its queue was full.
    pub queue_overflow: u64,
    /// Packets that a pause dropped.
    pub paused: u64,
    /// Packets to an address without a node, or to a group without members.
    pub unroutable: u64,
    /// Packets that were dropped because the buffer of the receiver was full.
    pub buffer_overflow: u64,
    /// Packets that were dropped because too many packets were in flight.
    pub overload: u64,
    /// Packets that nodes read.
    pub delivered: u64,

    /// Packets that were refused because they exceed the MTU of the link. They do not count in
    /// `sent`.
    pub too_big: u64,
    /// Runs that were refused because they were empty, too long or had too many segments. They do
    /// not count in `sent`.
    pub bad_run: u64,
    /// Copies with flipped bits. They also count at the end of their path.
    pub corrupted: u64,
    /// Packets with an ECN mark. They also count at the end of their path.
    pub marked: u64,
    /// Number of times that a link changed the UDP source port of its packets.
    pub rebound: u64,
    /// Copies that were delayed to reorder packets. They also count at the end of their path.
    pub reordered: u64,
    /// The number of times that a copy waited for the end of a pause.
    pub held: u64,
    /// Packets that were merged with the packet before them. They also count in `delivered`.
    pub merged: u64,
    /// Runs that nodes sent and the network did not refuse.
    pub runs: u64,
    /// Reads of single or merged packets.
    pub reads: u64,
}

impl SimCounters {
    /// Returns the number of packets and copies that entered the network.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.sent + self.duplicated
    }

    /// Returns the number of packets and copies that left the network.
    #[must_use]
    pub fn fates(&self) -> u64 {
        self.lost
            + self.queue_overflow
            + self.paused
            + self.unroutable
            + self.buffer_overflow
            + self.overload
            + self.delivered
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// An event of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Event {
    Sent = 1,
    Refused,
    Unroutable,
    Arrived,
    Held,
    Dropped,
    Overflowed,
    Read,
}

/// The hash of all events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trace(u64);

impl Trace {
    pub(super) fn record(&mut self, now: Time, event: Event, from: usize, to: usize, bytes: &[u8]) {
        self.mix(now.as_ns());
        self.mix(event as u64);
        self.mix(from as u64);
        self.mix(to as u64);
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.mix(u64::from(*byte));
        }
    }

    fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(MULTIPLIER).rotate_left(29);
    }

    pub(super) fn hash(self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
