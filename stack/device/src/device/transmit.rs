//! From the queue pairs to the port: who has something to send is listed, runs are filled and sent.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::counters::Counter;
use super::{Device, QpHandle, QpSlot};
use crate::path::acks::Ack;
use crate::path::ecn::Cnp;
use crate::path::line::Line;
use crate::path::ready::ReadyLink;
use crate::path::run::RunBuffer;
use crate::path::window::Credit;
use crate::path::{Path, Route, Sender};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::qp::context::{Context, TransmitStatus};
use urxe_types::port::{Run, SendOutcome, Transmit};
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{lock, try_lock};
use urxe_types::time::Time;

/// Of so many queue pairs whose packets are shorter than those of the run, the first closes it:
/// each of them is looked at in vain.
const MAX_ASIDE: usize = 16;

impl Device {
    /// Sends what can be sent now.
    pub fn transmit_pending(&self, now: Time, port: &(impl Transmit + ?Sized)) {
        if self.dirty.is_empty() {
            return;
        }
        self.urgent.store(false, Ordering::Release);
        let link_of = |index: u32| match self.paths.at(index) {
            Some(path) => &path.link,
            None => unreachable!("only paths that exist are listed"),
        };
        // Draining one path may list another: a queue pair that moved is passed on.
        while !self.dirty.is_empty() {
            self.dirty.take_all(link_of, |index| {
                if let Some(path) = self.paths.at(index) {
                    path.link.unlist();
                    path.flush(|sender| self.drain(index, path, sender, now, port));
                }
            });
        }
    }

    /// Sends what a queue pair has ready, its acknowledgement included. Unlike
    /// [`transmit_pending`](Self::transmit_pending) it waits for a thread that is about to send it:
    /// when this returns it has left, unless a window or the port is full.
    pub fn transmit_of(&self, handle: QpHandle, now: Time, port: &(impl Transmit + ?Sized)) {
        let listed = self.with_slot(handle, |slot, qp| {
            self.list(handle.index, slot, qp);
            qp.path
        });
        let Some(Some((index, _))) = listed else { return };
        if let Some(path) = self.paths.at(index) {
            path.flush_after_others(|sender| self.drain(index, path, sender, now, port));
        }
    }

    /// Sends what can be sent now, unless it is nothing but acknowledgements: those may wait for a
    /// reply that takes them along. The caller sees to it that
    /// [`transmit_pending`](Self::transmit_pending) follows within a millisecond.
    pub fn transmit_urgent(&self, now: Time, port: &(impl Transmit + ?Sized)) {
        if self.urgent.swap(false, Ordering::AcqRel) {
            self.transmit_pending(now, port);
        }
    }

    /// Whether [`transmit_pending`](Self::transmit_pending) has something to do.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Does what is due at `now`. What it causes to be sent leaves with the next
    /// [`transmit_pending`](Self::transmit_pending).
    pub fn handle_timeouts(&self, now: Time) {
        self.periods.expire(now);
        while let Some((at, index)) = self.timers.take_due(now) {
            self.on_timer_entry(now, at, index);
        }
    }

    /// Does what is due of queue pair `index`, for which the entry of the time `at` was taken from
    /// the timers. Several threads may have taken some of the same queue pair, and come here in any
    /// order.
    pub(super) fn on_timer_entry(&self, now: Time, at: Time, index: u32) {
        let Some(slot) = self.qps.at(index) else { return };
        let mut guard = lock(&slot.qp);
        let Some(qp) = guard.as_mut() else { return };
        if qp.timer_at != at {
            // An entry that an earlier one replaced, which another thread has taken and is about to
            // look at.
            if qp.timer_then == at {
                qp.timer_then = Time::NEVER;
            }
            return;
        }
        qp.timer_at = std::mem::replace(&mut qp.timer_then, Time::NEVER);
        // Most entries are of deadlines that have moved since.
        let is_due = qp.deadline() <= now;
        if is_due {
            qp.on_timer(&self.context(now, qp.path));
        }
        self.settle_timer(index, qp, qp.deadline());
        // Who stands in a line is asked when its turn comes, unless something is to be sent again.
        if qp.wants_to_send(now) && (is_due || !qp.is_blocked) {
            self.list(index, slot, qp);
        } else if is_due {
            // Giving up opened the window for the queue pairs that it had stopped.
            self.touch_path_of(qp.path);
        }
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) is next due, if ever. It may turn out that
    /// nothing is.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        Some(self.timers.next().min(self.periods.next())).filter(|at| *at != Time::NEVER)
    }

    /// Sees to it that the timers hold an entry no later than the queue pair's deadline.
    pub(super) fn settle_timer(&self, index: u32, qp: &mut Qp, deadline: Time) {
        if deadline < qp.timer_at {
            // The other stays for when this one is over: what is missing for a moment comes up
            // again and again beside a timeout that moves.
            qp.timer_then = std::mem::replace(&mut qp.timer_at, deadline);
            self.timers.insert(deadline, index);
        }
    }

    /// Lists a queue pair, whose lock the caller has, on its path, and the path on the device.
    pub(super) fn list(&self, index: u32, slot: &QpSlot, qp: &Qp) {
        let Some((path_index, _)) = qp.path else { return };
        let Some(path) = self.paths.at(path_index) else { return };
        path.ready.push_alone(index, &slot.link);
        self.dirty.push(path_index, &path.link);
    }

    /// Lists a queue pair's path on the device.
    pub(super) fn touch_path_of(&self, path: Option<(u32, IpAddr)>) {
        if let Some((path_index, _)) = path {
            self.touch(path_index);
        }
    }

    /// Lists a path on the device.
    pub(super) fn touch(&self, path_index: u32) {
        let Some(path) = self.paths.at(path_index) else { return };
        self.dirty.push(path_index, &path.link);
    }

    /// Fills and sends runs until no queue pair of the path has anything to send, or the window is
    /// full.
    ///
    /// The packets of a run are of one length, and behind a shorter one none can follow. The first
    /// packet of a WRITE is longer than those that follow it: so the first packets of many queue
    /// pairs make one run, and the next ones another. A queue pair whose next packet would close
    /// the run is put aside until the others have added theirs, or too many wait.
    fn drain(
        &self,
        path_index: u32,
        path: &Path,
        sender: &mut Sender,
        now: Time,
        port: &(impl Transmit + ?Sized),
    ) {
        let Sender { route, run, queue, admission, set_aside, acks, cnps } = sender;
        let Some(route) = *route else { return self.pass_on(path_index, path, queue, now) };
        let run = run.get_or_insert_with(RunBuffer::new);
        run.set_max_segments(self.max_run_segments.min(port.max_run_segments()));
        let look = || path.pace.look(now, || port.is_crowded(route.key.peer, route.key.peer_slot));
        look();
        self.take_late(path, &mut admission[Credit::Send as usize]);
        self.take_ready(path, queue);
        // Those that wait for a budget get one more try, after those that were listed since.
        let mut retries = admission.each_ref().map(Line::len);
        let (mut first_went, mut others_went) = ([false; Credit::COUNT], false);
        let mut context = self.context(now, Some((path_index, route.key.peer)));
        // Of those that were put aside, so many are asked again first: the run is a new one.
        let mut resumed = 0;
        // Some have waited for a budget since this began, or before.
        let mut have_waited = !admission.iter().all(Line::is_empty);
        loop {
            let retried = if have_waited { next_in_line(&retries, &context) } else { None };
            let mut closes = false;
            let (index, from) = if resumed > 0 {
                resumed -= 1;
                (set_aside.pop_front(), From::Aside)
            } else if set_aside.len() < MAX_ASIDE && !queue.is_empty() {
                (queue.pop_front(), From::Listed)
            } else if let Some(budget) = retried.filter(|_| set_aside.len() < MAX_ASIDE) {
                retries[budget as usize] -= 1;
                (admission[budget as usize].take_first(), From::Line(budget))
            } else {
                closes = true;
                (set_aside.pop_front(), From::Aside)
            };
            let Some(index) = index else { break };
            let Some(slot) = self.qps.at(index) else { continue };
            if from == From::Listed {
                slot.link.unlist_before_lock();
            }
            let is_last = queue.is_empty() && set_aside.is_empty() && retried.is_none();
            context.may_end_run = closes || is_last;
            context.more_pending = !is_last;
            if have_waited {
                context.yields = admission
                    .each_ref()
                    .map(|line| from == From::Listed && line.has_waited_enough());
            }
            let was_blocked = matches!(from, From::Line(_));
            let before = run.count();
            let filled = self.fill(index, was_blocked, slot, run, &route, &mut context);
            let had_turn = run.count() > before;
            match filled {
                Filled::Done => {}
                Filled::Aside => set_aside.push_back(index),
                Filled::RunFull => {
                    context.pins.clear();
                    context.settle();
                    self.send(run, &route, port);
                    resumed = set_aside.len();
                    look();
                }
                Filled::Waits(budget) if from == From::Line(budget) && !had_turn => {
                    admission[budget as usize].put_back(index);
                    retries[budget as usize] = 0;
                }
                Filled::Waits(budget) => {
                    admission[budget as usize].join(index);
                    have_waited = true;
                    // It gave way to those before it, who may have nothing to send any more: then
                    // nobody else would ask it again.
                    retries[budget as usize] += usize::from(context.yields[budget as usize]);
                }
            }
            match from {
                From::Line(budget) => first_went[budget as usize] |= had_turn,
                From::Listed => others_went |= had_turn,
                From::Aside => {}
            }
            if queue.is_empty() {
                self.take_ready(path, queue);
            }
        }
        context.pins.clear();
        context.settle();
        for (line, went) in admission.iter_mut().zip(first_went) {
            line.note_round(went, others_went);
        }
        path.acks.take(acks);
        for ack in acks.drain(..) {
            if !run.takes(Ack::LEN) {
                self.send(run, &route, port);
            }
            run.append_ack(&route.icrc, ack);
        }
        path.cnps.take(cnps);
        for cnp in cnps.drain(..) {
            if !run.takes(Cnp::LEN) {
                self.send(run, &route, port);
            }
            cnp.append_to(run, &route.icrc);
            self.counters.add(Counter::CnpSent);
        }
        self.send(run, &route, port);
        path.has_line.store(!admission[Credit::Send as usize].is_empty(), Ordering::Relaxed);
        path.has_blocked.store(admission.iter().any(|line| !line.is_empty()), Ordering::Release);
    }

    /// A path that nobody uses may still list queue pairs that left it, or whose place in the table
    /// is another's now. As long as they stand here no other path can list them.
    fn pass_on(&self, path_index: u32, path: &Path, queue: &mut VecDeque<u32>, now: Time) {
        // Who came late has been listed where it is now.
        self.take_late(path, &mut Line::default());
        self.take_ready(path, queue);
        for index in queue.drain(..) {
            let Some(slot) = self.qps.at(index) else { continue };
            slot.link.unlist_before_lock();
            let mut guard = lock(&slot.qp);
            let Some(qp) = guard.as_mut() else { continue };
            let stands_here = qp.path.is_some_and(|(of, _)| of == path_index);
            if stands_here && !qp.on_path_closed(&self.context(now, None)) {
                continue;
            }
            self.list(index, slot, qp);
        }
    }

    /// Moves the path's list of queue pairs with work to the end of `queue`, oldest first.
    #[inline] // most often there are none
    fn take_ready(&self, path: &Path, queue: &mut VecDeque<u32>) {
        if !path.ready.is_empty() {
            path.ready.append_to(queue, |index| &self.listed(index).link, |_| ());
        }
    }

    /// Moves the path's list of queue pairs that come late to the end of `line`, oldest first.
    #[inline]
    fn take_late(&self, path: &Path, line: &mut Line) {
        if !path.late.is_empty() {
            let link_of = |index| &self.listed(index).late;
            line.join_all(|waiting| {
                path.late.append_to(waiting, link_of, ReadyLink::unlist_before_lock)
            });
        }
    }

    fn listed(&self, index: u32) -> &QpSlot {
        match self.qps.at(index) {
            Some(slot) => slot,
            None => unreachable!("only queue pairs that exist are listed"),
        }
    }

    #[inline(always)] // called in one place, once a queue pair's turn
    fn fill<'d>(
        &'d self,
        index: u32,
        was_blocked: bool,
        slot: &'d QpSlot,
        run: &mut RunBuffer,
        route: &Route,
        context: &mut Context<'d>,
    ) -> Filled {
        let (now, path_index) = (context.now, context.path_index);
        // No pins while waiting for a queue pair: who has it may be waiting for them.
        let mut guard = match try_lock(&slot.qp) {
            Some(guard) => guard,
            None => {
                context.pins.clear();
                lock(&slot.qp)
            }
        };
        let Some(qp) = guard.as_mut() else { return Filled::Done };
        if qp.path.is_none_or(|(of, _)| of != path_index) {
            // It was connected elsewhere, or its index is another queue pair's now.
            self.list(index, slot, qp);
            return Filled::Done;
        }
        if was_blocked {
            qp.is_blocked = false;
        }
        let sent = qp.transmit(context, run, &route.icrc);
        if qp.core.state == QpState::Err {
            // If it failed just now, it opened the window for those that it had stopped.
            self.touch_path_of(qp.path);
        }
        self.settle_timer(index, qp, qp.deadline());
        if qp.path.is_none_or(|(of, _)| of != path_index) && qp.wants_to_send(now) {
            // Its next message goes elsewhere.
            self.list(index, slot, qp);
            return Filled::Done;
        }
        match sent {
            TransmitStatus::Idle => Filled::Done,
            TransmitStatus::RunFull => {
                // Listed anew, never put back into the queue by hand: an index that stands there
                // unlisted could be listed meanwhile, and unlisting it when it is popped would
                // leave a list that may close to a ring.
                context.path.ready.push_alone(index, &slot.link);
                Filled::RunFull
            }
            TransmitStatus::WouldEndRun => Filled::Aside,
            TransmitStatus::Blocked(_) if qp.is_blocked => Filled::Done,
            TransmitStatus::Blocked(budget) => {
                qp.is_blocked = true;
                Filled::Waits(budget)
            }
        }
    }

    fn send(&self, run: &mut RunBuffer, route: &Route, port: &(impl Transmit + ?Sized)) {
        if run.is_empty() {
            return;
        }
        let outcome = port.transmit(&Run {
            from: route.key.local,
            from_port: route.source_port,
            to: route.key.peer,
            bytes: run.bytes(),
            segment_size: run.segment_size(),
            traffic_class: route.key.traffic_class,
            hop_limit: route.key.hop_limit,
        });
        match outcome {
            SendOutcome::Sent => self.counters.add_many(Counter::SentPkts, run.count() as u64),
            SendOutcome::Dropped => self.counters.add_many(Counter::SendErr, run.count() as u64),
        }
        run.clear();
    }
}

/// In which line some are to be tried once more, if there is any room for them.
#[inline(never)] // out of the way of those beside whom nobody waits
fn next_in_line(retries: &[usize; Credit::COUNT], context: &Context<'_>) -> Option<Credit> {
    Credit::ALL.into_iter().find(|budget| {
        retries[*budget as usize] > 0
            && match budget {
                Credit::Send => context.has_credit(1),
                Credit::ReadResponse => context.path.window.admits_read(1),
            }
    })
}

/// Where a queue pair stood before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// On the path's list.
    Listed,
    /// Among those that wait for a budget.
    Line(Credit),
    /// Among those whose packet would have closed the run.
    Aside,
}

/// What became of a queue pair's turn.
enum Filled {
    /// It has nothing to send now.
    Done,
    /// Send the run, then go on with it.
    RunFull,
    /// Ask the others first.
    Aside,
    /// It waits for room in this budget.
    Waits(Credit),
}
