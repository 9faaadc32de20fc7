//! Fills runs with the packets of queue pairs and sends the runs.
//!
//! A run is a series of packets on one path that have one length; the last one may be shorter. A
//! port sends a run with one call. A path leads to one peer: it holds the route, the congestion
//! window and the queue pairs that use them (`path/mod.rs`).
//!
//! ```text
//!   comes in                  is decided by                          goes out
//!   ------------------------  -------------------------------------  -----------------------------
//!   ready paths               Path::flush: one thread at a time      a call of drain for each path
//!   queue pairs of the path,  Scheduler::next (path/scheduler.rs)    a Turn
//!   ready and blocked
//!   a Turn                    Qp::transmit, called by fill           packets in the run, a status
//!   the status                Scheduler::record                      the queue in which the queue
//!                                                                    pair waits from now on
//!   half a burst was sent     Pacer::check_receiver: may the rest    a pause of the pacer, or none
//!                             follow?
//!   ACKs, CNPs of the path    append_control_packets: behind data    packets in the run
//!   a full run, the last run  send                                   Transmit::transmit, once each
//!
//!   drain: check_receiver -> begin -> next -> fill -> record -> end -> control packets -> send
//!                                      ^                │
//!                                      └── next turn ───┘ if the run is full: send, check_receiver
//! ```
//!
//! A call sends at most [`CALL_BYTES`], and a path at most [`PATH_BYTES`] before the other listed
//! paths have their turns. So an event at one peer, such as a READ request for gigabytes, occupies
//! the calling thread for a bounded time. Turns and paths that the budget leaves over stay listed,
//! in their order. [`Device::next_deadline`] is then in the past: the caller reads its sockets and
//! calls again. The budget of [`Device::transmit_of`] grows with the queue pairs of its path, so
//! that each queue pair that is listed has a turn.
//!
//! # Queue pairs without credit
//!
//! A [`Credit`] is the right to have bytes in flight on the path, or to request them by a READ.
//! A queue pair whose next packet lacks a credit returns [`TransmitStatus::Blocked`]. `fill`
//! sets `Qp::is_blocked`, and `Scheduler::record` puts the queue pair into the admission queue of
//! that credit. When credit returns, no function lists the blocked queue pair. The path is listed,
//! and the next `drain` tries its admission queues in order. These functions list the path:
//!
//! | credit returns with | function |
//! |---|---|
//! | an acknowledgement, a READ response, a NAK | `Device::mark_received` (`receive.rs`) |
//! | a timeout: a queue pair sends again or gives up | `Device::on_timer_entry` (`timeouts.rs`) |
//! | a queue pair that fails while it sends | `Device::fill` |
//! | a queue pair that leaves the path or fails by a verb | `Device::modify_qp` (`objects.rs`) |
//! | a queue pair that is destroyed | `Device::remove_qp` (`objects.rs`) |
//!
//! Credit does return: a path with nothing in flight admits a burst of any length
//! (`WindowCredit::has_room`). So while a queue pair is blocked, requests or responses of the path
//! are in flight.
//!
//! At its end, `drain` stores two flags in the path:
//!
//! - `Path::has_blocked`: queue pairs wait for some credit. `mark_received` reads the flag: then
//!   returned credit counts as pending data, which `transmit_urgent` sends.
//! - `Path::has_window_waiters`: queue pairs wait for the window. `Qp::is_blocked_at_post` reads
//!   the flag when requests are posted: a queue pair that finds no room joins the admission queue
//!   without a turn.
//!
//! # Pacing
//!
//! Unreliable services (UC, UD) take no credit, because no acknowledgement returns it.
//! `Qp::transmit` asks the path's [`Pacer`](crate::path::pacer::Pacer) instead. If the pacer names
//! a later time, the queue pair is idle, and its timer lists it at that time. The pacer only knows
//! what was sent. So `drain` calls `check_receiver` before the first run and after each run: after
//! each half burst the port looks at the receiver's socket, and the pacer pauses while that socket
//! is half full. Reliable services are not paced.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::counters::Counter;
use super::{Device, QpHandle, QpSlot};
use crate::path::acks::Ack;
use crate::path::admission_queue::AdmissionQueue;
use crate::path::ecn::Cnp;
use crate::path::ready::ReadyLink;
use crate::path::run::{RunBuffer, RunBytes, run_memory};
use crate::path::scheduler::{Scheduler, TransmitStatus, Turn, TurnQueues, TurnSource};
use crate::path::window::Credit;
use crate::path::{Path, PathKey, Route, Sender, Waiting};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::qp::context::QpContext;
use urxe_types::port::{MAX_RUN_BYTES, Run, SendInMemory, SendOutcome, Transmit};
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{lock, try_lock};
use urxe_types::time::Time;

/// The most bytes that a call sends, but for the run that uses up the budget. A packet counts as at
/// least [`PACKET_COST`] bytes.
const CALL_BYTES: u64 = 2 << 20;
/// The most bytes that a path sends before the other listed paths have their turns: four runs.
const PATH_BYTES: u64 = 256 << 10;
/// The least bytes that a packet counts, and a turn without a packet: the work is the same as for
/// so many bytes of payload.
const PACKET_COST: u64 = 256;

/// The arguments of a call that sends.
struct TransmitCall<'p> {
    now: Time,
    port: &'p dyn Transmit,
    /// The bytes that may still be sent on the present path.
    budget_bytes: u64,
    /// The bytes that were sent beyond the budget, because a turn that was begun is completed.
    overshoot_bytes: u64,
}

impl<'p> TransmitCall<'p> {
    fn new(now: Time, port: &'p dyn Transmit, budget_bytes: u64) -> Self {
        Self { now, port, budget_bytes, overshoot_bytes: 0 }
    }
}

impl Device {
    /// Sends the packets that can be sent now, up to 2 MiB. If more can be sent, the
    /// [deadline](Self::next_deadline) is in the past: the caller handles timeouts and calls again.
    #[inline]
    pub fn transmit_pending(&self, now: Time, port: &dyn Transmit) {
        self.transmit_within(now, port, CALL_BYTES);
    }

    /// Sends the packets that can be sent now, until `budget_bytes` were sent. `budget_bytes` must
    /// not be 0. A turn that was begun is completed, and adds at most a run. A short packet counts
    /// as 256 bytes. Acknowledgements and congestion notifications that left their queue pairs are
    /// sent as well and do not count.
    ///
    /// Returns whether the caller must call again, because paths are still listed.
    pub fn transmit_within(&self, now: Time, port: &dyn Transmit, budget_bytes: u64) -> bool {
        // Before the look at the list: a thread lists its paths before it sets the flag.
        if self.has_leftover.load(Ordering::Relaxed) {
            self.has_leftover.swap(false, Ordering::AcqRel);
        }
        if self.ready_paths.is_empty() {
            return false;
        }
        self.data_pending.store(false, Ordering::Release);
        let link_of = |index: u32| match self.paths.at(index) {
            Some(path) => &path.link,
            None => unreachable!("only paths that exist are listed"),
        };
        let mut left = budget_bytes;
        loop {
            self.ready_paths.take_all(link_of, |index| {
                let Some(path) = self.paths.at(index) else { return };
                path.link.unlist();
                if left == 0 {
                    return self.ready_paths.push(index, &path.link);
                }
                let share = left.min(PATH_BYTES);
                let mut call = TransmitCall::new(now, port, share);
                // If another thread sends on this path now, `flush` makes that thread drain the
                // path once more.
                path.flush(|sender| self.drain(index, path, sender, &mut call));
                // A path costs as much as a packet, because other threads may list paths without
                // end.
                let sent = share - call.budget_bytes + call.overshoot_bytes;
                left = left.saturating_sub(sent.max(PACKET_COST));
            });
            // Draining one path may list another: a queue pair that moved is enqueued there. A path
            // with turns left over lists itself.
            if self.ready_paths.is_empty() {
                return false;
            }
            if left == 0 {
                self.data_pending.store(true, Ordering::Release);
                self.has_leftover.store(true, Ordering::Release);
                self.timers.wake();
                return true;
            }
        }
    }

    /// Sends the packets that a queue pair has ready, its acknowledgement included. Unlike
    /// [`transmit_pending`](Self::transmit_pending), this function waits for a thread that is
    /// sending on the path. When the function returns, the port has taken the packets, unless they
    /// wait for credit or the pacer, or are more than a run. A run that the port dropped counts as
    /// `SendErr` and is not kept; the retransmission of the service applies.
    pub fn transmit_of(&self, handle: QpHandle, now: Time, port: &dyn Transmit) {
        let listed = self.with_slot(handle, |slot, qp| {
            self.enqueue(handle.index, slot, qp);
            qp.path
        });
        let Some(Some((index, _))) = listed else { return };
        let Some(path) = self.paths.at(index) else { return };
        // Other threads may list queue pairs without end. Those that are listed now have a turn of
        // at most a run each.
        let users = lock(&self.control).path_uses.get(index as usize).map_or(0, |used| used.users);
        let budget = CALL_BYTES.max(u64::from(users) * MAX_RUN_BYTES as u64);
        let mut call = TransmitCall::new(now, port, budget);
        path.flush_after_others(|sender| self.drain(index, path, sender, &mut call));
        if call.budget_bytes == 0 && !self.ready_paths.is_empty() {
            self.data_pending.store(true, Ordering::Release);
            self.has_leftover.store(true, Ordering::Release);
            self.timers.wake();
        }
    }

    /// Calls [`transmit_pending`](Self::transmit_pending) if data are pending. Data are pending if
    /// a received packet causes more than a few acknowledgements, if a post was deferred, or if a
    /// budget left turns over. A few acknowledgements may wait for a reply that takes them along.
    /// Posts, timeouts and verbs do not count, because their callers send afterwards. The caller
    /// must call `transmit_pending` within a millisecond.
    pub fn transmit_urgent(&self, now: Time, port: &dyn Transmit) {
        if self.data_pending.swap(false, Ordering::AcqRel) {
            self.transmit_pending(now, port);
        }
    }

    /// Returns whether [`transmit_pending`](Self::transmit_pending) has something to do.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.ready_paths.is_empty()
    }

    /// Lists a queue pair on its path, and the path on the device. The caller holds the lock of the
    /// queue pair.
    pub(super) fn enqueue(&self, index: u32, slot: &QpSlot, qp: &Qp) {
        let Some((path_index, _)) = qp.path else { return };
        let Some(path) = self.paths.at(path_index) else { return };
        path.ready.push_alone(index, &slot.link);
        self.ready_paths.push(path_index, &path.link);
    }

    /// Lists a queue pair's path on the device.
    pub(super) fn mark_path_ready(&self, path: Option<(u32, IpAddr)>) {
        let Some((path_index, _)) = path else { return };
        let Some(path) = self.paths.at(path_index) else { return };
        self.ready_paths.push(path_index, &path.link);
    }

    /// Fills and sends runs until no queue pair of the path has anything to send, or the credit or
    /// the budget of `call` is used up. Turns that the budget leaves over stay listed.
    #[inline(always)] // in two places, of which transmit_of is rare
    fn drain(
        &self,
        path_index: u32,
        path: &Path,
        sender: &mut Sender,
        call: &mut TransmitCall<'_>,
    ) {
        let (now, port) = (call.now, call.port);
        let Sender { route, run, waiting } = sender;
        let Some(route) = route else {
            // The path is closed, because no queue pair uses it.
            // ACKs and CNPs that other threads leave here meanwhile stay: `Path::open` drops them.
            self.requeue_moved(path_index, path, &mut waiting.queues.ready, now);
            return;
        };
        if run.is_none() {
            *run = run_memory().ok();
        }
        let Some(memory) = run else {
            // The system has no memory for runs. The queue pairs stay listed, and a later call
            // tries again.
            return self.ready_paths.push(path_index, &path.link);
        };
        let PathKey { local, peer, peer_slot, .. } = &route.key;
        let max_segments = self.max_run_segments.min(port.max_run_segments());
        let is_in_memory = port.with_memory(local, peer, *peer_slot, &mut |outlet| {
            let run = RunBuffer::new(memory, max_segments, None);
            self.drain_to_memory(path_index, path, route, run, waiting, call, outlet);
        });
        if !is_in_memory {
            let run = RunBuffer::new(memory, max_segments, Some(&route.icrc));
            self.drain_to(path_index, path, route, run, waiting, call, Outlet::Port(port));
        }
    }

    /// Does the work of [`drain`](Self::drain) for a path that stays in memory.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "as `drain_to`")]
    fn drain_to_memory<'b, 'm: 'b>(
        &self,
        path_index: u32,
        path: &Path,
        route: &Route,
        run: RunBuffer<'b>,
        waiting: &mut Waiting,
        call: &mut TransmitCall<'_>,
        outlet: &mut (dyn SendInMemory<'m> + 'm),
    ) {
        self.drain_to(path_index, path, route, run, waiting, call, Outlet::Memory(outlet));
    }

    /// Does the work of [`drain`](Self::drain) for an open path. Uses no port but `outlet`.
    #[inline(always)] // for each kind of outlet
    #[expect(clippy::too_many_arguments, reason = "the state of one call, in two places")]
    fn drain_to<'b, 'm: 'b>(
        &self,
        path_index: u32,
        path: &Path,
        route: &Route,
        mut run: RunBuffer<'b>,
        waiting: &mut Waiting,
        call: &mut TransmitCall<'_>,
        mut outlet: Outlet<'_, 'm>,
    ) {
        let now = call.now;
        let (run, outlet) = (&mut run, &mut outlet);
        let Waiting { queues, acks, cnps } = waiting;
        outlet.check_receiver(path, route, now);
        self.take_blocked_at_post(path, queues.admission(Credit::Send));
        let mut scheduler = Scheduler::begin(queues, call.budget_bytes);
        let mut context = self.context(now, Some((path_index, route.key.peer)));
        loop {
            if let Some(ready) = scheduler.ready_to_refill() {
                self.take_ready(path, ready);
            }
            let turn = scheduler.next(|credit| match credit {
                Credit::Send => context.has_credit(1),
                // A READ request takes its credit from the window at once. Data take it through the
                // context, because charging the window for each packet would be slow.
                Credit::ReadResponse => context.path.window.admits_read(1),
            });
            let Some(turn) = turn else { break };
            outlet.give_room(run);
            let (before, packets_before) = (run.len(), run.count());
            let status = self.fill(&turn, run, &mut context);
            let cost = PACKET_COST * (run.count() - packets_before).max(1) as u64;
            scheduler.record(&turn, status, (run.len() - before) as u64, cost);
            if status == TransmitStatus::RunFull {
                debug_assert!(!run.is_empty(), "the round would not end");
                context.pins.clear();
                context.commit();
                self.send(run, route, outlet);
                outlet.check_receiver(path, route, now);
            }
        }
        context.pins.clear();
        context.commit();
        let (budget_bytes, overshoot_bytes) = scheduler.end();
        call.budget_bytes = budget_bytes;
        call.overshoot_bytes += overshoot_bytes;
        path.acks.take(acks);
        path.cnps.take(cnps);
        if !(acks.is_empty() && cnps.is_empty()) {
            self.append_control_packets(acks, cnps, run, route, outlet);
        }
        self.send(run, route, outlet);
        // For threads that post, and for threads that receive: see the module.
        let has_window_waiters = !queues.admission(Credit::Send).is_empty();
        path.has_window_waiters.store(has_window_waiters, Ordering::Relaxed);
        path.has_blocked.store(queues.has_blocked(), Ordering::Release);
        if call.budget_bytes == 0 {
            self.requeue_rest(path_index, path, queues);
        }
    }

    /// Appends acknowledgements that left their queue pairs, then congestion notifications. Sends
    /// the run before a packet that does not fit.
    #[inline(never)] // out of the way of runs of data
    fn append_control_packets(
        &self,
        acks: &mut Vec<Ack>,
        cnps: &mut Vec<Cnp>,
        run: &mut RunBuffer<'_>,
        route: &Route,
        outlet: &mut Outlet<'_, '_>,
    ) {
        for ack in acks.drain(..) {
            if !run.takes(Ack::LEN) {
                self.send(run, route, outlet);
            }
            run.append_ack(ack);
        }
        for cnp in cnps.drain(..) {
            if !run.takes(Cnp::LEN) {
                self.send(run, route, outlet);
            }
            cnp.append_to(run);
            self.counters.add(Counter::CnpSent);
        }
    }

    /// Lists the path again if queue pairs still wait for a turn after the budget was used up.
    /// Queue pairs in `ready` stay there. Those that were set aside are listed on the path, behind
    /// all others.
    #[cold]
    fn requeue_rest(&self, path_index: u32, path: &Path, queues: &mut TurnQueues) {
        if queues.is_empty() && path.ready.is_empty() {
            return;
        }
        while let Some(index) = queues.take_set_aside() {
            let slot = self.slot_of(index);
            if let Some(qp) = lock(&slot.qp).as_ref() {
                self.enqueue(index, slot, qp);
            }
        }
        self.ready_paths.push(path_index, &path.link);
        self.data_pending.store(true, Ordering::Release);
    }

    /// Enqueues the queue pairs that a closed path still lists on their present paths. The list
    /// may hold queue pairs that left this path, or an index that another queue pair has now.
    /// While this path lists an index, no other path can list it.
    #[cold]
    fn requeue_moved(&self, path_index: u32, path: &Path, queue: &mut VecDeque<u32>, now: Time) {
        // Queue pairs blocked at a post that left this path were enqueued on their present paths.
        self.take_blocked_at_post(path, &mut AdmissionQueue::default());
        self.take_ready(path, queue);
        for index in queue.drain(..) {
            let Some(slot) = self.qps.at(index) else { continue };
            slot.link.unlist_before_lock();
            let mut guard = lock(&slot.qp);
            let Some(qp) = guard.as_mut() else { continue };
            if qp.path.is_some_and(|(of, _)| of == path_index) {
                qp.on_path_closed(&self.context(now, None));
            } else {
                self.enqueue(index, slot, qp);
            }
        }
    }

    /// Moves the path's list of ready queue pairs to the end of `queue`, oldest first.
    #[inline] // the list is most often empty
    fn take_ready(&self, path: &Path, queue: &mut VecDeque<u32>) {
        if !path.ready.is_empty() {
            path.ready.append_to(queue, |index| &self.slot_of(index).link, |_| ());
        }
    }

    /// Moves the path's list of queue pairs blocked at a post to the end of `queue`, oldest first.
    /// They join the admission queue of [`Credit::Send`] without a turn, because only data are
    /// checked at a post (`Qp::is_blocked_at_post`).
    #[inline]
    fn take_blocked_at_post(&self, path: &Path, queue: &mut AdmissionQueue) {
        if !path.blocked_at_post.is_empty() {
            let link_of = |index| &self.slot_of(index).blocked_at_post;
            queue.append(|waiting| {
                path.blocked_at_post.append_to(waiting, link_of, ReadyLink::unlist_before_lock)
            });
        }
    }

    /// Returns the slot of a queue pair that a path lists.
    fn slot_of(&self, index: u32) -> &QpSlot {
        match self.qps.at(index) {
            Some(slot) => slot,
            None => unreachable!("only queue pairs that exist are listed"),
        }
    }

    /// Lets the queue pair of `turn` append packets to `run`. Enqueues the queue pair again if the
    /// run is full or the queue pair has moved to another path.
    #[inline(always)] // called in one place, once a queue pair's turn
    fn fill<'d>(
        &'d self,
        turn: &Turn,
        run: &mut RunBuffer<'_>,
        context: &mut QpContext<'d>,
    ) -> TransmitStatus {
        let index = turn.index;
        let Some(slot) = self.qps.at(index) else { return TransmitStatus::Idle };
        if turn.source == TurnSource::Ready {
            slot.link.unlist_before_lock();
        }
        let (now, path_index) = (context.now, context.path_index);
        context.turn = turn.rules;
        let mut guard = match try_lock(&slot.qp) {
            Some(guard) => guard,
            None => {
                context.release_locks();
                lock(&slot.qp)
            }
        };
        let Some(qp) = guard.as_mut() else { return TransmitStatus::Idle };
        if qp.path.is_none_or(|(of, _)| of != path_index) {
            // The queue pair was connected elsewhere, or its index belongs to another queue pair
            // now. `is_blocked` stays: it concerns an admission queue of the queue pair's own path,
            // not of the path that is drained here.
            self.enqueue(index, slot, qp);
            return TransmitStatus::Idle;
        }
        if matches!(turn.source, TurnSource::Admission(_)) {
            qp.is_blocked = false;
        }
        let status = qp.transmit(context, run);
        if qp.core.state == QpState::Err {
            // A queue pair that failed just now has returned its credit. One that failed earlier
            // lists the path without need, which does no harm.
            self.mark_path_ready(qp.path);
        }
        self.settle_timer(index, qp, qp.deadline());
        if qp.path.is_none_or(|(of, _)| of != path_index) && qp.wants_to_send(now) {
            // Its next message, a datagram, takes another path. The queue pair is in no admission
            // queue, because datagrams take no credit.
            self.enqueue(index, slot, qp);
            return TransmitStatus::Idle;
        }
        match status {
            // The queue pair is listed on the path and not pushed to `ready`. Another thread could
            // list its index meanwhile. The turn from `ready` would then unlist an index that is on
            // the list, and a second push would make the list circular.
            TransmitStatus::RunFull => {
                context.path.ready.push_alone(index, &slot.link);
            }
            // It is in an admission queue already.
            TransmitStatus::Blocked(_) if qp.is_blocked => return TransmitStatus::Idle,
            TransmitStatus::Blocked(_) => qp.is_blocked = true,
            TransmitStatus::Idle | TransmitStatus::WouldEndRun => {}
        }
        status
    }

    /// Sends the run, if it has packets.
    fn send(&self, run: &mut RunBuffer<'_>, route: &Route, outlet: &mut Outlet<'_, '_>) {
        if run.is_empty() {
            return;
        }
        let outcome = match (run.bytes(), outlet) {
            (RunBytes::Room(bytes), Outlet::Memory(memory)) => {
                memory.transmit_room(&packets(run, route, bytes))
            }
            (RunBytes::Private(bytes), Outlet::Memory(memory)) => {
                memory.transmit(&packets(run, route, bytes))
            }
            (RunBytes::Private(bytes), Outlet::Port(port)) => {
                port.transmit(&packets(run, route, bytes))
            }
            (RunBytes::Room(_), Outlet::Port(_)) => SendOutcome::Dropped, // ports have no room
        };
        match outcome {
            SendOutcome::Sent => self.counters.add_many(Counter::SentPkts, run.count() as u64),
            SendOutcome::Dropped => self.counters.add_many(Counter::SendErr, run.count() as u64),
        }
        run.clear();
    }
}

/// The way that the runs of a path take in one call.
enum Outlet<'o, 'm> {
    Port(&'o dyn Transmit),
    Memory(&'o mut (dyn SendInMemory<'m> + 'm)),
}

impl<'m> Outlet<'_, 'm> {
    /// Gives room to a run in memory that begins.
    #[inline]
    fn give_room<'b>(&mut self, run: &mut RunBuffer<'b>)
    where
        'm: 'b,
    {
        if let Self::Memory(memory) = self
            && run.lacks_room()
            && let Some(room) = memory.room()
        {
            run.set_room(room);
        }
    }

    /// Lets the pacer of the path look at the receiver, if that is due.
    fn check_receiver(&mut self, path: &Path, route: &Route, now: Time) {
        path.pacer.check_receiver(now, || match self {
            Self::Port(port) => port.is_receiver_congested(route.key.peer, route.key.peer_slot),
            Self::Memory(memory) => memory.is_receiver_congested(),
        });
    }
}

fn packets<'r, T>(run: &RunBuffer<'_>, route: &Route, bytes: &'r [T]) -> Run<'r, T> {
    Run {
        from: route.key.local,
        from_port: route.source_port,
        to: route.key.peer,
        bytes,
        segment_size: run.segment_size(),
        traffic_class: route.key.traffic_class,
        hop_limit: route.key.hop_limit,
    }
}
