//! The events of a device whose interface goes down and up, and whose addresses are removed and
//! added. Also tests that hosts made of network namespaces stay apart.
//!
//! Needs root in its own network namespace, and `ip` (iproute2):
//!
//! ```text
//! sudo unshare --net cargo test -p urxe-stack --test interface_changes -- --ignored
//! unshare --map-root-user --net cargo test -p urxe-stack --test interface_changes -- --ignored
//! ```
//!
//! A veth pair stands for a cable. Its other end has no address; taking that end down removes the
//! carrier.

mod endpoint;
mod ipv6;
mod veth;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use urxe_stack::cq::PortEventType;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::OperState;
use urxe_test_support::namespace::ip;
use urxe_wire::{Gid, Qpn};

use crate::endpoint::Endpoint;
use crate::veth::{
    FIRST, GID_CHANGE, NEW, SECOND, Veth, add, addresses, del, expect_events, index_of, open,
    open_with,
};

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_port_follows_the_interface_and_its_carrier() {
    let _cable = Veth::new();
    let engine = open("here");
    assert_eq!(engine.port_state(), OperState::Up);
    assert!(engine.device().is_port_active());
    ip("link set there down");
    expect_events(&engine, &[PortEventType::PortErr]);
    assert_eq!(engine.port_state(), OperState::NoCarrier);
    assert!(!engine.device().is_port_active());
    ip("link set there up");
    expect_events(&engine, &[PortEventType::PortActive]);
    ip("link set here down");
    expect_events(&engine, &[PortEventType::PortErr]);
    assert_eq!(engine.port_state(), OperState::Disabled);
    ip("link set here up");
    expect_events(&engine, &[PortEventType::PortActive]);
    assert!(engine.device().is_port_active());
    assert_eq!(engine.device().events().next_event(), None);
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_gid_table_follows_the_addresses() {
    let _cable = Veth::new();
    let engine = open("here");
    let by_mac = addresses(&engine)[0];
    let (first, second, new) = (Some(FIRST.into()), Some(SECOND.into()), Some(NEW.into()));
    assert_eq!(addresses(&engine), [by_mac, first, second]);
    add(NEW);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), [by_mac, first, second, new]);
    assert_eq!(
        engine.gids().iter().map(|entry| entry.assigned).collect::<Vec<_>>(),
        [false, true, true, true]
    );
    del(SECOND);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), [by_mac, first, None, new]);
    add(SECOND);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), [by_mac, first, second, new]);
    assert!(engine.device().is_port_active());
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_device_of_one_address_reports_changes_of_that_address_only() {
    let _cable = Veth::new();
    let engine = open(&FIRST.to_string());
    del(SECOND);
    add(NEW);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(engine.device().events().next_event(), None);
    del(FIRST);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), [None; 4]);
    add(FIRST);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), [Some(FIRST.into()); 4]);
}

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_new_address_sends_and_receives_at_once_and_again_when_it_comes_back() {
    let _cable = Veth::new();
    comes_goes_and_comes_back([FIRST, SECOND, NEW].map(IpAddr::from));
}

/// One device is on the first address. Another follows the interface and has the second address.
/// The first sends to a new address of the second: within the process, and over sockets.
fn comes_goes_and_comes_back(addresses: [IpAddr; 3]) {
    ip("link set lo up");
    for direct in [true, false] {
        comes_goes_and_comes_back_over(direct, addresses);
        del(addresses[2]);
    }
}

fn comes_goes_and_comes_back_over(direct: bool, [first, second, new]: [IpAddr; 3]) {
    let open = |source: &str| open_with(source, EngineConfig { direct, ..EngineConfig::default() });
    let (follower, other) = (open("here"), open(&first.to_string()));
    assert_ne!(follower.process_slot(), other.process_slot());
    let [here, there] = [Endpoint::new(&follower), Endpoint::new(&other)];
    let both_ways = || {
        here.post_recv();
        there.send(0, &here, new, b"hello");
        assert_eq!(here.receive(TIMEOUT), Some((first, new, b"hello".to_vec())));
        there.post_recv();
        here.send(index_of(&follower, new), &there, first, b"welcome");
        assert_eq!(there.receive(TIMEOUT), Some((new, first, b"welcome".to_vec())));
    };
    if direct {
        add(new);
        expect_events(&follower, &GID_CHANGE);
    } else {
        // A thread that slept before the address was added receives there.
        std::thread::scope(|threads| {
            here.post_recv();
            let sleeper = threads.spawn(|| {
                let never = EventFd::new().unwrap();
                let end = follower.now().plus_ns(TIMEOUT.as_nanos() as u64);
                follower.wait(never.as_fd(), end, &mut || !here.cq.is_empty())
            });
            std::thread::sleep(Duration::from_millis(100));
            add(new);
            expect_events(&follower, &GID_CHANGE);
            let sent = Instant::now();
            there.send(0, &here, new, b"good morning");
            assert_eq!(sleeper.join().unwrap(), Ok(true));
            assert!(
                sent.elapsed() < TIMEOUT / 2,
                "it slept on, and found the message at its deadline"
            );
            assert_eq!(here.receive(TIMEOUT), Some((first, new, b"good morning".to_vec())));
        });
    }
    both_ways();
    del(new);
    expect_events(&follower, &GID_CHANGE);
    // The address is missing now, and everything else still works.
    here.post_recv();
    there.send(0, &here, new, b"gone");
    assert_eq!(here.receive(Duration::from_millis(200)), None);
    there.send(0, &here, second, b"still here");
    assert_eq!(here.receive(TIMEOUT), Some((first, second, b"still here".to_vec())));
    add(new);
    expect_events(&follower, &GID_CHANGE);
    both_ways();
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn groups_are_joined_from_an_address_that_came_later() {
    let _cable = Veth::new();
    let engine = open("here");
    let endpoint = Endpoint::new(&engine);
    let attach = |group: IpAddr| engine.device().attach_mcast(endpoint.qp, Gid::from_ip(group));
    let of_ipv6: IpAddr = "ff15::4d43".parse().unwrap();
    assert_eq!(attach(of_ipv6).unwrap_err().errno(), libc::EINVAL, "it has no address of IPv6");
    ip("address add fd99::1/64 dev here nodad");
    expect_events(&engine, &GID_CHANGE);
    attach(of_ipv6).unwrap();
    engine.device().detach_mcast(endpoint.qp, Gid::from_ip(of_ipv6)).unwrap();
    // The first addresses are removed, so only the new one is left to join from.
    for (change, address) in [("del", SECOND), ("del", FIRST), ("add", NEW)] {
        ip(&format!("address {change} {address}/24 dev here"));
        expect_events(&engine, &GID_CHANGE);
    }
    let group = Ipv4Addr::new(239, 99, 0, 1);
    attach(group.into()).unwrap();
    endpoint.post_recv();
    endpoint.send_to(index_of(&engine, NEW), Qpn::MULTICAST, group, b"to all");
    assert_eq!(endpoint.receive(TIMEOUT), Some((NEW.into(), group.into(), b"to all".to_vec())));
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_new_address_that_another_process_has_with_the_same_slot_is_listed_and_not_assigned() {
    let _cable = Veth::new();
    ip(&format!("address add {NEW}/24 dev lo"));
    ip("link set lo up");
    // Both have slot 0, each on its own addresses.
    let (follower, other) = (open("here"), open(&NEW.to_string()));
    assert_eq!((follower.process_slot(), other.process_slot()), (0, 0));
    add(NEW);
    expect_events(&follower, &GID_CHANGE);
    assert_eq!(addresses(&follower)[3], Some(NEW.into()));
    assert!(!follower.gids()[3].assigned);
    ip(&format!("address del {NEW}/24 dev lo"));
}

/// Opens devices in a new namespace that has a loopback interface only.
fn open_elsewhere(devices: usize) -> Vec<Engine> {
    let opened = std::thread::spawn(move || {
        // SAFETY: only this thread and the sockets that it opens move to another network; no
        // descriptors change.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may make namespaces");
        ip("link set lo up");
        (0..devices).map(|_| open("127.0.0.1")).collect()
    });
    opened.join().unwrap()
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn hosts_made_of_namespaces_do_not_meet_within_their_process() {
    let (here, there) = (open_elsewhere(2), open_elsewhere(2));
    fn endpoints(engines: &[Engine]) -> Vec<Endpoint<'_>> {
        engines.iter().map(Endpoint::new).collect()
    }
    let (here, there) = (endpoints(&here), endpoints(&there));
    let address = Ipv4Addr::LOCALHOST;
    for listener in here.iter().chain(&there) {
        listener.post_recv();
    }
    here[0].send(0, &there[0], address, b"stray");
    here[0].send(0, &there[1], address, b"stray");
    here[0].send(0, &here[1], address, b"neighbour");
    let received = here[1].receive(Duration::from_secs(30)).expect("the one next to it");
    assert_eq!(received, (address.into(), address.into(), b"neighbour".to_vec()));
    for host in &there {
        assert!(host.receive(Duration::from_millis(300)).is_none(), "another host");
    }
    let directly = |endpoint: &Endpoint<'_>| -> u64 {
        endpoint.engine.ports().map(|port| port.counters().sent_directly).sum()
    };
    assert_eq!(directly(&here[0]), 1, "to the neighbour");
}
