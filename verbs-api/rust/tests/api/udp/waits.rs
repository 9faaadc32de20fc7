//! Threads that sleep: one of them receives for all, and hands that on when it goes.

use std::time::Duration;

use urxe::*;

use crate::common::{LONG, connect, pair};

const ROUNDS: u64 = 200;
const THREADS: usize = 4;

/// One end of a conversation: each says one word for each that it heard.
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
fn each_of_several_sleeping_threads_hears_what_is_for_it() {
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
fn who_waits_in_vain_leaves_the_others_a_leader() {
    let (a, b) = pair(45);
    let lonely = b.device.create_cq(4).unwrap();
    std::thread::scope(|threads| {
        // Leads first, and goes again and again while the other sleeps.
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
