//! Two users of one host with the default configuration. The test makes a network namespace,
//! because the built-in device has the same address in every test.

use std::process::Command;

use crate::install::{compile_as, install, is_root, ok};

/// A third user, besides root and [`NOBODY`](crate::install::NOBODY).
const OTHER: u32 = 65_533;

/// The first user has a device open while the second one runs programs. The words after `as` are a
/// user and a command.
const SCRIPT: &str = r#"
set -e
trap 'kill $(jobs -p) 2> /dev/null' EXIT
ip link set lo up
chmod 755 .
for user in $FIRST $SECOND; do mkdir $user; chown $user $user; done
as() {
    user=$1; shift
    HOME=$PWD/$user setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
}
mkfifo hold
as $FIRST $URXE run -- $OPENS first-user < hold > first &
exec 3> hold
until grep -q opened first; do kill -0 $!; sleep 0.05; done
as $SECOND $URXE link show | tee shown
pair() {
    as "$1" $URXE run -- $3 & server=$!
    until as "$2" $URXE run -- $4; do
        tries=$((tries + 1)); [ "$tries" -lt 40 ] || exit 1; sleep 0.1
    done
    wait $server
}
tries=0
pair $SECOND $SECOND "rping -s -a 127.0.0.1 -C 5 -V" "rping -c -a 127.0.0.1 -C 5 -V"
pair $SECOND $SECOND "rping -s -C 5 -V" "rping -c -a localhost -C 5 -V"
pair $SECOND $SECOND "rstream -b 127.0.0.1 -S 4096 -C 10" "rstream -s 127.0.0.1 -S 4096 -C 10"
pair $SECOND $SECOND "ib_write_bw -n 100 -s 4096" "ib_write_bw -n 100 -s 4096 127.0.0.1"
second=$(sed -n 's/^link .* address \([0-9.]*\).*/\1/p' shown)
pair $SECOND $FIRST "rping -s -C 5 -V" "rping -c -a $second -C 5 -V"
echo "second $second"
exec 3>&-
wait
trap - EXIT
echo done
"#;

#[test]
fn the_built_in_device_of_a_second_user_stands_for_localhost() {
    if !is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let opens = compile_as("privileged", "bin/opens-first", &["-Wl,--as-needed", "-libverbs"]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    install().environment(&mut command);
    command.args(["60", "unshare", "--net", "bash", "-c", SCRIPT]).current_dir(folder.path());
    command.env("URXE", install().path("bin/urxe")).env("OPENS", opens);
    command.env("FIRST", OTHER.to_string()).env("SECOND", "65534");
    let said = ok(&mut command);
    assert!(said.ends_with("done\n"), "{said}");
    let shown = said.lines().nth(1).unwrap_or_default();
    assert!(shown.starts_with("    instead of 127.0.0.1, which process "), "{said}");
    assert!(shown.ends_with(&format!("(first-user) of user {OTHER} has")), "{said}");
    let second = said.lines().find_map(|line| line.strip_prefix("second ")).unwrap();
    assert!(second.starts_with("127.") && second != "127.0.0.1", "{said}");
}
