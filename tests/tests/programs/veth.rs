//! A host of the test's own: a network namespace with a veth, whose interfaces and addresses the
//! test changes while programs run there.
//!
//! Root makes it by `unshare --net`; others are root in a user namespace besides, where the system
//! allows that.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use urxe_tests::process::KillOnDrop;

use crate::install::{NOBODY, install, is_root, ok};

/// The MAC of `here`, and the GID that is made from it.
const MAC: &str = "02:00:00:00:00:63";
pub const GID_BY_MAC: &str = "fe80::ff:fe00:63";

/// The interface `here`, whose other end `there` has no address and is taken down to take the
/// carrier away.
pub struct Veth {
    /// The last process of the namespace, which goes with it, and the veth with that.
    holder: KillOnDrop,
}

impl Veth {
    /// A veth with these addresses at this end, each with the length of its prefix.
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
        // No link-local address: it comes by itself, seconds after the interface.
        veth.ip("link set here addrgenmode none");
        for address in addresses {
            veth.ip(&format!("address add {address} dev here"));
        }
        veth.ip("link set there up");
        veth.ip("link set here up");
        veth.wait_for_carrier();
        veth
    }

    /// `unshare` enters the namespace some time after it was started.
    fn wait_for_namespace(&self) {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let link = format!("/proc/{}/ns/net", self.holder.id());
        // The user namespace is entered before, and its mapping written after.
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

    /// A command in the namespace, as its root.
    fn command(&self, program: &str, words: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id()));
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--net", program]).args(words.split_whitespace());
        command
    }

    /// Changes something by `ip`.
    pub fn ip(&self, words: &str) {
        ok(&mut self.command("ip", words));
    }

    /// `urxe run` with these words, separated by blanks, in the namespace as an ordinary user.
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
