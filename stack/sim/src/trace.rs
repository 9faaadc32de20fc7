//! A running hash of everything that happens in the network: two runs of one seed have the same, or
//! something outside the seed has had a say.

use urxe_types::time::Time;

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
