//! Devices with the identity of a NIC: `--link 127.79.0.9,profile=mlx5`.

use crate::install::{compile_as, install, ok, passes};
use crate::pair::{exclusive, run};

const LINK: &str = "--link 127.79.0.9,profile=mlx5";

#[test]
fn a_program_sees_the_nic_and_its_limits_and_no_interface_of_the_vendor() {
    let _exclusive = exclusive();
    let program = compile_as("profile", "bin/profile", &["-libverbs", "-lmlx5"]);
    passes(LINK, &program, "");
    let text = ok(&mut install().run(&format!("{LINK} -- ibv_devinfo -v")));
    for (key, value) in [
        ("vendor_id:", "0x02c9"),
        ("vendor_part_id:", "4119"),
        ("active_width:", "4X (2)"),
        ("active_speed:", "25.0 Gbps (32)"),
        ("max_qp_rd_atom:", "16"),
    ] {
        let line = text.lines().find(|line| line.trim_start().starts_with(key));
        assert!(line.is_some_and(|line| line.ends_with(value)), "{key} {value}\n{text}");
    }
}

#[test]
fn the_view_of_sysfs_has_the_nics_pci_folder() {
    let script = "d=/sys/class/infiniband/mlx5_0\n\
         cat $d/board_id $d/device/vendor $d/device/device $d/device/class\n\
         readlink -f $d/device; ls $d/device/infiniband $d/device/net\n\
         test -r $d/device/numa_node; test -r $d/device/local_cpus\n\
         cat /sys/bus/pci/devices/7e57:01:00.0/max_link_width\n\
         cat /sys/class/infiniband_verbs/uverbs0/device/vendor";
    let mut shell = install().run(&format!("{LINK} -- sh -eu -c"));
    assert_eq!(
        ok(shell.arg(script)),
        "MT_0000000008\n0x15b3\n0x1017\n0x020000\n\
         /sys/devices/pci7e57:00/7e57:00:01.0/7e57:01:00.0\n\
         /sys/class/infiniband/mlx5_0/device/infiniband:\nmlx5_0\n\n\
         /sys/class/infiniband/mlx5_0/device/net:\nlo\n16\n0x15b3\n"
    );
}

#[test]
fn ucx_uses_plain_verbs_for_the_nic() {
    let text = ok(&mut install().run(&format!("{LINK} -- timeout 60 ucx_info -d")));
    let lines: Vec<&str> = text.lines().collect();
    for transport in ["rc_verbs", "ud_verbs"] {
        let is_there = lines.windows(2).any(|two| {
            two[0].trim_end().ends_with(&format!("Transport: {transport}"))
                && two[1].ends_with("mlx5_0:1")
        });
        assert!(is_there, "{transport} is not in\n{text}");
    }
    assert!(!text.contains("rc_mlx5"), "{text}");
}

#[test]
fn ucx_moves_messages_between_two_nics() {
    let nics =
        ["127.79.0.10", "127.79.0.11"].map(|address| format!("--link {address},profile=mlx5"));
    let words =
        "env UCX_NET_DEVICES=mlx5_0:1 UCX_TLS=rc_v,self ucx_perftest -t tag_lat -n 200 -w 10";
    let pair = run(nics.each_ref().map(String::as_str), words).unwrap();
    assert!(pair.client.lines().any(|line| line.starts_with("Final:")), "{}", pair.client);
}
