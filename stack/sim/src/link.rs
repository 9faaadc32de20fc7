//! One direction between two nodes, which decides the fate of each packet.
//!
//! A packet is first delayed by the rate of the link and may then be lost. The packet and its
//! duplicate get a source port, a delay and possibly flipped bits. Packets stay in order, except
//! those that are reordered on purpose.

use std::net::IpAddr;

use super::counters::SimCounters;
use super::link_faults::LinkFaults;
use urxe_types::rng::{Probability, Rng};
use urxe_types::time::Time;
use urxe_wire::{IcrcSeed, ROCE_PORT, ecn};

/// The bytes on the wire in addition to the IP packet: preamble, Ethernet header, frame check
/// sequence and inter-packet gap.
const ETHERNET_OVERHEAD_BYTES: u64 = 8 + 14 + 4 + 12;
const NS_PER_SECOND: u128 = 1_000_000_000;

/// A copy of a packet that will arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) arrival: Time,
    /// The number of bits that flip.
    pub(crate) flips: u32,
    /// Whether a router marks the packet.
    pub(crate) is_marked: bool,
    /// The UDP source port, if it differs from that of the sender.
    pub(crate) source_port: Option<u16>,
}

/// The state of a link between packets.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) rng: Rng,
    /// The settings of this link, or `None` for the default of the network.
    pub(crate) faults: Option<LinkFaults>,
    /// The arrival time of the last packet in order.
    last_arrival: Time,
    /// The time at which the last packet has left the sender.
    busy_until: Time,
    /// The number of further packets that the current burst loses.
    burst_left: u32,
    /// The UDP source port of all packets, after the first change.
    source_port: Option<u16>,
}

impl Link {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            rng,
            faults: None,
            last_arrival: Time::ZERO,
            busy_until: Time::ZERO,
            burst_left: 0,
            source_port: None,
        }
    }

    /// Sends an IP packet of `ip_bytes` and `traffic_class` at `now`. Returns the copies that will
    /// arrive: none, one or two.
    pub(crate) fn apply(
        &mut self,
        now: Time,
        ip_bytes: usize,
        traffic_class: u8,
        faults: &LinkFaults,
        counters: &mut SimCounters,
    ) -> [Option<Delivery>; 2] {
        let Some((departure, is_queue_long)) = self.departure(now, ip_bytes as u64, faults) else {
            counters.queue_overflow += 1;
            return [None; 2];
        };
        if self.is_lost(faults) {
            counters.lost += 1;
            return [None; 2];
        }
        let marks =
            is_queue_long || (faults.mark != Probability::NEVER && self.rng.chance(faults.mark));
        let is_marked = marks && ecn::is_capable(traffic_class);
        counters.marked += u64::from(is_marked);
        if faults.rebind != Probability::NEVER && self.rng.chance(faults.rebind) {
            counters.rebound += 1;
            self.source_port = Some(self.rng.between(1_024, 65_535) as u16);
        }
        let source_port = self.source_port;
        let first =
            Delivery { is_marked, source_port, ..self.deliver(departure, faults, counters) };
        let second = self.rng.chance(faults.duplicate).then(|| {
            counters.duplicated += 1;
            Delivery { is_marked, source_port, ..self.deliver(departure, faults, counters) }
        });
        [Some(first), second]
    }

    /// Returns the time at which the packet has left the sender, and whether the queue is long
    /// enough to mark the packet. Returns `None` if the queue is full.
    fn departure(&mut self, now: Time, ip_bytes: u64, faults: &LinkFaults) -> Option<(Time, bool)> {
        let rate_bps = faults.bandwidth_bps.filter(|&rate| rate > 0);
        let Some(rate_bps) = rate_bps else {
            return Some((now, false));
        };
        let rate_bps = u128::from(rate_bps);
        let waiting_bytes =
            u128::from(self.busy_until.since_ns(now)) * rate_bps / (8 * NS_PER_SECOND);
        if waiting_bytes + u128::from(ip_bytes) > u128::from(faults.queue_bytes) {
            return None;
        }
        let wire_bits = u128::from((ip_bytes + ETHERNET_OVERHEAD_BYTES) * 8);
        let airtime_ns =
            u64::try_from((wire_bits * NS_PER_SECOND).div_ceil(rate_bps)).unwrap_or(u64::MAX);
        self.busy_until = self.busy_until.max(now).plus_ns(airtime_ns);
        Some((self.busy_until, waiting_bytes > u128::from(faults.mark_above_bytes)))
    }

    fn is_lost(&mut self, faults: &LinkFaults) -> bool {
        if faults.loss.as_ppm() == 0 {
            self.burst_left = 0;
            return false;
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return true;
        }
        let lost = self.rng.chance(faults.loss);
        if lost {
            self.burst_left = self.rng.below(u64::from(faults.loss_burst_max.max(1))) as u32;
        }
        lost
    }

    fn deliver(
        &mut self,
        departure: Time,
        faults: &LinkFaults,
        counters: &mut SimCounters,
    ) -> Delivery {
        let flips = if self.rng.chance(faults.corrupt) {
            counters.corrupted += 1;
            self.rng.between(1, u64::from(faults.corrupt_bits_max.max(1))) as u32
        } else {
            0
        };
        let delay_ns = faults.delay_ns.saturating_add(self.rng.between(0, faults.jitter_ns));
        let in_order = departure.plus_ns(delay_ns).max(self.last_arrival);
        let arrival = if self.rng.chance(faults.reorder) {
            counters.reordered += 1;
            in_order.plus_ns(self.rng.between(1, faults.reorder_delay_ns.max(1)))
        } else {
            self.last_arrival = in_order;
            in_order
        };
        Delivery { arrival, flips, is_marked: false, source_port: None }
    }
}

/// Flips up to `flips` bits, and at least one unless `flips` is 0. The other flips never reverse
/// the first one.
pub(crate) fn flip_bits(payload: &mut [u8], flips: u32, rng: &mut Rng) {
    let bits = payload.len() * 8;
    let first = rng.index(bits);
    for flip in 0..flips {
        let bit = if flip == 0 { first } else { first + 1 + rng.index(bits - 1) } % bits;
        payload[bit / 8] ^= 1 << (bit % 8);
    }
}

/// The addresses and the source port of a packet, which its ICRC covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) from: IpAddr,
    pub(crate) from_port: u16,
    pub(crate) to: IpAddr,
}

/// Changes the ICRC of a packet as if its sender had used the source port `new`.
pub(crate) fn change_source_port(payload: &mut [u8], flow: Flow, new: u16) {
    let seed = |port| IcrcSeed::new(flow.from, port, flow.to, ROCE_PORT);
    if let (Some(old), Some(new)) = (seed(flow.from_port), seed(new)) {
        old.translate(&new, payload);
    }
}
