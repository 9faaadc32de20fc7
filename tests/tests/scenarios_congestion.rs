//! Effects of marked packets and of congestion notifications (IBTA vol. 1, annex A17.9).

use urxe_stack::cq::WcStatus::Success;
use urxe_stack::device::counters::Counter;
use urxe_stack::qp::attr::QpType;
use urxe_test_support::lab::{
    DESTINATION, Lab, MILLISECOND, MTU, PACKET, Packet, REORDER_WAIT_NS, Setup, TARGET, ack,
    answered, lab, read_request, read_response, send_only, write_only,
};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Ext, NakCode, Opcode, Syndrome};

/// The minimum interval between two notifications of a queue pair, in nanoseconds.
const PAUSE: u64 = 50_000;

fn cnp() -> Packet {
    Packet { opcode: Opcode::Cnp, psn: 0, becn: true, payload: vec![0; 16], ..PACKET }
}

/// Returns the number of notifications that the device has sent since the last call.
fn cnps_sent(lab: &Lab) -> usize {
    let (cnps, _): (Vec<_>, Vec<_>) =
        lab.sent().into_iter().partition(|packet| packet.opcode == Opcode::Cnp);
    assert!(cnps.iter().all(|packet| *packet == cnp()), "{cnps:?}");
    cnps.len()
}

/// Returns the number of packets of a long message that the device sends before it waits for an
/// acknowledgement.
fn window(lab: &Lab, wr_id: u64) -> usize {
    for nr in 0..40 {
        lab.post_send(wr_id + nr, 32 * MTU);
    }
    lab.sent().len()
}

#[test]
fn marked_data_causes_one_cnp_in_fifty_microseconds() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    for psn in 100..110 {
        lab.deliver_marked(write_only(psn, TARGET, rkey, b"marked"));
    }
    assert_eq!(cnps_sent(&lab), 1);
    assert_eq!(lab.memory(TARGET, 6), b"marked", "the data is as good as any");
    lab.wait(PAUSE - 1);
    lab.deliver_marked(write_only(110, TARGET, rkey, b"marked"));
    assert_eq!(cnps_sent(&lab), 0);
    lab.wait(1);
    lab.deliver_marked(write_only(111, TARGET, rkey, b"marked"));
    assert_eq!(cnps_sent(&lab), 1);
    assert_eq!((lab.counter(Counter::EcnMarked), lab.counter(Counter::CnpSent)), (12, 2));
}

#[test]
fn unmarked_empty_and_damaged_packets_cause_no_cnp() {
    let lab = lab();
    let rkey = lab.mr.rkey;
    lab.deliver(write_only(100, TARGET, rkey, b"plain"));
    lab.deliver_marked(read_request(101, TARGET, rkey, 8));
    lab.post_send(1, 8);
    lab.sent();
    lab.deliver_marked(ack(500));
    lab.expect_sends([(1, Success)]);
    lab.deliver_damaged(&write_only(102, TARGET, rkey, b"damaged!"), ICRC_LEN + 5);
    assert_eq!(cnps_sent(&lab), 0);
    assert_eq!(lab.counter(Counter::EcnMarked), 0);
}

/// READ responses are the congested packets, and the requester controls their number.
#[test]
fn marked_read_responses_cause_cnps_and_reduce_outstanding_reads() {
    let requested = |mark: bool| {
        let lab = lab();
        for nr in 0..64 {
            lab.post_read(nr, MTU);
            lab.sent();
            let response = read_response(Opcode::RcReadResponseOnly, 500 + nr as u32, 1, &[7; MTU]);
            if mark {
                lab.deliver_marked(response);
            } else {
                lab.deliver(response);
            }
            lab.expect_sends([(nr, Success)]);
            lab.wait(2 * MILLISECOND);
        }
        assert_eq!(lab.memory(DESTINATION, MTU), [7; MTU]);
        lab.sent();
        assert_eq!(lab.counter(Counter::CnpSent), if mark { 64 } else { 0 });
        for nr in 0..4 {
            lab.post_read(nr, 48 * MTU);
        }
        let length =
            |packet: &Packet| if let Ext::Reth(reth) = packet.ext { reth.dma_len } else { 0 };
        lab.sent().iter().map(length).sum::<u32>()
    };
    let (plain, marked) = (requested(false), requested(true));
    assert!(marked <= plain / 4, "{marked} of {plain} bytes");
}

#[test]
fn a_notification_halves_the_window_once_a_round_trip_and_it_grows_again() {
    let unmarked = window(&lab(), 0);
    let lab = lab();
    for _ in 0..5 {
        lab.deliver(cnp());
    }
    let marked = window(&lab, 0);
    assert!(
        (unmarked * 2 / 5..=unmarked * 3 / 5).contains(&marked),
        "{marked} of {unmarked} packets"
    );
    assert_eq!(lab.counter(Counter::CnpHandled), 5);
    // Each acknowledged window makes the next one slightly larger, in whole bursts.
    let (mut sent, mut last, mut first_more) = (marked as u32, marked, None);
    for nr in 0..12 {
        lab.wait(MILLISECOND);
        lab.deliver(ack(500 + sent - 1));
        for wr_id in 0..8 {
            lab.post_send(wr_id, 32 * MTU);
        }
        let next = lab.sent().len();
        assert!(next >= last, "{next} packets after {last}");
        first_more = first_more.or((next > marked).then_some(nr));
        sent += next as u32;
        last = next;
    }
    assert!(
        first_more.is_some() && last < unmarked * 3 / 2,
        "{last} packets at last, {first_more:?}"
    );
}

#[test]
fn repeated_notifications_never_close_the_window() {
    let lab = lab();
    for _ in 0..100 {
        lab.wait(MILLISECOND);
        lab.deliver(cnp());
    }
    assert!((8..80).contains(&window(&lab, 0)));
}

#[test]
fn notifications_without_a_matching_connection_change_nothing() {
    let unmarked = window(&lab(), 0);
    let unreliable = Lab::new(Setup { qp_type: QpType::Uc, ..Setup::default() });
    unreliable.deliver(cnp());
    let counted =
        |lab: &Lab| [Counter::CnpIgnored, Counter::CnpHandled].map(|which| lab.counter(which));
    assert_eq!(counted(&unreliable), [1, 0]);
    let lab = lab();
    lab.deliver_from([10, 0, 0, 3].into(), cnp());
    lab.deliver(Packet { pkey: 0x1234, ..cnp() });
    assert_eq!(counted(&lab), [2, 0]);
    assert_eq!(window(&lab, 0), unmarked);
}

/// A notification does not affect the packets before and after it.
#[test]
fn a_notification_among_requests_leaves_their_order_alone() {
    let lab = lab();
    for wr_id in 0..3 {
        lab.post_recv(wr_id, 64);
    }
    lab.deliver(send_only(100, b"a"));
    lab.deliver(cnp());
    lab.deliver(send_only(101, b"b"));
    lab.expect_recvs([(0, Success), (1, Success)]);
    lab.sent();
    lab.deliver_marked(send_only(103, b"d"));
    lab.expect([cnp()]);
    // The marked packet stays in the reorder buffer until the gap counts as a loss.
    lab.wait(REORDER_WAIT_NS);
    lab.expect([answered(102, Syndrome::Nak(NakCode::PsnSequence), 2)]);
}
