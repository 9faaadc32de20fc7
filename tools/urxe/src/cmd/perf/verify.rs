//! Verifies received data, after each round and outside its time.
//!
//! Every message has the same bytes, and the destination is cleared before a round. Therefore:
//!
//! - A slot that received a message must hold these bytes completely.
//! - For FETCH_ADD, the peer's counter must be exactly the number of operations.
//! - For SEND and WRITE_IMM, the peer must have received as many messages as were sent.
//!
//! Only the last message of each slot is verified, because a check of each message would affect the
//! measurement.

use super::case::Metric;
use super::end::End;
use super::error::PerfError;
use super::protocol::Sent;
use super::session::Session;
use crate::traffic::operation::{ATOMIC_SIZE, Operation};
use crate::traffic::pattern;

/// Verifies the target's data, of which each queue pair sent `sent`. Returns the number of verified
/// messages.
///
/// # Errors
/// [`PerfError::Byte`], [`PerfError::Count`], [`PerfError::Counter`].
pub fn target(of: &Session, sent: &[Sent]) -> Result<u64, PerfError> {
    let Session { end, states } = of;
    let mut verified = 0;
    for (nr, (state, sent)) in states.qps.iter().zip(sent).enumerate() {
        match end.case.operation {
            Operation::Send | Operation::WriteImm => {
                if state.received != sent.messages {
                    return Err(PerfError::Count {
                        qp: nr,
                        found: state.received,
                        expected: sent.messages,
                    });
                }
                // A SEND arrives in the slots of the receives. The ring is full if more messages
                // arrived than it has slots.
                verified += match end.case.operation {
                    Operation::Send => {
                        slots(end, nr, state.received_from, received_places(sent.messages))?
                    }
                    _ => slots(end, nr, sent.first, sent.places)?,
                };
            }
            Operation::Write => verified += slots(end, nr, sent.first, sent.places)?,
            // The requester verifies the data of READs.
            Operation::Read => {}
            Operation::FetchAdd => verified += counter(end, nr, sent.messages)?,
            Operation::CmpSwap => verified += counter(end, nr, 0)?,
        }
    }
    Ok(verified)
}

/// Verifies the data of a requester's READs. Returns the number of verified messages.
///
/// # Errors
/// [`PerfError::Byte`].
pub fn requester(of: &Session) -> Result<u64, PerfError> {
    let Session { end, states } = of;
    if end.case.operation != Operation::Read {
        return Ok(0);
    }
    states
        .qps
        .iter()
        .enumerate()
        .map(|(nr, state)| slots(end, nr, state.first, state.touched))
        .sum()
}

/// Returns the destination slots of `count` messages from place `first` of the ring on.
fn slots(end: &End, nr: usize, first: usize, count: usize) -> Result<u64, PerfError> {
    let ring = end.case.ring_len();
    let (size, window) = (end.case.size, end.case.window());
    let distinct = (window / size).min(ring);
    let count = count.min(distinct);
    let mut found = vec![0; size];
    // For latency, a WRITE always targets the first slot, and its last byte is its number.
    let numbered = end.case.operation == Operation::Write && end.case.metric == Metric::Latency;
    let (checked, count) = if numbered { (size - 1, count.min(1)) } else { (size, count) };
    for index in 0..count {
        let slot = if numbered { 0 } else { end.case.slot(nr, (first % ring + index) % ring) };
        end.region.read(window + slot * size, &mut found)?;
        if let Some((offset, found, expected)) =
            pattern::difference(&found[..checked], &end.message[..checked])
        {
            return Err(PerfError::Byte { slot, offset, found, expected });
        }
    }
    Ok(count as u64)
}

fn received_places(messages: u64) -> usize {
    usize::try_from(messages).unwrap_or(usize::MAX)
}

fn counter(end: &End, nr: usize, expected: u64) -> Result<u64, PerfError> {
    let found = end.region.load_u64(end.case.window() + nr * ATOMIC_SIZE)?;
    if found == expected {
        Ok(expected)
    } else {
        Err(PerfError::Counter { qp: nr, found, expected })
    }
}
