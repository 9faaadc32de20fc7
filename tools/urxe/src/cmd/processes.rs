//! Who shares a device's addresses at this moment.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use urxe_stack::link::ResolvedLink;
use urxe_stack::port::sharing::sharers;

/// A process that has a device on an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// The address that it shares.
    pub address: IpAddr,
    /// Its slot there: the upper six bits of its queue pair numbers.
    pub slot: u8,
    /// Its number; absent if it is in another process namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its effective user.
    pub uid: u32,
    /// Its name, empty if it cannot be told.
    pub name: String,
}

/// All processes on the addresses of `link`, by address and slot.
pub fn of(link: &ResolvedLink) -> Vec<Process> {
    let on = |address: &IpAddr| {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        sharers(*address, if is_link_local { link.interface.index } else { 0 })
    };
    let named = |address: IpAddr| {
        on(&address).into_iter().map(move |sharer| Process {
            address,
            slot: sharer.slot,
            pid: sharer.process.pid,
            uid: sharer.process.uid,
            name: sharer.process.name(),
        })
    };
    link.addresses.iter().flat_map(|address| named(*address)).collect()
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} ", self.slot)?;
        match self.pid {
            Some(pid) => write!(f, "pid {pid}")?,
            None => f.write_str("pid unknown")?,
        }
        write!(f, " uid {}", self.uid)?;
        if !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        Ok(())
    }
}
