//! Options that affect packets and queue pairs: type of service and ACK timeout.
//!
//! As in the kernel, the REQ uses the options at the time of resolving the route. The timeout of
//! the own queue pair can change at any time.

use urxe_wire::Qpn;
use urxe_wire::mad::{CmMessage, Mad, PortSpace};

use super::two_hosts::TwoHosts;
use crate::cma::{CmaEventType, CmaId, ConnParam, EventParam, IdState, Route};
use urxe_types::attr::{PathMtu, QpState};

const TOS: u8 = 0x68;

/// Delivers all MADs, checks the traffic class in the REQ, and returns the traffic classes of the
/// MADs.
fn carry(hosts: &mut TwoHosts) -> Vec<u8> {
    let mut classes = Vec::new();
    hosts.run_inspected(|transmit| {
        classes.push(transmit.traffic_class);
        if let CmMessage::Req(req) = Mad::parse(&transmit.mad).unwrap().message {
            assert_eq!(req.primary_traffic_class, transmit.traffic_class);
        }
    });
    classes
}

/// Returns traffic class and timeout of one side's queue pair.
fn shown(hosts: &TwoHosts, is_a: bool, id: CmaId) -> (u8, u8) {
    let host = if is_a { &hosts.a } else { &hosts.b };
    let (rtr, _) = host.cma.qp_attr(id, QpState::Rtr).unwrap();
    let (rts, _) = host.cma.qp_attr(id, QpState::Rts).unwrap();
    (rtr.ah.traffic_class, rts.timeout)
}

/// The options of a connection's sides, and the time at which they are set.
struct Set {
    tos: u8,
    timeout: Option<u8>,
    /// Whether the options are set before the route is resolved.
    is_early: bool,
    /// Whether the listener has other options, and whether requests inherit them.
    listener: Option<bool>,
}

fn connected(set: &Set) -> ((u8, u8), (u8, u8), Vec<u8>) {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    if let Some(is_inherited) = set.listener {
        let options = hosts.b.cma.options_mut(listener).unwrap();
        (options.tos, options.ack_timeout, options.is_inherited) = (0x20, Some(9), is_inherited);
    }
    let active = hosts.a.id(PortSpace::TCP);
    hosts.a.resolve_addr(active, "10.0.0.2:9");
    let choose = |hosts: &mut TwoHosts| {
        let options = hosts.a.cma.options_mut(active).unwrap();
        (options.tos, options.ack_timeout) = (set.tos, set.timeout);
    };
    if set.is_early {
        choose(&mut hosts);
    }
    hosts.a.resolve_route(active);
    choose(&mut hosts);
    let param = ConnParam { qpn: Qpn::masked(7), ..ConnParam::default() };
    hosts.a.cma.connect(hosts.now, active, &param).unwrap();
    let mut classes = carry(&mut hosts);
    let passive = hosts.request();
    hosts.b.cma.accept(hosts.now, passive, &param).unwrap();
    classes.extend(carry(&mut hosts));
    hosts.a.expect(CmaEventType::ConnectResponse);
    hosts.a.cma.establish(hosts.now, active).unwrap();
    let ends = (shown(&hosts, true, active), shown(&hosts, false, passive));
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    classes.extend(carry(&mut hosts));
    (ends.0, ends.1, classes)
}

const NOTHING: Set = Set { tos: 0, timeout: None, is_early: true, listener: None };

#[test]
fn the_type_of_service_applies_to_both_sides_and_every_message() {
    assert_eq!(connected(&NOTHING), ((0, 17), (0, 17), vec![0; 4]));
    let set = Set { tos: TOS, ..NOTHING };
    assert_eq!(connected(&set), ((TOS, 17), (TOS, 17), vec![TOS; 4]));
    // The route has no type of service, regardless of later options.
    let set = Set { tos: TOS, is_early: false, ..NOTHING };
    assert_eq!(connected(&set), ((0, 17), (0, 17), vec![0; 4]));
}

#[test]
fn the_timeout_applies_locally_and_is_derived_for_the_peer() {
    // Both timeouts follow from half of the option. The acknowledgement delay of 15 is smaller than
    // 19, and larger than 9.
    for (timeout, peers) in [(19, 19), (9, 15)] {
        let set = Set { timeout: Some(timeout), ..NOTHING };
        assert_eq!(connected(&set), ((0, timeout), (0, peers), vec![0; 4]));
    }
    // The option is set too late for the peer.
    let set = Set { timeout: Some(19), is_early: false, ..NOTHING };
    assert_eq!(connected(&set), ((0, 19), (0, 17), vec![0; 4]));
    // An infinite timeout does not state a packet life time.
    let set = Set { timeout: Some(0), ..NOTHING };
    assert_eq!(connected(&set), ((0, 0), (0, 17), vec![0; 4]));
}

#[test]
fn a_listeners_options_apply_to_requests_only_if_inherited() {
    let set = Set { tos: TOS, listener: Some(false), ..NOTHING };
    assert_eq!(connected(&set), ((TOS, 17), (TOS, 17), vec![TOS; 4]));
    let set = Set { tos: TOS, listener: Some(true), ..NOTHING };
    assert_eq!(connected(&set), ((TOS, 17), (0x20, 9), vec![TOS; 4]));
}

#[test]
fn datagrams_use_the_type_of_service_of_their_route() {
    let mut hosts = TwoHosts::new();
    hosts.b.listen(PortSpace::UDP, "0.0.0.0:9", 0);
    let active = hosts.a.id(PortSpace::UDP);
    hosts.a.cma.options_mut(active).unwrap().tos = TOS;
    hosts.a.resolve_addr(active, "10.0.0.2:9");
    hosts.a.resolve_route(active);
    hosts.a.cma.connect(hosts.now, active, &ConnParam::default()).unwrap();
    assert_eq!(carry(&mut hosts), [TOS]);
    let passive = hosts.request();
    hosts.b.cma.accept(hosts.now, passive, &ConnParam::default()).unwrap();
    assert_eq!(carry(&mut hosts), [0], "who answers has no route");
    let EventParam::Ud(ud) = hosts.a.expect(CmaEventType::Established).param else { panic!() };
    assert_eq!(ud.ah.traffic_class, TOS);
}

#[test]
fn a_route_of_the_program_is_used_in_the_req() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let active = hosts.a.id(PortSpace::TCP);
    let route = Route { traffic_class: TOS, packet_life_time: 12, path_mtu: PathMtu::Mtu512 };
    assert!(hosts.a.cma.set_route(active, route).is_err(), "it has no address");
    hosts.a.resolve_addr(active, "10.0.0.2:9");
    hosts.a.cma.set_route(active, route).unwrap();
    assert_eq!(hosts.a.expect(CmaEventType::RouteResolved).status, 0);
    assert_eq!(hosts.a.cma.state(active), Some(IdState::RouteResolved));
    assert!(hosts.a.cma.set_route(active, route).is_err(), "it has a route");
    assert_eq!(hosts.a.cma.route(active).unwrap(), (TOS, 12));
    assert_eq!(hosts.a.cma.path_mtu(active).unwrap(), PathMtu::Mtu512);
    let param = ConnParam { qpn: Qpn::masked(7), ..ConnParam::default() };
    hosts.a.cma.connect(hosts.now, active, &param).unwrap();
    assert_eq!(carry(&mut hosts), [TOS]);
    let passive = hosts.request();
    hosts.accept(passive, &param);
    hosts.a.expect(CmaEventType::ConnectResponse);
    // The round trip compared with the acknowledgement delay of 15.
    assert_eq!(shown(&hosts, false, passive), (TOS, 15));
    for (host, id) in [(&hosts.a, active), (&hosts.b, passive)] {
        assert_eq!(host.cma.qp_attr(id, QpState::Rtr).unwrap().0.path_mtu, PathMtu::Mtu512);
    }
    hosts.destroy([active], [passive, listener]);
    hosts.assert_empty();
}
