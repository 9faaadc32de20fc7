//! Round trips of plain datagrams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Floor, Socket};
use crate::cmd::perf::cpu_affinity::{CpuAffinity, Side};
use crate::cmd::perf::error::PerfError;
use crate::cmd::perf::statistics::{Latencies, Sample};

/// Time after which a message counts as lost, and the next is sent.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// The longest round without any round trip. Two spinning ends on a busy machine may share one
/// processor, and then no message comes back within a short round.
const NONE_WITHIN: Duration = Duration::from_secs(5);
/// Empty receives between two reads of the clock.
const EMPTY_BETWEEN: u32 = 1024;

/// Returns the bytes of all datagrams of a message.
fn len(floor: &Floor) -> usize {
    floor.size + floor.size.div_ceil(floor.payload.max(1)) * floor.overhead
}

/// Runs the measuring end.
///
/// # Errors
/// [`PerfError::Floor`].
pub fn measure(socket: &Socket, peer: SocketAddr, floor: &Floor) -> Result<Sample, PerfError> {
    let _affinity = CpuAffinity::to(Side::Asks);
    let mut message = vec![0x5a; len(floor)];
    let mut buffer = vec![0; 1 << 16];
    let mut latencies = Latencies::new();
    let (start, mut number, mut lost) = (Instant::now(), 0u8, 0u64);
    let limit = |trips| if trips == 0 { NONE_WITHIN.max(floor.round()) } else { floor.round() };
    while start.elapsed() < limit(latencies.len()) {
        number = number.wrapping_add(1);
        message.fill(number);
        let before = Instant::now();
        socket.send(&message, peer)?;
        let arrived = receive(socket, &mut buffer, message.len(), Some(number), &|| {
            before.elapsed() > LOST_AFTER
        })?;
        if arrived.is_some() {
            latencies.record(before.elapsed());
        } else {
            lost += 1;
        }
    }
    let sample = Sample::timed(&latencies);
    let all = latencies.len() + lost;
    Ok(Sample {
        usec: sample.usec.map(|times| times.times(0.5)),
        lost: lost as f64 / all.max(1) as f64,
        ..sample
    })
}

/// Runs the other end.
///
/// # Errors
/// [`PerfError::Floor`].
pub fn respond(
    socket: &Socket,
    peer: SocketAddr,
    floor: &Floor,
    is_over: &dyn Fn() -> bool,
) -> Result<(), PerfError> {
    let _affinity = CpuAffinity::to(Side::Answers);
    let mut message = vec![0; len(floor)];
    let mut buffer = vec![0; 1 << 16];
    while let Some(number) = receive(socket, &mut buffer, message.len(), None, is_over)? {
        message.fill(number);
        socket.send(&message, peer)?;
    }
    Ok(())
}

/// Waits for `len` bytes with one number: `number` if given, else any. Returns `None` if `is_over`
/// first.
fn receive(
    socket: &Socket,
    buffer: &mut [u8],
    len: usize,
    number: Option<u8>,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<u8>, PerfError> {
    let (mut current, mut received, mut empty) = (number, 0, 0u32);
    while received < len {
        let got = socket.receive(buffer)?;
        if got == 0 {
            empty += 1;
            socket.pause(empty);
            // A blocking socket slept before it returned nothing.
            let is_time = empty.is_multiple_of(EMPTY_BETWEEN) || socket.sleeps();
            if is_time && is_over() {
                return Ok(None);
            }
            continue;
        }
        if number.is_none() && current != Some(buffer[0]) {
            // The rest of the previous message is lost.
            (current, received) = (Some(buffer[0]), 0);
        }
        if current == Some(buffer[0]) {
            received += got;
        }
    }
    Ok(current)
}
