//! The small commands of `urxe run`: `rdma`, `modprobe` and so on, as links to the binary.
//!
//! The expected texts and JSON are those of iproute2 6.1 over the kernel's `rdma_rxe`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{Finish as _, Run, User};

/// A user with a folder of the system's commands, which print their names and arguments.
struct Scripts {
    user: User,
    system: tempfile::TempDir,
}

impl Scripts {
    fn new() -> Self {
        Self { user: User::new(), system: tempfile::tempdir().unwrap() }
    }

    /// Adds a command of the system.
    fn system(&self, name: &str, script: &str) {
        let path = self.system.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns a run of the binary under another name.
    #[track_caller]
    fn run(&self, words: &str) -> Run {
        let mut words = words.split_whitespace();
        let mut command = self.user.urxe("");
        command.arg0(words.next().unwrap()).args(words);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.system.path().display()));
        command.finish()
    }
}

#[test]
fn rdma_adds_shows_and_deletes_devices() {
    let scripts = Scripts::new();
    assert_eq!(scripts.run("rdma link add rxe_0 type rxe netdev lo").ok(), "");
    let line = "link rxe_0/1 state ACTIVE physical_state LINK_UP netdev lo ";
    for words in ["rdma link", "rdma l", "rdma link show", "rdma link list rxe_0/1", "rdma -p link"]
    {
        assert_eq!(scripts.run(words).ok(), format!("{line}\n"), "{words}");
    }
    let detailed = scripts.run("rdma link -d").ok();
    assert!(detailed.starts_with(&format!("{line}netdev_index ")), "{detailed}");
    let shown = scripts.user.run("link").ok();
    assert!(shown.starts_with("link rxe_0/1 state ACTIVE"), "{shown}");
    assert_eq!(scripts.run("rdma link delete rxe_0").ok(), "");
    let built_in = scripts.run("rdma link").ok();
    assert!(built_in.starts_with("link rxe0/1 "), "{built_in}");
}

#[test]
fn json_of_rdma_has_the_keys_of_iproute2_in_their_order() {
    let scripts = Scripts::new();
    scripts.run("rdma link add rxe_0 type rxe netdev lo").ok();
    for (words, keys) in [
        ("link", "ifindex ifname port state physical_state netdev netdev_index"),
        ("dev", "ifindex ifname node_type node_guid sys_image_guid"),
        ("-d dev", "ifindex ifname node_type node_guid sys_image_guid adaptive-moderation caps"),
        ("resource", "ifindex ifname pd cq qp cm_id mr ctx srq"),
        (
            "statistic",
            "ifname port sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err \
             send_rnr_err rcvd_seq_err ack_deferred retry_exceeded_err retry_rnr_exceeded_err \
             completer_retry_err send_err link_downed rdma_sends rdma_recvs",
        ),
    ] {
        let compact = scripts.run(&format!("rdma -j {words}")).ok();
        let pretty = scripts.run(&format!("rdma -jp {words}")).ok();
        assert_eq!(compact.lines().count(), 1, "{compact}");
        assert!(
            pretty.starts_with("[ {\n        \"if") && pretty.ends_with("\n    } ]\n"),
            "{pretty}"
        );
        for text in [compact, pretty] {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let found: Vec<&String> = value[0].as_object().unwrap().keys().collect();
            assert_eq!(found, keys.split_whitespace().collect::<Vec<_>>(), "{words}");
            assert_eq!(value[0]["ifname"], "rxe_0");
        }
    }
    assert_eq!(scripts.run("rdma -j resource show srq").ok(), "[]\n");
    assert_eq!(scripts.run("rdma system").ok(), "netns shared copy-on-fork on\n");
}

#[test]
fn rdma_counts_the_objects_of_running_programs() {
    use urxe_stack::driver::{Engine, EngineConfig};
    use urxe_stack::link::{LinkSpec, Source};
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = std::net::IpAddr::from([127, 91, high, low.max(1)]);
    let spec = LinkSpec { source: Source::Address(address), ..LinkSpec::built_in() };
    let engine = Engine::open(&spec, EngineConfig::default()).unwrap();
    let _cq = engine.device().create_cq(16, None, 0).unwrap();
    let mut command = User::new().urxe("-j resource");
    let json = command.arg0("rdma").env("URXE_DEVICES", format!("a={address}")).finish().json();
    assert_eq!(
        (&json[0]["ctx"], &json[0]["cq"], &json[0]["qp"]),
        (&1.into(), &1.into(), &0.into())
    );
}

#[test]
fn mistakes_get_the_answers_of_iproute2() {
    let scripts = Scripts::new();
    scripts.run("rdma link add rxe_0 type rxe netdev lo").ok();
    for (words, code, said) in [
        ("rdma link add rxe_0 type rxe netdev lo", 1, "error: File exists"),
        ("rdma link add rxe_1 type rxe netdev lo", 1, "error: File exists"),
        ("rdma link add rxe_1 type rxe netdev nosuch0", 1, "error: No such device"),
        ("rdma link add", 1, "Please provide a link name to add."),
        ("rdma link delete nosuch", 1, "Wrong device name - nosuch"),
        ("rdma link show nosuch", 1, "Wrong device name"),
        ("rdma link show rxe_0", 1, "Wrong device name"),
        ("rdma link show rxe_0/2", 1, "Wrong device name"),
        ("rdma dev show nosuch", 1, "Wrong device name - nosuch"),
        ("rdma foo", 0, "Unknown object 'foo'."),
        ("rdma link foo", 0, "Unknown link command 'foo'."),
    ] {
        let run = scripts.run(words);
        assert_eq!((run.code, run.stderr.trim_end()), (Some(code), said), "{words}");
    }
    let fixed = scripts
        .user
        .urxe("link add a type rxe netdev lo")
        .arg0("rdma")
        .env("URXE_DEVICES", "b=127.0.0.2")
        .finish();
    assert!(fixed.fails(1).contains("urxe run --link"));
}

#[test]
fn other_modules_and_links_are_passed_on() {
    let scripts = Scripts::new();
    for name in ["modprobe", "insmod", "rmmod", "rdma", "modinfo"] {
        scripts.system(name, "echo system \"$(basename $0)\" \"$@\"");
    }
    for (words, said) in [
        ("modprobe rdma_rxe", ""),
        ("modprobe -v -a ib_core ib_uverbs rdma-rxe", ""),
        ("modprobe xfs", "system modprobe xfs\n"),
        ("modprobe -a ib_core xfs nvme", "system modprobe -a xfs nvme\n"),
        ("modprobe --show-depends rdma_rxe", "system modprobe --show-depends rdma_rxe\n"),
        ("insmod /tmp/linux/rdma_rxe.ko", ""),
        ("insmod ./xfs.ko.xz", "system insmod ./xfs.ko.xz\n"),
        ("rmmod siw", "system rmmod siw\n"),
        ("rmmod -f ib_uverbs siw", "system rmmod -f siw\n"),
        ("modinfo xfs", "system modinfo xfs\n"),
        ("modinfo -n rdma_rxe", "(builtin)\n"),
        ("rdma link add s0 type siw netdev lo", "system rdma link add s0 type siw netdev lo\n"),
        ("rdma monitor", "system rdma monitor\n"),
        ("rdma -V", "system rdma -V\n"),
    ] {
        assert_eq!(scripts.run(words).ok(), said, "{words}");
    }
    let missing = Scripts::new();
    let mut command = missing.user.urxe("link");
    let run = command.arg0("rxe_cfg").env("PATH", missing.system.path()).finish();
    assert!(run.fails(1).contains("expected status, start"));
}

#[test]
fn unloading_the_module_deletes_the_devices() {
    for unload in ["modprobe -r rdma_rxe", "rmmod rdma_rxe", "rxe_cfg stop"] {
        let scripts = Scripts::new();
        scripts.run("rdma link add rxe_0 type rxe netdev lo").ok();
        scripts.run("modprobe -rn rdma_rxe").ok();
        assert!(scripts.run("rdma link").ok().starts_with("link rxe_0/1 "));
        scripts.run(unload).ok();
        assert!(scripts.run("rdma link").ok().starts_with("link rxe0/1 "), "{unload}");
    }
}

#[test]
fn rxe_cfg_numbers_the_devices() {
    let scripts = Scripts::new();
    scripts.run("rxe_cfg start -p eth_proto").ok();
    scripts.run("rxe_cfg add -n lo").ok();
    assert_eq!(scripts.run("rxe_cfg persistent").ok(), "lo\n");
    assert!(scripts.run("rdma link").ok().starts_with("link rxe0/1 "));
    assert!(scripts.run("rxe_cfg add lo").fails(1).contains("in the list already"));
    assert!(scripts.run("rxe_cfg status").ok().starts_with("  Name"));
    scripts.run("rxe_cfg remove lo").ok();
    assert_eq!(scripts.run("rxe_cfg persistent").ok(), "");
}

#[test]
fn sudo_runs_own_commands_and_keeps_the_variables_of_others() {
    let scripts = Scripts::new();
    scripts.run("sudo -n rdma link add rxe_0 type rxe netdev lo").ok();
    assert!(scripts.run("sudo /usr/bin/rdma link").ok().starts_with("link rxe_0/1 "));
    // A shell and another user are for the real sudo.
    scripts.system("sudo", "echo system sudo \"$@\"");
    assert_eq!(scripts.run("sudo -i").ok(), "system sudo -i\n");
    let said = scripts.run("sudo -u nobody id").ok();
    assert!(
        said.starts_with("system sudo -u nobody env ") && said.ends_with("/urxe run -- id\n"),
        "{said}"
    );
    // A sudo that does not allow env.
    scripts.system("sudo", "[ \"$2\" = -l ] && exit 1; echo system sudo \"$@\"");
    assert_eq!(scripts.run("sudo -u nobody id").ok(), "system sudo -u nobody id\n");
}

#[test]
fn ibstat_and_its_relatives_show_the_devices() {
    let scripts = Scripts::new();
    scripts.run("rdma link add rxe_0 type rxe netdev lo").ok();
    let text = scripts.run("ibstat").ok();
    for line in
        ["CA 'rxe_0'\n", "\t\tState: Active\n", "\t\tRate: 2.5\n", "\t\tLink layer: Ethernet\n"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(scripts.run("ibstat -l").ok(), "rxe_0\n");
    assert!(
        scripts.run("ibstat rxe_0 1").ok().starts_with("CA: 'rxe_0'\nPort 1:\nState: Active\n")
    );
    assert_eq!(scripts.run("ibstat nosuch").code, Some(255));
    let text = scripts.run("ibstatus rxe_0:1").ok();
    assert!(text.starts_with("Infiniband device 'rxe_0' port 1 status:\n"), "{text}");
    assert!(text.contains("\n\tstate:\t\t 4: ACTIVE\n"), "{text}");
    let gids = scripts.run("show_gids").ok();
    assert!(gids.contains("rxe_0\t1\t0\t") && gids.contains("127.0.0.1"), "{gids}");
    let modules = scripts.run("lsmod").ok();
    assert!(modules.lines().any(|line| line.starts_with("rdma_rxe ")), "{modules}");
}

#[test]
fn a_script_under_run_finds_the_commands_first() {
    let user = User::new();
    let cache = tempfile::tempdir().unwrap();
    let mut command = user.urxe("env");
    // Any file, because no program is started.
    command.env("URXE_LIBRARY", env!("CARGO_BIN_EXE_urxe")).env("XDG_CACHE_HOME", cache.path());
    let output = command.finish().ok();
    let path = output.lines().find_map(|line| line.strip_prefix("export PATH='")).unwrap();
    let folder = path.split([':', '\'']).next().unwrap();
    let mut command = Command::new(format!("{folder}/rdma"));
    command.args(["-j", "link"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("URXE_DEVICES").env("XDG_CONFIG_HOME", "/nonexistent");
    assert_eq!(command.finish().json()[0]["ifname"], "rxe0");
}
