//! Datagrams and whom they are for, and who is attached to groups.

use urxe_stack::qp::attr::QpType;

use super::Generator;
use crate::operation::{GROUPS, Operation, QKEY, QPS, To};
use crate::specification::Model;

impl Generator {
    /// `alone`: nothing is sent with it. What goes to a group may arrive where the next message is
    /// read.
    pub(super) fn datagram_to(&mut self, model: &Model, qp: usize, alone: bool) -> To {
        let qkey = if self.percent(90) { QKEY } else { QKEY ^ 1 };
        if alone && self.percent(70) {
            // Mostly where several listen.
            let listeners =
                |group: usize| model.groups.iter().map(|groups| groups[group].len()).max();
            let loudest = (0..GROUPS).max_by_key(|group| listeners(*group)).unwrap_or(0);
            let group = if self.percent(60) { loudest } else { self.rng.index(GROUPS) };
            return To::Group { group, qkey };
        }
        let there =
            |nr: &usize| QPS[*nr].qp_type == QpType::Ud && QPS[*nr].device != QPS[qp].device;
        let others: Vec<usize> = (0..QPS.len()).filter(there).collect();
        To::Datagram { qp: self.rng.pick(&others), qkey }
    }

    /// A queue pair comes to a group or leaves one, mostly one of datagrams.
    pub(super) fn membership(&mut self, model: &Model) -> Operation {
        let datagrams: Vec<usize> =
            (0..QPS.len()).filter(|nr| QPS[*nr].qp_type == QpType::Ud).collect();
        let qp =
            if self.percent(92) { self.rng.pick(&datagrams) } else { self.rng.index(QPS.len()) };
        let group = if self.percent(95) { Some(self.rng.index(GROUPS)) } else { None };
        let of = |group: usize| model.groups[QPS[qp].device][group].contains(&qp);
        match group {
            Some(group) if of(group) && self.percent(85) => {
                Operation::Detach { qp, group: Some(group) }
            }
            _ if self.percent(12) => Operation::Detach { qp, group },
            _ => Operation::Attach { qp, group },
        }
    }
}
