//! From a datagram to the queue pairs: shape, ICRC, destination, source, then the queue pair
//! itself.
//!
//! Consecutive packets for one queue pair, as in a run that the peer sent, are handled under one
//! lock and one set of pins. Every packet that is dropped moves a counter that says why.

use std::net::IpAddr;

use urxe_wire::{IcrcSeed, IcrcSolver, IcrcVerdict, Kind, Opcode, PacketView, Qpn, ROCE_PORT};

use super::counters::Counter;
use super::verbs::GSI_QPN;
use super::{Device, QpHandle, QpSlot};
use crate::path::acks::{self, Ack, AckBatch};
use crate::qp::Qp;
use crate::qp::completions::Queues;
use crate::qp::context::Context;
use urxe_types::port::Datagrams;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{MutexGuard, lock, try_lock};
use urxe_types::time::Time;
use urxe_wire::ecn;
use urxe_wire::network_header::Arrival;

/// The most packets of a run on any port, and so the identifications that our own senders use.
const MAX_SEGMENTS: u16 = 128;

/// How received ICRCs are checked. A UDP socket does not show the IPv4 identification that the ICRC
/// covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcrcPolicy {
    /// Only the identifications that this stack's own senders use pass. The kernel's `rdma_rxe`
    /// uses others.
    Strict,
    /// A packet passes if any identification explains its ICRC; a damaged one does with a chance of
    /// 2^-16.
    #[default]
    Solve,
    /// The ICRC is not looked at.
    Off,
}

/// What a receiving thread keeps between datagrams.
#[derive(Debug, Default)]
pub struct ReceiveScratch {
    solver: IcrcSolver,
    /// How datagrams came last, and what the ICRCs of such begin with.
    seed: Option<(Way, IcrcSeed)>,
    /// Whom packets to a multicast group are for.
    members: Vec<QpHandle>,
    /// Packets whose ICRC is right for their place, not counted yet: a counter is shared, this is
    /// not.
    exact: u64,
    /// Acknowledgements of queue pairs that came in one run.
    acks: AckBatch,
    /// Notes the packets that are for another process, or for QP0 and QP1; they are dropped if
    /// nobody asks.
    pub strays: Option<Strays>,
}

/// Address and port that datagrams came from, and the address that they came to.
type Way = (IpAddr, u16, IpAddr);

impl ReceiveScratch {
    /// One that notes packets that are not the device's.
    #[must_use]
    pub fn noting_strays() -> Self {
        Self { strays: Some(Strays::default()), ..Self::default() }
    }

    /// What the ICRCs of `datagrams` begin with; most often they came as those before. `None` if
    /// the IP versions differ.
    fn seed(&mut self, datagrams: &Datagrams<'_>) -> Option<IcrcSeed> {
        let way = (datagrams.from, datagrams.from_port, datagrams.to);
        if let Some((of, seed)) = self.seed
            && of == way
        {
            return Some(seed);
        }
        let seed = IcrcSeed::new(way.0, way.1, way.2, ROCE_PORT)?;
        self.seed = Some((way, seed));
        Some(seed)
    }
}

/// Packets of the datagrams received last that are whole and not this device's to handle: for queue
/// pairs of another process slot, or for the two queue pairs of management that processes share.
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
struct Held<'a> {
    index: u32,
    /// The number that its packets name.
    qpn: Qpn,
    slot: &'a QpSlot,
    guard: MutexGuard<'a, Option<Qp>>,
    /// Requests were among them, which it may have to acknowledge.
    was_asked: bool,
}

/// What comes after the queue pair that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Packets for another.
    Other,
    /// The end of the run.
    Nothing,
}

/// Whether requests came, and behind them an acknowledgement. It tells of what was asked before,
/// and who waits for that must not hear of the peer's reply first: hardware acknowledges at once,
/// and programs have come to lean on it (perftest before 23 takes the first event of its one
/// channel for that of its SEND). Answers keep their order, in which an acknowledgement stands for
/// all before it.
fn ends_with_acknowledgement(datagrams: &Datagrams<'_>, count: usize) -> bool {
    let info = |packet: &[u8]| packet.first().and_then(|opcode| Opcode::lookup(*opcode));
    let last = datagrams.segment(count.saturating_sub(1));
    count > 1
        && last.len() == Ack::LEN
        && info(last).is_some_and(|info| info.kind == Kind::Ack)
        && datagrams
            .segments()
            .take(count - 1)
            .all(|packet| info(packet).is_some_and(|info| info.is_request))
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
        let Some(seed) = scratch.seed(datagrams) else {
            return self
                .counters
                .add_many(Counter::DropMalformed, datagrams.segments().len() as u64);
        };
        if let Some(strays) = &mut scratch.strays {
            strays.count = 0;
        }
        self.members_for(datagrams, &mut scratch.members);
        let to_group = datagrams.to.is_multicast();
        let is_marked = ecn::is_marked(datagrams.traffic_class);
        let queues = Queues::default();
        let mut context = self.context(now, None);
        context.arrival = Some(arrival(datagrams, 0));
        let mut held: Option<Held<'_>> = None;
        let mut touched = None;
        let mut received = 0;
        let count = datagrams.segments().len();
        // The acknowledgement that rides behind a reply is taken before it, as if it had been sent
        // first.
        let first = if ends_with_acknowledgement(datagrams, count) { count - 1 } else { 0 };
        for turn in 0..count {
            let segment = if first == 0 { turn } else { (turn + first) % count };
            let bytes = datagrams.segment(segment);
            let Some((packet, identification)) = self.accept(&seed, scratch, bytes, segment) else {
                continue;
            };
            received += 1;
            if packet.info().kind != Kind::Ack {
                context.carried.let_go();
            }
            if packet.info().kind == Kind::Cnp {
                self.leave(held.take(), &context, &mut touched, &mut scratch.acks, Next::Other);
                self.receive_cnp(now, datagrams.from, &packet);
                continue;
            }
            if to_group || packet.dest_qp() == Qpn::MULTICAST {
                self.leave(held.take(), &context, &mut touched, &mut scratch.acks, Next::Other);
                context.release_locks();
                self.receive_from_group(
                    now,
                    &packet,
                    arrival(datagrams, identification),
                    &scratch.members,
                );
                continue;
            }
            let qpn = packet.dest_qp();
            if held.as_ref().is_none_or(|held| held.qpn != qpn) {
                // Where processes share an address, they share its QP1.
                let is_shared = qpn == GSI_QPN && scratch.strays.is_some();
                let Some(index) = self.index_of(qpn).filter(|_| !is_shared) else {
                    self.stray(qpn, segment, scratch);
                    continue;
                };
                if held.is_some() {
                    context.carried.begin(&queues);
                }
                self.leave(held.take(), &context, &mut touched, &mut scratch.acks, Next::Other);
                held = self.hold(index, qpn, &mut context);
            }
            match &mut held {
                Some(held) => {
                    if let Some(arrival) = &mut context.arrival {
                        arrival.identification = identification;
                    }
                    self.dispatch(held, &mut context, datagrams.from, &packet);
                    if is_marked {
                        self.on_mark(held.guard.as_mut(), &context, &packet);
                    }
                }
                None => self.counters.add(Counter::DropNoQp),
            }
        }
        self.leave(held, &context, &mut touched, &mut scratch.acks, Next::Nothing);
        context.carried.let_go();
        context.settle();
        if let Some(path) = touched {
            self.leave_at(path, &mut scratch.acks);
        }
        self.counters.add_many(Counter::RcvdPkts, received);
        self.counters.add_many(Counter::IcrcExact, std::mem::take(&mut scratch.exact));
    }

    /// Lets go of the queue pair that is held, if one is. `touched`: the path of those before it,
    /// and of what is in `batch`.
    // As is what follows: many queue pairs in a run mean one call of each a packet.
    #[inline(always)]
    fn leave(
        &self,
        held: Option<Held<'_>>,
        context: &Context<'_>,
        touched: &mut Option<u32>,
        batch: &mut AckBatch,
        next: Next,
    ) {
        let Some(held) = held else { return };
        let is_one_of_many = next == Next::Other || !batch.is_empty();
        if is_one_of_many && let Some(other) = touched.take_if(|index| *index != context.path_index)
        {
            self.leave_at(other, batch);
        }
        if let Some(path) = self.let_go(held, context, is_one_of_many.then_some(batch))
            && let Some(other) = touched.replace(path).filter(|other| *other != path)
        {
            self.touch(other);
        }
    }

    /// Takes a datagram for queue pair 1 that [`receive`](Self::receive) noted as a stray, having
    /// found it whole, and that turned out to be for this process. `datagrams` holds nothing else.
    pub fn receive_management(&self, now: Time, datagrams: &Datagrams<'_>) {
        let Ok(packet) = PacketView::parse(datagrams.bytes) else { return };
        let index = self.gsi.load(Ordering::Acquire);
        self.receive_alone(now, index, GSI_QPN, &packet, arrival(datagrams, 0));
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
            (IcrcVerdict::Solved { identification }, IcrcPolicy::Strict)
                if identification < MAX_SEGMENTS =>
            {
                self.counters.add(Counter::IcrcSolved);
            }
            (IcrcVerdict::Solved { .. }, IcrcPolicy::Solve) => {
                self.counters.add(Counter::IcrcSolved)
            }
            _ => {
                tracing::debug!(qp = %packet.dest_qp(), psn = %packet.psn(), "dropped: wrong ICRC");
                self.counters.add(Counter::DropIcrc);
                return None;
            }
        }
        let identification = match verdict {
            IcrcVerdict::Exact { identification } | IcrcVerdict::Solved { identification } => {
                identification
            }
            IcrcVerdict::Bad => 0,
        };
        Some((packet, identification))
    }

    pub(super) fn index_of(&self, qpn: Qpn) -> Option<u32> {
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

    /// Locks a queue pair for packets. The context is that of the one before it, with what that had
    /// pinned.
    #[inline(always)]
    fn hold<'d>(&'d self, index: u32, qpn: Qpn, context: &mut Context<'d>) -> Option<Held<'d>> {
        let slot = self.qps.at(index)?;
        let guard = match try_lock(&slot.qp) {
            Some(guard) => guard,
            None => {
                // No pins, and no completion queue, while waiting for a queue pair: who has it may
                // be waiting for them.
                context.release_locks();
                lock(&slot.qp)
            }
        };
        self.move_context(context, guard.as_ref()?.path);
        Some(Held { index, qpn, slot, guard, was_asked: false })
    }

    /// Gives a packet, which came `from` there, to the queue pair that is held, if that is who it
    /// is for.
    fn dispatch(
        &self,
        held: &mut Held<'_>,
        context: &mut Context<'_>,
        from: IpAddr,
        packet: &PacketView<'_>,
    ) {
        let qp = held.guard.as_mut().filter(|qp| qp.core.qpn == held.qpn);
        let Some(qp) = qp else { return self.counters.add(Counter::DropNoQp) };
        match qp.path {
            _ if qp.core.qp_type.is_datagram() => {}
            Some((_, peer)) if peer == from => {}
            Some((_, peer)) => {
                tracing::debug!(qp = %qp.core.qpn, %from, %peer, "dropped: not from the peer");
                return self.counters.add(Counter::DropWrongSource);
            }
            None => return self.counters.add(Counter::DropNotReady),
        }
        if !qp.core.pkey.matches(packet.pkey()) {
            return self.counters.add(Counter::DropWrongPkey);
        }
        held.was_asked |= packet.info().is_request;
        qp.on_packet(packet, context);
    }

    /// Handles one packet for the queue pair at `index`, if it is `qpn`.
    pub(super) fn receive_alone(
        &self,
        now: Time,
        index: u32,
        qpn: Qpn,
        packet: &PacketView<'_>,
        arrival: Arrival,
    ) {
        let mut context = self.context(now, None);
        context.arrival = Some(arrival);
        let Some(mut held) = self.hold(index, qpn, &mut context) else {
            return self.counters.add(Counter::DropNoQp);
        };
        self.dispatch(&mut held, &mut context, arrival.from, packet);
        context.settle();
        if let Some(path) = self.let_go(held, &context, None) {
            self.touch(path);
        }
    }

    /// Lets go of a queue pair; returns its path, which the caller lists on the device, once for
    /// all queue pairs of it. In any case: acknowledgements may have opened the window for other
    /// queue pairs, which it had stopped. `batch`: where its acknowledgement goes, if it has
    /// nothing else to send and others came in the same run.
    #[inline(always)]
    fn let_go(
        &self,
        mut held: Held<'_>,
        context: &Context<'_>,
        batch: Option<&mut AckBatch>,
    ) -> Option<u32> {
        let now = context.now;
        let qp = held.guard.as_mut()?;
        let path = qp.path.map(|(index, _)| index).filter(|index| *index == context.path_index);
        if path.is_some()
            && let Some(batch) = batch.filter(|_| held.was_asked)
            && let Some(ack) = qp.take_ack(now)
        {
            batch.push(held.index, ack);
        }
        let hint = qp.scheduling_hint(now);
        self.settle_timer(held.index, qp, hint.deadline);
        path?;
        if context.path.has_blocked.load(Ordering::Acquire) || hint.has_data_to_send {
            self.urgent.store(true, Ordering::Release);
        }
        if hint.wants_to_send {
            context.path.ready.push_alone(held.index, &held.slot.link);
        }
        path
    }

    /// Leaves a batch of acknowledgements with its path, and lists that.
    fn leave_at(&self, path: u32, batch: &mut AckBatch) {
        if !batch.is_empty() {
            let (waiting, dropped) = self.path_at(path).acks.add(batch.drain());
            if waiting >= acks::URGENT {
                self.urgent.store(true, Ordering::Release);
            }
            self.counters.add_many(Counter::SendErr, dropped as u64);
        }
        self.touch(path);
    }
}
