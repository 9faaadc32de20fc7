//! The lab's network: a namespace of its own with a bridge, and a tap for each guest. Nothing of it
//! reaches the machine's own interfaces; user-mode networking would not do, as it rewrites
//! addresses, which the ICRC covers.

use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd as _,
    process::{self, Command},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::{Error, error::Context as _, job::output_of};

/// The bridge's own IPv4 address: what runs beside the guests has it.
pub const HOST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));

/// The bridge's own IPv6 address.
pub const HOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));

/// The bridge.
pub(super) const BRIDGE: &str = "br0";

/// Packets that a tap holds for its guest: more than eight of perftest's longest messages (8 MiB),
/// which emulated kernels take in far more slowly than it is sent, and which nobody sends again
/// over unreliable services.
const TAP_QUEUE: &str = "32768";
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
        run(&["netns", "add", &name])?;
        let network = Self { name, mtu };
        network.enter()?;
        // No duplicate address detection: addresses are valid at once.
        let accept_dad = "/proc/sys/net/ipv6/conf/default/accept_dad";
        fs::write(accept_dad, "0").context(|| format!("write {accept_dad}"))?;
        let mtu = network.mtu.to_string();
        run(&["link", "set", "lo", "up"])?;
        run(&[
            "link",
            "add",
            BRIDGE,
            "mtu",
            &mtu,
            "type",
            "bridge",
            "stp_state",
            "0",
            "mcast_snooping",
            "0",
        ])?;
        for tap in 1..=taps {
            let tap = tap_name(tap);
            run(&["tuntap", "add", &tap, "mode", "tap"])?;
            run(&[
                "link",
                "set",
                &tap,
                "mtu",
                &mtu,
                "txqueuelen",
                TAP_QUEUE,
                "master",
                BRIDGE,
                "up",
            ])?;
        }
        run(&["address", "add", &format!("{HOST_V4}/24"), "dev", BRIDGE])?;
        run(&["address", "add", &format!("{HOST_V6}/64"), "dev", BRIDGE, "nodad"])?;
        run(&["link", "set", BRIDGE, "up"])?;
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
        run(&["link", "set", BRIDGE, "mtu", &mtu.to_string()])
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
        let _ = run(&["netns", "delete", &self.name]);
    }
}

pub(super) fn tap_name(index: u8) -> String {
    format!("tap{index}")
}

fn run(arguments: &[&str]) -> Result<(), Error> {
    output_of(Command::new("ip").args(arguments)).map(drop)
}

/// Namespaces whose maker is dead, and the processes in them.
fn remove_leftovers() -> Result<(), Error> {
    let names = output_of(Command::new("ip").args(["netns", "list"]))?;
    for name in names.lines().filter_map(|line| line.split_whitespace().next()) {
        let Some(maker) = name.strip_prefix(PREFIX) else { continue };
        if fs::exists(format!("/proc/{maker}")).unwrap_or(true) {
            continue;
        }
        for pid in output_of(Command::new("ip").args(["netns", "pids", name]))?.split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                // It may end by itself first.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        run(&["netns", "delete", name])?;
    }
    Ok(())
}
