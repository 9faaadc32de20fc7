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

/// Returns whether processes of this user share an address now.
#[must_use]
pub fn is_used_by_own_processes(address: IpAddr, scope_id: u32) -> bool {
    let address = SharedAddress::new(address, scope_id);
    let identity = Identity::own();
    (0..MAX_PROCESS_SLOTS).any(|slot| places::connect(address, slot, identity).is_ok())
}

/// Returns the process that holds the UDP port of `address` without sharing it, as far as /proc/net
/// shows.
pub(crate) fn of_port(address: SharedAddress) -> Option<Owner> {
    let list = match address.ip {
        IpAddr::V4(_) => "/proc/net/udp",
        IpAddr::V6(_) => "/proc/net/udp6",
    };
    let text = std::fs::read_to_string(list).ok()?;
    let (uid, inode) = text.lines().skip(1).find_map(|line| holder_in_line(line, address.ip))?;
    Some(owner(uid, process_with_socket(inode)))
}

/// Parses a line of /proc/net/udp (proc(5)). Returns user and inode of its socket, if the socket
/// receives packets to the RoCE port of `address`. Addresses are words in the machine's byte order.
fn holder_in_line(line: &str, address: IpAddr) -> Option<(u32, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, port) = fields.get(1)?.split_once(':')?;
    let words = |octets: &[u8]| -> String {
        let word = |w: &[u8]| format!("{:08X}", u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        octets.chunks_exact(4).map(word).collect()
    };
    let wanted = match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    };
    let is_wildcard = local.bytes().all(|digit| digit == b'0');
    if u16::from_str_radix(port, 16).ok()? != ROCE_PORT || !(local == wanted || is_wildcard) {
        return None;
    }
    Some((fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?))
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
    use super::*;

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        let line = "  123: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 \
                    00000000  1001        0 4242 2 0";
        assert_eq!(holder_in_line(line, "127.0.0.1".parse().unwrap()), Some((1001, 4242)));
        assert_eq!(holder_in_line(line, "127.0.0.2".parse().unwrap()), None);
        let any = line.replace("0100007F", "00000000");
        assert_eq!(holder_in_line(&any, "127.0.0.2".parse().unwrap()), Some((1001, 4242)));
        let v6 = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(holder_in_line(&v6, "::1".parse().unwrap()), Some((1001, 4242)));
        for wrong in ["", "sl local_address", "1: 0100007F:12B8 0:0 07 0 0 0 1 0 2"] {
            assert_eq!(holder_in_line(wrong, "127.0.0.1".parse().unwrap()), None, "{wrong}");
        }
    }
}
