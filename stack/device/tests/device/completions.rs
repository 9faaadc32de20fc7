//! Acknowledgements of many queue pairs in one run: the queues and the order of their completions,
//! and freedom from deadlock.

use std::sync::{Barrier, mpsc};
use std::time::Duration;

use urxe_test_support::packet::{ack, nak, part};
use urxe_wire::{NakCode, Opcode};

use super::bursts::number;
use super::*;

const FIRST_PSN: u32 = qp::FIRST_PSN.value();

/// Queue pairs with a WRITE in flight each, which complete to `cqs` in turn.
struct Writers {
    end: Host,
    qps: Vec<QpHandle>,
    cqs: Vec<Arc<Cq>>,
}

impl Writers {
    fn new(count: usize, queues: usize, entries: u32) -> Self {
        let end = Host::new(A, 1);
        let cqs: Vec<_> =
            (0..queues).map(|_| end.device.create_cq(entries, None, 0).unwrap()).collect();
        let qps: Vec<_> = (0..count)
            .map(|nr| end.create(&qp::init(QpType::Rc, end.pd, &cqs[nr % queues])))
            .collect();
        for (nr, qp) in qps.iter().enumerate() {
            end.connect_qp(*qp, number(nr), B);
            end.post_on(*qp, SendOp::Write { remote: end.remote(0) }, &[end.sge(0, 1)]);
        }
        end.transmit(&Wire::default());
        Self { end, qps, cqs }
    }

    /// Delivers packets of one length together, each for the queue pair of this place.
    fn receive(&self, packets: impl IntoIterator<Item = (usize, Packet)>) {
        let packets = packets.into_iter().map(|(nr, packet)| (self.qps[nr].qpn(), packet));
        let run = Packet::merge(B.into(), A.into(), packets);
        self.end.device.receive(Time::ZERO, &run.datagrams(), &mut ReceiveScratch::default());
    }

    fn acknowledge_all(&self) {
        self.receive((0..self.qps.len()).map(|nr| (nr, ack(FIRST_PSN))));
    }
}

fn completed(cq: &Cq) -> Vec<(Qpn, WcStatus)> {
    poll(cq).iter().map(|completion| (completion.qp_num, completion.status)).collect()
}

#[test]
fn acknowledgements_of_many_queue_pairs_complete_in_their_order() {
    let writers = Writers::new(40, 1, 64);
    let order: Vec<usize> = (0..40).rev().collect();
    writers.receive(order.iter().map(|nr| (*nr, ack(FIRST_PSN))));
    let expected: Vec<_> =
        order.iter().map(|nr| (writers.qps[*nr].qpn(), WcStatus::Success)).collect();
    assert_eq!(completed(&writers.cqs[0]), expected);
    assert_eq!(writers.end.device.bytes_in_flight(), (0, 0));
}

#[test]
fn other_completions_between_acknowledgements_find_the_queue_unlocked() {
    let writers = Writers::new(6, 1, 64);
    for nr in [1, 4] {
        writers.end.post_recv_on(writers.qps[nr], 9, &[writers.end.sge(0, 64)]);
    }
    let ack = |nr| (nr, ack(FIRST_PSN));
    writers.receive([
        ack(0),
        (1, part(Opcode::RcSendOnly, FIRST_PSN, &[1, 2, 3, 4])),
        ack(1),
        ack(2),
        // The receive of queue pair 4 is flushed.
        (4, nak(FIRST_PSN, NakCode::RemoteAccess)),
        ack(3),
        ack(5),
    ]);
    use WcStatus::{RemAccessErr, Success, WrFlushErr};
    let expected = [
        (0, Success),
        (1, Success),
        (1, Success),
        (2, Success),
        (4, RemAccessErr),
        (4, WrFlushErr),
    ]
    .into_iter()
    .chain([(3, Success), (5, Success)]);
    let expected: Vec<_> = expected.map(|(nr, status)| (writers.qps[nr].qpn(), status)).collect();
    assert_eq!(completed(&writers.cqs[0]), expected);
}

#[test]
fn queue_pairs_of_any_number_of_queues_complete_on_their_own() {
    let writers = Writers::new(21, 7, 64);
    writers.acknowledge_all();
    for (nr, cq) in writers.cqs.iter().enumerate() {
        let expected = [nr, nr + 7, nr + 14].map(|nr| (writers.qps[nr].qpn(), WcStatus::Success));
        assert_eq!(completed(cq), expected);
    }
}

#[test]
fn queue_pairs_whose_completions_found_the_queue_full_fail_and_no_others() {
    let writers = Writers::new(24, 1, 20);
    writers.acknowledge_all();
    for (nr, qp) in writers.qps.iter().enumerate() {
        let expected = if nr < 20 { QpState::Rts } else { QpState::Err };
        assert_eq!(writers.end.state(*qp), expected, "queue pair {nr}");
    }
    assert_eq!(completed(&writers.cqs[0]).len(), 20);
    assert!(writers.cqs[0].is_overrun());
}

/// One thread handles acknowledgements of all queue pairs, whose completions go to one queue.
/// Another thread locks queue pair after queue pair and completes to that queue as well. If each
/// waited for the other, neither would end.
#[test]
fn threads_that_complete_to_one_queue_do_not_deadlock() {
    const COUNT: usize = 120;
    const ROUNDS: usize = 200;
    let (done, all_done) = mpsc::channel();
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let writers = Writers::new(COUNT, 1, 256);
            let fail = |nr: usize| {
                let attr = state(QpState::Err);
                writers.end.modify(writers.qps[nr], &attr, QpAttrMask::STATE);
            };
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    writers.acknowledge_all();
                });
                start.wait();
                // The two threads meet at some queue pair.
                (0..COUNT).rev().skip(round % COUNT).for_each(fail);
            });
            assert_eq!(
                completed(&writers.cqs[0]).len(),
                COUNT,
                "each completes once, whichever thread was first"
            );
        }
        done.send(()).unwrap();
    });
    all_done.recv_timeout(Duration::from_secs(60)).expect("they wait for each other");
}
