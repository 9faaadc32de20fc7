//! Queue pairs and work requests with the defaults of most tests.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use urxe_device::cq::Cq;
use urxe_device::device::{Device, QpHandle};
use urxe_device::qp::QpInit;
use urxe_device::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_device::qp::transition;
use urxe_device::qp::work_request::{Destination, Payload, SendFlags, SendOp, SendRequest, Sge};
use urxe_memory::{Access, PdId};
use urxe_types::time::Time;
use urxe_wire::{Gid, Psn, QKey, Qpn};

/// The default sizes of a queue pair.
pub const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 64,
};
/// The rights of a peer, without FLUSH.
pub const REMOTE: Access =
    Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
/// The first PSN in both directions, two before the wrap.
pub const FIRST_PSN: Psn = Psn::new(0xff_fffe);

/// Returns the attributes of a queue pair of the sizes [`CAP`], with one completion queue for sends
/// and receives.
#[must_use]
pub fn init(qp_type: QpType, pd: PdId, cq: &Arc<Cq>) -> QpInit {
    let (send_cq, recv_cq) = (Arc::clone(cq), Arc::clone(cq));
    QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap: CAP, sq_sig_all: false }
}

/// Returns an address vector with this destination; all other fields are 0.
#[must_use]
pub fn address_vector(to: IpAddr) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ip(to),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    }
}

/// Returns the attributes of a connection to this queue pair of this host.
#[must_use]
pub fn attributes(peer: IpAddr, dest_qp_num: Qpn) -> QpAttr {
    QpAttr {
        port_num: 1,
        access_flags: REMOTE,
        path_mtu: PathMtu::Mtu1024,
        dest_qp_num,
        rq_psn: FIRST_PSN,
        sq_psn: FIRST_PSN,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ah: address_vector(peer),
        ..QpAttr::default()
    }
}

/// Returns the attributes of a datagram queue pair with this Q_Key.
#[must_use]
pub fn datagram_attributes(qkey: QKey) -> QpAttr {
    QpAttr { port_num: 1, qkey, ..QpAttr::default() }
}

/// Returns attributes that move a queue pair to a state.
#[must_use]
pub fn state(qp_state: QpState) -> QpAttr {
    QpAttr { qp_state, ..QpAttr::default() }
}

/// Brings a queue pair of a device from RESET through INIT and RTR to `to`, with the attributes
/// that the service requires.
///
/// # Errors
/// The refusal of the device, as a text.
pub fn bring_up(
    device: &Device,
    now: Time,
    (qp, qp_type): (QpHandle, QpType),
    attr: &QpAttr,
    to: QpState,
) -> Result<(), String> {
    bring_up_by(qp_type, attr, to, |attr, mask| device.modify_qp(now, qp, attr, mask))
}

/// Brings a queue pair that `modify` changes to `to`, as [`bring_up`] does.
///
/// # Errors
/// The refusal of `modify`, as a text.
pub fn bring_up_by<E: Display>(
    qp_type: QpType,
    attr: &QpAttr,
    to: QpState,
    mut modify: impl FnMut(&QpAttr, QpAttrMask) -> Result<(), E>,
) -> Result<(), String> {
    let mut from = QpState::Reset;
    for qp_state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let transition = transition::attributes(from, qp_state, qp_type)
            .ok_or_else(|| format!("{qp_type} does not go from {from} to {qp_state}"))?;
        let mask = transition.required | QpAttrMask::STATE;
        modify(&QpAttr { qp_state, ..*attr }, mask)
            .map_err(|error| format!("to {qp_state}: {error}"))?;
        from = qp_state;
        if qp_state == to {
            break;
        }
    }
    Ok(())
}

/// Returns a signalled work request to the connected peer with `wr_id` 7.
#[must_use]
pub fn request(op: SendOp, sges: &[Sge]) -> SendRequest<'_> {
    let (to, flags) = (Destination::Peer, SendFlags::SIGNALED);
    SendRequest { wr_id: 7, op, to, flags, payload: Payload::Sges(sges) }
}
