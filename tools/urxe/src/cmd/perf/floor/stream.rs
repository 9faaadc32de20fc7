//! Datagrams in one direction or in both, at the maximum rate.
//!
//! ```text
//! | headers' bytes | payload, copied from the working set | CRC-32 of all before it |
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Floor, Socket};
use crate::cmd::perf::error::PerfError;
use crate::cmd::perf::statistics::Sample;
use crate::traffic::pattern;

/// Bytes of the CRC.
const CRC_LEN: usize = 4;
/// Empty receives between two checks for the end of the round.
const EMPTY_BETWEEN: u32 = 64;

/// Memory of one end.
#[derive(Debug)]
pub struct Buffers {
    run: Vec<u8>,
    incoming: Vec<u8>,
    source: Vec<u8>,
    destination: Vec<u8>,
    read: usize,
    written: usize,
}

impl Buffers {
    /// Allocates the memory for a floor.
    pub fn new(floor: &Floor) -> Self {
        let memory = floor.working_set.max(floor.payload);
        Self {
            run: vec![0; floor.run_len() * floor.datagram()],
            incoming: vec![0; 1 << 16],
            source: pattern::without_zeros(memory),
            destination: vec![0; memory],
            read: 0,
            written: 0,
        }
    }

    /// Writes the first `count` datagrams of the run.
    fn fill(&mut self, floor: &Floor, count: usize) -> &[u8] {
        let (datagram, payload) = (floor.datagram(), floor.payload);
        for place in self.run[..count * datagram].chunks_exact_mut(datagram) {
            let (packet, crc) = place.split_at_mut(datagram - CRC_LEN);
            let start = packet.len() - payload;
            packet[start..].copy_from_slice(&self.source[self.read..self.read + payload]);
            self.read = next(self.read, payload, self.source.len());
            crc.copy_from_slice(&crc32fast::hash(packet).to_le_bytes());
        }
        &self.run[..count * datagram]
    }

    /// Takes the datagrams of `len` received bytes. Returns the number of correct ones.
    fn take(&mut self, floor: &Floor, len: usize) -> u64 {
        let (datagram, payload) = (floor.datagram(), floor.payload);
        let mut right = 0;
        for place in self.incoming[..len].chunks_exact(datagram) {
            let (packet, crc) = place.split_at(datagram - CRC_LEN);
            if crc32fast::hash(packet).to_le_bytes() != *crc {
                continue;
            }
            let start = packet.len() - payload;
            self.destination[self.written..self.written + payload]
                .copy_from_slice(&packet[start..]);
            self.written = next(self.written, payload, self.destination.len());
            right += 1;
        }
        right
    }
}

/// Returns the position behind `at` of the next `step` bytes in a working set of `len` bytes.
pub(super) fn next(at: usize, step: usize, len: usize) -> usize {
    if at + 2 * step <= len { at + step } else { 0 }
}

/// Sends for `time`, if given, and receives if `receives`, until `is_over` and no more data
/// arrives. Returns the samples of sent and received data.
///
/// # Errors
/// [`PerfError::Floor`].
pub fn run(
    socket: &Socket,
    peer: SocketAddr,
    floor: &Floor,
    buffers: &mut Buffers,
    time: Option<Duration>,
    receives: bool,
    is_over: &dyn Fn() -> bool,
) -> Result<(Sample, Sample), PerfError> {
    let count = if matches!(floor.kind, super::Kind::Single) { 1 } else { floor.run_len() };
    let (mut sent, mut received) = (0, 0);
    let (start, mut first, mut last) = (Instant::now(), None, None);
    let mut sending = time.is_some();
    let mut empty = 0u32;
    loop {
        if sending {
            socket.send(buffers.fill(floor, count), peer)?;
            sent += count as u64;
            sending = time.is_some_and(|time| start.elapsed() < time);
        }
        if receives {
            let len = socket.receive(&mut buffers.incoming)?;
            if len > 0 {
                first.get_or_insert_with(Instant::now);
                received += buffers.take(floor, len);
                last = None;
                empty = 0;
                continue;
            }
            // Time without arrivals does not count.
            last.get_or_insert_with(Instant::now);
        }
        empty += 1;
        socket.pause(empty);
        if !sending && (!receives || (empty.is_multiple_of(EMPTY_BETWEEN) && is_over())) {
            break;
        }
    }
    let lasted = match (first, last) {
        (Some(first), Some(last)) => last.saturating_duration_since(first),
        _ => Duration::ZERO,
    };
    Ok((
        Sample::moved(sent, floor.payload, start.elapsed()),
        Sample::moved(received, floor.payload, lasted),
    ))
}
