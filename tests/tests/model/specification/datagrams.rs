//! Datagrams to one queue pair or to a group (IBTA vol. 1, 10.5). A faulty datagram is dropped,
//! without any notification.

use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpState, QpType};

use super::{Done, Model, OmittedRule};
use crate::keys::Accessor;
use crate::operation::{GROUPS, MAX_GROUPS, MAX_PER_GROUP, QKEY, QPS, Queue, Send, To};

/// The length of the header in front of a datagram, in bytes.
const HEADER: usize = 40;

/// The members of each group, of one device.
pub type Groups = [Vec<usize>; GROUPS];

impl Model {
    pub(super) fn datagram(&mut self, qp: usize, send: &Send, bytes: &[u8]) {
        match send.to {
            To::Datagram { qp: peer, qkey } => {
                self.arrives(qp, peer, qkey, send, bytes);
            }
            To::Group { group, qkey } => self.reaches_group(qp, group, qkey, send, bytes),
            _ => {}
        }
    }

    /// Delivers a copy to each member, also on the sender's own device.
    fn reaches_group(&mut self, qp: usize, group: usize, qkey: u32, send: &Send, bytes: &[u8]) {
        for device in 0..2 {
            let mut members = self.groups[device][group].clone();
            let own = QPS[qp].device == device;
            self.count(match (members.len(), own) {
                (0, _) => "a group without anybody",
                (1, false) => "a group with one",
                (_, false) => "a group with several",
                (_, true) => "a group of the sender's device",
            });
            match self.omitted {
                Some(OmittedRule::Copies) => members.truncate(1),
                Some(OmittedRule::Loopback) if own => members.clear(),
                _ => {}
            }
            let mut filled: Vec<Range<usize>> = Vec::new();
            for member in members {
                for place in self.arrives(qp, member, qkey, send, bytes) {
                    // The order of the copies is open.
                    if filled.iter().any(|other| other.start < place.end && place.start < other.end)
                    {
                        self.leave_open(device, place.clone());
                    }
                    filled.push(place);
                }
            }
        }
    }

    /// Delivers a datagram to a queue pair. Returns the filled bytes.
    fn arrives(
        &mut self,
        qp: usize,
        peer: usize,
        qkey: u32,
        send: &Send,
        bytes: &[u8],
    ) -> Vec<Range<usize>> {
        let nowhere = Vec::new();
        if self.states[peer] == QpState::Err {
            self.count("UD: to a queue pair in error");
            return nowhere;
        }
        if qkey != QKEY {
            self.count("UD: another Q_Key");
            if self.omitted != Some(OmittedRule::Violations) {
                self.violations[QPS[peer].device] += 1;
            }
            return nowhere;
        }
        let Some((accessor, queue)) = self.reach(peer, send) else { return nowhere };
        let Some(front) = self.take_held(peer, queue) else {
            self.count("UD: no receive");
            return nowhere;
        };
        if HEADER + bytes.len() > front.len() {
            match queue {
                Queue::Qp(qp) => self.own[qp].push_front(front),
                Queue::Srq(_) => self.held[peer] = Some(front),
            }
            self.count("UD: too long");
            return nowhere;
        }
        let own = Accessor { qp: None, ..accessor };
        let Ok(places) = self.places(own, &front.pieces, Access::LOCAL_WRITE) else {
            self.receive_fails(peer, queue, front.wr_id);
            return nowhere;
        };
        // Other tests check the header; here any bytes will do.
        let message = [&[0; HEADER], bytes].concat();
        self.scatter(own.device, &places, &message);
        let mut left = HEADER;
        for place in &places {
            let len = place.len().min(left);
            let header = place.start..place.start + len;
            self.leave_open(own.device, header);
            left -= len;
        }
        self.count("UD: received");
        let done = Done::received(peer, front.wr_id, message.len(), send.send_imm());
        let done = Done { from: Some(qp), ..done };
        self.receive_done(peer, queue, done, send.solicited);
        places
    }

    /// Attaches a queue pair to a group, or returns the error.
    pub fn attach(&mut self, qp: usize, group: Option<usize>) -> Result<(), Errno> {
        let plan = &QPS[qp];
        let (QpType::Ud, Some(group)) = (plan.qp_type, group) else {
            self.count("attached to no group, or no datagrams");
            return Err(Errno::INVAL);
        };
        let groups = &mut self.groups[plan.device];
        if groups[group].contains(&qp) {
            self.count("attached already");
            return Ok(());
        }
        let in_use = groups.iter().filter(|members| !members.is_empty()).count();
        let is_full = groups[group].len() >= MAX_PER_GROUP as usize;
        if is_full || (groups[group].is_empty() && in_use >= MAX_GROUPS as usize) {
            self.count(if is_full { "a group that is full" } else { "too many groups" });
            return Err(Errno::NOMEM);
        }
        groups[group].push(qp);
        self.count("attached");
        Ok(())
    }

    /// Detaches a queue pair from a group, or returns the error.
    pub fn detach(&mut self, qp: usize, group: Option<usize>) -> Result<(), Errno> {
        let members = group.map(|group| &mut self.groups[QPS[qp].device][group]);
        let position =
            members.as_ref().and_then(|members| members.iter().position(|&member| member == qp));
        let (Some(members), Some(position)) = (members, position) else {
            self.count("detached from where it is not");
            return Err(Errno::INVAL);
        };
        members.remove(position);
        self.count("detached");
        Ok(())
    }
}
