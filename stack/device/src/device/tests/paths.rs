//! Queue pairs that share a path, leave it or fail on it: none of the others may be left waiting.

use super::*;
use urxe_wire::PacketView;

const FIRST_PEER_QPN: Qpn = Qpn::masked(0x0012_3456);
const SECOND_PEER_QPN: Qpn = Qpn::masked(0x0012_3457);

/// The message that the window stops: one burst, which is not sent by halves.
const WAITING_PACKETS: u32 = 32;

/// A device with two queue pairs to one peer, which answers nothing.
struct Two {
    end: End,
    second: QpHandle,
    wire: Wire,
}

impl Two {
    fn new() -> Self {
        let end = End::new(A, 1);
        let second = create_qp(&end.device, end.pd, &end.cq);
        end.connect_qp(end.qp, FIRST_PEER_QPN, B);
        end.connect_qp(second, SECOND_PEER_QPN, B);
        let two = Self { end, second, wire: Wire::default() };
        // Connecting lists both.
        assert_eq!(two.sent_to(FIRST_PEER_QPN), 0);
        two
    }

    fn post(&self, qp: QpHandle, len: u32) {
        let sges = [self.end.sge(0, len)];
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            to: Destination::Peer,
            flags: SendFlags::SIGNALED,
            payload: Payload::Sges(&sges),
        };
        self.end.device.post_send(Time::ZERO, qp, &[request]).unwrap();
    }

    /// What is sent now, by the queue pair it is for.
    fn sent_to(&self, qpn: Qpn) -> usize {
        self.sent_at(Time::ZERO, qpn)
    }

    fn sent_at(&self, now: Time, qpn: Qpn) -> usize {
        self.end.device.transmit_pending(now, &self.wire);
        let runs: Vec<_> = lock(&self.wire.0).drain(..).collect();
        let packets = runs.iter().flat_map(|run| run.bytes.chunks(run.segment_size));
        packets.filter(|packet| PacketView::parse(packet).unwrap().dest_qp() == qpn).count()
    }

    fn modify(&self, qp: QpHandle, state: QpState) {
        let attr = QpAttr { qp_state: state, ..QpAttr::default() };
        self.end.device.modify_qp(Time::ZERO, qp, &attr, QpAttrMask::STATE).unwrap();
    }

    /// The first fills the window, so that the second must wait.
    fn blocked() -> Self {
        let two = Self::new();
        two.post(two.end.qp, 1 << 20);
        assert!(two.sent_to(FIRST_PEER_QPN) > 50);
        two.post(two.second, WAITING_PACKETS * 1024);
        assert_eq!(two.sent_to(SECOND_PEER_QPN), 0, "the window is full");
        two
    }
}

#[test]
fn a_reset_lets_go_of_the_window_for_others() {
    let two = Two::blocked();
    two.modify(two.end.qp, QpState::Reset);
    assert_eq!(two.sent_to(SECOND_PEER_QPN), WAITING_PACKETS as usize);
}

#[test]
fn an_error_lets_go_of_the_window_for_others() {
    let two = Two::blocked();
    two.modify(two.end.qp, QpState::Err);
    assert_eq!(two.sent_to(SECOND_PEER_QPN), WAITING_PACKETS as usize);
}

#[test]
fn a_destroyed_queue_pair_lets_go_of_the_window_for_others() {
    let two = Two::blocked();
    two.end.device.destroy_qp(Time::ZERO, two.end.qp).unwrap();
    assert_eq!(two.sent_to(SECOND_PEER_QPN), WAITING_PACKETS as usize);
}

#[test]
fn giving_up_lets_go_of_the_window_for_others() {
    let two = Two::blocked();
    let mut now = Time::ZERO;
    while two.end.device.query_qp(two.end.qp).unwrap().qp_state == QpState::Rts {
        now = two.end.device.next_deadline().unwrap();
        two.end.device.handle_timeouts(now);
        if two.end.device.query_qp(two.end.qp).unwrap().qp_state == QpState::Rts {
            assert_eq!(two.sent_at(now, SECOND_PEER_QPN), 0, "it is sent again before others");
        }
    }
    assert_eq!(two.sent_at(now, SECOND_PEER_QPN), WAITING_PACKETS as usize);
}

#[test]
fn a_listed_queue_pair_that_moves_is_listed_on_its_new_path() {
    let two = Two::new();
    let other = Ipv4Addr::new(10, 0, 0, 3);
    two.modify(two.second, QpState::Reset);
    two.end.connect_qp(two.second, SECOND_PEER_QPN, other);
    assert_eq!(two.sent_to(SECOND_PEER_QPN), 0);
    // Listed on the path to `other`, which it leaves before anything is sent.
    two.post(two.second, 1);
    two.modify(two.second, QpState::Reset);
    two.end.connect_qp(two.second, SECOND_PEER_QPN, B);
    two.post(two.second, 1);
    assert_eq!(two.sent_to(SECOND_PEER_QPN), 1);
}

#[test]
fn nothing_stays_charged_when_everything_is_gone() {
    let two = Two::blocked();
    let sges = [two.end.sge(0, 50_000)];
    let op = SendOp::Read { remote: two.end.remote(0) };
    let request = SendRequest {
        wr_id: 1,
        op,
        to: Destination::Peer,
        flags: SendFlags::empty(),
        payload: Payload::Sges(&sges),
    };
    two.end.device.post_send(Time::ZERO, two.second, &[request]).unwrap();
    two.modify(two.end.qp, QpState::Reset);
    two.sent_to(SECOND_PEER_QPN);
    let (requests, reads) = two.end.device.bytes_in_flight();
    assert!(requests > 0 && reads > 50_000, "{requests} and {reads} bytes");
    two.end.device.destroy_qp(Time::ZERO, two.second).unwrap();
    assert_eq!(two.end.device.bytes_in_flight(), (0, 0));
}
