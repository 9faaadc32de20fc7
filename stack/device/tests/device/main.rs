//! Two devices joined by a wire without loss: every operation once. The fault simulation covers
//! loss and other faults.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use urxe_device::cq::{Completion, Cq, WcOpcode, WcStatus};
use urxe_device::device::counters::Counter;
use urxe_device::device::*;
use urxe_device::qp::QpInit;
use urxe_device::qp::attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_device::qp::work_request::{
    AhHandle, Destination, Payload, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_device::srq::Srq;
use urxe_memory::{Access, Buffer, Mr, PdId};
use urxe_test_support::host::{
    A, B, Host, HostOptions, assert_quiet, connect, connect_another, pair, pattern, poll, run,
};
use urxe_test_support::net::{start, to_qp};
use urxe_test_support::packet::Packet;
use urxe_test_support::qp::{self, REMOTE, address_vector, request, state};
use urxe_test_support::wire::{PacketRun, Wire};
use urxe_types::time::Time;
use urxe_wire::{Gid, Qpn, ROCE_PORT};

/// Asserts that a call is refused with an error that matches a pattern, and with this errno.
macro_rules! assert_refused {
    ($result:expr, $error:pat $(if $guard:expr)?, $errno:ident) => {
        let error = $result.unwrap_err();
        assert!(matches!(error, $error $(if $guard)?), "{error}");
        assert_eq!(error.errno(), libc::$errno);
    };
}

mod acks;
mod bounds;
mod bursts;
mod completions;
mod datagrams;
mod domains;
mod holes;
mod in_memory;
mod kernel_flaws;
mod keys;
mod limits;
mod paths;
mod peer;
mod port;
mod queues;
mod recovery;
mod reordering;
mod replies;
mod requester;
mod responder;
mod sends;
mod services;
mod source_ports;
mod srq;
mod turns;
mod xrc;

#[test]
fn every_operation_of_every_size_arrives() {
    let (a, b, wire) = pair();
    for size in [0usize, 1, 3, 1023, 1024, 1025, 5000, 200_000] {
        let data = pattern(size);
        a.write(0, &data);
        b.post_recv(9, &[b.sge(0, 1000), b.sge(2000, 300_000)]);
        let half = size as u32 / 2;
        a.post(
            SendOp::SendImm { imm: 0xdead },
            &[a.sge(0, half), a.sge(u64::from(half), size as u32 - half)],
        );
        run(&a, &b, &wire);
        let sent = a.completions();
        assert_eq!(sent.len(), 1, "size {size}");
        assert_eq!(
            (sent[0].wr_id, sent[0].status, sent[0].opcode),
            (7, WcStatus::Success, WcOpcode::Send)
        );
        let received = b.completions();
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].byte_len, received[0].imm_data()), (size as u32, Some(0xdead)));
        let mut got = b.bytes(0, size.min(1000));
        got.extend(b.bytes(2000, size - got.len()));
        assert_eq!(got, data, "size {size}");

        a.post(SendOp::Write { remote: b.remote(400_000) }, &[a.sge(0, size as u32)]);
        a.post(SendOp::Read { remote: b.remote(400_000) }, &[a.sge(700_000, size as u32)]);
        run(&a, &b, &wire);
        let done = a.completions();
        assert_eq!(
            done.iter().map(|c| c.opcode).collect::<Vec<_>>(),
            [WcOpcode::RdmaWrite, WcOpcode::RdmaRead]
        );
        assert!(done.iter().all(|c| c.status == WcStatus::Success));
        assert_eq!(b.bytes(400_000, size), data);
        assert_eq!(a.bytes(700_000, size), data);
    }
    assert_quiet(&a);
    assert_quiet(&b);
}

#[test]
fn atomics_return_the_old_value() {
    let (a, b, wire) = pair();
    b.write(64, &41u64.to_ne_bytes());
    a.post(SendOp::FetchAdd { remote: b.remote(64), add: 1 }, &[a.sge(0, 8)]);
    a.post(SendOp::CompareSwap { remote: b.remote(64), compare: 42, swap: 7 }, &[a.sge(8, 8)]);
    a.post(SendOp::CompareSwap { remote: b.remote(64), compare: 42, swap: 9 }, &[a.sge(16, 8)]);
    run(&a, &b, &wire);
    assert!(a.completions().iter().all(|c| c.status == WcStatus::Success));
    let old: Vec<u64> =
        a.bytes(0, 24).chunks(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect();
    assert_eq!(old, [41, 42, 7]);
    assert_eq!(b.bytes(64, 8), 7u64.to_ne_bytes());
    assert_quiet(&a);
}

#[test]
fn a_wrong_key_is_a_remote_access_error_and_flushes() {
    let (a, b, wire) = pair();
    b.post_recv(9, &[b.sge(0, 8)]);
    let remote = Remote { rkey: urxe_wire::Rkey(b.mr.rkey.0 ^ 1), ..b.remote(0) };
    a.post(SendOp::Write { remote }, &[a.sge(0, 5000)]);
    a.post(SendOp::Send, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    let statuses = a.statuses();
    assert_eq!(statuses, [WcStatus::RemAccessErr, WcStatus::WrFlushErr]);
    assert_eq!(a.state(a.qp), QpState::Err);
    assert_eq!(b.state(b.qp), QpState::Err);
    assert_eq!(b.completions()[0].status, WcStatus::WrFlushErr);
    assert_eq!(b.bytes(0, 5000), vec![0; 5000]);
    a.post(SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.completions()[0].status, WcStatus::WrFlushErr);
}

#[test]
fn destroying_frees_numbers_paths_and_the_domain() {
    let (a, opened) = source_ports::host(QpType::Rc);
    a.connect_qp(a.qp, Qpn::masked(7), B);
    assert_eq!(opened.take().len(), 1);
    assert!(matches!(
        a.device.dealloc_pd(a.pd),
        Err(DeallocPdError::Busy { qps: 1, srqs: 0, ahs: 0, holds: 0, mrs: 1, parents: 0 })
    ));
    a.device.destroy_qp(Time::ZERO, a.qp).unwrap();
    assert_eq!(a.device.destroy_qp(Time::ZERO, a.qp), Err(DestroyQpError::NoQp));
    assert!(a.device.query_qp(a.qp).is_none());
    a.connect_qp(a.create_qp(), Qpn::masked(7), B);
    assert_eq!(opened.take().len(), 1, "the path was gone, and is opened anew");
    let (a, ..) = pair();
    a.device.destroy_qp(Time::ZERO, a.qp).unwrap();
    a.device.memory().deregister(a.mr.lkey).unwrap();
    a.device.dealloc_pd(a.pd).unwrap();
}
