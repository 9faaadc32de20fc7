//! Listeners: several tasks, dropped futures, peers without rsockets and slow handshakes.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use urxe::cm::{self, ConnectError, Listener, Options, RejReason};
use urxe::sim::Fabric;
use urxe::stream::{RdmaStream, StreamError};
use urxe_rsocket::protocol::connect::ConnData;

use super::{client, eventually, listener, pair_of, reason, simulated};
use crate::cm::{address, device};
use crate::common::LONG;

#[test]
fn many_clients_connect_at_the_same_time() {
    let listener = listener(120);
    let builder = client(120);
    let clients: Vec<_> = (0..40u8)
        .map(|number| {
            let connect = builder.clone().connect(listener.local_addr());
            thread::spawn(move || {
                let stream = connect.wait().unwrap();
                stream.blocking().write_all(&[number]).unwrap();
                let mut echo = [0];
                stream.blocking().read_exact(&mut echo).unwrap();
                assert_eq!(echo, [number]);
                stream.blocking().shutdown().unwrap();
            })
        })
        .collect();
    let serve = || {
        for _ in 0..20 {
            let (stream, peer) = pollster::block_on(listener.accept()).unwrap();
            assert_eq!(stream.peer_addr(), peer);
            let mut byte = [0];
            stream.blocking().read_exact(&mut byte).unwrap();
            stream.blocking().write_all(&byte).unwrap();
            stream.blocking().shutdown().unwrap();
        }
    };
    // Two tasks accept.
    thread::scope(|scope| {
        scope.spawn(serve);
        scope.spawn(serve);
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn a_dropped_accept_loses_no_stream() {
    let listener = listener(121);
    let connect = client(121).connect(listener.local_addr());
    let connecting = thread::spawn(|| connect.wait());
    // Each future is dropped after one poll.
    let mut accepted = None;
    eventually(|| {
        let mut accept = pin!(listener.accept());
        let polled = accept.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(outcome) = polled {
            accepted = Some(outcome.unwrap().0);
        }
        accepted.is_some()
    });
    let connected = connecting.join().unwrap().unwrap();
    connected.blocking().write_all(b"x").unwrap();
    accepted.unwrap().blocking().read_exact(&mut [0]).unwrap();
}

/// Returns the private data of a stream that lends no memory.
fn offer() -> ConnData {
    ConnData::parse(&[1; 40]).unwrap()
}

/// A peer that never completes its handshake does not delay the next one. In a simulated network,
/// the answer to its request is lost.
#[test]
fn a_handshake_that_hangs_delays_no_other() {
    let fabric = Fabric::new(3);
    let ([here, there], to) = simulated(&fabric);
    let gone = fabric.device([10, 0, 0, 3]).unwrap();
    let listener = RdmaStream::builder().device(&here).bind(to).unwrap();
    let private_data = offer().to_bytes();
    let options = Options::new().device(&gone).private_data(&private_data);
    let hanging = cm::prepare(to, &options).unwrap().start().unwrap();
    fabric.run_for(std::time::Duration::from_micros(50)).unwrap();
    let pause = std::time::Duration::from_secs(3600);
    fabric.pause(&gone, urxe::sim::PausedPackets::Drop, pause).unwrap();
    let connect = RdmaStream::builder().device(&there).connect(to);
    let (accepted, connected) = smol::block_on(smol::future::zip(listener.accept(), connect));
    assert_eq!(accepted.unwrap().1.ip(), connected.unwrap().local_addr().ip());
    drop(hanging);
}

#[test]
fn a_request_without_an_rsocket_is_rejected() {
    let listener = listener(123);
    let to = listener.local_addr();
    let options = Options::new().device(&device(123, 2));
    let mut later = offer().to_bytes();
    // A version that does not exist.
    later[0] = 2;
    let requests = [b"".to_vec(), b"GET / HTTP/1.1".to_vec(), later.to_vec()];
    let rejected = thread::spawn(move || {
        requests.map(|data| {
            let options = options.clone().private_data(&data);
            cm::prepare(to, &options).unwrap().establish().unwrap_err()
        })
    });
    // A stream after them is accepted.
    let errors = loop {
        let waited = listener.wait(Some(std::time::Duration::from_millis(20)));
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
        if rejected.is_finished() {
            break rejected.join().unwrap();
        }
    };
    for error in errors {
        let ConnectError::Rejected { reason, .. } = error else { panic!("{error}") };
        assert_eq!(reason, RejReason::CONSUMER_DEFINED);
    }
    pair_of(&listener, client(123));
}

#[test]
fn a_server_without_an_rsocket_is_an_error() {
    let here = device(124, 1);
    let listener = Listener::builder().device(&here).bind((address(124, 1), 0)).unwrap();
    let to = listener.local_addr();
    let connect = client(124).connect(to);
    let connecting = thread::spawn(|| connect.wait().unwrap_err());
    let _accepted = listener.wait(LONG).unwrap().accept();
    let error = connecting.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(reason(&error), StreamError::NoStream { peer: to });
}

#[test]
fn errors_of_connecting_and_listening_have_their_kinds() {
    // The device stays open after the listener.
    let here = device(125, 1);
    let listener = RdmaStream::builder().device(&here).bind((address(125, 1), 0).into()).unwrap();
    let to = listener.local_addr();
    let error = RdmaStream::builder().device(&device(125, 3)).bind(to).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
    drop(listener);
    let error = client(125).connect(to).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    let timeout = std::time::Duration::from_millis(100);
    let connect = client(125).timeout(timeout).connect((address(125, 9), 7471).into());
    assert_eq!(connect.wait().unwrap_err().kind(), ErrorKind::TimedOut);
}
