//! Interfaces that go down and up, addresses that are removed and added.

use std::net::Ipv4Addr;

use super::*;
use crate::link::interface::InterfaceIp;
use crate::link::interface::tests::{MAC, ethernet};
use crate::link::{LinkSpec, resolve_on};

fn interface(addresses: &[[u8; 4]], state: OperState) -> Interface {
    let ip =
        |octets: &[u8; 4]| InterfaceIp { address: Ipv4Addr::from(*octets).into(), prefix_len: 24 };
    Interface { state, addresses: addresses.iter().map(ip).collect(), ..ethernet("eth0", MAC) }
}

const ONE: [u8; 4] = [10, 0, 0, 1];
const TWO: [u8; 4] = [10, 0, 0, 2];
const NEW: [u8; 4] = [10, 0, 0, 3];
const NEWER: [u8; 4] = [10, 0, 0, 4];

fn port(source: &str) -> PortState {
    let spec: LinkSpec = format!("rxe0={source}").parse().unwrap();
    PortState::new(&resolve_on(&spec, &[interface(&[ONE, TWO], OperState::Up)]).unwrap())
}

/// Refreshes on a machine where no new address gets a port.
fn refresh(port: &mut PortState, interfaces: &[Interface]) -> Changed {
    port.refresh(interfaces, |_| false)
}

/// Returns the table's addresses; `None` for an empty entry.
fn table(port: &PortState) -> Vec<Option<IpAddr>> {
    port.gids().iter().map(|entry| (!entry.gid.is_zero()).then(|| entry.gid.to_ip())).collect()
}

fn some(octets: [u8; 4]) -> Option<IpAddr> {
    Some(Ipv4Addr::from(octets).into())
}

const NOTHING: Changed = Changed { active: false, gids: false };
const ACTIVE: Changed = Changed { active: true, gids: false };
const GIDS: Changed = Changed { active: false, gids: true };

#[test]
fn going_down_and_up_changes_the_state_and_nothing_else() {
    let mut port = port("eth0");
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::Up)]), NOTHING);
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::NoCarrier)]), ACTIVE);
    assert_eq!(port.state(), OperState::NoCarrier);
    // Both states are down.
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::Disabled)]), NOTHING);
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::Up)]), ACTIVE);
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::Up)]), NOTHING);
}

#[test]
fn an_address_keeps_its_place_while_it_is_away() {
    let mut port = port("eth0");
    let from_mac = table(&port)[0];
    assert_eq!(table(&port), [from_mac, some(ONE), some(TWO)]);
    assert_eq!(refresh(&mut port, &[interface(&[TWO], OperState::Up)]), GIDS);
    assert_eq!(table(&port), [from_mac, None, some(TWO)]);
    assert_eq!(refresh(&mut port, &[interface(&[TWO, ONE], OperState::Up)]), GIDS);
    assert_eq!(table(&port), [from_mac, some(ONE), some(TWO)]);
    assert!(!port.gids()[0].assigned && port.gids()[1].assigned && port.gids()[2].assigned);
}

#[test]
fn a_new_address_gets_a_place_that_is_not_assigned() {
    let mut port = port("eth0");
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO, NEW], OperState::Up)]), GIDS);
    assert_eq!((table(&port)[3], port.gids()[3].assigned), (some(NEW), false));
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO], OperState::Up)]), GIDS);
    assert_eq!(table(&port)[3], None);
    // Its entry is free for the next address; the entries of the first addresses are not.
    assert_eq!(refresh(&mut port, &[interface(&[TWO, NEWER], OperState::Up)]), GIDS);
    assert_eq!(table(&port)[1..], [None, some(TWO), some(NEWER)]);
}

#[test]
fn a_new_address_is_assigned_once_it_has_a_port() {
    let mut port = port("eth0");
    let with_new = [interface(&[ONE, TWO, NEW], OperState::Up)];
    assert_eq!(port.refresh(&with_new, |_| false), GIDS);
    let mut asked = Vec::new();
    let opens = |address| {
        asked.push(address);
        true
    };
    assert_eq!(port.refresh(&with_new, opens), GIDS);
    assert!(port.gids()[3].assigned);
    assert_eq!(asked, [some(NEW).unwrap()]);
    // It still has the port when it comes back.
    let never = |address| panic!("{address} has a port");
    assert_eq!(port.refresh(&[interface(&[ONE, TWO], OperState::Up)], never), GIDS);
    assert!(!port.gids()[3].assigned);
    assert_eq!(port.refresh(&with_new, never), GIDS);
    assert!(port.gids()[3].assigned);
}

#[test]
fn a_device_of_an_address_follows_that_address_only() {
    let mut port = port("10.0.0.1");
    assert_eq!(refresh(&mut port, &[interface(&[ONE, TWO, NEW], OperState::Up)]), NOTHING);
    assert_eq!(refresh(&mut port, &[interface(&[TWO], OperState::Up)]), GIDS);
    assert_eq!(table(&port), [None; 4]);
    assert_eq!(refresh(&mut port, &[interface(&[ONE], OperState::Up)]), GIDS);
    assert_eq!(table(&port), [some(ONE); 4]);
}

#[test]
fn an_interface_that_is_gone_is_down_and_has_no_address() {
    let mut port = port("eth0");
    let other = Interface { index: 8, ..interface(&[ONE], OperState::Up) };
    assert_eq!(refresh(&mut port, &[other]), Changed { active: true, gids: true });
    assert_eq!((port.state(), table(&port)), (OperState::Disabled, vec![None; 3]));
}

#[test]
fn the_table_ends() {
    let mut port = port("eth0");
    let many: Vec<_> = (0..300_u16).map(|n| [10, 1, (n / 200) as u8, (n % 200) as u8]).collect();
    assert_eq!(refresh(&mut port, &[interface(&many, OperState::Up)]), GIDS);
    assert_eq!(port.gids().len(), MAX_GIDS);
}
