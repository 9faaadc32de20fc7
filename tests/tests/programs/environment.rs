//! `urxe env`: the environment of `urxe run` for all programs of a shell.

use std::process::Command;

use crate::install::{install, ok, text_of};
use crate::pair::exclusive;

/// Returns a shell of the ordinary user that evaluates the output of `urxe env` with these words,
/// and then runs `script`.
fn shell(words: &str, script: &str) -> Command {
    let mut shell = install().user("sh");
    let urxe = install().path("bin/urxe");
    shell.args(["-euc", &format!("eval \"$({} env {words})\"\n{script}", urxe.display())]);
    shell
}

#[test]
fn programs_of_a_shell_run_over_urxe() {
    let _exclusive = exclusive();
    let text = ok(&mut shell(
        "--link rxe7=127.79.1.1",
        "ibv_devices
        ibv_rc_pingpong -d rxe7 -g 0 -c -n 100 -p 22600 >server &
        # The client starts when the server listens.
        for attempt in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.3
            ! grep -qi ':5848 .* 0A ' /proc/net/tcp /proc/net/tcp6 || break
        done
        timeout 60 ibv_rc_pingpong -d rxe7 -g 0 -c -n 100 -p 22600 localhost
        wait $!
        cat server; rm server",
    ));
    // 22600 is 0x5848.
    assert_eq!(text.matches("100 iters").count(), 2, "{text}");
    assert!(text.contains("rxe7") && !text.contains("invalid data"), "{text}");
}

#[test]
fn all_options_reach_the_shell_whatever_characters_they_have() {
    let text = ok(&mut shell(
        "--link rxe0=127.79.1.2 --link rxe1=127.79.1.3 --fault loss=1%,seed=7 \
         --capture \"it's \\$HOME.pcapng\"",
        "echo \"devices $URXE_DEVICES\"
        echo \"faults $URXE_FAULTS\"
        echo \"capture $URXE_CAPTURE\"
        cat /sys/class/infiniband/rxe1/ports/1/state
        ibv_devinfo -d rxe1 >/dev/null
        test -s \"it's \\$HOME.pcapng\"; rm \"it's \\$HOME.pcapng\"",
    ));
    let home = install().path("home").canonicalize().unwrap();
    for line in [
        "devices rxe0=127.79.1.2,rxe1=127.79.1.3",
        "faults loss=1%,seed=7",
        &format!("capture {}/it's $HOME.pcapng", home.display()),
        "4: ACTIVE",
    ] {
        assert!(text.lines().any(|text| text == line), "{line}\n{text}");
    }
}

#[test]
fn earlier_loader_variables_are_kept() {
    let mut urxe = install().user(install().path("bin/urxe"));
    urxe.arg("env").env("LD_LIBRARY_PATH", "/opt/a:/opt/b").env("LD_PRELOAD", "/opt/c.so");
    let text = ok(&mut urxe);
    let path = text.lines().find(|line| line.starts_with("export LD_LIBRARY_PATH=")).unwrap();
    assert!(path.ends_with(":/opt/a:/opt/b'"), "{text}");
    let preloads = text.lines().find(|line| line.starts_with("export LD_PRELOAD=")).unwrap();
    assert!(preloads.starts_with("export LD_PRELOAD='/opt/c.so:/"), "{text}");
    assert!(preloads.ends_with("/liburxe_sysfs.so'"), "{text}");
}

#[test]
fn a_mistake_leaves_the_shell_as_it_is() {
    let output = shell("--link rxe0=", "echo \"path ${LD_LIBRARY_PATH-none}\"").output().unwrap();
    let text = text_of(&output);
    assert!(text.contains("path none") && text.contains("--link"), "{text}");
}
