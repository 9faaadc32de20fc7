//! What comes from the network and what goes out.

use std::net::IpAddr;
use std::sync::Mutex;

use urxe_stack::port::{Run, SendOutcome, Transmit};

use super::{OWN, World};
use crate::device::packets::{self, Built, Request};
use crate::device::plan::Packet;

/// Collects what is sent.
#[derive(Default)]
pub(super) struct Sink(Mutex<Vec<(IpAddr, Vec<u8>, usize)>>);

impl Transmit for Sink {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        assert_eq!(run.from, IpAddr::from(OWN));
        assert!(run.segments().all(|s| s.len() <= run.segment_size));
        self.0.lock().expect("one thread").push((run.to, run.bytes.to_vec(), run.segment_size));
        SendOutcome::Sent
    }
}

impl World {
    pub(super) fn request(&self, nth: u8) -> Option<Request> {
        let from_end = usize::from(nth) + 1;
        self.requests.len().checked_sub(from_end).map(|at| self.requests[at])
    }

    pub(super) fn receive_one(&mut self, packet: &Built) {
        self.receive(packet, packet.bytes.len());
    }

    fn receive(&mut self, run: &Built, segment_size: usize) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.device.receive(self.now, &run.datagrams(segment_size), &mut scratch);
        self.scratch = scratch;
    }

    /// Packets of one source to one address that arrive together, as far as they are equally long.
    pub(super) fn receive_run(&mut self, list: &[Packet]) {
        let mut run: Option<Built> = None;
        let (mut segment_size, mut count) = (0, 0);
        for packet in list.iter().take(16) {
            let built = packets::build(self, packet, count);
            match &mut run {
                Some(run)
                    if (run.from, run.to) == (built.from, built.to)
                        && built.bytes.len() <= segment_size
                        && run.bytes.len().is_multiple_of(segment_size) =>
                {
                    run.bytes.extend(built.bytes);
                    count += 1;
                }
                _ => {
                    if let Some(whole) = run.take() {
                        self.receive(&whole, segment_size);
                    }
                    let first = packets::build(self, packet, 0);
                    (segment_size, count) = (first.bytes.len(), 1);
                    run = Some(first);
                }
            }
        }
        if let Some(whole) = run {
            self.receive(&whole, segment_size);
        }
    }

    pub(super) fn transmit(&mut self) {
        self.device.transmit_pending(self.now, &self.sink);
        let sent = std::mem::take(self.sink.0.get_mut().expect("one thread"));
        for (to, bytes, segment_size) in sent {
            for (nr, packet) in bytes.chunks(segment_size).enumerate() {
                packets::note_sent(self, to, packet, nr as u16);
            }
        }
        if self.requests.len() > 1000 {
            self.requests.drain(..500);
        }
    }
}
