//! The sockets of a device, and where each packet from them goes.
//!
//! | sockets | number |
//! |---|---|
//! | address sockets | one for each address of the device |
//! | common sockets | one for each address that processes can share; all its processes read it |
//! | group sockets | one for each multicast group that the device joined |
//!
//! Here *process* means one opened device; one operating system process may have several. Each
//! process has a *slot*, the same on all its addresses, which is part of its queue pair numbers.
//! Processes can share an address unless the system refuses it. On such an address:
//!
//! - The kernel steers a packet to the address socket of the slot in its destination number.
//! - A MAD goes to the slot in its identifiers. A request, whose identifiers name no slot of the
//!   receiver, goes to the common socket.
//! - A MAD for all processes goes to the socket of slot 0.
//! - A packet may still arrive in another process: the kernel merged it with that process's
//!   packets, or its slot has no socket yet. That process forwards the packet.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | batches of address, group and common sockets | `receive` | packets to the device |
//! | delayed packets | `Impairment` | packets to the device |
//! | packets that the device did not match | `route` | to one or all processes; deferred; dropped |
//! | deferred MADs that are due | `route` | to one process; deferred again; dropped |
//! | packets that other processes forward | `unmatched` | packets to the device; dropped |
//! | sockets of ended processes | `unmatched` | MADs to this process, some to all; dropped |
//! | listen, unlisten | `services` | claims in the table of each shared address |
//! | runs to send | [`Transmit`] | sends through the socket whose address is `run.from` |
//!
//! A MAD for this process goes to QP1 if the device has one, otherwise to the inbox. Each dropped
//! packet moves a counter of the device; packets that the kernel drops at a socket move the counter
//! of the [`UdpPort`].
//!
//! | file | subject |
//! |---|---|
//! | `memory` | runs through memory that other processes share, and their order |
//! | `receive` | which socket is read next, and how its packets reach the device |
//! | `route` | decides where a packet goes that no queue pair matches |
//! | `unmatched` | carries that decision out, also for packets of ended processes |
//! | `services` | the services that the device listens on |

mod memory;
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
#[cfg(all(feature = "cm", feature = "sim"))]
pub(super) use self::unmatched::unmatched_packets;
use super::added_ports::{AddPortError, AddedPorts};
use super::deferred_mads::DeferredMads;
use super::groups::GroupPorts;
use super::impairment::Impairment;
use super::management::Inbox;
use super::path_errors::PathErrors;
use super::rings::Rings;
use crate::device::SourcePorts;
use crate::port::sharing::{self, Member, PortSet};
use crate::port::udp::{OpenPortError, PathError, UdpConfig, UdpPort};
use crate::port::{Run, SendOutcome, Transmit};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::sync::{Arc, Mutex};
use crate::sys::clock;
use crate::time::Time;

/// All sockets of a device.
#[derive(Debug)]
pub(super) struct Ports {
    /// The address sockets that the device was opened with.
    ports: Vec<UdpPort>,
    /// The memberships of the addresses that processes can share, each with the common socket.
    members: Vec<Member>,
    /// The sockets and memberships of addresses that were added later.
    added: AddedPorts,
    /// The slot of this process.
    slot: u8,
    /// The system call that failed with its error, if an address is therefore not shared.
    sharing_error: Option<(&'static str, Errno)>,
    services: Services,
    /// Whether this process has a connection manager here. If so, the process also takes requests
    /// without a listener and MADs for ended processes, because its connection manager rejects
    /// them.
    pub has_connection_manager: AtomicBool,
    /// Requests that wait for a listener, and MADs that wait for room in their process.
    pub deferred: DeferredMads,
    pub inbox: Inbox,
    pub groups: Arc<GroupPorts>,
    /// The rings to and from other processes, if the device takes part in them.
    rings: Option<Box<Rings>>,
    path_errors: PathErrors,
    /// The number of the address or group socket that is read first, because it had packets when
    /// the one before was empty; see [`Ports::first_group`].
    active: AtomicUsize,
    /// The time in nanoseconds until which only the other processes read the common sockets; 0 if
    /// this process reads them too.
    common_backoff_ns: AtomicU64,
    /// A simulated impairment of received packets. Its lock is taken before all locks of the
    /// [`Device`](crate::device::Device), which handles the packets meanwhile.
    impairment: Option<Mutex<Impairment>>,
}

impl Ports {
    /// Opens a socket for each of `configs`, of which there must be at least one. `groups` receives
    /// the multicast groups that the device joins later.
    ///
    /// `impairment` gets the process slot. Packets from address, group and common sockets pass
    /// through the impairment that it returns. Packets that other processes forward do not: they
    /// passed the impairment of the process that received them.
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
            has_connection_manager: AtomicBool::new(false),
            deferred: DeferredMads::default(),
            inbox: Inbox::default(),
            groups: Arc::new(groups),
            rings: None,
            path_errors: PathErrors::default(),
            active: AtomicUsize::new(0),
            common_backoff_ns: AtomicU64::new(0),
            impairment: impairment(slot).map(Mutex::new),
        })
    }

    /// Lets the device take part in rings.
    pub fn set_rings(&mut self, rings: Rings) {
        self.rings = Some(Box::new(rings));
    }

    /// Returns the rings, if the device takes part in them. A forked child has none.
    pub fn rings(&self) -> Option<&Rings> {
        self.rings.as_deref().filter(|rings| !rings.is_inherited())
    }

    /// Returns the ports of the addresses, those of added addresses last.
    pub fn iter(&self) -> impl Iterator<Item = &UdpPort> {
        self.ports.iter().chain(self.added.iter())
    }

    /// Returns the port of an address.
    pub fn port_at(&self, address: IpAddr) -> Option<&UdpPort> {
        self.iter().find(|port| port.address() == address)
    }

    /// Opens a port for an address that was added while the device was open.
    pub fn add(&self, address: IpAddr, random: u64) -> Result<(), AddPortError> {
        let add_address =
            |config: &UdpConfig, socket: BorrowedFd<'_>| self.groups.add_address(config, socket);
        self.services.extend_to(|| self.added.open(address, self.slot, random, add_address))
    }

    /// Returns the memberships in the groups of the shared addresses.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.added.members())
    }

    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the system call that failed with its error, if other processes cannot share an
    /// address of the device.
    pub fn sharing_error(&self) -> Option<(&'static str, Errno)> {
        self.sharing_error
    }

    /// Returns whether another process has shared an address at any time. Then
    /// [`clean_up_orphans`](Self::clean_up_orphans) must be called from time to time. The other
    /// processes may all have ended.
    pub fn is_shared(&self) -> bool {
        self.members().any(Member::has_been_shared)
    }

    /// Takes the errors that ICMP and the local interface reported, from the address sockets where
    /// a call has failed. The port counts and logs them. The background thread takes the errors of
    /// the common sockets. Group sockets get none.
    pub fn drain_errors(&self) {
        for port in self.iter().filter(|port| port.errors_pending()) {
            self.drain_errors_of(port);
        }
    }

    /// Takes the errors of all sockets, also where no call has failed.
    pub fn drain_all_errors(&self) {
        let common = self.members().filter_map(Member::common);
        self.iter().chain(common).for_each(|port| self.drain_errors_of(port));
    }

    fn drain_errors_of(&self, port: &UdpPort) {
        port.drain_errors(|error| self.path_errors.record(clock::now(), error));
    }

    /// Returns the last error of packets to `peer`, unless it is from before `since`.
    pub fn path_error(&self, peer: IpAddr, since: Time) -> Option<PathError> {
        // No thread sleeps on the sockets that MADs leave from.
        self.drain_all_errors();
        self.path_errors.since(peer, since)
    }
}

impl SourcePorts for Ports {
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16 {
        let port = self.port_at(local);
        port.map_or(ROCE_PORT, |port| port.port_towards(peer_slot))
    }
}

impl Transmit for Ports {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        match self.port_at(run.from) {
            Some(port) => port.transmit(run),
            // The source is a GID that is no address of the interface. As in rdma_rxe, the table
            // always has the fe80:: GID of the MAC.
            None => no_such_address(run.from),
        }
    }

    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        let in_memory = self.rings().and_then(|rings| rings.is_receiver_congested(to, peer_slot));
        if let Some(is_congested) = in_memory {
            return is_congested;
        }
        let member = self.members().find(|member| member.address() == to);
        member.is_some_and(|member| member.is_receiver_congested(peer_slot))
    }

    fn max_run_segments(&self) -> usize {
        self.iter().map(Transmit::max_run_segments).min().unwrap_or(1)
    }
}

#[cold]
fn no_such_address(from: IpAddr) -> SendOutcome {
    tracing::warn!(%from, "dropped a run: its source GID is not an address of the interface");
    SendOutcome::Dropped
}
