//! The same tests for IPv6 addresses. Unlike IPv4 addresses, the system removes them when their
//! interface goes down.

use std::fs;
use std::net::IpAddr;

use urxe_stack::cq::PortEventType;
use urxe_stack::link::OperState;
use urxe_test_support::namespace::ip;

use crate::endpoint::Endpoint;
use crate::veth::{
    FIRST, FIRST_V6, GID_CHANGE, NEW_V6, SECOND, SECOND_V6, Veth, add, addresses, del,
    expect_events, open,
};
use crate::{TIMEOUT, comes_goes_and_comes_back};

const DOWN: [PortEventType; 3] = [PortEventType::PortErr, GID_CHANGE[0], GID_CHANGE[1]];

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_gid_table_follows_addresses_of_ipv6() {
    let _cable = Veth::of_both_families();
    let engine = open("here");
    let by_mac = addresses(&engine)[0];
    let of_ipv4 = [FIRST, SECOND].map(|address| Some(IpAddr::from(address)));
    let [first, second, new] =
        [FIRST_V6, SECOND_V6, NEW_V6].map(|address| Some(IpAddr::from(address)));
    let table = |of_ipv6: &[Option<IpAddr>]| [&[by_mac], &of_ipv4[..], of_ipv6].concat();
    assert_eq!(addresses(&engine), table(&[first, second]));
    add(NEW_V6);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), table(&[first, second, new]));
    assert!(engine.gids()[5].assigned);
    del(SECOND_V6);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), table(&[first, None, new]));
    assert!(!engine.gids()[4].assigned);
    add(SECOND_V6);
    expect_events(&engine, &GID_CHANGE);
    assert_eq!(addresses(&engine), table(&[first, second, new]));
    ip("link set here down");
    expect_events(&engine, &DOWN);
    assert_eq!(addresses(&engine), table(&[None; 3]));
    ip("link set here up");
    expect_events(&engine, &[PortEventType::PortActive]);
    assert_eq!(addresses(&engine), table(&[None; 3]), "they were not added again");
    // In another order than before: each has its own entry.
    for (address, of_ipv6) in [(NEW_V6, [None, None, new]), (FIRST_V6, [first, None, new])] {
        add(address);
        expect_events(&engine, &GID_CHANGE);
        assert_eq!(addresses(&engine), table(&of_ipv6));
    }
    assert_eq!(engine.device().events().next_event(), None);
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_device_opens_while_the_system_looks_for_duplicates_of_an_address() {
    let _cable = Veth::new();
    // The search for duplicates takes longer than the test.
    fs::write("/proc/sys/net/ipv6/conf/here/dad_transmits", "1000").unwrap();
    ip(&format!("address add {FIRST_V6}/64 dev here"));
    let engine = open("here");
    let [first, second, tentative] =
        [FIRST.into(), SECOND.into(), FIRST_V6.into()].map(Some::<IpAddr>);
    assert_eq!(addresses(&engine), [addresses(&engine)[0], first, second, tentative]);
    assert!(engine.gids()[3].assigned);
    // The other addresses send and receive meanwhile.
    let [here, there] = [Endpoint::new(&engine), Endpoint::new(&engine)];
    there.post_recv();
    here.send(1, &there, FIRST, b"at once");
    let received = there.receive(TIMEOUT);
    assert_eq!(received, Some((FIRST.into(), FIRST.into(), b"at once".to_vec())));
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_new_address_of_ipv6_sends_and_receives_at_once_and_again_when_it_comes_back() {
    let _cable = Veth::of_both_families();
    comes_goes_and_comes_back([FIRST_V6, SECOND_V6, NEW_V6].map(IpAddr::from));
}

#[test]
#[ignore = "needs a network namespace: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_device_of_one_address_of_ipv6_loses_it_with_the_interface_and_speaks_from_it_again() {
    let _cable = Veth::of_both_families();
    ip("link set lo up");
    let (engine, other) = (open(&FIRST_V6.to_string()), open(&SECOND_V6.to_string()));
    ip("link set here down");
    for engine in [&engine, &other] {
        expect_events(engine, &DOWN);
        assert_eq!(engine.port_state(), OperState::Disabled);
        assert!(addresses(engine).iter().all(Option::is_none));
    }
    ip("link set here up");
    add(FIRST_V6);
    add(SECOND_V6);
    for (engine, address) in [(&engine, FIRST_V6), (&other, SECOND_V6)] {
        expect_events(engine, &[PortEventType::PortActive, GID_CHANGE[0], GID_CHANGE[1]]);
        assert_eq!(addresses(engine), [Some(address.into()); 4]);
    }
    let [here, there] = [Endpoint::new(&engine), Endpoint::new(&other)];
    there.post_recv();
    here.send(0, &there, SECOND_V6, b"again");
    assert_eq!(
        there.receive(TIMEOUT),
        Some((FIRST_V6.into(), SECOND_V6.into(), b"again".to_vec()))
    );
}
