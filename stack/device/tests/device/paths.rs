//! Queue pairs that share a path, leave it or fail on it: no other queue pair may wait without end.

use super::bursts::{Sender, number};
use super::*;

/// The packets of the message that the window stops: one burst, which is sent as a whole.
const WAITING_PACKETS: u32 = 32;

/// Returns the number of packets of this queue pair that leave now.
fn sent_by(two: &Sender, nr: u32) -> usize {
    two.runs().concat().iter().filter(|(by, _)| *by == nr).count()
}

/// Two queue pairs with one peer that answers nothing. The first fills the window, so the second
/// must wait.
fn blocked() -> Sender {
    let two = Sender::new(2);
    two.post(0, SendOp::Send, 1 << 20);
    assert!(sent_by(&two, 0) > 50);
    two.post(1, SendOp::Send, WAITING_PACKETS * 1024);
    assert_eq!(sent_by(&two, 1), 0, "the window is full");
    two
}

#[test]
fn a_queue_pair_that_ends_returns_the_window_to_others() {
    type End = fn(&Sender);
    let cases: [(&str, End); 4] = [
        ("reset", |two| two.go_to(0, QpState::Reset)),
        ("error", |two| two.go_to(0, QpState::Err)),
        ("destroyed", |two| two.end.device.destroy_qp(Time::ZERO, two.qps[0]).unwrap()),
        ("out of retries", |two| {
            while two.state(0) == QpState::Rts {
                let now = two.end.device.next_deadline().unwrap();
                two.end.clock.set(now);
                two.end.device.handle_timeouts(now);
                if two.state(0) == QpState::Rts {
                    assert_eq!(sent_by(two, 1), 0, "a retransmission goes before other packets");
                }
            }
        }),
    ];
    for (case, end) in cases {
        let two = blocked();
        end(&two);
        assert_eq!(sent_by(&two, 1), WAITING_PACKETS as usize, "{case}");
    }
}

#[test]
fn a_listed_queue_pair_that_moves_is_listed_on_its_new_path() {
    let two = Sender::new(2);
    let other = Ipv4Addr::new(10, 0, 0, 3);
    two.go_to(1, QpState::Reset);
    two.end.connect_qp(two.qps[1], number(1), other);
    assert_eq!(sent_by(&two, 1), 0);
    // Listed on the path to `other`, which the queue pair leaves before a packet is sent.
    two.post(1, SendOp::Send, 1);
    two.go_to(1, QpState::Reset);
    two.end.connect_qp(two.qps[1], number(1), B);
    two.post(1, SendOp::Send, 1);
    assert_eq!(sent_by(&two, 1), 1);
}

#[test]
fn nothing_stays_charged_when_everything_is_gone() {
    let two = blocked();
    two.post(1, SendOp::Read { remote: two.end.remote(0) }, 50_000);
    two.go_to(0, QpState::Reset);
    sent_by(&two, 1);
    let (requests, reads) = two.end.device.bytes_in_flight();
    assert!(requests > 0 && reads > 50_000, "{requests} and {reads} bytes");
    two.end.device.destroy_qp(Time::ZERO, two.qps[1]).unwrap();
    assert_eq!(two.end.device.bytes_in_flight(), (0, 0));
}
