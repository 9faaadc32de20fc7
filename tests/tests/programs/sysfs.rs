//! Programs that read `/sys/class/infiniband` themselves, in the view of `urxe run`.

use crate::install::{NOBODY, compile, compile_as, install, is_root, ok, passes};
use crate::pair::run_on_two_addresses;

const FOLDER: &str = "/sys/class/infiniband";
const LINK: &str = "--link rxe0=127.79.0.8";

#[test]
fn files_and_folders_are_there_for_every_program() {
    let text = ok(&mut install().run(&format!("{LINK} -- ls -lL {FOLDER}/rxe0/ports/1")));
    for name in ["state", "gid_attrs", "gids", "hw_counters", "pkeys"] {
        assert!(text.contains(name), "{text}");
    }
    let files = [
        "node_guid",
        "ports/1/state",
        "ports/1/gids/0",
        "ports/1/gid_attrs/types/1",
        "ports/1/rate",
    ];
    let files = files.map(|file| format!("{FOLDER}/rxe0/{file}")).join(" ");
    let text = ok(&mut install().run(&format!("{LINK} -- cat {files}")));
    assert_eq!(
        text,
        "0000:5efe:7f4f:0008\n4: ACTIVE\n0000:0000:0000:0000:0000:ffff:7f4f:0008\nRoCE v2\n\
         2.5 Gb/sec (1X SDR)\n"
    );
    let script = format!(
        "import os; d='{FOLDER}/rxe0'; print(os.listdir('{FOLDER}'), \
         open(d+'/ports/1/link_layer').read().strip(), os.path.realpath(d), \
         os.listdir(d+'/device/net'), os.path.exists(d+'x'), \
         [e.name for e in os.scandir(d+'/ports')])"
    );
    let mut python = install().run(&format!("{LINK} -- python3 -c"));
    assert_eq!(
        ok(python.arg(script)),
        "['rxe0'] Ethernet /sys/devices/virtual/infiniband/rxe0 ['lo'] False ['1']\n"
    );
    let shell = format!(
        "cd {FOLDER}/rxe0 && cat node_type && realpath {FOLDER}/rxe0/ports && \
         read x < node_desc && echo $x"
    );
    let mut shell_command = install().run(&format!("{LINK} -- sh -c"));
    assert_eq!(
        ok(shell_command.arg(shell)),
        "1: CA\n/sys/devices/virtual/infiniband/rxe0/ports\nrxe0\n"
    );
}

#[test]
fn with_the_option_there_is_nothing() {
    for option in ["--no-sysfs", "--no-preload"] {
        let words = format!("{option} {LINK} -- ls {FOLDER}/rxe0/node_guid");
        assert!(!install().run(&words).output().unwrap().status.success(), "{option}");
    }
    // The option of earlier versions has no effect.
    ok(&mut install().run(&format!("--sysfs {LINK} -- ls {FOLDER}/rxe0/node_guid")));
}

#[test]
fn the_view_has_a_second_place_and_programs_run_without_it() {
    let cache = install().path("home/no-view");
    std::fs::create_dir_all(cache.join("urxe")).unwrap();
    // With a file in place of the folder, the view is in a folder of the session.
    std::fs::write(cache.join("urxe/sysfs"), "").unwrap();
    if is_root() {
        for path in [&cache, &cache.join("urxe")] {
            std::os::unix::fs::chown(path, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
    }
    let copy = cache.join("alone/liburxe.so");
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::copy(install().path("lib/liburxe.so"), &copy).unwrap();
    let mut run = install().run(&format!("{LINK} -- ibv_devinfo"));
    assert!(ok(run.env("URXE_LIBRARY", &copy)).contains("rxe0"), "no library for the view");
    let mut run = install().run(&format!("{LINK} -- cat {FOLDER}/rxe0/node_guid"));
    ok(run.env("XDG_CACHE_HOME", &cache));
}

#[test]
fn perftest_reads_counters_that_move() {
    let counters =
        ["counters/port_xmit_packets", "hw_counters/rcvd_pkts", "hw_counters/rdma_sends"];
    let words = format!("ib_write_bw -x 0 -F -s 4096 -n 500 -W {}", counters.join(","));
    let pair = run_on_two_addresses("", &words);
    let value = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    };
    assert_eq!(value(&pair.client, counters[2]), 500, "a WRITE each");
    assert!(value(&pair.client, counters[0]) >= 500 && value(&pair.client, counters[1]) > 0);
    assert!(value(&pair.server, counters[1]) >= 500 && value(&pair.server, counters[2]) == 0);
}

#[test]
fn ucx_finds_the_device_and_offers_its_transports() {
    let text = ok(&mut install().run(&format!("{LINK} -- timeout 60 ucx_info -d")));
    for transport in ["rc_verbs", "ud_verbs"] {
        let there = text.lines().collect::<Vec<_>>();
        let there = there.windows(2).any(|two| {
            two[0].trim_end().ends_with(&format!("Transport: {transport}"))
                && two[1].ends_with("rxe0:1")
        });
        assert!(there, "{transport} is not in\n{text}");
    }
}

#[test]
fn ucx_moves_messages_over_its_transports() {
    for (transport, test) in [("rc_v", "tag_lat"), ("ud_v", "tag_bw"), ("rc_v", "ucp_get")] {
        let words = format!("env UCX_TLS={transport},self ucx_perftest -t {test} -n 200 -w 10");
        let pair = run_on_two_addresses("", &words);
        assert!(
            pair.client.lines().any(|line| line.starts_with("Final:")),
            "{words}\n{}",
            pair.client
        );
    }
}

/// UCX 1.18.1 and later asks so for each device.
#[test]
fn questions_by_netlink_are_answered() {
    passes(&format!("--sysfs {LINK} --link rxe1=127.79.0.9"), &compile("netlink"), "");
}

/// The library recognizes libfabric by the name of the file that calls.
#[test]
fn only_libfabric_gets_addresses_of_loopback_devices_without_the_flag() {
    let options = format!("--sysfs {LINK}");
    passes(&options, &compile("interfaces"), "");
    let named = compile_as("interfaces", "bin/libfabric-interfaces", &[]);
    passes(&options, &named, "127.79.0.8");
}
