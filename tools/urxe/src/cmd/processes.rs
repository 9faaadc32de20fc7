//! The processes that share a device's addresses, and their connections.

use std::fmt;
use std::net::IpAddr;

use rustix::io::Errno;
use serde::Serialize;
use urxe_stack::link::ResolvedLink;
use urxe_stack::listing::Listing;
use urxe_stack::port::sharing::{listing_of, sharers};

/// A process that has a device on an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// The shared address.
    pub address: IpAddr,
    /// The slot at this address: the upper six bits of the process's queue pair numbers.
    pub slot: u8,
    /// The process id; absent if the process is in another PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The effective user id.
    pub uid: u32,
    /// The name of the process; empty if unknown.
    pub name: String,
    /// The connections, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
}

/// The connections of a process, or the reason why they are unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Connections {
    /// The connections.
    Listed(Listing),
    /// The process did not reply.
    Unavailable {
        /// The reason, and a remedy.
        error: String,
    },
}

/// Returns all processes on the addresses of `link`, by address and slot.
pub fn of(link: &ResolvedLink) -> Vec<Process> {
    let named = |address: IpAddr| {
        sharers(address, scope_of(link, address)).into_iter().map(move |sharer| Process {
            address,
            slot: sharer.slot,
            pid: sharer.process.pid,
            uid: sharer.process.uid,
            name: sharer.process.name(),
            connections: None,
        })
    };
    link.addresses.iter().flat_map(|address| named(*address)).collect()
}

/// Returns the processes as [`of`] does, each with its connections. A process reports the same
/// connections at each of its addresses, so only the first address is queried.
pub fn with_connections(link: &ResolvedLink) -> Vec<Process> {
    let mut processes = of(link);
    let mut queried = Vec::new();
    for process in &mut processes {
        let who = (process.slot, process.pid);
        if !queried.contains(&who) {
            queried.push(who);
            process.connections = Some(query(process, scope_of(link, process.address)));
        }
    }
    processes
}

fn query(process: &Process, scope_id: u32) -> Connections {
    let error = match listing_of(process.address, scope_id, process.slot) {
        Ok(bytes) => match Listing::from_cbor(&bytes) {
            Ok(listing) => return Connections::Listed(listing),
            Err(error) => error.to_string(),
        },
        Err(Errno::ACCESS) => format!("it tells only user {}", process.uid),
        Err(Errno::TIMEDOUT) => "it does not answer; is it stopped?".to_owned(),
        Err(Errno::CONNREFUSED) => "it has ended".to_owned(),
        Err(errno) => format!("it does not tell: {errno}"),
    };
    Connections::Unavailable { error }
}

/// Returns the interface of a link-local address.
fn scope_of(link: &ResolvedLink, address: IpAddr) -> u32 {
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if is_link_local { link.interface.index } else { 0 }
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
