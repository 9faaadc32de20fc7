//! Receive queues, above all shared ones (IBTA vol. 1, 10.2.9; `ibv_modify_srq(3)`), and completion
//! queues with their events (IBTA vol. 1, 11.4.2.2; `ibv_req_notify_cq(3)`).

use rustix::io::Errno;
use urxe_stack::cq::WcStatus;
use urxe_stack::qp::attr::QpState;

use super::{Done, Event, Model, OmittedRule};
use crate::operation::{Arm, Cq, DEPTH, MAX_SRQ_WR, QPS, Queue, Recv, SRQS, Source};

impl Model {
    /// Returns the number of receives in a queue.
    pub fn queued(&self, queue: Queue) -> usize {
        match queue {
            Queue::Qp(qp) => self.own[qp].len(),
            Queue::Srq(srq) => self.shared[srq].len(),
        }
    }

    pub(super) fn post_recv(&mut self, queue: Queue, recv: &Recv) -> bool {
        let accepted = match queue {
            Queue::Qp(qp) => QPS[qp].source == Source::Own && self.own[qp].len() < DEPTH,
            Queue::Srq(srq) => self.shared[srq].len() < self.sizes[srq],
        };
        if !accepted {
            self.count("a receive refused");
            return false;
        }
        match queue {
            Queue::Qp(qp) if self.states[qp] == QpState::Err => {
                self.receive_ends(qp, recv.wr_id, WcStatus::WrFlushErr)
            }
            Queue::Qp(qp) => self.own[qp].push_back(recv.clone()),
            Queue::Srq(srq) => self.shared[srq].push_back(recv.clone()),
        }
        true
    }

    /// Completes a receive of a queue pair in error.
    pub(super) fn receive_ends(&mut self, qp: usize, wr_id: u64, status: WcStatus) {
        self.complete(Cq::Recv(qp), Done::failed_recv(qp, wr_id, status), false);
    }

    pub(super) fn front(&self, queue: Queue) -> Option<&Recv> {
        match queue {
            Queue::Qp(qp) => self.own[qp].front(),
            Queue::Srq(srq) => self.shared[srq].front(),
        }
    }

    /// Takes a receive. A shared queue may raise its limit event.
    pub(super) fn take(&mut self, queue: Queue) -> Option<Recv> {
        let Queue::Srq(srq) = queue else {
            let Queue::Qp(qp) = queue else { return None };
            return self.own[qp].pop_front();
        };
        let recv = self.shared[srq].pop_front();
        if recv.is_some() && (self.shared[srq].len() as u32) < self.limits[srq] {
            if self.omitted != Some(OmittedRule::OneShot) {
                self.limits[srq] = 0;
            }
            self.count("limit reached");
            if self.omitted != Some(OmittedRule::Limits) {
                self.events.push(Event::Limit(srq));
            }
        }
        recv
    }

    /// Returns the receive that a message to an unreliable queue pair would fill. A receive of a
    /// shared queue then belongs to the queue pair.
    pub(super) fn hold(&mut self, peer: usize, queue: Queue) -> Option<Recv> {
        if let Queue::Srq(_) = queue
            && self.held[peer].is_none()
        {
            self.held[peer] = self.take(queue);
        }
        self.held[peer].as_ref().or_else(|| self.front(queue)).cloned()
    }

    /// Takes the receive that [`hold`](Self::hold) returns.
    pub(super) fn take_held(&mut self, peer: usize, queue: Queue) -> Option<Recv> {
        match self.held[peer].take() {
            Some(held) => Some(held),
            None => self.take(queue),
        }
    }

    pub(super) fn receive_done(&mut self, peer: usize, queue: Queue, done: Done, solicited: bool) {
        let cq = match queue {
            Queue::Srq(srq) if SRQS[srq].is_xrc => Cq::Srq(srq),
            _ => Cq::Recv(peer),
        };
        self.complete(cq, done, solicited);
    }

    /// Returns the number of receives that still fit into a queue.
    pub fn room(&self, queue: Queue) -> usize {
        let size = if let Queue::Srq(srq) = queue { self.sizes[srq] } else { DEPTH };
        size - self.queued(queue)
    }

    /// Changes the size of a shared queue, its limit, or both, or returns the error.
    pub fn modify_srq(
        &mut self,
        srq: usize,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), Errno> {
        let size = max_wr.map_or(self.sizes[srq], |max_wr| max_wr as usize);
        let new_limit = limit.unwrap_or(self.limits[srq]);
        let is_possible = (1..=MAX_SRQ_WR as usize).contains(&size) && new_limit as usize <= size;
        let holds_more =
            self.shared[srq].len() > size && self.omitted != Some(OmittedRule::Holding);
        if !is_possible || holds_more {
            self.count(if is_possible {
                "resized below what it holds"
            } else {
                "no such size or limit"
            });
            return Err(Errno::INVAL);
        }
        if max_wr.is_some() {
            self.count("a shared queue resized");
            if self.omitted != Some(OmittedRule::Sizes) {
                self.sizes[srq] = size;
            }
            if self.omitted == Some(OmittedRule::Contents) {
                self.shared[srq].pop_front();
            }
        }
        self.limits[srq] = new_limit;
        Ok(())
    }

    /// Adds a completion. `solicited`: the message of this receive requested an event.
    pub(super) fn complete(&mut self, cq: Cq, done: Done, solicited: bool) {
        let in_error = !done.status.is_success() && self.omitted != Some(OmittedRule::ErrorsTell);
        self.done.entry(cq).or_default().push_back(done);
        let Some(arm) = self.armed.get(&cq).copied() else { return };
        let outcome = match arm {
            Arm::Next => "event: for the next completion",
            Arm::Solicited if in_error => "event: for an error",
            Arm::Solicited if solicited => "event: for a solicited message",
            Arm::Solicited => {
                self.count("no event: the message was not solicited");
                if self.omitted != Some(OmittedRule::Solicitation) {
                    return;
                }
                "event: for any message"
            }
        };
        self.count(outcome);
        self.notified.push(cq);
        if self.omitted != Some(OmittedRule::OneEvent) {
            self.armed.remove(&cq);
        }
    }

    /// Arms a queue for one event. Returns whether completions were in the queue before, which
    /// raise no event.
    pub(super) fn arm(&mut self, cq: Cq, arm: Arm) -> bool {
        let missed = self.done.get(&cq).is_some_and(|done| !done.is_empty());
        if missed {
            self.count("armed behind completions");
        }
        if missed && self.omitted == Some(OmittedRule::Earlier) {
            self.notified.push(cq);
            return missed;
        }
        let stronger =
            self.armed.get(&cq) == Some(&Arm::Next) && self.omitted != Some(OmittedRule::Stronger);
        if stronger && arm == Arm::Solicited {
            self.count("armed for any completion already");
        } else {
            self.armed.insert(cq, arm);
        }
        missed
    }

    /// Removes the unpolled completions of a queue pair that was reset, as libibverbs' providers do
    /// (`mlx5_cq_clean`).
    pub(super) fn discard_completions(&mut self, qp: usize) {
        for cq in [Cq::Send(qp), Cq::Recv(qp)] {
            self.done.remove(&cq);
        }
    }
}
