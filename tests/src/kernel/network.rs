//! The testbed's network: a namespace of its own with a bridge, a tap for each guest, and a capture of
//! what goes over the bridge. Nothing of it
//! reaches the machine's own interfaces; user-mode networking would not do, as it rewrites
//! addresses, which the ICRC covers.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd as _,
    path::PathBuf,
    process::{self, Command},
    thread,
    time::Duration,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::{Error, Job, error::Context as _, job::output_of};

/// The bridge's own IPv4 address: what runs beside the guests has it.
pub const HOST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

/// The bridge's own IPv6 address.
pub const HOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));

/// The bridge.
pub(super) const BRIDGE: &str = "br0";

/// Packets that a tap holds for its guest: more than eight of perftest's longest messages (8 MiB),
/// which emulated kernels take in far more slowly than it is sent, and which nobody sends again
/// over unreliable services.
const TAP_QUEUE: u32 = 32_768;
const PREFIX: &str = "urxe-k-";

/// A namespace with bridge and taps, which the process that made it has entered.
#[derive(Debug)]
pub struct Network {
    name: String,
    mtu: u16,
}

impl Network {
    /// Makes the namespace `urxe-k-<pid>` with as many taps (`tap1`, …) and enters it: threads and
    /// processes started from now on by this thread are in it. Removes what runs that died have
    /// left behind.
    ///
    /// # Errors
    /// [`Error::Status`] or [`Error::Io`] of the step that failed.
    pub fn create(taps: u8, mtu: u16) -> Result<Self, Error> {
        remove_leftovers()?;
        let name = format!("{PREFIX}{}", process::id());
        run(&format!("netns add {name}"))?;
        let network = Self { name, mtu };
        network.enter()?;
        // No duplicate address detection: addresses are valid at once.
        let accept_dad = "/proc/sys/net/ipv6/conf/default/accept_dad";
        fs::write(accept_dad, "0").context(|| format!("write {accept_dad}"))?;
        run("link set lo up")?;
        run(&format!("link add {BRIDGE} mtu {mtu} type bridge stp_state 0 mcast_snooping 0"))?;
        for tap in (1..=taps).map(tap_name) {
            run(&format!("tuntap add {tap} mode tap"))?;
            run(&format!("link set {tap} mtu {mtu} txqueuelen {TAP_QUEUE} master {BRIDGE} up"))?;
        }
        run(&format!("address add {HOST_V4}/24 dev {BRIDGE}"))?;
        run(&format!("address add {HOST_V6}/64 dev {BRIDGE} nodad"))?;
        run(&format!("link set {BRIDGE} up"))?;
        Ok(network)
    }

    /// The MTU of bridge and taps.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Gives the bridge another MTU: what runs beside the guests then sends no larger packets.
    ///
    /// # Errors
    /// [`Error::Status`] of `ip link set`.
    pub fn set_bridge_mtu(&self, mtu: u16) -> Result<(), Error> {
        run(&format!("link set {BRIDGE} mtu {mtu}"))
    }

    fn enter(&self) -> Result<(), Error> {
        let path = format!("/run/netns/{}", self.name);
        let namespace = File::open(&path).context(|| format!("open {path}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(Into::into)
            .context(|| format!("enter {path}"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The processes in it are gone by now; what fails here the next run removes.
        let _ = run(&format!("netns delete {}", self.name));
    }
}

pub(super) fn tap_name(index: u8) -> String {
    format!("tap{index}")
}

/// Runs `ip` with these words; its output.
fn ip(words: &str) -> Result<String, Error> {
    output_of(Command::new("ip").args(words.split(' ')))
}

fn run(words: &str) -> Result<(), Error> {
    ip(words).map(drop)
}

/// A running `tcpdump` of RoCE packets on the bridge.
#[derive(Debug)]
pub struct Capture {
    dump: Job,
    file: PathBuf,
}

impl Capture {
    pub(super) fn start(file: PathBuf) -> Result<Self, Error> {
        // The whole packet, so that `urxe decode` can check its ICRC; a file as large as a few MiB
        // of traffic.
        let mut dump = Job::on_host(
            Command::new("tcpdump")
                .args(["-i", BRIDGE, "-n", "-U", "-Z", "root", "-w"])
                .arg(&file)
                .args(["udp", "port", "4791"]),
        )?;
        dump.wait_for("listening on", Duration::from_secs(20))?;
        Ok(Self { dump, file })
    }

    /// Ends it and keeps the file; its path.
    pub fn keep(self) -> PathBuf {
        // The kernel hands over what it has collected once a second at the latest.
        thread::sleep(Duration::from_millis(1_100));
        drop(self.dump);
        self.file
    }

    /// Ends it and removes the file.
    pub fn discard(self) {
        drop(self.dump);
        // It was never more than a convenience.
        let _ = fs::remove_file(self.file);
    }
}

/// Namespaces whose maker is dead, and the processes in them.
fn remove_leftovers() -> Result<(), Error> {
    let names = ip("netns list")?;
    for name in names.lines().filter_map(|line| line.split_whitespace().next()) {
        let Some(maker) = name.strip_prefix(PREFIX) else { continue };
        if fs::exists(format!("/proc/{maker}")).unwrap_or(true) {
            continue;
        }
        for pid in ip(&format!("netns pids {name}"))?.split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                // It may end by itself first.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        run(&format!("netns delete {name}"))?;
    }
    Ok(())
}
