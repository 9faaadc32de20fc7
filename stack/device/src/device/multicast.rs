//! Multicast groups: the datagram queue pairs that get a copy of each message to a group.
//!
//! ```text
//!   attach ──> first of its group? ──> port joins (IGMP, MLD)
//!   packet to a group and to queue pair 0xffffff ──> a copy to every queue pair that is attached
//!   detach, or the end of the queue pair ──> last of its group? ──> port leaves
//! ```
//!
//! The MGID of a group is its IP address, an IPv4 one as ::ffff:a.b.c.d. Only packets to groups
//! take the lock of the table, once a run. Joining and leaving are system calls and have a lock of
//! their own.
//!
//! Unlike in the kernel, a packet to a group must name queue pair 0xffffff. A packet that names a
//! single queue pair would reach it once for each process that joined.
//!
//! Sources: IBTA vol. 1, 10.5 (multicast); rxe_mcast.c and rxe_recv.c of the kernel, and verbs.c
//! and uverbs_cmd.c of its core, for refused calls and their errors.

use std::collections::HashMap;
use std::net::IpAddr;

use urxe_wire::{Gid, PacketView, Qpn};

use super::counters::Counter;
use super::{Device, Limits, QpHandle};
use crate::qp::attr::QpType;
use urxe_types::port::{JoinError, JoinGroups};
use urxe_types::sync::{Mutex, MutexGuard, lock};
use urxe_types::time::Time;
use urxe_wire::network_header::Arrival;

urxe_types::errors! {
    /// The reason why a queue pair was not attached to a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AttachMcastError {
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        #[error("a {given} queue pair cannot be attached to a multicast group; UD queue pairs can")]
        NotDatagram { given: QpType } = EINVAL,
        #[error("{given} is not a multicast group: those are ff00::/8 and ::ffff:224.0.0.0/100 \
                 (IPv4 224.0.0.0/4)")]
        NotMulticast { given: Gid } = EINVAL,
        #[error("the device has {allowed} multicast groups (max_mcast_grp) and all are in use")]
        NoGroupLeft { allowed: u32 } = ENOMEM,
        /// The group has as many queue pairs as the device allows.
        #[error("{group} has {allowed} queue pairs (max_mcast_qp_attach) and takes no more")]
        GroupFull { group: IpAddr, allowed: u32 } = ENOMEM,
        #[error("the device allows {allowed} attachments to all groups together \
                 (max_total_mcast_qp_attach)")]
        NoneLeft { allowed: u32 } = ENOMEM,
        /// The network.
        #[error(transparent)] Join(#[from] JoinError),
    }

    /// The reason why a queue pair was not detached from a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DetachMcastError {
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        #[error("queue pair {qpn} is not attached to {given}")]
        NotAttached { qpn: Qpn, given: Gid } = EINVAL,
    }
}

/// The groups of a device.
pub(super) struct Groups {
    port: Box<dyn JoinGroups>,
    /// Held during every change, joining and leaving included. Taken before the locks of queue
    /// pairs.
    changes: Mutex<()>,
    /// The queue pairs of each group, in the order in which they were attached.
    members: Mutex<HashMap<IpAddr, Vec<QpHandle>>>,
}

/// The lock of changes: meanwhile no other thread attaches, detaches or destroys.
pub(super) struct GroupChanges<'a> {
    groups: &'a Groups,
    _held: MutexGuard<'a, ()>,
}

impl Groups {
    pub fn new(port: Box<dyn JoinGroups>) -> Self {
        Self { port, changes: Mutex::new(()), members: Mutex::default() }
    }

    pub fn change(&self) -> GroupChanges<'_> {
        GroupChanges { groups: self, _held: lock(&self.changes) }
    }
}

impl GroupChanges<'_> {
    /// Returns the groups that a queue pair is attached to.
    pub fn groups_of(&self, qp: QpHandle) -> Vec<IpAddr> {
        let members = lock(&self.groups.members);
        let attached = members.iter().filter(|(_, attached)| attached.contains(&qp));
        attached.map(|(group, _)| *group).collect()
    }

    /// Detaches a queue pair from all its groups.
    pub fn detach_all(&self, qp: QpHandle) {
        for group in self.groups_of(qp) {
            self.remove(qp, group);
        }
    }

    /// Adds a queue pair to a group, which the port joins for the first one.
    fn add(&self, qp: QpHandle, group: IpAddr, limits: &Limits) -> Result<(), AttachMcastError> {
        let members = lock(&self.groups.members);
        let attached = members.get(&group).map_or(&[][..], Vec::as_slice);
        if attached.contains(&qp) {
            return Ok(());
        }
        let is_first = attached.is_empty();
        if is_first && members.len() >= limits.max_mcast_grp as usize {
            return Err(AttachMcastError::NoGroupLeft { allowed: limits.max_mcast_grp });
        }
        let attachments = members.values().map(Vec::len).sum::<usize>();
        if attachments >= limits.max_total_mcast_qp_attach as usize {
            return Err(AttachMcastError::NoneLeft { allowed: limits.max_total_mcast_qp_attach });
        }
        if attached.len() >= limits.max_mcast_qp_attach as usize {
            return Err(AttachMcastError::GroupFull { group, allowed: limits.max_mcast_qp_attach });
        }
        drop(members);
        if is_first {
            self.groups.port.join(group)?;
        }
        lock(&self.groups.members).entry(group).or_default().push(qp);
        Ok(())
    }

    /// Removes a queue pair from a group. The port leaves the group after its last queue pair.
    /// Returns whether the queue pair was attached.
    fn remove(&self, qp: QpHandle, group: IpAddr) -> bool {
        let mut members = lock(&self.groups.members);
        let Some(attached) = members.get_mut(&group) else { return false };
        let Some(position) = attached.iter().position(|&attached| attached == qp) else {
            return false;
        };
        attached.remove(position);
        let was_last = attached.is_empty();
        if was_last {
            members.remove(&group);
        }
        drop(members);
        if was_last {
            self.groups.port.leave(group);
        }
        true
    }
}

impl Device {
    /// Attaches a datagram queue pair in any state to a multicast group (`ibv_attach_mcast`). The
    /// queue pair gets all messages to the group, its own included. Attaching it again has no
    /// effect.
    ///
    /// # Errors
    /// [`AttachMcastError`].
    pub fn attach_mcast(&self, qp: QpHandle, mgid: Gid) -> Result<(), AttachMcastError> {
        let changes = self.groups.change();
        let qp_type = self.with_qp(qp, |qp| qp.core.qp_type).ok_or(AttachMcastError::NoQp)?;
        if qp_type != QpType::Ud {
            return Err(AttachMcastError::NotDatagram { given: qp_type });
        }
        if !mgid.is_multicast() {
            return Err(AttachMcastError::NotMulticast { given: mgid });
        }
        changes.add(qp, mgid.to_ip(), &self.limits)
    }

    /// Detaches a queue pair from a multicast group (`ibv_detach_mcast`). Messages that arrived
    /// before may still be delivered.
    ///
    /// # Errors
    /// [`DetachMcastError`].
    pub fn detach_mcast(&self, qp: QpHandle, mgid: Gid) -> Result<(), DetachMcastError> {
        let changes = self.groups.change();
        self.with_qp(qp, |_| ()).ok_or(DetachMcastError::NoQp)?;
        match mgid.is_multicast() && changes.remove(qp, mgid.to_ip()) {
            true => Ok(()),
            false => Err(DetachMcastError::NotAttached { qpn: qp.qpn(), given: mgid }),
        }
    }

    /// Returns the groups with attached queue pairs, and the number of queue pairs of each.
    #[must_use]
    pub fn mcast_groups(&self) -> Vec<(IpAddr, usize)> {
        let members = lock(&self.groups.members);
        members.iter().map(|(group, attached)| (*group, attached.len())).collect()
    }

    /// Replaces the contents of `members` by the queue pairs that get datagrams to the address
    /// `to`, if that is a group.
    pub(super) fn members_for(&self, to: IpAddr, members: &mut Vec<QpHandle>) {
        members.clear();
        if to.is_multicast()
            && let Some(attached) = lock(&self.groups.members).get(&to.to_canonical())
        {
            members.extend_from_slice(attached);
        }
    }

    /// Delivers a packet that was sent to a group or names the queue pair number of groups. The
    /// caller must hold no queue pair.
    pub(super) fn receive_from_group(
        &self,
        now: Time,
        packet: &PacketView<'_>,
        arrival: Arrival,
        members: &[QpHandle],
    ) {
        if packet.dest_qp() != Qpn::MULTICAST || !arrival.to.is_multicast() {
            return self.counters.add(Counter::DropGroupMismatch);
        }
        if members.is_empty() {
            return self.counters.add(Counter::DropNoGroup);
        }
        for &member in members {
            // A queue pair that is not found was destroyed just now.
            self.receive_alone(now, member.index, member.qpn, packet, arrival);
        }
    }
}
