//! Acknowledgements of queue pairs whose packets came in one run: they leave their queue pairs and
//! wait at the path.

use urxe_wire::{Bth, Ext, IcrcSeed, Opcode, PacketRepr, PacketView, Psn, Reth};

use super::*;

const FIRST_PSN: Psn = Psn::new(0xff_fffe);

/// A device with some queue pairs, all connected to numbers from 0x1000 on at one peer, which the
/// test is.
struct Many {
    end: End,
    qps: Vec<QpHandle>,
    wire: Wire,
}

fn number(nr: usize) -> Qpn {
    Qpn::masked(0x1000 + nr as u32)
}

impl Many {
    fn new(count: usize) -> Self {
        let end = End::new(A, 1);
        let qps: Vec<_> = (0..count).map(|_| create_qp(&end.device, end.pd, &end.cq)).collect();
        for (nr, qp) in qps.iter().enumerate() {
            end.connect_qp(*qp, number(nr), B);
        }
        let many = Self { end, qps, wire: Wire::default() };
        assert!(many.sent().is_empty());
        many
    }

    /// WRITEs of four bytes come in one run: for which queue pair, the how manieth packet to it,
    /// and whether it asks for an answer.
    fn receive(&self, writes: &[(usize, u32, bool)]) {
        let seed = IcrcSeed::new(B.into(), ROCE_PORT, A.into(), ROCE_PORT).unwrap();
        let (mut run, mut segment_size) = (Vec::new(), 0);
        for (segment, (nr, n, ack_req)) in writes.iter().enumerate() {
            let reth = Reth { va: self.end.mr.iova, rkey: self.end.mr.rkey, dma_len: 4 };
            let mut bth = Bth::new(Opcode::RcWriteOnly, self.qps[*nr].qpn(), FIRST_PSN.add(*n));
            bth.ack_req = *ack_req;
            let mut bytes = [0; 100];
            let end = PacketRepr::new(bth, Ext::Reth(reth)).emit(&[1; 4], &mut bytes).unwrap();
            segment_size = seed.append(segment as u16, &mut bytes, end).unwrap();
            run.extend(&bytes[..segment_size]);
        }
        let datagrams = Datagrams {
            from: B.into(),
            from_port: ROCE_PORT,
            to: A.into(),
            bytes: &run,
            segment_size,
            traffic_class: 0,
            hop_limit: 64,
        };
        self.end.device.receive(Time::ZERO, &datagrams, &mut ReceiveScratch::default());
    }

    /// The runs that are sent now: of each packet, for which queue pair it is and which packet it
    /// acknowledges.
    fn sent(&self) -> Vec<Vec<(usize, u32)>> {
        self.end.device.transmit_pending(Time::ZERO, &self.wire);
        let seed = IcrcSeed::new(A.into(), ROCE_PORT, B.into(), ROCE_PORT).unwrap();
        let runs: Vec<_> = lock(&self.wire.0).drain(..).collect();
        let of = |packet: &[u8], segment: usize| {
            let view = PacketView::parse(packet).unwrap();
            assert_eq!(view.opcode(), Opcode::RcAcknowledge);
            assert_eq!(seed.icrc(segment as u16, true, &packet[..packet.len() - 4]), view.icrc());
            ((view.dest_qp().value() - 0x1000) as usize, view.psn().steps_from(FIRST_PSN))
        };
        let packets = |run: &Packets| {
            run.bytes
                .chunks(run.segment_size)
                .enumerate()
                .map(|(segment, packet)| of(packet, segment))
                .collect()
        };
        runs.iter().map(packets).collect()
    }

    fn modify(&self, qp: QpHandle, state: QpState) {
        let attr = QpAttr { qp_state: state, ..QpAttr::default() };
        self.end.device.modify_qp(Time::ZERO, qp, &attr, QpAttrMask::STATE).unwrap();
    }
}

#[test]
fn those_of_one_run_leave_in_one_run() {
    let many = Many::new(4);
    many.receive(&[(0, 0, true), (1, 0, true), (2, 0, false), (3, 0, true)]);
    assert_eq!(many.sent(), [[(0, 0), (1, 0), (3, 0)]]);
    assert!(many.sent().is_empty(), "once");
}

#[test]
fn a_queue_pair_that_comes_up_twice_in_a_run_acknowledges_once() {
    let many = Many::new(2);
    many.receive(&[(0, 0, true), (1, 0, true), (0, 1, true), (1, 1, true), (0, 2, true)]);
    assert_eq!(many.sent(), [[(0, 2), (1, 1)]]);
}

#[test]
fn a_run_for_one_queue_pair_leaves_its_acknowledgement_there_until_later_ones_take_its_place() {
    let many = Many::new(1);
    many.receive(&[(0, 0, true), (0, 1, true)]);
    many.receive(&[(0, 2, true)]);
    assert_eq!(many.sent(), [[(0, 2)]]);
}

#[test]
fn what_was_executed_is_acknowledged_whatever_becomes_of_the_queue_pair() {
    let many = Many::new(2);
    many.receive(&[(0, 0, true), (1, 0, true)]);
    many.modify(many.qps[0], QpState::Err);
    assert_eq!(many.sent(), [[(0, 0), (1, 0)]]);
}

#[test]
fn a_path_that_nobody_uses_any_more_forgets_its_acknowledgements() {
    let many = Many::new(2);
    many.receive(&[(0, 0, true), (1, 0, true)]);
    for qp in &many.qps {
        many.end.device.destroy_qp(Time::ZERO, *qp).unwrap();
    }
    let other = create_qp(&many.end.device, many.end.pd, &many.end.cq);
    // Takes the free path over.
    many.end.connect_qp(other, number(7), Ipv4Addr::new(10, 0, 0, 3));
    assert!(many.sent().is_empty());
}

#[test]
fn as_many_as_a_system_call_is_worth_wait_for_nothing() {
    let many = Many::new(40);
    let run: Vec<_> = (0..40).map(|nr| (nr, 0, true)).collect();
    many.receive(&run[..20]);
    many.end.device.transmit_urgent(Time::ZERO, &many.wire);
    assert!(lock(&many.wire.0).is_empty());
    many.receive(&run[20..]);
    many.end.device.transmit_urgent(Time::ZERO, &many.wire);
    assert_eq!(lock(&many.wire.0).len(), 1);
}
