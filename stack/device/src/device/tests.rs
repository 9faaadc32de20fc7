//! What only the inside of a device shows. What its users see is tested from outside, in
//! `tests/device`.

use urxe_test_support::host::{A, B};
use urxe_test_support::packet::{Packet, write_only};
use urxe_test_support::qp::{CAP, FIRST_PSN, attributes, bring_up_by, request};
use urxe_test_support::wire::Wire;
use urxe_wire::{Gid, Qpn, Rkey};

use super::counters::Counter;
use super::*;
use crate::qp::QpInit;
use crate::qp::attr::{QpState, QpType};
use crate::qp::wr::SendOp;
use urxe_types::time::Time;

/// A device with one connected queue pair that sends one message and misses one: two entries stand
/// with its timers, one for what is not acknowledged and one for what is missing.
fn with_two_timers() -> Device {
    let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(A.into())], 1));
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(8, None, 0).unwrap());
    let (qp_type, send_cq, recv_cq) = (QpType::Rc, Arc::clone(&cq), cq);
    let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap: CAP, sq_sig_all: true };
    let qp = device.create_qp(&init).unwrap();
    let attr = attributes(B.into(), Qpn::masked(7));
    let modify = |attr: &_, mask| device.modify_qp(Time::ZERO, qp, attr, mask);
    bring_up_by(qp_type, &attr, QpState::Rts, modify).unwrap();
    device.post_send(Time::ZERO, qp, &[request(SendOp::Send, &[])]).unwrap();
    device.transmit_pending(Time::ZERO, &Wire::default());
    let write = write_only(FIRST_PSN.next().value(), 0, Rkey(0), &[]);
    let run = Packet::merge(B.into(), A.into(), [(qp.qpn(), write)]);
    device.receive(Time::ZERO, &run.datagrams(), &mut ReceiveScratch::default());
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
        let wire = Wire::default();
        device.transmit_pending(now, &wire);
        assert!(!wire.is_empty(), "which is a NAK at least");
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
