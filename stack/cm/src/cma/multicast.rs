//! Multicast groups (`rdma_join_multicast`). In RoCE a group is an IP address and nobody need be
//! asked: joining tells the group's address handle, and attaching the queue pair to it, which is
//! the caller's, makes the host receive (cma.c, `cma_iboe_join_multicast`).

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;
use urxe_wire::{Gid, QKey, Qpn};

use super::{Cma, CmaError, CmaEvent, CmaEventType, CmaId, EventParam, IdState, UdEvent};
use urxe_types::attr::AddressVector;

/// Names a membership: the caller's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Membership(pub u64);

/// The destination of a datagram to a group.
const MULTICAST_QPN: Qpn = Qpn::masked(0xff_ffff);

impl Cma {
    /// Joins a group. The event tells the way to it.
    ///
    /// # Errors
    /// [`CmaError`].
    pub fn join_multicast(
        &mut self,
        id: CmaId,
        group: SocketAddr,
        membership: Membership,
    ) -> Result<(), CmaError> {
        let ip: IpAddr = group.ip().to_canonical();
        let known = self.id_mut(id)?;
        let state = known.state;
        let is_ready =
            matches!(state, IdState::AddrBound | IdState::AddrResolved | IdState::RouteResolved);
        // A datagram's identifier may have asked for a peer as well.
        let has_asked = state == IdState::Connect && known.is_datagram();
        if !(is_ready || has_asked) || known.device.is_none() {
            return Err(CmaError::State { id, state, call: "join a multicast group" });
        }
        if !ip.is_multicast() && !ip.is_unspecified() {
            return Err(CmaError::NoGroup(ip));
        }
        known.groups.push(membership);
        let qkey = match known.space {
            PortSpace::UDP | PortSpace::IB => PortSpace::UDP_QKEY,
            _ => QKey(0),
        };
        // A group has no route that would have been resolved.
        let traffic_class = known.options.tos;
        let ah = AddressVector { dgid: Gid::from_ip(ip), traffic_class, ..self.address_vector(id) };
        let param =
            EventParam::Ud(UdEvent { private_data: Vec::new(), ah, qpn: MULTICAST_QPN, qkey });
        let event = CmaEvent::new(id, CmaEventType::MulticastJoin);
        self.notify(CmaEvent { param, membership: Some(membership), ..event });
        Ok(())
    }

    /// Leaves a group; events of it that nobody took are withdrawn.
    ///
    /// # Errors
    /// [`CmaError`].
    pub fn leave_multicast(&mut self, id: CmaId, membership: Membership) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let place = known.groups.iter().position(|joined| *joined == membership);
        known.groups.swap_remove(place.ok_or(CmaError::NotJoined)?);
        self.channels.withdraw(|event| event.id == id && event.membership == Some(membership));
        Ok(())
    }
}
