//! Changes of a requester's attributes while its send queue is drained (SQD), and their later
//! effect: each attribute that may change there (IBTA vol. 1, 10.3.1.5; table 91).
//! `stack/device/tests/device/queues.rs` tests the responder's attributes.

use urxe_stack::cq::WcStatus::{LocQpOpErr, RetryExcErr, RnrRetryExcErr, Success, WrFlushErr};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpState, QpType};
use urxe_test_support::lab::{
    Lab, MILLISECOND, PEER, Packet, Setup, ack, fetch_add, read_response, rnr_nak, write_only,
};
use urxe_test_support::qp::address_vector;
use urxe_wire::Opcode;

use Opcode::{RcReadRequest, RcReadResponseOnly, RcSendOnly, XrcAcknowledge};

/// The RNR wait of code 1, in nanoseconds.
const SHORTEST_WAIT: u64 = 10_000;
/// The local ACK timeout of code 1, in nanoseconds: the shortest one, because the code says 8 µs.
const TIMEOUT_1: u64 = 4_000_000;

/// Drains the queue, changes the attributes, and returns to RTS.
fn change(lab: &Lab, mask: QpAttrMask, attr: &QpAttr) {
    lab.go_to(QpState::Sqd);
    lab.modify(attr, mask);
    lab.go_to(QpState::Rts);
}

/// Returns the number of RNR NAKs before the request fails.
fn waits(lab: Lab, answer: impl Fn(Packet) -> Packet) -> usize {
    lab.post_send(1, 8);
    for waits in 0..10 {
        assert_eq!(lab.sent().len(), 1);
        lab.deliver(answer(rnr_nak(500, 1)));
        lab.wait(SHORTEST_WAIT);
        if lab.state() == QpState::Err {
            lab.expect_sends([(1, RnrRetryExcErr)]);
            return waits;
        }
    }
    panic!("it never gives up");
}

#[test]
fn rnr_retries_follow_the_last_change() {
    for (qp_type, answer) in [
        (QpType::Rc, (|packet| packet) as fn(Packet) -> Packet),
        (QpType::XrcSend, |packet| Packet { opcode: XrcAcknowledge, ..packet }),
    ] {
        for (before, after) in [(0, 3), (5, 1)] {
            let lab = Lab::new(Setup { qp_type, rnr_retry: before, ..Setup::default() });
            change(&lab, QpAttrMask::RNR_RETRY, &QpAttr { rnr_retry: after, ..QpAttr::default() });
            assert_eq!(waits(lab, answer), usize::from(after), "{qp_type}: {before} to {after}");
        }
    }
}

#[test]
fn another_change_does_not_restart_rnr_retries() {
    let lab = Lab::new(Setup { rnr_retry: 1, ..Setup::default() });
    lab.post_send(1, 8);
    lab.flush();
    lab.deliver(rnr_nak(500, 1));
    lab.wait(SHORTEST_WAIT);
    change(&lab, QpAttrMask::RETRY_CNT, &QpAttr { retry_cnt: 3, ..QpAttr::default() });
    lab.flush();
    lab.deliver(rnr_nak(500, 1));
    lab.expect_sends([(1, RnrRetryExcErr)]);
}

#[test]
fn the_peer_counts_as_gone_by_the_timeout_and_retries_as_they_are_now() {
    for (mask, attr, until) in [
        (QpAttrMask::TIMEOUT, QpAttr { timeout: 15, ..QpAttr::default() }, 2 * (4_096 << 15)),
        (QpAttrMask::RETRY_CNT, QpAttr { retry_cnt: 3, ..QpAttr::default() }, 4 * (4_096 << 14)),
        (
            QpAttrMask::TIMEOUT | QpAttrMask::RETRY_CNT,
            QpAttr { timeout: 1, retry_cnt: 0, ..QpAttr::default() },
            TIMEOUT_1,
        ),
    ] {
        let lab = Lab::new(Setup { timeout: 14, retry_cnt: 1, ..Setup::default() });
        change(&lab, mask, &attr);
        lab.post_send(1, 8);
        lab.flush();
        lab.wait(until - 1);
        lab.expect_sends([]);
        lab.wait(1);
        lab.expect_sends([(1, RetryExcErr)]);
    }
}

#[test]
fn as_many_reads_are_under_way_as_the_last_change_allows() {
    for (before, after) in [(1, 3), (4, 2)] {
        let lab = Lab::new(Setup { max_rd_atomic: before, ..Setup::default() });
        let attr = QpAttr { max_rd_atomic: after, ..QpAttr::default() };
        change(&lab, QpAttrMask::MAX_QP_RD_ATOMIC, &attr);
        for wr_id in 0..8 {
            lab.post_read(wr_id, 8);
        }
        assert_eq!(lab.sent().len(), usize::from(after));
        lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[1; 8]));
        assert_eq!(lab.sent().len(), 1);
    }
}

#[test]
fn a_read_for_which_no_room_is_left_fails_instead_of_waiting_for_ever() {
    let lab = Lab::new(Setup::default());
    lab.go_to(QpState::Sqd);
    lab.post_send(1, 8);
    lab.post_read(2, 8);
    lab.post_send(3, 8);
    lab.modify(&QpAttr { max_rd_atomic: 0, ..QpAttr::default() }, QpAttrMask::MAX_QP_RD_ATOMIC);
    lab.go_to(QpState::Rts);
    lab.expect_sent([(RcSendOnly, 500)]);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success), (2, LocQpOpErr), (3, WrFlushErr)]);
    assert_eq!(lab.state(), QpState::Err);
}

#[test]
fn a_read_that_is_under_way_is_answered_although_no_room_is_left_for_others() {
    let lab = Lab::new(Setup::default());
    lab.post_read(1, 8);
    lab.expect_sent([(RcReadRequest, 500)]);
    change(&lab, QpAttrMask::MAX_QP_RD_ATOMIC, &QpAttr { max_rd_atomic: 0, ..QpAttr::default() });
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[1; 8]));
    lab.expect_sends([(1, Success)]);
    lab.post_send(2, 8);
    lab.expect_sent([(RcSendOnly, 501)]);
}

#[test]
fn rights_are_those_of_the_last_change() {
    let lab = Lab::new(Setup::default());
    let access_flags = Access::REMOTE_WRITE;
    change(&lab, QpAttrMask::ACCESS_FLAGS, &QpAttr { access_flags, ..QpAttr::default() });
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(100, 0, rkey, b"allowed"));
    assert_eq!(lab.memory(0, 7), b"allowed");
    let before = lab.word(64);
    lab.deliver(fetch_add(101, 64, rkey, 1));
    assert_eq!((lab.word(64), lab.state()), (before, QpState::Err));
}

#[test]
fn another_path_to_the_peer_keeps_posted_requests() {
    let lab = Lab::new(Setup::default());
    lab.post_send(1, 8);
    lab.expect_sent([(RcSendOnly, 500)]);
    let ah = AddressVector { traffic_class: 0x20, ..address_vector(PEER) };
    let attr = QpAttr { ah, port_num: 1, ..QpAttr::default() };
    change(&lab, QpAttrMask::AV | QpAttrMask::PORT, &attr);
    // Packets on the former path count as lost.
    lab.expect_sent([(RcSendOnly, 500)]);
    lab.post_send(2, 8);
    lab.expect_sent([(RcSendOnly, 501)]);
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success), (2, Success)]);
    lab.wait(MILLISECOND);
}
