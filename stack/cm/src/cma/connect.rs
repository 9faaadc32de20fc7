//! Connecting, accepting, confirming, rejecting and disconnecting.

use urxe_wire::mad::{
    Bits, CmaHeader, InfoLength, PrivateData, RejReason, Rep, Req, ServiceId, SidrStatus,
    SpreadVendorId, TransportType,
};
use urxe_wire::{PKey, Qpn};

use super::id::Id;
use super::{Cma, CmaError, CmaId, IdState};
use crate::cm::CmRoute;
use urxe_types::attr::QpType;
use urxe_types::time::Time;

/// Time that a program may take to reply, 69 s (cma.c, `CMA_CM_MRA_SETTING`).
pub(super) const SERVICE_TIMEOUT: u32 = 24;
/// The largest `retry_cnt` and `rnr_retry`, which have three bits. Larger values are reduced.
const MAX_RETRY_COUNT: u8 = 7;
/// The kernel's hop limit for packets of connections (`IPV6_DEFAULT_HOPLIMIT`).
pub(super) const HOP_LIMIT: u8 = 64;

/// The parameters of a program for connecting or accepting (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnParam<'a> {
    /// Data of the program.
    pub private_data: &'a [u8],
    /// Number of READs and atomics that this side answers at a time.
    pub responder_resources: u8,
    /// Number of READs and atomics that this side requests at a time.
    pub initiator_depth: u8,
    /// Whether the receive queue uses end-to-end flow control.
    pub flow_control: bool,
    /// `retry_cnt`. Ignored when accepting.
    pub retry_count: u8,
    /// `rnr_retry`.
    pub rnr_retry_count: u8,
    /// Whether the queue pair uses a shared receive queue.
    pub srq: bool,
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Vendor and options of enhanced connection establishment.
    pub ece: (u32, u32),
}

impl Id {
    /// Returns the service id of the peer's port.
    pub fn service(&self) -> ServiceId {
        ServiceId::new(self.space, self.dst.map_or(0, |dst| dst.port()))
    }

    /// Returns the header of the RDMA IP CM service followed by the program's data.
    pub fn encode_with_header<const LEN: usize>(
        &self,
        data: &[u8],
    ) -> Result<PrivateData<LEN>, CmaError> {
        let header = self.src.zip(self.dst).and_then(|(src, dst)| CmaHeader::new(src, dst.ip()));
        let mut bytes = vec![0; CmaHeader::LEN];
        if let Some(front) = bytes.first_chunk_mut()
            && let Some(header) = header
        {
            header.emit(front);
        }
        bytes.extend_from_slice(data);
        PrivateData::new(&bytes)
            .map_err(|_| CmaError::PrivateData { given: data.len(), max: LEN - CmaHeader::LEN })
    }
}

/// Returns the private data of a message without a header.
pub(super) fn encode_private_data<const LEN: usize>(
    data: &[u8],
) -> Result<PrivateData<LEN>, CmaError> {
    PrivateData::new(data).map_err(|_| CmaError::PrivateData { given: data.len(), max: LEN })
}

impl Cma {
    /// Requests a connection, or the queue pair of a datagram service (`rdma_connect`).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the route is not resolved, the private data is too long, or the
    /// connection manager has too many connections.
    pub fn connect(&mut self, now: Time, id: CmaId, param: &ConnParam<'_>) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let state = known.state;
        if state != IdState::RouteResolved {
            return Err(CmaError::State { id, state, call: "connect" });
        }
        if known.is_datagram() {
            self.send_sidr_req(now, id, param.private_data)?;
        } else {
            self.send_req(now, id, param)?;
        }
        let known = self.id_mut(id)?;
        (known.state, known.qpn) = (IdState::Connect, param.qpn);
        Ok(())
    }

    fn send_req(&mut self, now: Time, id: CmaId, param: &ConnParam<'_>) -> Result<(), CmaError> {
        let known = self.id(id)?;
        let key = known.device.ok_or(CmaError::NoConnection { id, state: known.state })?;
        let (path, packet_life_time) = (known.path(), Bits::masked(known.packet_life_time.into()));
        let is_xrc = known.qp_type == QpType::XrcSend;
        let (retry_policy, chosen_mtu) = (known.options.retry_policy, known.chosen_mtu);
        let mut req = Req {
            ece_vendor_id: Bits::masked(param.ece.0),
            service_id: known.service(),
            local_qpn: param.qpn,
            transport_type: match known.qp_type {
                QpType::Uc => TransportType::Uc,
                QpType::XrcSend | QpType::XrcRecv => TransportType::Extended,
                _ => TransportType::Rc,
            },
            extended_transport_type: Bits::masked(u32::from(is_xrc)),
            end_to_end_flow_control: param.flow_control,
            starting_psn: known.first_psn,
            remote_cm_response_timeout: Bits::masked(retry_policy.response_timeout.into()),
            local_cm_response_timeout: Bits::masked(retry_policy.response_timeout.into()),
            max_cm_retries: Bits::masked(retry_policy.max_retries.into()),
            initiator_depth: param.initiator_depth,
            pkey: PKey::DEFAULT,
            primary_hop_limit: HOP_LIMIT,
            primary_traffic_class: known.traffic_class,
            private_data: known.encode_with_header(param.private_data)?,
            ..Req::default()
        };
        if !is_xrc {
            req.responder_resources = param.responder_resources;
            req.retry_count = Bits::masked(param.retry_count.min(MAX_RETRY_COUNT).into());
            req.rnr_retry_count = Bits::masked(param.rnr_retry_count.min(MAX_RETRY_COUNT).into());
            req.srq = param.srq;
        }
        let state = known.state;
        let device = self.devices.get_mut(&key).ok_or(CmaError::NoConnection { id, state })?;
        let path_mtu = chosen_mtu.unwrap_or_else(|| device.local.path_mtu());
        req.path_mtu = Bits::masked(path_mtu.number().into());
        let asking = CmRoute { path, packet_life_time };
        let comm = device.manager.connect(now, asking, req, param.ece.1, false)?;
        device.by_comm.insert(comm, id);
        self.id_mut(id)?.comm = Some(comm);
        self.process_events(now, key);
        Ok(())
    }

    /// Accepts a request (`rdma_accept` of the passive side).
    ///
    /// If the parameters are not valid, rejects the request like the kernel (cma.c, `rdma_accept`),
    /// so that the peer does not wait for a reply.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the identifier has no pending request, or the private data is too
    /// long.
    pub fn accept(&mut self, now: Time, id: CmaId, param: &ConnParam<'_>) -> Result<(), CmaError> {
        self.require_connect(id, "accept")?;
        let sent = self.send_rep(now, id, param);
        match sent {
            Ok(()) => self.id_mut(id)?.is_unanswered = false,
            // This fails if there is no pending request, which then needs no rejection.
            Err(_) => _ = self.reject(now, id, RejReason::CONSUMER_DEFINED, &[]),
        }
        sent
    }

    fn send_rep(&mut self, now: Time, id: CmaId, param: &ConnParam<'_>) -> Result<(), CmaError> {
        let known = self.id(id)?;
        if known.is_datagram() {
            return self.send_sidr_rep(now, id, SidrStatus::SUCCESS, param.qpn, param.private_data);
        }
        let is_xrc = known.qp_type == QpType::XrcRecv;
        let rep = Rep {
            local_qpn: if is_xrc { Qpn::masked(0) } else { param.qpn },
            local_eecn: if is_xrc { Bits::masked(param.qpn.value()) } else { Bits::default() },
            ece_vendor_id: SpreadVendorId(Bits::masked(param.ece.0)),
            starting_psn: known.first_psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            end_to_end_flow_control: param.flow_control,
            rnr_retry_count: Bits::masked(param.rnr_retry_count.min(MAX_RETRY_COUNT).into()),
            srq: param.srq || is_xrc,
            private_data: encode_private_data(param.private_data)?,
            ..Rep::default()
        };
        let (key, comm, device) = self.connection(id)?;
        device.manager.accept(now, comm, rep, param.ece.1)?;
        self.id_mut(id)?.qpn = param.qpn;
        self.process_events(now, key);
        Ok(())
    }

    /// Confirms that the passive side accepted (`rdma_establish`).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the passive side has not accepted.
    pub fn establish(&mut self, now: Time, id: CmaId) -> Result<(), CmaError> {
        self.require_connect(id, "establish")?;
        let (key, comm, device) = self.connection(id)?;
        device.manager.confirm(now, comm, PrivateData::NONE)?;
        self.process_events(now, key);
        Ok(())
    }

    /// Rejects a request, or the reply of the passive side (`rdma_reject`).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if there is nothing to reject, or the private data is too long.
    pub fn reject(
        &mut self,
        now: Time,
        id: CmaId,
        reason: RejReason,
        private_data: &[u8],
    ) -> Result<(), CmaError> {
        if self.id(id)?.is_datagram() {
            return self.send_sidr_rep(now, id, SidrStatus::REJECT, Qpn::masked(0), private_data);
        }
        let data = encode_private_data(private_data)?;
        let (key, comm, device) = self.connection(id)?;
        device.manager.reject(now, comm, reason, (InfoLength::ZERO, PrivateData::NONE), data)?;
        self.process_events(now, key);
        Ok(())
    }

    /// Ends a connection, or confirms its end (`rdma_disconnect`). Like the kernel, does nothing if
    /// the connection has already ended.
    ///
    /// # Errors
    /// Fails with [`CmaError::UnknownId`] if the identifier does not exist, and with
    /// [`CmaError::NoConnection`] if it has no connection.
    pub fn disconnect(&mut self, now: Time, id: CmaId) -> Result<(), CmaError> {
        let (key, comm, device) = self.connection(id)?;
        if device.manager.disconnect(now, comm, PrivateData::NONE).is_err() {
            let _ = device.manager.confirm_disconnect(now, comm, PrivateData::NONE);
        }
        self.process_events(now, key);
        Ok(())
    }

    /// Marks the connection as established because its queue pair received data before the RTU
    /// (`rdma_notify` with `IBV_EVENT_COMM_EST`).
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the connection does not wait for an RTU.
    pub fn communication_established(&mut self, now: Time, id: CmaId) -> Result<(), CmaError> {
        let (key, comm, device) = self.connection(id)?;
        device.manager.communication_established(now, comm)?;
        self.process_events(now, key);
        Ok(())
    }

    fn require_connect(&self, id: CmaId, call: &'static str) -> Result<(), CmaError> {
        match self.id(id)?.state {
            IdState::Connect => Ok(()),
            state => Err(CmaError::State { id, state, call }),
        }
    }
}
