//! Retransmissions of a requester: after NAKs, early timeouts and tail probes.

use urxe_test_support::lab::{
    Lab, MTU, Packet, Setup, TARGET, ack, nak, read_response, rnr_nak, write_only,
};
use urxe_wire::{NakCode, Opcode};

use super::*;

/// The steps in which tests look for retransmissions, in nanoseconds.
const STEP_NS: u64 = 5_000;
/// The measured round trip, in nanoseconds.
const ROUND_TRIP_NS: u64 = 100_000;

/// Returns a queue pair with a timeout of 17 s, and with a measured round trip. The next PSN is
/// 501.
fn measured() -> Lab {
    let lab = Lab::new(Setup { timeout: 22, ..Setup::default() });
    lab.post_send(1, 4);
    assert_eq!(lab.sent().len(), 1);
    lab.wait(ROUND_TRIP_NS);
    lab.deliver(ack(500));
    lab.expect_sends([(1, WcStatus::Success)]);
    lab
}

/// Waits for the next packets. Returns the time until then.
fn next_sent(lab: &Lab) -> (u64, Vec<Packet>) {
    for steps in 1..2_000_000 {
        lab.wait(STEP_NS);
        let sent = lab.sent();
        if !sent.is_empty() {
            return (steps * STEP_NS, sent);
        }
    }
    panic!("nothing is sent");
}

#[test]
fn naks_without_progress_cause_a_bounded_number_of_retransmissions() {
    let lab = measured();
    lab.post_send(2, 4);
    lab.flush();
    let mut caused = 0;
    for _ in 0..100 {
        lab.wait(2 * ROUND_TRIP_NS);
        let _ = lab.sent();
        lab.deliver(nak(501, NakCode::PsnSequence));
        caused += lab.sent().len();
    }
    assert_eq!(caused, 64);
    // Progress allows as many again.
    lab.deliver(ack(501));
    lab.post_send(3, 4);
    let _ = lab.sent();
    lab.wait(2 * ROUND_TRIP_NS);
    let _ = lab.sent();
    lab.deliver(nak(502, NakCode::PsnSequence));
    assert_eq!(lab.sent().len(), 1);
}

#[test]
fn early_timeouts_grow_until_progress() {
    let lab = measured();
    lab.post_send(2, 4);
    assert_eq!(lab.sent().len(), 1);
    // The probe, the rest of the first early timeout, and longer ones.
    let intervals: Vec<u64> = (0..6)
        .map(|_| {
            let (interval, sent) = next_sent(&lab);
            assert_eq!((sent.len(), sent[0].psn, sent[0].ack_req), (1, 501, true));
            interval
        })
        .collect();
    for pair in intervals[2..].windows(2) {
        assert!(pair[1].abs_diff(2 * pair[0]) <= 2 * STEP_NS, "{intervals:?}");
    }
}

#[test]
fn a_nak_after_a_probe_starts_no_second_probe() {
    let lab = measured();
    lab.post_send(2, 4);
    assert_eq!(lab.sent().len(), 1);
    let (probe, _) = next_sent(&lab);
    lab.deliver(nak(501, NakCode::PsnSequence));
    assert_eq!(lab.sent().len(), 1);
    let (timeout, _) = next_sent(&lab);
    assert!(timeout > probe, "a probe after {probe}, then a retransmission after {timeout}");
}

/// The second NAK may be for the first transmission. If it is for the second one, the packet
/// follows two round trips after that.
#[test]
fn a_nak_within_a_round_trip_of_a_retransmission_brings_the_timer_forward() {
    let lab = measured();
    lab.post_send(2, 4);
    assert_eq!(lab.sent().len(), 1);
    lab.deliver(nak(501, NakCode::PsnSequence));
    assert_eq!(lab.sent().len(), 1);
    lab.deliver(nak(501, NakCode::PsnSequence));
    assert_eq!(lab.sent().len(), 0);
    let (after, _) = next_sent(&lab);
    assert!(after.abs_diff(2 * ROUND_TRIP_NS) <= STEP_NS, "{after}");
}

/// The peer acknowledges the first of two packets. Only the second one requests an acknowledgement,
/// so the round trip is measured with that one.
#[test]
fn an_acknowledgement_of_an_earlier_packet_measures_no_round_trip() {
    let lab = Lab::new(Setup { timeout: 22, ..Setup::default() });
    lab.post_send(1, MTU + 1);
    let requests: Vec<_> = lab.sent().iter().map(|packet| packet.ack_req).collect();
    assert_eq!(requests, [false, true]);
    lab.wait(ROUND_TRIP_NS / 4);
    lab.deliver(ack(500));
    lab.wait(ROUND_TRIP_NS * 3 / 4);
    lab.deliver(ack(501));
    lab.expect_sends([(1, WcStatus::Success)]);
    // A second NAK for one packet shows the measured round trip.
    lab.post_send(2, 4);
    for expected in [1, 1, 0] {
        assert_eq!(lab.sent().len(), expected);
        lab.deliver(nak(502, NakCode::PsnSequence));
    }
    let (after, _) = next_sent(&lab);
    assert!(after.abs_diff(2 * ROUND_TRIP_NS) <= STEP_NS, "{after}");
}

/// The responses behind the missing one arrive a second time, so the peer has sent that one again.
#[test]
fn a_response_that_is_lost_twice_is_requested_again_at_once() {
    let lab = measured();
    lab.post_read(2, 5 * MTU);
    assert_eq!(lab.sent().len(), 1);
    let middle = |psn| read_response(Opcode::RcReadResponseMiddle, psn, 2, &[0; MTU]);
    for psn in 502..=504 {
        lab.deliver(middle(psn));
    }
    lab.expect_sent([]);
    let (_, sent) = next_sent(&lab);
    assert_eq!((sent.len(), sent[0].psn), (1, 501));
    lab.deliver(middle(502));
    lab.deliver(middle(503));
    lab.expect_sent([]);
    lab.deliver(middle(504));
    lab.expect_sent([(Opcode::RcReadRequest, 501)]);
}

/// A gap in the peer's requests sets a timer of the same queue pair, which is due first.
#[test]
fn a_timer_for_the_peers_requests_neither_probes_nor_ends_an_rnr_wait() {
    for waits in [false, true] {
        let lab = measured();
        lab.post_send(2, 4);
        assert_eq!(lab.sent().len(), 1);
        if waits {
            // Code 14 stands for 1.28 ms.
            lab.deliver(rnr_nak(501, 14));
        }
        lab.deliver(write_only(101, TARGET, lab.mr.rkey, &[1; 4]));
        let (_, sent) = next_sent(&lab);
        assert_eq!((sent.len(), sent[0].opcode), (1, Opcode::RcAcknowledge), "waits: {waits}");
        let (after, sent) = next_sent(&lab);
        assert_eq!((sent.len(), sent[0].psn), (1, 501), "waits: {waits}");
        assert!(after > 1_000_000, "waits: {waits}, after {after} ns");
    }
}
