//! Receiving: which socket is read next, and how its packets reach the device.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | [`ReceiveScope`], the active socket | [`Ports::receive`] | a batch of one or each socket |
//! | records in the rings of other processes | `memory` | a batch of rings |
//! | the sizes of a batch | [`Receiver::detect_stream`] | whether another batch follows closely |
//! | a simulated impairment | `Impairment` | packets now, or at [`Ports::next_due`] |
//! | listeners and sharers of the addresses | [`CommonRead`] | batches of the common sockets |
//!
//! The *active* socket is read first. It is the one that had packets when the active socket before
//! it was empty.
//!
//! A *datagram* is one unit of a socket read: one packet, or several that the kernel merged. A
//! *packet* is one segment of it. Each packet goes to the device. The packets that the device does
//! not match go to [`super::unmatched`].

use std::io;
use std::net::IpAddr;

use urxe_wire::mad::MAD_LEN;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Bth, Deth};

use super::Ports;
use super::memory::Readers;
use crate::allocate::OutOfMemory;
use crate::device::{Device, ReceiveScratch};
use crate::driver::added_ports::MAX_ADDED;
use crate::driver::groups::View;
use crate::port::Datagrams;
use crate::port::sharing::Member;
use crate::port::udp::{ReceiveBuffers, UdpPort};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sys::clock;
use crate::time::Time;

/// Calls of [`Ports::receive`] from one read of all sockets to the next. An idle address costs
/// little, and a socket that always has packets delays the others by at most so many batches.
const ALL_READ_INTERVAL: u32 = 16;
/// Datagrams that one call reads. The limit keeps one poll of a busy socket short.
const BATCH: usize = 4;
/// A batch with more bytes than this is part of a stream of data.
const STREAM_BYTES: usize = 8 << 10;
/// A batch with at least so many packets is part of a stream of data. Packets with a MAD do not
/// count: they come in bursts too, but no further packets follow them closely.
const STREAM_PACKETS: usize = 16;
/// Nanoseconds after such a batch during which each batch is part of the stream. A sender that
/// waits for an acknowledgement sends a single packet first.
const STREAM_NS: u64 = 200_000;
/// Bytes of a packet with a MAD: BTH, DETH, MAD, ICRC.
const MAD_PACKET_LEN: usize = Bth::LEN + Deth::LEN + MAD_LEN + ICRC_LEN;
/// Batches read in a row from a common socket, which all processes of an address read.
const COMMON_BATCHES: usize = 16;
/// Nanoseconds for which a process without listeners leaves the common sockets to the others,
/// because it would only forward the packets. Then the process reads one batch, in case none of the
/// others reads.
const COMMON_BACKOFF_NS: u64 = 10_000_000;
/// The same for a process without a connection manager. It drops requests without a listener, which
/// the others defer or reject, so they must be first.
const LAST_COMMON_BACKOFF_NS: u64 = 1_000_000_000;

/// The sockets that a call reads if the active socket is empty. The active socket is always read
/// first, and every [`ALL_READ_INTERVAL`]th call reads one batch of each socket in either scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum ReceiveScope {
    /// No others.
    Recent,
    /// The others one by one, until one has a batch.
    All,
}

/// The buffers of a receiving thread.
#[derive(Debug)]
pub(in crate::driver) struct Receiver {
    pub(super) buffers: ReceiveBuffers,
    pub(super) scratch: ReceiveScratch,
    groups: View,
    /// Calls of [`Ports::receive`] while the device had several sockets.
    calls: u32,
    /// The time until which each batch is part of a stream, and whether the last one was.
    stream_until: Time,
    is_streaming: bool,
    /// The buffer for packets that other processes forward.
    pub(super) message: Vec<u8>,
    /// The rings that other processes write.
    pub(super) readers: Readers,
    /// Batches of rings in a row.
    ring_batches: u32,
    has_read_sockets: bool,
}

impl Receiver {
    /// Makes the receiver of the rings and sockets of a device.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { readers: Readers::of_device(), ..Self::without_rings()? })
    }

    /// Makes a further receiver of a device, which reads no rings.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn without_rings() -> Result<Self, OutOfMemory> {
        Ok(Self {
            buffers: ReceiveBuffers::new(BATCH)?,
            scratch: ReceiveScratch::collecting_unmatched(),
            groups: View::default(),
            calls: 0,
            stream_until: Time::ZERO,
            is_streaming: false,
            message: Vec::new(),
            readers: Readers::default(),
            ring_batches: 0,
            has_read_sockets: false,
        })
    }

    /// Returns whether the last batch was part of a stream of data.
    pub fn is_streaming(&self) -> bool {
        self.is_streaming
    }

    /// Returns whether the last call of [`Ports::receive`] read a socket. Otherwise it looked only
    /// at rings.
    pub fn has_read_sockets(&self) -> bool {
        self.has_read_sockets
    }

    /// Records whether the batch received at `now` is part of a stream of data.
    fn detect_stream(&mut self, now: Time) {
        let (mut bytes, mut packets) = (0, 0);
        for datagrams in
            self.buffers.iter().filter(|datagrams| datagrams.segment_size != MAD_PACKET_LEN)
        {
            bytes += datagrams.bytes.len();
            packets += datagrams.segments().len();
        }
        self.detect_stream_of(now, bytes, packets);
    }

    /// Records whether a batch of `bytes` and `packets` is part of a stream of data.
    pub(super) fn detect_stream_of(&mut self, now: Time, bytes: usize, packets: usize) {
        if bytes > STREAM_BYTES || packets >= STREAM_PACKETS {
            self.stream_until = now.plus_ns(STREAM_NS);
        }
        self.is_streaming = packets > 0 && now < self.stream_until;
    }
}

/// The next step for the common sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommonRead {
    /// Read at most this many batches of each socket.
    Batches(usize),
    /// Leave the sockets to the other processes until this time.
    BackOff { until: Time },
}

impl CommonRead {
    /// Decides at `now`. `backoff` is the time until which this process leaves the sockets to the
    /// others, if it does. `rejects`: this process has a connection manager.
    fn choose(
        listens: bool,
        rejects: bool,
        is_shared: bool,
        backoff: Option<Time>,
        now: Time,
    ) -> Self {
        let backoff_ns = if rejects { COMMON_BACKOFF_NS } else { LAST_COMMON_BACKOFF_NS };
        match backoff {
            _ if listens => Self::Batches(COMMON_BATCHES),
            _ if !is_shared => Self::Batches(1),
            None => Self::BackOff { until: now.plus_ns(backoff_ns) },
            Some(until) if now < until => Self::BackOff { until },
            Some(_) => Self::Batches(1),
        }
    }
}

impl Ports {
    /// Receives for `device`: a batch of the rings, or else one batch of one socket, or every
    /// [`ALL_READ_INTERVAL`]th call one batch of each. Returns the number of datagrams, or of
    /// delayed packets.
    ///
    /// Rings that always have runs delay the sockets by at most [`ALL_READ_INTERVAL`] batches. In
    /// the scope [`Recent`](ReceiveScope::Recent), most calls that find no run leave the sockets
    /// alone if there are rings ([`Receiver::has_read_sockets`]).
    pub fn receive(&self, receiver: &mut Receiver, device: &Device, scope: ReceiveScope) -> usize {
        let delivered = self.deliver_delayed(receiver, device);
        if delivered > 0 {
            return delivered;
        }
        let runs = self.read_rings(receiver, device).runs;
        receiver.has_read_sockets = if runs > 0 {
            receiver.ring_batches = receiver.ring_batches.wrapping_add(1);
            receiver.ring_batches.is_multiple_of(ALL_READ_INTERVAL)
        } else {
            scope == ReceiveScope::All || !receiver.readers.leaves_sockets()
        };
        if !receiver.has_read_sockets {
            return runs;
        }
        runs + self.receive_from_sockets(receiver, device, scope)
    }

    /// Receives one batch of one socket, or every [`ALL_READ_INTERVAL`]th call one batch of each.
    pub(super) fn receive_from_sockets(
        &self,
        receiver: &mut Receiver,
        device: &Device,
        scope: ReceiveScope,
    ) -> usize {
        let active = self.active.load(Ordering::Relaxed);
        let received = self.receive_from(active, receiver, device);
        let has_more = !self.added.is_empty() || !self.groups.is_empty();
        if self.ports.len() == 1 && active == 0 && !has_more {
            return received;
        }
        receiver.calls = receiver.calls.wrapping_add(1);
        let reads_all = receiver.calls.is_multiple_of(ALL_READ_INTERVAL);
        if !reads_all && (received > 0 || scope == ReceiveScope::Recent) {
            return received;
        }
        received + self.receive_from_others(active, received > 0, reads_all, receiver, device)
    }

    /// Receives one batch of the first socket other than `active` that has one, or of each if
    /// `reads_all`. If `active` is not busy, the first socket with a batch becomes the active one.
    fn receive_from_others(
        &self,
        active: usize,
        is_active_busy: bool,
        reads_all: bool,
        receiver: &mut Receiver,
        device: &Device,
    ) -> usize {
        let addresses = 0..self.iter().count();
        // The kernel lists ready groups in turn, so the limit of `ready` leaves no group unread for
        // long. `ready` makes a system call, so it is called last.
        let ready = || (!self.groups.is_empty()).then(|| self.groups.ready());
        let places = std::iter::once_with(ready).flatten().flatten();
        let groups = places.map(|place| self.first_group() + place);
        let mut total = 0;
        for index in addresses.chain(groups).filter(|index| *index != active) {
            let received = self.receive_from(index, receiver, device);
            if received > 0 && total == 0 && !is_active_busy {
                self.active.store(index, Ordering::Relaxed);
            }
            total += received;
            if total > 0 && !reads_all {
                break;
            }
        }
        total
    }

    /// Returns the number of the first group socket. Address sockets have the numbers before it;
    /// numbers for [`MAX_ADDED`] added addresses are reserved.
    fn first_group(&self) -> usize {
        self.ports.len() + MAX_ADDED
    }

    fn receive_from(&self, index: usize, receiver: &mut Receiver, device: &Device) -> usize {
        let added = || self.added.at(index - self.ports.len());
        if let Some(port) = self.ports.get(index).or_else(added) {
            return self.receive_at(port, receiver, device);
        }
        // Taken out of the receiver, because `receive_at` needs the rest of the receiver mutably.
        let mut view = std::mem::take(&mut receiver.groups);
        self.groups.refresh(&mut view);
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
                receiver.detect_stream(now);
                let Receiver { buffers, scratch, readers, .. } = receiver;
                self.receive_before_datagrams(readers, device, scratch);
                for datagrams in buffers.iter() {
                    let Some(impairment) = &self.impairment else {
                        self.dispatch(now, port.address(), &datagrams, device, scratch);
                        continue;
                    };
                    let mut impairment = lock(impairment);
                    impairment.apply(now, port.address(), &datagrams, |datagrams| {
                        self.dispatch(now, port.address(), datagrams, device, scratch);
                    });
                    impairment.count(device.counters());
                }
                count
            }
            Err(error) => {
                log_receive_error(port, &error);
                0
            }
        }
    }

    /// Gives packets that arrived at address `at` to the device, and routes those that the device
    /// does not match.
    pub fn dispatch(
        &self,
        now: Time,
        at: IpAddr,
        datagrams: &Datagrams<'_>,
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) {
        device.receive(now, datagrams, scratch);
        if let Some(unmatched) = scratch.unmatched.as_ref()
            && !unmatched.segments().is_empty()
        {
            self.route_unmatched(device, at, datagrams, unmatched);
        }
    }

    /// Delivers the packets that the simulated impairment delayed until now. Returns their number.
    fn deliver_delayed(&self, receiver: &mut Receiver, device: &Device) -> usize {
        let Some(impairment) = &self.impairment else { return 0 };
        let (now, mut delivered) = (clock::now(), 0);
        lock(impairment).release(now, |at, packet| {
            delivered += 1;
            self.dispatch(now, at, packet, device, &mut receiver.scratch);
        });
        delivered
    }

    /// Returns whether received packets pass a simulated impairment.
    pub fn is_impaired(&self) -> bool {
        self.impairment.is_some()
    }

    /// Returns when the next delayed packet is due.
    pub fn next_due(&self) -> Option<Time> {
        self.impairment.as_ref().and_then(|impairment| lock(impairment).next_due())
    }

    /// Reads the common sockets, or leaves them to the other processes for a while. Only the
    /// background thread calls this function.
    pub fn receive_common(&self, receiver: &mut Receiver, device: &Device) {
        let listens = !self.services.is_empty();
        let rejects = self.has_connection_manager.load(Ordering::Relaxed);
        let (is_shared, backoff) = (self.is_shared(), self.common_backoff());
        let read = CommonRead::choose(listens, rejects, is_shared, backoff, clock::now());
        let batches = match read {
            CommonRead::Batches(batches) => batches,
            CommonRead::BackOff { until } => {
                return self.common_backoff_ns.store(until.as_ns(), Ordering::Relaxed);
            }
        };
        self.common_backoff_ns.store(0, Ordering::Relaxed);
        for port in self.members().filter_map(Member::common) {
            for _ in 0..batches {
                if self.receive_at(port, receiver, device) == 0 {
                    break;
                }
            }
        }
    }

    /// Returns the time until which this process leaves the common sockets to the others, if it
    /// does.
    pub fn common_backoff(&self) -> Option<Time> {
        let until_ns = self.common_backoff_ns.load(Ordering::Relaxed);
        (until_ns != 0).then_some(Time::from_ns(until_ns))
    }
}

#[cold]
fn log_receive_error(port: &UdpPort, error: &io::Error) {
    tracing::error!(address = %port.address(), %error, "cannot receive");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use urxe_wire::{Gid, ROCE_PORT};

    use super::*;
    use crate::device::DeviceConfig;
    use crate::driver::groups::GroupPorts;
    use crate::port::groups::JoinGroups;
    use crate::port::udp::UdpConfig;
    use crate::port::{Run, SendOutcome, Transmit};

    #[test]
    fn a_socket_that_always_has_packets_delays_the_others_by_few_batches() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let addresses = [1, 2, 3].map(|net| IpAddr::from([127, 160 + net, high, low.max(1)]));
        let configs = addresses.map(UdpConfig::new);
        let group = IpAddr::from([239, 220, high, low]);
        let groups = GroupPorts::new(&configs).unwrap();
        groups.join(group).unwrap();
        let ports = Ports::open(&configs, groups, |_| None, || 1).unwrap();
        let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(addresses[0])], 1));
        let from = addresses[0];
        let sender = ports.iter().next().unwrap();
        // To a queue pair of slot 0. The device drops the packets.
        let bytes = &[[0, 0, 0, 0, 0, 0, 0, 17], [0; 8], [0; 8]].concat();
        let (segment_size, traffic_class, hop_limit) = (bytes.len(), 0, 1);
        for to in addresses.into_iter().chain([group]) {
            for _ in 0..200 {
                let from_port = ROCE_PORT;
                let run =
                    Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit };
                assert_eq!(sender.transmit(&run), SendOutcome::Sent);
            }
        }
        for scope in [ReceiveScope::Recent, ReceiveScope::All] {
            let mut receiver = Receiver::new().unwrap();
            let mut view = View::default();
            ports.groups.refresh(&mut view);
            let read = || {
                let sockets = ports.iter().chain(view.at(0));
                sockets.map(|port| port.counters().received_datagrams).collect::<Vec<_>>()
            };
            let before = read();
            for _ in 0..ALL_READ_INTERVAL {
                assert!(ports.receive(&mut receiver, &device, scope) > 0);
            }
            let after = read();
            assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{after:?}");
            assert!(after[0] - before[0] > after[1] - before[1], "the first stays the active one");
        }
    }

    #[test]
    fn a_process_without_listeners_leaves_common_sockets_to_the_others_first() {
        const NOW: Time = Time::from_ns(1_000_000_000);
        let later = NOW.plus_ns(1);
        let all = CommonRead::Batches(COMMON_BATCHES);
        let one = CommonRead::Batches(1);
        let back_off = |until| CommonRead::BackOff { until };
        for (listens, is_shared, backoff, expected) in [
            (true, true, None, all),
            (true, true, Some(later), all),
            (true, false, None, all),
            (false, false, None, one),
            (false, true, None, back_off(NOW.plus_ns(COMMON_BACKOFF_NS))),
            (false, true, Some(later), back_off(later)),
            (false, true, Some(NOW), one),
        ] {
            let read = CommonRead::choose(listens, true, is_shared, backoff, NOW);
            assert_eq!(read, expected, "{listens} {is_shared} {backoff:?}");
        }
        // A process that rejects nothing reads last.
        let last = CommonRead::choose(false, false, true, None, NOW);
        assert_eq!(last, back_off(NOW.plus_ns(LAST_COMMON_BACKOFF_NS)));
    }
}
