//! An impairment of received packets: a link of the simulation in front of a real port.
//!
//! A program that shall be tested on a bad network over real sockets opens a device with a
//! [`FaultSpec`]. The link behaves as in the simulation ([`urxe_sim`](crate)), with the same order
//! of faults and the same probabilities, but in real time. Delayed packets wait in this module.
//!
//! ```text
//!   socket ─→ rate, loss ─→ mark, rebind, duplicate
//!          ─→ corrupt, delay, reorder ─┬─ on time ───────→ device
//!                                      └─ delayed ─ due ─→ device
//! ```
//!
//! The decisions follow from the seed and the number of packets since the device was opened. The
//! network and the scheduler determine the order of the packets.
//!
//! A new fault begins with a field of [`LinkFaults`], which `link.rs` applies. Its name in a text
//! stands in a table of `spec`.

mod spec;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use spec::{FaultError, FaultSpec};

use crate::delay_queue::{DelayQueue, Delayed};
use crate::link::{Flow, Link, change_source_port, flip_bits};
use crate::{LinkFaults, SimCounters};
use urxe_types::counters::{Counter, Counters};
use urxe_types::port::{Datagrams, StoredPacket};
use urxe_types::rng::Rng;
use urxe_types::time::Time;
use urxe_wire::ecn;

/// The stream of random numbers of impairments.
const STREAM: u64 = 0x6c6f_7373;
/// The headers of IPv4 and UDP in bytes, for the rate.
const HEADERS_BYTES: usize = 28;
/// The maximum number of delayed bytes. Further delayed packets are lost. The limit is larger than
/// any receive window, so only a delay of seconds reaches it.
const MAX_DELAYED_BYTES: usize = 64 << 20;

/// The link in front of the sockets of a device, and its delayed packets.
#[derive(Debug)]
pub struct Impairment {
    link: Link,
    faults: LinkFaults,
    counters: SimCounters,
    /// Delayed packets, with the address of the socket that received them.
    delayed: DelayQueue<(IpAddr, StoredPacket)>,
    delayed_bytes: usize,
}

impl Impairment {
    /// Returns a link with these faults. `seed` and `stream` determine the decisions; devices with
    /// the same seed have different streams.
    #[must_use]
    pub fn new(faults: LinkFaults, seed: u64, stream: u64) -> Self {
        Self {
            link: Link::new(Rng::stream(seed, STREAM ^ stream)),
            faults,
            counters: SimCounters::default(),
            delayed: DelayQueue::default(),
            delayed_bytes: 0,
        }
    }

    /// Returns the time at which the first delayed packet is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.delayed.next_due()
    }

    /// Delivers all packets that are due by `now`, each with the address of the socket that
    /// received it.
    pub fn release(&mut self, now: Time, mut deliver: impl FnMut(IpAddr, &Datagrams<'_>)) {
        while let Some(Delayed { item: (at, packet), .. }) = self.delayed.pop_due(now) {
            self.delayed_bytes -= packet.bytes.len();
            deliver(at, &packet.datagrams());
        }
    }

    /// Applies the faults to packets that arrived at `now` on the socket of address `at`. Delivers
    /// the packets that are on time, in as few pieces as possible, and stores the delayed packets.
    pub fn apply<'a>(
        &mut self,
        now: Time,
        at: IpAddr,
        datagrams: &Datagrams<'a>,
        mut deliver: impl FnMut(&Datagrams<'_>),
    ) {
        let mut whole = 0;
        let mut end = 0;
        for packet in datagrams.segments() {
            let start = end;
            end += packet.len();
            let (ip_bytes, traffic_class) = (packet.len() + HEADERS_BYTES, datagrams.traffic_class);
            let copies =
                self.link.apply(now, ip_bytes, traffic_class, &self.faults, &mut self.counters);
            if let [Some(copy), None] = copies
                && copy.arrival <= now
                && copy.flips == 0
                && !copy.is_marked
                && copy.source_port.is_none()
            {
                continue;
            }
            if start > whole {
                deliver(&Datagrams { bytes: &datagrams.bytes[whole..start], ..*datagrams });
            }
            whole = end;
            for copy in copies.into_iter().flatten() {
                let mut bytes = Box::<[u8]>::from(packet);
                flip_bits(&mut bytes, copy.flips, &mut self.link.rng);
                let mark = if copy.is_marked { ecn::CE } else { 0 };
                let Datagrams { from, from_port, to, .. } = *datagrams;
                if let Some(port) = copy.source_port {
                    change_source_port(&mut bytes, Flow { from, from_port, to }, port);
                }
                let as_it_came = Datagrams {
                    traffic_class: traffic_class | mark,
                    from_port: copy.source_port.unwrap_or(from_port),
                    ..*datagrams
                };
                if copy.arrival <= now {
                    deliver(&Datagrams { bytes: &bytes, segment_size: bytes.len(), ..as_it_came });
                } else {
                    self.delay(copy.arrival, at, &as_it_came, bytes);
                }
            }
        }
        if whole < end {
            deliver(&Datagrams { bytes: &datagrams.bytes[whole..end], ..*datagrams });
        }
    }

    fn delay(&mut self, due: Time, at: IpAddr, datagrams: &Datagrams<'_>, bytes: Box<[u8]>) {
        if self.delayed_bytes + bytes.len() > MAX_DELAYED_BYTES {
            self.counters.overload += 1;
            return;
        }
        self.delayed_bytes += bytes.len();
        self.delayed.push(due, (at, StoredPacket::new(datagrams, bytes)));
    }

    /// Adds the counts since the last call to the counters of a device.
    pub fn count(&mut self, counters: &Counters) {
        let done = std::mem::take(&mut self.counters);
        for (counter, count) in [
            (Counter::DropSimulated, done.lost + done.queue_overflow + done.overload),
            (Counter::SimulatedDuplicate, done.duplicated),
            (Counter::SimulatedReorder, done.reordered),
            (Counter::SimulatedCorrupt, done.corrupted),
            (Counter::SimulatedMark, done.marked),
            (Counter::SimulatedRebind, done.rebound),
        ] {
            if count > 0 {
                counters.add_many(counter, count);
            }
        }
    }
}
