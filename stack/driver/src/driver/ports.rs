//! The ports of a device: one socket for each of its addresses.
//!
//! | file | subject |
//! |---|---|
//! | `receive` | which socket is read next, and how its packets get to the device |
//! | `route` | where a packet goes that no queue pair takes: the decision |
//! | `unmatched` | the same: what is done about it, also for processes that ended |
//! | `services` | what this device listens on |
//!
//! | in | decided by | out |
//! |---|---|---|
//! | batches of address, group and common sockets | `receive` | packets to the device |
//! | delayed packets | `Impairment` | packets to the device |
//! | packets not matched by the device | `route` | to one or all processes; deferred; dropped |
//! | deferred MADs that are due | `route` | the same |
//! | packets handed in by other processes | `unmatched` | packets to the device; dropped |
//! | sockets of processes that ended | [`Ports::clean_up_orphans`] | MADs to one or all processes; dropped |
//! | listen, unlisten | `services` | claims in the table of each address |
//! | runs to send | [`Transmit`] | sends through the port whose address is `run.from` |
//!
//! A MAD for this process goes to QP1 if that exists, else to the inbox. Each drop has a counter.

mod receive;
mod route;
mod services;
mod unmatched;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use urxe_wire::ROCE_PORT;

pub(super) use self::receive::{ReceiveScope, Receiver};
use self::services::Services;
use super::added_ports::{AddPortError, AddedPorts};
use super::deferred_mads::DeferredMads;
use super::groups::GroupPorts;
use super::management::Inbox;
use crate::device::SourcePorts;
use crate::port::faults::Impairment;
use crate::port::sharing::{self, Member, PortSet};
use crate::port::udp::{OpenPortError, UdpConfig, UdpPort};
use crate::port::{Run, SendOutcome, Transmit};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use crate::sync::{Arc, Mutex};

/// All sockets of a device.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<UdpPort>,
    members: Vec<Member>,
    added: AddedPorts,
    slot: u8,
    sharing_error: Option<(&'static str, Errno)>,
    services: Services,
    /// Requests without a listener are for this process as well: its connection manager refuses
    /// them, and replies to MADs for processes that ended.
    pub refuses: AtomicBool,
    /// Such requests, until they are refused, and MADs for processes without room.
    pub deferred: DeferredMads,
    pub inbox: Inbox,
    pub groups: Arc<GroupPorts>,
    /// The socket that gave the last batch: one of the addresses', or after those one of the
    /// groups'.
    active: AtomicUsize,
    round: AtomicU32,
    /// Until when the other processes alone read the common sockets; 0: this one reads them too.
    common_backoff_ns: AtomicU64,
    /// A simulated impairment. Its lock comes before all of the core's.
    impairment: Option<Mutex<Impairment>>,
}

impl Ports {
    /// Opens a port for each of `configs`, of which there is at least one; multicast groups that
    /// are joined later are received through `groups`. `impairment` gets the process slot; packets
    /// from own, group and common sockets go through the link that it returns. Packets handed in by
    /// other processes do not: they went through the link of the process that received them.
    pub fn open(
        configs: &[UdpConfig],
        groups: GroupPorts,
        impairment: impl FnOnce(u8) -> Option<Impairment>,
        random: impl FnMut() -> u64,
    ) -> Result<Self, OpenPortError> {
        let template = match configs.first() {
            Some(config) => config.clone(),
            None => unreachable!("a link has an address"),
        };
        let PortSet { slot, ports, members, sharing_error } = sharing::join(configs, random)?;
        Ok(Self {
            added: AddedPorts::new(template),
            ports,
            members,
            slot,
            sharing_error,
            services: Services::default(),
            refuses: AtomicBool::new(false),
            deferred: DeferredMads::default(),
            inbox: Inbox::default(),
            groups: Arc::new(groups),
            active: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            common_backoff_ns: AtomicU64::new(0),
            impairment: impairment(slot).map(Mutex::new),
        })
    }

    /// Returns the ports, those of added addresses last.
    pub fn iter(&self) -> impl Iterator<Item = &UdpPort> {
        self.ports.iter().chain(self.added.iter())
    }

    /// Opens a port for an address that came while the device was open.
    pub fn add(&self, address: IpAddr, random: u64) -> Result<(), AddPortError> {
        let add_address =
            |config: &UdpConfig, socket: BorrowedFd<'_>| self.groups.add_address(config, socket);
        self.services.extend_to(|| self.added.open(address, self.slot, random, add_address))
    }

    /// The addresses that are shared with other processes.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.added.members())
    }

    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the call that the system refused, so that no other process can use the addresses.
    pub fn sharing_error(&self) -> Option<(&'static str, Errno)> {
        self.sharing_error
    }

    /// Returns whether other processes have used an address at any time, so that
    /// [`clean_up_orphans`](Self::clean_up_orphans) is due from time to time. They may all have ended.
    pub fn is_shared(&self) -> bool {
        self.members().any(Member::has_been_shared)
    }

    /// Takes the errors that ICMP and the own interface reported; the port counts and logs them.
    pub fn drain_errors(&self) {
        for port in self.iter().filter(|port| port.errors_pending()) {
            port.drain_errors(|_| ());
        }
    }
}

impl SourcePorts for Ports {
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16 {
        let port = self.iter().find(|port| port.address() == local);
        port.map_or(ROCE_PORT, |port| port.port_towards(peer_slot))
    }
}

impl Transmit for Ports {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        match self.iter().find(|port| port.address() == run.from) {
            Some(port) => port.transmit(run),
            // The address of a GID that the interface does not have (rxe lists fe80:: from the MAC
            // in any case).
            None => no_such_address(run.from),
        }
    }

    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        let member = self.members().find(|member| member.address() == to);
        member.is_some_and(|member| member.is_receiver_congested(peer_slot))
    }

    fn max_run_segments(&self) -> usize {
        self.iter().map(Transmit::max_run_segments).min().unwrap_or(1)
    }
}

#[cold]
fn no_such_address(from: IpAddr) -> SendOutcome {
    tracing::warn!(%from, "nothing can be sent from a GID that is no address of the interface");
    SendOutcome::Dropped
}
