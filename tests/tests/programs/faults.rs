//! Programs on a bad network: `urxe run --fault`.

use std::process::Command;

use crate::install::{install, text_of};
use crate::pair::run_on_two_addresses;

/// The faults of every end: enough that each of them occurs within some thousand packets.
const FAULTS: &str = "loss=1%,reorder=2%,late=300us,duplicate=1%,corrupt=0.5%,seed=7";

/// Returns the number after `name=` in the line that a device logs when it is closed.
fn counted(log: &str, name: &str) -> u64 {
    let line = log
        .lines()
        .find(|line| line.contains("faults suffered"))
        .unwrap_or_else(|| panic!("{log}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

#[test]
fn a_ping_pong_arrives_whole_over_a_bad_network() {
    let pair =
        run_on_two_addresses(&format!("--fault {FAULTS}"), "ibv_rc_pingpong -g 0 -c -n 1000");
    for (out, log) in [(pair.server, pair.server_log), (pair.client, pair.client_log)] {
        assert!(out.contains("1000 iters") && !out.contains("invalid data"), "{out}");
        assert!(log.contains("seed=7"), "{log}");
        for fault in ["lost", "duplicated", "reordered", "corrupted"] {
            assert!(counted(&log, fault) > 0, "{fault} {log}");
        }
    }
}

#[test]
fn a_seed_is_chosen_and_logged() {
    let output = install().run("--fault delay=1us -- ibv_devices").output().unwrap();
    let text = text_of(&output);
    assert!(
        output.status.success() && text.contains("packets that arrive suffer delay=1us,seed="),
        "{text}"
    );
}

#[test]
fn mistakes_are_reported() {
    let output = install().run("--fault los=1% -- ibv_devices").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text_of(&output).contains("unknown fault \"los\"; the faults are loss,"),
        "{}",
        text_of(&output)
    );
    let mut command: Command = install().run("-- ibv_devinfo");
    let output = command.env("URXE_FAULTS", "loss=2").output().unwrap();
    assert!(
        text_of(&output).contains("URXE_FAULTS: loss=2: expected a share of the packets"),
        "{}",
        text_of(&output)
    );
    for (variable, value) in
        [("URXE_DIRECT", "no"), ("URXE_ECN", "1"), ("URXE_CHECKED_COPIES", "yes")]
    {
        let output = install().run("-- ibv_devinfo").env(variable, value).output().unwrap();
        let text = text_of(&output);
        assert!(
            text.contains(&format!("{variable} is \"{value}\"; the allowed values are on and off")),
            "{text}"
        );
    }
    for share in ["101", "-1", "much"] {
        let output = install().run("-- ibv_devinfo").env("URXE_SPIN", share).output().unwrap();
        let text = text_of(&output);
        let error = format!("URXE_SPIN={share:?} is no share: give a whole number of percent");
        assert!(text.contains(&error), "{text}");
    }
    let output = install().run("-- ibv_devinfo").env("URXE_STRICT", "on").output().unwrap();
    let text = text_of(&output);
    assert!(text.contains("URXE_STRICT is \"on\"; the allowed value is queues"), "{text}");
}
