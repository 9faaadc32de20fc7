//! The processing of received MADs.

use urxe_wire::Qpn;
use urxe_wire::mad::{
    Answered, ApStatus, Bits, CmMessage, CommId, Dreq, Mad, Mra, PrivateData, Rej, RejReason, Rep,
    Req, ServiceId, SidrReq, SidrStatus,
};

use super::calls::ListenerId;
use super::connection::{
    Agreed, CmPath, Connection, MAX_SERVICE_TIMEOUT, Origin, ack_timeout, exponent_ns, qpn_of,
    timewait_exponent,
};
use super::request_window::SendState;
use super::stateless_reply::rejection_reason;

use super::table::{self, Action, CmState, Input};
use super::{CmDrop, CmEventKind, ConnectionManager};
use urxe_types::time::Time;

/// The result of processing a MAD: done, or dropped.
type Handled = Result<(), CmDrop>;

impl ConnectionManager {
    /// Processes a MAD that arrived at queue pair 1 over `path`.
    pub fn receive(&mut self, now: Time, path: CmPath, mad: &[u8]) {
        let mad = match Mad::parse(mad) {
            Ok(mad) => mad,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        self.counters.count_received(mad.message.attribute());
        let handled = match &mad.message {
            CmMessage::Req(req) => self.on_req(now, path, &mad, req),
            CmMessage::Mra(mra) => self.on_mra(now, path, &mad, mra),
            CmMessage::Rej(rej) => self.on_rej(now, path, &mad, rej),
            CmMessage::Rep(rep) => self.on_rep(now, path, &mad, rep),
            CmMessage::Rtu(rtu) => self
                .locate(path, rtu.remote_comm_id, rtu.local_comm_id)
                .and_then(|index| self.apply(now, index, Input::Rtu, &mad)),
            CmMessage::Dreq(dreq) => self.on_dreq(now, path, &mad, dreq),
            CmMessage::Drep(drep) => self
                .locate(path, drep.remote_comm_id, drep.local_comm_id)
                .and_then(|index| self.apply(now, index, Input::Drep, &mad)),
            CmMessage::SidrReq(req) => self.on_sidr_req(now, path, &mad, req),
            CmMessage::SidrRep(rep) => self
                .locate(path, rep.request_id, CommId::NONE)
                .and_then(|index| self.apply(now, index, Input::SidrRep, &mad)),
            CmMessage::Lap(lap) => self
                .locate_or_reply(path, &mad, lap.remote_comm_id, lap.local_comm_id)
                .and_then(|index| self.apply(now, index, Input::Lap, &mad)),
            // This connection manager never sends a LAP.
            CmMessage::Apr(apr) => self
                .locate(path, apr.remote_comm_id, apr.local_comm_id)
                .and(Err(CmDrop::WrongState)),
        };
        if let Err(reason) = handled {
            self.counters.count_dropped(reason);
        }
    }

    /// Returns the connection with both ids and these addresses.
    fn locate(&self, path: CmPath, local: CommId, remote: CommId) -> Result<usize, CmDrop> {
        let index = *self.by_id.get(&local).ok_or(CmDrop::UnknownId)?;
        let connection = self.at(index);
        if connection.remote_id != remote {
            Err(CmDrop::UnknownId)
        } else if connection.path != path {
            Err(CmDrop::WrongSource)
        } else {
            Ok(index)
        }
    }

    /// Returns the connection like [`locate`](Self::locate). If no connection has the id, replies
    /// to the peer, which would otherwise wait.
    fn locate_or_reply(
        &mut self,
        path: CmPath,
        mad: &Mad,
        local: CommId,
        remote: CommId,
    ) -> Result<usize, CmDrop> {
        let located = self.locate(path, local, remote);
        if located == Err(CmDrop::UnknownId) {
            self.reply_to_unknown(path, mad);
        }
        located
    }

    /// Executes the table's action for a message.
    fn apply(&mut self, now: Time, index: usize, input: Input, mad: &Mad) -> Handled {
        let state = self.at(index).state;
        let step = table::step(state, input).ok_or(CmDrop::WrongState)?;
        let attribute = mad.message.attribute();
        match step.action {
            Action::Notify => {
                let pending_request = self.at(index).pending_request.as_ref();
                let is_unsent = pending_request.is_some_and(|r| r.send_state == SendState::Queued);
                self.enter(index, step.next, now);
                self.notify(index, CmEventKind::Message(*mad));
                if step.next == CmState::DreqRcvd && (self.at(index).is_released || is_unsent) {
                    // Both sides disconnect at the same time. The program does not answer any more,
                    // because it has released this side, or has disconnected it. If the own DREQ
                    // still waits for its window, the peer would get no message.
                    let _ = self.send_drep(now, index, PrivateData::NONE);
                }
                self.reap(index);
            }
            Action::ExtendTimeout => {
                let CmMessage::Mra(Mra { service_timeout, .. }) = mad.message else {
                    unreachable!("only an MRA extends the timeout")
                };
                self.extend_timeout(now, index, service_timeout, step.next);
                self.notify(index, CmEventKind::Message(*mad));
            }
            Action::Retransmit => {
                self.counters.count_duplicate(attribute);
                let connection = self.at(index);
                let route = connection.route();
                let pending_request =
                    connection.pending_request.as_ref().map(|pending_request| pending_request.mad);
                if let Some(bytes) = pending_request.or(connection.last_reply)
                    && let Ok(last_reply) = Mad::parse(&bytes)
                {
                    self.transmit(route, last_reply.message.attribute(), bytes, true);
                }
            }
            Action::RejectStale => {
                self.counters.count_duplicate(attribute);
                self.reject_stateless(self.at(index).path, mad, RejReason::STALE_CONN, &[]);
            }
            Action::RejectPath => self.reject_path(self.at(index).path, mad, ApStatus::UNSUPPORTED),
            Action::ReplyUnknown => self.reply_to_unknown(self.at(index).path, mad),
            Action::Duplicate => {
                self.counters.count_duplicate(attribute);
                if input == Input::Rtu {
                    self.note_rtu(index, now);
                }
            }
            Action::SendRequest | Action::SendReply | Action::SendTimeoutRej | Action::Yield => {
                unreachable!("{:?} is not an action for {attribute}", step.action)
            }
        }
        Ok(())
    }

    /// Handles an MRA: the message is retransmitted after the stated time plus the packet life
    /// time.
    fn extend_timeout(&mut self, now: Time, index: usize, service_timeout: Bits<5>, next: CmState) {
        let connection = self.at_mut(index);
        let interval_ns = exponent_ns(service_timeout.value().min(MAX_SERVICE_TIMEOUT))
            + exponent_ns(connection.wait_exponent.into());
        let Some(mut pending_request) = connection.pending_request.clone() else {
            unreachable!("an MRA acknowledges a pending request")
        };
        (pending_request.interval_ns, pending_request.send_state) =
            (interval_ns, SendState::Untracked);
        self.enter(index, next, now);
        self.at_mut(index).pending_request = Some(pending_request);
        self.arm(index, now.plus_ns(interval_ns));
    }

    /// Returns whether a connection with this queue pair of the peer is confirmed. A REQ that was
    /// not confirmed may be forged, and must not keep the queue pair of an honest peer out.
    fn has_confirmed(&self, path: CmPath, remote_qpn: Qpn) -> bool {
        let known = self.by_remote_qp.get(&(path.remote, remote_qpn.value()));
        known.is_some_and(|index| self.at(*index).state.is_confirmed())
    }

    fn on_req(&mut self, now: Time, path: CmPath, mad: &Mad, req: &Req) -> Handled {
        if let Some(&index) = self.by_remote_id.get(&(path.remote, req.local_comm_id))
            && !self.at(index).is_superseded_by(req)
        {
            if self.at(index).path != path {
                return Err(CmDrop::WrongSource);
            }
            return self.apply(now, index, Input::Req, mad);
        }
        if self.has_confirmed(path, req.local_qpn) {
            // The connection stays, unlike in IBTA 12.9.8.3.1: a REQ with a forged address and a
            // guessed queue pair number would end it. A peer that restarted asks again with another
            // queue pair.
            self.reject_stateless(path, mad, RejReason::STALE_CONN, &[]);
            return Ok(());
        }
        if let Some(index) = self.peers.get(&(path, req.service_id)).copied() {
            return self.on_peer_req(now, index, mad, req);
        }
        let Some(number) = self.listener_for(path, req.service_id) else {
            log_unserved(path, req.service_id);
            self.reject_stateless(path, mad, RejReason::INVALID_SERVICE_ID, &[]);
            return Ok(());
        };
        if let Some((reason, info)) = rejection_reason(path, req) {
            self.reject_stateless(path, mad, reason, &info);
            return Ok(());
        }
        let index = self.enqueue(number, Origin::Peer, |id| {
            Connection::from_req(id, path, mad.tid, req, mad.attribute_modifier)
        })?;
        let Some(index) = index else {
            self.reject_stateless(path, mad, RejReason::NO_RESOURCES, &[]);
            return Ok(());
        };
        self.by_remote_id.insert((path.remote, req.local_comm_id), index);
        self.by_remote_qp.insert((path.remote, req.local_qpn.value()), index);
        self.begin(now, index, CmState::ReqRcvd, Some(ListenerId(number)), mad);
        Ok(())
    }

    fn on_sidr_req(&mut self, now: Time, path: CmPath, mad: &Mad, req: &SidrReq) -> Handled {
        if let Some(&index) = self.by_request.get(&(path.remote, req.request_id))
            && self.at(index).tid == mad.tid
        {
            if self.at(index).path != path {
                return Err(CmDrop::WrongSource);
            }
            return self.apply(now, index, Input::SidrReq, mad);
        }
        let Some(number) = self.listener_for(path, req.service_id) else {
            log_unserved(path, req.service_id);
            self.reject_service(path, mad, req, SidrStatus::UNSUPPORTED);
            return Ok(());
        };
        let index = self.enqueue(number, Origin::Service, |id| {
            Connection::from_sidr_req(id, path, mad.tid, req.request_id)
        })?;
        let Some(index) = index else {
            self.reject_service(path, mad, req, SidrStatus::REJECT);
            return Ok(());
        };
        self.by_request.insert((path.remote, req.request_id), index);
        self.begin(now, index, CmState::SidrReqRcvd, Some(ListenerId(number)), mad);
        Ok(())
    }

    /// Adds a connection for a peer's request, if the limits allow. Returns `None` if the
    /// connection manager has too many connections.
    fn enqueue(
        &mut self,
        number: u32,
        origin: Origin,
        make: impl FnOnce(CommId) -> Connection,
    ) -> Result<Option<usize>, CmDrop> {
        let Some(listener) = self.listeners.get_mut(&number) else {
            unreachable!("the caller has found the listener")
        };
        if listener.pending >= listener.backlog {
            return Err(CmDrop::BacklogFull);
        }
        let Ok(index) = self.insert(origin, make) else {
            return Ok(None);
        };
        if let Some(listener) = self.listeners.get_mut(&number) {
            listener.pending += 1;
        }
        self.at_mut(index).listener = Some(number);
        Ok(Some(index))
    }

    fn begin(
        &mut self,
        now: Time,
        index: usize,
        state: CmState,
        listener: Option<ListenerId>,
        mad: &Mad,
    ) {
        self.enter(index, state, now);
        self.notify(index, CmEventKind::Request { listener, mad: *mad });
    }

    fn listener_for(&self, path: CmPath, service_id: ServiceId) -> Option<u32> {
        let by = |local| self.by_service.get(&(service_id, local)).copied();
        by(Some(path.local)).or_else(|| by(None))
    }

    /// Handles REQs of both sides. The side with the greater GUID stays active. With equal GUIDs,
    /// the greater queue pair number decides (IBTA 12.10.4).
    fn on_peer_req(&mut self, now: Time, index: usize, mad: &Mad, req: &Req) -> Handled {
        let Connection { path, agreed, .. } = *self.at(index);
        let own = (self.config.ca_guid.0, agreed.local_qpn.value());
        if own > (req.local_ca_guid.0, req.local_qpn.value()) {
            return self.apply(now, index, Input::PeerReqStays, mad);
        }
        let step =
            table::step(self.at(index).state, Input::PeerReqYields).ok_or(CmDrop::WrongState)?;
        if let Some((reason, info)) = rejection_reason(path, req) {
            self.reject_stateless(path, mad, reason, &info);
            return Ok(());
        }
        let old = self.at_mut(index);
        let (id, origin) = (old.id, old.origin);
        let (transactions, is_released) = (old.transactions, old.is_released);
        let local_qpn = agreed.local_qpn;
        self.enter(index, step.next, now);
        let mut new = Connection::from_req(id, path, mad.tid, req, mad.attribute_modifier);
        (new.state, new.transactions, new.is_released, new.is_peer) =
            (step.next, transactions, is_released, true);
        new.origin = origin;
        new.agreed.local_qpn = local_qpn;
        *self.at_mut(index) = new;
        self.by_remote_id.insert((path.remote, req.local_comm_id), index);
        self.by_remote_qp.insert((path.remote, req.local_qpn.value()), index);
        self.notify(index, CmEventKind::Request { listener: None, mad: *mad });
        Ok(())
    }

    fn on_rep(&mut self, now: Time, path: CmPath, mad: &Mad, rep: &Rep) -> Handled {
        let Rep { local_comm_id: theirs, remote_comm_id: ours, .. } = *rep;
        // In a repeated REP, both ids are known.
        let index = match self.locate(path, ours, CommId::NONE) {
            Err(CmDrop::UnknownId) => self.locate_or_reply(path, mad, ours, theirs)?,
            first => first?,
        };
        let state = self.at(index).state;
        if table::step(state, Input::Rep).is_some_and(|step| step.action == Action::Notify) {
            let remote_qpn = qpn_of(rep, self.at(index).agreed.transport_type);
            if self.has_confirmed(path, remote_qpn) {
                self.reject_stateless(path, mad, RejReason::STALE_CONN, &[]);
                return Ok(());
            }
            self.apply_rep(index, mad, rep);
            self.by_remote_id.insert((path.remote, theirs), index);
            self.by_remote_qp.insert((path.remote, remote_qpn.value()), index);
        }
        self.apply(now, index, Input::Rep, mad)
    }

    /// Takes over the parameters of a REP.
    fn apply_rep(&mut self, index: usize, mad: &Mad, rep: &Rep) {
        let connection = self.at_mut(index);
        connection.remote_id = rep.local_comm_id;
        let life_time = connection.wait_exponent - 1;
        let ack_timeout = ack_timeout(rep.target_ack_delay.value() as u8, life_time);
        connection.wait_exponent = timewait_exponent(ack_timeout);
        connection.agreed = Agreed {
            remote_qpn: qpn_of(rep, connection.agreed.transport_type),
            sq_psn: rep.starting_psn,
            initiator_depth: rep.responder_resources,
            responder_resources: rep.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            ack_timeout,
            ece: (rep.ece_vendor_id.0.value(), mad.attribute_modifier),
            ..connection.agreed
        };
    }

    fn on_mra(&mut self, now: Time, path: CmPath, mad: &Mad, mra: &Mra) -> Handled {
        let Mra { local_comm_id: theirs, remote_comm_id: ours, answered, .. } = *mra;
        match answered {
            Answered::Req => {
                let index = self.locate(path, ours, CommId::NONE)?;
                self.apply(now, index, Input::MraOfReq, mad)
            }
            Answered::Rep => {
                let index = self.locate(path, ours, theirs)?;
                self.apply(now, index, Input::MraOfRep, mad)
            }
            // This connection manager never sends a LAP.
            Answered::Other | Answered::Reserved => {
                self.locate(path, ours, theirs).and(Err(CmDrop::WrongState))
            }
        }
    }

    fn on_rej(&mut self, now: Time, path: CmPath, mad: &Mad, rej: &Rej) -> Handled {
        let Rej { local_comm_id: theirs, remote_comm_id: ours, answered, reason, .. } = *rej;
        let index = if reason == RejReason::TIMEOUT && ours == CommId::NONE {
            // A peer that gave up before this side's reply arrived does not know this side's id.
            // The peer of an established connection does.
            let index = *self.by_remote_id.get(&(path.remote, theirs)).ok_or(CmDrop::UnknownId)?;
            let connection = self.at(index);
            if connection.path != path {
                return Err(CmDrop::WrongSource);
            }
            if connection.state.is_confirmed() {
                return Err(CmDrop::UnknownId);
            }
            index
        } else if answered == Answered::Req {
            self.locate(path, ours, CommId::NONE)?
        } else {
            self.locate(path, ours, theirs)?
        };
        let input = match reason {
            RejReason::STALE_CONN => Input::RejStale,
            RejReason::INVALID_SERVICE_ID if self.at(index).is_peer => Input::RejPeerNotReady,
            _ => Input::Rej,
        };
        self.apply(now, index, input, mad)
    }

    fn on_dreq(&mut self, now: Time, path: CmPath, mad: &Mad, dreq: &Dreq) -> Handled {
        let index = self.locate_or_reply(path, mad, dreq.remote_comm_id, dreq.local_comm_id)?;
        if self.at(index).agreed.local_qpn != dreq.remote_qpn {
            return Err(CmDrop::WrongQpn);
        }
        let step = table::step(self.at(index).state, Input::Dreq);
        if step.is_some_and(|step| step.next == CmState::DreqRcvd) {
            self.at_mut(index).tid = mad.tid;
        }
        self.apply(now, index, Input::Dreq, mad)
    }
}

/// Says that this process rejects a request, because several processes may have the address.
fn log_unserved(path: CmPath, service: ServiceId) {
    tracing::info!(
        local = %path.local.to_ip(), peer = %path.remote.to_ip(), %service,
        "rejected a request: this process does not listen on the service",
    );
}
