//! The writing end of a ring.
//!
//! ```text
//!   Path::room ── the packets of a run are built in the ring ──> Path::transmit_room
//!   a run in private memory, because of a capture or a full ring ──> Path::transmit
//! ```

use std::sync::atomic::AtomicU8;

use crate::port::udp::UdpPort;
use crate::port::{DEFAULT_HOP_LIMIT, MAX_RUN_BYTES, Run, SendInMemory, SendOutcome};
use crate::ring::{Broken, Link, Producer, Push, Record};
use crate::sys::shared_memory::SharedMemory;

/// A ring that is open.
#[derive(Debug)]
pub(super) struct Ring {
    pub link: Link,
    memory: SharedMemory,
    producer: Producer,
    /// Whether the ring has pages beside its first one.
    has_pages: bool,
    /// Whether there was a record since the last search for idle rings.
    is_used: bool,
}

impl Ring {
    pub fn new(link: Link, memory: SharedMemory) -> Self {
        Self { link, memory, producer: Producer::default(), has_pages: false, is_used: false }
    }

    /// Returns whether the ring has pages beside its first one.
    pub fn has_pages(&self) -> bool {
        self.has_pages
    }

    /// Returns whether unread runs fill half of the ring.
    pub fn is_half_full(&mut self) -> bool {
        // A broken ring ends with the next run.
        self.producer.is_half_full(&self.memory).unwrap_or(false)
    }

    /// Gives the pages back if there was no record since the last call.
    pub fn free_idle(&mut self) {
        let is_used = std::mem::replace(&mut self.is_used, false);
        // A broken ring ends with the next run.
        if self.has_pages && !is_used && self.producer.rest(&self.memory).unwrap_or(false) {
            // If the system refuses, the pages stay until the ring ends.
            let _ = self.memory.free_pages();
            self.has_pages = false;
        }
    }

    /// Returns the ring for runs of `sender`.
    pub fn path<'m>(&'m mut self, sender: &'m UdpPort) -> Path<'m> {
        let Self { link, memory, producer, has_pages, is_used } = self;
        let end = RingEnd::Usual;
        Path { sender, link, memory, producer, has_pages, is_used, end }
    }
}

/// The state of a ring after some runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingEnd {
    Usual,
    /// The ring has pages since these runs.
    HasPages,
    /// The other process stored something impossible.
    Broken,
}

/// A ring and the port whose runs it takes.
pub(super) struct Path<'m> {
    sender: &'m UdpPort,
    link: &'m Link,
    memory: &'m SharedMemory,
    producer: &'m mut Producer,
    has_pages: &'m mut bool,
    is_used: &'m mut bool,
    end: RingEnd,
}

impl Path<'_> {
    pub fn end(self) -> RingEnd {
        self.end
    }

    /// Copies a run to the ring. Returns `None` if a port would not send it, or the ring is broken.
    pub fn copy(&mut self, run: &Run<'_>) -> Option<SendOutcome> {
        let segments = self.sender.accepts(run)?;
        let record = record(run);
        let Self { sender, link, memory, producer, .. } = self;
        let outcome = sender.send_in_memory(run, segments, || {
            producer.push(*memory, record, run.bytes).map(|pushed| match pushed {
                Push::Done { wake } => {
                    if wake {
                        link.wake();
                    }
                    SendOutcome::Sent
                }
                Push::Full => SendOutcome::Dropped,
            })
        });
        self.used();
        self.unless_broken(outcome)
    }

    fn used(&mut self) {
        *self.is_used = true;
        if !std::mem::replace(self.has_pages, true) {
            self.end = RingEnd::HasPages;
        }
    }

    fn unless_broken<T>(&mut self, result: Result<T, Broken>) -> Option<T> {
        result.inspect_err(|Broken| self.end = RingEnd::Broken).ok()
    }
}

impl<'m> SendInMemory<'m> for Path<'m> {
    fn room(&mut self) -> Option<&'m [AtomicU8]> {
        // A capture has a run before its receiver.
        if self.end == RingEnd::Broken || self.sender.is_observed() {
            return None;
        }
        let reserved = self.producer.reserve(self.memory, MAX_RUN_BYTES);
        let position = self.unless_broken(reserved)??;
        Some(self.memory.view(position, MAX_RUN_BYTES))
    }

    fn transmit_room(&mut self, run: &Run<'_, AtomicU8>) -> SendOutcome {
        let Some(segments) = self.sender.accepts(run) else { return SendOutcome::Dropped };
        if self.producer.publish(self.memory, record(run), run.bytes.len()) {
            self.link.wake();
        }
        self.sender.count_in_memory(SendOutcome::Sent, segments);
        self.used();
        SendOutcome::Sent
    }

    fn transmit(&mut self, run: &Run<'_>) -> SendOutcome {
        if self.end == RingEnd::Broken {
            return SendOutcome::Dropped;
        }
        self.copy(run).unwrap_or(SendOutcome::Dropped)
    }

    fn is_receiver_congested(&mut self) -> bool {
        self.producer.is_half_full(self.memory).unwrap_or(false)
    }
}

/// Returns the fields of a run that a port accepts.
fn record<T>(run: &Run<'_, T>) -> Record {
    Record {
        // At most the length of a run, so it fits.
        segment_size: run.segment_size.min(run.bytes.len()) as u16,
        from_port: run.from_port,
        traffic_class: run.traffic_class,
        hop_limit: if run.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { run.hop_limit },
    }
}
