//! A network namespace with a veth pair, whose interfaces and addresses a test changes while
//! programs run there.
//!
//! Root creates the namespace by `unshare --net`. Other users also create a user namespace in which
//! they are root, if the system allows that.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use urxe_tests::process::KillOnDrop;

use crate::install::{NOBODY, install, is_root, ok};

/// The MAC address of `here`, and the GID that follows from it.
const MAC: &str = "02:00:00:00:00:63";
pub const GID_BY_MAC: &str = "fe80::ff:fe00:63";

/// A veth pair: the interface `here`, and its other end `there`, which has no address. Taking
/// `there` down removes the carrier.
pub struct Veth {
    /// The only process of the namespace. The namespace and the veth pair disappear with it.
    holder: KillOnDrop,
}

impl Veth {
    /// Creates a veth pair with these addresses at `here`, each with its prefix length.
    pub fn with(addresses: &[&str]) -> Self {
        let mut unshare = Command::new("unshare");
        if !is_root() {
            unshare.arg("--map-root-user");
        }
        unshare.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let veth = Self { holder: KillOnDrop(unshare.spawn().unwrap()) };
        veth.wait_for_namespace();
        veth.ip("link set lo up");
        veth.ip(&format!("link add here address {MAC} type veth peer name there"));
        // A link-local address would appear seconds after the interface.
        veth.ip("link set here addrgenmode none");
        for address in addresses {
            veth.ip(&format!("address add {address} dev here"));
        }
        veth.ip("link set there up");
        veth.ip("link set here up");
        veth.wait_for_carrier();
        veth
    }

    /// Waits until `unshare` has entered the namespace, some time after its start.
    fn wait_for_namespace(&self) {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let link = format!("/proc/{}/ns/net", self.holder.id());
        // `unshare` enters the user namespace first, and writes the mapping last.
        let is_ready = || {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", self.holder.id()))
                .unwrap_or_default();
            name == "cat\n" && std::fs::read_link(&link).is_ok_and(|link| link != own)
        };
        wait_until("a network namespace (see veth.rs)", is_ready);
    }

    fn wait_for_carrier(&self) {
        wait_until("a carrier", || {
            ok(&mut self.command("ip", "link show here")).contains("state UP")
        });
    }

    /// Returns a command in the namespace, as its root.
    fn command(&self, program: &str, words: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id()));
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--net", program]).args(words.split_whitespace());
        command
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, words: &str) {
        ok(&mut self.command("ip", words));
    }

    /// Returns a command of `urxe run` with these words, separated by blanks, in the namespace as
    /// an ordinary user.
    pub fn run(&self, words: &str) -> Command {
        let mut command = if is_root() {
            let (uid, gid) = NOBODY;
            self.command("setpriv", &format!("--reuid={uid} --regid={gid} --clear-groups"))
        } else {
            self.command("env", "")
        };
        install().environment(&mut command);
        command.arg(install().path("bin/urxe")).arg("run").args(words.split_whitespace());
        command
    }
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "no {what} within half a minute");
        thread::sleep(Duration::from_millis(5));
    }
}
