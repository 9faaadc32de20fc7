//! The interfaces of the caller's network namespace with their addresses: `getifaddrs` and
//! `if_nametoindex`.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// `ARPHRD_ETHER`: the hardware type whose addresses are six-byte MACs.
const HARDWARE_ETHERNET: u16 = 1;

/// An entry of the system's list: an interface with one of its addresses, or without any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceEntry {
    /// The name of the interface, or the label of the address.
    pub name: String,
    /// `IFF_UP`, `IFF_LOOPBACK` and so on (netdevice(7)).
    pub flags: i32,
    /// The address, if it is of a known family.
    pub address: Option<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceAddress {
    /// The hardware address, if it is an Ethernet address.
    Hardware(Option<[u8; 6]>),
    /// An IP address with its netmask.
    Ip(IpAddr, Option<IpAddr>),
}

/// Returns the entries of all interfaces, in the system's order.
///
/// # Errors
/// Fails with the error of the system.
pub fn interface_entries() -> io::Result<Vec<InterfaceEntry>> {
    let mut first = ptr::null_mut();
    // SAFETY: the call writes one pointer, to which `first` is a valid place.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut entries = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: the call succeeded, so the list is valid until it is freed below, and the last entry
    // has a null pointer.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: each entry has a name that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: an address is null, or a socket address whose family states its length.
        let [address, netmask] =
            [entry.ifa_addr, entry.ifa_netmask].map(|address| unsafe { read(address) });
        let address = match (address, netmask) {
            (Some(InterfaceAddress::Ip(ip, _)), Some(InterfaceAddress::Ip(mask, _))) => {
                Some(InterfaceAddress::Ip(ip, Some(mask)))
            }
            (address, _) => address,
        };
        entries.push(InterfaceEntry { name, flags: entry.ifa_flags as i32, address });
        next = entry.ifa_next;
    }
    // SAFETY: the list is from `getifaddrs`, is freed once, and no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(entries)
}

/// Reads a socket address without a netmask. Other families than IP and hardware have none.
///
/// # Safety
/// `address` is null, or points to a socket address of the length that its family has.
unsafe fn read(address: *const libc::sockaddr) -> Option<InterfaceAddress> {
    // SAFETY: the address is null or valid, and each one begins with its family.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    // SAFETY: the family states the type of the address. The list need not be aligned for it.
    unsafe {
        Some(match family {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                InterfaceAddress::Ip(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into(), None)
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                InterfaceAddress::Ip(Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), None)
            }
            libc::AF_PACKET => {
                let link = address.cast::<libc::sockaddr_ll>().read_unaligned();
                let is_mac = link.sll_hatype == HARDWARE_ETHERNET && link.sll_halen == 6;
                let mac = link.sll_addr.first_chunk().copied();
                InterfaceAddress::Hardware(mac.filter(|mac| is_mac && *mac != [0; 6]))
            }
            _ => return None,
        })
    }
}

/// Returns the index of an interface, if it exists.
#[must_use]
pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte and lives as long as the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}
