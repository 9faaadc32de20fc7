//! Devices as programs see them.

use crate::install::{install, ok, text_of};

#[test]
fn ibv_devices_lists_the_configured_devices() {
    let text = ok(&mut install().run("-- ibv_devices"));
    assert!(text.contains("rxe0") && text.contains("00005efe7f000001"), "{text}");
    let two = "--link rxe0=127.0.0.2 --link mine=127.0.0.3";
    let text = ok(&mut install().run(&format!("{two} -- ibv_devices")));
    let names: Vec<_> =
        text.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["rxe0", "mine"]);
}

#[test]
fn ibv_devinfo_shows_every_attribute() {
    let text = ok(&mut install().run("-- ibv_devinfo -v"));
    for line in [
        "hca_id:\trxe0",
        "transport:\t\t\tInfiniBand (0)",
        "node_guid:\t\t\t0000:5efe:7f00:0001",
        "phys_port_cnt:\t\t\t1",
        "max_qp_wr:\t\t\t1048576",
        "atomic_cap:\t\t\tATOMIC_HCA (1)",
        "state:\t\t\tPORT_ACTIVE (4)",
        "active_mtu:\t\t4096 (5)",
        "link_layer:\t\tEthernet",
        "GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2",
        "GID[  3]:\t\t::ffff:127.0.0.1, RoCE v2",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn ibv_devinfo_agrees_with_urxe_devinfo() {
    let values = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
        lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    };
    let flags = |value: &str| u64::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
    let ours = ok(install().user(install().path("bin/urxe")).args(["devinfo", "-v"]));
    let (ours, theirs) = (values(&ours), values(&ok(&mut install().run("-- ibv_devinfo -v"))));
    let mut compared = 0;
    for (name, value) in &theirs {
        if let Some((_, own)) = ours.iter().find(|(other, _)| other == name) {
            match name.as_str() {
                // One of the programs prints fewer digits.
                "device_cap_flags" | "device_cap_flags_ex" => {
                    assert_eq!(flags(value), flags(own), "{name}")
                }
                _ => assert_eq!(value, own, "{name}"),
            }
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared} attributes have the same name");
}

#[test]
fn a_mistake_in_the_list_is_reported() {
    let output = install().run("-- ibv_devices").env("URXE_DEVICES", "rxe0").output().unwrap();
    let text = text_of(&output);
    assert!(text.contains("URXE_DEVICES") && text.contains("column"), "{text}");
}

#[test]
fn a_missing_interface_is_reported_and_left_out() {
    let links = "--link rxe0=127.0.0.2 --link rxe1=nosuch0";
    let output = install().run(&format!("{links} -- ibv_devices")).output().unwrap();
    let text = text_of(&output);
    assert!(text.contains("no network interface nosuch0"), "{text}");
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("rxe0") && !listed.contains("rxe1"), "{listed}");
}
