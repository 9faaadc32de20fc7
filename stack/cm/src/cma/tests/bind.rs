//! Binding, resolving and event channels.

use urxe_wire::mad::{PortSpace, RejReason, ServiceId};

use super::two_hosts::{Host, TwoHosts};
use crate::cma::{CmaEventType, ConnParam, IdState};
use urxe_types::sync::{Arc, lock};
use urxe_types::wake::NoWake;

fn errno(result: Result<(), crate::cma::CmaError>) -> i32 {
    result.map_or_else(|error| error.errno(), |()| 0)
}

#[test]
fn ports_are_shared_as_the_kernel_allows() {
    let mut host = Host::new("10.0.0.1", 1);
    let mut bind = |space, addr: &str, reuse: bool| {
        let id = host.id(space);
        host.cma.set_reuse_addr(id, reuse).unwrap();
        errno(host.bind(id, addr))
    };
    assert_eq!(bind(PortSpace::TCP, "0.0.0.0:100", false), 0);
    assert_eq!(bind(PortSpace::TCP, "10.0.0.1:100", false), libc::EADDRNOTAVAIL);
    assert_eq!(bind(PortSpace::UDP, "10.0.0.1:100", false), 0);
    assert_eq!(bind(PortSpace::TCP, "10.0.0.1:101", true), 0);
    assert_eq!(bind(PortSpace::TCP, "10.0.0.1:101", false), libc::EADDRINUSE);
    assert_eq!(bind(PortSpace::TCP, "10.0.0.1:101", true), 0);
    assert_eq!(bind(PortSpace::TCP, "10.0.0.5:102", false), libc::EADDRNOTAVAIL);
    assert_eq!(bind(PortSpace::TCP, "10.9.9.9:102", false), libc::ENODEV);
}

#[test]
fn localhost_without_a_device_binds_to_all_devices() {
    let mut host = Host::new("10.0.0.1", 1);
    for (localhost, any) in [("127.0.0.1:100", "0.0.0.0:100"), ("[::1]:101", "[::]:101")] {
        let id = host.listen(PortSpace::TCP, localhost, 1);
        assert_eq!(host.cma.addresses(id).unwrap().0, Some(any.parse().unwrap()));
        let taken = host.id(PortSpace::TCP);
        assert_eq!(errno(host.bind(taken, any)), libc::EADDRNOTAVAIL);
    }
    let id = host.id(PortSpace::TCP);
    assert_eq!(errno(host.bind(id, "127.0.0.2:102")), libc::ENODEV);
    let mut host = Host::new("127.0.0.1", 1);
    let id = host.listen(PortSpace::TCP, "127.0.0.1:100", 1);
    assert_eq!(host.cma.addresses(id).unwrap().0, Some("127.0.0.1:100".parse().unwrap()));
}

#[test]
fn localhost_stands_for_the_device_if_another_user_has_it() {
    let mut host = Host::new("127.129.2.3", 1);
    for (at, port) in [("127.0.0.1", 100), ("[::ffff:127.0.0.1]", 101)] {
        let id = host.listen(PortSpace::TCP, &format!("{at}:{port}"), 1);
        let own = format!("127.129.2.3:{port}").parse().unwrap();
        assert_eq!(host.cma.addresses(id).unwrap().0, Some(own));
        let client = host.id(PortSpace::TCP);
        let peer = format!("{at}:{port}").parse().unwrap();
        host.cma.resolve_addr(client, None, peer, &host.system).unwrap();
        host.expect(CmaEventType::AddrResolved);
        assert_eq!(host.cma.addresses(client).unwrap().1, Some(own));
    }
    // Other addresses stand for themselves.
    let id = host.id(PortSpace::TCP);
    assert_eq!(errno(host.bind(id, "127.0.0.2:102")), libc::ENODEV);
}

#[test]
fn a_listener_bound_to_ipv4_allows_others_on_ipv6() {
    let mut host = Host::new("10.0.0.1", 1);
    let mut bind = |addr: &str, af_only: Option<bool>| {
        let id = host.id(PortSpace::TCP);
        if let Some(af_only) = af_only {
            host.cma.set_af_only(id, af_only).unwrap();
        }
        errno(host.bind(id, addr))
    };
    assert_eq!(bind("0.0.0.0:100", None), 0);
    assert_eq!(bind("[::]:100", None), libc::EADDRNOTAVAIL);
    assert_eq!(bind("[::]:100", Some(true)), 0);
    assert_eq!(bind("0.0.0.0:101", Some(false)), 0);
    assert_eq!(bind("[::]:101", Some(true)), libc::EADDRNOTAVAIL);
}

#[test]
fn requests_of_either_ip_version_reach_matching_listeners() {
    let cases = [
        ("0.0.0.0", None, false, true),
        ("0.0.0.0", Some(false), true, true),
        ("[::]", None, true, true),
        ("[::]", Some(true), true, false),
    ];
    for (on, af_only, hears_v6, hears_v4) in cases {
        for (mut hosts, to, hears) in [
            (TwoHosts::between("2001:db8::1", "2001:db8::2"), "[2001:db8::2]", hears_v6),
            (TwoHosts::between("10.0.0.1", "10.0.0.2"), "10.0.0.2", hears_v4),
        ] {
            let listener = hosts.b.id(PortSpace::TCP);
            if let Some(af_only) = af_only {
                hosts.b.cma.set_af_only(listener, af_only).unwrap();
            }
            hosts.b.bind(listener, &format!("{on}:9")).unwrap();
            hosts.b.cma.listen(listener, 0, &hosts.b.system).unwrap();
            let id = hosts.a.resolved(PortSpace::TCP, &format!("{to}:9"));
            hosts.connect(id, &ConnParam::default());
            let context = format!("{on}, AFONLY {af_only:?}, from {to}");
            let refusal = hosts.a.event().map(|event| event.status);
            let requests: Vec<_> =
                std::iter::from_fn(|| hosts.b.event()).filter_map(|event| event.new_id).collect();
            let expected =
                if hears { None } else { Some(i32::from(RejReason::INVALID_SERVICE_ID.0)) };
            assert_eq!((requests.len(), refusal), (usize::from(hears), expected), "{context}");
            hosts.destroy([id], [listener]);
            requests.into_iter().for_each(|id| hosts.b.cma.destroy_id(hosts.now, id).unwrap());
            hosts.run();
            while hosts.a.event().is_some() {}
            hosts.assert_empty();
        }
    }
}

#[test]
fn a_port_claimed_by_another_process_is_in_use_until_released() {
    let mut host = Host::new("10.0.0.1", 1);
    let service = ServiceId::new(PortSpace::TCP, 100).0;
    lock(&host.claims).insert(service);
    let id = host.id(PortSpace::TCP);
    assert_eq!(errno(host.bind(id, "0.0.0.0:100")), libc::EADDRINUSE);
    assert_eq!(host.cma.state(id), Some(IdState::Idle));
    lock(&host.claims).clear();
    host.bind(id, "0.0.0.0:100").unwrap();
    assert!(lock(&host.claims).contains(&service));
    host.cma.destroy_id(urxe_types::time::Time::ZERO, id).unwrap();
    assert!(lock(&host.claims).is_empty());
}

#[test]
fn automatically_chosen_ports_are_all_different() {
    let mut host = Host::new("10.0.0.1", 1);
    let mut ports = std::collections::BTreeSet::new();
    for n in 0..500 {
        let id = host.id(PortSpace::TCP);
        if n % 2 == 0 {
            host.bind(id, "0.0.0.0:0").unwrap();
        } else {
            host.cma.resolve_addr(id, None, "10.0.0.2:1".parse().unwrap(), &host.system).unwrap();
        }
        let port = host.cma.addresses(id).unwrap().0.unwrap().port();
        assert!((32_768..=60_999).contains(&port) && ports.insert(port));
    }
}

#[test]
fn missing_routes_and_invalid_calls_are_errors() {
    let mut host = Host::new("10.0.0.1", 1);
    let id = host.id(PortSpace::TCP);
    let nowhere = "203.0.113.1:1".parse().unwrap();
    assert_eq!(errno(host.cma.resolve_addr(id, None, nowhere, &host.system)), libc::ENETUNREACH);
    assert_eq!(host.event(), None);
    assert_eq!(errno(host.cma.resolve_route(id)), libc::EINVAL);
    let now = urxe_types::time::Time::ZERO;
    assert_eq!(errno(host.cma.connect(now, id, &ConnParam::default())), libc::EINVAL);
    host.bind(id, "10.0.0.1:0").unwrap();
    let v6 = "[2001:db8::1]:1".parse().unwrap();
    assert_eq!(errno(host.cma.resolve_addr(id, None, v6, &host.system)), libc::EINVAL);
    // The identifier remains usable.
    host.resolve_addr(id, "0.0.0.0:1");
    assert_eq!(host.cma.addresses(id).unwrap().1, Some("10.0.0.1:1".parse().unwrap()));
    assert_eq!(errno(host.cma.listen(id, 1, &host.system)), libc::EINVAL);
}

/// There is no device on the route. As in the kernel, some errors fail the call, others are events.
#[test]
fn a_peer_without_a_device_is_reported_and_can_be_resolved_later() {
    let mut host = Host::new("10.0.0.1", 1);
    host.cma.detach(host.key);
    let id = host.id(PortSpace::TCP);
    let peer = "10.0.0.2:9".parse().unwrap();
    let any = "0.0.0.0:9".parse().unwrap();
    assert_eq!(errno(host.cma.resolve_addr(id, None, any, &host.system)), libc::ENODEV);
    assert_eq!(host.event(), None);
    host.cma.resolve_addr(id, None, peer, &host.system).unwrap();
    assert_eq!(host.expect(CmaEventType::AddrError).status, -libc::ENODEV);
    assert_eq!(errno(host.cma.resolve_route(id)), libc::EINVAL);
    host.attach_device();
    host.resolve_addr(id, "10.0.0.2:9");
    host.resolve_route(id);
}

#[test]
fn all_ports_taken_is_an_error_of_the_call() {
    let mut host = Host::new("10.0.0.1", 1);
    let peer = "10.0.0.2:9".parse().unwrap();
    let id = loop {
        let id = host.id(PortSpace::TCP);
        match host.cma.resolve_addr(id, None, peer, &host.system) {
            Ok(()) => drop(host.expect(CmaEventType::AddrResolved)),
            Err(error) => break (id, error.errno()),
        }
    };
    assert_eq!((id.1, host.event()), (libc::EADDRNOTAVAIL, None));
    assert_eq!(host.cma.state(id.0), Some(IdState::Idle));
}

#[test]
fn events_that_wait_move_with_their_identifier() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    let id = hosts.a.resolved(PortSpace::TCP, "10.0.0.2:9");
    hosts.connect(id, &ConnParam::default());
    let other = hosts.b.cma.create_channel(Arc::new(NoWake));
    hosts.b.cma.migrate(listener, other).unwrap();
    assert_eq!(hosts.b.event(), None);
    assert!(hosts.b.cma.poll_notification().is_some(), "it got an event");
    while hosts.b.cma.poll_notification().is_some() {}
    let event = hosts.b.cma.next_event(other, |_, _| 99).unwrap();
    let request = event.new_id.unwrap();
    hosts.accept(request, &ConnParam::default());
    hosts.a.cma.destroy_id(hosts.now, id).unwrap();
    hosts.run();
    // The new channel receives the event of the request, with its user value.
    let event = hosts.b.cma.next_event(other, |_, _| 0).unwrap();
    assert_eq!((event.id, event.user, event.event_type), (request, 99, CmaEventType::Rejected));
    for id in [listener, request] {
        hosts.b.cma.destroy_id(hosts.now, id).unwrap();
    }
    hosts.assert_empty();
}

#[test]
fn listeners_on_all_addresses_use_a_device_added_later() {
    let mut hosts = TwoHosts::new();
    hosts.b.cma.detach(hosts.b.key);
    let listener = hosts.b.listen(PortSpace::TCP, "0.0.0.0:9", 0);
    assert!(lock(&hosts.b.claims).is_empty());
    hosts.b.attach_device();
    assert_eq!(lock(&hosts.b.claims).len(), 1);
    let id = hosts.a.resolved(PortSpace::TCP, "10.0.0.2:9");
    hosts.connect(id, &ConnParam::default());
    assert_eq!(hosts.b.expect(CmaEventType::ConnectRequest).id, listener);
}
