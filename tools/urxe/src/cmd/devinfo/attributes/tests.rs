//! Attributes of the built-in device, and of speeds.

use urxe_stack::link::{self, LinkSpec};

use super::*;

#[test]
fn the_built_in_device() {
    let resolved = link::resolve(&LinkSpec::built_in()).unwrap();
    let attributes = Attributes::new(&resolved);
    assert_eq!(attributes.hca_id, "rxe0");
    assert_eq!(attributes.node_guid, "0000:5efe:7f00:0001");
    assert_eq!(attributes.port.state, named(4, "PORT_ACTIVE"));
    let gids: Vec<&str> = attributes.port.gids.iter().map(|gid| gid.gid.as_str()).collect();
    assert_eq!(gids, ["::ffff:127.0.0.1"; 2]);
    assert_eq!(attributes.max_sge, Limits::default().max_sge);
    assert_eq!(attributes.device_cap_flags, 0x0132_3cc6);
    assert_eq!(attributes.device_cap_flags_ex, 0x1c0_0132_3cc6);
    assert_eq!(
        (attributes.max_mw, attributes.max_fast_reg_page_list_len, attributes.max_dm_size),
        (524_287, 512, 1 << 20)
    );
    assert_eq!(
        (attributes.max_srq, attributes.max_srq_wr, attributes.max_srq_sge),
        (1 << 16, 1 << 20, 32)
    );
}

#[test]
fn a_port_without_carrier() {
    let mut resolved = link::resolve(&LinkSpec::built_in()).unwrap();
    resolved.interface.state = OperState::NoCarrier;
    resolved.path_mtu = PathMtu::Mtu1024;
    let port = Attributes::new(&resolved).port;
    assert_eq!((port.state.name, port.phys_state.name), ("PORT_DOWN", "POLLING"));
    assert_eq!(port.active_mtu, named(3, "1024"));
    resolved.interface.state = OperState::Disabled;
    assert_eq!(Attributes::new(&resolved).port.phys_state.value, 3);
}

#[test]
fn lanes_times_speed_reach_the_interface() {
    for (mbps, lanes, per_lane) in [
        (None, "1", "2.5 Gbps"),
        (Some(1_000), "1", "2.5 Gbps"),
        (Some(10_000), "1", "10.0 Gbps"),
        (Some(25_000), "1", "25.0 Gbps"),
        (Some(40_000), "4", "10.0 Gbps"),
        (Some(100_000), "4", "25.0 Gbps"),
        (Some(400_000), "4", "100.0 Gbps"),
    ] {
        let (width, speed) = width_and_speed(mbps);
        assert_eq!((width.name, speed.name), (lanes, per_lane), "{mbps:?}");
    }
}
