//! Events of the port, and what a changed GID table does to queue pairs.

use super::*;
use crate::cq::{AsyncEvent, PortEventType};
use crate::qp::attr::PathMigState;

fn events(device: &Device) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| device.events().next_event()).collect()
}

#[test]
fn a_changed_table_is_told_and_an_empty_place_leads_nowhere() {
    let (a, b, wire) = pair();
    let gids = a.device.gids();
    a.device.set_gids(gids.clone());
    assert_eq!(events(&a.device), [], "nothing changed");
    a.device.set_gids(vec![Gid::default()]);
    let told = [PortEventType::GidChange, PortEventType::ClientReregister];
    assert_eq!(events(&a.device), told.map(|event| AsyncEvent::Port(event, 1)));
    let to = AddressVector {
        dgid: Gid::from_ip(B.into()),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    };
    let error = a.device.create_ah(a.pd, &to).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert!(error.to_string().contains("no valid entry"), "{error}");
    // Connections keep the way that they have.
    let op = SendOp::Write { remote: b.remote(0) };
    let (to_peer, flags) = (Destination::Peer, SendFlags::SIGNALED);
    let sges = [a.sge(0, 8)];
    let request = SendRequest { wr_id: 1, op, to: to_peer, flags, payload: Payload::Sges(&sges) };
    a.device.post_send(Time::ZERO, a.qp, &[request]).unwrap();
    run(&a, &b, &wire);
    assert_eq!(a.completions()[0].status, WcStatus::Success);
    a.device.set_gids(gids);
    assert_eq!(events(&a.device).len(), 2);
    a.device.create_ah(a.pd, &to).unwrap();
}

#[test]
fn the_port_is_told_when_it_changes_only() {
    let end = End::new(A, 1);
    assert!(end.device.is_port_active());
    end.device.set_port_active(true);
    assert_eq!(events(&end.device), []);
    end.device.set_port_active(false);
    end.device.set_port_active(true);
    let told = [PortEventType::PortErr, PortEventType::PortActive];
    assert_eq!(events(&end.device), told.map(|event| AsyncEvent::Port(event, 1)));
}

#[test]
fn an_alternate_path_is_kept_and_returned_but_never_taken() {
    let (a, _b, _wire) = pair();
    let alt_ah = AddressVector {
        dgid: Gid::from_ip(Ipv4Addr::new(10, 9, 9, 9).into()),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    };
    let attr = QpAttr { alt_ah, alt_port_num: 1, alt_timeout: 17, ..QpAttr::default() };
    a.device.modify_qp(Time::ZERO, a.qp, &attr, QpAttrMask::ALT_PATH).unwrap();
    let kept = a.device.query_qp(a.qp).unwrap();
    assert_eq!((kept.alt_ah, kept.alt_port_num, kept.alt_timeout), (alt_ah, 1, 17));
    for path_mig_state in [PathMigState::Rearm, PathMigState::Armed] {
        let attr = QpAttr { path_mig_state, ..QpAttr::default() };
        let error =
            a.device.modify_qp(Time::ZERO, a.qp, &attr, QpAttrMask::PATH_MIG_STATE).unwrap_err();
        assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
        assert!(error.to_string().contains("APM"), "{error}");
    }
    // Migrated is what it is.
    a.device.modify_qp(Time::ZERO, a.qp, &QpAttr::default(), QpAttrMask::PATH_MIG_STATE).unwrap();
    assert_eq!(a.device.query_qp(a.qp).unwrap().path_mig_state, PathMigState::Migrated);
    assert_eq!(events(&a.device), []);
}
