//! Connecting, accepting and rejecting.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use urxe::cm::{self, ConnectError, Listener, Options, RejReason};
use urxe::sim::{DeviceOptions, Fabric};

use super::{Hosts, PORT, transfer};
use crate::common::LONG;

#[test]
fn both_ends_get_the_private_data_and_the_messages_of_the_other() {
    let hosts = Hosts::new(1);
    let listener = hosts.listener();
    assert_eq!(listener.local_addr(), hosts.to());
    let client = hosts.ask(&hosts.options().private_data(b"version 3"));
    let request = listener.wait(None).unwrap();
    assert!(request.peer_private_data().starts_with(b"version 3\0"));
    assert_eq!(request.peer_addr().ip().to_string(), "10.0.0.2");
    let answer = Options::new().private_data(b"welcome");
    let accepted = request.prepare(&answer).unwrap().establish().unwrap();
    let connected = pollster::block_on(client).unwrap();
    assert!(connected.peer_private_data().starts_with(b"welcome\0"));
    assert_eq!(connected.peer_addr(), hosts.to());
    assert_eq!(accepted.peer_addr(), connected.local_addr());
    assert_eq!(connected.peer_parameters().qpn, accepted.qp().qpn());
    transfer(&connected, &accepted, b"to the server");
    transfer(&accepted, &connected, b"to the client");
    // A REQ, a REP and an RTU, each 10 µs on its way, and as many packets of data.
    assert!(hosts.now() < Duration::from_micros(200), "{:?}", hosts.now());
}

#[test]
fn a_rejection_has_its_reason_and_its_data() {
    let hosts = Hosts::new(2);
    let listener = hosts.listener();
    let rejected = |client: cm::Establishing| match pollster::block_on(client).unwrap_err() {
        ConnectError::Rejected { peer, reason, peer_private_data } => {
            assert_eq!(peer, hosts.to());
            (reason, peer_private_data)
        }
        other => panic!("{other:?}"),
    };
    let client = hosts.ask(&hosts.options());
    listener.wait(None).unwrap().reject(b"not today").unwrap();
    let (reason, private_data) = rejected(client);
    assert_eq!(reason, RejReason::CONSUMER_DEFINED);
    assert!(private_data.starts_with(b"not today\0"));
    // A dropped request and a dropped listener reject as well.
    let client = hosts.ask(&hosts.options());
    drop(listener.wait(None).unwrap());
    assert_eq!(rejected(client).0, RejReason::CONSUMER_DEFINED);
    let client = hosts.ask(&hosts.options());
    hosts.fabric.run_for(Duration::from_millis(1)).unwrap();
    drop(listener);
    assert_eq!(rejected(client).0, RejReason::CONSUMER_DEFINED);
    // Nobody listens.
    let before = hosts.now();
    let client = hosts.ask(&hosts.options());
    assert_eq!(rejected(client).0, RejReason::INVALID_SERVICE_ID);
    assert_eq!(hosts.now() - before, Duration::from_micros(20), "one round trip");
}

#[test]
fn a_host_that_fills_the_backlog_leaves_another_one_a_share() {
    let hosts = Hosts::new(8);
    let listener =
        Listener::builder().device(&hosts.server).backlog(4).bind(("10.0.0.1", PORT)).unwrap();
    let flood: Vec<_> = (0..4).map(|_| hosts.ask(&hosts.options())).collect();
    hosts.fabric.run_for(Duration::from_millis(1)).unwrap();
    let other = hosts.fabric.device([10, 0, 0, 3]).unwrap();
    let client = hosts.ask(&Options::new().device(&other));
    // No request is repeated in this time.
    hosts.fabric.run_for(Duration::from_millis(1)).unwrap();
    let waiting: Vec<_> = std::iter::from_fn(|| listener.try_next()).collect();
    let of_other = |request: &&cm::ConnectRequest| {
        request.peer_addr().ip() == std::net::Ipv4Addr::new(10, 0, 0, 3)
    };
    assert_eq!((waiting.len(), waiting.iter().filter(of_other).count()), (4, 1));
    drop((flood, client));
}

#[test]
fn a_repeated_request_waits_for_room_in_the_backlog() {
    let hosts = Hosts::new(3);
    let listener =
        Listener::builder().device(&hosts.server).backlog(1).bind(("10.0.0.1", PORT)).unwrap();
    let [first, second] =
        [b"first ", b"second"].map(|data| hosts.ask(&hosts.options().private_data(data)));
    hosts.fabric.run_for(Duration::from_secs(1)).unwrap();
    let request = listener.try_next().unwrap();
    assert!(request.peer_private_data().starts_with(b"first"));
    assert!(listener.try_next().is_none(), "the backlog has room for one");
    let accepted = [request.accept().unwrap(), {
        let request = listener.wait(LONG).unwrap();
        assert!(request.peer_private_data().starts_with(b"second"));
        request.accept().unwrap()
    }];
    assert!(hosts.now() > Duration::from_secs(4), "the REQ was repeated: {:?}", hosts.now());
    let connected = [first, second].map(|client| pollster::block_on(client).unwrap());
    for (client, server) in connected.iter().zip(&accepted) {
        transfer(client, server, b"hello");
    }
}

#[test]
fn two_connections_and_two_ports_do_not_mix() {
    let hosts = Hosts::new(4);
    let third = hosts.fabric.device([10, 0, 0, 3]).unwrap();
    let listener = Listener::builder().device(&hosts.server).bind("0.0.0.0:0").unwrap();
    let other = hosts.listener();
    let to = SocketAddr::new([10, 0, 0, 1].into(), listener.local_addr().port());
    let from = |device, name: &[u8]| {
        let options = Options::new().device(device).private_data(name);
        cm::prepare(to, &options).unwrap().start().unwrap()
    };
    let clients = [from(&hosts.client, b"client"), from(&third, b"third ")];
    let accepted = [b"client", b"third "].map(|name| {
        let request = listener.wait(None).unwrap();
        assert!(request.peer_private_data().starts_with(name));
        request.accept().unwrap()
    });
    let connected = clients.map(|client| pollster::block_on(client).unwrap());
    transfer(&connected[1], &accepted[1], b"from the third");
    transfer(&connected[0], &accepted[0], b"from the client");
    assert!(other.try_next().is_none());
    let taken = Listener::builder().device(&hosts.server).bind(hosts.to()).unwrap_err();
    assert_eq!(taken.errno(), libc::EADDRINUSE, "{taken}");
    // Another host has ports of its own.
    Listener::builder().device(&third).bind(("10.0.0.3", PORT)).unwrap();
    // A device connects to itself, too.
    let own = Options::new().device(&hosts.server);
    let client = cm::prepare(hosts.to(), &own).unwrap().start().unwrap();
    let accepted = other.wait(None).unwrap().accept().unwrap();
    transfer(&pollster::block_on(client).unwrap(), &accepted, b"to myself");
}

async fn serve(listener: &Listener, clients: usize) {
    for _ in 0..clients {
        let pending = listener.next().await.unwrap().prepare(&Options::new()).unwrap();
        let connection = pending.await.unwrap();
        assert_eq!(connection.events().next().await, Ok(cm::ConnectionEvent::Disconnected));
    }
}

#[test]
fn tasks_of_one_thread_connect_and_close() {
    let run = |seed| {
        let hosts = Hosts::new(seed);
        let listener = hosts.listener();
        let executor = smol::LocalExecutor::new();
        smol::future::block_on(executor.run(async {
            let server = executor.spawn(serve(&listener, 3));
            for _ in 0..3 {
                let pending = cm::prepare(hosts.to(), &hosts.options()).unwrap();
                let connection = pending.await.unwrap();
                connection.close().await.unwrap();
            }
            server.await;
        }));
        (hosts.now(), hosts.fabric.trace_hash())
    };
    assert_eq!(run(5), run(5));
}

#[test]
fn in_manual_time_a_blocked_thread_connects_while_another_runs_the_fabric() {
    let hosts = Hosts::on(Fabric::manual(6), DeviceOptions::default());
    let listener = hosts.listener();
    std::thread::scope(|threads| {
        let server = threads.spawn(|| listener.wait(LONG).unwrap().accept().unwrap());
        let client =
            threads.spawn(|| cm::prepare(hosts.to(), &hosts.options()).unwrap().establish());
        let started = Instant::now();
        while !(server.is_finished() && client.is_finished()) {
            hosts.fabric.run_for(Duration::from_micros(10)).unwrap();
            assert!(started.elapsed() < LONG.unwrap(), "{:?}", hosts.now());
            std::thread::yield_now();
        }
        let (accepted, connected) = (server.join().unwrap(), client.join().unwrap().unwrap());
        assert_eq!(accepted.peer_addr(), connected.local_addr());
    });
}
