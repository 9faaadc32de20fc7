//! Asynchronous events of the port, and events in a task.

use std::time::Duration;

use urxe::sim::{Fabric, PausedPackets};
use urxe::*;

use crate::common::{failure, simulated_pair};

#[test]
fn a_port_reports_each_change_of_its_state_once() {
    let fabric = Fabric::new(21);
    let (a, b) = simulated_pair(&fabric);
    assert!(a.device.query_port().is_active);
    for (active, event) in [(false, PortEventType::PortErr), (true, PortEventType::PortActive)] {
        fabric.set_port_active(&a.device, active).unwrap();
        fabric.set_port_active(&a.device, active).unwrap();
        assert_eq!(a.device.events().wait(None), Ok(AsyncEvent::Port(event, 1)));
        assert_eq!(a.device.events().try_next(), None, "told once");
        assert_eq!(a.device.query_port().is_active, active);
    }
    assert_eq!(b.device.events().try_next(), None, "the other port is another's");
    let other = Fabric::new(22);
    assert!(other.set_port_active(&a.device, false).is_err());
}

#[test]
fn the_last_event_has_the_current_state_of_the_port() {
    let fabric = Fabric::new(23);
    let (a, _b) = simulated_pair(&fabric);
    for active in [false, true, false] {
        fabric.set_port_active(&a.device, active).unwrap();
    }
    let told: Vec<_> = std::iter::from_fn(|| a.device.events().try_next()).collect();
    let due = [PortEventType::PortErr, PortEventType::PortActive, PortEventType::PortErr];
    assert_eq!(told, due.map(|event| AsyncEvent::Port(event, 1)));
}

#[test]
fn a_new_gid_table_is_reported_and_connections_continue() {
    let fabric = Fabric::new(24);
    let (a, b) = simulated_pair(&fabric);
    let mut gids: Vec<Gid> = a.device.query_port().gids.iter().map(|entry| entry.gid).collect();
    gids.push(Gid::from_ip([10, 0, 0, 9].into()));
    for _ in 0..2 {
        fabric.set_gids(&a.device, &gids).unwrap();
    }
    for event in [PortEventType::GidChange, PortEventType::ClientReregister] {
        assert_eq!(a.device.events().wait(None), Ok(AsyncEvent::Port(event, 1)));
    }
    assert_eq!(a.device.events().try_next(), None, "the same table is no change");
    assert_eq!(a.device.query_port().gids.len(), gids.len());
    let there = b.region.remote();
    let _ = a.perform(SendRequest::write(a.slice(..64), there));
    assert!(Fabric::new(25).set_gids(&a.device, &gids).is_err());
}

#[test]
fn events_can_be_awaited() {
    let fabric = Fabric::new(8);
    let (a, b) = simulated_pair(&fabric);
    assert_eq!(a.device.events().try_next(), None);
    // The region grants no remote write, so the WRITE moves the queue pair of b to the error state.
    let closed = b.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    a.qp.post_send(&SendRequest::write(a.slice(..8), closed.remote())).unwrap();
    let event = pollster::block_on(b.device.events().next()).unwrap();
    assert_eq!(event.event_type(), AsyncEventType::QpAccessErr, "{event}");
    assert_eq!(failure(&a.cq).status, WcStatus::RemAccessErr);
    fabric.pause(&a.device, PausedPackets::Drop, Duration::from_secs(1)).unwrap();
    assert_eq!(b.device.events().wait(Some(Duration::from_secs(2))), Err(WaitError::TimedOut));
}
