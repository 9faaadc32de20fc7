//! A port that goes down and up.

use urxe::sim::Fabric;
use urxe::*;

use crate::common::pair;

#[test]
fn a_port_tells_when_it_goes_down_and_up_and_only_then() {
    let fabric = Fabric::new(21);
    let (a, b) = pair(&fabric);
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
