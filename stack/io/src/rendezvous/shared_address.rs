//! A shared address, its abstract names, and the processes that share it or hold its port.

use std::fmt;
use std::net::IpAddr;

use urxe_types::owner::Owner;
use urxe_wire::ROCE_PORT;

use super::identity::Identity;
use super::places;
use crate::sys::unix;
use urxe_types::qpn::MAX_PROCESS_SLOTS;

/// An address that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedAddress {
    /// The IP address.
    pub ip: IpAddr,
    /// The interface index of a link-local address, otherwise 0.
    pub scope_id: u32,
}

impl SharedAddress {
    /// Makes a shared address. The interface index matters for link-local addresses only.
    pub(crate) fn new(ip: IpAddr, scope_id: u32) -> Self {
        Self { ip: ip.to_canonical(), scope_id }
    }

    /// Returns the abstract name of the rendezvous server of `slot`. The name contains the address,
    /// so `ss -x` shows it.
    pub(crate) fn rendezvous_name(self, slot: u8) -> String {
        format!("{self}/{slot}")
    }

    /// Returns the abstract name of the lock under which a process creates the group.
    pub(crate) fn creation_lock_name(self) -> String {
        format!("{self}/new")
    }
}

impl fmt::Display for SharedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "urxe/{ROCE_PORT}/{}", self.ip)?;
        if self.scope_id != 0 {
            write!(f, "%{}", self.scope_id)?;
        }
        Ok(())
    }
}

/// Describes the process `pid` of user `uid`, with its name if /proc shows it.
fn owner(uid: u32, pid: Option<i32>) -> Owner {
    let name = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/comm")).ok());
    Owner::new(uid, pid, name.as_deref().unwrap_or_default().trim_ascii_end())
}

/// Describes the process at the other end of a local socket.
pub(crate) fn owner_of(peer: unix::Peer) -> Owner {
    owner(peer.uid, Some(peer.pid).filter(|pid| *pid > 0))
}

/// A process that shares an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// The slot: the upper six bits of the process's queue pair numbers.
    pub slot: u8,
    /// The process. A process that has opened several devices on the address is listed for each.
    pub process: Owner,
}

/// Returns the processes that share an address now, by slot, including those of other users. Has no
/// effect on them.
#[must_use]
pub fn sharers(address: IpAddr, scope_id: u32) -> Vec<Sharer> {
    let address = SharedAddress::new(address, scope_id);
    let identity = Identity::own();
    let at = |slot: u8| {
        let peer = match places::connect(address, slot, identity) {
            Ok((_, peer)) => peer,
            Err(failed) => failed.stranger?,
        };
        Some(Sharer { slot, process: owner_of(peer) })
    };
    (0..MAX_PROCESS_SLOTS).filter_map(at).collect()
}

/// The bytes that the kernel writes at most for one read of a list of /proc/net.
const LIST_PAGE: usize = 4096;
/// How often a list that is longer is read. With one read, the test of this module misses 18 of 200
/// holders.
const READS: usize = 8;

/// Returns the process that holds the UDP port of `address` without sharing it, as far as /proc/net
/// shows.
pub(crate) fn of_port(address: SharedAddress) -> Option<Owner> {
    let list = match address.ip {
        IpAddr::V4(_) => "/proc/net/udp",
        IpAddr::V6(_) => "/proc/net/udp6",
    };
    let holder = reads(list).flatten().find(|holder| holder.covers(address.ip))?;
    Some(owner(holder.uid, process_with_socket(holder.inode)))
}

/// Returns the process that holds the UDP port of `address`. /proc shows the process of another
/// user to root alone, but a rendezvous server of that user does.
pub(crate) fn holder_of(address: SharedAddress) -> Option<Owner> {
    let holder = of_port(address)?;
    let server = |slot| places::listener_of(&address.rendezvous_name(slot));
    let is_it = |peer: &unix::Peer| peer.uid == holder.uid;
    let named = || (0..MAX_PROCESS_SLOTS).filter_map(server).find(is_it).map(owner_of);
    if holder.pid.is_some() { Some(holder) } else { named().or(Some(holder)) }
}

/// A socket that is bound to the RoCE port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortHolder {
    /// The address of the socket.
    pub address: IpAddr,
    /// The user of the socket.
    pub uid: u32,
    /// The inode of the socket.
    pub inode: u64,
}

impl PortHolder {
    /// Returns whether the socket receives packets to `address`.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.address.is_unspecified() || self.address == address
    }

    /// Parses a line of /proc/net/udp (proc(5)); `None` for another port. Addresses are words in
    /// the machine's byte order.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, port) = fields.get(1)?.split_once(':')?;
        if u16::from_str_radix(port, 16).ok()? != ROCE_PORT {
            return None;
        }
        let word = |at: usize| -> Option<[u8; 4]> {
            let digits = local.get(at * 8..at * 8 + 8)?;
            Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
        };
        let address = match local.len() {
            8 => IpAddr::from(word(0)?),
            32 => {
                let words = [word(0)?, word(1)?, word(2)?, word(3)?];
                IpAddr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?).to_canonical()
            }
            _ => return None,
        };
        let (uid, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
        Some(Self { address, uid, inode })
    }
}

/// Returns the sockets that are bound to the RoCE port of IPv4 addresses, as far as /proc/net
/// shows.
pub(crate) fn holders_of_ports() -> Vec<PortHolder> {
    // A socket on all IPv6 addresses usually covers IPv4 as well.
    let mut holders = holders_in("/proc/net/udp");
    holders.extend(
        holders_in("/proc/net/udp6")
            .into_iter()
            .filter(|holder| holder.address.is_unspecified() || holder.address.is_ipv4()),
    );
    holders
}

fn holders_in(list: &'static str) -> Vec<PortHolder> {
    let mut all = Vec::new();
    for holder in reads(list).flatten() {
        if !all.contains(&holder) {
            all.push(holder);
        }
    }
    all
}

/// Reads a list several times if it is longer than a page. The kernel writes one page for each
/// system call and counts the sockets again for the next one (`udp_get_idx`). So if a socket is
/// closed in between, the list lacks another one.
fn reads(list: &'static str) -> impl Iterator<Item = Vec<PortHolder>> {
    let mut left = READS;
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let text = std::fs::read_to_string(list).unwrap_or_default();
        if text.len() < LIST_PAGE {
            left = 0;
        }
        Some(text.lines().skip(1).filter_map(PortHolder::parse).collect())
    })
}

/// Returns the process that has a socket open. Only root sees the sockets of other users'
/// processes.
fn process_with_socket(inode: u64) -> Option<i32> {
    let wanted = format!("socket:[{inode}]");
    let has_it = |pid: &i32| -> bool {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        descriptors.flatten().any(|fd| {
            std::fs::read_link(fd.path())
                .is_ok_and(|link| link.as_os_str().as_encoded_bytes() == wanted.as_bytes())
        })
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(has_it)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_while_others_open_and_close_sockets() {
        let at = |net, host| UdpSocket::bind((Ipv4Addr::new(127, 47, net, host), ROCE_PORT));
        let address = SharedAddress::new(Ipv4Addr::new(127, 47, 250, 1).into(), 0);
        let _held = at(250, 1).unwrap();
        // More than a page of the list.
        let _others: Vec<_> = (1..=64).map(|host| at(251, host).unwrap()).collect();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for net in [252, 253] {
                let is_done = &is_done;
                scope.spawn(move || {
                    while !is_done.load(Ordering::Relaxed) {
                        drop((1..=20).map(|host| at(net, host)).collect::<Vec<_>>());
                    }
                });
            }
            let missing = (0..200).filter(|_| of_port(address).is_none()).count();
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(missing, 0);
        });
    }

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        let line = "  123: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 \
                    00000000  1001        0 4242 2 0";
        let at = |address: &str| PortHolder {
            address: address.parse().unwrap(),
            uid: 1001,
            inode: 4242,
        };
        let local = PortHolder::parse(line).unwrap();
        assert_eq!(local, at("127.0.0.1"));
        assert!(local.covers("127.0.0.1".parse().unwrap()));
        assert!(!local.covers("127.0.0.2".parse().unwrap()));
        let any = PortHolder::parse(&line.replace("0100007F", "00000000")).unwrap();
        assert!(any.covers("127.0.0.2".parse().unwrap()));
        let v6 = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(PortHolder::parse(&v6), Some(at("::1")));
        for wrong in ["", "sl local_address", "1: 0100007F:12B8 0:0 07 0 0 0 1 0 2", "1: 01:12B7"] {
            assert_eq!(PortHolder::parse(wrong), None, "{wrong}");
        }
    }
}
