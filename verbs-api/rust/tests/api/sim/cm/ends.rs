//! The ends of connections: disconnecting, closing, dropping, and hosts that disappear.

use std::time::Duration;

use urxe::cm::{self, CloseError, ConnectError, ConnectionEvent};
use urxe::sim::{DeviceOptions, Fabric, PausedPackets};
use urxe::{Access, Data, RecvRequest, SendRequest, WaitError, WcStatus};

use super::{ALL_REQUESTS, Hosts, transfer};
use crate::common::{LONG, status};

#[test]
fn both_ends_learn_that_one_disconnects_and_later_that_timewait_ends() {
    let hosts = Hosts::new(1);
    let (accepted, connected) = hosts.connect(&hosts.listener());
    connected.disconnect();
    for end in [&accepted, &connected] {
        assert_eq!(end.events().wait(None).unwrap(), ConnectionEvent::Disconnected);
        assert_eq!(end.events().wait(None).unwrap(), ConnectionEvent::TimewaitExit);
    }
    assert!(hosts.now() > Duration::from_millis(100), "{:?}", hosts.now());
    // No timer is left.
    assert_eq!(connected.events().wait(None), Err(WaitError::Quiet));
}

#[test]
fn closing_and_dropping_lose_no_acknowledged_message() {
    let hosts = Hosts::new(2);
    let listener = hosts.listener();
    let (accepted, connected) = hosts.connect(&listener);
    let inbox = accepted.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    accepted.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    connected.qp().post_send(&SendRequest::send(Data::inline(b"the last words"))).unwrap();
    connected.close().wait(None).unwrap();
    assert_eq!(accepted.recv_cq().wait_one(None).unwrap().byte_len, 14);

    // A message that was posted before the end leaves first, as over UDP.
    let (accepted, connected) = hosts.connect(&listener);
    let inbox = accepted.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    accepted.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    connected.qp().post_send(&SendRequest::send(Data::inline(b"last"))).unwrap();
    connected.disconnect();
    assert_eq!(accepted.recv_cq().wait_one(None).unwrap().byte_len, 4);
    assert_eq!(accepted.events().wait(None).unwrap(), ConnectionEvent::Disconnected);

    // The receiver drops its end at once. The sender has the acknowledgement nevertheless.
    let (accepted, connected) = hosts.connect(&listener);
    let inbox = accepted.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    accepted.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    connected.qp().post_send(&SendRequest::send(Data::inline(b"bye")).signaled()).unwrap();
    assert_eq!(accepted.recv_cq().wait_one(None).unwrap().byte_len, 3);
    drop(accepted);
    assert_eq!(status(connected.send_cq()), WcStatus::Success);
    assert_eq!(connected.events().wait(None).unwrap(), ConnectionEvent::Disconnected);
}

#[test]
fn a_send_fails_after_eight_ack_timeouts_if_the_host_of_its_peer_vanished() {
    let hosts = Hosts::new(9);
    let (_accepted, connected) = hosts.connect(&hosts.listener());
    hosts.fabric.pause(&hosts.server, PausedPackets::Drop, Duration::from_secs(3600)).unwrap();
    let before = hosts.now();
    connected.qp().post_send(&SendRequest::send(Data::inline(b"?"))).unwrap();
    assert_eq!(status(connected.send_cq()), WcStatus::RetryExcErr);
    // 4.096 µs · 2^17 each.
    let (waited, expected) = (hosts.now() - before, Duration::from_nanos(8 * (4096 << 17)));
    assert!((expected..expected + expected / 8).contains(&waited), "{waited:?}");
}

#[test]
fn closing_reports_a_peer_that_is_gone() {
    let hosts = Hosts::new(3);
    let (_accepted, connected) = hosts.connect(&hosts.listener());
    hosts.fabric.pause(&hosts.server, PausedPackets::Drop, Duration::from_secs(1000)).unwrap();
    let before = hosts.now();
    let error = connected.close().wait(None).unwrap_err();
    assert_eq!(error, CloseError::Unconfirmed { peer: hosts.to() });
    assert_eq!(hosts.now() - before, ALL_REQUESTS);
}

#[test]
fn a_stopped_host_answers_when_it_resumes() {
    let hosts = Hosts::new(4);
    let listener = hosts.listener();
    let stop = Duration::from_secs(3);
    hosts.fabric.pause(&hosts.server, PausedPackets::Hold, stop).unwrap();
    let client = hosts.ask(&hosts.options());
    let accepted = listener.wait(None).unwrap().accept().unwrap();
    assert!(hosts.now() >= stop && hosts.now() < Duration::from_secs(4), "{:?}", hosts.now());
    transfer(&pollster::block_on(client).unwrap(), &accepted, b"awake");
}

#[test]
fn a_closed_device_answers_no_request() {
    let Hosts { fabric, server, client } = Hosts::new(5);
    drop(server);
    let options = cm::Options::new().device(&client);
    let error = cm::prepare("10.0.0.1:7471", &options).unwrap().establish().unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert_eq!(fabric.now().as_ns(), ALL_REQUESTS.as_nanos() as u64);
}

#[test]
fn keep_alive_finds_that_the_peer_is_gone() {
    let period = Duration::from_secs(2);
    let options = DeviceOptions::new().keep_alive(period);
    let hosts = Hosts::on(Fabric::new(6), options);
    let (accepted, _connected) = hosts.connect(&hosts.listener());
    assert_eq!(accepted.events().wait(LONG), Err(WaitError::TimedOut), "the peer answers");
    hosts.fabric.pause(&hosts.client, PausedPackets::Drop, Duration::from_secs(1000)).unwrap();
    let before = hosts.now();
    assert_eq!(accepted.events().wait(LONG).unwrap(), ConnectionEvent::Disconnected);
    let passed = hosts.now() - before;
    assert!(passed <= period + Duration::from_secs(6), "{passed:?}");
}
