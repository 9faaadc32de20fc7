//! The calls of a program.
//!
//! The caller passes messages as they appear on the wire ([`Req`], [`Rep`], ...). The connection
//! manager fills in ids, the node GUID, delays and the addresses of the path.

use urxe_wire::Gid;
use urxe_wire::mad::{
    Answered, Attribute, Bits, CommId, Drep, Dreq, InfoLength, Mad, Mra, PrivateData, Rej,
    RejReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
};

use super::connection::{Agreed, CmPath, Connection, Origin, ack_timeout, exponent_ns, qpn_of};
use super::table::{CmState, Input};
use super::{CmEventKind, ConnectionManager, Listener, ids};
use urxe_types::time::Time;

urxe_types::errors! {
    /// The reason why a call of the connection manager fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CmError {
        /// The connection has ended, and its number is free.
        #[error("connection {0} does not exist")]
        UnknownId(CommId) = EINVAL,
        /// The listener was closed.
        #[error("the listener does not exist")]
        UnknownListener = EINVAL,
        /// `call`: the refused call.
        #[error("connection {id} is in state {state}, which does not allow {call}")]
        State { id: CommId, state: CmState, call: Input } = EINVAL,
        /// A service is a port space and a port.
        #[error("service {0} already has a listener")]
        InUse(ServiceId) = EADDRINUSE,
        /// Connections in timewait count, too.
        #[error("there are already {max} connections, which is the maximum")]
        TooMany { max: usize } = ENOMEM,
    }
}

/// Identifier of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(super) u32);

/// The path of a REQ.
#[derive(Clone, Copy, Debug)]
pub struct CmRoute {
    /// Source and destination address.
    pub path: CmPath,
    /// Packet life time: 4.096 µs · 2^n. The kernel uses 16 for RoCE.
    pub packet_life_time: Bits<5>,
}

impl ConnectionManager {
    /// Listens for `service_id` on one address or on all. At most `backlog` requests wait for the
    /// program's reply.
    ///
    /// # Errors
    /// Fails with [`CmError::InUse`] if there is a listener for the service on this address.
    pub fn listen(
        &mut self,
        service_id: ServiceId,
        local: Option<Gid>,
        backlog: usize,
    ) -> Result<ListenerId, CmError> {
        if self.by_service.contains_key(&(service_id, local)) {
            return Err(CmError::InUse(service_id));
        }
        let number = self.next_listener;
        self.next_listener += 1;
        self.by_service.insert((service_id, local), number);
        self.listeners.insert(number, Listener { service_id, local, backlog, pending: 0 });
        Ok(ListenerId(number))
    }

    /// Stops listening. Pending requests stay with the program.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownListener`] if the listener does not exist.
    pub fn unlisten(&mut self, listener: ListenerId) -> Result<(), CmError> {
        let Some(Listener { service_id, local, .. }) = self.listeners.remove(&listener.0) else {
            return Err(CmError::UnknownListener);
        };
        self.by_service.remove(&(service_id, local));
        Ok(())
    }

    /// Requests a connection: sends `req` (like `ib_send_cm_req`) with the options of enhanced
    /// connection establishment. The connection manager fills in ids, GUID, addresses and ACK
    /// timeout.
    ///
    /// With `is_peer`, the peer may request the same connection at the same time.
    ///
    /// # Errors
    /// Fails with [`CmError::TooMany`] if there are too many connections.
    pub fn connect(
        &mut self,
        now: Time,
        CmRoute { path, packet_life_time }: CmRoute,
        req: Req,
        ece_options: u32,
        is_peer: bool,
    ) -> Result<CommId, CmError> {
        let life_time = packet_life_time.value() as u8;
        let ack_delay = self.config.ack_delay.value() as u8;
        let mut req = Req {
            local_ca_guid: self.config.ca_guid,
            primary_local_lid: 0xffff,
            primary_remote_lid: 0xffff,
            primary_local_gid: path.local,
            primary_remote_gid: path.remote,
            primary_ack_timeout: Bits::masked(ack_timeout(ack_delay, life_time).into()),
            ..req
        };
        let transactions = self.ids.first_transaction();
        let index = self.insert(Origin::Own, |id| {
            req.local_comm_id = id;
            let agreed =
                Agreed { local_qpn: req.local_qpn, rq_psn: req.starting_psn, ..Agreed::of(&req) };
            Connection {
                tid: ids::transaction(id, transactions),
                transactions,
                is_peer,
                interval_ns: 2 * exponent_ns(life_time.into())
                    + exponent_ns(req.remote_cm_response_timeout.value()),
                max_cm_retries: req.max_cm_retries.value(),
                wait_exponent: life_time + 1,
                ..Connection::new(id, path, agreed)
            }
        })?;
        let mad = Mad { attribute_modifier: ece_options, ..Mad::new(self.at(index).tid, req) };
        let step = self.call(index, Input::CallReq)?;
        self.send_request(index, &mad, step.next, now);
        if is_peer {
            self.peers.insert((path, req.service_id), index);
        }
        Ok(self.at(index).id)
    }

    /// Requests the queue pair of a datagram service: sends `req` (like `ib_send_cm_sidr_req`). The
    /// connection manager fills in the id.
    ///
    /// Without a reply the request is sent again every `interval_ns`, at most `max_cm_retries`
    /// times.
    ///
    /// # Errors
    /// Fails with [`CmError::TooMany`] if there are too many connections.
    pub fn send_sidr_req(
        &mut self,
        now: Time,
        (path, primary_traffic_class): (CmPath, u8),
        req: SidrReq,
        interval_ns: u64,
        max_cm_retries: u32,
    ) -> Result<CommId, CmError> {
        let agreed = Agreed::of(&Req { primary_traffic_class, ..Req::default() });
        let transaction = self.ids.first_transaction();
        let index = self.insert(Origin::Own, |id| Connection {
            tid: ids::transaction(id, transaction),
            interval_ns,
            max_cm_retries,
            ..Connection::new(id, path, agreed)
        })?;
        let Connection { id, tid, .. } = *self.at(index);
        let step = self.call(index, Input::CallSidrReq)?;
        self.send_request(index, &Mad::new(tid, SidrReq { request_id: id, ..req }), step.next, now);
        Ok(id)
    }

    /// Replies to a SIDR_REQ: sends `rep`, whose ids the connection manager fills in. The
    /// connection then enters TIMEWAIT.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn send_sidr_rep(&mut self, now: Time, id: CommId, rep: SidrRep) -> Result<(), CmError> {
        let index = self.require(id)?;
        let step = self.call(index, Input::CallSidrRep)?;
        let rep = sidr_rep(self.at(index), rep);
        self.send_reply(index, &rep, step.next, now);
        Ok(())
    }

    /// Accepts a request: sends `rep` (like `ib_send_cm_rep`) with the options of enhanced
    /// connection establishment. The connection manager fills in ids, GUID and delay.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn accept(
        &mut self,
        now: Time,
        id: CommId,
        rep: Rep,
        ece_options: u32,
    ) -> Result<(), CmError> {
        // "Failover accepted" value 1: alternate paths are not supported (IBTA 12.7.20).
        const FAILOVER_NOT_SUPPORTED: Bits<2> = Bits::masked(1);
        let index = self.require(id)?;
        let step = self.call(index, Input::CallRep)?;
        let (ca_guid, ack_delay) = (self.config.ca_guid, self.config.ack_delay);
        let connection = self.at_mut(index);
        let Connection { remote_id, tid, agreed, .. } = connection;
        let has_alternate =
            agreed.req.alternate_local_lid != 0 || !agreed.req.alternate_local_gid.is_zero();
        let rep = Rep {
            local_comm_id: id,
            remote_comm_id: *remote_id,
            local_ca_guid: ca_guid,
            target_ack_delay: ack_delay,
            failover_accepted: if has_alternate {
                FAILOVER_NOT_SUPPORTED
            } else {
                rep.failover_accepted
            },
            ..rep
        };
        agreed.local_qpn = qpn_of(&rep, agreed.transport_type);
        agreed.rq_psn = rep.starting_psn;
        agreed.initiator_depth = rep.initiator_depth;
        agreed.responder_resources = rep.responder_resources;
        let mad = Mad { attribute_modifier: ece_options, ..Mad::new(*tid, rep) };
        self.send_request(index, &mad, step.next, now);
        Ok(())
    }

    /// Confirms a REP: sends an RTU (like `ib_send_cm_rtu`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn confirm(
        &mut self,
        now: Time,
        id: CommId,
        private_data: PrivateData<224>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        let step = self.call(index, Input::CallRtu)?;
        let Connection { remote_id, tid, .. } = *self.at(index);
        let rtu = Rtu { local_comm_id: id, remote_comm_id: remote_id, private_data };
        self.send_reply(index, &Mad::new(tid, rtu), step.next, now);
        Ok(())
    }

    /// Announces that the reply to a REQ or REP takes up to 4.096 µs · 2^n: sends an MRA (like
    /// `ib_send_cm_mra`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn send_mra(
        &mut self,
        now: Time,
        id: CommId,
        service_timeout: Bits<5>,
        private_data: PrivateData<222>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        let (mra, next) = self.mra(index, service_timeout, private_data)?;
        self.send_reply(index, &mra, next, now);
        Ok(())
    }

    /// Prepares an MRA like [`send_mra`](Self::send_mra), but sends it only if the peer repeats its
    /// request (like `ib_send_cm_mra` with `IB_CM_MRA_FLAG_DELAY`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn prepare_mra(
        &mut self,
        now: Time,
        id: CommId,
        service_timeout: Bits<5>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        let (mra, next) = self.mra(index, service_timeout, PrivateData::NONE)?;
        self.store_reply(index, &mra, next, now);
        Ok(())
    }

    /// Returns the MRA for the peer's request, and the state after the MRA.
    fn mra(
        &self,
        index: usize,
        service_timeout: Bits<5>,
        private_data: PrivateData<222>,
    ) -> Result<(Mad, CmState), CmError> {
        let step = self.call(index, Input::CallMra)?;
        let Connection { id, remote_id, tid, state, .. } = *self.at(index);
        let answered = if state == CmState::ReqRcvd { Answered::Req } else { Answered::Rep };
        let mra = Mra {
            local_comm_id: id,
            remote_comm_id: remote_id,
            answered,
            service_timeout,
            private_data,
        };
        Ok((Mad::new(tid, mra), step.next))
    }

    /// Rejects or gives up a connection that is not established: sends a REJ (like
    /// `ib_send_cm_rej`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn reject(
        &mut self,
        now: Time,
        id: CommId,
        reason: RejReason,
        (info_length, info): (InfoLength<7>, PrivateData<72>),
        private_data: PrivateData<148>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        let step = self.call(index, Input::CallRej)?;
        let rej = rej(self.at(index), reason, (info_length, info), private_data);
        self.send_reply(index, &rej, step.next, now);
        Ok(())
    }

    /// Marks the connection as established because its queue pair received data before the RTU
    /// (like `ib_cm_notify`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn communication_established(&mut self, now: Time, id: CommId) -> Result<(), CmError> {
        let index = self.require(id)?;
        let step = self.call(index, Input::CommEstablished)?;
        self.enter(index, step.next, now);
        self.notify(index, CmEventKind::Established);
        Ok(())
    }

    /// Ends a connection: sends a DREQ (like `ib_send_cm_dreq`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn disconnect(
        &mut self,
        now: Time,
        id: CommId,
        private_data: PrivateData<220>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        self.send_dreq(now, index, private_data)
    }

    pub(super) fn send_dreq(
        &mut self,
        now: Time,
        index: usize,
        private_data: PrivateData<220>,
    ) -> Result<(), CmError> {
        let step = self.call(index, Input::CallDreq)?;
        let dreq = dreq(self.at(index), private_data);
        let connection = self.at_mut(index);
        connection.transactions = connection.transactions.wrapping_add(1);
        self.send_request(index, &dreq, step.next, now);
        Ok(())
    }

    /// Confirms the end of a connection: sends a DREP (like `ib_send_cm_drep`).
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist, and with
    /// [`CmError::State`] if its state does not allow the call.
    pub fn confirm_disconnect(
        &mut self,
        now: Time,
        id: CommId,
        private_data: PrivateData<224>,
    ) -> Result<(), CmError> {
        let index = self.require(id)?;
        self.send_drep(now, index, private_data)
    }

    pub(super) fn send_drep(
        &mut self,
        now: Time,
        index: usize,
        private_data: PrivateData<224>,
    ) -> Result<(), CmError> {
        let step = self.call(index, Input::CallDrep)?;
        let drep = drep(self.at(index), private_data);
        self.send_reply(index, &drep, step.next, now);
        Ok(())
    }

    /// Releases a connection in any state. The program receives no more events of it. The peer
    /// receives the message that its state requires, and the connection is removed after the
    /// exchange.
    ///
    /// `ib_destroy_cm_id` does not wait for the reply to its DREQ. This function retransmits the
    /// DREQ until a reply arrives.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownId`] if the connection does not exist.
    pub fn destroy(&mut self, now: Time, id: CommId) -> Result<(), CmError> {
        use CmState::*;
        let index = self.require(id)?;
        let none = (InfoLength::default(), PrivateData::NONE);
        let rejected = RejReason::CONSUMER_DEFINED;
        match self.at(index).state {
            Idle | DreqSent | Timewait => {}
            SidrReqSent => self.enter(index, Idle, now),
            SidrReqRcvd => {
                let rep = SidrRep { status: SidrStatus::REJECT, ..SidrRep::default() };
                self.send_sidr_rep(now, id, rep)?;
            }
            ReqSent | MraReqRcvd => {
                let guid = guid_info(self.config.ca_guid);
                self.reject(now, id, RejReason::TIMEOUT, guid, PrivateData::NONE)?;
            }
            ReqRcvd | MraReqSent | RepSent | MraRepRcvd | RepRcvd | MraRepSent => {
                self.reject(now, id, rejected, none, PrivateData::NONE)?;
            }
            Established => self.send_dreq(now, index, PrivateData::NONE)?,
            DreqRcvd => self.send_drep(now, index, PrivateData::NONE)?,
        }
        self.at_mut(index).is_released = true;
        self.events.retain(|event| event.id != id);
        self.reap(index);
        Ok(())
    }

    /// Removes a pending request without a message to the peer, which may repeat the request (cm.c,
    /// `cm_destroy_id` after -ENOMEM).
    pub fn drop_request(&mut self, now: Time, id: CommId) {
        let Ok(index) = self.require(id) else { return };
        if self.at(index).state.is_pending() {
            self.enter(index, CmState::Idle, now);
            self.at_mut(index).is_released = true;
            self.reap(index);
        }
    }

    /// Sends a REJ because the peer did not reply. The peer's id is unknown, so the REJ contains
    /// this side's id and GUID.
    pub(super) fn send_timeout_rej(&mut self, index: usize) {
        let info = guid_info(self.config.ca_guid);
        let connection = self.at(index);
        let (route, rej) =
            (connection.route(), rej(connection, RejReason::TIMEOUT, info, PrivateData::NONE));
        self.transmit(route, Attribute::Rej, rej.to_bytes(), false);
    }
}

/// Returns the REJ that fits the state of a connection.
pub(super) fn rej(
    connection: &Connection,
    reason: RejReason,
    (info_length, info): (InfoLength<7>, PrivateData<72>),
    private_data: PrivateData<148>,
) -> Mad {
    let Connection { id, remote_id, tid, state, .. } = *connection;
    let (local_comm_id, answered) = match state {
        CmState::ReqRcvd => (CommId::NONE, Answered::Req),
        CmState::MraReqSent => (id, Answered::Req),
        CmState::RepRcvd | CmState::MraRepSent => (id, Answered::Rep),
        _ => (id, Answered::Other),
    };
    let rej = Rej {
        local_comm_id,
        remote_comm_id: remote_id,
        answered,
        info_length,
        reason,
        info,
        private_data,
    };
    Mad::new(tid, rej)
}

/// Returns the DREQ of a connection, which is its next transaction.
pub(super) fn dreq(connection: &Connection, private_data: PrivateData<220>) -> Mad {
    let Connection { id, remote_id, transactions, agreed: Agreed { remote_qpn, .. }, .. } =
        *connection;
    let dreq = Dreq { local_comm_id: id, remote_comm_id: remote_id, remote_qpn, private_data };
    Mad::new(ids::transaction(id, transactions.wrapping_add(1)), dreq)
}

/// Returns the DREP to the peer's DREQ.
pub(super) fn drep(connection: &Connection, private_data: PrivateData<224>) -> Mad {
    let Connection { id, remote_id, tid, .. } = *connection;
    Mad::new(tid, Drep { local_comm_id: id, remote_comm_id: remote_id, private_data })
}

/// Returns the reply to the peer's SIDR_REQ.
pub(super) fn sidr_rep(connection: &Connection, rep: SidrRep) -> Mad {
    let Connection { remote_id, tid, .. } = *connection;
    Mad::new(tid, SidrRep { request_id: remote_id, ..rep })
}

/// Returns a GUID as additional information.
pub(super) fn guid_info(guid: urxe_wire::mad::Guid) -> (InfoLength<7>, PrivateData<72>) {
    let info = PrivateData::new(&guid.0.to_be_bytes()).unwrap_or_default();
    (InfoLength::new(8).unwrap_or_default(), info)
}
