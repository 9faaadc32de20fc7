//! Blocked threads: one of them receives for all, and hands the role over when it returns.

use std::time::Duration;

use urxe::*;

use crate::common::{LONG, connect, pair};

const ROUNDS: u64 = 200;
const THREADS: usize = 4;

/// One end of a ping-pong with empty messages.
fn talk(qp: &QueuePair, cq: &CompletionQueue, begins: bool) {
    for round in 0..ROUNDS {
        qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(round)).unwrap();
        if begins || round > 0 {
            qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap();
        }
        assert_eq!(cq.wait_one(LONG).unwrap().wr_id, round);
    }
    if !begins {
        qp.post_send(&SendRequest::send(Data::EMPTY).signaled()).unwrap();
        assert!(cq.wait_one(LONG).unwrap().status.is_success());
    }
}

#[test]
fn each_of_several_blocked_threads_gets_its_completions() {
    let (a, b) = pair(44);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            let ends = [&a, &b].map(|end| {
                let cq = end.device.create_cq(16).unwrap();
                (end.pd.queue_pair(&cq).create().unwrap(), cq)
            });
            connect(&ends[0].0, &ends[1].0);
            for (nr, (qp, cq)) in ends.into_iter().enumerate() {
                threads.spawn(move || talk(&qp, &cq, nr == 0));
            }
        }
    });
}

#[test]
fn a_wait_that_times_out_hands_the_leader_role_over() {
    let (a, b) = pair(45);
    let lonely = b.device.create_cq(4).unwrap();
    std::thread::scope(|threads| {
        // This thread becomes the leader first and leaves repeatedly while the other thread is
        // blocked.
        let in_vain = threads.spawn(|| {
            for _ in 0..20 {
                let waited = lonely.wait_one(Some(Duration::from_millis(3)));
                assert_eq!(waited, Err(WaitError::TimedOut));
            }
        });
        let hears = threads.spawn(|| talk(&b.qp, &b.cq, false));
        talk(&a.qp, &a.cq, true);
        hears.join().unwrap();
        in_vain.join().unwrap();
    });
}
