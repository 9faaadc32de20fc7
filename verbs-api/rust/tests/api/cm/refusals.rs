//! Connections that fail, and their errors.

use std::time::{Duration, Instant};

use urxe::cm::PathErrorReason;
use urxe::cm::{self, ConnectError, ListenError, Listener, Options, RejReason};
use urxe::*;

use crate::cm::{address, client, connecting, device, listener};
use crate::common::{LONG, says};

#[test]
fn a_port_without_a_listener_is_reported() {
    let _there = device(20, 1);
    let error = cm::prepare((address(20, 1), 9), &client(20)).unwrap().establish().unwrap_err();
    assert!(
        matches!(&error, ConnectError::Rejected { reason: RejReason::INVALID_SERVICE_ID, .. }),
        "{error:?}"
    );
    assert_eq!(error.errno(), libc::ECONNREFUSED);
    assert_eq!(
        error.to_string(),
        "127.50.20.1:9 refused the connection: invalid service id; \
         no program listens on port 9 there"
    );
}

#[test]
fn a_refusal_brings_private_data() {
    let listener = listener(21);
    let connecting = connecting(listener.local_addr(), client(21));
    listener.wait(LONG).unwrap().reject(b"not today").unwrap();
    match connecting.join().unwrap().unwrap_err() {
        ConnectError::Rejected { reason: RejReason::CONSUMER_DEFINED, peer_private_data, peer } => {
            assert_eq!(peer_private_data.len(), cm::REJECT_DATA_MAX);
            assert!(peer_private_data.starts_with(b"not today\0"));
            assert_eq!(peer, listener.local_addr());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn dropped_requests_are_rejected() {
    // The device stays open, so clients still get an answer after the listener is dropped.
    let kept = device(22, 1);
    let listener = Listener::builder().device(&kept).bind((address(22, 1), 0)).unwrap();
    let options = client(22);
    let to = listener.local_addr();
    let is_refusal = |error: ConnectError| {
        matches!(error, ConnectError::Rejected { reason: RejReason::CONSUMER_DEFINED, .. })
    };
    let first = connecting(to, options.clone());
    drop(listener.wait(LONG).unwrap());
    assert!(is_refusal(first.join().unwrap().unwrap_err()));
    let second = connecting(to, options.clone());
    drop(listener.wait(LONG).unwrap().prepare(&Options::new()).unwrap());
    assert!(is_refusal(second.join().unwrap().unwrap_err()));
    // A request that waits when the listener is dropped.
    let third = cm::prepare(to, &options).unwrap().start().unwrap();
    while listener.try_next().map(drop).is_none() {}
    let fourth = cm::prepare(to, &options).unwrap().start().unwrap();
    drop(listener);
    assert!(is_refusal(pollster::block_on(third).unwrap_err()));
    assert!(pollster::block_on(fourth).is_err());
}

#[test]
fn a_silent_peer_is_reported() {
    // The address belongs to this host, but to no device.
    let options = client(23).timeout(Duration::from_millis(300));
    let error = cm::prepare((address(23, 9), 7471), &options).unwrap().establish().unwrap_err();
    assert_eq!(error.errno(), libc::ETIMEDOUT, "{error}");
    let likely = "; the likely reason: no process listens on UDP port 4791 of 127.50.23.9 (ICMP: \
                  port unreachable)";
    assert_eq!(
        error.to_string(),
        format!("127.50.23.9:7471 has not answered within 300ms{likely}")
    );
    // In a task, the error comes from the connection manager.
    let error =
        pollster::block_on(cm::prepare((address(23, 9), 7471), &options).unwrap().into_future());
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("127.50.23.9:7471 does not answer{likely}"));
    let resolving = cm::resolve((address(23, 9), 7471), &options).unwrap();
    says(&resolving.wait().unwrap_err(), likely);
}

#[test]
fn an_icmp_error_ends_no_attempt() {
    let client = device(29, 2);
    let options = Options::new().device(&client).timeout(Duration::from_secs(8));
    let to = (address(29, 1), 7471);
    let start = Instant::now();
    let connecting = cm::prepare(to, &options).unwrap().start().unwrap();
    let refused = || client.path_error(address(29, 1).into(), start.elapsed());
    while refused().is_none() {
        assert!(start.elapsed() < LONG.unwrap(), "no ICMP error");
    }
    assert_eq!(refused().unwrap().reason, PathErrorReason::PortUnreachable);
    // The next repetition of the request finds the listener.
    let there = device(29, 1);
    let listener = Listener::builder().device(&there).bind(to).unwrap();
    let accepting = std::thread::spawn(move || listener.wait(LONG).unwrap().accept().unwrap());
    pollster::block_on(connecting).unwrap();
    accepting.join().unwrap();
}

#[test]
fn without_icmp_errors_the_reason_is_unknown() {
    let device = Device::builder().icmp_errors(false).open_address(address(30, 2)).unwrap();
    let options = Options::new().device(&device).timeout(Duration::from_millis(200));
    let error = cm::prepare((address(30, 9), 7471), &options).unwrap().establish().unwrap_err();
    assert_eq!(error.to_string(), "127.50.30.9:7471 has not answered within 200ms");
    assert_eq!(device.path_error(address(30, 9).into(), Duration::MAX), None);
}

#[test]
fn no_device_leads_there() {
    // A documentation address (RFC 5737). A route to it does not start at the loopback device.
    let error = cm::prepare("192.0.2.1:7471", &client(24)).unwrap_err();
    assert!(
        matches!(error, ConnectError::NoDevice { .. } | ConnectError::NoRoute { .. }),
        "{error:?}"
    );
    let other_family =
        cm::prepare("[::1]:7471", &client(25).source_ip(address(25, 2))).unwrap_err();
    assert_eq!(other_family.errno(), libc::EINVAL, "{other_family}");
}

#[test]
fn a_port_is_taken_by_one() {
    let (first, second) = (device(26, 1), device(26, 1));
    let port = Listener::builder().device(&first).bind((address(26, 1), 0)).unwrap();
    // The second device stands for another process.
    for device in [&first, &second] {
        let error = Listener::builder().device(device).bind(port.local_addr()).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error:?}");
        assert_eq!(error.errno(), libc::EADDRINUSE);
        says(&error, "choose another, or 0 for any");
    }
    let addr = port.local_addr();
    drop(port);
    Listener::builder().device(&second).bind(addr).unwrap();
}

#[test]
fn addresses_to_listen_on_are_a_devices() {
    let device = device(27, 1);
    let of = |addr: &str| Listener::builder().device(&device).bind(addr).unwrap_err();
    let error = of("127.50.27.77:7471");
    assert!(matches!(error, ListenError::NoDevice { .. }), "{error:?}");
    assert_eq!(error.errno(), libc::ENODEV);
    says(&error, "urxe link add");
    assert_eq!(of("192.0.2.1:7471").errno(), libc::EADDRNOTAVAIL);
    assert!(matches!(of("nothing"), ListenError::Address(_)));
}

#[test]
fn options_out_of_range_are_named() {
    let there = (address(28, 1), 7471);
    let options = client(28);
    let of = |options: Options| cm::prepare(there, &options).unwrap_err().to_string();
    assert_eq!(of(options.clone().retry_count(8)), "retry_count is 8, at most 7 is allowed");
    assert_eq!(
        of(options.clone().initiator_depth(200)),
        "initiator_depth is 200, at most 128 is allowed"
    );
    assert_eq!(
        of(options.clone().private_data(&[0; cm::CONNECT_DATA_MAX + 1])),
        "57 bytes of private data exceed the maximum of 56 bytes"
    );
    let other = device(28, 3).alloc_pd().unwrap();
    assert_eq!(
        of(options.pd(&other)),
        "the protection domain and the route to 127.50.28.1 belong to different devices"
    );
}
