//! Bandwidth: as many messages on the way as the queues hold.
//!
//! One thread posts and polls. It fills every queue pair's send queue, takes what has completed,
//! posts the receives again, and begins anew; the time runs from the first post to the last
//! completion.

use std::time::Instant;

use urxe::{QueuePair, RecvRequest, SendRequest};

use super::case::{Case, Limit};
use super::end::{End, Lane, Lanes, identifier};
use super::error::PerfError;
use super::statistics::Sample;

/// Sends until `limit` and waits until all has completed; receives meanwhile.
///
/// # Errors
/// [`PerfError`].
pub fn send(end: &End, lanes: &mut Lanes, limit: Limit) -> Result<Sample, PerfError> {
    let rings = (0..end.qps.len()).map(|lane| end.sends(lane)).collect::<Result<Vec<_>, _>>()?;
    let receives = receive_rings(end)?;
    debug_assert!(
        lanes.lanes.iter().all(|lane| lane.unsignaled == 0),
        "rings begin with whole lists"
    );
    let before = lanes.sent_in_all();
    let each = if let Limit::Messages(each) = limit { each } else { u64::MAX };
    let goals: Vec<u64> = lanes.lanes.iter().map(|lane| lane.sent.saturating_add(each)).collect();
    let start = Instant::now();
    let mut over = false;
    loop {
        over |= limit.time().is_some_and(|time| start.elapsed() >= time);
        let mut idle = true;
        for (nr, qp) in end.qps.iter().enumerate() {
            let lane = &mut lanes.lanes[nr];
            if over && lane.unsignaled > 0 && lane.outstanding < end.case.depth {
                post_last(qp, &rings[nr], lane, nr)?;
            } else if !over && lane.sent < goals[nr] {
                fill(&end.case, qp, &rings[nr], lane, nr, goals[nr])?;
            }
            idle &= lane.outstanding == 0 && (over || lane.sent >= goals[nr]);
        }
        if idle {
            break;
        }
        if lanes.take(end)? > 0 {
            lanes.note_life();
            lanes.post_receives(end, &receives)?;
        } else {
            lanes.note_silence(end)?;
        }
    }
    let elapsed = start.elapsed();
    let sent = lanes.sent_in_all() - before;
    Ok(Sample::moved(sent, end.case.size, elapsed))
}

/// Receives, and answers what the other end asks, until `is_over`.
///
/// # Errors
/// [`PerfError`].
pub fn receive(
    end: &End,
    lanes: &mut Lanes,
    mut is_over: impl FnMut() -> Result<bool, PerfError>,
) -> Result<(), PerfError> {
    let receives = receive_rings(end)?;
    loop {
        if lanes.take(end)? > 0 {
            lanes.post_receives(end, &receives)?;
        } else {
            // A target is silent as long as its peer likes; who asked has an eye on the time.
            let _ = lanes.note_silence(end);
            if lanes.is_time_to_look(end) && is_over()? {
                return Ok(());
            }
        }
    }
}

fn receive_rings(end: &End) -> Result<Vec<Vec<RecvRequest<'_>>>, PerfError> {
    let lanes = if end.case.operation.is_received() { end.qps.len() } else { 0 };
    (0..lanes).map(|lane| end.receives(lane)).collect()
}

/// Posts as much as the queue holds.
fn fill(
    case: &Case,
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    lane: &mut Lane,
    nr: usize,
    goal: u64,
) -> Result<(), PerfError> {
    let every = case.signal_every();
    while lane.outstanding + case.list <= case.depth {
        let left = goal - lane.sent;
        if left < u64::from(case.list) || (left == 1 && lane.unsignaled + 1 < every) {
            return post_rest(qp, ring, lane, nr, left);
        }
        let requests = &ring[lane.next_send..lane.next_send + case.list as usize];
        match requests {
            [one] => qp.post_send(one)?,
            list => qp.post_send_batch(list)?,
        }
        lane.touched = lane.touched.max(lane.next_send + requests.len());
        lane.next_send = (lane.next_send + requests.len()) % ring.len();
        lane.outstanding += case.list;
        lane.sent += u64::from(case.list);
        lane.unsignaled = (lane.unsignaled + case.list) % every;
        if lane.sent == goal {
            break;
        }
    }
    Ok(())
}

/// Posts the last messages, fewer than a list, so that the very last makes a completion.
fn post_rest(
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    lane: &mut Lane,
    nr: usize,
    left: u64,
) -> Result<(), PerfError> {
    for _ in 1..left {
        let at = lane.next_send;
        // Lists end with the ring's completions, which these do not reach.
        qp.post_send(&ring[at])?;
        advance(lane, ring.len());
        lane.unsignaled += 1;
    }
    post_last(qp, ring, lane, nr)
}

/// Posts one message more, which makes a completion for all before it, and goes on with the ring's
/// beginning.
fn post_last(
    qp: &QueuePair,
    ring: &[SendRequest<'_>],
    lane: &mut Lane,
    nr: usize,
) -> Result<(), PerfError> {
    let messages = lane.unsignaled as usize + 1;
    let request = ring[lane.next_send].clone().wr_id(identifier(nr, messages)).signaled();
    qp.post_send(&request)?;
    advance(lane, ring.len());
    lane.unsignaled = 0;
    lane.next_send = 0;
    Ok(())
}

fn advance(lane: &mut Lane, ring_len: usize) {
    lane.touched = lane.touched.max(lane.next_send + 1);
    lane.next_send = (lane.next_send + 1) % ring_len;
    lane.outstanding += 1;
    lane.sent += 1;
}
