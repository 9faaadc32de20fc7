//! The options `-d` and `--link`, and the variables of captures and faults, in all commands.
//!
//! Each test uses its own 127.84.x network.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

use crate::common::{Finish as _, User, run, urxe};

/// The end of each error about devices.
const CHOOSE: &str = "; choose a device by -d NAME or --link NAME=ADDRESS\n";
/// Each command that opens devices, with the words that it needs.
const OPEN: [&str; 7] = [
    "pingpong --quick",
    "perf -n 1",
    "listen 0",
    "connect 127.0.0.1 9",
    "rping -s",
    "rping -c -a 127.0.0.1",
    "devinfo",
];
/// Commands that give devices to other programs.
const PASS_ON: [&str; 2] = ["run", "env"];

/// A server, and the port that its first line on standard error ends with.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        // The server writes no more than fits the pipe.
        let mut stderr = BufReader::new(child.stderr.as_mut().unwrap());
        let mut port = None;
        let mut line = String::new();
        while port.is_none() {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it does not listen");
            let (_, after) = line.trim().rsplit_once("listens on ").unwrap_or_default();
            port = after.rsplit_once(':').map(|(_, port)| port.to_owned());
        }
        Self { child, port: port.unwrap() }
    }
}

#[test]
fn all_commands_select_devices_by_the_same_options() {
    let user = User::new();
    for command in OPEN.into_iter().chain(PASS_ON) {
        let said = |words: &str, program: &str| {
            let program = if command == "run" { program } else { "" };
            user.run(&format!("{command} {words} {program}")).fails(1)
        };
        let unknown = said("-d nosuch", "-- true");
        let expected = format!("no link nosuch in the built-in default; there are: rxe0{CHOOSE}");
        assert!(unknown.ends_with(&expected), "{command}: {unknown}");
        let unknown = said("--link one=127.84.1.1 --link two=lo --ib-dev rxe0", "-- true");
        let expected = format!("no link rxe0 in --link; there are: one, two{CHOOSE}");
        assert!(unknown.ends_with(&expected), "{command}: {unknown}");
        let twice = said("--link one=127.84.1.1 --link one=lo", "-- true");
        assert!(twice.contains("the device one is listed a second time"), "{command}: {twice}");
    }
}

#[test]
fn a_device_that_cannot_be_opened_is_named_with_the_options() {
    for command in OPEN {
        for (words, device) in [
            ("-d 192.0.2.77", "rxe0=192.0.2.77"),
            ("-d mine=192.0.2.77", "mine=192.0.2.77"),
            ("--link mine=192.0.2.77", "mine=192.0.2.77 (--link)"),
        ] {
            let said = run(&format!("{command} {words}")).fails(1);
            let start = format!("urxe: device {device}: 192.0.2.77 is not an address of this");
            assert!(said.starts_with(&start) && said.ends_with(CHOOSE), "{command}: {said}");
        }
    }
    // The route to this documentation address (RFC 5737) starts at no loopback device.
    let said = run("connect 192.0.2.77 9 -d 127.84.2.1").fails(1);
    assert!(said.contains("192.0.2.77"), "{said}");
    let said = run("listen 0 -a 127.84.2.9 -d 127.84.2.1").fails(1);
    assert!(said.contains("devices: rxe0=127.84.2.1") && said.ends_with(CHOOSE), "{said}");
}

#[test]
fn the_selected_device_carries_the_traffic() {
    let links = "--link other=127.84.3.9 --link mine=127.84.3.1";
    let json = run(&format!("devinfo --json {links} -d mine")).json();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(json[0]["port"]["gids"][0]["gid"], "::ffff:127.84.3.1");
    for command in ["pingpong --quick -n 5", "perf write -s 64 -n 5 --rounds 1 --bandwidth"] {
        let report = run(&format!("{command} --json {links} -d mine")).json();
        assert_eq!(report["device"], "mine=127.84.3.1", "{command}");
        let report = run(&format!("{command} --json {links}")).json();
        assert_eq!(report["device"], "other=127.84.3.9", "{command}");
    }

    let server = Server::start(&mut urxe(&format!("listen 0 {links}")));
    let words = format!("connect 127.84.3.1 {} --verify 1000 -d 127.84.3.2", server.port);
    run(&words).ok();
    let said = server.child.finish().ok();
    assert!(said.starts_with("127.84.3.2:"), "{said}");

    // Without a value, -d of rping has the meaning of the original.
    let server = Server::start(&mut urxe(&format!("rping -s -p 0 -d -v {links}")));
    let words = format!("rping -c -a 127.84.3.1 -p {} -C 1 -d mine=127.84.3.3", server.port);
    let client = run(&format!("{words} --debug"));
    assert!(client.stderr.contains("127.84.3.3"), "{client:?}");
    client.ok();
    server.child.finish().ok();
}

#[test]
fn captures_and_faults_work_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets-%p.pcapng");
    let server = Server::start(urxe("listen 0 -d 127.84.4.1").env("URXE_CAPTURE", &file));
    let file = folder.path().join(format!("packets-{}.pcapng", server.child.id()));
    let words = format!("connect 127.84.4.1 {} --verify 1M -d 127.84.4.2", server.port);
    let client = urxe(&words).env("URXE_FAULTS", "duplicate=50%,seed=1").finish();
    assert!(client.stderr.contains("duplicate=50%,seed=1"), "{client:?}");
    assert!(client.stderr.contains("faults suffered"), "{client:?}");
    client.ok();
    server.child.finish().ok();
    let packets = run(&format!("decode {}", file.display())).ok();
    assert!(packets.contains("SEND") && packets.contains("DREQ"), "{packets}");

    let server = Server::start(&mut urxe("rping -s -d 127.84.4.3 --debug -p 0"));
    let words = format!("rping -c -a 127.84.4.3 -p {} -C 1 -d 127.84.4.4", server.port);
    let folder = folder.path().join("no/such.pcapng");
    let refused = urxe(&words).env("URXE_CAPTURE", &folder).finish().fails(1);
    assert!(refused.contains("URXE_CAPTURE: cannot write"), "{refused}");
    let client = urxe(&words).env("URXE_FAULTS", "delay=1us,seed=1").finish();
    assert!(client.stderr.contains("delay=1us,seed=1"), "{client:?}");
    client.ok();
    server.child.finish().ok();

    for words in ["link", "link show", "devinfo", "doctor"] {
        let command = urxe(words).env("URXE_CAPTURE", "x").env("URXE_FAULTS", "loss=1%").finish();
        command.ok();
    }
}
