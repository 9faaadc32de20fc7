//! The testbed's network: a network namespace with a bridge, a tap for each guest, and a capture of
//! the bridge's packets. The network does not touch the machine's own interfaces. User-mode
//! networking is unsuitable, because it rewrites addresses, which the ICRC covers.

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

/// The bridge's IPv4 address, which programs beside the guests use.
pub const HOST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

/// The bridge's IPv6 address.
pub const HOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));

/// The bridge.
pub(super) const BRIDGE: &str = "br0";

/// The queue length of a tap, in packets: more than eight of perftest's longest messages (8 MiB).
/// Emulated kernels receive them much more slowly than they are sent, and unreliable services do
/// not retransmit.
const TAP_QUEUE: u32 = 32_768;
const PREFIX: &str = "urxe-k-";

/// A namespace with bridge and taps, which its creator has entered.
#[derive(Debug)]
pub struct Network {
    name: String,
    mtu: u16,
}

impl Network {
    /// Creates the namespace `urxe-k-<pid>` with a number of taps (`tap1`, …) and enters it.
    /// Threads and processes that this thread starts afterwards are in the namespace. Also removes
    /// the namespaces of runs that have died.
    ///
    /// # Errors
    /// [`Error::Status`] or [`Error::Io`] of the failed step.
    pub fn create(taps: u8, mtu: u16) -> Result<Self, Error> {
        remove_leftovers()?;
        let name = format!("{PREFIX}{}", process::id());
        run(&format!("netns add {name}"))?;
        let network = Self { name, mtu };
        network.enter()?;
        // Without duplicate address detection, addresses are valid at once.
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

    /// Returns the MTU of bridge and taps.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Sets the bridge's MTU, and so the maximum packet size of programs beside the guests.
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
        // The namespace has no processes left. The next run removes it if this fails.
        let _ = run(&format!("netns delete {}", self.name));
    }
}

pub(super) fn tap_name(index: u8) -> String {
    format!("tap{index}")
}

/// Runs `ip` with these words. Returns the output.
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
        // Captures whole packets, so that `urxe decode` can check the ICRC. The file is as large as
        // some MiB of traffic.
        let mut dump = Job::on_host(
            Command::new("tcpdump")
                .args(["-i", BRIDGE, "-n", "-U", "-Z", "root", "-w"])
                .arg(&file)
                .args(["udp", "port", "4791"]),
        )?;
        dump.wait_for("listening on", Duration::from_secs(20))?;
        Ok(Self { dump, file })
    }

    /// Ends the capture and keeps the file. Returns the path.
    pub fn keep(self) -> PathBuf {
        // The kernel delivers collected packets at least once a second.
        thread::sleep(Duration::from_millis(1_100));
        drop(self.dump);
        self.file
    }

    /// Ends the capture and removes the file.
    pub fn discard(self) {
        drop(self.dump);
        // A failure here does no harm.
        let _ = fs::remove_file(self.file);
    }
}

/// Removes namespaces whose creator is dead, and kills their processes.
fn remove_leftovers() -> Result<(), Error> {
    let names = ip("netns list")?;
    for name in names.lines().filter_map(|line| line.split_whitespace().next()) {
        let Some(maker) = name.strip_prefix(PREFIX) else { continue };
        if fs::exists(format!("/proc/{maker}")).unwrap_or(true) {
            continue;
        }
        for pid in ip(&format!("netns pids {name}"))?.split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                // The process may have ended before.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        run(&format!("netns delete {name}"))?;
    }
    Ok(())
}
