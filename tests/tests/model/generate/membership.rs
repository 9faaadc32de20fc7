//! XRC domains besides the one that carries messages, destinations of datagrams, and members of
//! multicast groups.

use urxe_stack::qp::attr::QpType;

use super::Generator;
use crate::operation::{GROUPS, Operation, QKEY, QPS, To, XrcCall};
use crate::specification::{Member, Model};

const FILES: u64 = 3;
/// The maximum number of open domains, and of their members.
const MOST: usize = 10;

impl Generator {
    pub(super) fn xrc(&mut self, model: &Model) -> XrcCall {
        let open: Vec<usize> =
            (0..model.domains.len()).filter(|nr| model.domains[*nr].opens > 0).collect();
        let first = Member::of_the_scenario().len();
        let members: Vec<usize> =
            (first..model.members.len()).filter(|nr| model.members[*nr].opens > 0).collect();
        let targets: Vec<usize> =
            members.iter().copied().filter(|nr| !model.members[*nr].is_srq).collect();
        // Mostly an open domain. The first domain stays open, because its members stay.
        let domain = if self.percent(85) {
            self.rng.pick(&open)
        } else {
            self.rng.index(model.domains.len())
        };
        match self.rng.index(8) {
            0 | 1 if open.len() < MOST => XrcCall::Open {
                device: self.rng.index(2),
                file: if self.percent(70) { Some(self.rng.below(FILES)) } else { None },
                create: self.percent(75),
                exclusive: self.percent(20),
            },
            2 | 3 if members.len() < MOST => XrcCall::Make { domain, is_srq: self.percent(50) },
            4 if !targets.is_empty() => {
                let member = self.rng.pick(&targets);
                let domain = if self.percent(75) { model.members[member].domain } else { domain };
                XrcCall::OpenTarget { domain, member }
            }
            5 | 6 if !members.is_empty() => XrcCall::Destroy { member: self.rng.pick(&members) },
            _ => XrcCall::Close { domain },
        }
    }

    /// Returns the destination of a message over XRC: mostly a queue of its domain.
    pub(super) fn xrc_queue(&mut self, model: &Model) -> To {
        let is_other = |nr: &usize| {
            let Member { domain, is_srq, opens } = model.members[*nr];
            opens > 0 && is_srq && domain != 0 && model.domains[domain].device == 1
        };
        let others: Vec<usize> = (0..model.members.len()).filter(is_other).collect();
        match self.rng.index(20) {
            0 => To::Srq(None),
            1 | 2 if !others.is_empty() => To::OtherDomain(self.rng.pick(&others)),
            _ => To::Srq(Some(2 + self.rng.index(2))),
        }
    }

    /// Returns the destination of a datagram. `alone`: the list has no other message. A multicast
    /// copy may land where the next message is read.
    pub(super) fn datagram_to(&mut self, model: &Model, qp: usize, alone: bool) -> To {
        let qkey = if self.percent(90) { QKEY } else { QKEY ^ 1 };
        if alone && self.percent(70) {
            // Mostly the group with the most members.
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

    /// Returns an attachment of a queue pair to a group or a detachment, mostly of a datagram queue
    /// pair.
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
