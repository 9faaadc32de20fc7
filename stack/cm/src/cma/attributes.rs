//! The attributes of a connection's queue pair (`rdma_init_qp_attr`; cm.c,
//! `cm_init_qp_{init,rtr,rts}_attr`, and cma.c, `cma_ib_init_qp_attr`).

use urxe_wire::mad::CommId;

use super::connect::HOP_LIMIT;
use super::{Cma, CmaError, CmaId};
use crate::cm::Agreed;
use crate::cm::table::CmState;
use urxe_types::access::Access;
use urxe_types::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpState, QpType};

impl Cma {
    /// Returns the attributes with which to modify the identifier's queue pair to `state`.
    ///
    /// # Errors
    /// Fails with [`CmaError`] if the identifier or its connection does not exist, or the state of
    /// the connection does not allow `state`.
    pub fn qp_attr(&self, id: CmaId, state: QpState) -> Result<(QpAttr, QpAttrMask), CmaError> {
        let known = self.id(id)?;
        let key = known.device.ok_or(CmaError::NoConnection { id, state: known.state })?;
        let attr = QpAttr { qp_state: state, port_num: 1, ..QpAttr::default() };
        let initial = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
        if known.is_datagram() {
            return match state {
                QpState::Init => {
                    Ok((QpAttr { qkey: known.qkey, ..attr }, initial | QpAttrMask::QKEY))
                }
                QpState::Rtr => Ok((attr, QpAttrMask::STATE)),
                QpState::Rts => Ok((attr, QpAttrMask::STATE | QpAttrMask::SQ_PSN)),
                other => Err(CmaError::QpState(other)),
            };
        }
        if let Some(comm) = known.comm.and_then(|comm| self.devices.get(&key)?.manager.state(comm))
            && !has_attributes(comm, state)
        {
            return Err(CmaError::CommState(comm));
        }
        let agreed = known.comm.and_then(|comm| self.agreed(key, comm));
        match (state, agreed) {
            (QpState::Init, None) => Ok((attr, initial | QpAttrMask::ACCESS_FLAGS)),
            (QpState::Init, Some(agreed)) => {
                let mut access_flags = Access::REMOTE_WRITE;
                if agreed.responder_resources > 0 {
                    access_flags |= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                }
                Ok((QpAttr { access_flags, ..attr }, initial | QpAttrMask::ACCESS_FLAGS))
            }
            (QpState::Rtr, Some(agreed)) => Ok(self.ready_to_receive(id, agreed, attr)),
            (QpState::Rts, Some(agreed)) => Ok(self.ready_to_send(id, agreed, attr)),
            (QpState::Rtr | QpState::Rts, None) => {
                Err(CmaError::NoConnection { id, state: known.state })
            }
            (other, _) => Err(CmaError::QpState(other)),
        }
    }

    fn agreed(&self, key: super::DeviceKey, comm: CommId) -> Option<&Agreed> {
        self.devices.get(&key)?.manager.agreed(comm)
    }

    fn ready_to_receive(&self, id: CmaId, agreed: &Agreed, attr: QpAttr) -> (QpAttr, QpAttrMask) {
        let Ok(known) = self.id(id) else { return (attr, QpAttrMask::STATE) };
        let attr = QpAttr {
            ah: self.address_vector(id),
            path_mtu: PathMtu::from_number(agreed.path_mtu.value()).unwrap_or_default(),
            dest_qp_num: agreed.remote_qpn,
            rq_psn: known.first_psn,
            max_dest_rd_atomic: agreed.responder_resources,
            ..attr
        };
        let mut mask = QpAttrMask::STATE
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN;
        if matches!(known.qp_type, QpType::Rc | QpType::XrcRecv) {
            mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
        }
        (attr, mask)
    }

    fn ready_to_send(&self, id: CmaId, agreed: &Agreed, attr: QpAttr) -> (QpAttr, QpAttrMask) {
        let Ok(known) = self.id(id) else { return (attr, QpAttrMask::STATE) };
        let attr = QpAttr {
            sq_psn: agreed.sq_psn,
            retry_cnt: agreed.retry_count.value() as u8,
            rnr_retry: agreed.rnr_retry_count.value() as u8,
            max_rd_atomic: agreed.initiator_depth,
            timeout: known.options.ack_timeout.unwrap_or(agreed.ack_timeout),
            ..attr
        };
        let asks = QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY | QpAttrMask::MAX_QP_RD_ATOMIC;
        let mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
        let mask = match known.qp_type {
            QpType::Rc | QpType::XrcSend => mask | asks | QpAttrMask::TIMEOUT,
            QpType::XrcRecv => mask | QpAttrMask::TIMEOUT,
            _ => mask,
        };
        (attr, mask)
    }

    /// Returns the address vector of the identifier's peer.
    pub(super) fn address_vector(&self, id: CmaId) -> AddressVector {
        let Ok(known) = self.id(id) else { return AddressVector::default() };
        let gids =
            known.device.and_then(|key| self.devices.get(&key)).map(|device| device.local.gids());
        let index =
            gids.and_then(|gids| gids.iter().position(|gid| *gid == known.local)).unwrap_or(0);
        AddressVector {
            dgid: known.remote,
            sgid_index: u8::try_from(index).unwrap_or(0),
            hop_limit: HOP_LIMIT,
            traffic_class: known.traffic_class,
            port_num: 1,
            is_global: true,
            ..AddressVector::default()
        }
    }
}

/// Returns whether a connection in state `comm` has the attributes for a queue pair in `state`.
fn has_attributes(comm: CmState, state: QpState) -> bool {
    match comm {
        CmState::ReqSent | CmState::MraReqRcvd => state == QpState::Init,
        CmState::ReqRcvd
        | CmState::MraReqSent
        | CmState::RepRcvd
        | CmState::MraRepSent
        | CmState::RepSent
        | CmState::MraRepRcvd
        | CmState::Established => true,
        _ => false,
    }
}
