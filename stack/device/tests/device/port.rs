//! Events of the port, and the effect of a changed GID table on queue pairs.

use super::*;
use urxe_device::cq::{AsyncEvent, PortEventType};
use urxe_device::qp::attr::PathMigState;

#[test]
fn a_changed_table_is_reported_and_an_empty_entry_is_refused() {
    let (a, b, wire) = pair();
    let gids = a.device.gids();
    a.device.set_gids(gids.clone());
    assert_eq!(a.events(), [], "nothing changed");
    a.device.set_gids(vec![Gid::default()]);
    let told = [PortEventType::GidChange, PortEventType::ClientReregister];
    assert_eq!(a.events(), told.map(|event| AsyncEvent::Port(event, 1)));
    let to = address_vector(B.into());
    let error = a.device.create_ah(a.pd, &to).unwrap_err();
    assert_eq!(error.errno(), libc::ENODATA, "{error}");
    assert!(error.to_string().contains("no valid entry"), "{error}");
    // Connections keep their paths.
    a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    assert_eq!(a.statuses(), [WcStatus::Success]);
    a.device.set_gids(gids);
    assert_eq!(a.events().len(), 2);
    a.device.create_ah(a.pd, &to).unwrap();
}

#[test]
fn the_port_is_reported_when_it_changes_only() {
    let end = Host::new(A, 1);
    assert!(end.device.is_port_active());
    end.device.set_port_active(true);
    assert_eq!(end.events(), []);
    end.device.set_port_active(false);
    end.device.set_port_active(true);
    let told = [PortEventType::PortErr, PortEventType::PortActive];
    assert_eq!(end.events(), told.map(|event| AsyncEvent::Port(event, 1)));
}

#[test]
fn an_alternate_path_is_kept_and_returned_but_never_taken() {
    let (a, _b, _wire) = pair();
    let alt_ah = address_vector([10, 9, 9, 9].into());
    let attr = QpAttr { alt_ah, alt_port_num: 1, alt_timeout: 17, ..QpAttr::default() };
    a.modify(a.qp, &attr, QpAttrMask::ALT_PATH);
    let kept = a.device.query_qp(a.qp).unwrap();
    assert_eq!((kept.alt_ah, kept.alt_port_num, kept.alt_timeout), (alt_ah, 1, 17));
    for path_mig_state in [PathMigState::Rearm, PathMigState::Armed] {
        let attr = QpAttr { path_mig_state, ..QpAttr::default() };
        let error =
            a.device.modify_qp(Time::ZERO, a.qp, &attr, QpAttrMask::PATH_MIG_STATE).unwrap_err();
        assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
        assert!(error.to_string().contains("APM"), "{error}");
    }
    // The present state is MIGRATED.
    a.modify(a.qp, &QpAttr::default(), QpAttrMask::PATH_MIG_STATE);
    assert_eq!(a.device.query_qp(a.qp).unwrap().path_mig_state, PathMigState::Migrated);
    assert_eq!(a.events(), []);
}
