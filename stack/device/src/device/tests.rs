//! Properties that only the inside of a device shows. `tests/device` has the tests of its
//! interface.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use urxe_memory::{Access, Buffer};
use urxe_test_support::host::{A, B};
use urxe_test_support::packet::{Packet, write_only};
use urxe_test_support::qp::{CAP, FIRST_PSN, attributes, bring_up_by, request};
use urxe_test_support::wire::Wire;
use urxe_wire::{Gid, Msn, Opcode, PKey, Qpn, Rkey};

use super::counters::Counter;
use super::*;
use crate::cq::{Completion, CqRef};
use crate::path::acks::{Ack, AckBatch};
use crate::qp::QpInit;
use crate::qp::attr::{QpState, QpType};
use crate::qp::completion_batch::{BatchQueues, SendCompletions};
use crate::qp::work_request::SendOp;
use urxe_types::time::Time;

/// Returns a reliable queue pair that is connected to queue pair 7 of a peer.
fn connected(device: &Device, peer: Ipv4Addr) -> QpHandle {
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(8, None, 0).unwrap());
    let (qp_type, send_cq, recv_cq) = (QpType::Rc, Arc::clone(&cq), cq);
    let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap: CAP, sq_sig_all: true };
    let qp = device.create_qp(&init).unwrap();
    let attr = attributes(peer.into(), Qpn::masked(7));
    let modify = |attr: &_, mask| device.modify_qp(Time::ZERO, qp, attr, mask);
    bring_up_by(qp_type, &attr, QpState::Rts, modify).unwrap();
    qp
}

/// Returns a device with one connected queue pair that sends one message and misses one. Two
/// entries stand with its timers: one for the unacknowledged message and one for the missing one.
fn with_two_timers() -> Device {
    let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(A.into())], 1));
    let qp = connected(&device, B);
    device.post_send(Time::ZERO, qp, &[request(SendOp::Send, &[])]).unwrap();
    device.transmit_pending(Time::ZERO, &Wire::default());
    let write = write_only(FIRST_PSN.next().value(), 0, Rkey(0), &[]);
    let run = Packet::merge(B.into(), A.into(), [(qp.qpn(), write)]);
    device.receive(Time::ZERO, &run.datagrams(), &mut ReceiveScratch::default());
    device
}

/// Two threads handle timeouts, and each has taken one of the queue pair's two entries. In either
/// order, the queue pair keeps an entry.
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

/// A receiving thread takes the acknowledgement of a queue pair along. Before the thread leaves the
/// acknowledgement with the path, the queue pair is destroyed, and the path may lead to another
/// peer.
#[test]
fn an_acknowledgement_to_a_former_peer_is_dropped() {
    for reopened in [false, true] {
        let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(A.into())], 1));
        let qp = connected(&device, B);
        let (index, _) = device.with_qp(qp, |qp| qp.path.unwrap()).unwrap();
        let opened = device.path_at(index).opened(index);
        if reopened {
            device.destroy_qp(Time::ZERO, qp).unwrap();
            let other = connected(&device, Ipv4Addr::new(10, 0, 0, 3));
            let path = device.with_qp(other, |qp| qp.path.unwrap()).unwrap();
            assert_eq!(path.0, index, "the path is used again");
        }
        let ack = Ack {
            to: Qpn::masked(7),
            psn: FIRST_PSN,
            msn: Msn::masked(1),
            opcode: Opcode::RcAcknowledge,
            pkey: PKey::DEFAULT,
            mig_req: false,
        };
        let mut batch = AckBatch::default();
        batch.push(index, ack);
        device.mark_received(opened, &mut batch, false);
        let wire = Wire::default();
        device.transmit_pending(Time::ZERO, &wire);
        assert_eq!(wire.is_empty(), reopened);
        assert_eq!(device.counters().value(Counter::SendErr), u64::from(reopened));
    }
}

/// A thread that waits for a queue pair keeps no other thread from memory or a completion queue.
#[test]
fn released_locks_let_others_deregister_memory_and_add_completions() {
    let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(A.into())], 1));
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(8, None, 0).unwrap());
    let buffer = Arc::new(Buffer::new(4096).unwrap());
    let (lkey, cq_ref) = {
        let access = Access::LOCAL_WRITE;
        let mr = device.memory().register_buffer(pd, &buffer, 0..4096, 0, access).unwrap();
        (mr.lkey, CqRef::new(Arc::clone(&cq)).unwrap())
    };
    let queues = BatchQueues::default();
    let until = |condition: &dyn Fn() -> bool, within: Duration| {
        let begun = Instant::now();
        while !condition() && begun.elapsed() < within {
            thread::yield_now();
        }
        condition()
    };
    thread::scope(|threads| {
        let mut context = device.context(Time::ZERO, None);
        context.batched_cq.enable(&queues);
        context.pins.access(lkey.0, pd, Access::empty(), 0, 1).unwrap();
        SendCompletions::new(Some(&cq_ref), &context.batched_cq, Time::ZERO)
            .extend(Some(Completion::default()));
        let deregisters = threads.spawn(|| device.memory().deregister(lkey).unwrap());
        let completes = threads.spawn(|| cq.push(Completion::default(), false).unwrap());
        let one_has_ended = || deregisters.is_finished() || completes.is_finished();
        assert!(!until(&one_has_ended, Duration::from_millis(50)), "nothing was held");
        context.release_locks();
        let both_have_ended = || deregisters.is_finished() && completes.is_finished();
        assert!(until(&both_have_ended, Duration::from_secs(10)), "something is still held");
    });
}

#[test]
fn an_idle_queue_pair_is_small() {
    let size = size_of::<Qp>() + size_of::<QpSlot>();
    assert!(size < 2048, "{size} bytes");
}
