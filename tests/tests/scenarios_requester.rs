//! A requester's reactions to responses, and to missing responses.

use urxe_stack::cq::{AsyncEventType, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_stack::qp::work_request::{SendFlags, SendOp, Sge};
use urxe_test_support::lab::{
    DESTINATION, Lab, MILLISECOND, MTU, PEER, Packet, REORDER_WAIT_NS, Setup, ack, answer,
    atomic_response, lab, nak, no_lkey, part, read_request, read_response, remote, request, reth,
    rnr_nak,
};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Ext, ImmDt, NakCode, Opcode, Rkey, Syndrome};

use Opcode::{
    RcFetchAdd, RcReadRequest, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle,
    RcReadResponseOnly, RcSendFirst, RcSendLast, RcSendMiddle, RcSendOnly, RcWriteOnly,
};
use WcStatus::{
    BadRespErr, LocProtErr, RemAccessErr, RemInvReqErr, RemOpErr, RetryExcErr, RnrRetryExcErr,
    Success, WrFlushErr,
};

/// The local ACK timeout of code 14, in nanoseconds.
const TIMEOUT_14: u64 = 4_096 << 14;

fn add() -> SendOp {
    SendOp::FetchAdd { remote: remote(), add: 5 }
}

/// IBTA 9.7.3 and 9.7.7.
#[test]
fn a_message_is_cut_at_the_path_mtu_and_completes_on_its_last_acknowledgement() {
    let lab = lab();
    lab.post_send(1, 2 * MTU + 3);
    let data = lab.source(2 * MTU + 3);
    lab.expect([
        part(RcSendFirst, 500, &data[..MTU]),
        part(RcSendMiddle, 501, &data[MTU..2 * MTU]),
        request(RcSendLast, 502, Ext::None, &data[2 * MTU..]),
    ]);
    lab.deliver(ack(500));
    lab.deliver(ack(501));
    lab.expect_sends([]);
    lab.deliver(ack(502));
    lab.expect_sends([(1, Success)]);
    lab.expect([]);
}

#[test]
fn one_acknowledgement_completes_all_before_it() {
    let lab = lab();
    for wr_id in 1..=4 {
        lab.post_send(wr_id, 10);
    }
    lab.flush();
    lab.deliver(ack(502));
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
    lab.deliver(ack(503));
    lab.expect_sends([(4, Success)]);
}

#[test]
fn only_signalled_requests_complete_unless_they_fail() {
    let lab = lab();
    let sge = lab.sge(0, 8);
    lab.post_request(1, SendOp::Send, SendFlags::empty(), &[sge]).unwrap();
    lab.post_sges(2, SendOp::Send, &[sge]);
    lab.post_request(3, SendOp::Send, SendFlags::empty(), &[sge]).unwrap();
    lab.flush();
    lab.deliver(ack(501));
    lab.expect_sends([(2, Success)]);
    lab.deliver(nak(502, NakCode::RemoteOperational));
    lab.expect_sends([(3, RemOpErr)]);
}

#[test]
fn a_ghost_ack_does_nothing() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.expect_sent([(RcSendOnly, 500)]);
    for psn in [501, 600, 499, 0xff_ffff, 0x80_01f4] {
        lab.deliver(ack(psn));
        lab.deliver(nak(psn, NakCode::InvalidRequest));
        lab.deliver(nak(psn, NakCode::PsnSequence));
        lab.deliver(rnr_nak(psn, 1));
        lab.deliver(read_response(RcReadResponseOnly, psn, 0, &[1; 8]));
        lab.deliver(atomic_response(psn, 0, 1));
    }
    lab.expect([]);
    lab.expect_sends([]);
    assert_eq!(lab.state(), QpState::Rts);
    assert!(lab.counter(Counter::DropGhostAck) > 0);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
    // The same acknowledgement is now a ghost ACK, too.
    lab.deliver(ack(500));
    lab.expect_sends([]);
}

/// IBTA C9-134.
#[test]
fn an_ack_past_an_unanswered_read_is_an_implied_nak() {
    let lab = lab();
    lab.post_read(1, 8);
    lab.post_send(2, 8);
    lab.expect_sent([(RcReadRequest, 500), (RcSendOnly, 501)]);
    lab.deliver(ack(501));
    lab.wait(REORDER_WAIT_NS - 1);
    lab.expect([]);
    lab.wait(1);
    lab.expect_sends([]);
    lab.expect_sent([(RcReadRequest, 500), (RcSendOnly, 501)]);
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[9; 8]));
    lab.expect_sends([(1, Success)]);
    assert_eq!(lab.memory(DESTINATION, 8), [9; 8]);
    lab.deliver(ack(501));
    lab.expect_sends([(2, Success)]);
    assert_eq!(lab.counter(Counter::CompleterRetryErr), 1);
}

#[test]
fn an_ack_past_an_unanswered_atomic_is_an_implied_nak() {
    let lab = lab();
    lab.post(1, add(), 8);
    lab.post_send(2, 8);
    lab.expect_sent([(RcFetchAdd, 500), (RcSendOnly, 501)]);
    lab.deliver(ack(501));
    lab.wait(REORDER_WAIT_NS);
    lab.expect_sends([]);
    lab.expect_sent([(RcFetchAdd, 500), (RcSendOnly, 501)]);
    lab.deliver(atomic_response(500, 1, 77));
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success), (2, Success)]);
    assert_eq!(lab.word(DESTINATION), 77);
}

#[test]
fn a_later_read_response_is_an_implied_nak_for_an_earlier_read() {
    let lab = lab();
    lab.post_read(1, 8);
    lab.post_read(2, 8);
    lab.expect_sent([(RcReadRequest, 500), (RcReadRequest, 501)]);
    lab.deliver(read_response(RcReadResponseOnly, 501, 2, &[2; 8]));
    lab.wait(REORDER_WAIT_NS);
    lab.expect_sends([]);
    lab.expect_sent([(RcReadRequest, 500), (RcReadRequest, 501)]);
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[1; 8]));
    lab.deliver(read_response(RcReadResponseOnly, 501, 2, &[2; 8]));
    lab.expect_sends([(1, Success), (2, Success)]);
}

/// A response to a READ or atomic acknowledges all earlier requests.
#[test]
fn a_read_response_acknowledges_earlier_requests() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.post_read(2, 8);
    lab.flush();
    lab.deliver(read_response(RcReadResponseOnly, 501, 2, &[2; 8]));
    lab.expect_sends([(1, Success), (2, Success)]);
}

#[test]
fn a_read_resumes_at_the_first_missing_packet() {
    let lab = lab();
    let len = 4 * MTU;
    lab.post_read(1, len);
    lab.expect([read_request(500, remote().addr, remote().rkey, len)]);
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[1; MTU]));
    lab.deliver(read_response(RcReadResponseMiddle, 501, 1, &[2; MTU]));
    // 502 is lost.
    lab.deliver(read_response(RcReadResponseLast, 503, 1, &[4; MTU]));
    lab.wait(REORDER_WAIT_NS);
    let missing = remote().addr + 2 * MTU as u64;
    lab.expect([read_request(502, missing, remote().rkey, 2 * MTU)]);
    lab.deliver(read_response(RcReadResponseFirst, 502, 1, &[3; MTU]));
    lab.expect_sends([]);
    lab.deliver(read_response(RcReadResponseLast, 503, 1, &[4; MTU]));
    lab.expect_sends([(1, Success)]);
    let expected: Vec<u8> = [1, 2, 3, 4].iter().flat_map(|byte| [*byte; MTU]).collect();
    assert_eq!(lab.memory(DESTINATION, len), expected);
}

/// The kernel's `rdma_rxe` continues a resumed READ with MIDDLE and LAST.
#[test]
fn a_resumed_read_may_go_on_with_middle() {
    let lab = lab();
    lab.post_read(1, 3 * MTU);
    lab.flush();
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[1; MTU]));
    lab.deliver(read_response(RcReadResponseLast, 502, 1, &[3; MTU]));
    lab.wait(REORDER_WAIT_NS);
    lab.deliver(read_response(RcReadResponseMiddle, 501, 1, &[2; MTU]));
    lab.deliver(read_response(RcReadResponseLast, 502, 1, &[3; MTU]));
    lab.expect_sends([(1, Success)]);
}

#[test]
fn a_repeated_read_response_is_dropped() {
    let lab = lab();
    lab.post_read(1, 2 * MTU);
    lab.flush();
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[1; MTU]));
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[7; MTU]));
    assert_eq!(lab.memory(DESTINATION, MTU), [1; MTU]);
    lab.deliver(read_response(RcReadResponseLast, 501, 1, &[2; MTU]));
    lab.expect_sends([(1, Success)]);
    assert_eq!(lab.state(), QpState::Rts);
}

#[test]
fn read_responses_of_a_wrong_length_or_kind_end_the_connection() {
    let cases = [
        ("short FIRST", read_response(RcReadResponseFirst, 500, 1, &[1; MTU - 1])),
        ("ONLY for a longer READ", read_response(RcReadResponseOnly, 500, 1, &[1; MTU])),
        ("LAST too early", read_response(RcReadResponseLast, 500, 1, &[1; MTU])),
        ("the answer of an atomic", atomic_response(500, 1, 3)),
    ];
    for (name, response) in cases {
        let lab = lab();
        lab.post_read(1, 2 * MTU);
        lab.post_send(2, 8);
        lab.flush();
        lab.deliver(response);
        lab.expect_sends([(1, BadRespErr), (2, WrFlushErr)]);
        assert_eq!(lab.state(), QpState::Err, "{name}");
    }
}

#[test]
fn max_rd_atomic_bounds_outstanding_requests() {
    let lab = Lab::new(Setup { max_rd_atomic: 2, ..Setup::default() });
    lab.post_read(1, 8);
    lab.post(2, add(), 8);
    lab.post_read(3, 8);
    lab.post_send(4, 8);
    lab.expect_sent([(RcReadRequest, 500), (RcFetchAdd, 501)]);
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[1; 8]));
    lab.expect_sent([(RcReadRequest, 502), (RcSendOnly, 503)]);
}

/// IBTA 10.8.3.3.
#[test]
fn a_fence_waits_for_reads_and_atomics_and_for_nothing_else() {
    let lab = lab();
    let sge = lab.sge(0, 8);
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    lab.post_send(1, 8);
    lab.post_request(2, SendOp::Send, fenced, &[sge]).unwrap();
    lab.expect_sent([(RcSendOnly, 500), (RcSendOnly, 501)]);
    lab.post_read(3, 8);
    lab.post_request(4, SendOp::Send, fenced, &[sge]).unwrap();
    lab.post_send(5, 8);
    lab.expect_sent([(RcReadRequest, 502)]);
    lab.deliver(ack(501));
    lab.expect([]);
    lab.deliver(read_response(RcReadResponseOnly, 502, 3, &[1; 8]));
    lab.expect_sent([(RcSendOnly, 503), (RcSendOnly, 504)]);
}

/// IBTA 9.7.5.2.8.
#[test]
fn rnr_then_success() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.post_send(2, 8);
    lab.expect_sent([(RcSendOnly, 500), (RcSendOnly, 501)]);
    // Code 14 stands for 1.28 ms.
    lab.deliver(rnr_nak(500, 14));
    lab.wait(1_279_999);
    lab.expect([]);
    lab.wait(1);
    lab.expect_sent([(RcSendOnly, 500), (RcSendOnly, 501)]);
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success), (2, Success)]);
    assert_eq!(lab.counter(Counter::RcvdRnrErr), 1);
}

#[test]
fn an_rnr_nak_acknowledges_earlier_requests() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.post_send(2, 8);
    lab.flush();
    lab.deliver(rnr_nak(501, 1));
    lab.expect_sends([(1, Success)]);
    lab.sent();
    lab.wait(MILLISECOND);
    lab.expect_sent([(RcSendOnly, 501)]);
}

#[test]
fn rnr_retry_is_exceeded_after_so_many_retries() {
    for rnr_retry in [0, 1, 3, 6] {
        let lab = Lab::new(Setup { rnr_retry, ..Setup::default() });
        lab.post_send(1, 8);
        lab.post_send(2, 8);
        lab.post_recv(3, 8);
        for _ in 0..rnr_retry {
            lab.flush();
            lab.deliver(rnr_nak(500, 1));
            lab.expect_sends([]);
            lab.wait(MILLISECOND);
        }
        lab.sent();
        lab.deliver(rnr_nak(500, 1));
        lab.expect_sends([(1, RnrRetryExcErr), (2, WrFlushErr)]);
        lab.expect_recvs([(3, WrFlushErr)]);
        assert_eq!(lab.state(), QpState::Err);
        assert_eq!(lab.counter(Counter::RetryRnrExceededErr), 1);
    }
}

#[test]
fn an_rnr_retry_of_seven_never_ends() {
    let lab = lab();
    lab.post_send(1, 8);
    for _ in 0..1_000 {
        lab.flush();
        lab.deliver(rnr_nak(500, 1));
        lab.wait(MILLISECOND);
    }
    lab.expect_sends([]);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
}

/// The failure must not come before (retry_cnt + 1) × timeout, and seven retries are exactly seven.
/// A shorter timeout counts as 4 ms. IBTA C9-141.
#[test]
fn retry_exceeded_comes_after_so_many_timeouts() {
    for timeout in [5, 8, 14, 17] {
        let timeout_ns = (4_096 << timeout).max(4_000_000);
        for retry_cnt in [0, 1, 3, 7] {
            let lab = Lab::new(Setup { timeout, retry_cnt, ..Setup::default() });
            lab.post_send(1, 8);
            lab.post_recv(2, 8);
            let limit = (u64::from(retry_cnt) + 1) * timeout_ns;
            lab.wait(limit - 1);
            lab.expect_sends([]);
            assert_eq!(lab.state(), QpState::Rts, "timeout {timeout}, retry_cnt {retry_cnt}");
            assert!(lab.sent().len() > usize::from(retry_cnt), "sent too seldom");
            // The specification permits four times the timeout.
            lab.wait(3 * limit + 1);
            lab.expect_sends([(1, RetryExcErr)]);
            lab.expect_recvs([(2, WrFlushErr)]);
            assert_eq!(lab.state(), QpState::Err);
            assert_eq!(lab.counter(Counter::RetryExceededErr), 1);
        }
    }
}

/// A router drops the packets of the path MTU without an ICMP message that the sender may believe.
#[test]
fn a_path_mtu_is_suspected_if_the_peer_acknowledges_shorter_packets_only() {
    for (acknowledged, last, suspected) in
        [(Some(8), MTU, 1), (Some(8), 8, 0), (Some(MTU), MTU, 0), (None, MTU, 0)]
    {
        let lab = Lab::new(Setup { retry_cnt: 1, ..Setup::default() });
        if let Some(len) = acknowledged {
            lab.post_send(1, len);
            assert_eq!(lab.sent().len(), 1);
            lab.deliver(ack(500));
            lab.expect_sends([(1, Success)]);
        }
        lab.post_send(2, last);
        assert!(!lab.sent().is_empty());
        lab.wait(100 * TIMEOUT_14);
        lab.expect_sends([(2, RetryExcErr)]);
        let counted = lab.counter(Counter::PathMtuSuspected);
        assert_eq!(counted, suspected, "{acknowledged:?}, then {last} bytes");
    }
}

/// Progress restores all retries.
#[test]
fn retries_count_from_the_last_progress() {
    let lab = Lab::new(Setup { retry_cnt: 1, ..Setup::default() });
    for wr_id in 0..6 {
        lab.post_send(wr_id, 8);
    }
    for psn in 500..506 {
        lab.wait(TIMEOUT_14 * 2 - 1);
        lab.deliver(ack(psn));
    }
    lab.expect_sends([0, 1, 2, 3, 4, 5].map(|wr_id| (wr_id, Success)));
}

#[test]
fn a_timeout_of_zero_never_gives_up() {
    let lab = Lab::new(Setup { timeout: 0, retry_cnt: 0, ..Setup::default() });
    lab.post_send(1, 8);
    lab.wait(1_000_000 * MILLISECOND);
    lab.expect_sends([]);
    assert!(!lab.sent().is_empty());
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
}

#[test]
fn a_sequence_nak_goes_back_and_acknowledges_earlier_requests() {
    let lab = lab();
    for wr_id in 1..=4 {
        lab.post_send(wr_id, 8);
    }
    lab.sent();
    lab.deliver(nak(502, NakCode::PsnSequence));
    lab.expect_sends([(1, Success), (2, Success)]);
    lab.expect_sent([(RcSendOnly, 502), (RcSendOnly, 503)]);
    lab.deliver(ack(503));
    lab.expect_sends([(3, Success), (4, Success)]);
}

/// A retransmission cannot be answered before a round trip, so the second NAK refers to the first
/// copy.
#[test]
fn naks_within_a_round_trip_go_back_once() {
    let lab = lab();
    for wr_id in 1..=3 {
        lab.post_send(wr_id, 8);
    }
    lab.sent();
    let all = [(RcSendOnly, 500), (RcSendOnly, 501), (RcSendOnly, 502)];
    lab.deliver(nak(500, NakCode::PsnSequence));
    lab.expect_sent(all);
    for _ in 0..5 {
        lab.wait(MILLISECOND / 10);
        lab.deliver(nak(500, NakCode::PsnSequence));
    }
    lab.expect([]);
    // The second copy may be lost as well.
    lab.wait(2 * MILLISECOND);
    lab.expect_sent(all);
    lab.deliver(ack(502));
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
}

/// A network that becomes slow makes the smoothed round trip long. A retransmission may be answered
/// within the shortest one.
#[test]
fn a_nak_of_a_retransmission_is_obeyed_at_once() {
    let lab = lab();
    let round_trips_ns = [MILLISECOND / 10, 20 * MILLISECOND, 20 * MILLISECOND];
    for (psn, round_trip_ns) in (500..).zip(round_trips_ns) {
        lab.post_send(0, 8);
        lab.sent();
        lab.wait(round_trip_ns);
        lab.deliver(ack(psn));
        lab.expect_sends([(0, Success)]);
        lab.sent();
    }
    for wr_id in 1..=3 {
        lab.post_send(wr_id, 8);
    }
    lab.sent();
    lab.deliver(nak(503, NakCode::PsnSequence));
    lab.expect_sent([(RcSendOnly, 503), (RcSendOnly, 504), (RcSendOnly, 505)]);
    lab.wait(MILLISECOND / 5);
    lab.deliver(nak(504, NakCode::PsnSequence));
    lab.expect_sends([(1, Success)]);
    lab.expect_sent([(RcSendOnly, 504), (RcSendOnly, 505)]);
}

/// Lost responses at the end of a READ are requested again before the timer expires.
#[test]
fn a_silent_read_is_probed_from_its_first_missing_response() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.sent();
    lab.wait(MILLISECOND);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
    lab.post_read(2, 3 * MTU);
    lab.expect_sent([(RcReadRequest, 501)]);
    lab.deliver(read_response(RcReadResponseFirst, 501, 2, &[1; MTU]));
    lab.wait(10 * MILLISECOND);
    lab.expect_sent([(RcReadRequest, 502)]);
    assert_eq!(lab.counter(Counter::TailProbes), 1);
    assert_eq!(lab.counter(Counter::CompleterRetryErr), 0, "no timer ran out");
    lab.deliver(read_response(RcReadResponseFirst, 502, 2, &[2; MTU]));
    lab.deliver(read_response(RcReadResponseLast, 503, 2, &[3; MTU]));
    lab.expect_sends([(2, Success)]);
}

/// IBTA 9.7.5.2 and 9.7.7.
#[test]
fn a_nak_fails_its_request_and_flushes_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, RemInvReqErr),
        (NakCode::RemoteAccess, RemAccessErr),
        (NakCode::RemoteOperational, RemOpErr),
    ] {
        let lab = lab();
        lab.post_recv(10, 8);
        lab.post_recv(11, 8);
        lab.post_send(1, 8);
        lab.post(2, SendOp::Write { remote: remote() }, 8);
        lab.post_send(3, 8);
        lab.post_read(4, 8);
        lab.flush();
        lab.deliver(nak(501, code));
        lab.expect_sends([(1, Success), (2, status), (3, WrFlushErr), (4, WrFlushErr)]);
        lab.expect_recvs([(10, WrFlushErr), (11, WrFlushErr)]);
        assert_eq!(WrFlushErr.number(), 5);
        assert_eq!(lab.state(), QpState::Err);
        lab.sent();
        lab.wait(100 * TIMEOUT_14);
        lab.expect([]);
    }
}

#[test]
fn reserved_syndromes_are_dropped() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.flush();
    for byte in [0x40, 0x5f, 0x80, 0xff, 0x65] {
        lab.deliver(answer(500, Syndrome::from_byte(byte)));
    }
    lab.expect_sends([]);
    assert_eq!(lab.counter(Counter::DropReservedSyndrome), 5);
    assert_eq!(lab.state(), QpState::Rts);
}

/// IBTA 9.7.2.
#[test]
fn psns_wrap() {
    let lab = Lab::new(Setup { sq_psn: 0xff_fffe, ..Setup::default() });
    lab.post_send(1, 5 * MTU);
    lab.post_read(2, 8);
    lab.expect_sent([
        (RcSendFirst, 0xff_fffe),
        (RcSendMiddle, 0xff_ffff),
        (RcSendMiddle, 0),
        (RcSendMiddle, 1),
        (RcSendLast, 2),
        (RcReadRequest, 3),
    ]);
    lab.deliver(nak(0, NakCode::PsnSequence));
    lab.expect_sent([(RcSendMiddle, 0), (RcSendMiddle, 1), (RcSendLast, 2), (RcReadRequest, 3)]);
    lab.deliver(ack(2));
    lab.deliver(read_response(RcReadResponseOnly, 3, 2, &[1; 8]));
    lab.expect_sends([(1, Success), (2, Success)]);
}

#[test]
fn zero_length_requests_of_every_kind() {
    let lab = lab();
    let ops = [
        SendOp::Send,
        SendOp::SendImm { imm: 1 },
        SendOp::Write { remote: remote() },
        SendOp::WriteImm { remote: remote(), imm: 2 },
        SendOp::Read { remote: remote() },
    ];
    for (wr_id, op) in (1..).zip(ops) {
        lab.post_sges(wr_id, op, &[]);
    }
    let opcodes =
        [RcSendOnly, Opcode::RcSendOnlyImm, RcWriteOnly, Opcode::RcWriteOnlyImm, RcReadRequest];
    lab.expect_sent([0, 1, 2, 3, 4].map(|nr| (opcodes[nr], 500 + nr as u32)));
    lab.deliver(read_response(RcReadResponseOnly, 504, 5, &[]));
    lab.expect_sends([1, 2, 3, 4, 5].map(|wr_id| (wr_id, Success)));
}

#[test]
fn a_bad_local_key_completes_in_its_turn_and_ends_the_connection() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.post_sges(2, SendOp::Send, &[Sge { lkey: no_lkey(), ..lab.sge(0, 8) }]);
    lab.post_send(3, 8);
    lab.expect_sent([(RcSendOnly, 500)]);
    lab.expect_sends([]);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success), (2, LocProtErr), (3, WrFlushErr)]);
    assert_eq!(lab.state(), QpState::Err);
}

#[test]
fn a_late_acknowledgement_cancels_the_retransmission() {
    let lab = lab();
    let lost = lab.mr_with(urxe_stack::memory::Access::empty());
    lab.post_send(1, 8);
    lab.post_sges(2, SendOp::Send, &[Sge { lkey: lost.lkey, ..lab.sge(0, 8) }]);
    lab.expect_sent([(RcSendOnly, 500), (RcSendOnly, 501)]);
    lab.device.memory().deregister(lost.lkey).unwrap();
    lab.deliver(nak(500, NakCode::PsnSequence));
    // The second request cannot be retransmitted, and would fail after the first. But the NAK had
    // been overtaken.
    lab.expect_sent([(RcSendOnly, 500)]);
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success), (2, Success)]);
    lab.post_send(3, 8);
    lab.expect_sent([(RcSendOnly, 502)]);
    lab.deliver(ack(502));
    lab.expect_sends([(3, Success)]);
}

#[test]
fn memory_beyond_a_region_is_a_local_protection_error() {
    let lab = lab();
    let sge = lab.sge(urxe_test_support::lab::MEMORY as u64 - 4, 8);
    lab.post_sges(1, SendOp::Send, &[sge]);
    lab.expect([]);
    lab.expect_sends([(1, LocProtErr)]);
}

#[test]
fn a_read_into_memory_without_local_write_is_a_local_protection_error() {
    let lab = lab();
    let read_only = lab.mr_with(urxe_stack::memory::Access::empty());
    let sge = Sge { lkey: read_only.lkey, ..lab.sge(DESTINATION, 8) };
    let before = lab.memory(DESTINATION, 8);
    lab.post_sges(1, SendOp::Read { remote: remote() }, &[sge]);
    lab.flush();
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[1; 8]));
    lab.expect_sends([(1, LocProtErr)]);
    assert_eq!(lab.memory(DESTINATION, 8), before);
}

#[test]
fn posts_in_the_error_state_succeed_and_flush() {
    let lab = lab();
    lab.go_to(QpState::Err);
    lab.post_send(1, 8);
    lab.post_read(2, 8);
    lab.post_recv(3, 8);
    lab.expect_sends([(1, WrFlushErr), (2, WrFlushErr)]);
    lab.expect_recvs([(3, WrFlushErr)]);
    lab.expect([]);
}

#[test]
fn unsignalled_requests_flush_with_a_completion() {
    let lab = lab();
    let sge = lab.sge(0, 8);
    lab.post_request(1, SendOp::Send, SendFlags::empty(), &[sge]).unwrap();
    lab.go_to(QpState::Err);
    lab.expect_sends([(1, WrFlushErr)]);
}

#[test]
fn a_draining_queue_finishes_its_messages_reports_it_and_starts_none() {
    let lab = lab();
    lab.post_send(1, 2 * MTU);
    lab.sent();
    let notify = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    lab.modify(&notify, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    lab.post_send(2, 8);
    lab.expect([]);
    assert_eq!(lab.events(), []);
    lab.deliver(nak(501, NakCode::PsnSequence));
    lab.expect_sent([(RcSendLast, 501)]);
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success)]);
    assert_eq!(lab.events(), [AsyncEventType::SqDrained]);
    lab.wait(10 * TIMEOUT_14);
    lab.expect([]);
    lab.go_to(QpState::Rts);
    lab.expect_sent([(RcSendOnly, 502)]);
    lab.deliver(ack(502));
    lab.expect_sends([(2, Success)]);
}

#[test]
fn answers_from_elsewhere_or_in_another_partition_do_not_count() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.flush();
    lab.deliver_from([10, 0, 0, 3].into(), ack(500));
    assert_eq!(lab.counter(Counter::DropWrongSource), 1);
    lab.deliver(Packet { pkey: 0x1234, ..ack(500) });
    assert_eq!(lab.counter(Counter::DropWrongPkey), 1);
    // The last byte of the AETH.
    lab.deliver_damaged(&ack(500), ICRC_LEN);
    assert_eq!(lab.counter(Counter::DropIcrc), 1);
    lab.deliver_bytes(PEER, &lab.packet_bytes(PEER, &ack(500))[..14], 14);
    assert_eq!(lab.counter(Counter::DropMalformed), 1);
    lab.expect_sends([]);
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
}

#[test]
fn writes_and_reads_name_the_peers_memory() {
    let lab = lab();
    lab.post(1, SendOp::WriteImm { remote: remote(), imm: 0xaabb_ccdd }, MTU + 4);
    let sent = lab.sent();
    let data = lab.source(MTU + 4);
    let (va, rkey): (u64, Rkey) = (remote().addr, remote().rkey);
    assert_eq!(sent[0].ext, reth(va, rkey, MTU + 4));
    assert_eq!((sent[0].opcode, &sent[0].payload[..]), (Opcode::RcWriteFirst, &data[..MTU]));
    let imm = Ext::Imm(ImmDt { data: 0xaabb_ccdd });
    assert_eq!((sent[1].opcode, sent[1].ext), (Opcode::RcWriteLastImm, imm));
    assert_eq!(sent[1].payload, data[MTU..]);
}
