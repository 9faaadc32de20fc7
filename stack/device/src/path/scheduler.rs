//! The order in which the queue pairs of a path get their turns while runs are filled.
//!
//! The scheduler knows queue pairs by index only. It locks nothing, sends nothing and reads no
//! clock. `Device::drain` (`device/transmit.rs`) asks the scheduler for turns, carries each one
//! out, and reports how the turn ended.
//!
//! ```text
//!   step    comes in                      is decided                       goes out
//!   ------  ----------------------------  -------------------------------  ----------------
//!   begin   bytes that may be sent        how many waiting are tried
//!   ready_to_refill                       whether `ready` is empty         `ready`, to be filled
//!   next    which credit has room         the next queue pair, its rules   a Turn, or none
//!   record  TransmitStatus, bytes added   where the queue pair waits now
//!   end                                                                    bytes left over
//! ```
//!
//! A round is one call of `drain`. A queue pair waits in `ready`, in an admission queue, or set
//! aside. A blocked queue pair stays in its admission queue and may be in `ready` as well, for
//! example because a packet for it arrived:
//!
//! ```text
//!   listed on the path --> ready ------+        +-- Idle --> none, until an event lists it
//!                                      |        +-- RunFull ------> listed on the path
//!   no credit ------------> admission -+-> turn-+-- Blocked ------> admission
//!                                      |        +-- WouldEndRun --> set aside
//!   would end the run ----> set aside -+
//! ```
//!
//! When credit returns, the path is listed on the device, and the next round tries the admission
//! queues. `device/transmit.rs` names the functions that list the path.
//!
//! [`next`](Scheduler::next) looks at the places in this order:
//!
//! 1. At the beginning of a run, the queue pairs that were set aside. The packet of the first of
//!    them sets the length of the run.
//! 2. The queue pairs that are ready.
//! 3. The queue pairs in an admission queue whose credit has room: each once a round, and one that
//!    yielded once more.
//! 4. The queue pairs that were set aside, which may now end the run. While [`MAX_SET_ASIDE`] of
//!    them wait, this place comes before places 2 and 3.
//!
//! The packets of a run are of one length, and no packet can follow a shorter one. The first packet
//! of a WRITE is longer than the packets that follow it. So the first packets of many queue pairs
//! make one run, and the next packets another. A queue pair whose next packet would end the run is
//! therefore set aside until the others have added theirs.
//!
//! A queue pair that is ready goes before the admission queues, because its state is in a cache and
//! its packets share a run with others. [`AdmissionQueue`] counts the runs that bypass the queue
//! pair at its head. After [`MAX_BYPASSES`] runs, ready queue pairs yield: they begin no message
//! that takes this credit before the head has sent. A queue pair that was set aside does not yield,
//! because it passed that check in the turn that set it aside. Its bytes do not count as a bypass.
//!
//! [`MAX_BYPASSES`]: super::admission_queue::MAX_BYPASSES

use std::collections::VecDeque;
use std::mem;

use super::admission_queue::AdmissionQueue;
use super::window::Credit;

/// The most queue pairs set aside while others are ready: then the oldest one may end the run. Each
/// of them was locked without adding a packet.
const MAX_SET_ASIDE: usize = 16;

/// The way in which a queue pair's turn ended. A queue pair that may end the run must not return
/// [`WouldEndRun`](Self::WouldEndRun), and none may return [`RunFull`](Self::RunFull) for an empty
/// run: the round would not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransmitStatus {
    /// The turn puts the queue pair into no queue. Either it has nothing to send now, or it was
    /// listed on another path, or an admission queue holds it already.
    Idle,
    /// The next packet does not fit the run. The caller sends the run. It has listed the queue pair
    /// on the path again, behind those that are ready.
    RunFull,
    /// The next packet would be the last of the run, in which packets of other queue pairs may
    /// still find room. The scheduler asks those first.
    WouldEndRun,
    /// The next packet waits for this credit.
    Blocked(Credit),
}

/// The rules of a queue pair's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnRules {
    /// The queue pair may append a packet shorter than the others of the run. The run then takes no
    /// more packets. Always `false` in a turn from an admission queue: the last queue pair is set
    /// aside and asked once more.
    pub may_end_run: bool,
    /// Another queue pair probably gets the next turn of the round. The requester then charges the
    /// window for a whole run in advance (`WindowCredit::commit_turn`). Always `true` in a turn
    /// from an admission queue, because the queue pair of the turn itself counts as waiting.
    pub more_pending: bool,
    /// For each credit: another queue pair was bypassed too often, so a new message must not take
    /// this credit now.
    pub yields: [bool; Credit::COUNT],
}

impl TurnRules {
    /// The rules for a queue pair that sends alone.
    pub const ALONE: Self =
        Self { may_end_run: true, more_pending: false, yields: [false; Credit::COUNT] };
}

/// A queue pair's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The queue pair's index.
    pub index: u32,
    pub source: TurnSource,
    pub rules: TurnRules,
}

/// The place where a queue pair waited before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnSource {
    Ready,
    /// In the admission queue of this credit.
    Admission(Credit),
    SetAside,
}

/// The places where the queue pairs of a path wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct TurnQueues {
    /// Queue pairs taken off the path's list, in order.
    pub ready: VecDeque<u32>,
    /// Queue pairs that wait for each [`Credit`].
    admission: [AdmissionQueue; Credit::COUNT],
    /// Queue pairs whose next packet would end the run, in order. Empty between rounds.
    set_aside: VecDeque<u32>,
}

impl TurnQueues {
    /// Returns the queue pairs that wait for `credit`.
    #[inline]
    pub fn admission(&mut self, credit: Credit) -> &mut AdmissionQueue {
        &mut self.admission[credit as usize]
    }

    /// Returns whether queue pairs wait for any credit. `Device::drain` stores the result in
    /// `Path::has_blocked`, which `Device::mark_received` reads when credit returned.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.admission.iter().any(|queue| !queue.is_empty())
    }

    /// Returns whether no queue pair waits for a turn.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.set_aside.is_empty() && !self.has_blocked()
    }

    /// Takes out a queue pair that was set aside when the budget ended the round. The caller lists
    /// it on the path.
    pub fn take_set_aside(&mut self) -> Option<u32> {
        self.set_aside.pop_front()
    }
}

/// One round of turns.
#[derive(Debug)]
pub(crate) struct Scheduler<'q> {
    queues: &'q mut TurnQueues,
    /// The bytes that may still be sent.
    budget_bytes: u64,
    /// The bytes of the last turn beyond the budget.
    overshoot_bytes: u64,
    /// The number of queue pairs set aside that get their turns first, because the run is new.
    resumed: usize,
    /// The number of queue pairs in each admission queue that this round still tries.
    retries: [usize; Credit::COUNT],
    /// Queue pairs wait for a credit now, or did earlier in the round.
    have_waited: bool,
    /// For each admission queue: queue pairs in it sent in this run.
    waiting_sent: [bool; Credit::COUNT],
    /// Queue pairs that were ready sent in this run.
    ready_sent: bool,
}

impl<'q> Scheduler<'q> {
    /// Begins a round that ends when `budget_bytes` were added to runs, or nothing more can be.
    #[inline(always)] // as are the steps below: each is called in one place
    pub fn begin(queues: &'q mut TurnQueues, budget_bytes: u64) -> Self {
        // Each waiting queue pair gets one try, after the queue pairs that were listed since.
        let retries = queues.admission.each_ref().map(AdmissionQueue::len);
        Self {
            queues,
            budget_bytes,
            overshoot_bytes: 0,
            resumed: 0,
            retries,
            have_waited: retries != [0; Credit::COUNT],
            waiting_sent: [false; Credit::COUNT],
            ready_sent: false,
        }
    }

    /// Returns the queue of ready queue pairs if it is empty: the caller adds those listed since.
    #[inline(always)]
    pub fn ready_to_refill(&mut self) -> Option<&mut VecDeque<u32>> {
        self.queues.ready.is_empty().then_some(&mut self.queues.ready)
    }

    /// Returns the queue pair that gets the next turn. `has_room` returns whether there is any room
    /// for a credit.
    #[inline(always)]
    pub fn next(&mut self, has_room: impl Fn(Credit) -> bool) -> Option<Turn> {
        if self.budget_bytes == 0 {
            return None;
        }
        let TurnQueues { ready, admission, set_aside } = &mut *self.queues;
        let retried = if self.have_waited { next_retried(&self.retries, has_room) } else { None };
        let mut is_last_resort = false;
        let (index, source) = if self.resumed > 0 {
            self.resumed -= 1;
            (set_aside.pop_front(), TurnSource::SetAside)
        } else if set_aside.len() < MAX_SET_ASIDE && !ready.is_empty() {
            (ready.pop_front(), TurnSource::Ready)
        } else if let Some(credit) = retried.filter(|_| set_aside.len() < MAX_SET_ASIDE) {
            self.retries[credit as usize] -= 1;
            (admission[credit as usize].pop_front(), TurnSource::Admission(credit))
        } else {
            is_last_resort = true;
            (set_aside.pop_front(), TurnSource::SetAside)
        };
        let index = index?;
        let is_last = ready.is_empty() && set_aside.is_empty() && retried.is_none();
        let yields = match source {
            TurnSource::Ready if self.have_waited => {
                admission.each_ref().map(AdmissionQueue::is_starved)
            }
            _ => [false; Credit::COUNT],
        };
        let may_end_run = is_last_resort || is_last;
        let rules = TurnRules { may_end_run, more_pending: !is_last, yields };
        Some(Turn { index, source, rules })
    }

    /// Records that a turn ended with `status` and added `bytes` to the run. The turn takes `cost`
    /// from the budget if that is more. After [`RunFull`](TransmitStatus::RunFull) the caller sends
    /// the run and begins another.
    #[inline(always)]
    pub fn record(&mut self, turn: &Turn, status: TransmitStatus, bytes: u64, cost: u64) {
        debug_assert!(
            status != TransmitStatus::WouldEndRun || !turn.rules.may_end_run,
            "a queue pair that may end the run would be asked again and again"
        );
        let TurnQueues { admission, set_aside, .. } = &mut *self.queues;
        let cost = bytes.max(cost);
        self.overshoot_bytes = cost.saturating_sub(self.budget_bytes);
        self.budget_bytes = self.budget_bytes.saturating_sub(cost);
        match turn.source {
            TurnSource::Admission(credit) => self.waiting_sent[credit as usize] |= bytes > 0,
            TurnSource::Ready => self.ready_sent |= bytes > 0,
            TurnSource::SetAside => {}
        }
        match status {
            TransmitStatus::Idle => {}
            TransmitStatus::RunFull => {
                self.resumed = set_aside.len();
                self.record_run();
            }
            TransmitStatus::WouldEndRun => set_aside.push_back(turn.index),
            // There was too little room for the first queue pair, so the round tries no further
            // one.
            TransmitStatus::Blocked(credit)
                if turn.source == TurnSource::Admission(credit) && bytes == 0 =>
            {
                admission[credit as usize].push_front(turn.index);
                self.retries[credit as usize] = 0;
            }
            TransmitStatus::Blocked(credit) => {
                admission[credit as usize].push_back(turn.index);
                self.have_waited = true;
                // The queue pair yielded to those before it. If they have nothing to send any more,
                // no event causes another turn for it, so the round tries it once more.
                self.retries[credit as usize] += usize::from(turn.rules.yields[credit as usize]);
            }
        }
    }

    /// Records a finished run in the admission queues.
    #[inline(always)]
    fn record_run(&mut self) {
        for (queue, waiting_sent) in self.queues.admission.iter_mut().zip(&mut self.waiting_sent) {
            queue.record_run(mem::take(waiting_sent), self.ready_sent);
        }
        self.ready_sent = false;
    }

    /// Ends the round. Returns the bytes that it could still have sent, and those over the budget.
    /// If no byte is left, the queues may hold turns: they belong to the next round.
    #[inline(always)]
    pub fn end(mut self) -> (u64, u64) {
        self.record_run();
        (self.budget_bytes, self.overshoot_bytes)
    }
}

/// Returns the credit whose admission queue is tried next: one with room and with retries left.
#[inline(never)] // out of the way of rounds in which no queue pair waits
fn next_retried(
    retries: &[usize; Credit::COUNT],
    has_room: impl Fn(Credit) -> bool,
) -> Option<Credit> {
    Credit::ALL.into_iter().find(|credit| retries[*credit as usize] > 0 && has_room(*credit))
}

#[cfg(all(test, not(loom)))]
mod tests;
