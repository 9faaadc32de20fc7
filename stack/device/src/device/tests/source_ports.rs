//! Where packets come from, when the peer's address has many processes: a port for each.

use urxe_wire::{IcrcSeed, IcrcSolver, IcrcVerdict, PacketView, QKey};

use super::*;
use crate::device::qpn::{MANAGEMENT_SLOT, SLOT_SHIFT, peer_slot};

const FIRST: u16 = 50_000;

/// The port tells the slot.
struct BySlot;

impl SourcePorts for BySlot {
    fn source_port(&self, _local: IpAddr, peer_slot: u8) -> u16 {
        FIRST + u16::from(peer_slot)
    }
}

/// The source port and the destination of each packet, whose ICRC was made for that port.
#[derive(Default)]
struct Ports(Mutex<Vec<(u16, Qpn)>>);

impl Transmit for Ports {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let seed = IcrcSeed::new(run.from, run.from_port, run.to, ROCE_PORT).unwrap();
        for (index, bytes) in run.bytes.chunks(run.segment_size).enumerate() {
            let verdict = seed.verify(&mut IcrcSolver::default(), bytes, index as u16);
            assert!(matches!(verdict, IcrcVerdict::Exact { .. }), "{verdict:?}");
            lock(&self.0).push((run.from_port, PacketView::parse(bytes).unwrap().dest_qp()));
        }
        SendOutcome::Sent
    }
}

fn end() -> End {
    let mut end = End::new(A, 1);
    let config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    end.device = Device::new(DeviceConfig { source_ports: Box::new(BySlot), ..config });
    end.pd = end.device.alloc_pd().unwrap();
    end.cq = end.device.create_cq(64, None, 0).unwrap();
    end
}

fn of_slot(slot: u32, number: u32) -> Qpn {
    Qpn::masked(slot << SLOT_SHIFT | number)
}

fn datagram_qp(end: &End) -> QpHandle {
    let cap = QpCap { max_send_wr: 16, max_send_sge: 1, max_inline_data: 64, ..QpCap::default() };
    let init = QpInit {
        qp_type: QpType::Ud,
        pd: end.pd,
        send_cq: Arc::clone(&end.cq),
        recv_cq: Arc::clone(&end.cq),
        srq: None,
        cap,
        sq_sig_all: true,
    };
    let qp = end.device.create_qp(&init).unwrap();
    let bits = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
    let steps = [
        (QpState::Init, bits),
        (QpState::Rtr, QpAttrMask::STATE),
        (QpState::Rts, QpAttrMask::STATE),
    ];
    for (qp_state, mask) in steps {
        let mask = if qp_state == QpState::Rts { mask | QpAttrMask::SQ_PSN } else { mask };
        let attr = QpAttr { qp_state, port_num: 1, qkey: QKey(7), ..QpAttr::default() };
        end.device.modify_qp(Time::ZERO, qp, &attr, mask).unwrap();
    }
    qp
}

fn address(of: IpAddr) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ip(of),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    }
}

#[test]
fn datagrams_to_each_process_of_a_peer_come_from_a_port_of_their_own() {
    let end = end();
    let qp = datagram_qp(&end);
    let ah = end.device.create_ah(end.pd, &address(B.into())).unwrap();
    let to = [
        of_slot(3, 9),
        of_slot(5, 9),
        of_slot(3, 8),
        of_slot(0, 2),
        Qpn::QP1,
        of_slot(63, 1),
        of_slot(5, 9),
    ];
    let requests = to.map(|qpn| SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        to: Destination::Datagram { ah, qpn, qkey: QKey(7) },
        flags: SendFlags::INLINE,
        payload: Payload::Inline(&[b"to one of many"]),
    });
    end.device.post_send(Time::ZERO, qp, &requests).unwrap();
    let ports = Ports::default();
    end.device.transmit_pending(Time::ZERO, &ports);
    let sent = std::mem::take(&mut *lock(&ports.0));
    assert_eq!(sent.iter().map(|(_, qpn)| *qpn).collect::<Vec<_>>(), to);
    for (port, qpn) in sent {
        assert_eq!(port, FIRST + u16::from(peer_slot(qpn)), "{qpn}");
    }
    assert_eq!(peer_slot(Qpn::QP1), MANAGEMENT_SLOT);
    // They are opened once, and go with the handle.
    assert_eq!(lock(&end.device.control).paths.len(), 5);
    end.device.destroy_ah(ah).unwrap();
    assert!(lock(&end.device.control).paths.is_empty());
}

#[test]
fn a_group_is_one_destination_although_its_number_looks_like_a_slot() {
    let end = end();
    let qp = datagram_qp(&end);
    let ah = end.device.create_ah(end.pd, &address(Ipv4Addr::new(239, 1, 2, 3).into())).unwrap();
    let to = Destination::Datagram { ah, qpn: Qpn::MULTICAST, qkey: QKey(7) };
    let payload = Payload::Inline(&[b"to all"]);
    let request = SendRequest { wr_id: 1, op: SendOp::Send, to, flags: SendFlags::INLINE, payload };
    end.device.post_send(Time::ZERO, qp, &[request]).unwrap();
    let ports = Ports::default();
    end.device.transmit_pending(Time::ZERO, &ports);
    assert_eq!(*lock(&ports.0), [(FIRST, Qpn::MULTICAST)]);
    assert_eq!(lock(&end.device.control).paths.len(), 1);
}

#[test]
fn connections_to_each_process_of_a_peer_have_a_port_of_their_own() {
    let end = end();
    for slot in [0, 7, 63] {
        let qp = create_qp(&end.device, end.pd, &end.cq);
        end.connect_qp(qp, of_slot(slot, 1234), B);
    }
    let control = lock(&end.device.control);
    let mut slots: Vec<u8> = control.paths.keys().map(|key| key.peer_slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 7, 63]);
}
