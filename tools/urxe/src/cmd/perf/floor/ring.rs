//! A ring in memory that both processes share, without RDMA: one copy into it and one out of it.
//!
//! ```text
//! | working set of the sender | ── copy ──> ring ── copy ──> | working set of the receiver |
//! ```

use std::fs::OpenOptions;
use std::hint::spin_loop;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe_stack::memory::{WriteOnly, copy_shared};
use urxe_stack::ring::{Broken, Consumer, Producer, Record};
use urxe_stack::sys::fork::CloseOnFork;
use urxe_stack::sys::shared_memory::SharedMemory;

use super::Floor;
use super::stream::next;
use crate::cmd::perf::error::{PerfError, floor};
use crate::cmd::perf::statistics::Sample;
use crate::traffic::error::unexpected;
use crate::traffic::pattern;

/// Bytes of the ring, as the device has.
const CAPACITY: usize = 1 << 20;
/// The first word of the memory.
const LAYOUT: u64 = 1;
/// Steps between two looks at the clock or at the end of the round.
const STEPS: u32 = 64;
/// The fields of the records, which no device reads.
const RECORD: Record = Record { segment_size: 1, from_port: 0, traffic_class: 0, hop_limit: 0 };

/// The place of a ring: a file that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    process: u32,
    descriptor: i32,
}

/// One end of the ring.
#[derive(Default)]
pub struct End {
    memory: Option<SharedMemory>,
    /// The file of an end that made the memory.
    file: Option<CloseOnFork<OwnedFd>>,
    producer: Producer,
    consumer: Consumer,
    data: Vec<u8>,
    at: usize,
}

impl End {
    /// Makes the memory for the other end.
    pub fn create(of: &Floor) -> Result<Self, PerfError> {
        let made = SharedMemory::create(CAPACITY, LAYOUT);
        let (memory, file) =
            made.map_err(|errno| floor("cannot make shared memory")(errno.into()))?;
        Ok(Self { memory: Some(memory), file: Some(file), data: data(of), ..Self::default() })
    }

    /// Returns the place of the memory that this end made.
    pub fn place(&self) -> Option<Place> {
        let descriptor = self.file.as_ref()?.as_raw_fd();
        Some(Place { process: process::id(), descriptor })
    }

    /// Maps the memory that the other end made.
    pub fn open(&mut self, of: &Floor, place: Place) -> Result<(), PerfError> {
        let path = format!("/proc/{}/fd/{}", place.process, place.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path);
        let memory = file
            .and_then(|file| SharedMemory::open(&file, CAPACITY, LAYOUT).map_err(io::Error::from));
        self.memory = Some(memory.map_err(floor("cannot map the other end's memory"))?);
        self.data = data(of);
        Ok(())
    }

    /// Sends for `time`.
    pub fn send(&mut self, of: &Floor, time: Duration) -> Result<Sample, PerfError> {
        let Self { memory: Some(memory), producer, data, at, .. } = self else {
            return Err(unexpected("a ring without memory").into());
        };
        let length = of.record();
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < time {
            for _ in 0..STEPS {
                let Some(position) = producer.reserve(memory, length).map_err(broken)? else {
                    spin_loop();
                    continue;
                };
                let room = WriteOnly::from(memory.view(position, length));
                room.copy_from(&data[*at..*at + length]);
                // The consumer does not sleep.
                producer.publish(memory, RECORD, length);
                *at = next(*at, length, data.len());
                sent += 1;
            }
        }
        Ok(Sample::moved(sent, length, start.elapsed()))
    }

    /// Receives until `is_over` and no more records arrive.
    pub fn receive(&mut self, of: &Floor, is_over: &dyn Fn() -> bool) -> Result<Sample, PerfError> {
        let Self { memory: Some(memory), consumer, data, at, .. } = self else {
            return Err(unexpected("a ring without memory").into());
        };
        let length = of.record();
        let (mut received, mut empty, mut first, mut last) = (0, 0u32, None, None);
        loop {
            if let Some(unread) = consumer.next(memory).map_err(broken)? {
                if unread.length != length {
                    return Err(unexpected("a record of another length").into());
                }
                first.get_or_insert_with(Instant::now);
                copy_shared(memory.view(unread.position, length), &mut data[*at..*at + length]);
                consumer.release(memory);
                *at = next(*at, length, data.len());
                (received, empty, last) = (received + 1, 0, None);
                continue;
            }
            // Time without arrivals does not count.
            last.get_or_insert_with(Instant::now);
            empty = empty.wrapping_add(1);
            if empty.is_multiple_of(STEPS) {
                if is_over() {
                    break;
                }
                yield_now();
            }
            spin_loop();
        }
        let lasted = match (first, last) {
            (Some(first), Some(last)) => last.saturating_duration_since(first),
            _ => Duration::ZERO,
        };
        Ok(Sample::moved(received, length, lasted))
    }
}

/// Returns the working set of an end.
fn data(of: &Floor) -> Vec<u8> {
    pattern::without_zeros(of.working_set.max(of.record()))
}

fn broken(Broken: Broken) -> PerfError {
    unexpected("an impossible position in the ring").into()
}
