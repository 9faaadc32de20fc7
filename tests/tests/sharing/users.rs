//! Users on one host: they are kept apart, and each one's processes find each other.
//!
//! All tests but the first need root, because they are other users.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use urxe_tests::process::KillOnDrop;

use super::address;
use super::member::{Member, TIMEOUT};

/// Brings loopback up, in a namespace without other users.
pub fn own_namespace() {
    let interfaces = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let others =
        interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count();
    assert_eq!(
        others, 0,
        "this is not a network namespace of the test's own: run cargo xtask namespace"
    );
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
}

/// Returns whether this process is root of all users, not only of a user namespace.
fn can_be_others() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let mut counts =
        users.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    rustix::process::geteuid().is_root() && counts.any(|count| count > u64::from(USERS[1]))
}

const USERS: [u32; 2] = [60_001, 60_002];

/// The programs, at a path where every user can run them.
struct Programs(tempfile::TempDir);

impl Programs {
    /// Copies the programs. Returns `None` if this process cannot be other users.
    fn copied() -> Option<Self> {
        own_namespace();
        if !can_be_others() {
            println!("not tried: needs root outside of a user namespace");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        for program in [env!("CARGO_BIN_EXE_urxe-member"), env!("CARGO_BIN_EXE_urxe-stranger")] {
            let name = Path::new(program).file_name().unwrap();
            std::fs::copy(program, place.path().join(name)).unwrap();
        }
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        Some(Self(place))
    }

    /// Returns a command of `user` that ends with the program. `before` are the words before it,
    /// such as those of `unshare`, which run as root.
    fn command(&self, user: u32, before: &[&str], program: &str) -> Command {
        let id = user.to_string();
        let as_user = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
        let words: Vec<&str> = before.iter().copied().chain(as_user).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(self.0.path().join(program));
        command
    }

    /// Starts a member of `user` with the lowest free slot. Panics if it cannot open the address.
    fn member(&self, user: u32, before: &[&str], address: IpAddr) -> Member {
        Member::opened(self.command(user, before, "urxe-member"), address)
    }

    /// Starts a stranger, who is the second user.
    fn stranger(&self, what: &str, address: IpAddr) -> Stranger {
        let mut command = self.command(USERS[1], &[], "urxe-stranger");
        command.args([what, &address.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = KillOnDrop(child);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Stranger { child, output }
    }
}

/// A process that runs `urxe-stranger`.
struct Stranger {
    child: KillOnDrop,
    output: BufReader<ChildStdout>,
}

impl Stranger {
    /// Ends the process. Returns what it has printed since it was ready.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }
}

/// Checks that two members exchange verified messages.
fn exchange(members: [&mut Member; 2]) {
    let [a, b] = members;
    let ends = [a.request("qp 7", "endpoint"), b.request("qp 7", "endpoint")];
    a.request(&format!("connect 7 {}", ends[1]), "ok");
    b.request(&format!("connect 7 {}", ends[0]), "ok");
    b.request("start 7", "ok");
    let start = Instant::now();
    let messages = |member: &mut Member| {
        member.send("status");
        member.message_counts(&[7])[0].1
    };
    while messages(a) < 10 || messages(b) < 10 {
        assert!(start.elapsed() < TIMEOUT, "the pair makes no progress");
        std::thread::sleep(Duration::from_millis(5));
    }
    for member in [a, b] {
        member.request("drop 7", "ok");
    }
}

#[test]
#[ignore = "needs root, to be two other users: cargo xtask namespace"]
fn two_users_have_an_address_each_and_the_shared_one_gives_an_error_that_names_the_owner() {
    let Some(programs) = Programs::copied() else { return };
    let addresses = [address(16), address(17)];
    let spawn =
        |uid: u32, address: IpAddr| Member::run(programs.command(uid, &[], "urxe-member"), address);
    let owners = [0, 1].map(|n| programs.member(USERS[n], &[], addresses[n]));
    assert_eq!([owners[0].slot, owners[1].slot], [0, 0]);
    for (n, other) in [(0, 1), (1, 0)] {
        assert_eq!(spawn(USERS[n], addresses[n]).read_reply("slot"), "1", "one's own address");
        let error = spawn(USERS[n], addresses[other]).read_reply("error");
        let owner =
            format!("process {} (urxe-member) of user {}", owners[other].child.id(), USERS[other]);
        assert!(error.contains(&owner) && error.contains("; 127."), "{error}");
        // The address in the message works.
        let free =
            error.rsplit("; ").next().and_then(|rest| rest.strip_suffix(" is free")).unwrap();
        assert_eq!(spawn(USERS[n], free.parse().unwrap()).read_reply("slot"), "0");
    }
}

/// All names of the address are taken before the first process of the user starts, so the processes
/// meet in the folder of the user. They have the variables of a login shell and of a cron job.
#[test]
#[ignore = "needs root, to be two other users: cargo xtask namespace"]
fn a_stranger_who_has_all_names_first_is_ignored() {
    let Some(programs) = Programs::copied() else { return };
    let address = address(18);
    let stranger = programs.stranger("squat", address);
    let login = ["env", "-i", "HOME=/nonexistent", "XDG_RUNTIME_DIR=/run/user/0", "TMPDIR=/var"];
    let cron = ["env", "-i", "HOME=/", "SHELL=/bin/sh", "LOGNAME=nobody"];
    let mut first = programs.member(USERS[0], &login, address);
    let mut second = programs.member(USERS[0], &cron, address);
    assert_eq!([first.slot, second.slot], [0, 1]);
    exchange([&mut first, &mut second]);
    drop(stranger);
    // The names are free now, and the processes in the folder are still found.
    let mut third = programs.member(USERS[0], &[], address);
    assert_eq!(third.slot, 2);
    exchange([&mut first, &mut third]);
    drop([first, second, third]);
    assert_eq!(programs.member(USERS[1], &[], address).slot, 0, "nothing is left");
}

/// Processes of one user in other mount, process and user namespaces, as the containers of a pod
/// have them.
#[test]
#[ignore = "needs root, to be two other users: cargo xtask namespace"]
fn containers_in_one_network_namespace_find_each_other() {
    let Some(programs) = Programs::copied() else { return };
    let address = address(19);
    let mut outside = programs.member(USERS[0], &[], address);
    let container = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"];
    let hidden = [&container[..], &["sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh"]];
    let mut inside = programs.member(USERS[0], &hidden.concat(), address);
    exchange([&mut outside, &mut inside]);
    // The user has the id 0 in a user namespace of its own.
    let id = USERS[0].to_string();
    let mut mapped = Command::new("setpriv");
    mapped.args(["--reuid", &id, "--regid", &id, "--clear-groups", "unshare", "--map-root-user"]);
    mapped.arg(programs.0.path().join("urxe-member"));
    let mut mapped = Member::opened(mapped, address);
    exchange([&mut outside, &mut mapped]);
    assert_eq!([outside.slot, inside.slot, mapped.slot], [0, 1, 2]);
}

/// A process without a user id in its namespace cannot distinguish users by their ids.
#[test]
#[ignore = "needs root, to be two other users: cargo xtask namespace"]
fn a_stranger_with_the_overflow_id_is_not_believed() {
    let Some(programs) = Programs::copied() else { return };
    let address = address(20);
    let id = USERS[0].to_string();
    let unmapped = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "unshare", "--user"]);
        command.arg(programs.0.path().join("urxe-member"));
        command
    };
    let stranger = programs.stranger("impersonate", address);
    let error = Member::run(unmapped(), address).read_reply("error");
    assert!(error.contains("port 4791"), "{error}");
    assert_eq!(stranger.end(), "", "the process has sent nothing to the stranger");
    // Without a stranger the address works, although names are taken.
    let squatter = programs.stranger("squat", address);
    assert_eq!(Member::opened(unmapped(), address).slot, 0);
    drop(squatter);
}

#[test]
#[ignore = "needs root, to be two other users: cargo xtask namespace"]
fn a_stranger_who_fills_the_queues_keeps_no_process_from_joining() {
    let Some(programs) = Programs::copied() else { return };
    let address = address(21);
    let mut first = programs.member(USERS[0], &[], address);
    let _stranger = programs.stranger("fill", address);
    for slot in 1..4 {
        let mut next = programs.member(USERS[0], &[], address);
        assert_eq!(next.slot, 1, "process {slot}");
        exchange([&mut first, &mut next]);
    }
}
