//! Reordered packets. A short delay of a few packets has the same result as the right order,
//! without a NAK.

use urxe_stack::cq::{Completion, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_stack::qp::work_request::SendOp;
use urxe_test_support::lab::{
    DESTINATION, Lab, MEMORY, MILLISECOND, MTU, Packet, REORDER_WAIT_NS, Setup, TARGET, ack,
    answered, atomic_response, atomic_write, fetch_add, flush, lab, nak, part as part_of,
    read_request, read_response, remote, reth, send_only, write_only,
};
use urxe_wire::{
    Ext, ImmDt, NakCode, Opcode, PlacementType, Reth, Rkey, RnrTimer, SelectivityLevel, Syndrome,
};

use Opcode::{
    RcFetchAdd, RcReadRequest, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle,
    RcReadResponseOnly, RcSendFirst, RcSendLast, RcSendMiddle, RcSendOnly,
};
use WcStatus::{Success, WrFlushErr};

const ACK: Syndrome = Syndrome::ACK;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
/// The capacity of the reorder buffer, in packets.
const HELD: u32 = 8;
/// The most PSNs by which a request may be early.
const REACH: u32 = 256;

fn part(opcode: Opcode, psn: u32, byte: u8, len: usize) -> Packet {
    part_of(opcode, psn, &vec![byte; len])
}

fn counters(lab: &Lab) -> [u64; 4] {
    [
        Counter::OutOfSeqRequest,
        Counter::ReorderBuffered,
        Counter::ReorderDelivered,
        Counter::SendSeqErr,
    ]
    .map(|counter| lab.counter(counter))
}

#[test]
fn a_swapped_pair_is_executed_in_order_and_acknowledged_once() {
    let lab = lab();
    lab.post_recv(1, 64);
    lab.post_recv(2, 64);
    lab.deliver(send_only(101, b"second"));
    lab.expect([]);
    lab.expect_recvs([]);
    lab.deliver(send_only(100, b"first"));
    lab.expect([answered(101, ACK, 2)]);
    let recvs = lab.recvs();
    let seen: Vec<_> = recvs.iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len)).collect();
    assert_eq!(seen, [(1, Success, 5), (2, Success, 6)]);
    assert_eq!(counters(&lab), [1, 1, 1, 0]);
    lab.wait(100 * MILLISECOND);
    lab.expect([]);
    assert_eq!(lab.device.next_deadline(), None, "the reorder buffer is released");
}

#[test]
fn the_parts_of_a_message_are_put_together_around_the_end_of_the_psns() {
    let lab = Lab::new(Setup { rq_psn: 0xff_ffff, ..Setup::default() });
    lab.post_recv(1, 4 * MTU);
    lab.deliver(Packet { ack_req: true, ..part(RcSendLast, 2, 4, 7) });
    lab.deliver(part(RcSendMiddle, 0, 2, MTU));
    lab.deliver(part(RcSendFirst, 0xff_ffff, 1, MTU));
    lab.expect([]);
    lab.deliver(part(RcSendMiddle, 1, 3, MTU));
    lab.expect([answered(2, ACK, 1)]);
    lab.expect_recvs([(1, Success)]);
    let expected = [vec![1; MTU], vec![2; MTU], vec![3; MTU], vec![4; 7]].concat();
    assert_eq!(lab.memory(DESTINATION, expected.len()), expected);
}

#[test]
fn as_many_as_are_kept_may_overtake_one_and_one_more_is_a_loss() {
    for overtaking in [HELD, HELD + 1] {
        let lab = lab();
        let write = |lab: &Lab, psn: u32| {
            write_only(psn, TARGET + u64::from(psn - 100), lab.mr.rkey, &[psn as u8])
        };
        for psn in 101..=100 + overtaking {
            lab.deliver(write(&lab, psn));
        }
        let last = 100 + overtaking;
        if overtaking == HELD {
            lab.expect([]);
        } else {
            lab.expect([answered(100, SEQUENCE, 0)]);
            assert_eq!(lab.counter(Counter::DropOutOfSequence), u64::from(HELD));
        }
        lab.deliver(write(&lab, 100));
        if overtaking == HELD {
            lab.expect([answered(last, ACK, overtaking + 1)]);
        } else {
            // The sender goes back and retransmits all packets.
            lab.expect([answered(100, ACK, 1)]);
            for psn in 101..=last {
                lab.deliver(write(&lab, psn));
                lab.expect([answered(psn, ACK, psn - 99)]);
            }
        }
        let written: Vec<u8> = (100..=last).map(|psn| psn as u8).collect();
        assert_eq!(lab.memory(TARGET, written.len()), written);
        let held_and_executed = if overtaking == HELD { u64::from(HELD) } else { 0 };
        let naks = u64::from(overtaking > HELD);
        assert_eq!(
            counters(&lab),
            [u64::from(overtaking), u64::from(HELD), held_and_executed, naks]
        );
    }
}

#[test]
fn a_persistent_gap_causes_a_nak_in_every_receiving_state() {
    for rtr_only in [false, true] {
        let lab = Lab::new(Setup { rtr_only, ..Setup::default() });
        lab.post_recv(1, 64);
        lab.post_recv(2, 64);
        lab.deliver(send_only(101, b"b"));
        lab.wait(REORDER_WAIT_NS - 1);
        lab.expect([]);
        lab.wait(1);
        lab.expect([answered(100, SEQUENCE, 0)]);
        // After the NAK, the responder buffers nothing, because the sender goes back.
        lab.deliver(send_only(102, b"c"));
        lab.expect([]);
        for (psn, msn) in [(100, 1), (101, 2)] {
            lab.deliver(send_only(psn, b"x"));
            lab.expect([answered(psn, ACK, msn)]);
        }
        lab.expect_recvs([(1, Success), (2, Success)]);
        assert_eq!(lab.counter(Counter::ReorderDelivered), 0);
    }
}

#[test]
fn the_reorder_wait_restarts_with_each_gap() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    for psn in [102, 104] {
        lab.deliver(write_only(psn, TARGET, rkey, b"a"));
    }
    // One packet in order, then the gap before 102 closes; the gap at 103 starts then.
    for psn in [100, 101] {
        lab.wait(REORDER_WAIT_NS / 2);
        lab.deliver(write_only(psn, TARGET, rkey, b"a"));
        lab.sent();
    }
    lab.wait(REORDER_WAIT_NS - 1);
    lab.expect([]);
    lab.wait(1);
    lab.expect([answered(103, SEQUENCE, 3)]);
}

/// A forged request needs the queue pair's number and a PSN that the peer will use. If requests
/// with any later PSN were kept, half of all PSNs would do, as long as the peer keeps sending.
#[test]
fn a_request_far_ahead_is_never_executed() {
    for ahead in [REACH, REACH + 1, 3000, (1 << 23) - 1] {
        let lab = lab();
        let rkey = lab.mr.rkey;
        let before = lab.word(TARGET + 8);
        lab.deliver(write_only((100 + ahead) & 0xff_ffff, TARGET + 8, rkey, b"a forgery"));
        let is_kept = ahead <= REACH;
        // A PSN that is implausible causes no NAK (scenarios_origin).
        if is_kept || ahead > 65_536 {
            lab.expect([]);
        } else {
            lab.expect([answered(100, SEQUENCE, 0)]);
        }
        for psn in 100..=100 + ahead.min(4000) {
            lab.deliver(write_only(psn, TARGET, rkey, b"a"));
            lab.sent();
        }
        assert_eq!(lab.word(TARGET + 8) != before, is_kept, "{ahead} PSNs ahead");
        assert_eq!(lab.counter(Counter::ReorderBuffered), u64::from(is_kept));
    }
}

#[test]
fn a_copy_of_a_buffered_packet_is_dropped() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    for _ in 0..20 {
        lab.deliver(fetch_add(101, TARGET, rkey, 1));
    }
    let before = lab.word(TARGET);
    lab.deliver(write_only(100, TARGET + 64, rkey, b"a"));
    lab.expect([answered(100, ACK, 1), atomic_response(101, 2, before)]);
    assert_eq!(lab.word(TARGET), before + 1);
    // A packet that arrives after its execution is an ordinary duplicate.
    lab.deliver(fetch_add(101, TARGET, rkey, 1));
    lab.expect([atomic_response(101, 2, before)]);
    assert_eq!(lab.word(TARGET), before + 1);
    assert_eq!((counters(&lab), lab.counter(Counter::DuplicateRequest)), ([1, 1, 1, 0], 20));
}

/// Returns one request of each kind, and parts of messages.
fn requests(rkey: Rkey) -> Vec<Packet> {
    let imm = Ext::RethImm(Reth { va: TARGET, rkey, dma_len: 3 }, ImmDt { data: 9 });
    vec![
        send_only(100, b"first"),
        Packet { ext: imm, ..part_of(Opcode::RcWriteOnlyImm, 101, b"imm") },
        fetch_add(102, TARGET + 8, rkey, 5),
        read_request(103, TARGET, rkey, 2 * MTU),
        // The address is outside the READ's range, because the READ may be executed later.
        atomic_write(105, TARGET + 4 * MTU as u64, rkey, *b"eight by"),
        flush(106, (TARGET, 64), rkey, PlacementType::GLOBAL_VISIBILITY, SelectivityLevel::Range),
        part(RcSendFirst, 107, 7, MTU),
        Packet { solicited: true, ack_req: true, ..part(RcSendLast, 108, 8, 3) },
    ]
}

/// Returns the visible outcome. Acknowledgements may be fewer, other responses not.
fn outcome(order: &[usize]) -> (Vec<Packet>, Vec<Completion>, Vec<u8>) {
    let lab = lab();
    for wr_id in 0..3 {
        lab.post_recv(wr_id, 2 * MTU);
    }
    let requests = requests(lab.mr.rkey);
    let mut sent = Vec::new();
    for place in order {
        lab.deliver(requests[*place].clone());
        sent.extend(lab.sent());
    }
    assert_eq!(lab.counter(Counter::SendSeqErr), 0, "{order:?}");
    let last = sent.pop();
    sent.retain(|packet| packet.opcode != Opcode::RcAcknowledge);
    sent.extend(last);
    let mut recvs = lab.recvs();
    assert_eq!(recvs.len(), 3, "{order:?}");
    recvs.iter_mut().for_each(|completion| completion.qp_num = urxe_wire::Qpn::QP0);
    (sent, recvs, lab.memory(0, MEMORY))
}

#[test]
fn requests_of_every_kind_do_the_same_in_any_order() {
    let in_order: Vec<usize> = (0..8).collect();
    let expected = outcome(&in_order);
    let backwards: Vec<usize> = (0..8).rev().collect();
    let swapped = [1, 0, 3, 2, 5, 4, 7, 6];
    let late = [1, 2, 3, 4, 5, 6, 7, 0];
    let early = [7, 0, 1, 2, 3, 4, 5, 6];
    for order in [&backwards[..], &swapped, &late, &early] {
        assert!(outcome(order) == expected, "{order:?}");
    }
    // Random orders of a simple generator.
    let mut state = 1_u64;
    for _ in 0..200 {
        let mut order = in_order.clone();
        for last in (1..8).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            order.swap(last, (state >> 33) as usize % (last + 1));
        }
        assert!(outcome(&order) == expected, "{order:?}");
    }
}

#[test]
fn nothing_is_kept_behind_an_rnr_nak() {
    let rnr = Syndrome::RnrNak(RnrTimer::new(12).unwrap());
    // The missing packet finds no receive, or the one after it.
    for receives in [0, 1] {
        let lab = lab();
        for wr_id in 0..receives {
            lab.post_recv(wr_id, 64);
        }
        lab.deliver(send_only(102, b"c"));
        lab.deliver(send_only(101, b"b"));
        lab.deliver(send_only(100, b"a"));
        let refused = 100 + receives as u32;
        let sent = lab.sent();
        assert_eq!(sent.last(), Some(&answered(refused, rnr, receives as u32)));
        for wr_id in receives..3 {
            lab.post_recv(wr_id, 64);
        }
        lab.deliver(send_only(refused + 1, b"x"));
        lab.wait(REORDER_WAIT_NS);
        lab.expect([]);
        for psn in refused..=102 {
            lab.deliver(send_only(psn, b"y"));
            lab.expect([answered(psn, ACK, psn - 99)]);
        }
        lab.expect_recvs([(0, Success), (1, Success), (2, Success)]);
        assert_eq!(lab.counter(Counter::SendSeqErr), 0);
    }
}

#[test]
fn nothing_is_executed_behind_a_request_that_is_refused() {
    for missing_is_bad in [true, false] {
        let lab = lab();
        let (rkey, wrong) = (lab.mr.rkey, Rkey(0xdead));
        let before = lab.memory(TARGET, 64);
        let keys = if missing_is_bad { [wrong, rkey] } else { [rkey, wrong] };
        lab.deliver(write_only(102, TARGET, rkey, b"no"));
        lab.deliver(write_only(101, TARGET, keys[1], b"no"));
        lab.deliver(write_only(100, TARGET + 8, keys[0], &before[8..10]));
        let sent = lab.sent();
        let refused = if missing_is_bad { 100 } else { 101 };
        let access = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(sent.last(), Some(&answered(refused, access, refused - 100)));
        assert_eq!(lab.state(), QpState::Err);
        lab.wait(10 * MILLISECOND);
        lab.expect([]);
        assert_eq!(lab.memory(TARGET, 64), before);
        assert_eq!(lab.device.next_deadline(), None);
    }
}

#[test]
fn a_reset_discards_the_reorder_buffer() {
    for state in [QpState::Err, QpState::Reset] {
        let lab = lab();
        lab.post_recv(1, 64);
        let before = lab.memory(TARGET, 64);
        lab.deliver(write_only(101, TARGET, lab.mr.rkey, b"no"));
        lab.go_to(state);
        let flushed = if state == QpState::Err { vec![(1, WrFlushErr)] } else { vec![] };
        let seen: Vec<_> = lab.recvs().iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(seen, flushed);
        lab.deliver(write_only(100, TARGET, lab.mr.rkey, b"no"));
        lab.wait(10 * MILLISECOND);
        lab.expect([]);
        assert_eq!(lab.memory(TARGET, 64), before);
    }
}

/// A queue pair receives normally while its sends are drained.
#[test]
fn a_gap_may_close_while_sends_are_drained() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(101, TARGET + 1, rkey, b"b"));
    lab.modify(&QpAttr { qp_state: QpState::Sqd, ..QpAttr::default() }, QpAttrMask::STATE);
    lab.deliver(write_only(103, TARGET + 3, rkey, b"d"));
    lab.deliver(write_only(100, TARGET, rkey, b"a"));
    lab.expect([answered(101, ACK, 2)]);
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(102, SEQUENCE, 2)]);
    assert_eq!(lab.memory(TARGET, 2), b"ab");
}

/// A payload beyond the path MTU would be refused later, so it is not buffered.
#[test]
fn a_packet_longer_than_the_path_mtu_is_not_kept() {
    let lab = lab();
    lab.deliver(Packet {
        ext: reth(TARGET, lab.mr.rkey, MTU + 4),
        ..part(Opcode::RcWriteOnly, 101, 1, MTU + 4)
    });
    lab.expect([answered(100, SEQUENCE, 0)]);
    lab.wait(20 * MILLISECOND);
    assert_eq!(lab.device.next_deadline(), None);
}

#[test]
fn packets_of_another_source_are_not_buffered() {
    let lab = lab();
    let request = write_only(101, TARGET, lab.mr.rkey, b"no");
    lab.deliver_from([10, 0, 0, 9].into(), request.clone());
    lab.deliver_damaged(&request, 0);
    assert_eq!(counters(&lab), [0; 4]);
}

#[test]
fn responses_of_a_read_that_were_swapped_complete_it() {
    let lab = lab();
    lab.post_read(1, 4 * MTU);
    lab.expect_sent([(RcReadRequest, 500)]);
    lab.deliver(read_response(RcReadResponseMiddle, 501, 1, &[2; MTU]));
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[1; MTU]));
    lab.deliver(read_response(RcReadResponseLast, 503, 1, &[4; MTU]));
    lab.expect_sends([]);
    lab.deliver(read_response(RcReadResponseMiddle, 502, 1, &[3; MTU]));
    lab.expect_sends([(1, Success)]);
    lab.expect([]);
    let expected: Vec<u8> = [1, 2, 3, 4].iter().flat_map(|byte| [*byte; MTU]).collect();
    assert_eq!(lab.memory(DESTINATION, 4 * MTU), expected);
    assert_eq!(counters(&lab), [0, 2, 2, 0]);
    assert_eq!(lab.device.bytes_in_flight(), (0, 0));
    lab.wait(100 * MILLISECOND);
    lab.expect([]);
    assert_eq!(lab.device.next_deadline(), None, "the reorder buffer is released");
}

#[test]
fn as_many_responses_as_are_kept_may_overtake_one_and_one_more_is_a_loss() {
    for overtaking in [HELD, HELD + 1] {
        let lab = lab();
        lab.post_read(1, (HELD as usize + 3) * MTU);
        lab.expect_sent([(RcReadRequest, 500)]);
        for psn in 501..=500 + overtaking {
            lab.deliver(read_response(RcReadResponseMiddle, psn, 1, &[psn as u8; MTU]));
        }
        if overtaking > HELD {
            lab.expect_sent([(RcReadRequest, 500)]);
            continue;
        }
        lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[500_u32 as u8; MTU]));
        for psn in 501 + overtaking..502 + HELD {
            lab.deliver(read_response(RcReadResponseMiddle, psn, 1, &[psn as u8; MTU]));
        }
        lab.deliver(read_response(RcReadResponseLast, 502 + HELD, 1, &[0; MTU]));
        lab.expect_sends([(1, Success)]);
        lab.expect([]);
        assert_eq!(lab.counter(Counter::CompleterRetryErr), 0);
    }
}

#[test]
fn answers_of_every_kind_complete_in_any_order() {
    let orders =
        [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [3, 0, 1, 2], [1, 2, 3, 0], [2, 3, 0, 1]];
    for order in orders {
        let lab = lab();
        lab.post_read(1, 8);
        lab.post_send(2, 8);
        lab.post(3, SendOp::FetchAdd { remote: remote(), add: 5 }, 8);
        lab.post_send(4, 8);
        let requests = [RcReadRequest, RcSendOnly, RcFetchAdd, RcSendOnly];
        lab.expect_sent([0, 1, 2, 3].map(|nr| (requests[nr], 500 + nr as u32)));
        let answers = [
            read_response(RcReadResponseOnly, 500, 1, &[9; 8]),
            ack(501),
            atomic_response(502, 3, 77),
            ack(503),
        ];
        for place in order {
            lab.deliver(answers[place].clone());
        }
        lab.expect_sends([(1, Success), (2, Success), (3, Success), (4, Success)]);
        assert_eq!(lab.word(DESTINATION), 77);
        lab.expect([]);
        assert_eq!(lab.counter(Counter::CompleterRetryErr), 0, "{order:?}");
        assert_eq!(lab.device.bytes_in_flight(), (0, 0));
    }
}

/// Acknowledgements are cumulative, so none is buffered.
#[test]
fn acknowledgements_in_any_order_are_as_good_as_the_last() {
    let lab = lab();
    for wr_id in 1..=4 {
        lab.post_send(wr_id, 8);
    }
    lab.flush();
    lab.sent();
    lab.deliver(ack(502));
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
    lab.deliver(ack(500));
    lab.deliver(ack(503));
    lab.deliver(ack(501));
    lab.expect_sends([(4, Success)]);
    lab.wait(1000 * MILLISECOND);
    lab.expect([]);
    assert_eq!(
        [Counter::ReorderBuffered, Counter::CompleterRetryErr].map(|c| lab.counter(c)),
        [0, 0]
    );
}

/// The NAK reports a loss: buffered and missing packets are retransmitted.
#[test]
fn a_nak_past_an_unanswered_read_is_obeyed_at_once() {
    let lab = lab();
    lab.post_read(1, 8);
    for wr_id in 2..=3 {
        lab.post_send(wr_id, 8);
    }
    let all = [(RcReadRequest, 500), (RcSendOnly, 501), (RcSendOnly, 502)];
    lab.expect_sent(all);
    lab.deliver(ack(501));
    lab.expect([]);
    lab.deliver(nak(502, NakCode::PsnSequence));
    lab.expect_sent(all);
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[9; 8]));
    lab.expect_sends([(1, Success)]);
    lab.deliver(ack(502));
    lab.expect_sends([(2, Success), (3, Success)]);
}

#[test]
fn a_response_that_was_not_asked_for_ends_the_connection_in_its_turn() {
    let lab = lab();
    lab.post_read(1, 2 * MTU);
    lab.flush();
    lab.deliver(read_response(RcReadResponseLast, 501, 1, &[2; MTU - 1]));
    assert_eq!(lab.state(), QpState::Rts);
    lab.deliver(read_response(RcReadResponseFirst, 500, 1, &[1; MTU]));
    lab.expect_sends([(1, WcStatus::BadRespErr)]);
    assert_eq!(lab.state(), QpState::Err);
    lab.wait(1000 * MILLISECOND);
    assert_eq!(lab.device.next_deadline(), None);
}

/// The peer never sends one response, but acknowledges the request behind it with each repetition.
/// An attacker causes this by one changed packet.
#[test]
fn a_response_that_never_comes_is_not_requested_at_full_speed() {
    let lab = Lab::new(Setup { timeout: 20, ..Setup::default() });
    lab.post(1, SendOp::Read { remote: remote() }, 8);
    lab.post_send(2, 8);
    lab.sent();
    let mut sent = 0;
    for _ in 0..1_000 {
        // Longer than a round trip, and in all shorter than a timeout.
        lab.wait(MILLISECOND);
        lab.deliver(ack(501));
        lab.deliver(ack(501));
        sent += lab.sent().len();
    }
    assert!((20..=2 * 64 + 40).contains(&sent), "{sent} packets");
    // The response itself is still welcome.
    lab.deliver(read_response(RcReadResponseOnly, 500, 1, &[7; 8]));
    lab.deliver(ack(501));
    lab.expect_sends([(1, Success), (2, Success)]);
}

#[test]
fn a_stored_request_is_not_executed_after_a_fatal_one() {
    let lab = lab();
    let before = lab.memory(TARGET, 4);
    lab.deliver(write_only(101, TARGET, lab.mr.rkey, &[9; 4]));
    assert_eq!(lab.counter(Counter::ReorderBuffered), 1);
    lab.deliver(write_only(100, TARGET, Rkey(0xdead), &[9; 4]));
    assert_eq!(lab.sent().last(), Some(&answered(100, Syndrome::Nak(NakCode::RemoteAccess), 0)));
    assert_eq!((lab.memory(TARGET, 4), lab.state()), (before, QpState::Err));
}
