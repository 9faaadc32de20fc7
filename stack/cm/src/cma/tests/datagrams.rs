//! Datagram services and multicast groups.

use urxe_wire::mad::PortSpace;
use urxe_wire::{Gid, QKey, Qpn};

use super::two_hosts::TwoHosts;
use crate::cma::{CmaEventType, ConnParam, EventParam, Membership};
use urxe_types::attr::{QpAttrMask, QpState};

#[test]
fn a_service_replies_with_its_queue_pair() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::UDP, "0.0.0.0:9", 0);
    let active = hosts.a.resolved(PortSpace::UDP, "10.0.0.2:9");
    let param = ConnParam { private_data: &[5; 180], ..ConnParam::default() };
    hosts.connect(active, &param);
    let event = hosts.b.expect(CmaEventType::ConnectRequest);
    let EventParam::Ud(ud) = &event.param else { panic!("{event:?}") };
    assert_eq!(ud.private_data, [5; 180]);
    let passive = event.new_id.unwrap();
    let (init, mask) = hosts.b.cma.qp_attr(passive, QpState::Init).unwrap();
    assert_eq!(init.qkey, QKey(0x0123_4567));
    assert!(mask.contains(QpAttrMask::QKEY));
    let param = ConnParam { private_data: &[6], qpn: Qpn::masked(0x123), ..ConnParam::default() };
    hosts.accept(passive, &param);
    let event = hosts.a.expect(CmaEventType::Established);
    let EventParam::Ud(ud) = &event.param else { panic!("{event:?}") };
    assert_eq!((ud.qpn.value(), ud.qkey, ud.private_data[0]), (0x123, QKey(0x0123_4567), 6));
    assert_eq!((ud.ah.dgid, ud.ah.sgid_index), (Gid::from_ip("10.0.0.2".parse().unwrap()), 1));
    assert_eq!(hosts.b.event(), None);
    hosts.a.cma.destroy_id(hosts.now, active).unwrap();
    for id in [passive, listener] {
        hosts.b.cma.destroy_id(hosts.now, id).unwrap();
    }
    hosts.assert_empty();
}

#[test]
fn a_missing_service_and_a_rejection_are_unreachable_with_the_status() {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.listen(PortSpace::UDP, "0.0.0.0:9", 0);
    let ids = [9, 10].map(|port| {
        let id = hosts.a.resolved(PortSpace::UDP, &format!("10.0.0.2:{port}"));
        hosts.a.cma.connect(hosts.now, id, &ConnParam::default()).unwrap();
        id
    });
    hosts.run();
    assert_eq!(hosts.a.expect(CmaEventType::Unreachable).status, 1);
    let request = hosts.request();
    hosts.b.cma.destroy_id(hosts.now, request).unwrap();
    hosts.run();
    assert_eq!(hosts.a.expect(CmaEventType::Unreachable).status, 2);
    for id in ids {
        hosts.a.cma.destroy_id(hosts.now, id).unwrap();
    }
    hosts.b.cma.destroy_id(hosts.now, listener).unwrap();
    hosts.assert_empty();
}

#[test]
fn joining_a_group_reports_its_address_vector() {
    let mut hosts = TwoHosts::new();
    let id = hosts.a.id(PortSpace::UDP);
    hosts.a.bind(id, "10.0.0.1:0").unwrap();
    let group = "239.1.2.3:0".parse().unwrap();
    assert!(hosts.a.cma.join_multicast(id, "10.0.0.2:0".parse().unwrap(), Membership(1)).is_err());
    hosts.a.cma.join_multicast(id, group, Membership(1)).unwrap();
    let event = hosts.a.expect(CmaEventType::MulticastJoin);
    let EventParam::Ud(ud) = &event.param else { panic!("{event:?}") };
    assert_eq!((ud.ah.dgid, ud.qpn.value()), (Gid::from_ip(group.ip()), 0xff_ffff));
    assert_eq!((event.membership, ud.qkey), (Some(Membership(1)), QKey(0x0123_4567)));
    hosts.a.cma.join_multicast(id, group, Membership(2)).unwrap();
    hosts.a.cma.leave_multicast(id, Membership(2)).unwrap();
    assert_eq!(hosts.a.event(), None, "an event that nobody took is withdrawn");
    assert!(hosts.a.cma.leave_multicast(id, Membership(2)).is_err());
    hosts.a.cma.destroy_id(hosts.now, id).unwrap();
    hosts.assert_empty();
}
