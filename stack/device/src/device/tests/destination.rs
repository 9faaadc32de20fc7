//! Whom a request is for has to fit the service.

use super::*;
use crate::qp::wr::{AhHandle, PostError};

#[test]
fn a_connected_queue_pair_refuses_an_address_handle() {
    let end = End::new(A, 1);
    end.connect_qp(end.qp, Qpn::masked(7), B);
    let to = Destination::Datagram {
        ah: AhHandle { index: 0, generation: 0 },
        qpn: Qpn::masked(7),
        qkey: urxe_wire::QKey(1),
    };
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        to,
        flags: SendFlags::empty(),
        payload: Payload::Sges(&[]),
    };
    let refused = end.device.post_send(Time::ZERO, end.qp, &[request]);
    assert_eq!(refused, Err((0, PostError::Destination { qp_type: QpType::Rc })));
}
