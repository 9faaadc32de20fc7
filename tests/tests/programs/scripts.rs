//! Scripts that set up soft RoCE, unchanged: `urxe run -- sh SCRIPT`.
//!
//! The commands are those of the CI of public projects, but for the download and the build of the
//! kernel module. Each script chooses its interface and its device's name.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::install::{NOBODY, install, is_root, ok};

/// A user without a list of devices.
struct Fresh(TempDir);

impl Fresh {
    fn new() -> Self {
        let home = TempDir::with_prefix("urxe-scripts-").unwrap();
        if is_root() {
            std::os::unix::fs::chown(home.path(), Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
        Self(home)
    }

    /// Returns a command of `urxe run` for a shell script.
    fn shell(&self, script: &str) -> Command {
        let mut command = install().run("--sysfs -- bash -euo pipefail -c");
        command.arg(script).env("HOME", self.0.path());
        command
    }
}

#[test]
fn the_scripts_of_public_projects_pass() {
    // The interface lo stands for that of the default route, which a test machine may lack.
    for (script, device) in [
        // An action that sets up soft RoCE: the module is there, so nothing is built.
        (
            "if ! sudo modprobe rdma_rxe; then exit 1; fi\n\
             sudo rdma link add rxe_0 type rxe netdev \"$netdev\"\nrdma link",
            "rxe_0",
        ),
        // A library for RPC.
        (
            "sudo modprobe ib_core\nsudo modprobe rdma_ucm\nsudo insmod /tmp/rxe/rdma_rxe.ko\n\
             sudo rdma link add rxe_0 type rxe netdev $netdev\nrdma link",
            "rxe_0",
        ),
        // Bindings for Rust.
        (
            "sudo modprobe rdma_rxe\nsudo rdma link add rxe0 type rxe netdev \"$netdev\"\n\
             rdma link\nibv_devices",
            "rxe0",
        ),
        ("rdma link add rxe_eth0 type rxe netdev $netdev", "rxe_eth0"),
        // A database.
        (
            "modprobe rdma_cm && modprobe udp_tunnel && modprobe ip6_udp_tunnel && \
             modprobe ib_uverbs\nmodprobe rdma_rxe 2> /dev/null\n\
             rdma link add rxe_$netdev type rxe netdev $netdev",
            "rxe_lo",
        ),
        ("rxe_cfg start\nrxe_cfg add $netdev\nrxe_cfg status", "rxe0"),
    ] {
        let user = Fresh::new();
        ok(&mut user.shell(&format!("netdev=lo\n{script}")));
        let then = format!(
            "ibv_devices | grep -w {device}\nibv_devinfo -d {device} | grep PORT_ACTIVE\n\
             cat /sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0\nibstat {device}"
        );
        let text = ok(&mut user.shell(&then));
        assert!(text.contains("\nlo\n") && text.contains("State: Active"), "{script}\n{text}");
    }
}

#[test]
fn a_script_sees_its_device_come_and_go_everywhere() {
    let script = "ls /sys/class/infiniband\n\
         rdma link add first type rxe netdev lo\n\
         ls /sys/class/infiniband; readlink /sys/class/infiniband/first\n\
         ibv_devinfo -l | tail -n +2 | tr -d '\\t\\n'; echo\n\
         rdma link del first\n\
         ls /sys/class/infiniband\n\
         rdma -j resource | tr -d '[]{}\"' | cut -d, -f2";
    assert_eq!(
        ok(&mut Fresh::new().shell(script)),
        "rxe0\nfirst\n../../devices/virtual/infiniband/first\nfirst\nrxe0\nifname:rxe0\n"
    );
}

#[test]
fn rdma_shows_what_a_running_program_has() {
    let script = "rping -s -a 127.79.0.12 -C 1 & server=$!\n\
         until rdma resource show cm_id | grep -q LISTEN; do sleep 0.05; done\n\
         rdma resource show cm_id; rdma resource\nkill $server";
    let mut command = install().run("--link a=127.79.0.12 -- bash -eu -c");
    let text = ok(command.arg(script));
    let identifier = text.lines().next().unwrap();
    for words in ["link a/1 cm-idn ", " state LISTEN ps TCP pid ", " comm rping ", ":7174 "] {
        assert!(identifier.contains(words), "{text}");
    }
    let summary = text.lines().nth(1).unwrap();
    assert!(summary.starts_with("0: a: pd ") && summary.contains(" cm_id 1 "), "{text}");
    assert!(summary.contains(" ctx 1 "), "{text}");
}

#[test]
fn rdma_shows_the_queue_pairs_of_a_running_program() {
    let script = "rping -s -a 127.79.0.13 & server=$!\n\
         until rdma resource show cm_id | grep -q LISTEN; do sleep 0.05; done\n\
         rping -c -a 127.79.0.13 > /dev/null & client=$!\n\
         until test $(rdma resource show qp | grep -c RTS) = 2; do sleep 0.05; done\n\
         rdma -j resource show qp; kill $client $server";
    let mut command = install().run("--link a=127.79.0.13 -- bash -eu -c");
    let text = ok(command.arg(script));
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [server, client] = &listed.as_array().unwrap()[..] else { panic!("{text}") };
    assert_eq!((&server["lqpn"], &server["rqpn"]), (&client["rqpn"], &client["lqpn"]), "{text}");
    // The keys of a connected queue pair in iproute2 (rdma/res-qp.c).
    for qp in [server, client] {
        let keys: BTreeSet<&str> = qp.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "comm ifindex ifname lqpn path-mig-state pdn pid port rq-psn rqpn sq-psn \
                        state type";
        assert_eq!(keys, expected.split_whitespace().collect(), "{text}");
        assert_eq!((&qp["type"], &qp["path-mig-state"]), (&json!("RC"), &json!("MIGRATED")));
    }
}
