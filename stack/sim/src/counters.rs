//! What became of every packet: counters, and a running hash of everything that happens in the
//! network. Two runs of one seed have the same, or something outside the seed has had a say.

use urxe_types::time::Time;

/// Packets by their fate; one to a multicast group counts once for each node that it goes to. After
/// the last arrival [`accepted`](Self::accepted) = [`fates`](Self::fates).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Handed in by the nodes and not refused.
    pub sent: u64,
    /// Second copies that links made.
    pub duplicated: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the queue of a link of limited rate was full.
    pub queue_overflow: u64,
    /// Dropped by a pause.
    pub paused: u64,
    /// To an address that no node has, or to a group that none joined.
    pub unroutable: u64,
    /// Dropped because the receiver's buffer was full.
    pub buffer_overflow: u64,
    /// Dropped because more packets were on the way than the network keeps.
    pub overload: u64,
    /// Read by the nodes.
    pub delivered: u64,

    /// Refused to the sender because the link's MTU is smaller. Not in `sent`.
    pub too_big: u64,
    /// Refused to the sender because the run was empty, too long or had too many segments. Not in
    /// `sent`.
    pub bad_run: u64,
    /// Copies that arrived with flipped bits. Also counted where they ended.
    pub corrupted: u64,
    /// Packets marked, as by a router whose queue grows. Also counted where their copies ended.
    pub marked: u64,
    /// Copies made late on purpose. Also counted where they ended.
    pub reordered: u64,
    /// Times that a copy waited for the end of a pause. Also counted where it ended.
    pub held: u64,
    /// Packets that were merged to the one before them. Also in `delivered`.
    pub merged: u64,
    /// Runs handed in and not refused.
    pub runs: u64,
    /// Reads: single packets or merged ones.
    pub reads: u64,
}

impl SimCounters {
    /// Copies that came into being.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.sent + self.duplicated
    }

    /// Copies whose way has ended.
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

/// What happened.
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

/// The hash up to now.
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
