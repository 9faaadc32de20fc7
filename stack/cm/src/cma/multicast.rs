//! Multicast groups (`rdma_join_multicast`).
//!
//! In RoCE a group is an IP address and needs no subnet administration. Joining reports the address
//! vector of the group. The caller attaches the queue pair, which makes the host join the group
//! (cma.c, `cma_iboe_join_multicast`).

use std::net::{IpAddr, SocketAddr};

use urxe_wire::mad::PortSpace;
use urxe_wire::{Gid, QKey, Qpn};

use super::{Cma, CmaError, CmaEvent, CmaEventType, CmaId, EventParam, IdState, UdEvent};
use urxe_types::attr::AddressVector;

/// Identifier of a membership, which the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Membership(pub u64);

/// The destination queue pair of datagrams to a group.
const MULTICAST_QPN: Qpn = Qpn::masked(0xff_ffff);

impl Cma {
    /// Joins a group. The event contains the address vector.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the identifier is not bound to a device, or the address is not a
    /// multicast address.
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
        // An identifier for datagrams may also be connected to a service.
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
        // No route is resolved for a group, so its traffic class comes from the options.
        let traffic_class = known.options.tos;
        let ah = AddressVector { dgid: Gid::from_ip(ip), traffic_class, ..self.address_vector(id) };
        let param =
            EventParam::Ud(UdEvent { private_data: Vec::new(), ah, qpn: MULTICAST_QPN, qkey });
        let event = CmaEvent::new(id, CmaEventType::MulticastJoin);
        self.notify(CmaEvent { param, membership: Some(membership), ..event });
        Ok(())
    }

    /// Leaves a group, and removes its unread events.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the identifier is not a member of the group.
    pub fn leave_multicast(&mut self, id: CmaId, membership: Membership) -> Result<(), CmaError> {
        let known = self.id_mut(id)?;
        let place = known.groups.iter().position(|joined| *joined == membership);
        known.groups.swap_remove(place.ok_or(CmaError::NotJoined)?);
        self.channels.withdraw(|event| event.id == id && event.membership == Some(membership));
        Ok(())
    }
}
