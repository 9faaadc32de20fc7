//! What only the inside of a device shows. What its users see is tested from outside, in
//! `tests/device`.

use std::net::{IpAddr, Ipv4Addr};

use urxe_wire::{Bth, Ext, Gid, IcrcSeed, Opcode, PacketRepr, Psn, ROCE_PORT, Reth, Rkey};

use super::counters::Counter;
use super::*;
use crate::qp::QpInit;
use crate::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use crate::qp::transition;
use crate::qp::wr::{Destination, Payload, SendFlags, SendOp, SendRequest};
use urxe_types::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_types::time::Time;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Counts the runs that are sent.
#[derive(Default)]
struct Sent(Mutex<usize>);

impl Transmit for Sent {
    fn transmit(&self, _run: &Run<'_>) -> SendOutcome {
        *lock(&self.0) += 1;
        SendOutcome::Sent
    }
}

/// A device with one connected queue pair that sends one message and misses one: two entries stand
/// with its timers, one for what is not acknowledged and one for what is missing.
fn with_two_timers() -> Device {
    let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(OWN)], 1));
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(8, None, 0).unwrap());
    let init = QpInit {
        qp_type: QpType::Rc,
        pd,
        send_cq: Arc::clone(&cq),
        recv_cq: cq,
        srq: None,
        cap: QpCap { max_send_wr: 1, ..QpCap::default() },
        sq_sig_all: true,
    };
    let qp = device.create_qp(&init).unwrap();
    let attr = QpAttr {
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        ah: AddressVector {
            dgid: Gid::from_ip(PEER),
            is_global: true,
            port_num: 1,
            ..AddressVector::default()
        },
        ..QpAttr::default()
    };
    let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
    for step in states.windows(2) {
        let mask = transition::attributes(step[0], step[1], QpType::Rc).unwrap().required;
        let attr = QpAttr { qp_state: step[1], ..attr };
        device.modify_qp(Time::ZERO, qp, &attr, mask | QpAttrMask::STATE).unwrap();
    }
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        to: Destination::Peer,
        flags: SendFlags::empty(),
        payload: Payload::Sges(&[]),
    };
    device.post_send(Time::ZERO, qp, &[request]).unwrap();
    device.transmit_pending(Time::ZERO, &Sent::default());

    let reth = Ext::Reth(Reth { va: 0, rkey: Rkey(0), dma_len: 0 });
    let bth = Bth::new(Opcode::RcWriteOnly, qp.qpn(), Psn::new(1));
    let mut bytes = [0; 64];
    let end = PacketRepr::new(bth, reth).emit(&[], &mut bytes).unwrap();
    let seed = IcrcSeed::new(PEER, ROCE_PORT, OWN, ROCE_PORT).unwrap();
    let segment_size = seed.append(0, &mut bytes, end).unwrap();
    let datagrams = Datagrams {
        from: PEER,
        from_port: ROCE_PORT,
        to: OWN,
        bytes: &bytes[..segment_size],
        segment_size,
        traffic_class: 0,
        hop_limit: 64,
    };
    device.receive(Time::ZERO, &datagrams, &mut ReceiveScratch::default());
    device
}

/// Two threads see to timeouts, and each has taken one of the queue pair's two entries: whichever
/// comes first to the queue pair, it is looked at again.
#[test]
fn timeouts_that_two_threads_have_taken_leave_no_queue_pair_without_a_clock() {
    for reversed in [false, true] {
        let device = with_two_timers();
        let (mut now, mut taken) = (Time::ZERO, Vec::new());
        while taken.len() < 2 {
            now = device.next_deadline().unwrap();
            taken.extend(device.timers.take_due(now));
        }
        if reversed {
            taken.reverse();
        }
        for (at, index) in taken {
            device.on_timer_entry(now, at, index);
        }
        assert_eq!(device.counters().value(Counter::SendSeqErr), 1, "the gap was asked for");
        let sent = Sent::default();
        device.transmit_pending(now, &sent);
        assert!(*lock(&sent.0) > 0, "which is a NAK at least");
        assert!(
            device.next_deadline().is_some(),
            "nothing tells when it is not acknowledged either, reversed: {reversed}"
        );
    }
}

#[test]
fn an_idle_queue_pair_is_small() {
    let size = size_of::<Qp>() + size_of::<QpSlot>();
    assert!(size < 2048, "{size} bytes");
}
