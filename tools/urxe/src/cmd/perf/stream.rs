//! Bandwidth: as many outstanding messages as the queues hold.
//!
//! One thread posts and polls. It fills every send queue, takes completions, and posts the receives
//! again, in a loop. The time runs from the first post to the last completion.

use std::time::Instant;

use urxe::{QueuePair, RecvRequest, SendRequest};

use super::case::{Case, Limit};
use super::end::{End, QpState, QpStates, identifier};
use super::error::PerfError;
use super::statistics::Sample;

/// Sends until `limit` and waits for all completions; receives at the same time.
///
/// # Errors
/// [`PerfError`].
pub fn send(end: &End, states: &mut QpStates, limit: Limit) -> Result<Sample, PerfError> {
    let rings = (0..end.qps.len()).map(|nr| end.sends(nr)).collect::<Result<Vec<_>, _>>()?;
    let receives = receive_rings(end)?;
    debug_assert!(
        states.qps.iter().all(|state| state.unsignaled == 0),
        "rings begin with whole lists"
    );
    let before = states.sent_in_all();
    let each = if let Limit::Messages(each) = limit { each } else { u64::MAX };
    let goals: Vec<u64> = states.qps.iter().map(|state| state.sent.saturating_add(each)).collect();
    let start = Instant::now();
    let mut over = false;
    loop {
        over |= limit.time().is_some_and(|time| start.elapsed() >= time);
        let mut idle = true;
        for (nr, qp) in end.qps.iter().enumerate() {
            let state = &mut states.qps[nr];
            if over && state.unsignaled > 0 && state.outstanding < end.case.depth {
                post_last(qp, &rings[nr], state, nr)?;
            } else if !over && state.sent < goals[nr] {
                fill(&end.case, qp, &rings[nr], state, nr, goals[nr])?;
            }
            idle &= state.outstanding == 0 && (over || state.sent >= goals[nr]);
        }
        if idle {
            break;
        }
        if states.take(end)? > 0 {
            states.record_progress();
            states.post_receives(end, &receives)?;
        } else {
            states.check_stall(end)?;
        }
    }
    let elapsed = start.elapsed();
    let sent = states.sent_in_all() - before;
    Ok(Sample::moved(sent, end.case.size, elapsed))
}

/// Receives and lets the device reply, until `is_over`.
///
/// # Errors
/// [`PerfError`].
pub fn receive(
    end: &End,
    states: &mut QpStates,
    mut is_over: impl FnMut() -> Result<bool, PerfError>,
) -> Result<(), PerfError> {
    let receives = receive_rings(end)?;
    loop {
        if states.take(end)? > 0 {
            states.post_receives(end, &receives)?;
        } else {
            // A target may be silent without limit; the measuring end detects a stall.
            let _ = states.check_stall(end);
            if states.should_check_end(end) && is_over()? {
                return Ok(());
            }
        }
    }
}

fn receive_rings(end: &End) -> Result<Vec<Vec<RecvRequest<'_>>>, PerfError> {
    let count = if end.case.operation.is_received() { end.qps.len() } else { 0 };
    (0..count).map(|nr| end.receives(nr)).collect()
}

/// Posts as many lists as the queue holds.
fn fill(
    case: &Case,
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    state: &mut QpState,
    nr: usize,
    goal: u64,
) -> Result<(), PerfError> {
    let every = case.signal_every();
    while state.outstanding + case.list <= case.depth {
        let left = goal - state.sent;
        if left < u64::from(case.list) || (left == 1 && state.unsignaled + 1 < every) {
            return post_rest(qp, ring, state, nr, left);
        }
        let requests = &ring[state.next_send..state.next_send + case.list as usize];
        match requests {
            [one] => qp.post_send(one)?,
            list => qp.post_send_batch(list)?,
        }
        state.touched = state.touched.max(state.next_send + requests.len());
        state.next_send = (state.next_send + requests.len()) % ring.len();
        state.outstanding += case.list;
        state.sent += u64::from(case.list);
        state.unsignaled = (state.unsignaled + case.list) % every;
        if state.sent == goal {
            break;
        }
    }
    Ok(())
}

/// Posts the last messages, fewer than a list; the last one has a completion.
fn post_rest(
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    state: &mut QpState,
    nr: usize,
    left: u64,
) -> Result<(), PerfError> {
    for _ in 1..left {
        let at = state.next_send;
        // Only the last request of a list has a completion, and these requests end before it.
        qp.post_send(&ring[at])?;
        advance(state, ring.len());
        state.unsignaled += 1;
    }
    post_last(qp, ring, state, nr)
}

/// Posts one more message, whose completion covers all messages before it, and restarts at the
/// ring's beginning.
fn post_last(
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    state: &mut QpState,
    nr: usize,
) -> Result<(), PerfError> {
    let messages = state.unsignaled as usize + 1;
    let request = ring[state.next_send].clone().wr_id(identifier(nr, messages)).signaled();
    qp.post_send(&request)?;
    advance(state, ring.len());
    state.unsignaled = 0;
    state.next_send = 0;
    Ok(())
}

fn advance(state: &mut QpState, ring_len: usize) {
    state.touched = state.touched.max(state.next_send + 1);
    state.next_send = (state.next_send + 1) % ring_len;
    state.outstanding += 1;
    state.sent += 1;
}
