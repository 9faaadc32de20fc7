//! Links on a machine with known interfaces, and the built-in one on this machine.

use super::*;
use crate::link::gid::tests::ip;
use crate::link::interface::InterfaceIp;
use crate::link::interface::tests::{MAC, ethernet};

fn interface(
    name: &str,
    mac: Option<[u8; 6]>,
    mtu_bytes: u32,
    addresses: &[(&str, u8)],
) -> Interface {
    let ip = |&(text, prefix_len)| InterfaceIp { address: ip(text), prefix_len };
    let addresses = addresses.iter().map(ip).collect();
    Interface { mtu_bytes, mac, loopback: name == "lo", addresses, ..ethernet(name, MAC) }
}

/// Returns a machine with loopback, two Ethernet interfaces that share a link-local address, a
/// tunnel with a small MTU, and an interface without addresses.
fn machine() -> Vec<Interface> {
    let mac = |last| Some([0x52, 0x54, 0, 0, 0, last]);
    vec![
        interface("lo", None, 65_536, &[("127.0.0.1", 8), ("::1", 128)]),
        interface("eth0", mac(1), 1500, &[("10.0.0.1", 24), ("fd00::1", 64), ("fe80::9", 64)]),
        interface("eth1", mac(2), 9000, &[("10.0.1.1", 24), ("fe80::9", 64)]),
        interface("tun0", None, 300, &[("10.0.2.1", 32)]),
        interface("bare", mac(3), 1500, &[]),
    ]
}

fn on_machine(spec: &str) -> Result<ResolvedLink, LinkError> {
    resolve_on(&spec.parse().unwrap(), &machine())
}

#[test]
fn an_address_of_an_ethernet_interface() {
    let link = on_machine("rxe0=10.0.0.1").unwrap();
    assert_eq!(link.interface.name, "eth0");
    assert_eq!(link.addresses, [ip("10.0.0.1")]);
    assert_eq!(
        link.gids.iter().map(|entry| entry.gid.to_ip()).collect::<Vec<_>>(),
        [ip("10.0.0.1"); 4]
    );
    assert_eq!(link.node_guid.to_string(), "5054:00ff:fe00:0001");
    assert_eq!(link.path_mtu, PathMtu::Mtu1024);
    assert!(link.is_active());
}

#[test]
fn any_address_of_loopback() {
    let link = on_machine("rxe0=127.5.0.1").unwrap();
    assert_eq!(link.interface.name, "lo");
    assert_eq!(link.addresses, [ip("127.5.0.1")]);
    assert_eq!(link.node_guid.to_string(), "0000:5efe:7f05:0001");
    assert_eq!(link.path_mtu, PathMtu::Mtu4096);
}

#[test]
fn an_interface_has_all_its_addresses() {
    let link = on_machine("rxe0=eth0").unwrap();
    assert_eq!(link.addresses, [ip("10.0.0.1"), ip("fd00::1"), ip("fe80::9")]);
    let gids: Vec<_> = link.gids.iter().map(|entry| (entry.gid.to_ip(), entry.assigned)).collect();
    assert_eq!(
        gids,
        [
            (ip("fe80::5054:ff:fe00:1"), false),
            (ip("10.0.0.1"), true),
            (ip("fd00::1"), true),
            (ip("fe80::9"), true)
        ]
    );
    assert_eq!(on_machine("rxe0=eth1").unwrap().path_mtu, PathMtu::Mtu4096);
}

#[test]
fn errors_name_what_there_is() {
    let text = |spec: &str| on_machine(spec).unwrap_err().to_string();
    assert_eq!(
        text("rxe0=eth7"),
        "no network interface eth7; there are: lo, eth0, eth1, tun0, bare"
    );
    let unknown = text("rxe0=10.9.9.9");
    assert!(
        unknown.starts_with("10.9.9.9 is not an address of this machine; there are: 127.0.0.1,"),
        "{unknown}"
    );
    assert_eq!(
        text("rxe0=fe80::9"),
        "fe80::9 is an address of several interfaces (eth0, eth1); name the interface instead"
    );
    assert_eq!(text("rxe0=224.0.0.1"), "224.0.0.1 is not a unicast address");
    let error = on_machine("rxe0=bare").unwrap_err();
    assert!(matches!(error, LinkError::NoAddress { interface } if interface == "bare"));
    assert!(matches!(on_machine("rxe0=tun0"), Err(LinkError::MtuTooSmall { mtu_bytes: 300, .. })));
}

#[test]
fn path_mtus_fit() {
    let expected = [
        (0, None),
        (343, None),
        (344, Some(256)),
        (599, Some(256)),
        (600, Some(512)),
        (1500, Some(1024)),
        (2200, Some(2048)),
        (4200, Some(4096)),
        (9000, Some(4096)),
        (65_536, Some(4096)),
        (u32::MAX, Some(4096)),
    ];
    for (mtu_bytes, path_mtu) in expected {
        assert_eq!(path_mtu_for(mtu_bytes).map(PathMtu::bytes), path_mtu, "MTU {mtu_bytes}");
    }
}

#[test]
fn the_built_in_link_exists_here() {
    let link = resolve(&LinkSpec::built_in()).unwrap();
    assert_eq!(link.spec.name.as_str(), "rxe0");
    assert_eq!(link.addresses, [ip("127.0.0.1")]);
    assert!(link.interface.loopback);
}
