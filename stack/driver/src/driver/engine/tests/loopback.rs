//! Devices of one process without a socket between them.

use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::port::tap::Tap;
use crate::port::udp::UdpCounters;

fn direct_pair(net: u8) -> (End, End) {
    pair(net, &EngineConfig::default())
}

/// Returns the packets of all sockets of an end: sent, sent directly, received.
fn packets(end: &End) -> (u64, u64, u64) {
    let counters = end.engine.ports().map(UdpPort::counters);
    counters.fold((0, 0, 0), |(sent, direct, received), of: UdpCounters| {
        (sent + of.sent_packets, direct + of.sent_directly, received + of.received_packets)
    })
}

impl End {
    /// Checks that this end received all packets that `peer` sent, and none over a socket.
    fn got_directly_from(&self, peer: &Self) {
        let ((sent, direct, _), (.., received)) = (packets(peer), packets(self));
        assert!(sent > 0);
        assert_eq!((direct, received), (sent, sent));
        let counted = (peer.counter(Counter::SentPkts), self.counter(Counter::RcvdPkts));
        assert_eq!(counted, (sent, sent));
    }
}

/// Messages of one test.
const ROUNDS: u32 = 200;

#[test]
fn a_message_is_there_and_acknowledged_when_the_call_returns() {
    let (a, b) = direct_pair(30);
    let mut at_once = 0;
    for _ in 0..ROUNDS {
        b.recv(64);
        a.post(SendOp::Send, 64);
        // A background thread that starts or wakes just now may be moving the packets instead.
        at_once += u32::from(a.cq.len() == 1 && b.cq.len() == 1);
        let _ = a.poll_one();
        let _ = b.poll_one();
    }
    assert!(at_once > ROUNDS / 2, "{at_once} of {ROUNDS} messages");
    a.got_directly_from(&b);
    b.got_directly_from(&a);
    a.no_losses();
    b.no_losses();
}

#[test]
fn every_operation_of_any_length_moves_its_bytes() {
    let (a, b) = direct_pair(31);
    for len in [0, 1, 4095, 4096, 4097, 65_536, 1_000_003, SIZE] {
        let data = pattern(len, len as u8);
        a.fill(&data);
        a.post(SendOp::Write { remote: b.remote() }, len as u32);
        let _ = a.poll_one();
        b.holds(&data, "WRITE");
        a.fill(&vec![0; len]);
        a.post(SendOp::Read { remote: b.remote() }, len as u32);
        let _ = a.poll_one();
        a.holds(&data, "READ");
        b.fill(&vec![0; len]);
        b.recv(len as u32);
        a.post(SendOp::SendImm { imm: len as u32 }, len as u32);
        let _ = a.poll_one();
        let received = b.poll_one();
        assert_eq!((received.byte_len, received.imm_data()), (len as u32, Some(len as u32)));
        b.holds(&data, "SEND");
    }
    a.got_directly_from(&b);
    b.got_directly_from(&a);
}

/// The message is longer than one call moves, so the devices' threads take over without a poll.
#[test]
fn what_is_too_much_for_one_call_is_moved_by_the_threads() {
    let (a, b) = direct_pair(32);
    let data = pattern(SIZE, 1);
    a.fill(&data);
    let sges = [Sge { addr: a.mr.iova, length: SIZE as u32, lkey: a.mr.lkey }];
    let op = SendOp::Write { remote: b.remote() };
    let flags = SendFlags::empty();
    let write = |wr_id| SendRequest { wr_id, flags, ..request(op, &sges) };
    let requests: Vec<_> = (0..32).map(write).collect();
    a.engine.post_send(a.qp, &requests).unwrap();
    let (start, mut done) = (Instant::now(), 0);
    while done < requests.len() {
        assert!(start.elapsed() < Duration::from_secs(20), "{done} of {}", requests.len());
        let mut out = [Completion::default(); 8];
        // Not the engine's poll, which would move packets itself.
        done += a.cq.poll(&mut out).unwrap();
        thread::yield_now();
    }
    b.holds(&data, "WRITE");
    b.got_directly_from(&a);
}

#[test]
fn a_device_reaches_itself_and_others_on_its_address() {
    let at = address(33, 1);
    let [a, b] = [(); 2].map(|()| End::new(at, EngineConfig::default()));
    a.connect(b.qp.qpn(), at.into());
    b.connect(a.qp.qpn(), at.into());
    b.recv(64);
    a.post(SendOp::Send, 64);
    let _ = a.poll_one();
    let _ = b.poll_one();
    b.got_directly_from(&a);

    let alone = End::new(address(33, 2), EngineConfig::default());
    alone.connect(alone.qp.qpn(), address(33, 2).into());
    alone.recv(64);
    alone.post(SendOp::Send, 64);
    let _ = alone.poll_one();
    let _ = alone.poll_one();
    alone.got_directly_from(&alone);
}

#[test]
fn threads_at_both_ends_and_a_sleeper_get_along() {
    const MESSAGES: usize = 20_000;
    let (a, b) = direct_pair(34);
    let received = AtomicUsize::new(0);
    thread::scope(|scope| {
        for here in [&a, &b] {
            for _ in 0..32 {
                here.recv(64);
            }
            let received = &received;
            scope.spawn(move || {
                let start = Instant::now();
                let (mut sent, mut under_way) = (0, 0);
                while received.load(Ordering::Relaxed) < 2 * MESSAGES {
                    assert!(start.elapsed() < Duration::from_secs(60), "{sent} sent");
                    while sent < MESSAGES && under_way < 16 {
                        here.post(SendOp::Send, 64);
                        (sent, under_way) = (sent + 1, under_way + 1);
                    }
                    let mut out = [Completion::default(); 16];
                    let count = here.engine.poll(&here.cq, &mut out).unwrap();
                    for completion in &out[..count] {
                        assert_eq!(completion.status, WcStatus::Success);
                        if completion.wr_id == 2 {
                            here.recv(64);
                            received.fetch_add(1, Ordering::Relaxed);
                        } else {
                            under_way -= 1;
                        }
                    }
                }
            });
        }
    });
    a.got_directly_from(&b);

    // One thread sleeps until a message wakes it.
    a.recv(64);
    assert!(!a.cq.arm(ArmKind::Next));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let deadline = clock::now().plus_ns(20_000_000_000);
            a.engine.wait(std::os::fd::AsFd::as_fd(&*a.descriptor), deadline, || false).unwrap()
        });
        thread::sleep(Duration::from_millis(20));
        b.post(SendOp::Send, 64);
        assert!(sleeper.join().unwrap(), "woken before the deadline");
    });
}

#[test]
fn a_message_without_a_posted_receive_waits_for_one() {
    let (a, b) = direct_pair(35);
    a.post(SendOp::Send, 64);
    thread::sleep(Duration::from_millis(5));
    let mut out = [Completion::default(); 1];
    assert_eq!(a.engine.poll(&a.cq, &mut out).unwrap(), 0);
    b.recv(64);
    let _ = a.poll_one();
    let _ = b.poll_one();
    assert!(b.counter(Counter::SendRnrErr) > 0, "the sender had to wait");
}

#[test]
fn captures_tell_of_each_packet_twice_as_over_sockets() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let tap = Arc::new(Tap::create(file.path()).unwrap());
    let (a, b) = pair(36, &EngineConfig { tap: Some(tap.clone()), ..EngineConfig::default() });
    a.post(SendOp::Write { remote: b.remote() }, 40_000);
    let _ = a.poll_one();
    let ((sent_a, ..), (sent_b, ..)) = (packets(&a), packets(&b));
    assert_eq!(sent_a, 10);
    assert_eq!(tap.packets(), 2 * (sent_a + sent_b));
    // The packets in memory have no ICRC, but the capture has.
    tap.flush().unwrap();
    let capture = std::fs::read(file.path()).unwrap();
    let complaint = b"the ICRC does not hold";
    assert!(!capture.windows(complaint.len()).any(|text| text == complaint));
}

#[test]
fn without_leave_of_either_side_or_behind_a_bad_link_packets_go_over_the_socket() {
    let faults = "duplicate=1%".parse().unwrap();
    let bad = EngineConfig { faults, seed: Some(1), ..EngineConfig::default() };
    for (net, configs) in [
        (37, [over_sockets(), EngineConfig::default()]),
        (38, [EngineConfig::default(), over_sockets()]),
        (39, [EngineConfig::default(), bad]),
    ] {
        let (a, b) = pair_of(net, configs);
        b.recv(64);
        a.post(SendOp::Send, 64);
        let _ = a.poll_one();
        let _ = b.poll_one();
        assert_eq!(packets(&a).1, 0, "net {net}");
    }
}

#[test]
fn a_send_to_a_peer_that_was_dropped_exceeds_its_retries() {
    let (a, b) = direct_pair(40);
    b.recv(64);
    a.post(SendOp::Send, 64);
    let _ = a.poll_one();
    drop(b);
    a.send_fails();
}
