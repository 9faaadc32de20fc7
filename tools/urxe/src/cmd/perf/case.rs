//! A measurement: an operation, the way it is posted, and its duration. Both ends use the same
//! case.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arguments::Size;
use crate::traffic::Wait;
use crate::traffic::operation::{ATOMIC_SIZE, Operation};

/// The largest list of work requests, and the largest ring of a queue pair.
pub const RING_MAX: usize = 128;
/// The largest number of outstanding sends of a queue pair.
pub const DEPTH_MAX: u32 = 16_384;
/// The largest number of queue pairs of a case.
pub const QPS_MAX: u32 = 1024;
/// The largest inline data in bytes, which is the limit of the device.
pub const INLINE_MAX: usize = 1024;
/// Bytes of the working set, unless one message is larger.
pub const WORKING_SET: usize = 1 << 20;
/// The default number of sends for each completion.
const SIGNAL_EVERY: u32 = 16;

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// Bytes and messages a second with many outstanding messages.
    Bandwidth,
    /// Time of a single message.
    Latency,
}

/// The end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// This many messages of each queue pair.
    Messages(u64),
    /// This many microseconds.
    Micros(u64),
}

impl Limit {
    /// Returns a limit of this duration.
    pub fn after(time: Duration) -> Self {
        Self::Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    /// Returns the time; `None` where messages are counted.
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Messages(_) => None,
            Self::Micros(micros) => Some(Duration::from_micros(micros)),
        }
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The operation.
    pub operation: Operation,
    /// The measured quantity.
    pub metric: Metric,
    /// Bytes of a message.
    pub size: usize,
    /// The number of queue pairs.
    pub qps: u32,
    /// Outstanding sends of each queue pair.
    pub depth: u32,
    /// Work requests posted by one call.
    pub list: u32,
    /// Path MTU in bytes.
    pub mtu: usize,
    /// Whether both ends send at once.
    pub bidirectional: bool,
    /// How both ends wait.
    pub wait: Wait,
    /// Whether messages are copied when posted.
    pub inline: bool,
    /// Latency of WRITE: whether the receiver only reads memory, without polling.
    pub spin_memory: bool,
    /// Whether the target of one-sided operations polls. Otherwise it sleeps, and its device serves
    /// the operations.
    pub target_polls: bool,
    /// Bytes of the messages of one direction, all queue pairs together.
    pub working_set: usize,
    /// The end of a round.
    pub limit: Limit,
}

impl Case {
    /// Returns a bandwidth case with common settings.
    pub fn bandwidth(operation: Operation, size: usize, mtu: usize, limit: Limit) -> Self {
        let size = if operation.is_atomic() { ATOMIC_SIZE } else { size };
        Self {
            operation,
            metric: Metric::Bandwidth,
            size,
            qps: 1,
            depth: 128,
            list: 1,
            mtu,
            bidirectional: false,
            wait: Wait::Poll,
            inline: false,
            spin_memory: false,
            target_polls: false,
            working_set: WORKING_SET.max(size),
            limit,
        }
    }

    /// Returns a latency case with common settings.
    pub fn latency(operation: Operation, size: usize, mtu: usize, limit: Limit) -> Self {
        Self { metric: Metric::Latency, ..Self::bandwidth(operation, size, mtu, limit) }
    }

    /// Checks that the case can be measured.
    ///
    /// # Errors
    /// [`CaseError`].
    pub fn check(&self) -> Result<(), CaseError> {
        let Self { operation, metric, size, qps, depth, list, .. } = *self;
        let within = |what, given, max| {
            if (1..=max).contains(&given) {
                Ok(())
            } else {
                Err(CaseError::Range { what, given, max })
            }
        };
        within("the size of a message", size as u64, Size::MAX as u64)?;
        within("the number of queue pairs", qps.into(), QPS_MAX.into())?;
        within("the queue depth", depth.into(), DEPTH_MAX.into())?;
        within("the posting list", list.into(), u64::from(depth).min(RING_MAX as u64))?;
        within("the working set", self.working_set as u64, 1 << 30)?;
        if operation.is_atomic() && size != ATOMIC_SIZE {
            return Err(CaseError::AtomicSize { operation, given: size });
        }
        if self.inline && (size > INLINE_MAX || !operation.carries_data()) {
            return Err(CaseError::Inline { operation, size });
        }
        if self.working_set < size {
            return Err(CaseError::WorkingSet { given: self.working_set, size });
        }
        let write_latency = operation == Operation::Write && metric == Metric::Latency;
        if self.spin_memory && !write_latency {
            return Err(CaseError::SpinMemory { operation });
        }
        if write_latency && self.wait == Wait::Events {
            return Err(CaseError::WriteEvents);
        }
        if metric == Metric::Latency && (qps > 1 || list > 1 || self.bidirectional) {
            return Err(CaseError::Latency);
        }
        Ok(())
    }

    /// Returns the number of sends for each completion.
    pub fn signal_every(&self) -> u32 {
        let alone = self.metric == Metric::Latency && !self.operation.is_ping_pong();
        match self.list {
            // Each send is waited for.
            _ if alone => 1,
            1 => SIGNAL_EVERY.min(self.depth / 2).max(1),
            list => list,
        }
    }

    /// Returns the messages prepared for each queue pair: whole lists, each ending with a
    /// completion.
    pub fn ring_len(&self) -> usize {
        let step = self.signal_every() as usize;
        step * (RING_MAX / step).max(1)
    }

    /// Returns the bytes of one direction's part of the region.
    pub fn window(&self) -> usize {
        let counters = if self.operation.is_atomic() { self.qps as usize * ATOMIC_SIZE } else { 0 };
        self.working_set.max(self.size).max(counters).next_multiple_of(64)
    }

    /// Returns the slot of the `index`-th message of the ring of queue pair `nr`, counted in
    /// messages.
    pub fn slot(&self, nr: usize, index: usize) -> usize {
        let slots = self.window() / self.size;
        (nr + index * self.qps as usize) % slots
    }

    /// Returns the bytes that messages really touch.
    pub fn touched(&self) -> usize {
        let slots = self.window() / self.size;
        slots.min(self.ring_len() * self.qps as usize) * self.size
    }

    /// Returns the payload bytes of most datagrams.
    pub fn payload(&self) -> usize {
        self.size.min(self.mtu)
    }

    /// Returns the bytes besides the payload in most datagrams.
    pub fn overhead(&self) -> usize {
        self.operation.overhead(self.size <= self.mtu)
    }
}

/// Errors of impossible cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseError {
    /// A number is too small or too large.
    #[error("{what} is {given}; the allowed range is 1 to {max}")]
    Range { what: &'static str, given: u64, max: u64 },
    /// The size does not match an atomic operation.
    #[error(
        "{operation} of {given} bytes: atomic operations move {ATOMIC_SIZE} bytes; omit --size"
    )]
    AtomicSize { operation: Operation, given: usize },
    /// The message cannot be inline.
    #[error(
        "{operation} of {size} bytes cannot be inline; SEND, WRITE and WRITE_IMM can, up to \
         {INLINE_MAX} bytes"
    )]
    Inline { operation: Operation, size: usize },
    /// The working set is smaller than a message.
    #[error(
        "a working set of {given} bytes does not hold one message; use --working-set {size} or more"
    )]
    WorkingSet { given: usize, size: usize },
    /// Memory shows only the arrival of a WRITE.
    #[error("--spin-memory applies to the latency of WRITE, not to {operation}")]
    SpinMemory { operation: Operation },
    /// A WRITE creates no event at the peer.
    #[error(
        "--events does not apply to the latency of WRITE, because a WRITE creates no event at its \
         target; use write-imm, or omit --latency"
    )]
    WriteEvents,
    /// Latency requires a single outstanding message.
    #[error(
        "latency is measured with one outstanding message; omit --qps, --post-list and \
         --bidirectional"
    )]
    Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case::bandwidth(Operation::Write, 64, 4096, Limit::Messages(10))
    }

    #[test]
    fn impossible_cases_are_refused_with_the_reason() {
        use Operation::{FetchAdd, Read, Send, Write};
        let latency = Case::latency(Write, 64, 4096, Limit::Messages(10));
        for (case, expected) in [
            (Case { depth: 0, ..case() }, "the queue depth is 0; the allowed range is 1 to 16384"),
            (
                Case { qps: 2000, ..case() },
                "the number of queue pairs is 2000; the allowed range is 1 to 1024",
            ),
            (
                Case { list: 16, depth: 8, ..case() },
                "the posting list is 16; the allowed range is 1 to 8",
            ),
            (
                Case { operation: FetchAdd, size: 9, ..case() },
                "FETCH_ADD of 9 bytes: atomic operations move 8",
            ),
            (Case { inline: true, operation: Read, ..case() }, "READ of 64 bytes cannot be inline"),
            (Case { inline: true, size: 1025, ..case() }, "WRITE of 1025 bytes cannot be inline"),
            (Case { working_set: 63, ..case() }, "a working set of 63 bytes does not hold"),
            (Case { spin_memory: true, ..case() }, "--spin-memory applies to the latency of WRITE"),
            (Case { spin_memory: true, operation: Send, ..latency }, "not to SEND"),
            (Case { wait: Wait::Events, ..latency }, "creates no event at its target"),
            (Case { qps: 2, ..latency }, "one outstanding message"),
        ] {
            let error = case.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} should contain {expected}");
        }
        assert_eq!(case().check(), Ok(()));
        assert_eq!(Case { spin_memory: true, ..latency }.check(), Ok(()));
        assert_eq!(Case { inline: true, size: 1024, ..case() }.check(), Ok(()));
    }

    #[test]
    fn rings_hold_whole_lists_and_slots_stay_inside() {
        for (list, depth, every, len) in [
            (1, 128, 16, 128),
            (1, 1, 1, 128),
            (1, 7, 3, 126),
            (32, 128, 32, 128),
            (100, 128, 100, 100),
        ] {
            let case = Case { list, depth, qps: 3, size: 1000, working_set: 5000, ..case() };
            assert_eq!((case.signal_every(), case.ring_len()), (every, len), "list {list}");
            let slots = (0..3).flat_map(|nr| (0..len).map(move |index| (nr, index)));
            assert!(
                slots
                    .map(|(nr, index)| case.slot(nr, index))
                    .all(|slot| (slot + 1) * 1000 <= case.window())
            );
        }
        let one = Case { size: 1 << 20, ..case() };
        assert_eq!((one.slot(0, 5), one.touched()), (0, 1 << 20));
        assert_eq!(case().touched(), 128 * 64, "as far as the ring goes");
    }

    #[test]
    fn datagrams_have_the_sizes_of_the_packets() {
        let total = |operation, size| {
            let case = Case { size, operation, ..case() };
            case.payload() + case.overhead()
        };
        assert_eq!(total(Operation::Send, 64), 80);
        assert_eq!(total(Operation::Write, 64), 96);
        assert_eq!(total(Operation::Read, 64), 84);
        assert_eq!(total(Operation::Write, 1 << 20), 4112);
        assert_eq!(total(Operation::FetchAdd, 8), 44);
    }
}
