//! A responder executes each request once, in order, and with the required right only. A refusal is
//! a NAK with the reason.

use urxe_stack::cq::{AsyncEventType, WcOpcode, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpState;
use urxe_stack::qp::work_request::Sge;
use urxe_test_support::lab::{
    DESTINATION, Lab, MEMORY, MILLISECOND, MTU, Packet, REORDER_WAIT_NS, Setup, TARGET, answered,
    atomic_response, compare_swap, fetch_add, lab, no_lkey, part, read_request, read_response,
    request, reth, send_only, write_only,
};
use urxe_wire::{Ext, Ieth, ImmDt, NakCode, Opcode, Reth, Rkey, RnrTimer, Syndrome};

use AsyncEventType::{CommEst, QpAccessErr, QpFatal, QpReqErr};
use Opcode::{
    RcReadResponseFirst, RcReadResponseLast, RcReadResponseOnly, RcSendFirst, RcSendLast,
    RcSendMiddle, RcSendOnlyImm, RcSendOnlyInv, RcWriteFirst, RcWriteLast, RcWriteMiddle,
    RcWriteOnly, RcWriteOnlyImm,
};
use WcStatus::{LocLenErr, LocProtErr, Success, WrFlushErr};

const ACK: Syndrome = Syndrome::ACK;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);

/// Checks that the request ends the connection with this NAK and event, and does not change memory.
fn assert_refused(
    name: &str,
    lab: Lab,
    request: Packet,
    nak: Syndrome,
    event: AsyncEventType,
) -> Lab {
    let (psn, before) = (request.psn, lab.memory(0, MEMORY));
    lab.post_recv(77, 64);
    lab.deliver(request);
    let sent = lab.sent();
    let answer: Vec<_> = sent.iter().map(|packet| (packet.psn, packet.ext)).collect();
    let Some(&(answer_psn, Ext::Aeth(aeth))) = answer.last() else {
        panic!("{name}: sent {sent:?}")
    };
    assert_eq!((answer_psn, aeth.syndrome), (psn, nak), "{name}");
    assert_eq!(lab.events(), [event], "{name}");
    assert_eq!(lab.state(), QpState::Err, "{name}");
    assert_eq!(lab.recvs().len(), 1, "{name}: the receive completes");
    assert_eq!(lab.memory(0, MEMORY), before, "{name}: memory changed");
    lab
}

/// IBTA 9.7.4 and 9.7.5.1.
#[test]
fn a_message_lands_completes_and_is_acknowledged_when_asked() {
    let lab = lab();
    lab.post_recv(1, 600);
    lab.deliver(part(RcSendFirst, 100, &[1; MTU]));
    lab.deliver(part(RcSendMiddle, 101, &[2; MTU]));
    lab.expect([]);
    lab.expect_recvs([]);
    lab.deliver(request(RcSendLast, 102, Ext::None, &[3; 5]));
    lab.expect([answered(102, ACK, 1)]);
    let recvs = lab.recvs();
    assert_eq!((recvs[0].wr_id, recvs[0].status, recvs[0].opcode), (1, Success, WcOpcode::Recv));
    assert_eq!(recvs[0].byte_len as usize, 2 * MTU + 5);
    let expected = [vec![1; MTU], vec![2; MTU], vec![3; 5]].concat();
    assert_eq!(lab.memory(DESTINATION, expected.len()), expected);
}

#[test]
fn a_repeated_send_is_acknowledged_and_delivered_once() {
    let lab = lab();
    lab.post_recv(1, 64);
    lab.post_recv(2, 64);
    lab.deliver(send_only(100, b"once"));
    lab.expect([answered(100, ACK, 1)]);
    for _ in 0..3 {
        lab.deliver(send_only(100, b"twic"));
        lab.expect([answered(100, ACK, 1)]);
    }
    lab.expect_recvs([(1, Success)]);
    assert_eq!(lab.memory(DESTINATION, 4), b"once");
    assert_eq!(lab.counter(Counter::DuplicateRequest), 3);
    lab.deliver(send_only(101, b"next"));
    lab.expect_recvs([(2, Success)]);
}

/// IBTA 9.7.4.1.1 and 9.7.5.1.3.
#[test]
fn a_repeated_write_is_acknowledged_and_not_written_again() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(100, TARGET, rkey, b"old"));
    lab.deliver(write_only(101, TARGET, rkey, b"new"));
    lab.sent();
    lab.deliver(write_only(100, TARGET, rkey, b"old"));
    // It acknowledges all executed requests.
    lab.expect([answered(101, ACK, 2)]);
    assert_eq!(lab.memory(TARGET, 3), b"new");
}

#[test]
fn a_repeated_read_is_read_again() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.write(TARGET, &[1; 2 * MTU]);
    let request = read_request(100, TARGET, rkey, 2 * MTU);
    let responses = |byte: u8| {
        [
            read_response(RcReadResponseFirst, 100, 1, &[byte; MTU]),
            read_response(RcReadResponseLast, 101, 1, &[byte; MTU]),
        ]
    };
    lab.deliver(request.clone());
    lab.expect(responses(1));
    lab.write(TARGET, &[2; 2 * MTU]);
    lab.deliver(request);
    lab.expect(responses(2));
    // The READ resumes at its second packet.
    lab.deliver(read_request(101, TARGET + MTU as u64, rkey, MTU));
    let sent = lab.sent();
    assert_eq!((sent.len(), sent[0].psn, &sent[0].payload[..]), (1, 101, &[2; MTU][..]));
    lab.deliver(send_only(102, b""));
    assert_eq!(lab.state(), QpState::Rts, "the expected PSN has not moved");
}

/// A requester that has the response may let the owner end the key. A duplicate of its request,
/// which was still on its way, must not end the connection.
#[test]
fn a_repeated_read_with_an_ended_key_leaves_the_connection() {
    let lab = lab();
    let mr = lab.mr_with(Access::LOCAL_WRITE | Access::REMOTE_READ);
    let request = read_request(100, TARGET, mr.rkey, 2 * MTU);
    lab.deliver(request.clone());
    assert_eq!(lab.sent().len(), 2);
    lab.device.memory().deregister(mr.lkey).unwrap();
    // A requester that still waits learns the reason.
    lab.deliver(request);
    lab.expect([answered(100, ACCESS, 0)]);
    lab.deliver(read_request(101, TARGET + MTU as u64, mr.rkey, MTU));
    lab.expect([answered(101, ACCESS, 0)]);
    lab.deliver(write_only(102, TARGET, lab.mr.rkey, b"next"));
    lab.expect([answered(102, ACK, 2)]);
    assert_eq!(lab.state(), QpState::Rts);
    assert_eq!(lab.events(), []);
}

#[test]
fn a_repeated_atomic_answers_from_memory_and_is_executed_once() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.write(TARGET, &7_u64.to_ne_bytes());
    for _ in 0..4 {
        lab.deliver(fetch_add(100, TARGET, rkey, 5));
        lab.expect([atomic_response(100, 1, 7)]);
        assert_eq!(lab.word(TARGET), 12);
    }
    lab.deliver(compare_swap(101, TARGET, rkey, 12, 99));
    lab.expect([atomic_response(101, 2, 12)]);
    lab.deliver(fetch_add(100, TARGET, rkey, 5));
    lab.expect([atomic_response(100, 1, 7)]);
    lab.deliver(compare_swap(101, TARGET, rkey, 12, 99));
    lab.expect([atomic_response(101, 2, 12)]);
    lab.deliver(compare_swap(102, TARGET, rkey, 12, 1));
    lab.expect([atomic_response(102, 3, 99)]);
    assert_eq!(lab.word(TARGET), 99);
}

#[test]
fn atomics_are_kept_as_many_as_the_peer_may_have_outstanding() {
    let lab = Lab::new(Setup { max_dest_rd_atomic: 2, ..Setup::default() });
    let rkey = lab.mr.rkey;
    lab.write(TARGET, &0_u64.to_ne_bytes());
    for psn in 100..104 {
        lab.deliver(fetch_add(psn, TARGET, rkey, 1));
    }
    lab.sent();
    lab.deliver(fetch_add(102, TARGET, rkey, 1));
    lab.expect([atomic_response(102, 3, 2)]);
    // Request 100 is older than the kept ones; a peer within the limit cannot repeat it.
    lab.deliver(fetch_add(100, TARGET, rkey, 1));
    lab.expect([]);
    assert_eq!(lab.word(TARGET), 4);
    assert_eq!(lab.counter(Counter::DropDuplicate), 1);
}

/// IBTA 9.7.5.2 and 9.7.5.2.2.
#[test]
fn one_sequence_nak_until_the_peer_is_back_in_order() {
    let lab = lab();
    for wr_id in 0..5 {
        lab.post_recv(wr_id, 64);
    }
    lab.deliver(send_only(100, b"a"));
    lab.sent();
    lab.deliver(send_only(102, b"c"));
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(101, SEQUENCE, 1)]);
    for psn in 103..120 {
        lab.deliver(send_only(psn, b"x"));
    }
    lab.expect([]);
    lab.expect_recvs([(0, Success)]);
    lab.deliver(send_only(101, b"b"));
    lab.expect([answered(101, ACK, 2)]);
    lab.deliver(send_only(103, b"d"));
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(102, SEQUENCE, 2)]);
}

/// Reordered packets cause no further NAK. The packet that caused the NAK causes another one a
/// round trip later: the peer went back, and the missing packet was lost again.
#[test]
fn a_sequence_nak_is_repeated_only_for_a_peer_that_went_back() {
    let lab = lab();
    lab.deliver(send_only(103, b"d"));
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(100, SEQUENCE, 0)]);
    for psn in [105, 104, 102, 106, 101] {
        lab.deliver(send_only(psn, b"x"));
    }
    lab.expect([]);
    lab.wait(20 * MILLISECOND);
    lab.deliver(send_only(101, b"b"));
    lab.expect([answered(100, SEQUENCE, 0)]);
    lab.deliver(send_only(102, b"c"));
    lab.expect([]);
}

#[test]
fn no_receive_is_an_rnr_nak_and_then_success() {
    let lab = Lab::new(Setup { min_rnr_timer: 9, ..Setup::default() });
    let rnr = Syndrome::RnrNak(RnrTimer::new(9).unwrap());
    lab.deliver(send_only(100, b"early"));
    lab.expect([answered(100, rnr, 0)]);
    // A later packet is out of sequence, and causes no NAK.
    lab.deliver(send_only(101, b"behind"));
    lab.expect([]);
    lab.post_recv(1, 64);
    lab.deliver(send_only(100, b"early"));
    lab.expect([answered(100, ACK, 1)]);
    lab.expect_recvs([(1, Success)]);
    let imm = Ext::RethImm(Reth { va: TARGET, rkey: lab.mr.rkey, dma_len: 1 }, ImmDt { data: 5 });
    let write = request(RcWriteOnlyImm, 101, imm, &[0xee]);
    let before = lab.memory(TARGET, 1);
    lab.deliver(write.clone());
    lab.expect([answered(101, rnr, 1)]);
    assert_eq!(lab.memory(TARGET, 1), before, "a WRITE that must wait writes nothing");
    lab.post_recv(2, 0);
    lab.deliver(write);
    lab.expect([answered(101, ACK, 2)]);
    let recvs = lab.recvs();
    assert_eq!((recvs[0].wr_id, recvs[0].opcode), (2, WcOpcode::RecvRdmaWithImm));
    assert_eq!((recvs[0].byte_len, recvs[0].imm_data()), (1, Some(5)));
    assert_eq!(lab.memory(TARGET, 1), [0xee]);
    assert_eq!(lab.counter(Counter::SendRnrErr), 2);
}

/// IBTA 9.7.5.1.1 and 9.7.5.1.9.
#[test]
fn no_acknowledgement_passes_an_unsent_answer() {
    let lab = lab();
    lab.post_recv(1, 64);
    let rkey = lab.mr.rkey;
    lab.write(TARGET, &[3; 8]);
    lab.deliver_merged([
        read_request(100, TARGET, rkey, 2 * MTU),
        read_request(102, TARGET, rkey, 8),
    ]);
    lab.deliver(send_only(103, b""));
    let order: Vec<u32> = lab.sent().iter().map(|packet| packet.psn).collect();
    assert_eq!(order, [100, 101, 102, 103]);
}

#[test]
fn a_repeated_read_does_not_count_against_the_depth() {
    let lab = Lab::new(Setup { max_dest_rd_atomic: 1, ..Setup::default() });
    let rkey = lab.mr.rkey;
    lab.deliver(read_request(100, TARGET, rkey, 8));
    assert_eq!(lab.sent().len(), 1);
    // The peer has the response and sends more requests, while the network duplicates the first
    // request.
    lab.deliver_merged([read_request(100, TARGET, rkey, 8), read_request(101, TARGET, rkey, 8)]);
    let answers: Vec<u32> = lab.sent().iter().map(|packet| packet.psn).collect();
    assert_eq!(answers, [100, 101]);
    assert_eq!(lab.state(), QpState::Rts);
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let lab = Lab::new(Setup { max_dest_rd_atomic: 1, ..Setup::default() });
    let rkey = lab.mr.rkey;
    lab.deliver_merged([read_request(100, TARGET, rkey, 8), read_request(101, TARGET, rkey, 8)]);
    assert_eq!(lab.state(), QpState::Err);
    assert_eq!(lab.events(), [QpReqErr]);
}

/// IBTA C9-63 and 9.9.3.
#[test]
fn memory_that_may_not_be_used_is_a_remote_access_error() {
    type Request = fn(&Lab) -> Packet;
    let cases: [(&str, Counter, Request); 13] = [
        ("wrong key", Counter::AccessUnknownKey, |_| write_only(100, TARGET, Rkey(0xdead), b"no")),
        ("READ with a wrong key", Counter::AccessUnknownKey, |_| {
            read_request(100, TARGET, Rkey(0xdead), 8)
        }),
        ("atomic with a wrong key", Counter::AccessUnknownKey, |_| {
            fetch_add(100, TARGET, Rkey(0xdead), 1)
        }),
        ("another protection domain", Counter::AccessWrongPd, |lab| {
            write_only(100, TARGET, lab.mr_of_another_pd().rkey, b"no")
        }),
        ("READ of another protection domain", Counter::AccessWrongPd, |lab| {
            read_request(100, TARGET, lab.mr_of_another_pd().rkey, 8)
        }),
        ("no right to write", Counter::AccessDenied, |lab| {
            let mr = lab.mr_with(Access::LOCAL_WRITE | Access::REMOTE_READ);
            write_only(100, TARGET, mr.rkey, b"no")
        }),
        ("no right to read", Counter::AccessDenied, |lab| {
            let mr = lab.mr_with(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
            read_request(100, TARGET, mr.rkey, 8)
        }),
        ("no right to atomics", Counter::AccessDenied, |lab| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            fetch_add(100, TARGET, lab.mr_with(access).rkey, 1)
        }),
        ("one byte too far", Counter::AccessOutOfBounds, |lab| {
            write_only(100, MEMORY as u64 - 3, lab.mr.rkey, b"1234")
        }),
        ("far outside", Counter::AccessOutOfBounds, |lab| {
            write_only(100, 1 << 40, lab.mr.rkey, b"1234")
        }),
        ("around the end of the address space", Counter::AccessOutOfBounds, |lab| {
            write_only(100, u64::MAX - 1, lab.mr.rkey, b"1234")
        }),
        ("READ across the end", Counter::AccessOutOfBounds, |lab| {
            read_request(100, MEMORY as u64 - 8, lab.mr.rkey, 9)
        }),
        // The first packet would fit, but a message that must fail writes nothing.
        ("WRITE whose rest is outside", Counter::AccessOutOfBounds, |lab| {
            let ext = reth((MEMORY - MTU) as u64, lab.mr.rkey, 2 * MTU);
            Packet { ext, ..part(RcWriteFirst, 100, &[9; MTU]) }
        }),
    ];
    for (name, counter, request) in cases {
        let lab = lab();
        let request = request(&lab);
        let lab = assert_refused(name, lab, request, ACCESS, QpAccessErr);
        assert_eq!(lab.counter(counter), 1, "{name}: {}", counter.name());
    }
}

#[test]
fn operations_without_the_access_flag_of_the_queue_pair_are_refused() {
    for (name, access) in [
        ("WRITE", Access::REMOTE_READ | Access::REMOTE_ATOMIC),
        ("READ", Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        ("atomic", Access::REMOTE_WRITE | Access::REMOTE_READ),
    ] {
        let lab = Lab::new(Setup { access, ..Setup::default() });
        let rkey = lab.mr.rkey;
        let before = lab.memory(0, MEMORY);
        lab.deliver(match name {
            "WRITE" => write_only(100, TARGET, rkey, b"no"),
            "READ" => read_request(100, TARGET, rkey, 8),
            _ => fetch_add(100, TARGET, rkey, 1),
        });
        assert_eq!(lab.state(), QpState::Err, "{name}");
        let sent: Vec<_> = lab.sent().iter().map(|packet| (packet.opcode, packet.psn)).collect();
        assert_eq!(sent, [(Opcode::RcAcknowledge, 100)], "{name}");
        assert_eq!(lab.memory(0, MEMORY), before, "{name}");
    }
}

#[test]
fn a_deregistered_region_is_a_wrong_key() {
    let lab = lab();
    let mr = lab.mr_with(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    lab.device.memory().deregister(mr.lkey).unwrap();
    let request = write_only(100, TARGET, mr.rkey, b"no");
    assert_refused("deregistered", lab, request, ACCESS, QpAccessErr);
}

/// C9-88: a zero-length RDMA request names no memory.
#[test]
fn zero_length_requests_check_no_key() {
    let lab = lab();
    let wrong = Rkey(0xdead);
    lab.post_recv(1, 64);
    lab.post_recv(2, 64);
    lab.deliver(write_only(100, 0xbad, wrong, b""));
    lab.expect([answered(100, ACK, 1)]);
    lab.deliver(read_request(101, 0xbad, wrong, 0));
    lab.expect([read_response(RcReadResponseOnly, 101, 2, &[])]);
    let ext = Ext::RethImm(Reth { va: 0xbad, rkey: wrong, dma_len: 0 }, ImmDt { data: 9 });
    lab.deliver(request(RcWriteOnlyImm, 102, ext, &[]));
    lab.expect([answered(102, ACK, 3)]);
    lab.deliver(send_only(103, b""));
    lab.expect([answered(103, ACK, 4)]);
    let recvs = lab.recvs();
    let seen: Vec<_> =
        recvs.iter().map(|wc| (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data())).collect();
    assert_eq!(seen, [(1, WcOpcode::RecvRdmaWithImm, 0, Some(9)), (2, WcOpcode::Recv, 0, None)]);
}

/// IBTA 9.7.4.1.2.
#[test]
fn opcodes_out_of_sequence_are_invalid_requests() {
    let first = |lab: &Lab, packet: Packet| {
        lab.post_recv(76, 1_024);
        lab.deliver(packet);
        assert_eq!(lab.sent(), []);
    };
    let send_first = || part(RcSendFirst, 100, &[1; MTU]);
    let write_first = |lab: &Lab| {
        let ext = reth(TARGET, lab.mr.rkey, 3 * MTU);
        Packet { ext, ..part(RcWriteFirst, 100, &[1; MTU]) }
    };
    for (name, opcode) in [
        ("SEND MIDDLE", RcSendMiddle),
        ("SEND LAST", RcSendLast),
        ("WRITE MIDDLE", RcWriteMiddle),
        ("WRITE LAST", RcWriteLast),
    ] {
        assert_refused(name, lab(), part(opcode, 100, &[1; MTU]), INVALID, QpReqErr);
    }
    type After = fn(&Lab) -> Packet;
    let after: [(&str, After); 8] = [
        ("FIRST after FIRST", |_| part(RcSendFirst, 101, &[1; MTU])),
        ("ONLY after FIRST", |_| part(Opcode::RcSendOnly, 101, &[1; 8])),
        ("WRITE LAST after SEND FIRST", |_| part(RcWriteLast, 101, &[1; 8])),
        ("READ after SEND FIRST", |lab| read_request(101, TARGET, lab.mr.rkey, 8)),
        ("atomic after SEND FIRST", |lab| fetch_add(101, TARGET, lab.mr.rkey, 8)),
        ("SEND LAST after WRITE FIRST", |_| part(RcSendLast, 101, &[1; 8])),
        ("WRITE ONLY after WRITE FIRST", |lab| write_only(101, TARGET, lab.mr.rkey, b"1")),
        ("SEND ONLY after WRITE FIRST", |_| part(Opcode::RcSendOnly, 101, &[1; 8])),
    ];
    for (name, request) in after {
        let lab = lab();
        let is_write = name.ends_with("WRITE FIRST");
        first(&lab, if is_write { write_first(&lab) } else { send_first() });
        lab.deliver(request(&lab));
        assert!(matches!(lab.sent()[..], [Packet { psn: 101, .. }]), "{name}");
        assert_eq!((lab.state(), lab.events()), (QpState::Err, vec![QpReqErr]), "{name}");
        // The receive of a SEND under way completes once. A WRITE without immediate data consumes
        // none, so the posted receive is flushed.
        assert_eq!(lab.recvs().len(), 1, "{name}: the receive completes once");
    }
}

/// IBTA 9.7.4.1.4.
#[test]
fn lengths_that_do_not_fit_the_packet_are_invalid_requests() {
    let write = |opcode, dma_len: usize, payload: usize| {
        move |lab: &Lab| {
            let ext = reth(TARGET, lab.mr.rkey, dma_len);
            Packet { ext, ..part(opcode, 100, &vec![9; payload]) }
        }
    };
    type Request = Box<dyn Fn(&Lab) -> Packet>;
    let cases: Vec<(&str, Request)> = vec![
        ("SEND FIRST that is short", Box::new(|_| part(RcSendFirst, 100, &[1; MTU - 4]))),
        ("SEND FIRST that is long", Box::new(|_| part(RcSendFirst, 100, &[1; MTU + 4]))),
        ("SEND ONLY beyond the MTU", Box::new(|_| part(Opcode::RcSendOnly, 100, &[1; MTU + 1]))),
        ("WRITE FIRST that is short", Box::new(write(RcWriteFirst, 2 * MTU, MTU - 1))),
        ("WRITE FIRST that is all there is", Box::new(write(RcWriteFirst, MTU, MTU))),
        ("WRITE ONLY with less than announced", Box::new(write(RcWriteOnly, 9, 8))),
        ("WRITE ONLY with more than announced", Box::new(write(RcWriteOnly, 7, 8))),
        ("WRITE ONLY beyond the MTU", Box::new(write(RcWriteOnly, MTU + 1, MTU + 1))),
        ("WRITE ONLY of announced nothing", Box::new(write(RcWriteOnly, 0, 8))),
        ("unaligned atomic", Box::new(|lab| fetch_add(100, TARGET + 4, lab.mr.rkey, 1))),
        (
            "unaligned compare and swap",
            Box::new(|lab| compare_swap(100, TARGET + 1, lab.mr.rkey, 1, 2)),
        ),
    ];
    for (name, request) in cases {
        let lab = lab();
        let request = request(&lab);
        assert_refused(name, lab, request, INVALID, QpReqErr);
    }
}

/// IBTA 9.7.4.1.6.
#[test]
fn an_empty_last_packet_is_an_invalid_request() {
    let lab = lab();
    lab.post_recv(1, 1_024);
    lab.deliver(part(RcSendFirst, 100, &[1; MTU]));
    lab.deliver(part(RcSendLast, 101, &[]));
    lab.expect([answered(101, INVALID, 0)]);
    assert_eq!(lab.state(), QpState::Err);
}

#[test]
fn a_message_longer_than_its_receive_is_a_local_length_error_and_an_invalid_request() {
    for (name, packets) in [
        ("in one packet", vec![part(Opcode::RcSendOnly, 100, &[1; 65])]),
        (
            "in the second packet",
            vec![part(RcSendFirst, 100, &[1; MTU]), part(RcSendLast, 101, &[1; 9])],
        ),
    ] {
        let lab = lab();
        let len = if packets.len() == 1 { 64 } else { MTU + 8 };
        lab.post_recv(1, len);
        lab.post_recv(2, 64);
        let last = packets.last().unwrap().psn;
        let behind = lab.memory(DESTINATION + len as u64, 64);
        for packet in packets {
            lab.deliver(packet);
        }
        lab.expect([answered(last, INVALID, 0)]);
        lab.expect_recvs([(1, LocLenErr), (2, WrFlushErr)]);
        assert_eq!(lab.events(), [QpReqErr], "{name}");
        let now = lab.memory(DESTINATION + len as u64, 64);
        assert_eq!(now, behind, "{name}: nothing behind the receive");
    }
}

#[test]
fn a_receive_with_a_bad_key_is_a_local_protection_error_and_a_remote_operational_error() {
    let lab = lab();
    lab.post_recv_sge(1, Sge { lkey: no_lkey(), ..lab.sge(DESTINATION, 64) });
    lab.post_recv(2, 64);
    lab.deliver(send_only(100, b"hello"));
    lab.expect([answered(100, Syndrome::Nak(NakCode::RemoteOperational), 0)]);
    lab.expect_recvs([(1, LocProtErr), (2, WrFlushErr)]);
    assert_eq!(lab.events(), [QpFatal]);
}

/// A receive in another domain's memory has the same effect as a bad key.
#[test]
fn a_receive_into_another_protection_domain_is_refused() {
    let lab = lab();
    let before = lab.memory(DESTINATION, 64);
    lab.post_recv_sge(1, Sge { lkey: lab.mr_of_another_pd().lkey, ..lab.sge(DESTINATION, 64) });
    lab.deliver(send_only(100, b"hello"));
    lab.expect_recvs([(1, LocProtErr)]);
    assert_eq!(lab.memory(DESTINATION, 64), before);
}

/// A peer can invalidate only windows and fast-registration regions.
#[test]
fn a_peer_cannot_invalidate_an_ordinary_region() {
    let lab = lab();
    lab.post_recv(1, 64);
    let rkey = lab.mr.rkey;
    let ext = Ext::Ieth(Ieth { rkey });
    lab.deliver(request(RcSendOnlyInv, 100, ext, &[1; 4]));
    assert_eq!(lab.state(), QpState::Err);
    let sent = lab.sent();
    let [Packet { ext: Ext::Aeth(aeth), .. }] = &sent[..] else { panic!("{sent:?}") };
    assert!(matches!(aeth.syndrome, Syndrome::Nak(_)));
    assert_eq!(lab.device.memory().query(lab.mr.lkey), Some(lab.mr));
}

#[test]
fn requests_after_an_error_are_dropped() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(100, TARGET, Rkey(0xdead), b"no"));
    lab.sent();
    lab.deliver(write_only(100, TARGET, rkey, b"no"));
    lab.deliver(write_only(101, TARGET, rkey, b"no"));
    lab.expect([]);
    assert_eq!(lab.counter(Counter::DropNotReady), 2);
}

/// IBTA 9.7.2.
#[test]
fn expected_psns_wrap() {
    let lab = Lab::new(Setup { rq_psn: 0xff_ffff, ..Setup::default() });
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(0xff_ffff, TARGET, rkey, b"a"));
    lab.deliver(write_only(0, TARGET + 1, rkey, b"b"));
    lab.expect([answered(0xff_ffff, ACK, 1), answered(0, ACK, 2)]);
    lab.deliver(write_only(0xff_ffff, TARGET, rkey, b"x"));
    lab.expect([answered(0, ACK, 2)]);
    lab.deliver(write_only(2, TARGET, rkey, b"x"));
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(1, SEQUENCE, 2)]);
    assert_eq!(lab.memory(TARGET, 2), b"ab");
}

#[test]
fn the_first_packet_in_rtr_raises_communication_established() {
    let lab = Lab::new(Setup { rtr_only: true, ..Setup::default() });
    lab.post_recv(1, 64);
    lab.post_recv(2, 64);
    assert_eq!(lab.events(), []);
    lab.deliver(send_only(100, b"hello"));
    lab.expect([answered(100, ACK, 1)]);
    assert_eq!(lab.events(), [CommEst]);
    lab.deliver(send_only(101, b"again"));
    assert_eq!(lab.events(), []);
    lab.expect_recvs([(1, Success), (2, Success)]);
}

#[test]
fn immediate_data_arrives() {
    let lab = lab();
    lab.post_recv(1, 64);
    let ext = Ext::Imm(ImmDt { data: 0x0102_0304 });
    lab.deliver(Packet { ext, solicited: true, ..part(RcSendOnlyImm, 100, &[1, 2]) });
    let recvs = lab.recvs();
    assert_eq!((recvs[0].imm_data(), recvs[0].byte_len), (Some(0x0102_0304), 2));
}

#[test]
fn packets_that_are_not_the_peers_change_nothing() {
    let lab = lab();
    let before = lab.memory(0, MEMORY);
    let request = write_only(100, TARGET, lab.mr.rkey, b"no");
    lab.deliver_from([10, 0, 0, 9].into(), request.clone());
    lab.deliver(Packet { pkey: 0x8001, ..request.clone() });
    lab.deliver_damaged(&request, 0);
    lab.expect([]);
    assert_eq!(lab.memory(0, MEMORY), before);
    let dropped = [Counter::DropWrongSource, Counter::DropWrongPkey, Counter::DropIcrc];
    assert_eq!(dropped.map(|counter| lab.counter(counter)), [1, 1, 1]);
    lab.deliver(request);
    lab.expect([answered(100, ACK, 1)]);
}

/// Four atomics may be outstanding. The answers to duplicates do not count.
#[test]
fn answers_to_duplicates_leave_room_for_new_atomics() {
    let lab = lab();
    let (key, first) = (lab.mr.rkey, lab.word(TARGET));
    for psn in 100..104 {
        lab.deliver(fetch_add(psn, TARGET, key, 1));
    }
    assert_eq!(lab.sent().len(), 4);
    (100..104).for_each(|psn| lab.receive(fetch_add(psn, TARGET, key, 1)));
    (104..108).for_each(|psn| lab.receive(fetch_add(psn, TARGET, key, 1)));
    let answers = lab.sent();
    assert_eq!(answers.last(), Some(&atomic_response(107, 8, first.wrapping_add(7))));
    assert_eq!((answers.len(), lab.word(TARGET)), (8, first.wrapping_add(8)));
}
