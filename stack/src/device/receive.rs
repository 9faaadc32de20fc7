//! From a datagram to the queue pairs: shape, ICRC, destination, source, then the queue pair itself.
//!
//! Consecutive packets for one queue pair, as in a run that the peer sent, are handled under one lock and one set of
//! pins. Every packet that is dropped moves a counter that says why.

use std::net::IpAddr;

use urxe_wire::{IcrcSeed, IcrcSolver, IcrcVerdict, Kind, PacketView, Qpn, ROCE_PORT};

use super::counters::Counter;
use super::verbs::GSI_QPN;
use super::{Device, QpHandle, QpSlot};
use crate::memory::Pins;
use crate::port::Datagrams;
use crate::qp::Qp;
use crate::qp::context::{Arrival, Context};
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, lock, try_lock};
use crate::time::Time;

/// The most packets of a run on any port, and so the identifications that our own senders use.
const MAX_SEGMENTS: u16 = 128;

/// How received ICRCs are checked. A UDP socket does not show the IPv4 identification that the ICRC covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcrcPolicy {
    /// Only the identifications that this stack's own senders use pass. The kernel's `rdma_rxe` uses others.
    Strict,
    /// A packet passes if any identification explains its ICRC; a damaged one does with a chance of 2^-16.
    #[default]
    Solve,
    /// The ICRC is not looked at.
    Off,
}

/// What a receiving thread keeps between datagrams.
#[derive(Debug, Default)]
pub struct ReceiveScratch {
    solver: IcrcSolver,
    /// Whom packets to a multicast group are for.
    members: Vec<QpHandle>,
    /// Packets whose ICRC is right for their place, not counted yet: a counter is shared, this is not.
    exact: u64,
    /// Notes the packets that are for another process, or for QP0 and QP1; they are dropped if nobody asks.
    pub strays: Option<Strays>,
}

/// Packets of the datagrams received last that are whole and not this device's to handle: for queue pairs of another process
/// slot, or for the two queue pairs of management that processes share.
#[derive(Debug)]
pub struct Strays {
    segments: [u16; MAX_SEGMENTS as usize],
    count: usize,
}

impl Default for Strays {
    fn default() -> Self {
        Self { segments: [0; MAX_SEGMENTS as usize], count: 0 }
    }
}

impl Strays {
    /// Their positions among the segments, in order.
    #[must_use]
    pub fn segments(&self) -> &[u16] {
        &self.segments[..self.count]
    }

    /// Whether there was room.
    fn note(&mut self, segment: usize) -> bool {
        let place = self.segments.get_mut(self.count);
        let noted = place.is_some();
        if let Some(place) = place {
            *place = segment as u16;
            self.count += 1;
        }
        noted
    }
}

/// A queue pair held for the packets of one run.
pub(super) struct Held<'a> {
    index: u32,
    guard: MutexGuard<'a, Option<Box<Qp>>>,
    pub context: Context<'a>,
}

fn arrival(datagrams: &Datagrams<'_>, identification: u16) -> Arrival {
    Arrival {
        from: datagrams.from,
        to: datagrams.to,
        traffic_class: datagrams.traffic_class,
        hop_limit: datagrams.hop_limit,
        identification,
    }
}

impl Device {
    /// Takes packets that arrived. What they cause to be sent leaves with the next
    /// [`transmit_pending`](Self::transmit_pending).
    pub fn receive(&self, now: Time, datagrams: &Datagrams<'_>, scratch: &mut ReceiveScratch) {
        let seed = IcrcSeed::new(datagrams.from, datagrams.from_port, datagrams.to, ROCE_PORT);
        let Some(seed) = seed else {
            return self.counters.add_many(Counter::DropMalformed, datagrams.segments().len() as u64);
        };
        if let Some(strays) = &mut scratch.strays {
            strays.count = 0;
        }
        self.members_for(datagrams, &mut scratch.members);
        let to_group = datagrams.to.is_multicast();
        let mut held: Option<Held<'_>> = None;
        let mut touched = None;
        let mut received = 0;
        for (segment, bytes) in datagrams.segments().enumerate() {
            self.prefetch_after(datagrams, segment);
            let Some((packet, identification)) = self.accept(&seed, scratch, bytes, segment) else {
                continue;
            };
            received += 1;
            if packet.info().kind == Kind::Cnp {
                self.counters.add(Counter::RcvdCnp);
                continue;
            }
            let arrival = arrival(datagrams, identification);
            if to_group || packet.dest_qp() == Qpn::MULTICAST {
                drop(self.let_go(&mut held, &mut touched, now));
                self.receive_from_group(now, &packet, arrival, &scratch.members);
                continue;
            }
            // Where processes share an address, they share its QP1.
            let is_shared = packet.dest_qp() == GSI_QPN && scratch.strays.is_some();
            let Some(index) = self.index_of(packet.dest_qp()).filter(|_| !is_shared) else {
                self.stray(packet.dest_qp(), segment, scratch);
                continue;
            };
            if held.as_ref().is_none_or(|held| held.index != index) {
                let pins = self.let_go(&mut held, &mut touched, now);
                held = self.hold(now, index, pins);
            }
            match &mut held {
                Some(held) => {
                    held.context.arrival = Some(arrival);
                    self.dispatch(held, packet.dest_qp(), &packet);
                }
                None => self.counters.add(Counter::DropNoQp),
            }
        }
        drop(self.let_go(&mut held, &mut touched, now));
        self.touch(touched);
        self.counters.add_many(Counter::RcvdPkts, received);
        self.counters.add_many(Counter::IcrcExact, std::mem::take(&mut scratch.exact));
    }

    /// Takes a datagram for queue pair 1 that [`receive`](Self::receive) noted as a stray, having found it whole, and that turned
    /// out to be for this process. `datagrams` holds nothing else.
    pub fn receive_management(&self, now: Time, datagrams: &Datagrams<'_>) {
        let Ok(packet) = PacketView::parse(datagrams.bytes) else { return };
        let mut held = self.hold(now, self.gsi.load(Ordering::Acquire), Pins::new(&self.memory));
        match &mut held {
            Some(held) => {
                held.context.arrival = Some(arrival(datagrams, 0));
                self.dispatch(held, GSI_QPN, &packet);
            }
            None => self.counters.add(Counter::DropNoQp),
        }
        self.let_go_alone(held, now);
    }

    /// Checks shape and ICRC.
    fn accept<'p>(
        &self,
        seed: &IcrcSeed,
        scratch: &mut ReceiveScratch,
        bytes: &'p [u8],
        segment: usize,
    ) -> Option<(PacketView<'p>, u16)> {
        let packet = match PacketView::parse(bytes) {
            Ok(packet) => packet,
            Err(reason) => {
                tracing::debug!(%reason, "dropped: malformed packet");
                self.counters.add(Counter::DropMalformed);
                return None;
            }
        };
        if self.icrc_policy == IcrcPolicy::Off {
            return Some((packet, 0));
        }
        let verdict = seed.verify(&mut scratch.solver, bytes, segment as u16);
        match (verdict, self.icrc_policy) {
            (IcrcVerdict::Exact { .. }, _) => scratch.exact += 1,
            // A packet of a run, whose neighbours were lost, came late or were not merged to it.
            (IcrcVerdict::Solved { identification }, IcrcPolicy::Strict) if identification < MAX_SEGMENTS => {
                self.counters.add(Counter::IcrcSolved);
            }
            (IcrcVerdict::Solved { .. }, IcrcPolicy::Solve) => self.counters.add(Counter::IcrcSolved),
            _ => {
                tracing::debug!(qp = %packet.dest_qp(), psn = %packet.psn(), "dropped: wrong ICRC");
                self.counters.add(Counter::DropIcrc);
                return None;
            }
        }
        let identification = match verdict {
            IcrcVerdict::Exact { identification } | IcrcVerdict::Solved { identification } => identification,
            IcrcVerdict::Bad => 0,
        };
        Some((packet, identification))
    }

    /// Asks for the queue pair of the packet after packet `segment`, if it is another's, while that one is looked at.
    fn prefetch_after(&self, datagrams: &Datagrams<'_>, segment: usize) {
        // The destination's place in the BTH.
        let of = |segment: usize| {
            let start = segment * datagrams.segment_size;
            datagrams.bytes.get(start + 5..start + 8)?.first_chunk::<3>()
        };
        let (Some(now), Some(next)) = (of(segment), of(segment + 1)) else { return };
        let qpn = || Qpn::masked(u32::from_be_bytes([0, next[0], next[1], next[2]]));
        if now != next
            && let Some(slot) = self.numbers.index(qpn()).and_then(|index| self.qps.at(index))
        {
            slot.prefetch();
        }
    }

    fn index_of(&self, qpn: Qpn) -> Option<u32> {
        if qpn == GSI_QPN {
            // If there is none, that is told when the queue pair is looked for.
            return Some(self.gsi.load(Ordering::Acquire));
        }
        self.numbers.index(qpn)
    }

    /// A packet that is for another process, or for one that only a look into its payload tells.
    #[cold]
    fn stray(&self, qpn: Qpn, segment: usize, scratch: &mut ReceiveScratch) {
        let noted = scratch.strays.as_mut().is_some_and(|strays| strays.note(segment));
        if !noted {
            self.counters.add(if qpn == Qpn::QP0 || qpn == GSI_QPN {
                Counter::DropNoQp
            } else {
                Counter::DropForeignSlot
            });
        }
    }

    /// `pins` are what the queue pair before it had pinned. They may not be held while waiting for a queue pair: who has it may be waiting for them.
    #[inline(always)]
    pub(super) fn hold<'d>(&'d self, now: Time, index: u32, mut pins: Pins<'d>) -> Option<Held<'d>> {
        let slot: &QpSlot = self.qps.at(index)?;
        let guard = match try_lock(&slot.qp) {
            Some(guard) => guard,
            None => {
                pins.clear();
                lock(&slot.qp)
            }
        };
        let path = guard.as_ref()?.path;
        Some(Held { index, guard, context: self.context_with(now, path, pins) })
    }

    /// Gives a packet to the queue pair that is held, if it is `qpn`. The context says where the packet came from.
    pub(super) fn dispatch(&self, held: &mut Held<'_>, qpn: Qpn, packet: &PacketView<'_>) {
        let from = held.context.arrival.map(|arrival| arrival.from);
        let qp = held.guard.as_deref_mut().filter(|qp| qp.common.qpn == qpn);
        let Some(qp) = qp else { return self.counters.add(Counter::DropNoQp) };
        match qp.path {
            _ if qp.common.qp_type.is_datagram() => {}
            Some((_, peer)) if Some(peer) == from => {}
            Some((_, peer)) => {
                tracing::debug!(qp = %qp.common.qpn, ?from, %peer, "dropped: not from the peer");
                return self.counters.add(Counter::DropWrongSource);
            }
            None => return self.counters.add(Counter::DropNotReady),
        }
        if !qp.common.pkey.matches(packet.pkey()) {
            return self.counters.add(Counter::DropWrongPkey);
        }
        qp.on_packet(packet, &mut held.context);
    }

    /// Lets go of a queue pair that got one packet.
    pub(super) fn let_go_alone<'d>(&'d self, mut held: Option<Held<'d>>, now: Time) {
        let mut touched = None;
        drop(self.let_go(&mut held, &mut touched, now));
        self.touch(touched);
    }

    /// Lets go of a queue pair; returns what it had pinned, for the next one. Its path is listed on the device with `touched`, once for
    /// all queue pairs of it.
    fn let_go<'d>(
        &'d self,
        held: &mut Option<Held<'d>>,
        touched: &mut Option<(u32, IpAddr)>,
        now: Time,
    ) -> Pins<'d> {
        let no_pins = || Pins::new(&self.memory);
        let Some(Held { index, guard, context }) = held else { return no_pins() };
        let index = *index;
        let pins = std::mem::replace(&mut context.pins, no_pins());
        let Some(qp) = guard.as_deref_mut() else { return pins };
        self.settle_timer(index, qp);
        let (path, wants_to_send) = (qp.path, qp.wants_to_send(now));
        let others_wait = path
            .and_then(|(index, _)| self.paths.at(index))
            .is_some_and(|path| path.has_blocked.load(Ordering::Acquire));
        if others_wait || qp.is_urgent(now) {
            self.urgent.store(true, Ordering::Release);
        }
        *held = None;
        if wants_to_send {
            self.list(index, path);
        }
        // In any case: acknowledgements may have opened the window for other queue pairs, which it had stopped.
        if touched.is_some() && *touched != path {
            self.touch(*touched);
        }
        *touched = path;
        pins
    }
}
