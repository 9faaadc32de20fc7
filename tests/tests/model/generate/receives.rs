//! What is posted to receive queues, and what shared ones are told to be.

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpType;

use super::Generator;
use crate::keys::Asker;
use crate::operation::{MAX_SRQ_WR, Operation, QPS, Queue, Recv, SRQS, Source};
use crate::specification::Model;

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
        let asker = Asker { device, pd, qp: None };
        let mut list = Vec::new();
        for _ in 0..(1 + self.rng.index(4)).min(room) {
            let len = match queue {
                // A header and any message: what is too short stays in front of the others.
                Queue::Qp(qp) if QPS[qp].qp_type == QpType::Ud && self.percent(95) => {
                    40 + model.mtu
                }
                _ if self.percent(20) => self.length(model.mtu),
                _ => 300 + self.rng.index(900),
            };
            let pieces = self.local(model, asker, Access::LOCAL_WRITE, len, 3);
            list.push(Recv { wr_id: self.wr_id(), pieces });
        }
        Operation::Recv { queue, list }
    }

    /// Another size, or another limit, or both; some of them impossible.
    pub(super) fn modify_srq(&mut self, model: &Model) -> Operation {
        let srq = self.rng.index(SRQS.len());
        let held = model.shared[srq].len() as u32;
        let said = self.rng.index(4);
        let max_wr = match self.rng.index(8) {
            0 => self.rng.pick(&[0, MAX_SRQ_WR + 1, u32::MAX]),
            // About what it holds.
            1 | 2 => held.saturating_sub(2) + self.rng.below(4) as u32,
            _ => 1 + self.rng.below(u64::from(MAX_SRQ_WR)) as u32,
        };
        let limit = match self.rng.index(8) {
            0 => MAX_SRQ_WR / 2 + self.rng.below(u64::from(MAX_SRQ_WR)) as u32,
            // Told soon.
            1..4 => held.min(model.sizes[srq] as u32),
            _ => self.rng.below(5) as u32,
        };
        let (max_wr, limit) = ((said & 1 != 0).then_some(max_wr), (said != 1).then_some(limit));
        Operation::ModifySrq { srq, max_wr, limit }
    }
}
