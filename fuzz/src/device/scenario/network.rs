//! Received and sent packets.

use std::net::IpAddr;

use urxe_test_support::wire::PacketRun;

use super::{OWN, Scenario};
use crate::device::packets::{self, Request};
use crate::device::plan::Packet;

impl Scenario {
    pub(super) fn request(&self, nth: u8) -> Option<Request> {
        let from_end = usize::from(nth) + 1;
        self.requests.len().checked_sub(from_end).map(|at| self.requests[at])
    }

    pub(super) fn receive(&mut self, run: &PacketRun) {
        self.wire.deliver(&self.device, self.now, run);
    }

    /// Receives packets together that have the same source, destination and length.
    pub(super) fn receive_run(&mut self, list: &[Packet]) {
        let mut run: Option<PacketRun> = None;
        let mut count = 0;
        for packet in list.iter().take(16) {
            let built = packets::build(self, packet, count);
            match &mut run {
                Some(run)
                    if (run.from, run.to) == (built.from, built.to)
                        && built.bytes.len() <= run.segment_size
                        && run.bytes.len().is_multiple_of(run.segment_size) =>
                {
                    run.bytes.extend(built.bytes);
                    count += 1;
                }
                _ => {
                    if let Some(whole) = run.take() {
                        self.receive(&whole);
                    }
                    run = Some(packets::build(self, packet, 0));
                    count = 1;
                }
            }
        }
        if let Some(whole) = run {
            self.receive(&whole);
        }
    }

    pub(super) fn transmit(&mut self) {
        self.device.transmit_pending(self.now, &self.wire);
        for run in self.wire.take() {
            assert_eq!(run.from, IpAddr::from(OWN));
            for (nr, packet) in run.segments().enumerate() {
                packets::note_sent(self, run.to, packet, nr as u16);
            }
        }
        if self.requests.len() > 1000 {
            self.requests.drain(..500);
        }
    }
}
