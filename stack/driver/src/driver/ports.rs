//! The ports of a device: one socket for each of its addresses; and what comes there for other
//! processes.

mod sweep;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use urxe_wire::mad::{Destination, MAD_LEN};
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Bth, Deth, Qpn, ROCE_PORT};

use super::added_ports::{AddPortError, AddedPorts, MAX_ADDED};
use super::deferred_mads::{DeferredMad, DeferredMads};
use super::groups::{GroupPorts, View};
use super::management::{self, Inbox};
use crate::device::counters::Counter;
use crate::device::qpn::process_slot;
use crate::device::{Device, ReceiveScratch, SourcePorts, Strays};
use crate::port::faults::BadLink;
use crate::port::groups::{JoinError, JoinGroups};
use crate::port::sharing::{self, Joined, ListenError, Member};
use crate::port::udp::{OpenPortError, ReceiveBuffers, UdpConfig, UdpPort};
use crate::port::{Datagrams, Run, SendOutcome, Transmit};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::clock;
use crate::time::Time;

/// A socket where nothing came lately is read once in so many rounds, so that an idle address costs
/// little.
const COLD_EVERY: u32 = 16;
/// Datagrams read by one call. Bounded, so that one poll of a busy socket does not keep its thread
/// for long.
const BATCH: usize = 4;
/// Batches of more bytes, or of so many packets, are part of a stream. Those of management come in
/// crowds, too, and no run follows them closely.
const STREAM: usize = 8 << 10;
const STREAM_PACKETS: usize = 16;
/// What comes so soon behind such a batch is part of the stream as well: a sender that waits for an
/// acknowledgement sends a packet alone first.
const STREAM_NS: u64 = 200_000;
/// Length of a packet of management: BTH, DETH, MAD, ICRC.
const MANAGEMENT: usize = Bth::LEN + Deth::LEN + MAD_LEN + ICRC_LEN;
/// Batches read in a row from a socket that all processes of an address read.
const COMMON_BATCHES: usize = 16;
/// Who listens for nothing leaves such a socket to the others for so long, after which it is told
/// again, and then reads one batch: what it reads it would only hand to another.
const COMMON_REST_NS: u64 = 10_000_000;
/// Datagrams handed to another process by one connection, of which it reads 256.
const HANDED_IN: usize = 128;

/// All sockets of a device.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<UdpPort>,
    members: Vec<Member>,
    added: AddedPorts,
    slot: u8,
    alone: Option<(&'static str, Errno)>,
    /// What is listened on, each for one address or for all.
    services: Mutex<BTreeSet<(u64, Option<IpAddr>)>>,
    /// Requests that nobody listens for are this process's as well: its connection manager refuses
    /// them.
    pub refuses: AtomicBool,
    /// Such requests, until they are refused.
    pub deferred: DeferredMads,
    pub inbox: Inbox,
    pub groups: GroupPorts,
    /// The socket where something came last: one of the addresses', or after those one of the
    /// groups'.
    hot: AtomicUsize,
    round: AtomicU32,
    /// Until when the sockets that all processes of an address read are left to the others; 0: they
    /// are not.
    common_rest_ns: AtomicU64,
    /// A simulated bad network. Its lock comes before all of the core's.
    bad_link: Option<Mutex<BadLink>>,
}

/// What a receiving thread uses.
#[derive(Debug)]
pub(super) struct Receiver {
    buffers: ReceiveBuffers,
    scratch: ReceiveScratch,
    groups: View,
    /// Until when what comes is part of a stream, and whether the batch received last was.
    stream_until: Time,
    is_streaming: bool,
    /// For what other processes hand in.
    message: Vec<u8>,
}

impl Receiver {
    pub fn new() -> Self {
        Self {
            buffers: ReceiveBuffers::new(BATCH),
            scratch: ReceiveScratch::noting_strays(),
            groups: View::default(),
            stream_until: Time::ZERO,
            is_streaming: false,
            message: Vec::new(),
        }
    }

    /// Whether the batch received last was part of a stream of data.
    pub fn is_streaming(&self) -> bool {
        self.is_streaming
    }

    /// Looks whether the batch received at `now` is part of a stream of data.
    fn look_for_stream(&mut self, now: Time) {
        let (mut bytes, mut packets) = (0, 0);
        for datagrams in
            self.buffers.iter().filter(|datagrams| datagrams.segment_size != MANAGEMENT)
        {
            bytes += datagrams.bytes.len();
            packets += datagrams.segments().len();
        }
        if bytes > STREAM || packets >= STREAM_PACKETS {
            self.stream_until = now.plus_ns(STREAM_NS);
        }
        self.is_streaming = packets > 0 && now < self.stream_until;
    }
}

impl Ports {
    /// Opens a port for each of `configs`, of which there is at least one; multicast groups that
    /// are joined later are received through `groups`. What arrives at this process's slot goes
    /// over `bad_link`, if there is one.
    pub fn open(
        configs: &[UdpConfig],
        groups: GroupPorts,
        bad_link: impl FnOnce(u8) -> Option<BadLink>,
        random: impl FnMut() -> u64,
    ) -> Result<Self, OpenPortError> {
        let template = match configs.first() {
            Some(config) => config.clone(),
            None => unreachable!("a link has an address"),
        };
        let Joined { slot, ports, members, alone } = sharing::join(configs, random)?;
        Ok(Self {
            added: AddedPorts::new(template),
            ports,
            members,
            slot,
            alone,
            services: Mutex::default(),
            refuses: AtomicBool::new(false),
            deferred: DeferredMads::default(),
            inbox: Inbox::default(),
            groups,
            hot: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            common_rest_ns: AtomicU64::new(0),
            bad_link: bad_link(slot).map(Mutex::new),
        })
    }

    /// Those of addresses that came late are the last.
    pub fn iter(&self) -> impl Iterator<Item = &UdpPort> {
        self.ports.iter().chain(self.added.iter())
    }

    /// Opens a port for an address that came while the device was open.
    pub fn open_late(&self, address: IpAddr, random: u64) -> Result<(), AddPortError> {
        let services = lock(&self.services);
        let follow =
            |config: &UdpConfig, socket: BorrowedFd<'_>| self.groups.follow(config, socket);
        if let Some(member) = self.added.open(address, self.slot, random, follow)? {
            for (id, _) in services.iter().filter(|(_, on)| on.is_none()) {
                if let Err(error) = member.listen(*id) {
                    tracing::warn!(%address, %error, "what is listened on elsewhere is not on the new address");
                }
            }
        }
        Ok(())
    }

    /// The addresses that are shared with other processes.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.added.members())
    }

    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// What the system refused, so that no other process can use the addresses.
    pub fn alone(&self) -> Option<(&'static str, Errno)> {
        self.alone
    }

    /// Receives one batch for `device`; returns how many datagrams it was. `all`: look at cold
    /// sockets too.
    pub fn receive(&self, receiver: &mut Receiver, device: &Device, all: bool) -> usize {
        let released = self.release(receiver, device);
        if released > 0 {
            return released;
        }
        let hot = self.hot.load(Ordering::Relaxed);
        let received = self.receive_from(hot, receiver, device);
        if received > 0
            || (self.ports.len() == 1
                && self.added.is_empty()
                && self.groups.is_empty()
                && hot == 0)
        {
            return received;
        }
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        if !all && !round.is_multiple_of(COLD_EVERY) {
            return 0;
        }
        for index in (0..self.iter().count()).filter(|index| *index != hot) {
            let received = self.receive_from(index, receiver, device);
            if received > 0 {
                self.hot.store(index, Ordering::Relaxed);
                return received;
            }
        }
        if self.groups.is_empty() { 0 } else { self.receive_from_groups(receiver, device) }
    }

    fn receive_from_groups(&self, receiver: &mut Receiver, device: &Device) -> usize {
        for place in self.groups.ready() {
            let index = self.first_group() + place;
            let received = self.receive_from(index, receiver, device);
            if received > 0 {
                self.hot.store(index, Ordering::Relaxed);
                return received;
            }
        }
        0
    }

    /// Sockets are numbered: those of addresses, as many as late ones may come, those of groups.
    fn first_group(&self) -> usize {
        self.ports.len() + MAX_ADDED
    }

    fn receive_from(&self, index: usize, receiver: &mut Receiver, device: &Device) -> usize {
        let late = || self.added.at(index - self.ports.len());
        if let Some(port) = self.ports.get(index).or_else(late) {
            return self.receive_at(port, receiver, device);
        }
        // Taken out for the time, since the rest of the receiver is needed beside it.
        let mut view = std::mem::take(&mut receiver.groups);
        self.groups.look(&mut view);
        let group = index.checked_sub(self.first_group()).and_then(|place| view.at(place));
        let received = group.map_or(0, |port| self.receive_at(port, receiver, device));
        receiver.groups = view;
        received
    }

    fn receive_at(&self, port: &UdpPort, receiver: &mut Receiver, device: &Device) -> usize {
        match port.receive(&mut receiver.buffers) {
            Ok(0) => 0,
            Ok(count) => {
                let now = clock::now();
                receiver.look_for_stream(now);
                let Receiver { buffers, scratch, .. } = receiver;
                for datagrams in buffers.iter() {
                    let Some(bad_link) = &self.bad_link else {
                        self.take(now, port.address(), &datagrams, device, scratch);
                        continue;
                    };
                    let mut bad_link = lock(bad_link);
                    bad_link.carry(now, port.address(), &datagrams, |datagrams| {
                        self.take(now, port.address(), datagrams, device, scratch);
                    });
                    bad_link.count(device.counters());
                }
                count
            }
            Err(error) => {
                log_receive_error(port, &error);
                0
            }
        }
    }

    /// What arrived at address `at`, handed to the device or to whom it is for.
    pub fn take(
        &self,
        now: Time,
        at: IpAddr,
        datagrams: &Datagrams<'_>,
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) {
        device.receive(now, datagrams, scratch);
        if let Some(strays) = scratch.strays.as_ref()
            && !strays.segments().is_empty()
        {
            self.reroute(device, at, datagrams, strays);
        }
    }

    /// Hands on what the simulated bad network held until now; returns how many datagrams it was.
    fn release(&self, receiver: &mut Receiver, device: &Device) -> usize {
        let Some(bad_link) = &self.bad_link else { return 0 };
        let (now, mut released) = (clock::now(), 0);
        lock(bad_link).release(now, |at, packet| {
            released += 1;
            self.take(now, at, packet, device, &mut receiver.scratch);
        });
        released
    }

    /// Whether what arrives goes over a simulated bad network.
    pub fn has_bad_link(&self) -> bool {
        self.bad_link.is_some()
    }

    /// When the simulated bad network has something to hand on.
    pub fn next_due(&self) -> Option<Time> {
        self.bad_link.as_ref().and_then(|bad_link| lock(bad_link).next_due())
    }

    /// Receives what came to the sockets that all processes of an address read. Who listens for
    /// nothing lets them rest first.
    pub fn receive_common(&self, receiver: &mut Receiver, device: &Device) {
        let listens = !lock(&self.services).is_empty();
        let now_ns = clock::now().as_ns();
        if !listens && self.is_shared() {
            match self.common_rest_ns.swap(0, Ordering::Relaxed) {
                0 => return self.common_rest_ns.store(now_ns + COMMON_REST_NS, Ordering::Relaxed),
                until if now_ns < until => {
                    return self.common_rest_ns.store(until, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        for port in self.members().filter_map(Member::common) {
            for _ in 0..if listens { COMMON_BATCHES } else { 1 } {
                if self.receive_at(port, receiver, device) == 0 {
                    break;
                }
            }
        }
    }

    /// Until when the sockets that all processes of an address read are left to the others.
    pub fn common_backoff(&self) -> Option<Time> {
        Some(self.common_rest_ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0).map(Time::from_ns)
    }

    /// Serves newcomers, takes what other processes hand in, and tells who looks what `listing`
    /// gives.
    pub fn serve(&self, receiver: &mut Receiver, device: &Device, listing: impl Fn() -> Vec<u8>) {
        let Receiver { scratch, message, .. } = receiver;
        for member in self.members() {
            let take_in = |datagrams: &Datagrams<'_>| {
                device
                    .counters()
                    .add_many(Counter::RcvdForwarded, datagrams.segments().len() as u64);
                device.receive(clock::now(), datagrams, scratch);
                // It was sent here on purpose: what is not for this process all the same is not
                // sent on once more.
                for packet in stray_packets(datagrams, scratch.strays.as_ref()) {
                    match management::destination(packet.bytes) {
                        Some(_) => self.take_mad(device, &packet),
                        None => device.counters().add(Counter::DropForeignSlot),
                    }
                }
            };
            member.serve(message, take_in, &listing);
        }
    }

    /// Whether other processes have used an address lately, so that [`sweep`](Self::sweep) is due
    /// from time to time.
    pub fn is_shared(&self) -> bool {
        self.members().any(Member::has_company)
    }

    /// Brings packets that are not the device's to whom they are for.
    #[cold]
    fn reroute(&self, device: &Device, at: IpAddr, datagrams: &Datagrams<'_>, strays: &Strays) {
        let member = self.members().find(|member| member.address() == at);
        let mut handed_in = 0_u64;
        let listener = Cell::new(None);
        for packet in stray_packets(datagrams, Some(strays)) {
            let slot = match self.target(member, &listener, packet.bytes) {
                Target::This => {
                    self.take_mad(device, &packet);
                    continue;
                }
                Target::Everyone => {
                    self.take_mad(device, &packet);
                    self.hand_to_others(device, member, &packet);
                    continue;
                }
                Target::Later => {
                    if !self.deferred.defer(clock::now(), at, &packet) {
                        self.take_mad(device, &packet);
                    }
                    continue;
                }
                Target::Nobody(why) => {
                    device.counters().add(why);
                    continue;
                }
                Target::Slot(slot) => slot,
            };
            if handed_in & 1 << slot != 0 {
                continue; // with the first one for that process
            }
            handed_in |= 1 << slot;
            let packets = || {
                stray_packets(datagrams, Some(strays)).filter(|packet| {
                    self.target(member, &listener, packet.bytes) == Target::Slot(slot)
                })
            };
            let taken = member.map_or(0, |member| member.hand_in(slot, packets()));
            device.counters().add_many(Counter::Forwarded, taken as u64);
            for packet in packets().skip(taken) {
                // A connection that loses a message stalls for seconds; what loses data recovers by
                // itself.
                let is_mad = management::destination(packet.bytes).is_some();
                if !(is_mad && self.deferred.defer_for_process(clock::now(), at, &packet)) {
                    device.counters().add(Counter::DropForeignSlot);
                }
            }
        }
    }

    /// Gives a packet to all other processes of the address.
    fn hand_to_others(&self, device: &Device, member: Option<&Member>, packet: &Datagrams<'_>) {
        let Some(member) = member.filter(|member| member.has_company()) else { return };
        for slot in member.others() {
            let taken = member.hand_in(slot, std::iter::once(*packet));
            device.counters().add_many(Counter::Forwarded, taken as u64);
        }
    }

    /// Looks whether somebody listens now for the requests that wait, and refuses those that have
    /// waited long enough. Hands in once more what another process had no room for.
    pub fn retry_deferred(&self, device: &Device, now: Time) {
        let mut for_others: BTreeMap<(IpAddr, u8), Vec<DeferredMad>> = BTreeMap::new();
        for mut mad in self.deferred.due(now) {
            let member = self.members().find(|member| member.address() == mad.at);
            let packet = mad.packet.datagrams();
            match self.target(member, &Cell::new(None), packet.bytes) {
                Target::This if mad.has_listener => self.take_mad(device, &packet),
                Target::Slot(slot) if mad.has_listener => {
                    for_others.entry((mad.at, slot)).or_default().push(mad);
                }
                // A port is claimed when it is bound; who listens does so right after.
                Target::This | Target::Slot(_) => {
                    mad.has_listener = true;
                    self.deferred.put_back(now, mad);
                }
                Target::Later if !mad.is_expired() => self.deferred.put_back(now, mad),
                Target::Later | Target::Everyone => self.take_mad(device, &packet),
                Target::Nobody(why) => device.counters().add(why),
            }
        }
        for ((at, slot), waiting) in for_others {
            let member = self.members().find(|member| member.address() == at);
            let packets = waiting.iter().take(HANDED_IN).map(|mad| mad.packet.datagrams());
            let taken = member.map_or(0, |member| member.hand_in(slot, packets));
            device.counters().add_many(Counter::Forwarded, taken as u64);
            for mad in waiting.into_iter().skip(taken) {
                if mad.is_expired() {
                    // Of a process that ended before this one began, nothing may be left but what
                    // its peers remember.
                    if member.is_some_and(|member| !member.others().contains(&slot)) {
                        self.take_mad(device, &mad.packet.datagrams());
                        continue;
                    }
                    device.counters().add(Counter::DropForeignSlot);
                } else {
                    self.deferred.put_back(now, mad);
                }
            }
        }
    }

    /// Whom a packet is for that is none of the device's queue pairs'. `listener` is the service
    /// asked for last, and who listens: of many requests that come together most ask for the same,
    /// and looking takes system calls.
    fn target(
        &self,
        member: Option<&Member>,
        listener: &Cell<Option<(u64, Option<u8>)>>,
        packet: &[u8],
    ) -> Target {
        if let Some(qpn) = dest_qp(packet).filter(|qpn| qpn.value() > Qpn::QP1.value()) {
            return Target::Slot(process_slot(qpn));
        }
        let slot = match management::destination(packet) {
            None => return Target::Nobody(Counter::DropBadMad),
            Some(Destination::Anyone) => return Target::This,
            Some(Destination::Everyone) => return Target::Everyone,
            Some(Destination::Slot(slot)) => Some(slot),
            // Nobody else has what this process listens on, and asking the others' table takes
            // system calls.
            Some(Destination::Service(id)) if self.listens_on(id.0, member) => Some(self.slot),
            Some(Destination::Service(id)) => match listener.get() {
                Some((known, slot)) if known == id.0 => slot,
                _ => {
                    let slot = member.and_then(|member| member.listener_of(id.0));
                    listener.set(Some((id.0, slot)));
                    slot
                }
            },
        };
        match slot {
            None if !self.refuses.load(Ordering::Relaxed) => {
                Target::Nobody(Counter::DropNoListener)
            }
            // Without other processes nobody is about to listen: this one would know.
            None if !member
                .is_some_and(|member| member.has_company() && !member.others().is_empty()) =>
            {
                Target::This
            }
            None => Target::Later,
            Some(slot) if slot == self.slot => Target::This,
            Some(slot) => Target::Slot(slot),
        }
    }

    /// Whether this device claimed a service id on the address of `member`; on any, where addresses
    /// are not shared.
    fn listens_on(&self, service_id: u64, member: Option<&Member>) -> bool {
        let services = lock(&self.services);
        let mut on = services
            .range((service_id, None)..)
            .take_while(|(id, _)| *id == service_id)
            .map(|(_, on)| *on);
        on.any(|on| on.is_none() || member.is_none_or(|member| on == Some(member.address())))
    }

    /// A management datagram for this process: its queue pair 1 takes it, if it has one.
    fn take_mad(&self, device: &Device, packet: &Datagrams<'_>) {
        if device.gsi().is_some() {
            device.receive_management(clock::now(), packet);
        } else if !self.inbox.put(packet) {
            device.counters().add(Counter::DropMadOverflow);
        }
    }

    /// Claims a service id on `address`, or on all.
    pub fn listen_at(&self, address: Option<IpAddr>, service_id: u64) -> Result<(), ListenError> {
        let mut services = lock(&self.services);
        let mut taken = services.iter().filter(|(id, _)| *id == service_id).map(|(_, on)| *on);
        if let Some(port) = self.ports.first()
            && taken.any(|on| on.is_none() || address.is_none() || on == address)
        {
            let address = address.unwrap_or(port.address());
            return Err(ListenError::InUse { address, service_id, owner: None });
        }
        let members = || self.members_at(address);
        for (done, member) in members().enumerate() {
            if let Err(error) = member.listen(service_id) {
                for member in members().take(done) {
                    let _ = member.unlisten(service_id);
                }
                return Err(error);
            }
        }
        services.insert((service_id, address));
        Ok(())
    }

    /// Gives a service id back; whether this device had it there.
    pub fn unlisten_at(&self, address: Option<IpAddr>, service_id: u64) -> bool {
        let had = lock(&self.services).remove(&(service_id, address));
        if had {
            for member in self.members_at(address) {
                let _ = member.unlisten(service_id);
            }
        }
        had
    }

    /// The member of `address`, or all.
    fn members_at(&self, address: Option<IpAddr>) -> impl Iterator<Item = &Member> {
        self.members()
            .filter(move |member| address.is_none_or(|address| member.address() == address))
    }

    /// Takes what ICMP and the own interface reported; counted and logged by the port.
    pub fn drain_errors(&self) {
        for port in self.iter().filter(|port| port.errors_pending()) {
            port.drain_errors(|_| ());
        }
    }
}

/// The queue pair that a packet is for, looked up where it stands in the BTH (IBTA vol. 1, 9.2).
pub(super) fn dest_qp(packet: &[u8]) -> Option<Qpn> {
    let &[high, middle, low] = packet.get(5..8)?.first_chunk()?;
    Qpn::new(u32::from_be_bytes([0, high, middle, low]))
}

/// Whom a packet is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// This process, as a management datagram.
    This,
    /// The process with the slot.
    Slot(u8),
    /// Nobody yet: somebody may listen soon.
    Later,
    /// All processes of the address.
    Everyone,
    /// It is dropped, for this reason.
    Nobody(Counter),
}

/// The packets that a device left, one by one.
fn stray_packets<'a>(
    datagrams: &'a Datagrams<'a>,
    strays: Option<&'a Strays>,
) -> impl Iterator<Item = Datagrams<'a>> {
    let positions = strays.map_or(&[][..], Strays::segments);
    positions.iter().filter_map(|&position| {
        let bytes = datagrams.segments().nth(usize::from(position))?;
        Some(Datagrams { bytes, segment_size: bytes.len(), ..*datagrams })
    })
}

impl SourcePorts for Ports {
    fn source_port(&self, local: IpAddr, peer_slot: u8) -> u16 {
        let port = self.iter().find(|port| port.address() == local);
        port.map_or(ROCE_PORT, |port| port.port_towards(peer_slot))
    }
}

#[cold]
fn log_receive_error(port: &UdpPort, error: &io::Error) {
    tracing::error!(address = %port.address(), %error, "cannot receive");
}

impl JoinGroups for Ports {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        self.groups.join(group)
    }

    fn leave(&self, group: IpAddr) {
        self.groups.leave(group);
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

    fn is_crowded(&self, to: IpAddr, peer_slot: u8) -> bool {
        let member = self.members().find(|member| member.address() == to);
        member.is_some_and(|member| member.is_crowded(peer_slot))
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
