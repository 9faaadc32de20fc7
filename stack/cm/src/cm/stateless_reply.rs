//! Replies without a connection: rejections, and replies to peers that would otherwise wait.

use urxe_wire::Gid;
use urxe_wire::mad::{
    Answered, ApStatus, Apr, Attribute, CmMessage, CommId, Drep, InfoLength, MAD_LEN, Mad,
    PrivateData, Rej, RejReason, Req, SidrRep, SidrReq, SidrStatus, TransportType,
};

use super::ConnectionManager;
use super::connection::CmPath;

impl ConnectionManager {
    /// Rejects a REQ or a REP without a connection.
    pub(super) fn reject_stateless(
        &mut self,
        path: CmPath,
        mad: &Mad,
        reason: RejReason,
        info: &[u8],
    ) {
        let (theirs, ours, answered) = match &mad.message {
            CmMessage::Req(req) => (req.local_comm_id, CommId::NONE, Answered::Req),
            CmMessage::Rep(rep) => (rep.local_comm_id, rep.remote_comm_id, Answered::Rep),
            other => unreachable!("{} is not rejected", other.attribute()),
        };
        let rej = Rej {
            local_comm_id: ours,
            remote_comm_id: theirs,
            answered,
            info_length: InfoLength::new(info.len() as u8).unwrap_or_default(),
            reason,
            info: PrivateData::new(info).unwrap_or_default(),
            private_data: PrivateData::NONE,
        };
        self.send_stateless(path, &Mad::new(mad.tid, rej));
    }

    /// Replies to a message for a connection that does not exist, so that the peer stops waiting.
    pub(super) fn reply_to_unknown(&mut self, path: CmPath, mad: &Mad) {
        match &mad.message {
            CmMessage::Rep(_) => self.reject_stateless(path, mad, RejReason::INVALID_COMM_ID, &[]),
            CmMessage::Dreq(dreq) => {
                let drep = Drep {
                    local_comm_id: dreq.remote_comm_id,
                    remote_comm_id: dreq.local_comm_id,
                    private_data: PrivateData::NONE,
                };
                self.counters.count_duplicate(Attribute::Dreq);
                self.send_stateless(path, &Mad::new(mad.tid, drep));
            }
            CmMessage::Lap(_) => self.reject_path(path, mad, ApStatus::INVALID_COMM_ID),
            other => {
                unreachable!("{} without a connection needs no reply", other.attribute())
            }
        }
    }

    pub(super) fn reject_path(&mut self, path: CmPath, mad: &Mad, status: ApStatus) {
        let CmMessage::Lap(lap) = &mad.message else { unreachable!("only a LAP requests a path") };
        let (local_comm_id, remote_comm_id) = (lap.remote_comm_id, lap.local_comm_id);
        self.send_stateless(
            path,
            &Mad::new(mad.tid, Apr { local_comm_id, remote_comm_id, status, ..Apr::default() }),
        );
    }

    pub(super) fn reject_service(
        &mut self,
        path: CmPath,
        mad: &Mad,
        req: &SidrReq,
        status: SidrStatus,
    ) {
        let SidrReq { request_id, service_id, .. } = *req;
        self.send_stateless(
            path,
            &Mad::new(mad.tid, SidrRep { request_id, service_id, status, ..SidrRep::default() }),
        );
    }

    fn send_stateless(&mut self, path: CmPath, mad: &Mad) {
        let bytes: [u8; MAD_LEN] = mad.to_bytes();
        // There is no connection, so there is no traffic class.
        self.transmit((path, 0), mad.message.attribute(), bytes, false);
    }
}

/// Returns the reason why a REQ is not acceptable, with the acceptable value.
pub(super) fn rejection_reason(path: CmPath, req: &Req) -> Option<(RejReason, Vec<u8>)> {
    /// The path MTU code for 4096 bytes.
    const MAX_MTU: u32 = 5;
    let gid = |gid: Gid| gid.0.to_vec();
    if req.primary_remote_gid != path.local {
        Some((RejReason::INVALID_GID, gid(path.local)))
    } else if req.primary_local_gid != path.remote {
        // The packets would go to a host that did not request the connection.
        Some((RejReason::INVALID_GID, gid(path.remote)))
    } else if !(1..=MAX_MTU).contains(&req.path_mtu.value()) {
        Some((RejReason::INVALID_MTU, vec![MAX_MTU as u8]))
    } else {
        match (req.transport_type, req.extended_transport_type.value()) {
            (TransportType::Rc | TransportType::Uc, _) | (TransportType::Extended, 1) => None,
            _ => Some((RejReason::INVALID_TRANSPORT_TYPE, Vec::new())),
        }
    }
}
