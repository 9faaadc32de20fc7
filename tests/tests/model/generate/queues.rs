//! Receives, the sizes and limits of shared receive queues, and completion queues that are armed or
//! not polled for a while.

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::work_request::SendOp;

use super::Generator;
use crate::keys::Accessor;
use crate::operation::{
    Arm, Cq, Data, MAX_SRQ_WR, Operation, QPS, Queue, Recv, SRQS, Send, Source,
};
use crate::specification::Model;

/// The number of completions in an unpolled queue beyond which the queue is polled.
const MOST_UNPOLLED: usize = 200;

impl Generator {
    pub(super) fn receives(&mut self, model: &Model, qp: usize) -> Operation {
        let shared = self.rng.index(SRQS.len());
        let queue = match QPS[qp].source {
            Source::None => Queue::Srq(shared),
            Source::Shared(srq) if self.percent(95) => Queue::Srq(srq),
            _ => Queue::Qp(qp),
        };
        let (device, pd) = match queue {
            Queue::Qp(qp) => (QPS[qp].device, QPS[qp].pd),
            Queue::Srq(srq) => (SRQS[srq].device, SRQS[srq].pd),
        };
        let room = model.room(queue).max(1);
        let accessor = Accessor { device, pd, qp: None };
        let mut list = Vec::new();
        for _ in 0..(1 + self.rng.index(4)).min(room) {
            let len = match queue {
                // Room for a header and any message, because a receive that is too short stays at
                // the front.
                Queue::Qp(qp) if QPS[qp].qp_type == QpType::Ud && self.percent(95) => {
                    40 + model.mtu
                }
                _ if self.percent(20) => self.length(model.mtu),
                _ => 300 + self.rng.index(900),
            };
            let pieces = self.local(model, accessor, Access::LOCAL_WRITE, len, 3);
            list.push(Recv { wr_id: self.wr_id(), pieces });
        }
        Operation::Recv { queue, list }
    }

    /// Returns a change of size, limit or both, sometimes an impossible one.
    pub(super) fn modify_srq(&mut self, model: &Model) -> Operation {
        let srq = self.rng.index(SRQS.len());
        let held = model.shared[srq].len() as u32;
        let fields = self.rng.index(4);
        let max_wr = match self.rng.index(8) {
            0 => self.rng.pick(&[0, MAX_SRQ_WR + 1, u32::MAX]),
            // About the number of queued receives.
            1 | 2 => held.saturating_sub(2) + self.rng.below(4) as u32,
            _ => 1 + self.rng.below(u64::from(MAX_SRQ_WR)) as u32,
        };
        let limit = match self.rng.index(8) {
            0 => MAX_SRQ_WR / 2 + self.rng.below(u64::from(MAX_SRQ_WR)) as u32,
            // A limit that is soon reached.
            1..4 => held.min(model.sizes[srq] as u32),
            _ => self.rng.below(5) as u32,
        };
        let (max_wr, limit) = ((fields & 1 != 0).then_some(max_wr), (fields != 1).then_some(limit));
        Operation::ModifySrq { srq, max_wr, limit }
    }

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

    /// Returns a queue that must be polled before it overruns.
    pub(super) fn overfull(&self, model: &Model) -> Option<Cq> {
        let many = |cq: &&Cq| model.done.get(*cq).is_some_and(|done| done.len() > MOST_UNPOLLED);
        model.unpolled.iter().find(many).copied()
    }

    /// Returns a drained queue pair whose requests name a key that an operation removes or changes.
    /// A careful program leaves that memory unchanged until then, because a message with partly
    /// removed data may arrive in part.
    pub(super) fn waits_for(model: &Model, operation: &Operation) -> Option<usize> {
        let (device, taken) = match operation {
            Operation::Deregister { key } | Operation::Reregister { key, .. } => {
                let key = &model.keys.0[*key];
                (key.device, vec![key.value])
            }
            Operation::Send { qp, list } => {
                let device = QPS[*qp].device;
                let by_itself = list.iter().any(|send| matches!(send.op, SendOp::LocalInv { .. }));
                let keys = list.iter().filter_map(|send| match send.op {
                    SendOp::LocalInv { rkey } | SendOp::SendInvalidate { rkey } => {
                        Some(rkey.value())
                    }
                    _ => None,
                });
                (if by_itself { device } else { 1 - device }, keys.collect())
            }
            _ => return None,
        };
        let names = |send: &Send| match &send.data {
            Data::Pieces(pieces) => pieces.iter().any(|piece| taken.contains(&piece.key)),
            Data::Inline(_) => false,
        };
        (0..QPS.len()).find(|&qp| QPS[qp].device == device && model.waiting[qp].iter().any(names))
    }
}
