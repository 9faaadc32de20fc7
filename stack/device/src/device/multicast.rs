//! Multicast groups: which datagram queue pairs get a copy of what is sent to a group.
//!
//! ```text
//!   attach ──> first of its group? ──> port joins (IGMP, MLD)
//!   packet to a group and to queue pair 0xffffff ──> a copy to every queue pair that is attached
//!   detach, or the end of the queue pair ──> last of its group? ──> port leaves
//! ```
//! A group's MGID is its IP address, an IPv4 one as ::ffff:a.b.c.d. Only packets to groups take the
//! lock of the table, once a run; joining and leaving, which are system calls, have another.
//!
//! Sources: IBTA vol. 1, 10.5 (multicast); the kernel's rxe_mcast.c and rxe_recv.c, and verbs.c and
//! uverbs_cmd.c of its core, for what is refused and how. Unlike the kernel, a packet to a group
//! must be for queue pair 0xffffff: one that names a single queue pair would reach it once for each
//! process that joined.

use std::collections::HashMap;
use std::net::IpAddr;

use urxe_wire::{Gid, PacketView, Qpn};

use super::counters::Counter;
use super::{Device, Limits, QpHandle};
use crate::qp::attr::QpType;
use urxe_types::port::{Datagrams, JoinError, JoinGroups};
use urxe_types::sync::{Mutex, MutexGuard, lock};
use urxe_types::time::Time;
use urxe_wire::network_header::Arrival;

urxe_types::errors! {
    /// Why a queue pair was not attached to a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AttachMcastError {
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        #[error("a {given} queue pair cannot be attached to a multicast group; UD queue pairs can")]
        NotDatagram { given: QpType } = EINVAL,
        #[error("{given} is no multicast group: those are ff00::/8 and ::ffff:224.0.0.0/100 (IPv4 \
                 224.0.0.0/4)")]
        NotMulticast { given: Gid } = EINVAL,
        #[error("the device has {allowed} multicast groups (max_mcast_grp) and all are in use")]
        NoGroupLeft { allowed: u32 } = ENOMEM,
        /// The group has as many queue pairs as it may.
        #[error("{group} has {allowed} queue pairs (max_mcast_qp_attach) and takes no more")]
        GroupFull { group: IpAddr, allowed: u32 } = ENOMEM,
        #[error("the device allows {allowed} attachments to all groups together \
                 (max_total_mcast_qp_attach)")]
        NoneLeft { allowed: u32 } = ENOMEM,
        /// The network.
        #[error(transparent)] Join(#[from] JoinError),
    }

    /// Why a queue pair was not detached from a group.
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
    /// Held while anything changes, joining and leaving included. Taken before the locks of queue
    /// pairs.
    changes: Mutex<()>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    /// Of each group the queue pairs, in the order in which they were attached.
    of: HashMap<IpAddr, Vec<QpHandle>>,
    attachments: u32,
}

/// Nobody attaches, detaches or destroys meanwhile.
pub(super) struct Changing<'a> {
    groups: &'a Groups,
    _held: MutexGuard<'a, ()>,
}

impl Groups {
    pub fn new(port: Box<dyn JoinGroups>) -> Self {
        Self { port, changes: Mutex::new(()), members: Mutex::default() }
    }

    pub fn change(&self) -> Changing<'_> {
        Changing { groups: self, _held: lock(&self.changes) }
    }

    /// Puts the queue pairs of a group into `members`, whatever it held.
    fn copy_members(&self, group: IpAddr, members: &mut Vec<QpHandle>) {
        members.clear();
        if let Some(attached) = lock(&self.members).of.get(&group) {
            members.extend_from_slice(attached);
        }
    }
}

impl Changing<'_> {
    /// The groups that a queue pair is attached to.
    pub fn groups_of(&self, qp: QpHandle) -> Vec<IpAddr> {
        let members = lock(&self.groups.members);
        let attached = members.of.iter().filter(|(_, attached)| attached.contains(&qp));
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
        let attached = members.of.get(&group).map_or(&[][..], Vec::as_slice);
        if attached.contains(&qp) {
            return Ok(());
        }
        let is_first = attached.is_empty();
        if is_first && members.of.len() >= limits.max_mcast_grp as usize {
            return Err(AttachMcastError::NoGroupLeft { allowed: limits.max_mcast_grp });
        }
        if members.attachments >= limits.max_total_mcast_qp_attach {
            return Err(AttachMcastError::NoneLeft { allowed: limits.max_total_mcast_qp_attach });
        }
        if attached.len() >= limits.max_mcast_qp_attach as usize {
            return Err(AttachMcastError::GroupFull { group, allowed: limits.max_mcast_qp_attach });
        }
        drop(members);
        if is_first {
            self.groups.port.join(group)?;
        }
        let mut members = lock(&self.groups.members);
        members.of.entry(group).or_default().push(qp);
        members.attachments += 1;
        Ok(())
    }

    /// Takes a queue pair out of a group, which the port leaves with the last. Whether it was in
    /// it.
    fn remove(&self, qp: QpHandle, group: IpAddr) -> bool {
        let mut members = lock(&self.groups.members);
        let Some(attached) = members.of.get_mut(&group) else { return false };
        let Some(position) = attached.iter().position(|&attached| attached == qp) else {
            return false;
        };
        attached.remove(position);
        let was_last = attached.is_empty();
        if was_last {
            members.of.remove(&group);
        }
        members.attachments -= 1;
        drop(members);
        if was_last {
            self.groups.port.leave(group);
        }
        true
    }
}

impl Device {
    /// Attaches a datagram queue pair to a multicast group (`ibv_attach_mcast`), in any state: it
    /// gets what is sent there, its own messages included. Once more is the same as once.
    ///
    /// # Errors
    /// [`AttachMcastError`].
    pub fn attach_mcast(&self, qp: QpHandle, mgid: Gid) -> Result<(), AttachMcastError> {
        let changing = self.groups.change();
        let qp_type = self.with_qp(qp, |qp| qp.core.qp_type).ok_or(AttachMcastError::NoQp)?;
        if qp_type != QpType::Ud {
            return Err(AttachMcastError::NotDatagram { given: qp_type });
        }
        if !mgid.is_multicast() {
            return Err(AttachMcastError::NotMulticast { given: mgid });
        }
        changing.add(qp, mgid.to_ip(), &self.limits)
    }

    /// Detaches a queue pair from a multicast group (`ibv_detach_mcast`). What arrived before may
    /// still be handed to it.
    ///
    /// # Errors
    /// [`DetachMcastError`].
    pub fn detach_mcast(&self, qp: QpHandle, mgid: Gid) -> Result<(), DetachMcastError> {
        let changing = self.groups.change();
        self.with_qp(qp, |_| ()).ok_or(DetachMcastError::NoQp)?;
        match mgid.is_multicast() && changing.remove(qp, mgid.to_ip()) {
            true => Ok(()),
            false => Err(DetachMcastError::NotAttached { qpn: qp.qpn(), given: mgid }),
        }
    }

    /// The groups that queue pairs are attached to, with how many each.
    #[must_use]
    pub fn mcast_groups(&self) -> Vec<(IpAddr, usize)> {
        let members = lock(&self.groups.members);
        members.of.iter().map(|(group, attached)| (*group, attached.len())).collect()
    }

    /// Whom packets that came together are for, if they came to a group.
    pub(super) fn members_for(&self, datagrams: &Datagrams<'_>, members: &mut Vec<QpHandle>) {
        members.clear();
        if datagrams.to.is_multicast() {
            self.groups.copy_members(datagrams.to.to_canonical(), members);
        }
    }

    /// Takes a packet to a group, or one that has a group's queue pair number. The caller holds no
    /// queue pair.
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
            // If there is none, it was destroyed just now.
            self.receive_alone(now, member.index, member.qpn, packet, arrival);
        }
    }
}
