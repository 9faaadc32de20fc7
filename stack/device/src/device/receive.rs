//! Delivers datagrams to queue pairs.
//!
//! A [`Datagrams`] is one or several UDP datagrams of one flow that the port received at once. Each
//! datagram is a segment, and holds one packet.
//!
//! ```text
//!   comes in                is decided by                       goes out
//!   ----------------------  ----------------------------------  ------------------------------
//!   a segment               accept (accept.rs): shape, ICRC     a PacketView, or a counter
//!   its headers; which      next_step                           a Step
//!   queue pair is locked
//!   Step::Deliver           dispatch: has a path, peer, P_Key   Qp::on_packet, or a counter
//!   Step::Switch            collects_ack: does the ACK of the   the QP unlocked: its ACK to the
//!                           QP unlocked leave with others       AckBatch, the QP to its path's
//!                                                               list; then Deliver
//!   Step::Notify            receive_cnp: which queue pair       the window of its path
//!   Step::Group             multicast.rs                        a copy to each member
//!   Step::Unmatched         the caller of receive               its position in Unmatched
//!   a marked packet         on_mark                             a CNP on the path, or none
//!   the end                                                     the path on the device's list
//! ```
//!
//! Consecutive packets for one queue pair, as in a run of the peer, are handled under one lock and
//! with one set of pins. A counter names the reason of every dropped packet.

use std::mem;
use std::net::IpAddr;
use std::sync::atomic::AtomicU8;

use urxe_wire::packet::MAX_HEADERS_LEN;
use urxe_wire::{Kind, Opcode, PacketView, Qpn};

use super::accept::{IcrcCheck, IcrcPolicy, MAX_SEGMENTS, Octet};
use super::counters::Counter;
use super::objects::GSI_QPN;
use super::{Device, QpHandle, QpSlot};
use crate::path::OpenPath;
use crate::path::acks::{self, Ack, AckBatch};
use crate::qp::Qp;
use crate::qp::completion_batch::BatchQueues;
use crate::qp::context::QpContext;
use urxe_types::port::Datagrams;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{MutexGuard, lock, try_lock};
use urxe_types::time::Time;
use urxe_wire::ecn;
use urxe_wire::network_header::Arrival;

/// The state that a receiving thread keeps between datagrams.
#[derive(Debug, Default)]
pub struct ReceiveScratch {
    icrc: IcrcCheck,
    /// The queue pairs that get the packets to a multicast group.
    members: Vec<QpHandle>,
    /// Acknowledgements of queue pairs whose packets came in one run.
    acks: AckBatch,
    /// The record of packets for other process slots, and for QP0 and QP1. With a record, processes
    /// share the address and QP1. `None`: this device alone has the address. Then QP1 is its own,
    /// and packets for other process slots and QP0 are dropped.
    pub unmatched: Option<Unmatched>,
}

impl ReceiveScratch {
    /// Returns a state that records packets that are not for this device.
    #[must_use]
    pub fn collecting_unmatched() -> Self {
        Self { unmatched: Some(Unmatched::default()), ..Self::default() }
    }
}

/// The intact packets of the last datagrams that this device must not handle. They are for queue
/// pairs of another process slot, or for the two management queue pairs that processes share.
#[derive(Debug)]
pub struct Unmatched {
    segments: [u16; MAX_SEGMENTS as usize],
    count: usize,
}

impl Default for Unmatched {
    fn default() -> Self {
        Self { segments: [0; MAX_SEGMENTS as usize], count: 0 }
    }
}

impl Unmatched {
    /// Returns the positions of the packets among the segments, in order.
    #[must_use]
    pub fn segments(&self) -> &[u16] {
        &self.segments[..self.count]
    }

    /// Records a packet. Returns whether there was room.
    fn record(&mut self, segment: usize) -> bool {
        let place = self.segments.get_mut(self.count);
        let recorded = place.is_some();
        if let Some(place) = place {
            *place = segment as u16;
            self.count += 1;
        }
        recorded
    }
}

/// The facts that decide the next step with a packet.
#[derive(Clone, Copy, Debug)]
struct PacketFacts {
    kind: Kind,
    dest_qp: Qpn,
    /// The datagram was sent to a multicast group.
    to_group: bool,
    /// The queue pair that is locked.
    locked: Option<Qpn>,
    /// Processes share the address, and with it QP1.
    shares_gsi: bool,
}

/// The next step with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The packet is for the queue pair that is locked.
    Deliver,
    /// The packet is for the queue pair at this index, which must be locked instead.
    Switch(u32),
    /// The packet is a congestion notification.
    Notify,
    /// The packet is for every queue pair attached to its multicast group.
    Group,
    /// The packet is for another process, or for QP1, whose process only the MAD names. The caller
    /// handles it.
    Unmatched,
}

/// Decides the next step with a packet. `index_of` returns the index that a queue pair's number
/// names, or `None` for the numbers of other process slots. [`Device::dispatch`] checks later
/// whether the queue pair at the index has the number now.
#[inline(always)] // called in one place, for each packet
fn next_step(packet: PacketFacts, index_of: impl FnOnce(Qpn) -> Option<u32>) -> Step {
    if packet.kind == Kind::Cnp {
        Step::Notify
    } else if packet.to_group || packet.dest_qp == Qpn::MULTICAST {
        Step::Group
    } else if packet.locked == Some(packet.dest_qp) {
        Step::Deliver
    } else if packet.shares_gsi && packet.dest_qp == GSI_QPN {
        Step::Unmatched
    } else {
        index_of(packet.dest_qp).map_or(Step::Unmatched, Step::Switch)
    }
}

/// The packets after those of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPacket {
    /// There are packets for another queue pair.
    OtherQp,
    /// The datagrams end.
    End,
}

/// Returns whether the batch takes the acknowledgement of a queue pair that is unlocked: several
/// queue pairs have one in this run. A single acknowledgement stays for a reply that takes it
/// along.
#[inline(always)]
fn collects_ack(next: NextPacket, batch_is_empty: bool) -> bool {
    next == NextPacket::OtherQp || !batch_is_empty
}

/// Returns whether the datagrams are request packets with an ACK behind them. That ACK is then
/// handled first.
///
/// A peer's program that replies to a message posts requests, and the ACK of that message may
/// arrive behind them. Hardware sends the ACK first, and programs rely on that order: perftest
/// before 23 takes the first event of its one channel for its SEND. READ responses before an ACK
/// keep their order, because the ACK covers them.
///
/// The result decides only the order of the packets. So it does not matter if another process
/// changes an opcode afterwards.
fn ends_with_acknowledgement<T: Octet>(datagrams: &Datagrams<'_, T>, count: usize) -> bool {
    let info = |packet: &[T]| T::first(packet).and_then(Opcode::lookup);
    // Without a segment, `segment` returns an empty slice.
    let last = datagrams.segment(count.saturating_sub(1));
    count > 1
        && last.len() == Ack::LEN
        && info(last).is_some_and(|info| info.kind == Kind::Ack)
        && datagrams
            .segments()
            .take(count - 1)
            .all(|packet| info(packet).is_some_and(|info| info.is_request))
}

/// A queue pair locked for the packets of one run.
struct LockedQp<'a> {
    index: u32,
    /// The number that the packets name.
    qpn: Qpn,
    slot: &'a QpSlot,
    guard: MutexGuard<'a, Option<Qp>>,
    /// Requests were delivered, which the queue pair may have to acknowledge.
    got_request: bool,
}

/// One call of [`Device::receive`]. At most one queue pair is locked. The acknowledgements of the
/// queue pairs before it are gathered for one path at a time.
struct Reception<'r, 'd> {
    device: &'d Device,
    /// Borrowed, because a move for each call would be too slow.
    context: &'r mut QpContext<'d>,
    locked: Option<LockedQp<'d>>,
    /// The path of the queue pairs unlocked so far. The path is not yet listed on the device, and
    /// `acks` are not yet on the path.
    path: Option<OpenPath>,
    /// A queue pair so far has more to send than an acknowledgement, or a congestion notification
    /// waits. [`Device::mark_received`] stores this in the device after it has listed the path. Not
    /// reset for another path, because the device has one flag for all paths.
    has_data: bool,
    /// Acknowledgements for that path.
    acks: &'r mut AckBatch,
    /// The source address of the datagrams.
    from: IpAddr,
    /// A router marked the datagrams.
    is_marked: bool,
}

impl<'d> Reception<'_, 'd> {
    /// Locks the queue pair at `index` instead of the present one. From the second queue pair on,
    /// the context keeps one completion queue of `queues` locked while ACKs for several queue pairs
    /// follow each other (`qp/completion_batch.rs`).
    // Inlined, as are the functions below: many queue pairs in a run mean one call of each a
    // packet.
    #[inline(always)]
    fn switch_qp(&mut self, index: u32, qpn: Qpn, queues: &'d BatchQueues) {
        if self.locked.is_some() {
            self.context.batched_cq.enable(queues);
        }
        self.unlock_qp(NextPacket::OtherQp);
        self.locked = self.device.lock_qp(index, qpn, self.context);
    }

    /// Unlocks the queue pair, if one is locked. The batch may take its acknowledgement. If the
    /// batch is for another path, that path is listed first.
    #[inline(always)]
    fn unlock_qp(&mut self, next: NextPacket) {
        let Some(locked) = self.locked.take() else { return };
        let collects_ack = collects_ack(next, self.acks.is_empty());
        let path = self.context.path.opened(self.context.path_index);
        // `move_context` committed the credit of the other path when the context left that path.
        if let Some(other) = self.path.take_if(|other| *other != path) {
            self.device.mark_received(other, self.acks, self.has_data);
        }
        let batch = collects_ack.then_some(&mut *self.acks);
        if let Some((path, has_data)) = self.device.unlock_qp(locked, self.context, batch) {
            self.path = Some(path);
            self.has_data |= has_data;
        }
    }

    /// Gives a packet to the queue pair that is locked.
    #[inline(always)]
    fn deliver(&mut self, packet: &PacketView<'_>, identification: u16) {
        let Some(locked) = &mut self.locked else {
            return self.device.counters.add(Counter::DropNoQp);
        };
        if let Some(arrival) = &mut self.context.arrival {
            arrival.identification = identification;
        }
        // Before the packet changes what is expected.
        let reports_mark =
            self.is_marked && locked.guard.as_ref().is_some_and(|qp| qp.believes_mark(packet));
        let is_delivered = self.device.dispatch(locked, self.context, self.from, packet);
        if reports_mark && is_delivered {
            self.has_data |= self.device.on_mark(locked.guard.as_mut(), self.context, packet);
        }
    }

    /// Unlocks the queue pair and the completion queue, commits the credit, and lists the path.
    #[inline(always)]
    fn finish(mut self) {
        self.unlock_qp(NextPacket::End);
        self.context.batched_cq.release();
        self.context.commit();
        if let Some(path) = self.path {
            self.device.mark_received(path, self.acks, self.has_data);
        }
    }
}

fn arrival<T>(datagrams: &Datagrams<'_, T>, identification: u16) -> Arrival {
    Arrival {
        from: datagrams.from,
        to: datagrams.to,
        traffic_class: datagrams.traffic_class,
        hop_limit: datagrams.hop_limit,
        identification,
    }
}

impl Device {
    /// Handles datagrams that arrived. Packets that they cause leave with the next
    /// [`transmit_pending`](Self::transmit_pending).
    pub fn receive(&self, now: Time, datagrams: &Datagrams<'_>, scratch: &mut ReceiveScratch) {
        self.receive_with(now, datagrams, scratch, self.icrc_policy);
    }

    /// Handles datagrams that never left the memory of this host. Their ICRCs are not checked,
    /// because the sender may have written zeros ([`SendInMemory`]).
    ///
    /// [`SendInMemory`]: urxe_types::port::SendInMemory
    pub fn receive_in_memory(
        &self,
        now: Time,
        datagrams: &Datagrams<'_>,
        scratch: &mut ReceiveScratch,
    ) {
        self.receive_with(now, datagrams, scratch, IcrcPolicy::Off);
    }

    /// Handles datagrams as [`receive_in_memory`](Self::receive_in_memory) does, in memory that
    /// another process can change. Headers are copied before they are checked. Each byte of the
    /// payload is read once, when it is copied to the memory of the program.
    pub fn receive_shared(
        &self,
        now: Time,
        datagrams: &Datagrams<'_, AtomicU8>,
        scratch: &mut ReceiveScratch,
    ) {
        self.receive_with(now, datagrams, scratch, IcrcPolicy::Off);
    }

    fn receive_with<T: Octet>(
        &self,
        now: Time,
        datagrams: &Datagrams<'_, T>,
        scratch: &mut ReceiveScratch,
        policy: IcrcPolicy,
    ) {
        let ReceiveScratch { icrc, members, acks, unmatched } = scratch;
        let count = datagrams.segments().len();
        // Before the first return, because the caller reads the positions after each call.
        if let Some(unmatched) = unmatched {
            unmatched.count = 0;
        }
        let Some(seed) = icrc.seed(datagrams) else {
            // Source and destination are of different IP versions.
            return self.counters.add_many(Counter::DropMalformed, count as u64);
        };
        self.members_for(datagrams.to, members);
        let (to_group, shares_gsi) = (datagrams.to.is_multicast(), unmatched.is_some());
        let queues = BatchQueues::default();
        let mut context = self.context(now, None);
        context.arrival = Some(arrival(datagrams, 0));
        context.from_port = datagrams.from_port;
        let context = &mut context;
        let (from, is_marked) = (datagrams.from, ecn::is_marked(datagrams.traffic_class));
        let mut reception = Reception {
            device: self,
            context,
            locked: None,
            path: None,
            has_data: false,
            acks,
            from,
            is_marked,
        };
        let (mut received, mut headers) = (0, [0; MAX_HEADERS_LEN]);
        let last_first = usize::from(ends_with_acknowledgement(datagrams, count));
        for segment in (count - last_first..count).chain(0..count - last_first) {
            let part = (datagrams.segment(segment), segment);
            let accepted = self.accept(&seed, icrc, policy, part, &mut headers);
            let Some((packet, identification)) = accepted else { continue };
            received += 1;
            let (kind, dest_qp) = (packet.info().kind, packet.dest_qp());
            if kind != Kind::Ack {
                // Only ACKs are handled while the completion queue stays locked.
                reception.context.batched_cq.release();
            }
            let locked = reception.locked.as_ref().map(|locked| locked.qpn);
            let facts = PacketFacts { kind, dest_qp, to_group, locked, shares_gsi };
            match next_step(facts, |qpn| self.index_of(qpn)) {
                Step::Deliver => reception.deliver(&packet, identification),
                Step::Switch(index) => {
                    reception.switch_qp(index, dest_qp, &queues);
                    reception.deliver(&packet, identification);
                }
                Step::Notify => {
                    reception.unlock_qp(NextPacket::OtherQp);
                    reception.context.release_locks();
                    self.receive_cnp(now, from, &packet);
                }
                Step::Group => {
                    reception.unlock_qp(NextPacket::OtherQp);
                    reception.context.release_locks();
                    let arrival = arrival(datagrams, identification);
                    self.receive_from_group(now, &packet, arrival, members);
                }
                Step::Unmatched => self.record_unmatched(dest_qp, segment, unmatched.as_mut()),
            }
        }
        reception.finish();
        self.counters.add_many(Counter::RcvdPkts, received);
        self.counters.add_many(Counter::IcrcExact, mem::take(&mut icrc.exact));
    }

    /// Handles a datagram for queue pair 1 that [`receive`](Self::receive) recorded as unmatched
    /// and that the caller found to be for this process. `datagrams` must hold no other packet.
    pub fn receive_management(&self, now: Time, datagrams: &Datagrams<'_>) {
        let Ok(packet) = PacketView::parse(datagrams.bytes) else {
            return self.counters.add(Counter::DropMalformed);
        };
        let index = self.gsi.load(Ordering::Acquire);
        self.receive_alone(now, index, GSI_QPN, &packet, arrival(datagrams, 0));
    }

    /// Returns the index that the number names, whether or not a queue pair has that number now.
    /// Returns `None` for the numbers of other process slots.
    pub(super) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        if qpn == GSI_QPN {
            // Without a queue pair 1 this is `NO_GSI`, for which `lock_qp` finds no queue pair.
            return Some(self.gsi.load(Ordering::Acquire));
        }
        self.numbers.index(qpn)
    }

    /// Records a packet that is not for this device. Drops and counts the packet if there is no
    /// record or no room. No port delivers more than [`MAX_SEGMENTS`] packets in one call.
    #[cold]
    fn record_unmatched(&self, qpn: Qpn, segment: usize, unmatched: Option<&mut Unmatched>) {
        let recorded = unmatched.is_some_and(|unmatched| unmatched.record(segment));
        if !recorded {
            self.counters.add(if qpn == Qpn::QP0 || qpn == GSI_QPN {
                Counter::DropNoQp
            } else {
                Counter::DropOtherProcess
            });
        }
    }

    /// Locks a queue pair for packets. `context` belongs to the queue pair before it and keeps its
    /// pins.
    #[inline(always)]
    fn lock_qp<'d>(
        &'d self,
        index: u32,
        qpn: Qpn,
        context: &mut QpContext<'d>,
    ) -> Option<LockedQp<'d>> {
        let slot = self.qps.at(index)?;
        let guard = match try_lock(&slot.qp) {
            Some(guard) => guard,
            None => {
                context.release_locks();
                lock(&slot.qp)
            }
        };
        self.move_context(context, guard.as_ref()?.path);
        Some(LockedQp { index, qpn, slot, guard, got_request: false })
    }

    /// Gives a packet to the queue pair that is locked, if the packet names it, comes `from` its
    /// peer and has its P_Key. Otherwise counts the reason. Returns whether the packet was
    /// delivered.
    fn dispatch(
        &self,
        locked: &mut LockedQp<'_>,
        context: &mut QpContext<'_>,
        from: IpAddr,
        packet: &PacketView<'_>,
    ) -> bool {
        let dropped = |counter| {
            self.counters.add(counter);
            false
        };
        let qp = locked.guard.as_mut().filter(|qp| qp.core.qpn == locked.qpn);
        let Some(qp) = qp else { return dropped(Counter::DropNoQp) };
        match qp.path {
            _ if qp.core.qp_type.is_datagram() => {}
            Some((_, peer)) if peer == from => {}
            Some((_, peer)) => {
                tracing::debug!(qp = %qp.core.qpn, %from, %peer, "dropped: not from the peer");
                return dropped(Counter::DropWrongSource);
            }
            None => return dropped(Counter::DropNotReady),
        }
        if !qp.core.pkey.matches(packet.pkey()) {
            return dropped(Counter::DropWrongPkey);
        }
        locked.got_request |= packet.info().is_request;
        qp.on_packet(packet, context);
        true
    }

    /// Delivers one packet to the queue pair at `index`, if its number is `qpn`.
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
        let Some(mut locked) = self.lock_qp(index, qpn, &mut context) else {
            return self.counters.add(Counter::DropNoQp);
        };
        self.dispatch(&mut locked, &mut context, arrival.from, packet);
        context.commit();
        if let Some((path, has_data)) = self.unlock_qp(locked, &context, None) {
            self.mark_received(path, &mut AckBatch::default(), has_data);
        }
    }

    /// Unlocks a queue pair. Returns its path, and whether it has more to send than an
    /// acknowledgement. `batch` takes the acknowledgement, if the queue pair has nothing else to
    /// send: otherwise `Qp::take_ack` returns none.
    ///
    /// The caller must list the path on the device, once for all its queue pairs. That holds even
    /// if none has anything to send, because acknowledgements may have returned credit to others.
    #[inline(always)]
    fn unlock_qp(
        &self,
        mut locked: LockedQp<'_>,
        context: &QpContext<'_>,
        batch: Option<&mut AckBatch>,
    ) -> Option<(OpenPath, bool)> {
        let now = context.now;
        let qp = locked.guard.as_mut()?;
        let path = qp.path.filter(|(index, _)| *index == context.path_index);
        let path = path.map(|(index, _)| context.path.opened(index));
        if path.is_some()
            && let Some(batch) = batch.filter(|_| locked.got_request)
            && let Some(ack) = qp.take_ack(now)
        {
            batch.push(locked.index, ack);
        }
        let hint = qp.scheduling_hint(now);
        self.settle_timer(locked.index, qp, hint.deadline);
        let path = path?;
        if hint.wants_to_send {
            context.path.ready.push_alone(locked.index, &locked.slot.link);
        }
        Some((path, hint.has_data_to_send))
    }

    /// Lists a path after packets for its queue pairs, and leaves the batch of their
    /// acknowledgements with it. The credit must be committed. Data are pending if queue pairs wait
    /// for credit.
    pub(super) fn mark_received(&self, opened: OpenPath, batch: &mut AckBatch, mut has_data: bool) {
        let path = self.path_at(opened.index);
        if !batch.is_empty() {
            let (waiting, dropped) = path.add_acks(opened, batch.drain());
            has_data |= waiting >= acks::FLUSH_THRESHOLD;
            self.counters.add_many(Counter::SendErr, dropped as u64);
        }
        self.ready_paths.push(opened.index, &path.link);
        // After the path is listed, because a thread that sends clears `data_pending` before it
        // takes the list.
        if has_data || path.has_blocked.load(Ordering::Acquire) {
            self.data_pending.store(true, Ordering::Release);
        }
    }

    /// Handles the mark of a router on `packet`, which was delivered to `qp`. The queue pair
    /// believes the mark. Marks on packets without data are ignored, because no window limits them.
    /// Returns whether a congestion notification waits at the path.
    #[cold]
    pub(super) fn on_mark(
        &self,
        qp: Option<&mut Qp>,
        context: &QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> bool {
        let qp = qp.filter(|qp| packet.payload_len() > 0 && qp.is_ecn_capable());
        let Some(qp) = qp else { return false };
        self.counters.add(Counter::EcnMarked);
        if packet.info().kind == Kind::ReadResponse {
            context.path.window.on_marked_responses(context.now);
        }
        qp.take_cnp(context.now).is_some_and(|cnp| {
            let (_, dropped) = context.path.cnps.add(std::iter::once(cnp));
            dropped == 0
        })
    }

    /// Handles a congestion notification. The caller must hold no queue pair.
    #[cold]
    pub(super) fn receive_cnp(&self, now: Time, from: IpAddr, packet: &PacketView<'_>) {
        let slot = self.index_of(packet.dest_qp()).and_then(|index| self.qps.at(index));
        let sends_on = |qp: &Qp| {
            let (path, peer) = qp.path?;
            let is_its = qp.core.qpn == packet.dest_qp()
                && qp.is_ecn_capable()
                && peer == from
                && qp.core.pkey.matches(packet.pkey());
            is_its.then_some(path)
        };
        let path = slot.and_then(|slot| lock(&slot.qp).as_ref().and_then(sends_on));
        match path.and_then(|index| self.paths.at(index)) {
            Some(path) => {
                path.window.on_cnp(now);
                self.counters.add(Counter::CnpHandled);
            }
            None => self.counters.add(Counter::CnpIgnored),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
