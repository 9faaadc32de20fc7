//! Completion channels: one descriptor for several queues.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urxe::*;

use crate::common::{ALL, LONG, connect, connected, pair};

fn is_readable(descriptor: impl AsFd, timeout_ms: i64) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

#[test]
fn a_channel_is_readable_exactly_while_an_event_waits() {
    let (a, b) = pair(40);
    let channel = b.device.create_channel().unwrap();
    let queues = [channel.create_cq(16).unwrap(), channel.create_cq(16).unwrap()];
    let connected = queues.iter().map(|cq| {
        let (qp, peer) = connected((&b.pd, cq), (&a.pd, &a.cq));
        (qp, peer)
    });
    let connected: Vec<_> = connected.collect();
    let region = b.pd.allocate(4096, ALL).unwrap();
    assert_eq!(channel.wait(Some(Duration::from_millis(10))), Err(WaitError::TimedOut));
    for (cq, (qp, peer)) in queues.iter().zip(&connected) {
        qp.post_recv(&RecvRequest::new(region.slice(..8).unwrap()).wr_id(1)).unwrap();
        qp.post_recv(&RecvRequest::new(region.slice(..8).unwrap()).wr_id(2)).unwrap();
        assert!(!cq.arm(ArmKind::Solicited));
        peer.post_send(&SendRequest::send(Data::EMPTY).signaled()).unwrap();
        let _ = a.complete();
        assert!(!is_readable(&channel, 5), "that message was not solicited");
        peer.post_send(&SendRequest::send(Data::EMPTY).solicited()).unwrap();
        assert!(is_readable(&channel, 900));
        assert_eq!(channel.wait(LONG).unwrap().cq, cq.id());
        assert!(!is_readable(&channel, 0));
        let taken: Vec<_> = cq.drain().map(|completion| completion.unwrap().wr_id).collect();
        assert_eq!(taken, [1, 2]);
        assert_eq!(cq.wait_one(LONG), Err(WaitError::HasChannel));
        assert_eq!(pollster::block_on(cq.next()), Err(WaitError::HasChannel));
    }
}

#[test]
fn arming_reports_completions_that_are_present() {
    let (a, b) = pair(41);
    let channel = a.device.create_channel().unwrap();
    let cq = channel.create_cq(16).unwrap();
    let qp = a.pd.queue_pair(&cq).signal_all(true).create().unwrap();
    let peer = b.pd.queue_pair(&b.cq).create().unwrap();
    connect(&qp, &peer);
    qp.post_send(&SendRequest::write(a.slice(..8), b.region.remote())).unwrap();
    while cq.is_empty() {
        std::thread::yield_now();
    }
    assert!(cq.arm(ArmKind::Next));
    assert_eq!(cq.poll_one().unwrap().unwrap().status, WcStatus::Success);
}

#[test]
fn events_of_the_device_have_a_descriptor_too() {
    let (a, b) = pair(42);
    assert!(!is_readable(b.device.events(), 0));
    let closed = b.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    a.qp.post_send(&SendRequest::write(a.slice(..8), closed.remote())).unwrap();
    let event = b.device.events().wait(LONG).unwrap();
    assert_eq!(event, AsyncEvent::Qp(QpEventType::QpAccessErr, b.qp.qpn()));
    assert_eq!(b.device.events().wait(Some(Duration::from_millis(5))), Err(WaitError::TimedOut));
    assert!(!is_readable(b.device.events(), 0));
    assert_eq!(b.qp.state(), QpState::Err);
}

#[test]
fn the_device_ends_the_period_of_a_moderated_queue_without_polls() {
    let (a, b) = pair(43);
    let channel = b.device.create_channel().unwrap();
    let cq = channel.create_cq(16).unwrap();
    let (qp, peer) = connected((&b.pd, &cq), (&a.pd, &a.cq));
    qp.post_recv(&RecvRequest::new(Gather::EMPTY)).unwrap();
    cq.moderate(Moderation { count: 100, period_us: 20_000 });
    assert!(!cq.arm(ArmKind::Next));
    peer.post_send(&SendRequest::send(Data::EMPTY).signaled()).unwrap();
    let _ = a.complete();
    assert_eq!(channel.wait(LONG).unwrap().cq, cq.id());
    let told_at_ns = b.device.clock_ns();
    let completion = cq.poll_one().unwrap().unwrap();
    assert!(told_at_ns - completion.timestamp_ns >= 20_000_000, "not before the period ended");
}
