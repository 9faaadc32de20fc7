//! Listeners: wildcards, ports and waiting requests.

use urxe::cm::{self, Listener, Options};
use urxe::*;

use crate::cm::{address, client, connecting, device, listener};
use crate::common::LONG;

#[test]
fn each_listener_with_port_0_gets_a_free_port() {
    let device = device(40, 1);
    let listeners: Vec<_> =
        (0..20).map(|_| Listener::builder().device(&device).bind("0.0.0.0:0").unwrap()).collect();
    let mut ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 20);
    assert!(ports.iter().all(|port| *port != 0));
}

#[test]
fn an_ipv6_wildcard_listens_on_ipv4_unless_excluded() {
    let device = device(41, 1);
    let options = client(41);
    let both = Listener::builder().device(&device).bind("[::]:0").unwrap();
    let connecting = connecting((address(41, 1), both.local_addr().port()).into(), options.clone());
    let request = both.wait(LONG).unwrap();
    assert_eq!(request.local_addr().ip().to_canonical(), address(41, 1));
    let accepted = request.accept().unwrap();
    connecting.join().unwrap().unwrap();
    drop(accepted);
    let only = Listener::builder().device(&device).only_own_family().bind("[::]:0").unwrap();
    let to = (address(41, 1), only.local_addr().port());
    let refused = cm::prepare(to, &options).unwrap().establish().unwrap_err();
    assert_eq!(refused.errno(), libc::ECONNREFUSED, "{refused}");
}

#[test]
fn ipv6_connects() {
    let device = Device::open_address(std::net::Ipv6Addr::LOCALHOST).unwrap();
    let listener = Listener::builder().device(&device).bind("[::1]:0").unwrap();
    let connecting = connecting(listener.local_addr(), Options::new().device(&device));
    let accepted = listener.wait(LONG).unwrap().accept().unwrap();
    let connected = connecting.join().unwrap().unwrap();
    assert_eq!(connected.local_addr(), accepted.peer_addr());
    assert!(connected.local_addr().is_ipv6());
}

#[test]
fn requests_beyond_the_backlog_are_repeated() {
    let device = device(42, 1);
    let listener =
        Listener::builder().device(&device).backlog(1).bind((address(42, 1), 0)).unwrap();
    let options = client(42);
    let connecting: Vec<_> =
        (0..3).map(|_| connecting(listener.local_addr(), options.clone())).collect();
    let accepted: Vec<_> =
        listener.incoming().take(3).map(|request| request.unwrap().accept().unwrap()).collect();
    for connecting in connecting {
        connecting.join().unwrap().unwrap();
    }
    assert_eq!(accepted.len(), 3);
}

#[test]
fn the_source_may_be_chosen() {
    let listener = listener(43);
    let options = client(43).source((address(43, 2), 40_001));
    let connecting = connecting(listener.local_addr(), options);
    let request = listener.wait(LONG).unwrap();
    assert_eq!(request.peer_addr(), (address(43, 2), 40_001).into());
    request.accept().unwrap();
    connecting.join().unwrap().unwrap();
}

#[test]
fn a_listener_keeps_its_device() {
    let device = device(44, 1);
    let listener = Listener::builder().device(&device).bind((address(44, 1), 0)).unwrap();
    drop(device);
    let connecting = connecting(listener.local_addr(), client(44));
    let request = listener.wait(LONG).unwrap();
    drop(listener);
    let accepted = request.accept().unwrap();
    connecting.join().unwrap().unwrap();
    assert_eq!(accepted.device().name(), "rxe0");
}
