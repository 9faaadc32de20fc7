//! Acknowledgements of many queue pairs in one run: whose completions go where, in which order, and
//! who waits for whom.

use std::sync::{Barrier, mpsc};
use std::time::Duration;

use urxe_wire::{Aeth, Bth, Ext, IcrcSeed, Msn, NakCode, Opcode, PacketRepr, Psn, Syndrome};

use super::*;

/// A packet of a run, for a queue pair: all of one length.
enum Packet {
    Ack(usize),
    Nak(usize, NakCode),
    /// Four bytes.
    Send(usize),
}

const FIRST_PSN: Psn = Psn::new(0xff_fffe);

fn run(qps: &[QpHandle], packets: &[Packet]) -> Packets {
    let seed = IcrcSeed::new(B.into(), ROCE_PORT, A.into(), ROCE_PORT).unwrap();
    let mut bytes = Vec::new();
    for (place, packet) in packets.iter().enumerate() {
        let answer = |nr: usize, syndrome| {
            let bth = Bth::new(Opcode::RcAcknowledge, qps[nr].qpn(), FIRST_PSN);
            (PacketRepr::new(bth, Ext::Aeth(Aeth { syndrome, msn: Msn::masked(0) })), &[][..])
        };
        let (repr, payload) = match *packet {
            Packet::Ack(nr) => answer(nr, Syndrome::ACK),
            Packet::Nak(nr, code) => answer(nr, Syndrome::Nak(code)),
            Packet::Send(nr) => {
                let bth = Bth::new(Opcode::RcSendOnly, qps[nr].qpn(), FIRST_PSN);
                (PacketRepr::new(bth, Ext::None), &[1, 2, 3, 4][..])
            }
        };
        let mut packet = [0; 64];
        let end = repr.emit(payload, &mut packet).unwrap();
        let len = seed.append(place as u16, &mut packet, end).unwrap();
        bytes.extend_from_slice(&packet[..len]);
    }
    Packets { from: B.into(), to: A.into(), segment_size: bytes.len() / packets.len(), bytes }
}

/// Queue pairs with a WRITE under way each, which report to `cqs` in turn.
struct Writers {
    end: End,
    qps: Vec<QpHandle>,
    cqs: Vec<Arc<Cq>>,
}

impl Writers {
    fn new(count: usize, queues: usize, entries: u32) -> Self {
        let end = End::new(A, 1);
        let cqs: Vec<_> =
            (0..queues).map(|_| end.device.create_cq(entries, None, 0).unwrap()).collect();
        let qps: Vec<_> =
            (0..count).map(|nr| create_qp(&end.device, end.pd, &cqs[nr % queues])).collect();
        for (nr, qp) in qps.iter().enumerate() {
            end.connect_qp(*qp, Qpn::masked(0x1000 + nr as u32), B);
            let sges = [end.sge(0, 1)];
            let request = SendRequest {
                wr_id: 1,
                op: SendOp::Write { remote: end.remote(0) },
                to: Destination::Peer,
                flags: SendFlags::SIGNALED,
                payload: Payload::Sges(&sges),
            };
            end.device.post_send(Time::ZERO, *qp, &[request]).unwrap();
        }
        end.device.transmit_pending(Time::ZERO, &Wire::default());
        Self { end, qps, cqs }
    }

    fn receive(&self, packets: &[Packet]) {
        let run = run(&self.qps, packets);
        self.end.device.receive(Time::ZERO, &run.arrived(), &mut ReceiveScratch::default());
    }

    fn acknowledge_all(&self) {
        self.receive(&(0..self.qps.len()).map(Packet::Ack).collect::<Vec<_>>());
    }
}

fn told(cq: &Cq) -> Vec<(Qpn, WcStatus)> {
    let mut out = [Completion::default(); 256];
    let count = cq.poll(&mut out).unwrap();
    out[..count].iter().map(|completion| (completion.qp_num, completion.status)).collect()
}

#[test]
fn acknowledgements_of_many_queue_pairs_complete_in_their_order() {
    let writers = Writers::new(40, 1, 64);
    let order: Vec<usize> = (0..40).rev().collect();
    writers.receive(&order.iter().map(|nr| Packet::Ack(*nr)).collect::<Vec<_>>());
    let expected: Vec<_> =
        order.iter().map(|nr| (writers.qps[*nr].qpn(), WcStatus::Success)).collect();
    assert_eq!(told(&writers.cqs[0]), expected);
    assert_eq!(writers.end.device.bytes_in_flight(), (0, 0));
}

#[test]
fn what_else_completes_among_them_finds_the_queue_unlocked() {
    let writers = Writers::new(6, 1, 64);
    let sge = [writers.end.sge(0, 64)];
    for nr in [1, 4] {
        let receive = RecvRequest { wr_id: 9, sges: &sge };
        writers.end.device.post_recv(Time::ZERO, writers.qps[nr], &[receive]).unwrap();
    }
    writers.receive(&[
        Packet::Ack(0),
        Packet::Send(1),
        Packet::Ack(1),
        Packet::Ack(2),
        // The receive of queue pair 4 is flushed.
        Packet::Nak(4, NakCode::RemoteAccess),
        Packet::Ack(3),
        Packet::Ack(5),
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
    assert_eq!(told(&writers.cqs[0]), expected);
}

#[test]
fn queue_pairs_of_any_number_of_queues_complete_on_their_own() {
    let writers = Writers::new(21, 7, 64);
    writers.acknowledge_all();
    for (nr, cq) in writers.cqs.iter().enumerate() {
        let expected = [nr, nr + 7, nr + 14].map(|nr| (writers.qps[nr].qpn(), WcStatus::Success));
        assert_eq!(told(cq), expected);
    }
}

#[test]
fn those_whose_completions_found_the_queue_full_fail_and_no_others() {
    let writers = Writers::new(24, 1, 20);
    writers.acknowledge_all();
    for (nr, qp) in writers.qps.iter().enumerate() {
        let expected = if nr < 20 { QpState::Rts } else { QpState::Err };
        assert_eq!(writers.end.device.query_qp(*qp).unwrap().qp_state, expected, "queue pair {nr}");
    }
    assert_eq!(told(&writers.cqs[0]).len(), 20);
    assert!(writers.cqs[0].is_overrun());
}

/// One thread takes acknowledgements of all queue pairs, whose completions go to one queue; another
/// holds queue pair after queue pair and completes to that queue as well. If one waited for the
/// other and the other for it, neither would come to an end.
#[test]
fn nobody_waits_for_who_waits_for_him() {
    const COUNT: usize = 120;
    const ROUNDS: usize = 200;
    let (done, all_done) = mpsc::channel();
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let writers = Writers::new(COUNT, 1, 256);
            let fail = |nr: usize| {
                let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
                writers
                    .end
                    .device
                    .modify_qp(Time::ZERO, writers.qps[nr], &attr, QpAttrMask::STATE)
                    .unwrap();
            };
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    writers.acknowledge_all();
                });
                start.wait();
                // The two meet, here or there.
                (0..COUNT).rev().skip(round % COUNT).for_each(fail);
            });
            assert_eq!(told(&writers.cqs[0]).len(), COUNT, "each is told once, whoever was first");
        }
        done.send(()).unwrap();
    });
    all_done.recv_timeout(Duration::from_secs(60)).expect("they wait for each other");
}
