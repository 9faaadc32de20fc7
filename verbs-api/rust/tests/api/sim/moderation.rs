//! Moderated completion queues, in virtual time.

use std::time::Duration;

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{connected, simulated_pair};

const COUNT: u16 = 8;
const PERIOD_US: u16 = 500;

/// A receiver whose queue reports after [`COUNT`] completions or after [`PERIOD_US`].
struct Receiver {
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
}

fn receiver(fabric: &Fabric) -> (QueuePair, Receiver) {
    let (a, b) = simulated_pair(fabric);
    let channel = b.device.create_channel().unwrap();
    let cq = channel.create_cq(64).unwrap();
    let (qp, sender) = connected((&b.pd, &cq), (&a.pd, &a.cq));
    for wr_id in 0..64 {
        qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(wr_id)).unwrap();
    }
    cq.moderate(Moderation { count: COUNT, period_us: PERIOD_US });
    assert_eq!(cq.moderation().count, COUNT);
    (sender, Receiver { channel, cq, qp })
}

#[test]
fn a_burst_creates_one_event_and_the_rest_another_after_the_period() {
    let fabric = Fabric::new(7);
    let (sender, Receiver { channel, cq, qp: _qp }) = receiver(&fabric);
    assert!(!cq.arm(ArmKind::Next));
    for _ in 0..COUNT + 3 {
        sender.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    }
    assert_eq!(channel.wait(None).unwrap().cq, cq.id());
    let taken: Vec<_> = cq.drain().map(Result::unwrap).collect();
    assert!(taken.len() >= usize::from(COUNT), "{} completions were told of", taken.len());
    // Later completions create no event until the queue is armed again.
    assert_eq!(channel.wait(Some(Duration::from_millis(5))), Err(WaitError::TimedOut));
    while cq.poll_one().unwrap().is_some() {}
    assert!(!cq.arm(ArmKind::Next));
    sender.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    sender.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    channel.wait(None).unwrap();
    let told_at = fabric.now().as_ns();
    let first = cq.poll_one().unwrap().unwrap();
    assert_eq!(told_at - first.timestamp_ns, u64::from(PERIOD_US) * 1000);
    assert_eq!(cq.len(), 1);
}

#[test]
fn an_unsolicited_message_starts_no_period() {
    let fabric = Fabric::new(8);
    let (sender, Receiver { channel, cq, qp: _qp }) = receiver(&fabric);
    assert!(!cq.arm(ArmKind::Solicited));
    sender.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    assert_eq!(channel.wait(Some(Duration::from_millis(50))), Err(WaitError::TimedOut));
    sender.post_send(&SendRequest::send(Data::EMPTY).solicited()).unwrap();
    channel.wait(None).unwrap();
    let told_at = fabric.now().as_ns();
    let stamps: Vec<_> = cq.drain().map(|completion| completion.unwrap().timestamp_ns).collect();
    assert_eq!(stamps.len(), 2);
    assert_eq!(told_at - stamps[1], u64::from(PERIOD_US) * 1000);
}

#[test]
fn moderation_applies_to_waits_on_the_queue_itself() {
    let fabric = Fabric::manual(9);
    let (a, b) = simulated_pair(&fabric);
    b.cq.moderate(Moderation { count: 2, period_us: 0 });
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| b.cq.wait_one(Some(Duration::from_secs(60))));
        for wr_id in 1..=2 {
            b.post_recv(Gather::EMPTY, wr_id);
            a.qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
        }
        fabric.run_while(Duration::from_secs(1), || !waiting.is_finished()).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap().wr_id, 1);
    });
}
