//! One queue pair whose peer is the test: the test delivers packets by hand and checks each answer.
//!
//! `request` and `answer` are templates, and a test names the fields that matter. The first PSN in
//! both directions is [`PSN`], two before the wrap.

use urxe_device::cq::{AsyncEvent, QpEventType};
use urxe_test_support::packet::{answer, part};
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Ext, Msn, NakCode, Opcode, Psn, Reth, RnrTimer, Syndrome,
};

use super::*;

const PSN: Psn = qp::FIRST_PSN;
pub const PEER_QPN: Qpn = Qpn::masked(0x0012_3456);

pub struct Peer {
    pub end: Host,
    wire: Wire,
}

impl Peer {
    pub fn new() -> Self {
        let end = Host::new(A, 1);
        end.connect_qp(end.qp, PEER_QPN, B);
        Self { end, wire: Wire::default() }
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Delivers packets one after the other.
    pub fn receive(&self, packets: &[(Opcode, u32, Ext, &[u8])]) {
        for (opcode, n, ext, payload) in packets {
            let ack_req = opcode.info().is_request;
            let packet = part(*opcode, PSN.add(*n).value(), payload);
            self.deliver(Packet { ack_req, ext: *ext, ..packet });
        }
    }

    pub fn deliver(&self, packet: Packet) {
        let run = Packet::merge(B.into(), A.into(), [(self.end.qp.qpn(), packet)]);
        self.wire.deliver(&self.end.device, self.end.clock.now(), &run);
    }

    pub fn answer(&self, n: u32, syndrome: Syndrome) {
        self.deliver(answer(PSN.add(n).value(), syndrome));
    }

    /// Returns the packets that are sent now: opcode, PSN counted from the first, syndrome.
    pub fn sent(&self) -> Vec<(Opcode, u32, Option<Syndrome>)> {
        self.end.transmit(&self.wire);
        let runs = self.wire.take();
        runs.iter()
            .flat_map(PacketRun::packets)
            .map(|view| {
                (view.opcode(), view.psn().steps_from(PSN), view.aeth().map(|aeth| aeth.syndrome))
            })
            .collect()
    }

    /// Advances the time by more than a round trip.
    pub fn advance_round_trip(&self) {
        self.end.clock.advance(1_000_000);
    }

    /// Advances the time to the next deadline.
    fn deadline(&self) {
        self.end.clock.set(self.end.device.next_deadline().unwrap());
        self.end.device.handle_timeouts(self.end.clock.now());
    }

    fn post(&self, op: SendOp, sge: Sge) {
        self.end.post(op, &[sge]);
    }

    pub fn state(&self) -> QpState {
        self.end.state(self.end.qp)
    }

    pub fn read(&self, rkey_off_by: u32) -> Ext {
        let rkey = urxe_wire::Rkey(self.end.mr.rkey.0 ^ rkey_off_by);
        Ext::Reth(Reth { va: self.end.mr.iova, rkey, dma_len: 8 })
    }

    pub fn write(&self, offset: u64) -> Ext {
        Ext::Reth(Reth { va: self.end.mr.iova + offset, rkey: self.end.mr.rkey, dma_len: 4 })
    }

    pub fn fetch_add(&self) -> Ext {
        let va = self.end.mr.iova + 64;
        Ext::Atomic(AtomicEth { va, rkey: self.end.mr.rkey, swap_or_add: 1, compare: 0 })
    }

    pub fn modify(&self, attr: QpAttr, mask: QpAttrMask) {
        self.end.modify(self.end.qp, &attr, mask);
    }

    pub fn events(&self) -> Vec<QpEventType> {
        let events = self.end.events().into_iter();
        events
            .filter_map(|event| match event {
                AsyncEvent::Qp(event, _) => Some(event),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_lost_request_before_one_that_cannot_be_sent_is_sent_again() {
    let peer = Peer::new();
    let bad = Sge { lkey: urxe_wire::Lkey(peer.end.mr.lkey.0 ^ 1), ..peer.end.sge(0, 8) };
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    peer.post(SendOp::Send, bad);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)]);
    peer.answer(0, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)]);
    assert_eq!(peer.end.statuses(), []);
    peer.answer(0, Syndrome::ACK);
    assert_eq!(peer.end.statuses(), [WcStatus::Success, WcStatus::LocProtErr]);
    assert_eq!(peer.state(), QpState::Err);
}

#[test]
fn answers_before_a_fatal_nak_are_still_sent() {
    let peer = Peer::new();
    peer.receive(&[
        (Opcode::RcReadRequest, 0, peer.read(0), &[]),
        (Opcode::RcFetchAdd, 1, peer.fetch_add(), &[]),
        (Opcode::RcReadRequest, 2, peer.read(1), &[]),
    ]);
    assert_eq!(peer.state(), QpState::Err);
    let sent = peer.sent();
    let nak = Some(Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(
        sent,
        [
            (Opcode::RcReadResponseOnly, 0, Some(Syndrome::ACK)),
            (Opcode::RcAtomicAcknowledge, 1, Some(Syndrome::ACK)),
            (Opcode::RcAcknowledge, 2, nak)
        ]
    );
    assert_eq!(peer.events(), [QpEventType::QpAccessErr]);
}

#[test]
fn the_fatal_nak_finds_room_beside_any_pending_answers() {
    let peer = Peer::new();
    peer.receive(&[(Opcode::RcWriteOnly, 0, peer.write(0), &[1; 4])]);
    // Ever lower PSNs from the future are NAKed again and again. Duplicates between them are
    // acknowledged.
    for n in (10..40).rev() {
        let duplicate = (Opcode::RcWriteOnly, 0, peer.write(0), &[1u8; 4][..]);
        peer.receive(&[(Opcode::RcWriteOnly, n, peer.write(0), &[1; 4]), duplicate]);
    }
    peer.receive(&[(Opcode::RcReadRequest, 1, peer.read(1), &[])]);
    let sent = peer.sent();
    assert!(sent.len() < 20, "{} answers", sent.len());
    assert_eq!(sent.last().unwrap().2, Some(Syndrome::Nak(NakCode::RemoteAccess)));
}

#[test]
fn nothing_is_answered_after_the_program_went_to_the_error_state() {
    let peer = Peer::new();
    peer.receive(&[(Opcode::RcReadRequest, 0, peer.read(0), &[])]);
    peer.modify(state(QpState::Err), QpAttrMask::STATE);
    assert_eq!(peer.sent(), []);
}

#[test]
fn a_read_whose_memory_is_gone_is_refused_after_earlier_answers() {
    let peer = Peer::new();
    peer.receive(&[
        (Opcode::RcReadRequest, 0, peer.read(0), &[]),
        (Opcode::RcReadRequest, 1, peer.read(1), &[]),
    ]);
    peer.end.device.memory().deregister(peer.end.mr.lkey).unwrap();
    assert_eq!(
        peer.sent(),
        [(Opcode::RcAcknowledge, 0, Some(Syndrome::Nak(NakCode::RemoteAccess)))]
    );
    assert_eq!(peer.events(), [QpEventType::QpAccessErr], "once");
}

#[test]
fn a_duplicate_atomic_gets_the_value_of_its_execution() {
    let peer = Peer::new();
    peer.end.write(64, &41u64.to_ne_bytes());
    for _ in 0..3 {
        peer.receive(&[(Opcode::RcFetchAdd, 0, peer.fetch_add(), &[])]);
        assert_eq!(peer.sent(), [(Opcode::RcAtomicAcknowledge, 0, Some(Syndrome::ACK))]);
    }
    assert_eq!(peer.end.bytes(64, 8), 42u64.to_ne_bytes());
}

#[test]
fn draining_is_reported_once() {
    let peer = Peer::new();
    let attr = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    peer.modify(attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert_eq!(peer.events(), [QpEventType::SqDrained]);
    peer.modify(QpAttr { timeout: 3, ..QpAttr::default() }, QpAttrMask::TIMEOUT);
    assert_eq!(peer.events(), []);
}

#[test]
fn draining_waits_for_begun_requests_and_begins_none() {
    let peer = Peer::new();
    peer.post(SendOp::Send, peer.end.sge(0, 3000));
    assert_eq!(peer.sent().len(), 3);
    let attr = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    peer.modify(attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent(), []);
    assert!(peer.end.device.query_qp(peer.end.qp).unwrap().sq_draining);
    peer.answer(0, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(peer.sent().len(), 3, "the begun request is sent again");
    assert_eq!(peer.events(), []);
    peer.answer(2, Syndrome::ACK);
    assert_eq!(peer.events(), [QpEventType::SqDrained]);
    assert_eq!(peer.sent(), []);
    peer.modify(state(QpState::Rts), QpAttrMask::STATE);
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 3, None)]);
}

#[test]
fn the_read_depth_changes_while_drained() {
    let peer = Peer::new();
    peer.modify(state(QpState::Sqd), QpAttrMask::STATE);
    peer.modify(
        QpAttr { max_dest_rd_atomic: 1, ..QpAttr::default() },
        QpAttrMask::MAX_DEST_RD_ATOMIC,
    );
    peer.receive(&[(Opcode::RcReadRequest, 0, peer.read(0), &[])]);
    assert_eq!(peer.state(), QpState::Sqd);
    peer.receive(&[(Opcode::RcReadRequest, 1, peer.read(0), &[])]);
    assert_eq!(peer.state(), QpState::Err, "two at once are one too many");
}

#[test]
fn an_rnr_wait_ends_when_the_request_arrived_after_all() {
    let peer = Peer::new();
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 0, None)]);
    peer.answer(0, Syndrome::RnrNak(RnrTimer::LONGEST));
    assert_eq!(peer.sent(), []);
    peer.answer(0, Syndrome::ACK);
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent(), [(Opcode::RcSendOnly, 1, None)]);
    peer.deadline();
    assert_eq!(peer.end.statuses(), [WcStatus::Success]);
}

#[test]
fn an_rnr_nak_stops_the_requester_as_long_as_it_says() {
    let peer = Peer::new();
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent().len(), 1);
    let timer = RnrTimer::new(20).unwrap();
    for _ in 0..30 {
        peer.answer(0, Syndrome::RnrNak(timer));
        assert_eq!(peer.sent(), []);
        let before = peer.end.clock.now();
        while peer.sent().is_empty() {
            peer.deadline();
        }
        assert!(peer.end.clock.now().since_ns(before) >= timer.duration_ns());
    }
    assert_eq!(peer.state(), QpState::Rts, "rnr_retry 7 is without end");
}

#[test]
fn an_answer_beyond_a_read_asks_for_it_again_once_it_counts_as_lost() {
    let peer = Peer::new();
    peer.post(SendOp::Read { remote: peer.end.remote(0) }, peer.end.sge(0, 8));
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent().len(), 2);
    peer.answer(1, Syndrome::ACK);
    assert_eq!(peer.sent(), []);
    peer.deadline();
    assert_eq!(peer.sent(), [(Opcode::RcReadRequest, 0, None), (Opcode::RcSendOnly, 1, None)]);
    peer.answer(1, Syndrome::ACK);
    assert_eq!(peer.sent(), [], "once");
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(0) };
    peer.receive(&[(Opcode::RcReadResponseOnly, 0, Ext::Aeth(aeth), &[9; 8])]);
    peer.answer(1, Syndrome::ACK);
    assert_eq!(peer.end.statuses(), [WcStatus::Success; 2]);
    assert_eq!(peer.end.bytes(0, 8), [9; 8]);
    assert_eq!(peer.end.device.bytes_in_flight(), (0, 0));
}

#[test]
fn a_wrong_answer_to_an_atomic_fails_it() {
    let peer = Peer::new();
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    peer.post(SendOp::FetchAdd { remote: peer.end.remote(64), add: 1 }, peer.end.sge(0, 8));
    assert_eq!(peer.sent().len(), 2);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(0) };
    let ext = Ext::AtomicAck(aeth, AtomicAckEth { original: 5 });
    peer.receive(&[(Opcode::RcAtomicAcknowledge, 0, ext, &[])]);
    assert_eq!(
        peer.end.statuses(),
        [WcStatus::BadRespErr, WcStatus::WrFlushErr],
        "the SEND returns nothing"
    );
}

#[test]
fn seven_retries_are_seven() {
    let peer = Peer::new();
    peer.post(SendOp::Send, peer.end.sge(0, 8));
    assert_eq!(peer.sent().len(), 1);
    let start = peer.end.clock.now();
    while peer.state() == QpState::Rts {
        peer.deadline();
        peer.sent();
    }
    // timeout 14, retry_cnt 7.
    assert_eq!(peer.end.clock.now().since_ns(start), 8 * (4096 << 14));
    assert_eq!(peer.end.statuses(), [WcStatus::RetryExcErr]);
}

#[test]
fn zero_length_rdma_looks_at_no_key() {
    let peer = Peer::new();
    let reth = Reth { va: u64::MAX, rkey: urxe_wire::Rkey(1), dma_len: 0 };
    peer.receive(&[
        (Opcode::RcWriteOnly, 0, Ext::Reth(reth), &[]),
        (Opcode::RcReadRequest, 1, Ext::Reth(reth), &[]),
    ]);
    let ack = Some(Syndrome::ACK);
    assert_eq!(
        peer.sent(),
        [(Opcode::RcAcknowledge, 0, ack), (Opcode::RcReadResponseOnly, 1, ack)]
    );
}

/// A short deadline for a missing packet comes up beside a timeout that moves on. Each has one
/// entry with the timers, and entries do not pile up.
#[test]
fn gaps_leave_no_entries_with_the_timers() {
    let peer = Peer::new();
    for nr in 0..500 {
        peer.post(SendOp::Send, peer.end.sge(0, 8));
        assert_eq!(peer.sent().len(), 1);
        peer.receive(&[(Opcode::RcWriteOnly, 2 * nr + 1, peer.write(0), &[1; 4])]);
        peer.end.clock.advance(20_000);
        peer.receive(&[(Opcode::RcWriteOnly, 2 * nr, peer.write(0), &[1; 4])]);
        peer.sent();
        peer.answer(nr, Syndrome::ACK);
        assert_eq!(peer.end.statuses(), [WcStatus::Success]);
        peer.end.clock.advance(90_000);
        peer.end.device.handle_timeouts(peer.end.clock.now());
    }
    // Each remaining entry wakes the device once more.
    let entries = (0..1_000).take_while(|_| {
        let deadline = peer.end.device.next_deadline();
        deadline.inspect(|now| peer.end.device.handle_timeouts(*now)).is_some()
    });
    let entries = entries.count();
    assert!(entries <= 10, "{entries} entries after 500 gaps");
    assert_eq!(peer.end.counter(Counter::ReorderDelivered), 500);
}
