//! The entries of a send queue: watched sends, strict queues, payloads, refusals and overruns.

use std::sync::atomic::{AtomicUsize, Ordering};

use urxe_device::cq::{AsyncEvent, QpEventType};
use urxe_device::qp::send_watch::WatchedSends;
use urxe_device::qp::work_request::PostError;
use urxe_test_support::lab::{Lab, SOURCE, Setup, ack, lab, nak, no_lkey, remote};
use urxe_types::wake::Wake;
use urxe_wire::{NakCode, Rkey};

use super::*;

/// Counts wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue pair with a watch.
struct Watched {
    lab: Lab,
    wakes: Arc<Wakes>,
}

impl Watched {
    /// Posts sends with the numbers 1 to `sends` and watches them.
    fn new(setup: Setup, sends: u64) -> Self {
        let (lab, wakes) = (Lab::new(setup), Arc::default());
        (1..=sends).for_each(|wr_id| lab.post_send(wr_id, 4));
        let watched = Self { lab, wakes };
        watched.watch();
        watched
    }

    fn watch(&self) {
        self.lab.device.watch_sends(self.lab.qp, self.wakes.clone());
    }

    /// Returns the state of the watched sends, and the number of wake-ups.
    fn state(&self) -> (WatchedSends, usize) {
        let state = self.lab.device.watched_sends(self.lab.qp).expect("the queue pair");
        (state, self.wakes.0.load(Ordering::Relaxed))
    }
}

#[test]
fn a_watch_counts_the_sends_that_are_not_complete_and_wakes_once() {
    let watched = Watched::new(Setup::default(), 3);
    watched.lab.post_send(4, 4);
    assert_eq!(watched.state(), (WatchedSends::Pending(3), 0), "the fourth was posted later");
    watched.lab.flush();
    watched.lab.deliver(ack(500));
    assert_eq!(watched.state(), (WatchedSends::Pending(2), 0));
    watched.lab.deliver(ack(502));
    assert_eq!(watched.state(), (WatchedSends::Completed, 1));
    watched.lab.deliver(ack(503));
    assert_eq!(watched.state(), (WatchedSends::Completed, 1));
    watched.watch();
    assert_eq!(watched.state(), (WatchedSends::Completed, 1), "nothing is posted");
    watched.lab.go_to(QpState::Err);
    assert_eq!(watched.state(), (WatchedSends::Completed, 1));
}

#[test]
fn a_watch_fails_with_the_queue_pair() {
    for to in [QpState::Err, QpState::Reset] {
        let watched = Watched::new(Setup::default(), 2);
        watched.lab.flush();
        watched.lab.deliver(ack(500));
        watched.lab.go_to(to);
        assert_eq!(watched.state(), (WatchedSends::Failed, 1), "{to}");
    }
    let watched = Watched::new(Setup::default(), 2);
    watched.lab.flush();
    watched.lab.deliver(nak(500, NakCode::RemoteAccess));
    assert_eq!(watched.lab.state(), QpState::Err);
    assert_eq!(watched.state(), (WatchedSends::Failed, 1));
    watched.watch();
    assert_eq!(watched.state(), (WatchedSends::Failed, 1), "one was lost before");
    // Unreliable sends are complete when they are sent.
    let watched = Watched::new(Setup { qp_type: QpType::Uc, ..Setup::default() }, 2);
    assert_eq!(watched.state(), (WatchedSends::Pending(2), 0));
    watched.lab.flush();
    assert_eq!(watched.state(), (WatchedSends::Completed, 1));
    watched.watch();
    assert_eq!(watched.state(), (WatchedSends::Completed, 1), "no send was lost");
    let bad = Sge { lkey: no_lkey(), ..watched.lab.sge(SOURCE, 4) };
    watched.lab.post_sges(3, SendOp::Send, &[bad]);
    watched.watch();
    watched.lab.flush();
    assert_eq!(watched.lab.state(), QpState::Sqe);
    assert_eq!(watched.state(), (WatchedSends::Failed, 2));
    watched.watch();
    assert_eq!(watched.state(), (WatchedSends::Failed, 2), "one was lost before");
}

#[test]
fn watched_sends_complete_in_sqd_and_the_event_follows() {
    let watched = Watched::new(Setup::default(), 2);
    watched.lab.flush();
    let attr = QpAttr { en_sqd_async_notify: true, ..state(QpState::Sqd) };
    watched.lab.modify(&attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(watched.lab.device.query_qp(watched.lab.qp).unwrap().sq_draining);
    watched.lab.deliver(ack(501));
    assert_eq!(watched.state(), (WatchedSends::Completed, 1));
    assert_eq!(watched.lab.events(), [QpEventType::SqDrained.into()]);
}

/// Creates a host with one entry for each kind of work request, and one completion.
fn smallest(qp_type: QpType, max_send_wr: u32, strict_queues: bool) -> Host {
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    config.strict_queues = strict_queues;
    let cap = QpCap { max_send_wr, ..HostOptions::default().cap };
    let options = HostOptions { qp_type, cap, cq_entries: 1, ..HostOptions::default() };
    Host::with(A.into(), config, options)
}

#[test]
fn entries_of_a_strict_queue_are_free_when_their_completions_are_polled() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
        config.strict_queues = true;
        let cap = QpCap { max_send_wr: 2, ..HostOptions::default().cap };
        let a =
            Host::with(A.into(), config, HostOptions { qp_type, cap, ..HostOptions::default() });
        let config = DeviceConfig::new(vec![Gid::from_ip(B.into())], 2);
        let b = Host::with(B.into(), config, HostOptions { qp_type, ..HostOptions::default() });
        let wire = Wire::default();
        connect(&a, a.qp, &b, b.qp);
        let op = SendOp::Write { remote: b.remote(0) };
        let sges = [a.sge(0, 4)];
        let post = || a.post_request(a.qp, &request(op, &sges));
        for round in 0..3 {
            post().unwrap();
            post().unwrap();
            assert_refused!(post(), PostError::QueueFull { capacity: 2 }, ENOMEM);
            run(&a, &b, &wire);
            assert_refused!(post(), PostError::NotPolled { capacity: 2 }, ENOMEM);
            assert!(a.completion().is_some(), "{qp_type}, round {round}");
            post().unwrap();
            run(&a, &b, &wire);
            assert_eq!(a.statuses(), [WcStatus::Success; 2], "{qp_type}, round {round}");
        }
        // RESET frees all entries.
        post().unwrap();
        post().unwrap();
        run(&a, &b, &wire);
        assert_refused!(post(), PostError::NotPolled { .. }, ENOMEM);
        a.go_to(a.qp, QpState::Reset);
        b.go_to(b.qp, QpState::Reset);
        connect(&a, a.qp, &b, b.qp);
        post().unwrap();
        post().unwrap();
        run(&a, &b, &wire);
        assert_eq!(a.statuses(), [WcStatus::Success; 2], "{qp_type} after RESET");
    }
}

/// The completion of the second request finds the completion queue full.
#[test]
fn an_overrun_ends_the_queue_pair_also_together_with_a_failure() {
    let bad_key = |host: &Host| Sge { lkey: no_lkey(), ..host.sge(0, 4) };
    let rows: [(QpType, bool); 4] =
        [(QpType::Rc, false), (QpType::Rc, true), (QpType::Uc, false), (QpType::Uc, true)];
    for (qp_type, fails) in rows {
        let a = smallest(qp_type, 4, false);
        let config = DeviceConfig::new(vec![Gid::from_ip(B.into())], 2);
        let b = Host::with(B.into(), config, HostOptions { qp_type, ..HostOptions::default() });
        connect(&a, a.qp, &b, b.qp);
        let write = SendOp::Write { remote: b.remote(0) };
        a.post(write, &[a.sge(0, 4)]);
        run(&a, &b, &Wire::default());
        a.post(write, &[if fails { bad_key(&a) } else { a.sge(0, 4) }]);
        run(&a, &b, &Wire::default());
        assert_eq!(a.state(a.qp), QpState::Err, "{qp_type}, failure: {fails}");
        let fatal = AsyncEvent::Qp(QpEventType::QpFatal, a.qp.qpn());
        assert!(a.events().contains(&fatal), "{qp_type}, failure: {fails}");
    }
}

#[test]
fn a_receive_that_overruns_its_queue_ends_the_queue_pair() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let b = smallest(qp_type, 4, false);
        let config = DeviceConfig::new(vec![Gid::from_ip(B.into())], 2);
        let a = Host::with(B.into(), config, HostOptions { qp_type, ..HostOptions::default() });
        connect(&b, b.qp, &a, a.qp);
        for wr_id in 0..2 {
            b.post_recv(wr_id, &[b.sge(0, 16)]);
            a.post(SendOp::Send, &[a.sge(0, 4)]);
        }
        run(&a, &b, &Wire::default());
        assert_eq!(b.state(b.qp), QpState::Err, "{qp_type}");
        assert!(b.events().contains(&AsyncEvent::Qp(QpEventType::QpFatal, b.qp.qpn())));
    }
}

#[test]
fn pieces_of_inline_data_follow_each_other() {
    let (a, b, wire) = pair();
    for round in 0..3 {
        let (first, second) = ([round; 3], [round + 100; 5]);
        let payload = Payload::Inline(&[&first, &second]);
        let op = SendOp::Write { remote: b.remote(0) };
        let write = SendRequest { payload, ..request(op, &[]) };
        a.post_request(a.qp, &write).unwrap();
        run(&a, &b, &wire);
        assert_eq!(b.bytes(0, 8), [&first[..], &second].concat());
    }
}

#[test]
fn payloads_that_do_not_fit_the_operation_are_refused() {
    let lab = lab();
    let post = |op, len| lab.post_request(1, op, SendFlags::SIGNALED, &[lab.sge(SOURCE, len)]);
    let swap = SendOp::CompareSwap { remote: remote(), compare: 0, swap: 0 };
    let add = SendOp::FetchAdd { remote: remote(), add: 1 };
    for op in [swap, add] {
        assert_refused!(post(op, 4), PostError::AtomicLength { given: 4 }, EINVAL);
        post(op, 8).unwrap();
    }
    let invalidate = SendOp::LocalInv { rkey: Rkey(1) };
    assert_refused!(post(invalidate, 4), PostError::NoData { given: 4 }, EINVAL);
    assert_refused!(post(invalidate, 0), PostError::NoData { given: 1 }, EINVAL);
}

#[test]
fn a_query_returns_the_state_twice_and_reset_keeps_the_sizes() {
    let lab = lab();
    let before = lab.device.query_qp(lab.qp).unwrap();
    assert_eq!((before.qp_state, before.cur_qp_state), (QpState::Rts, QpState::Rts));
    assert_ne!(before.cap, QpCap::default());
    lab.go_to(QpState::Reset);
    let after = lab.device.query_qp(lab.qp).unwrap();
    assert_eq!((after.cur_qp_state, after.cap), (QpState::Reset, before.cap));
    assert_eq!(after.dest_qp_num, Qpn::masked(0));
}
