//! Several processes of one user on one address and port.
//!
//! ```text
//!                      SO_REUSEPORT group of 127.0.0.1:4791, steered by QPN (sys/steering.rs)
//!  packets ──────────> | 0: common | 1: slot 0 | 2: slot 1 | 3: slot 2 | ...
//!                           |           |           |           |
//!                      all processes  process A   process B   no process: discarded
//! ```
//! A process has a *slot* of the address, which its queue pair numbers contain. Indices in the
//! kernel's group must never move, so no socket of the group is closed while any process uses the
//! address. The sockets are in a `socket_pool` that all processes have, and each process takes the
//! sockets that it reads.
//!
//! A joining process asks the rendezvous servers, one after the other, for `socket_pool` and
//! `table`. The process claims the lowest free slot by a lock that ends with the process. Before
//! using the slot, the process drops the packets that a dead process left in the slot's socket.
//!
//! So a process may die at any moment without a clean-up: the kernel frees abstract names, memory
//! files, locks and sockets with their last user.
//!
//! A packet can arrive in the wrong process: the kernel merged it with another process's packet, or
//! its slot has no socket yet and the kernel chose one by a hash. That process forwards the packet
//! to the right one. If the system lacks one of these features, the address is for one process
//! alone ([`PortSet::sharing_error`]).
//!
//! | file | subject |
//! |---|---|
//! | `table` | slots and services: the memory file and its locks |
//! | `socket_pool` | the sockets |
//! | `group` | table and pool, as one process uses them |
//! | `discover` | how a process finds the group, or creates it |
//! | `server` | requests to join, forwarded packets, and requests for a listing |
//! | `forward` | the format of a forwarded packet |
//!
//! Sources: socket(7), unix(7), fcntl(2), memfd_create(2); the kernel's net/core/sock_reuseport.c.

mod discover;
// Public for the fuzz targets, which send any bytes.
#[doc(hidden)]
pub mod forward;
mod group;
mod server;
mod socket_pool;
mod table;

#[cfg(all(test, not(loom)))]
mod tests;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use socket2::Socket;

use self::discover::discover_or_create;
use self::group::{Claim, CreateGroupError, Group, REGISTRY, Services};
use self::server::RendezvousServer;
use self::table::Service;
use crate::rendezvous::{Identity, LibraryCopy, SharedAddress, connect, owner_of};
use crate::ring::RingOffer;
use crate::sys::fork::{CloseOnFork, ProcessId};
use crate::sys::{socket, steering};
use crate::udp::{
    OpenPortError, ReceiveBuffers, UdpConfig, UdpPort, check_address, discard_received, failed,
    free_loopback_address,
};
use urxe_types::errno::OsError;
use urxe_types::port::Datagrams;
use urxe_types::qpn::MAX_PROCESS_SLOTS;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::Ordering;

pub use self::server::listing_of;
pub use crate::rendezvous::{Sharer, sharers};
pub use urxe_types::owner::{ListenError, Owner};

/// Batches read from the socket of a dead process at a time. A stream of data ends earlier, because
/// no process acknowledges it.
const MAX_ORPHANED_BATCHES: usize = 256;
/// The time between two attempts.
const RETRY: Duration = Duration::from_millis(2);
/// How many times all slots are tried. A dying process may keep its abstract name a little longer
/// than its lock.
const CLAIM_ROUNDS: usize = 50;

/// The number of attempts to clear the entry of a service.
const RELEASE_TRIES: usize = 3;

/// The slot and the ports of a device on its addresses.
#[derive(Debug)]
pub struct PortSet {
    /// The process slot, the same on all addresses.
    pub slot: u8,
    /// The port of each address, in order.
    pub ports: Vec<UdpPort>,
    /// The membership of each address that is shared.
    pub members: Vec<Member>,
    /// The system call that failed with its error, if an address is therefore for this device
    /// alone; for several such addresses, that of the last.
    pub sharing_error: Option<(&'static str, Errno)>,
}

/// A device's membership in the group of one address. Dropping it ends the membership.
#[derive(Debug)]
pub struct Member {
    group: Option<Arc<Group>>,
    slot: u8,
    claim: u64,
    rendezvous: Option<RendezvousServer>,
    /// The common socket, which all processes of the address read.
    common: Option<UdpPort>,
    /// The sockets of other slots that were looked up. They never change.
    others: Box<[OnceLock<CloseOnFork<Socket>>]>,
    process: ProcessId,
}

/// The result of looking up an address.
enum Lookup {
    Shared(Arc<Group>),
    Unshared { call: &'static str, errno: Errno },
}

impl Lookup {
    fn group(&self) -> Option<&Arc<Group>> {
        match self {
            Self::Shared(group) => Some(group),
            Self::Unshared { .. } => None,
        }
    }
}

/// Opens ports on all of a device's addresses, together with the other processes of this user that
/// have them. Each attempt at a slot calls `random` once for each address.
///
/// # Errors
/// [`OpenPortError`], if another user or another program has an address, or all slots are taken.
pub fn join(
    configs: &[UdpConfig],
    mut random: impl FnMut() -> u64,
) -> Result<PortSet, OpenPortError> {
    let mut found = Vec::new();
    let result = configs
        .iter()
        .try_for_each(|config| {
            found.push(find(config)?);
            Ok(())
        })
        .and_then(|()| join_found(configs, &found, &mut random));
    for found in found {
        if let Lookup::Shared(group) = found {
            REGISTRY.get().release(group);
        }
    }
    result
}

fn join_found(
    configs: &[UdpConfig],
    found: &[Lookup],
    random: &mut impl FnMut() -> u64,
) -> Result<PortSet, OpenPortError> {
    let groups: Vec<&Arc<Group>> = found.iter().filter_map(Lookup::group).collect();
    let (slot, mut members) = claim(&groups, random)?;
    let mut joined = PortSet { slot, ports: Vec::new(), members: Vec::new(), sharing_error: None };
    let mut rest = members.iter_mut();
    for (config, found) in configs.iter().zip(found) {
        let port = match *found {
            Lookup::Shared(_) => rest.next().map(|member| member.open(config)),
            Lookup::Unshared { call, errno } => {
                joined.sharing_error = Some((call, errno));
                Some(UdpPort::open(config.clone()))
            }
        };
        joined.ports.extend(port.transpose()?);
    }
    joined.members = members;
    Ok(joined)
}

/// Opens the port of one more address for a device that already has `slot`.
///
/// # Errors
/// As [`join`]; [`OpenPortError::SlotTaken`] if another process has the slot there.
pub fn join_late(
    config: &UdpConfig,
    slot: u8,
    random: u64,
) -> Result<(UdpPort, Option<Member>), OpenPortError> {
    let group = match find(config)? {
        Lookup::Shared(group) => group,
        Lookup::Unshared { .. } => return Ok((UdpPort::open(config.clone())?, None)),
    };
    let joined = Member::claim(&group, slot, random | 1).and_then(|member| {
        let taken = OpenPortError::SlotTaken { address: config.address, slot };
        let mut member = member.ok_or(taken)?;
        Ok((member.open(config)?, Some(member)))
    });
    REGISTRY.get().release(group);
    joined
}

/// Returns the group of an address that this process has, or else discovers or creates it.
/// Meanwhile other joins and leaves of this address in this process wait, for seconds if another
/// process of the address does not reply.
fn find(config: &UdpConfig) -> Result<Lookup, OpenPortError> {
    let (address, scope_id) = check_address(config.address.to_canonical(), config.scope_id)?;
    let shared = SharedAddress::new(address, scope_id);
    match REGISTRY.get().group(shared, || discover_or_create(shared, config)) {
        Ok(group) => Ok(Lookup::Shared(group)),
        Err(CreateGroupError::Port(error)) => Err(error),
        Err(CreateGroupError::Refused { call, errno }) => {
            tracing::warn!(%address, %errno, "{call} failed: only this process uses the address");
            Ok(Lookup::Unshared { call, errno })
        }
    }
}

/// Claims the same slot in all groups, and opens the rendezvous servers.
fn claim(
    groups: &[&Arc<Group>],
    random: &mut impl FnMut() -> u64,
) -> Result<(u8, Vec<Member>), OpenPortError> {
    for _ in 0..CLAIM_ROUNDS {
        for slot in 0..MAX_PROCESS_SLOTS {
            let mut members = Vec::new();
            for group in groups {
                match Member::claim(group, slot, random() | 1)? {
                    Some(member) => members.push(member),
                    None => break,
                }
            }
            if members.len() == groups.len() {
                tracing::debug!(slot, "claimed a slot");
                return Ok((slot, members));
            }
        }
        std::thread::sleep(RETRY);
    }
    let address = groups.first().map_or(IpAddr::from([127, 0, 0, 1]), |group| group.address.ip);
    Err(OpenPortError::TooManyProcesses {
        address,
        allowed: MAX_PROCESS_SLOTS,
        free: free_loopback_address().map(IpAddr::V4),
    })
}

/// Fails if another copy of this library in this process serves the slot. The slot may also have a
/// record of the program that executed this one.
fn check_other_copy(address: SharedAddress, slot: u8) -> Result<(), OpenPortError> {
    let is_here = |pid| u32::try_from(pid) == Ok(std::process::id());
    match connect(address, slot, Identity::own()) {
        Ok((_, peer)) if is_here(peer.pid) => {
            let other = server::library_of(address, slot).unwrap_or_else(LibraryCopy::unknown);
            let (own, other) = (Box::new(LibraryCopy::own()), Box::new(other));
            Err(OpenPortError::SecondCopy { address: address.ip, own, other })
        }
        _ => Ok(()),
    }
}

impl Member {
    /// Claims a slot and opens its rendezvous server; `None` if the slot is taken.
    fn claim(group: &Arc<Group>, slot: u8, claim: u64) -> Result<Option<Self>, OpenPortError> {
        let address = group.address.ip;
        match group.try_claim(slot, claim).map_err(failed(address, "F_SETLK"))? {
            Claim::Claimed => {}
            Claim::Taken => return Ok(None),
            Claim::OfOtherCopy => return check_other_copy(group.address, slot).map(|()| None),
        }
        let mut member = Self {
            group: Some(Arc::clone(group)),
            slot,
            claim,
            rendezvous: None,
            common: None,
            others: (0..MAX_PROCESS_SLOTS).map(|_| OnceLock::new()).collect(),
            process: ProcessId::this(),
        };
        match RendezvousServer::open(group.address, slot) {
            Ok(rendezvous) => member.rendezvous = Some(rendezvous),
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(errno) => return Err(failed(address, "listen")(errno)),
        }
        Ok(Some(member))
    }

    /// Takes the common socket and the slot's socket, and drops the packets for the slot's former
    /// process.
    fn open(&mut self, config: &UdpConfig) -> Result<UdpPort, OpenPortError> {
        let group = self.group();
        let (own, common) = {
            let locked = group.locked().map_err(failed(config.address, "F_SETLK"))?;
            let own = locked.socket(steering::slot_socket(self.slot), config)?;
            (own, locked.socket(steering::COMMON_SOCKET, config)?)
        };
        tracing::debug!(slot = self.slot, "took the sockets");
        let port = UdpPort::adopt(own, config)?;
        let stale = discard_received(&port);
        tracing::debug!(slot = self.slot, stale, "joined {}", group.address);
        self.common = Some(UdpPort::adopt(common, config)?);
        Ok(port)
    }

    fn group(&self) -> &Arc<Group> {
        match &self.group {
            Some(group) => group,
            None => unreachable!("only dropping takes the group"),
        }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.group().address.ip
    }

    /// Returns the slot.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the socket of packets for no particular process. Every process may read from that
    /// socket.
    #[must_use]
    pub fn common(&self) -> Option<&UdpPort> {
        self.common.as_ref()
    }

    /// Serves joining processes, passes forwarded packets to `sink` and offers of rings to `rings`,
    /// and sends the result of `listing` to tools that ask. Due when
    /// [`rendezvous`](Self::rendezvous) is readable.
    pub fn serve(
        &self,
        buffer: &mut Vec<u8>,
        sink: impl FnMut(&Datagrams<'_>),
        rings: impl FnMut(RingOffer),
        listing: impl Fn() -> Vec<u8>,
    ) {
        if let Some(rendezvous) = &self.rendezvous {
            rendezvous.serve(self.group(), buffer, sink, rings, listing);
        }
    }

    /// Returns whether another process has shared the address at any time. [`others`](Self::others)
    /// returns the current ones.
    #[must_use]
    pub fn has_been_shared(&self) -> bool {
        self.group().has_been_shared.load(Ordering::Relaxed)
    }

    /// Returns the slots of the other devices that have the address now, in this process and in
    /// others.
    #[must_use]
    pub fn others(&self) -> Vec<u8> {
        let group = self.group();
        let Ok(locked) = group.locked() else { return Vec::new() };
        let is_other = |slot: &u8| *slot != self.slot && locked.is_taken(*slot);
        (0..MAX_PROCESS_SLOTS).filter(is_other).collect()
    }

    /// Returns whether a device of this or another process has the slot now. Never waits, and makes
    /// at most one system call.
    #[must_use]
    pub fn is_slot_taken(&self, slot: u8) -> bool {
        self.group().is_taken_now(slot)
    }

    /// Returns whether unread packets fill half of the socket of another process of the address.
    /// Never waits: returns false if this process does not have that socket yet and the group is
    /// locked.
    #[must_use]
    pub fn is_receiver_congested(&self, slot: u8) -> bool {
        let Some(cell) = self.others.get(usize::from(slot)).filter(|_| slot != self.slot) else {
            return false;
        };
        if cell.get().is_none()
            && let Ok(Some(locked)) = self.group().try_locked()
            && let Ok(Some(socket)) = locked.peek(steering::slot_socket(slot))
        {
            // If another thread has set the cell meanwhile, the cell holds the same socket.
            let _ = cell.set(socket);
        }
        let memory = cell.get().and_then(|socket| socket::memory(&**socket).ok());
        memory.is_some_and(|memory| memory.receive_queued > memory.receive_limit / 2)
    }

    /// Returns the descriptor that is readable when [`serve`](Self::serve) is due.
    #[must_use]
    pub fn rendezvous(&self) -> Option<BorrowedFd<'_>> {
        self.rendezvous.as_ref().map(AsFd::as_fd)
    }

    /// Forwards packets to the process with `slot`. Returns how many of the first packets were
    /// taken.
    pub fn forward_packets<'a>(
        &self,
        slot: u8,
        packets: impl Iterator<Item = Datagrams<'a>>,
    ) -> usize {
        let mut taken = 0;
        match server::forward_packets(self.group().address, slot, packets, &mut taken) {
            Ok(()) => {}
            Err(errno) => tracing::debug!(%errno, slot, taken, "cannot forward all packets"),
        }
        taken
    }

    /// Claims a service id on this address. Its requests then reach this device.
    ///
    /// # Errors
    /// [`ListenError`], if the service is taken.
    pub fn listen(&self, service_id: u64) -> Result<(), ListenError> {
        let address = self.address();
        let system = |errno| ListenError::System { address, errno: OsError::of(errno) };
        let locked = self.group().locked().map_err(system)?;
        let Services { alive, free } = locked.services().map_err(system)?;
        if let Some((_, taken)) = alive.iter().find(|(_, service)| service.id == service_id) {
            let listener = connect(self.group().address, taken.slot, Identity::own());
            let owner = listener.ok().map(|(_, peer)| owner_of(peer));
            return Err(ListenError::InUse { address, service_id, owner });
        }
        let index = free.ok_or(ListenError::TooMany { address })?;
        let service = Service { id: service_id, claim: self.claim, slot: self.slot };
        self.group().table.set_service(index, Some(service)).map_err(system)
    }

    /// Releases a service id. Returns whether this device had claimed it.
    #[must_use]
    pub fn unlisten(&self, service_id: u64) -> bool {
        let Ok(_locked) = self.group().locked() else { return false };
        let table = &self.group().table;
        let Ok(Some(index)) = table.find_service(service_id, self.claim) else { return false };
        // The page of the entry exists, so a failure is brief.
        (0..RELEASE_TRIES).any(|_| table.set_service(index, None).is_ok())
    }

    /// Returns the slot of the process that listens on a service id.
    #[must_use]
    pub fn listener_of(&self, service_id: u64) -> Option<u8> {
        let locked = self.group().locked().ok()?;
        let Services { alive, .. } = locked.services().ok()?;
        alive
            .iter()
            .find(|(_, service)| service.id == service_id)
            .map(|(_, service)| service.slot & 63)
    }

    /// Drops the packets in the sockets of free slots, except those for which `keeps` returns true.
    /// Returns the number dropped.
    ///
    /// The group is locked meanwhile, so no slot can be claimed; `keeps` must not use the group.
    #[must_use]
    pub fn discard_orphaned(
        &self,
        buffers: &mut ReceiveBuffers,
        mut keeps: impl FnMut(&Datagrams<'_>) -> bool,
    ) -> usize {
        let group = self.group();
        let (Some(port), Ok(locked)) = (&self.common, group.locked()) else { return 0 };
        let mut discarded = 0;
        for slot in (0..MAX_PROCESS_SLOTS).filter(|slot| *slot != self.slot) {
            if locked.is_taken(slot) {
                continue;
            }
            let Ok(Some(socket)) = locked.peek(steering::slot_socket(slot)) else { break };
            for _ in 0..MAX_ORPHANED_BATCHES {
                if !port.receive_from(&socket, buffers).is_ok_and(|received| received > 0) {
                    break;
                }
                for datagrams in buffers.iter() {
                    for bytes in datagrams.segments() {
                        let packet = Datagrams { bytes, segment_size: bytes.len(), ..datagrams };
                        discarded += usize::from(!keeps(&packet));
                    }
                }
            }
            // The packets after `MAX_ORPHANED_BATCHES`, and errors that the former process left in
            // the queue.
            discarded += discard_received(&*socket);
        }
        discarded
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        if self.process.is_other() {
            // In a forked child none of this belongs to the process, and threads that the child
            // lacks may hold locks.
            std::mem::forget(group);
            return;
        }
        self.common = None;
        // The rendezvous server is closed before the slot is released, because the next owner of
        // the slot opens a new one.
        self.rendezvous = None;
        group.release_slot(self.slot);
        REGISTRY.get().release(group);
    }
}
