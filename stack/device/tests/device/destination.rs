//! Whom a request is for has to fit the service.

use super::*;
use urxe_device::qp::wr::PostError;

#[test]
fn a_connected_queue_pair_refuses_an_address_handle() {
    let end = Host::new(A, 1);
    end.connect_qp(end.qp, Qpn::masked(7), B);
    let ah = end.ah(B.into());
    let to = to_qp(ah, Qpn::masked(7), urxe_wire::QKey(1));
    let refused = end.post_request(end.qp, &SendRequest { to, ..request(SendOp::Send, &[]) });
    assert_eq!(refused, Err(PostError::Destination { qp_type: QpType::Rc }));
}
