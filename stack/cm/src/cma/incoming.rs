//! The processing of events of the connection manager (cma.c, `cma_ib_handler`,
//! `cma_ib_req_handler`, `cma_sidr_rep_handler`).

use std::net::SocketAddr;

use urxe_wire::mad::{
    Attribute, Bits, CmMessage, CmaHeader, CommId, Mad, RejReason, Rep, Req, SidrRep, SidrReq,
    SidrStatus, TransportType,
};
use urxe_wire::{Gid, Qpn};

use super::connect::SERVICE_TIMEOUT;
use super::id::Id;
use super::{
    Cma, CmaEvent, CmaEventType, CmaId, ConnEvent, DeviceKey, EventParam, IdState, Options, UdEvent,
};
use crate::cm::{CmEvent, CmEventKind};
use urxe_types::attr::{AddressVector, QpType};
use urxe_types::time::Time;

impl Cma {
    /// Processes all events of a device's connection manager.
    pub(super) fn process_events(&mut self, now: Time, key: DeviceKey) {
        while let Some(event) =
            self.devices.get_mut(&key).and_then(|device| device.manager.poll_event())
        {
            self.on_event(now, key, &event);
        }
    }

    fn on_event(&mut self, now: Time, key: DeviceKey, event: &CmEvent) {
        let CmEvent { id: comm, kind } = *event;
        if let CmEventKind::Request { mad, .. } = &kind {
            return self.on_request(now, key, comm, mad);
        }
        let Some(&id) = self.devices.get(&key).and_then(|device| device.by_comm.get(&comm)) else {
            return;
        };
        match kind {
            CmEventKind::Message(mad) => {
                if matches!(mad.message, CmMessage::Rep(_)) {
                    self.prepare_mra(now, key, comm);
                }
                self.on_message(id, &mad);
            }
            CmEventKind::Established => self.notify_type(id, CmaEventType::Established),
            CmEventKind::TimedOut(Attribute::Dreq) | CmEventKind::PeerLost => {
                self.on_disconnected(id, -libc::ETIMEDOUT);
            }
            CmEventKind::TimedOut(_) => {
                self.notify_status(id, CmaEventType::Unreachable, -libc::ETIMEDOUT);
            }
            CmEventKind::TimewaitExit => {
                // Only a connection that was established reports the end of TIMEWAIT. A rejected
                // request has already been reported (cma.c, `cma_ib_handler`).
                if self.ids.get(&id).is_some_and(|id| id.state == IdState::Disconnect) {
                    self.notify_type(id, CmaEventType::TimewaitExit);
                }
            }
            CmEventKind::Request { .. } => {}
        }
    }

    /// Prepares an MRA, which the connection manager sends if the peer repeats its request before
    /// the program has replied.
    fn prepare_mra(&mut self, now: Time, key: DeviceKey, comm: CommId) {
        if let Some(device) = self.devices.get_mut(&key) {
            // This fails if the connection has ended, which needs no MRA.
            let _ = device.manager.prepare_mra(now, comm, Bits::masked(SERVICE_TIMEOUT));
        }
    }

    fn on_message(&mut self, id: CmaId, mad: &Mad) {
        match &mad.message {
            CmMessage::Rep(rep) => {
                let ece = (rep.ece_vendor_id.0.value(), mad.attribute_modifier);
                let param = EventParam::Conn(conn_event(rep));
                let event_type = CmaEventType::ConnectResponse;
                self.notify(CmaEvent { param, ece, ..CmaEvent::new(id, event_type) });
            }
            CmMessage::Rtu(_) => self.notify_type(id, CmaEventType::Established),
            CmMessage::Rej(rej) => {
                let param = EventParam::Conn(ConnEvent {
                    private_data: rej.private_data.bytes().to_vec(),
                    ..ConnEvent::default()
                });
                let status = i32::from(rej.reason.0);
                self.notify(CmaEvent {
                    status,
                    param,
                    ..CmaEvent::new(id, CmaEventType::Rejected)
                });
            }
            CmMessage::Dreq(_) | CmMessage::Drep(_) => self.on_disconnected(id, 0),
            CmMessage::SidrRep(rep) => self.on_sidr_rep(id, rep),
            // The connection manager handles MRAs itself, and paths do not change.
            _ => {}
        }
    }

    /// Reports the end of a connection, once for both sides' messages.
    fn on_disconnected(&mut self, id: CmaId, status: i32) {
        let Some(known) = self.ids.get_mut(&id) else { return };
        if known.state == IdState::Connect {
            known.state = IdState::Disconnect;
            self.notify_status(id, CmaEventType::Disconnected, status);
        }
    }

    fn on_sidr_rep(&mut self, id: CmaId, rep: &SidrRep) {
        let Some(known) = self.ids.get_mut(&id) else { return };
        let is_fine = rep.status == SidrStatus::SUCCESS;
        if is_fine {
            known.qkey = rep.qkey;
        }
        let ah = self.address_vector(id);
        let private_data = rep.private_data.bytes().to_vec();
        let param = EventParam::Ud(UdEvent { private_data, ah, qpn: rep.qpn, qkey: rep.qkey });
        let event_type =
            if is_fine { CmaEventType::Established } else { CmaEventType::Unreachable };
        let status = i32::from(rep.status.0);
        self.notify(CmaEvent { status, param, ..CmaEvent::new(id, event_type) });
    }

    /// Creates an identifier for a peer's request, or rejects the request.
    fn on_request(&mut self, now: Time, key: DeviceKey, comm: CommId, mad: &Mad) {
        let known = match &mad.message {
            CmMessage::Req(req) => self.id_for_req(key, comm, req),
            CmMessage::SidrReq(req) => self.id_for_sidr_req(key, comm, req),
            _ => return,
        };
        let Some(device) = self.devices.get_mut(&key) else { return };
        match known {
            Ok((listener, new, param)) => {
                let ece = (
                    device.manager.agreed(comm).map_or(0, |agreed| agreed.ece.0),
                    mad.attribute_modifier,
                );
                let is_connection = !new.is_datagram();
                let peer = new.remote;
                let id = self.insert(Id { comm: Some(comm), is_unanswered: true, ..new });
                if is_connection {
                    self.prepare_mra(now, key, comm);
                }
                if let Some(device) = self.devices.get_mut(&key) {
                    device.by_comm.insert(comm, id);
                }
                if let Some(known) = self.ids.get_mut(&listener) {
                    let since = known.waiting_requests.insert(peer, id);
                    if let Some(request) = self.ids.get_mut(&id) {
                        request.waits_for = Some((listener, since));
                    }
                }
                let event = CmaEvent::new(listener, CmaEventType::ConnectRequest);
                self.notify(CmaEvent { new_id: Some(id), param, ece, ..event });
            }
            Err(Rejection::BacklogFull { listener, peer }) => {
                if self.make_room(now, listener, peer) {
                    return self.on_request(now, key, comm, mad);
                }
                // The peer may repeat the request when there is space.
                if let Some(device) = self.devices.get_mut(&key) {
                    device.manager.drop_request(now, comm);
                }
            }
            Err(Rejection::NoListener) => {
                let none = (Default::default(), Default::default());
                let reason = RejReason::INVALID_SERVICE_ID;
                // `destroy` rejects a SIDR_REQ.
                let _ = device.manager.reject(now, comm, reason, none, Default::default());
                let _ = device.manager.destroy(now, comm);
            }
            Err(Rejection::Mismatch) => {
                let _ = device.manager.destroy(now, comm);
            }
        }
    }

    /// Removes a waiting request from a full backlog: the oldest of the peer with the most, if that
    /// peer has at least two more than `peer`. The other peer may repeat its request. Returns
    /// whether there is room now.
    ///
    /// So a peer that fills a backlog leaves every other one a share.
    fn make_room(&mut self, now: Time, listener: CmaId, peer: Gid) -> bool {
        let Some(known) = self.ids.get(&listener) else { return false };
        let waiting = &known.waiting_requests;
        let Some(victim) = waiting.victim() else { return false };
        if waiting.most() < waiting.len_of(peer) + 2 {
            return false;
        }
        self.stop_waiting(victim);
        self.channels.withdraw(|event| event.new_id == Some(victim));
        if let Ok((_, comm, device)) = self.connection(victim) {
            device.manager.drop_request(now, comm);
            // This fails unless the peer has ended the connection.
            let _ = device.manager.destroy(now, comm);
            device.by_comm.remove(&comm);
        }
        self.ids.remove(&victim);
        true
    }

    /// Removes a request from those that wait in the channel of its listener.
    pub(super) fn stop_waiting(&mut self, request: CmaId) {
        let Some(known) = self.ids.get_mut(&request) else { return };
        let (peer, waits_for) = (known.remote, known.waits_for.take());
        let Some((listener, since)) = waits_for else { return };
        if let Some(listener) = self.ids.get_mut(&listener) {
            listener.waiting_requests.remove(peer, since);
        }
    }

    /// Returns the listener for a request and the new identifier.
    fn id_for_request(
        &self,
        key: DeviceKey,
        comm: CommId,
        service: urxe_wire::mad::ServiceId,
        data: &[u8],
    ) -> Result<(CmaId, Id), Rejection> {
        let device = self.devices.get(&key).ok_or(Rejection::NoListener)?;
        let path = device.manager.path(comm).ok_or(Rejection::NoListener)?;
        let header = CmaHeader::parse(data).map_err(|_| Rejection::Mismatch)?;
        if Gid::from_ip(header.dst().to_canonical()) != path.local {
            return Err(Rejection::Mismatch);
        }
        let listener =
            self.listener_for(key, service, header.dst()).ok_or(Rejection::NoListener)?;
        let known = &self.ids[&listener];
        if known.waiting_requests.len() >= known.backlog {
            return Err(Rejection::BacklogFull { listener, peer: path.remote });
        }
        let port = known.src.map_or(0, |src| src.port());
        let new = Id::new(known.space, known.qp_type, known.channel, 0, known.first_psn);
        let options = if known.options.is_inherited { known.options } else { Options::default() };
        let mut new = Id {
            options,
            state: IdState::Connect,
            src: Some(SocketAddr::new(header.dst(), port)),
            dst: Some(header.src()),
            device: Some(key),
            local: path.local,
            remote: path.remote,
            ..new
        };
        new.apply_route_options();
        Ok((listener, new))
    }

    fn id_for_req(
        &self,
        key: DeviceKey,
        comm: CommId,
        req: &Req,
    ) -> Result<(CmaId, Id, EventParam), Rejection> {
        let data = req.private_data.bytes();
        let (listener, mut new) = self.id_for_request(key, comm, req.service_id, data)?;
        if new.traffic_class == 0 {
            new.traffic_class = req.primary_traffic_class;
        }
        if !serves(new.qp_type, req.transport_type) {
            return Err(Rejection::Mismatch);
        }
        let param = EventParam::Conn(ConnEvent {
            private_data: data[CmaHeader::LEN..].to_vec(),
            // This side answers as many READs as the peer requests.
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.end_to_end_flow_control,
            retry_count: req.retry_count.value() as u8,
            rnr_retry_count: req.rnr_retry_count.value() as u8,
            srq: req.srq,
            qpn: req.local_qpn,
        });
        Ok((listener, new, param))
    }

    fn id_for_sidr_req(
        &self,
        key: DeviceKey,
        comm: CommId,
        req: &SidrReq,
    ) -> Result<(CmaId, Id, EventParam), Rejection> {
        let data = req.private_data.bytes();
        let (listener, new) = self.id_for_request(key, comm, req.service_id, data)?;
        if !new.is_datagram() {
            return Err(Rejection::Mismatch);
        }
        // A request does not state a destination for datagrams.
        let (ah, qpn) = (AddressVector::default(), Qpn::masked(0));
        let private_data = data[CmaHeader::LEN..].to_vec();
        let param = EventParam::Ud(UdEvent { private_data, ah, qpn, qkey: urxe_wire::QKey(0) });
        Ok((listener, new, param))
    }
}

/// The reason why a request does not create an identifier.
enum Rejection {
    /// There is no listener.
    NoListener,
    /// The request does not match the listener.
    Mismatch,
    /// The listener's backlog is full when a request of `peer` arrives.
    BacklogFull { listener: CmaId, peer: Gid },
}

fn serves(qp_type: QpType, transport: TransportType) -> bool {
    match transport {
        TransportType::Rc => qp_type == QpType::Rc,
        TransportType::Uc => qp_type == QpType::Uc,
        TransportType::Rd => false,
        TransportType::Extended => matches!(qp_type, QpType::XrcSend | QpType::XrcRecv),
    }
}

fn conn_event(rep: &Rep) -> ConnEvent {
    ConnEvent {
        private_data: rep.private_data.bytes().to_vec(),
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.end_to_end_flow_control,
        retry_count: 0,
        rnr_retry_count: rep.rnr_retry_count.value() as u8,
        srq: rep.srq,
        qpn: if rep.local_qpn.value() == 0 {
            Qpn::masked(rep.local_eecn.value())
        } else {
            rep.local_qpn
        },
    }
}
