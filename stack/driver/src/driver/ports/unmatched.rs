//! Packets that no queue pair of the device matches, and packets that other processes forward.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | an unmatched packet | [`route`] | to this process, another, all; deferred; dropped |
//! | a deferred MAD that is due | [`DeferredStep::choose`] | to one process; deferred; dropped |
//! | a MAD for this process | [`Ports::deliver_mad`] | to QP1 or the inbox; dropped |
//! | a deferred MAD not taken | [`DeferredStep::not_taken`] | deferred; to this process; dropped |
//! | a new packet not taken | [`Ports::route_unmatched`] | a MAD is deferred; data is dropped |
//! | a packet for a free slot | [`Ports::route_unmatched`] | a MAD to this process; data dropped |
//! | a forwarded packet | [`Ports::serve_others`] | to the device; to this process; dropped |
//! | a MAD of an ended process | [`Ports::clean_up_orphans`] | to this process, all; dropped |

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use urxe_wire::mad;

use super::Ports;
use super::receive::Receiver;
use super::route::{DeferredStep, Destination, Processes, route};
use super::services::ClaimState;
use crate::device::counters::Counter;
use crate::device::{Device, Unmatched};
use crate::driver::attached::KEEPS_MADS;
use crate::driver::deferred_mads::DeferredMad;
use crate::driver::management;
use crate::port::sharing::Member;
use crate::port::{Datagrams, StoredPacket};
use crate::ring::RingOffer;
use crate::sync::atomic::Ordering;
use crate::sys::clock;
use crate::time::Time;

/// The most deferred MADs forwarded to one process at a retry.
const MAX_FORWARDED: usize = 128;

/// MADs for ended processes that get a reply at a time; the senders repeat the rest.
const MAX_ORPHANED_MADS: usize = 1024;

/// The processes of an address, as this process knows them.
struct AddressView<'p> {
    ports: &'p Ports,
    /// The membership in the group of the address; `None` if it is not shared.
    member: Option<&'p Member>,
    /// The service looked up last, and its listener. Most requests of a burst name the same
    /// service.
    last: Cell<Option<(u64, Option<u8>)>>,
}

impl AddressView<'_> {
    /// Returns the state of a service that this process has claimed.
    fn state_here(&self, service_id: u64) -> Option<ClaimState> {
        self.ports.services.state(service_id, self.member.map(Member::address))
    }
}

impl Processes for AddressView<'_> {
    fn own_slot(&self) -> u8 {
        self.ports.slot
    }

    fn has_connection_manager(&self) -> bool {
        self.ports.has_connection_manager.load(Ordering::Relaxed)
    }

    fn listener_of(&self, service_id: u64) -> Option<u8> {
        // If this process listens on the service, no other does, so the table need not be read. If
        // the address is not shared, a claim on any address counts, because the connection manager
        // compares the address itself.
        if self.state_here(service_id).is_some() {
            return Some(self.ports.slot);
        }
        match self.last.get() {
            Some((known, slot)) if known == service_id => slot,
            _ => {
                let slot = self.member.and_then(|member| member.listener_of(service_id));
                self.last.set(Some((service_id, slot)));
                slot
            }
        }
    }

    fn listens_here(&self, service_id: u64) -> bool {
        self.state_here(service_id) == Some(ClaimState::Listening)
    }

    fn has_others(&self) -> bool {
        self.member.is_some_and(|member| member.has_been_shared() && !member.others().is_empty())
    }
}

impl Ports {
    fn view(&self, at: IpAddr) -> AddressView<'_> {
        let member = self.members().find(|member| member.address() == at);
        AddressView { ports: self, member, last: Cell::new(None) }
    }

    /// Routes unmatched packets that arrived at address `at`, each to its [`Destination`].
    #[cold]
    pub(super) fn route_unmatched(
        &self,
        device: &Device,
        at: IpAddr,
        datagrams: &Datagrams<'_>,
        unmatched: &Unmatched,
    ) {
        let view = self.view(at);
        // Packets for one process are forwarded together. Each packet is routed only once, because
        // a second call of `route` may decide otherwise.
        let mut forwards: BTreeMap<u8, Vec<Datagrams<'_>>> = BTreeMap::new();
        for packet in unmatched_packets(datagrams, Some(unmatched)) {
            match route(packet.bytes, &view) {
                Destination::Here => self.deliver_mad(device, &packet),
                Destination::Process(slot) => forwards.entry(slot).or_default().push(packet),
                Destination::EveryProcess => {
                    self.deliver_mad(device, &packet);
                    broadcast_to_others(device, view.member, &packet);
                }
                Destination::Deferred => {
                    if !self.deferred.defer(clock::now(), at, &packet) {
                        // No room to defer the request: it is rejected here at once.
                        self.deliver_mad(device, &packet);
                    }
                }
                Destination::Drop(why) => device.counters().add(why),
            }
        }
        for (slot, packets) in forwards {
            // Anyone can send packets for slots without a process. A search for the process would
            // take a hundred times longer than to receive the packet.
            let has_ended = view.member.is_some_and(|member| !member.is_slot_taken(slot));
            let taken = match has_ended {
                true => 0,
                false => forward(device, view.member, slot, packets.iter().copied()),
            };
            for packet in packets.into_iter().skip(taken) {
                // A connection that loses a message stalls for seconds; a queue pair that loses
                // data recovers by itself.
                let is_mad = management::destination(packet.bytes).is_some();
                if is_mad && has_ended {
                    // Only remote hosts may still know of the process, and the connection manager
                    // here rejects their MADs.
                    self.deliver_mad(device, &packet);
                } else if !(is_mad && self.deferred.defer_for_process(clock::now(), at, &packet)) {
                    device.counters().add(Counter::DropOtherProcess);
                }
            }
        }
    }

    /// Delivers, forwards, drops or defers again the deferred MADs that are due.
    pub fn retry_deferred(&self, device: &Device, now: Time) {
        let mut forwards: BTreeMap<(IpAddr, u8), Vec<DeferredMad>> = BTreeMap::new();
        for mad in self.deferred.due(now) {
            let destination = route(mad.packet.datagrams().bytes, &self.view(mad.at));
            match DeferredStep::choose(destination, mad.has_listener, mad.is_expired()) {
                DeferredStep::Forward(slot) => {
                    forwards.entry((mad.at, slot)).or_default().push(mad)
                }
                step => self.finish_deferred(device, now, mad, step),
            }
        }
        for ((at, slot), mads) in forwards {
            let member = self.view(at).member;
            let packets = mads.iter().take(MAX_FORWARDED).map(|mad| mad.packet.datagrams());
            let taken = forward(device, member, slot, packets);
            let has_room = taken == MAX_FORWARDED;
            for mad in mads.into_iter().skip(taken) {
                let others = || member.map(Member::others);
                let step = DeferredStep::not_taken(slot, has_room, mad.is_expired(), others);
                self.finish_deferred(device, now, mad, step);
            }
        }
    }

    fn finish_deferred(
        &self,
        device: &Device,
        now: Time,
        mut mad: DeferredMad,
        step: DeferredStep,
    ) {
        match step {
            DeferredStep::Deliver => self.deliver_mad(device, &mad.packet.datagrams()),
            DeferredStep::ConfirmNextTime => {
                mad.has_listener = true;
                self.deferred.defer_again(now, mad);
            }
            // The caller has handled `Forward`: it forwards all MADs for one process together.
            DeferredStep::Forward(_) | DeferredStep::Wait => self.deferred.defer_again(now, mad),
            DeferredStep::Drop(why) => device.counters().add(why),
        }
    }

    /// Serves joining processes, takes packets and rings of other processes, and sends the result
    /// of `listing` to tools that ask for the connections.
    pub fn serve_others(
        &self,
        receiver: &mut Receiver,
        device: &Device,
        listing: impl Fn() -> Vec<u8>,
    ) {
        let Receiver { scratch, message, .. } = receiver;
        for member in self.members() {
            let receive_forwarded = |datagrams: &Datagrams<'_>| {
                device
                    .counters()
                    .add_many(Counter::RcvdForwarded, datagrams.segments().len() as u64);
                device.receive(clock::now(), datagrams, scratch);
                // The other process chose this one. A packet for a third process is dropped instead
                // of forwarded again, so packets cannot circulate.
                for packet in unmatched_packets(datagrams, scratch.unmatched.as_ref()) {
                    match management::destination(packet.bytes) {
                        Some(mad::Destination::Service(_)) => {
                            self.take_forwarded_request(device, member.address(), &packet);
                        }
                        Some(_) => self.deliver_mad(device, &packet),
                        None => device.counters().add(Counter::DropOtherProcess),
                    }
                }
            };
            let accept = |offer: RingOffer| {
                let Some(rings) = self.rings() else { return };
                let from = offer.from();
                if let Err(errno) = rings.incoming.accept(offer, member.address()) {
                    tracing::debug!(%errno, ?from, "refused a ring");
                }
            };
            member.serve(message, receive_forwarded, accept, &listing);
        }
    }

    /// Takes a request that another process forwarded, because this one has claimed the service. If
    /// this process does not listen on the service, the request is deferred.
    fn take_forwarded_request(&self, device: &Device, at: IpAddr, packet: &Datagrams<'_>) {
        let is_here = route(packet.bytes, &self.view(at)) == Destination::Here;
        if is_here || !self.deferred.defer(clock::now(), at, packet) {
            self.deliver_mad(device, packet);
        }
    }

    /// Drops the packets in the sockets of ended processes. Packets for their queue pairs get no
    /// reply, as packets for a destroyed queue pair.
    ///
    /// If this process has a connection manager, that gets the MADs, and rejects them because it
    /// does not know the connection. Without a reply the senders would repeat them for a minute and
    /// longer.
    pub fn clean_up_orphans(&self, receiver: &mut Receiver, device: &Device) {
        let Receiver { buffers, scratch, .. } = receiver;
        let has_connection_manager = self.has_connection_manager.load(Ordering::Relaxed);
        for member in self.members().filter(|member| member.has_been_shared()) {
            let mut kept = Vec::new();
            let dropped = member.discard_orphaned(buffers, |packet| {
                let is_kept = has_connection_manager
                    && kept.len() < MAX_ORPHANED_MADS
                    && management::destination(packet.bytes).is_some();
                if is_kept {
                    kept.push(StoredPacket::new(packet, packet.bytes.into()));
                }
                is_kept
            });
            // `dropped` does not include the kept MADs.
            device.counters().add_many(Counter::DropOrphanedSlot, dropped as u64);
            for packet in &kept {
                let packet = packet.datagrams();
                // The device checks the ICRC and counts the packet, as for a packet from a socket.
                device.receive(clock::now(), &packet, scratch);
                for packet in unmatched_packets(&packet, scratch.unmatched.as_ref()) {
                    match management::destination(packet.bytes) {
                        // The kernel merged the request with a MAD for the ended process. Its
                        // listener may be any process.
                        Some(mad::Destination::Service(_)) => {
                            self.deferred.defer(clock::now(), member.address(), &packet);
                        }
                        // Without an id for its receiver, a MAD is steered to slot 0 (socket 1),
                        // for whichever process it is.
                        Some(mad::Destination::Everyone) => {
                            self.deliver_mad(device, &packet);
                            broadcast_to_others(device, Some(member), &packet);
                        }
                        _ => self.deliver_mad(device, &packet),
                    }
                }
            }
        }
    }

    /// Delivers a MAD to this process: to queue pair 1 if the device has one, otherwise to the
    /// inbox. A build without a connection manager has no use for it.
    pub(super) fn deliver_mad(&self, device: &Device, packet: &Datagrams<'_>) {
        if device.gsi().is_some() {
            device.receive_management(clock::now(), packet);
        } else if !KEEPS_MADS {
            device.counters().add(Counter::DropNoListener);
        } else if !self.inbox.put(packet) {
            device.counters().add(Counter::DropMadOverflow);
        }
    }
}

/// Forwards packets to the process with `slot`. Returns how many of the first ones it took.
fn forward<'a>(
    device: &Device,
    member: Option<&Member>,
    slot: u8,
    packets: impl Iterator<Item = Datagrams<'a>>,
) -> usize {
    let taken = member.map_or(0, |member| member.forward_packets(slot, packets));
    device.counters().add_many(Counter::Forwarded, taken as u64);
    taken
}

/// Forwards a packet to all other devices of the address, in this process and in others. Counts
/// those that do not take it.
fn broadcast_to_others(device: &Device, member: Option<&Member>, packet: &Datagrams<'_>) {
    let others = member.map(Member::others).unwrap_or_default();
    for slot in others {
        if forward(device, member, slot, std::iter::once(*packet)) == 0 {
            device.counters().add(Counter::DropOtherProcess);
        }
    }
}

/// Returns the packets that the device did not match, one by one.
pub(in crate::driver) fn unmatched_packets<'a>(
    datagrams: &'a Datagrams<'a>,
    unmatched: Option<&'a Unmatched>,
) -> impl Iterator<Item = Datagrams<'a>> {
    let positions = unmatched.map_or(&[][..], Unmatched::segments);
    positions.iter().filter_map(|&position| {
        let bytes = datagrams.segments().nth(usize::from(position))?;
        Some(Datagrams { bytes, segment_size: bytes.len(), ..*datagrams })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use urxe_wire::mad::{CommId, Mad, Rtu, TransactionId};
    use urxe_wire::packet::ICRC_LEN;
    use urxe_wire::{Bth, Deth, Ext, Gid, Opcode, PacketRepr, Psn, QKey, Qpn};

    use super::*;
    use crate::device::{DeviceConfig, IcrcPolicy, ReceiveScratch};
    use crate::driver::groups::GroupPorts;
    use crate::port::udp::UdpConfig;
    use crate::sys::unix;

    #[test]
    fn a_mad_for_all_is_counted_for_each_that_does_not_take_it() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let at = IpAddr::from([127, 60, high, low.max(1)]);
        let ports = |claim| {
            let groups = GroupPorts::new(&[]).unwrap();
            Ports::open(&[UdpConfig::new(at)], groups, |_| None, || claim).unwrap()
        };
        // No thread serves the second one.
        let (here, _other) = (ports(1), ports(2));
        let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(at)], 1));
        let value = |counter| device.counters().value(counter);
        let (from, bytes) = (at, &[7; 64][..]);
        let segment_size = bytes.len();
        let (from_port, traffic_class, hop_limit) = (1, 0, 0);
        let packet =
            Datagrams { from, from_port, to: at, bytes, segment_size, traffic_class, hop_limit };
        let mut sent = 0;
        while value(Counter::DropOtherProcess) < 3 {
            assert!(sent < 10_000, "the queue of the other one has no end");
            broadcast_to_others(&device, here.members().next(), &packet);
            sent += 1;
            assert_eq!(value(Counter::Forwarded) + value(Counter::DropOtherProcess), sent);
        }
        assert!(value(Counter::Forwarded) > 0);
    }

    /// Returns the packet of an RTU for a connection of the process with `slot`.
    fn rtu_for(slot: u8) -> Vec<u8> {
        let remote_comm_id = CommId::with_slot(slot, 7);
        let rtu = Rtu { local_comm_id: CommId(5), remote_comm_id, ..Rtu::default() };
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::QP1, Psn::new(0));
        let ext = Ext::Deth(Deth { qkey: QKey::GSI, src_qp: Qpn::QP1 });
        let mut bytes = vec![0; 512];
        let mad = Mad::new(TransactionId(1), rtu).to_bytes();
        let end = PacketRepr::new(bth, ext).emit(&mad, &mut bytes).unwrap();
        bytes.truncate(end + ICRC_LEN);
        bytes
    }

    /// Anyone can send such packets. Neither a connection to a process nor a retry follows.
    #[test]
    fn packets_for_slots_without_a_process_cause_no_search_for_one() {
        const FREE: u8 = 16;
        let [.., high, low] = std::process::id().to_be_bytes();
        let at = IpAddr::from([127, 61, high, low.max(1)]);
        let ports = |claim| {
            let groups = GroupPorts::new(&[]).unwrap();
            Ports::open(&[UdpConfig::new(at)], groups, |_| None, || claim).unwrap()
        };
        let (here, other) = (ports(1), ports(2));
        // A program with the name of the free slot's rendezvous server finds searches.
        let name = format!("urxe/4791/{at}/{FREE}");
        let listener = unix::listen_at(unix::Name::Abstract(&name)).unwrap();
        let config = DeviceConfig {
            icrc_policy: IcrcPolicy::Off,
            ..DeviceConfig::new(vec![Gid::from_ip(at)], 1)
        };
        let device = Device::new(config);
        let value = |counter| device.counters().value(counter);
        let mut scratch = ReceiveScratch::collecting_unmatched();
        let mut dispatch = |bytes: &[u8]| {
            let (from, from_port, segment_size) = (at, 1, bytes.len());
            let (traffic_class, hop_limit) = (0, 0);
            let packet = Datagrams {
                from,
                from_port,
                to: at,
                bytes,
                segment_size,
                traffic_class,
                hop_limit,
            };
            here.dispatch(clock::now(), at, &packet, &device, &mut scratch);
        };
        let data_for = |slot: u8| [[4, 0, 0xff, 0xff, 0, slot << 2, 0, 17], [0; 8]].concat();
        dispatch(&data_for(FREE));
        assert_eq!(value(Counter::DropOtherProcess), 1);
        dispatch(&rtu_for(FREE));
        assert_eq!((here.inbox.len(), here.deferred.is_empty()), (1, true), "rejected here");
        let accepted = rustix::net::accept(&listener);
        assert_eq!(accepted.map(drop), Err(rustix::io::Errno::AGAIN), "no search");
        // A process that has its slot gets its packets.
        dispatch(&data_for(other.slot()));
        dispatch(&rtu_for(other.slot()));
        assert_eq!((value(Counter::Forwarded), here.inbox.len()), (2, 1));
    }
}
