//! Packets from another UDP source port, and packets with an implausible PSN: a peer whose port
//! changes goes on, and an attacker without the PSN changes nothing.

use urxe_stack::cq::AsyncEventType;
use urxe_stack::cq::WcStatus::{RetryExcErr, Success};
use urxe_stack::device::counters::Counter;
use urxe_stack::qp::attr::QpType;
use urxe_test_support::lab::{
    DESTINATION, Lab, MILLISECOND, MTU, PACKET, Packet, REORDER_WAIT_NS, Setup, TARGET, ack,
    answered, lab, nak, read_request, read_response, send_only, write_only,
};
use urxe_wire::{NakCode, Opcode, ROCE_PORT, Syndrome};

/// A port that the peer has not used.
const OTHER: u16 = 50_001;

fn is_ack(packet: &Packet) -> bool {
    packet.opcode == Opcode::RcAcknowledge
}

/// Returns a lab whose queue pair has received PSN 100 from the usual port.
fn lab_with_port() -> Lab {
    let lab = lab();
    lab.deliver(write_only(100, TARGET, lab.mr.rkey, b"first"));
    lab.sent();
    lab
}

#[test]
fn a_new_port_is_learned_with_the_expected_psn() {
    let lab = lab_with_port();
    let rkey = lab.mr.rkey;
    for (nr, port) in [OTHER, OTHER, ROCE_PORT, OTHER + 1].into_iter().enumerate() {
        let text = format!("port {nr}");
        lab.deliver_from_port(port, write_only(101 + nr as u32, TARGET, rkey, text.as_bytes()));
        assert_eq!(lab.memory(TARGET, 6), text.as_bytes());
    }
    assert_eq!(lab.counter(Counter::SourcePortChanged), 3);
    // From the learned port, a packet that is missing is requested at once.
    lab.sent();
    lab.deliver_from_port(OTHER + 1, write_only(106, TARGET, rkey, b"late"));
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(105, Syndrome::Nak(NakCode::PsnSequence), 5)]);
    assert_eq!(lab.counter(Counter::DropUnknownPort), 0);
}

#[test]
fn requests_from_another_port_and_ahead_are_dropped_without_a_nak() {
    let lab = lab_with_port();
    let rkey = lab.mr.rkey;
    for psn in 102..132 {
        lab.deliver_from_port(OTHER, write_only(psn, TARGET, rkey, b"forged"));
    }
    lab.wait(10 * MILLISECOND);
    lab.expect([]);
    assert_eq!(lab.counter(Counter::DropUnknownPort), 30);
    assert_eq!(lab.memory(TARGET, 5), b"first");
    // The peer retransmits after its timeout.
    lab.deliver_from_port(OTHER, write_only(101, TARGET, rkey, b"again"));
    assert_eq!(lab.memory(TARGET, 5), b"again");
}

#[test]
fn without_the_check_requests_are_stored_from_any_port() {
    let lab = Lab::new(Setup { port_check: false, ..Setup::default() });
    let rkey = lab.mr.rkey;
    for (port, psn) in [(OTHER, 100), (OTHER + 1, 102), (OTHER + 2, 101)] {
        lab.deliver_from_port(port, write_only(psn, TARGET + 8 * u64::from(psn), rkey, b"taken"));
    }
    assert_eq!(lab.memory(TARGET + 8 * 102, 5), b"taken");
    assert_eq!(lab.counter(Counter::ReorderDelivered), 1);
    assert_eq!(lab.counter(Counter::DropUnknownPort), 0);
}

/// Requests that overtake the first one are stored, as later ones are.
#[test]
fn the_first_packets_of_a_connection_may_come_out_of_order() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver_from_port(OTHER, write_only(101, TARGET, rkey, b"second"));
    lab.deliver_from_port(OTHER, write_only(100, TARGET + 8, rkey, b"first"));
    assert_eq!(
        (lab.memory(TARGET, 6), lab.memory(TARGET + 8, 5)),
        (b"second".into(), b"first".into())
    );
    assert_eq!(lab.counter(Counter::ReorderDelivered), 1);
}

#[test]
fn requests_far_ahead_change_nothing_from_any_port() {
    let lab = lab_with_port();
    let rkey = lab.mr.rkey;
    for psn in (101 + 65_537..).step_by(70_000).take(100) {
        lab.deliver(write_only(psn, TARGET, rkey, b"forged"));
    }
    lab.wait(10 * MILLISECOND);
    lab.expect([]);
    lab.deliver(write_only(101, TARGET, rkey, b"second"));
    assert_eq!(lab.memory(TARGET, 6), b"second");
    assert_eq!(lab.counter(Counter::ReorderBuffered), 0);
    assert_eq!(lab.counter(Counter::SendSeqErr), 0);
}

#[test]
fn recent_duplicates_from_another_port_are_acknowledged() {
    let lab = Lab::new(Setup { rq_psn: 4_000, ..Setup::default() });
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(4_000, TARGET, rkey, b"first"));
    lab.sent();
    // The ACK was lost, and the router has forgotten the flow.
    lab.deliver_from_port(OTHER, write_only(4_000, TARGET, rkey, b"first"));
    let sent = lab.sent();
    assert!(sent.len() == 1 && is_ack(&sent[0]) && sent[0].psn == 4_000, "{sent:?}");
    // 1,024 packets behind the next one, and 1,025.
    lab.deliver_from_port(OTHER, write_only(4_001 - 1_024, TARGET, rkey, b"first"));
    assert_eq!(lab.sent().len(), 1);
    lab.deliver_from_port(OTHER, write_only(4_001 - 1_025, TARGET, rkey, b"first"));
    lab.expect([]);
    assert_eq!(lab.counter(Counter::DropUnknownPort), 1);
}

/// A READ that was executed is executed again only with its own key and address. So a guessed PSN
/// causes no long response.
#[test]
fn a_repeated_read_with_another_key_causes_no_response() {
    let lab = lab();
    lab.deliver(read_request(100, TARGET, lab.mr.rkey, 8 * MTU));
    assert_eq!(lab.sent().len(), 8);
    let wrong = urxe_wire::Rkey(lab.mr.rkey.0 ^ 0x100);
    lab.deliver_from_port(OTHER, read_request(100, TARGET, wrong, 8 * MTU));
    lab.expect([]);
    lab.deliver_from_port(OTHER, read_request(102, TARGET, lab.mr.rkey, 8 * MTU));
    lab.expect([]);
    lab.deliver_from_port(OTHER, read_request(100, TARGET, lab.mr.rkey, 8 * MTU));
    assert_eq!(lab.sent().len(), 8);
}

#[test]
fn responses_from_another_port_need_the_psn_of_an_outstanding_request() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.post_send(2, 8);
    lab.sent();
    lab.deliver(ack(500));
    lab.expect_sends([(1, Success)]);
    for packet in [nak(500, NakCode::RemoteAccess), nak(502, NakCode::RemoteAccess), ack(600)] {
        lab.deliver_from_port(OTHER, packet);
    }
    lab.expect([]);
    lab.expect_sends([]);
    assert_eq!(lab.counter(Counter::DropUnknownPort), 3);
    lab.deliver_from_port(OTHER, nak(501, NakCode::PsnSequence));
    lab.expect_sent([(Opcode::RcSendOnly, 501)]);
    lab.deliver_from_port(OTHER, ack(501));
    lab.expect_sends([(2, Success)]);
    lab.post_read(3, MTU);
    lab.sent();
    let response = read_response(Opcode::RcReadResponseOnly, 502, 1, &[7; MTU]);
    lab.deliver_from_port(OTHER + 1, response);
    lab.expect_sends([(3, Success)]);
    assert_eq!(lab.memory(DESTINATION, MTU), [7; MTU]);
}

/// IBTA vol. 1, 12.9.6: the event stands for the RTU.
#[test]
fn only_the_first_psn_establishes_communication() {
    let lab = Lab::new(Setup { rtr_only: true, ..Setup::default() });
    let rkey = lab.mr.rkey;
    for psn in [99, 101, 5_000, 900_000] {
        lab.deliver(write_only(psn, TARGET, rkey, b"forged"));
        lab.deliver_from_port(OTHER, write_only(psn, TARGET, rkey, b"forged"));
    }
    assert_eq!(lab.events(), []);
    lab.deliver_from_port(OTHER, write_only(100, TARGET, rkey, b"first"));
    assert_eq!(lab.events(), [AsyncEventType::CommEst]);
}

#[test]
fn a_mark_on_an_implausible_packet_causes_no_cnp() {
    let lab = lab_with_port();
    for psn in [100, 90, 101 + 65_537, 9_000_000] {
        lab.deliver_marked(write_only(psn, TARGET, lab.mr.rkey, b"forged"));
    }
    assert!(lab.sent().iter().all(is_ack));
    assert_eq!(lab.counter(Counter::EcnMarked), 0);
    lab.deliver_marked(write_only(101, TARGET, lab.mr.rkey, b"second"));
    assert_eq!(lab.counter(Counter::EcnMarked), 1);
}

/// A CNP carries no PSN, and switches may send one. So it is taken from any port, once in 50 µs,
/// and leaves the window some packets.
#[test]
fn notifications_from_other_ports_slow_down_once_in_fifty_microseconds() {
    let cnp = || Packet { opcode: Opcode::Cnp, psn: 0, becn: true, payload: vec![0; 16], ..PACKET };
    let window = |lab: &Lab| {
        for nr in 0..40 {
            lab.post_send(nr, 32 * MTU);
        }
        lab.sent().len()
    };
    let flooded = |count: u16, pause: u64| {
        let lab = lab();
        for nr in 0..count {
            lab.deliver_from_port(1_024 + nr, cnp());
            lab.wait(pause);
        }
        window(&lab)
    };
    assert_eq!(flooded(1_000, 0), flooded(1, 0));
    assert!(flooded(1, 0) > flooded(40, MILLISECOND));
    assert!(flooded(10_000, 50_000) * MTU >= 4_096);
}

/// A lost packet of an unreliable connection does not return, so its port cannot be checked.
#[test]
fn unreliable_connections_receive_from_any_port() {
    let lab = Lab::new(Setup { qp_type: QpType::Uc, ..Setup::default() });
    for wr_id in 0..3 {
        lab.post_recv(wr_id, 64);
    }
    let send = |psn, text: &[u8]| Packet {
        opcode: Opcode::UcSendOnly,
        ack_req: false,
        ..send_only(psn, text)
    };
    lab.deliver(send(100, b"one"));
    lab.deliver_from_port(OTHER, send(105, b"two"));
    lab.deliver(send(106, b"three"));
    lab.expect_recvs([(0, Success), (1, Success), (2, Success)]);
    assert_eq!(lab.counter(Counter::SourcePortChanged), 2);
}

/// If nothing of the peer arrives any more, its forged packets do not keep the connection alive.
#[test]
fn packets_without_the_psn_do_not_reset_the_retries() {
    let lab = lab();
    lab.post_send(1, 8);
    lab.flush();
    for psn in 0..2_000 {
        lab.wait(MILLISECOND);
        lab.deliver_from_port(OTHER, ack(10_000 + psn));
        lab.deliver(ack(20_000 + psn));
    }
    lab.expect_sends([(1, RetryExcErr)]);
}
