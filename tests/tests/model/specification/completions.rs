//! Completion queues: what completes goes in, and armed ones tell of it (IBTA vol. 1, 11.4.2.2;
//! `ibv_req_notify_cq(3)`).

use super::{Done, Forgets, Model};
use crate::operation::{Arm, Cq};

impl Model {
    /// `solicited`: the completion of a receive whose message asked for an event.
    pub(super) fn complete(&mut self, cq: Cq, done: Done, solicited: bool) {
        let in_error = !done.status.is_success() && self.forgets != Some(Forgets::ErrorsTell);
        self.done.entry(cq).or_default().push_back(done);
        let Some(arm) = self.armed.get(&cq).copied() else { return };
        let outcome = match arm {
            Arm::Next => "told of the next",
            Arm::Solicited if in_error => "told of an error",
            Arm::Solicited if solicited => "told of a solicited message",
            Arm::Solicited => {
                self.count("not told, for it was not solicited");
                if self.forgets != Some(Forgets::Solicitation) {
                    return;
                }
                "told of any message"
            }
        };
        self.count(outcome);
        self.told.push(cq);
        if self.forgets != Some(Forgets::OneEvent) {
            self.armed.remove(&cq);
        }
    }

    /// Asks for one event. Whether there were completions already, of which none will tell.
    pub(super) fn arm(&mut self, cq: Cq, arm: Arm) -> bool {
        let missed = self.done.get(&cq).is_some_and(|done| !done.is_empty());
        if missed {
            self.count("armed behind completions");
        }
        if missed && self.forgets == Some(Forgets::Earlier) {
            self.told.push(cq);
            return missed;
        }
        let stronger =
            self.armed.get(&cq) == Some(&Arm::Next) && self.forgets != Some(Forgets::Stronger);
        if stronger && arm == Arm::Solicited {
            self.count("armed for any completion already");
        } else {
            self.armed.insert(cq, arm);
        }
        missed
    }

    /// A queue pair was reset: what it did before and nobody polled is of no interest any more, as
    /// in libibverbs' providers (`mlx5_cq_clean`).
    pub(super) fn forget_completions(&mut self, qp: usize) {
        for cq in [Cq::Send(qp), Cq::Recv(qp)] {
            self.done.remove(&cq);
        }
    }
}
