//! Completion queues that are armed, and left alone for a while.

use urxe_stack::qp::attr::QpType;

use super::Generator;
use crate::operation::{Arm, Cq, Operation, QPS, SRQS};
use crate::specification::Model;

/// So many completions may lie in a queue that nobody polls.
const MOST_UNPOLLED: usize = 200;

impl Generator {
    pub(super) fn completions(&mut self, model: &Model, qp: usize) -> Operation {
        let xrc: Vec<usize> = (0..SRQS.len()).filter(|srq| SRQS[*srq].is_xrc).collect();
        let cq = match QPS[qp].qp_type {
            QpType::XrcRecv => Cq::Srq(self.rng.pick(&xrc)),
            _ if self.percent(30) => Cq::Send(qp),
            _ => Cq::Recv(qp),
        };
        let waits_for_any = model.armed.iter().find(|(_, arm)| **arm == Arm::Next);
        if let Some((&cq, _)) = waits_for_any
            && self.percent(15)
        {
            return Operation::Arm { cq, arm: Arm::Solicited };
        }
        let is_polled = !model.unpolled.contains(&cq);
        match self.rng.index(8) {
            0 if is_polled => Operation::Poll { cq, polled: false },
            0..3 if !is_polled => Operation::Poll { cq, polled: true },
            3 | 4 => Operation::Arm { cq, arm: Arm::Next },
            _ => Operation::Arm { cq, arm: Arm::Solicited },
        }
    }

    /// A queue that is to be polled before it overruns.
    pub(super) fn overfull(&self, model: &Model) -> Option<Cq> {
        let many = |cq: &&Cq| model.done.get(*cq).is_some_and(|done| done.len() > MOST_UNPOLLED);
        model.unpolled.iter().find(many).copied()
    }
}
