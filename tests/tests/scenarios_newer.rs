//! ATOMIC WRITE and FLUSH, as requester and as responder (IBTA vol. 1, A19).

use urxe_stack::cq::{AsyncEventType, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpState;
use urxe_stack::qp::work_request::{FlushRange, PostError, Remote, SendFlags, SendOp, Sge};
use urxe_test_support::lab::{
    Lab, MEMORY, MILLISECOND, Packet, REORDER_WAIT_NS, SOURCE, Setup, TARGET, ack, answered,
    atomic_write, flush, lab, nak, no_lkey, read_response, remote, request, reth, write_only,
};
use urxe_wire::{NakCode, Opcode, PlacementType, ReservedLevel, Rkey, SelectivityLevel, Syndrome};

use AsyncEventType::{QpAccessErr, QpReqErr};
use Opcode::{RcAtomicWrite, RcFlush, RcReadResponseOnly, RcSendOnly, RcWriteOnly};
use SelectivityLevel::{Range, Region};
use WcStatus::{LocProtErr, RemAccessErr, RemOpErr, Success, WrFlushErr};

const VISIBLE: PlacementType = PlacementType::GLOBAL_VISIBILITY;
const PERSISTENT: PlacementType = PlacementType::PERSISTENCE;
const ATOMIC_WRITE: SendOp = SendOp::AtomicWrite { remote: remote() };
const FLUSH: SendOp =
    SendOp::Flush { remote: remote(), placement: VISIBLE, range: FlushRange::Bytes(700) };

fn executed(psn: u32, msn: u32) -> Packet {
    read_response(RcReadResponseOnly, psn, msn, b"")
}

#[test]
fn an_atomic_write_stores_eight_bytes_and_is_answered_as_a_read_of_nothing() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(atomic_write(100, TARGET + 8, rkey, *b"as one!!"));
    lab.expect([executed(100, 1)]);
    assert_eq!(lab.memory(TARGET + 8, 8), b"as one!!");
    assert_eq!(lab.counter(Counter::RdmaRecvs), 1);
}

#[test]
fn repeated_atomic_writes_and_flushes_are_executed_once_and_answered_again() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(atomic_write(100, TARGET, rkey, [1; 8]));
    lab.deliver(atomic_write(101, TARGET, rkey, [2; 8]));
    lab.deliver(flush(102, (TARGET, 8), rkey, VISIBLE, Range));
    lab.expect([executed(100, 1), executed(101, 2), executed(102, 3)]);
    lab.deliver(atomic_write(100, TARGET, rkey, [1; 8]));
    lab.deliver(flush(102, (TARGET, 8), rkey, VISIBLE, Range));
    lab.expect([executed(100, 1), executed(102, 3)]);
    assert_eq!(lab.memory(TARGET, 8), [2; 8], "the first value is not stored again");
    assert_eq!(lab.counter(Counter::RdmaRecvs), 3);
    // After as many other requests as the peer may have outstanding, the response is no longer
    // kept.
    for psn in 103..107 {
        lab.deliver(atomic_write(psn, TARGET, rkey, [psn as u8; 8]));
    }
    lab.sent();
    lab.deliver(atomic_write(102, TARGET, rkey, [9; 8]));
    lab.expect([]);
    assert_eq!((lab.memory(TARGET, 1), lab.counter(Counter::DropDuplicate)), (vec![106], 1));
}

#[test]
fn a_flush_of_a_range_or_of_a_whole_region_is_answered_after_the_writes_before_it() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(100, TARGET, rkey, b"data"));
    lab.deliver(flush(101, (TARGET, 4), rkey, VISIBLE, Range));
    // For a whole region, only the key matters.
    lab.deliver(flush(102, (u64::MAX, 77), rkey, VISIBLE, Region));
    lab.deliver(flush(103, (TARGET, 0), rkey, VISIBLE, Range));
    let ack = answered(100, Syndrome::ACK, 1);
    lab.expect([ack, executed(101, 2), executed(102, 3), executed(103, 4)]);
    assert_eq!(lab.memory(TARGET, 4), b"data");
}

#[test]
fn bad_requests_are_refused_with_a_reason_and_change_nothing() {
    type Case = (&'static str, fn(&Lab) -> Packet);
    fn word(lab: &Lab, va: u64) -> Packet {
        atomic_write(100, va, lab.mr.rkey, [1; 8])
    }
    fn flush_8(lab: &Lab, placement: PlacementType, level: SelectivityLevel) -> Packet {
        flush(100, (TARGET, 8), lab.mr.rkey, placement, level)
    }
    let invalid: [Case; 5] = [
        ("unaligned", |lab| word(lab, TARGET + 4)),
        ("a RETH of other length", |lab| Packet {
            ext: reth(TARGET, lab.mr.rkey, 16),
            ..word(lab, TARGET)
        }),
        ("persistence, which the queue pair does not allow", |lab| {
            flush_8(lab, VISIBLE | PERSISTENT, Range)
        }),
        ("a flush to nowhere", |lab| flush_8(lab, PlacementType::empty(), Range)),
        ("a reserved level", |lab| {
            flush_8(lab, VISIBLE, SelectivityLevel::Reserved(ReservedLevel::Two))
        }),
    ];
    let denied: [Case; 8] = [
        ("a wrong key", |_| atomic_write(100, TARGET, Rkey(0xdead), [1; 8])),
        ("behind the region", |lab| word(lab, MEMORY as u64)),
        ("no right to write", |lab| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            atomic_write(100, TARGET, lab.mr_with(access).rkey, [1; 8])
        }),
        ("another domain", |lab| atomic_write(100, TARGET, lab.mr_of_another_pd().rkey, [1; 8])),
        ("a flush of a region that does not grant it", |lab| {
            let mr = lab.mr_with(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
            flush(100, (TARGET, 8), mr.rkey, VISIBLE, Range)
        }),
        ("a flush of a whole region of another domain", |lab| {
            flush(100, (TARGET, 8), lab.mr_of_another_pd().rkey, VISIBLE, Region)
        }),
        ("a flush behind the region", |lab| {
            flush(100, (TARGET, MEMORY), lab.mr.rkey, VISIBLE, Range)
        }),
        ("a flush of a wrong key", |_| flush(100, (0, 0), Rkey(0xdead), VISIBLE, Region)),
    ];
    let invalid = invalid.map(|case| (case, NakCode::InvalidRequest, QpReqErr));
    let denied = denied.map(|case| (case, NakCode::RemoteAccess, QpAccessErr));
    for ((name, request), code, event) in invalid.into_iter().chain(denied) {
        let lab = lab();
        let before = lab.memory(0, MEMORY);
        lab.deliver(request(&lab));
        lab.expect([answered(100, Syndrome::Nak(code), 0)]);
        assert_eq!((lab.events(), lab.state()), (vec![event], QpState::Err), "{name}");
        assert_eq!(lab.memory(0, MEMORY), before, "{name}: memory changed");
    }
}

#[test]
fn a_queue_pair_without_the_right_or_without_room_refuses() {
    for setup in [
        Setup { access: Access::REMOTE_READ, ..Setup::default() },
        Setup { max_dest_rd_atomic: 0, ..Setup::default() },
    ] {
        type Request = fn(&Lab) -> Packet;
        let requests: [Request; 2] = [
            |lab| atomic_write(100, TARGET, lab.mr.rkey, [1; 8]),
            |lab| flush(100, (TARGET, 8), lab.mr.rkey, VISIBLE, Range),
        ];
        for request in requests {
            let lab = Lab::new(setup);
            let request = request(&lab);
            lab.deliver(request);
            lab.expect([answered(100, Syndrome::Nak(NakCode::InvalidRequest), 0)]);
        }
    }
}

#[test]
fn they_are_sent_with_their_headers_and_complete_with_their_response() {
    let lab = lab();
    lab.post(1, ATOMIC_WRITE, 8);
    lab.post(2, FLUSH, 0);
    let (remote, placement) = (remote(), VISIBLE | PERSISTENT);
    lab.post(3, SendOp::Flush { remote, placement, range: FlushRange::Region }, 0);
    let Remote { addr: va, rkey } = remote;
    lab.expect([
        request(RcAtomicWrite, 500, reth(va, rkey, 8), &lab.source(8)),
        flush(501, (va, 700), rkey, VISIBLE, Range),
        flush(502, (va, 0), rkey, VISIBLE | PERSISTENT, Region),
    ]);
    lab.expect_sends([]);
    for psn in 500..503 {
        lab.deliver(executed(psn, psn - 499));
    }
    lab.expect_sends([(1, Success), (2, Success), (3, Success)]);
    assert_eq!(lab.counter(Counter::RdmaSends), 3);
}

#[test]
fn they_count_to_max_rd_atomic_and_a_fence_waits_for_them() {
    let lab = Lab::new(Setup { max_rd_atomic: 2, ..Setup::default() });
    lab.post(1, FLUSH, 0);
    lab.post(2, ATOMIC_WRITE, 8);
    lab.post(3, FLUSH, 0);
    lab.expect_sent([(RcFlush, 500), (RcAtomicWrite, 501)]);
    lab.deliver(executed(500, 1));
    lab.expect_sent([(RcFlush, 502)]);
    let sge = lab.sge(SOURCE, 4);
    lab.post_request(4, SendOp::Send, SendFlags::SIGNALED | SendFlags::FENCE, &[sge])
        .expect("taken");
    lab.deliver(executed(501, 2));
    lab.expect([]);
    lab.deliver(executed(502, 3));
    lab.expect_sent([(RcSendOnly, 503)]);
}

#[test]
fn an_ack_past_an_unanswered_one_is_an_implied_nak() {
    for (op, opcode, len) in [(ATOMIC_WRITE, RcAtomicWrite, 8), (FLUSH, RcFlush, 0)] {
        let lab = lab();
        lab.post(1, op, len);
        lab.post(2, SendOp::Write { remote: remote() }, 4);
        lab.expect_sent([(opcode, 500), (RcWriteOnly, 501)]);
        lab.deliver(ack(501));
        lab.wait(REORDER_WAIT_NS);
        lab.expect_sends([]);
        lab.expect_sent([(opcode, 500), (RcWriteOnly, 501)]);
        lab.deliver(executed(500, 1));
        lab.deliver(ack(501));
        lab.expect_sends([(1, Success), (2, Success)]);
    }
}

#[test]
fn a_lost_response_brings_the_request_again() {
    let lab = lab();
    lab.post(1, ATOMIC_WRITE, 8);
    let first = lab.sent();
    lab.wait(400 * MILLISECOND);
    assert_eq!(lab.sent().first(), first.first());
    lab.deliver(executed(500, 1));
    lab.expect_sends([(1, Success)]);
}

#[test]
fn errors_of_the_peer_and_of_the_own_memory_end_in_their_status() {
    for (code, status) in
        [(NakCode::RemoteAccess, RemAccessErr), (NakCode::RemoteOperational, RemOpErr)]
    {
        let lab = lab();
        lab.post(1, FLUSH, 0);
        lab.post(2, ATOMIC_WRITE, 8);
        lab.flush();
        lab.deliver(nak(500, code));
        lab.expect_sends([(1, status), (2, WrFlushErr)]);
    }
    let lab = lab();
    lab.post_sges(1, ATOMIC_WRITE, &[Sge { lkey: no_lkey(), ..lab.sge(SOURCE, 8) }]);
    lab.flush();
    lab.expect_sends([(1, LocProtErr)]);
}

#[test]
fn unexpected_data_in_a_response_is_a_bad_response() {
    for (op, len) in [(ATOMIC_WRITE, 8), (FLUSH, 0)] {
        let lab = lab();
        lab.post(1, op, len);
        lab.flush();
        lab.deliver(read_response(RcReadResponseOnly, 500, 1, b"data"));
        lab.expect_sends([(1, WcStatus::BadRespErr)]);
    }
}

#[test]
fn requests_that_make_no_sense_are_not_taken() {
    let lab = lab();
    let sges = [lab.sge(SOURCE, 4), lab.sge(SOURCE, 8)];
    let post = |op, sges: &[_]| lab.post_request(1, op, SendFlags::SIGNALED, sges);
    assert_eq!(post(ATOMIC_WRITE, &sges[..1]), Err(PostError::AtomicWriteLength { given: 4 }));
    let remote = Remote { addr: 0x1004, ..remote() };
    let unaligned = SendOp::AtomicWrite { remote };
    assert_eq!(post(unaligned, &sges[1..]), Err(PostError::AtomicAlignment { addr: 0x1004 }));
    assert_eq!(post(FLUSH, &sges[..1]), Err(PostError::FlushWithData { given: 4 }));
    for given in [0, 4, 7] {
        let placement = PlacementType::from_bits_retain(given);
        let op = SendOp::Flush { remote, placement, range: FlushRange::Region };
        assert_eq!(post(op, &[]), Err(PostError::FlushPlacement { given }));
    }
    let none = Lab::new(Setup { max_rd_atomic: 0, ..Setup::default() });
    assert_eq!(none.post_request(1, FLUSH, SendFlags::SIGNALED, &[]), Err(PostError::NoReadDepth));
    assert_eq!(
        none.post_request(1, ATOMIC_WRITE, SendFlags::SIGNALED, &sges[1..]),
        Err(PostError::NoReadDepth)
    );
}
