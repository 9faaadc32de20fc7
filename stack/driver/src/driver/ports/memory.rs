//! Runs through memory that another process of this user shares (`driver/rings`).
//!
//! The order of a path is that of its ring. The MADs of connections between the same processes take
//! the ring, too. Two rules keep the order between a ring and the sockets:
//!
//! - The packets that a peer sent over its socket, before its ring was open, are older than all
//!   records. So the sockets are read until they are empty before the first record of a ring.
//! - A datagram may be newer than records. The watcher of a killed process sends its disconnect
//!   requests over a socket. So the records that are there after a socket was read go to the device
//!   before the datagrams.

use std::net::IpAddr;
use std::sync::atomic::AtomicU8;

use super::Ports;
use super::receive::{ReceiveScope, Receiver};
use super::unmatched::unmatched_packets;
use crate::allocate;
use crate::device::counters::Counter;
use crate::device::{Device, ReceiveScratch, Unmatched};
use crate::driver::management;
use crate::driver::rings::{Read, Reader, Rings};
use crate::memory::copy_shared;
use crate::port::Datagrams;
use crate::port::udp::{MAX_RUN_BYTES, UdpPort};
use crate::sys::clock;
use crate::time::Time;

/// Runs that one call reads.
const BATCH: usize = 4;
/// The most bytes of a run that is copied before it is handled.
const COPIED_BYTES: usize = 1024;
/// Batches read from the sockets before the first record of a ring. Twice what the buffer of a
/// socket holds.
const OLDER_BATCHES: usize = 4096;
/// Calls that find neither a record nor look at the sockets, for one that looks. A look is a system
/// call, and takes longer than so many looks at a ring.
const CALLS_WITHOUT_SOCKETS: u32 = 16;

/// The receiving thread's ends of the rings.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Whether new rings get their readers here. Only one receiver of a device reads its rings.
    takes_rings: bool,
    readers: Vec<Reader>,
    /// The reader that is asked first.
    next: usize,
    buffer: Box<[u8]>,
    empty_calls: u32,
}

impl Readers {
    /// Returns the readers of the receiver that reads the rings of the device.
    pub fn of_device() -> Self {
        Self { takes_rings: true, ..Self::default() }
    }

    /// Returns whether the thread may leave the sockets alone in a call that found no record.
    pub fn leaves_sockets(&mut self) -> bool {
        self.empty_calls = self.empty_calls.wrapping_add(1);
        !self.readers.is_empty() && !self.empty_calls.is_multiple_of(CALLS_WITHOUT_SOCKETS)
    }

    /// Adds the readers of new rings. Returns whether there are any readers.
    fn refresh(&mut self, rings: &Rings) -> bool {
        if self.takes_rings {
            rings.incoming.add_fresh(&mut self.readers);
        }
        if self.readers.is_empty() {
            return false;
        }
        if self.buffer.is_empty() {
            match allocate::slice(0, MAX_RUN_BYTES) {
                Ok(buffer) => self.buffer = buffer,
                // The senders find their rings full.
                Err(error) => {
                    tracing::warn!(%error, "cannot read rings");
                    return false;
                }
            }
        }
        true
    }
}

/// The runs, packets and bytes of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    pub runs: usize,
    pub packets: usize,
    pub bytes: usize,
}

impl Batch {
    fn add<T>(&mut self, datagrams: &Datagrams<'_, T>) {
        self.runs += 1;
        self.packets += datagrams.segments().len();
        self.bytes += datagrams.bytes.len();
    }
}

impl Ports {
    /// Gives packets that came without a socket to the device.
    pub fn receive_in_memory(
        &self,
        now: Time,
        datagrams: &Datagrams<'_>,
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) {
        device.receive_in_memory(now, datagrams, scratch);
        for packet in unmatched_packets(datagrams, scratch.unmatched.as_ref()) {
            self.receive_unmatched(&packet, device);
        }
    }

    /// Reads a batch of the rings.
    pub(super) fn read_rings(&self, receiver: &mut Receiver, device: &Device) -> Batch {
        let mut batch = Batch::default();
        let Some(rings) = self.rings().filter(|rings| !rings.incoming.is_empty()) else {
            return batch;
        };
        if receiver.readers.refresh(rings) {
            let now = clock::now();
            for _ in 0..receiver.readers.readers.len() {
                let place = receiver.readers.next % receiver.readers.readers.len();
                let reader = &receiver.readers.readers[place];
                if reader.is_fresh && reader.has_records() {
                    // May add readers behind the others.
                    self.receive_older(receiver, device);
                    receiver.readers.readers[place].is_fresh = false;
                }
                let limit = BATCH - batch.runs;
                let Receiver { readers: Readers { readers, buffer, .. }, scratch, .. } = receiver;
                let read = self.read(now, &mut readers[place], buffer, limit, device, scratch);
                batch.runs += read.0.runs;
                batch.packets += read.0.packets;
                batch.bytes += read.0.bytes;
                if read.1 {
                    rings.incoming.remove(&readers.swap_remove(place));
                    if readers.is_empty() {
                        break;
                    }
                }
                if batch.runs == BATCH {
                    break;
                }
                receiver.readers.next = receiver.readers.next.wrapping_add(1);
            }
        }
        if batch.runs > 0 {
            receiver.detect_stream_of(clock::now(), batch.bytes, batch.packets);
        }
        batch
    }

    /// Reads all records that the rings have now, because a datagram was read that may be newer.
    pub(super) fn receive_before_datagrams(
        &self,
        readers: &mut Readers,
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) {
        let Some(rings) = self.rings().filter(|rings| !rings.incoming.is_empty()) else {
            return;
        };
        if !readers.refresh(rings) {
            return;
        }
        let now = clock::now();
        for reader in readers.readers.iter_mut().filter(|reader| !reader.is_fresh) {
            // As many as a ring can hold. The end of a ring is noted by the next call that reads.
            let _ = self.read(now, reader, &mut readers.buffer, 1 << 14, device, scratch);
        }
    }

    /// Reads up to `limit` runs of a ring. Returns them, and whether the ring has come to its end.
    fn read(
        &self,
        now: Time,
        reader: &mut Reader,
        buffer: &mut [u8],
        limit: usize,
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) -> (Batch, bool) {
        let mut batch = Batch::default();
        while batch.runs < limit {
            match reader.read() {
                Read::Run(run) => {
                    batch.add(&run);
                    if let Some(port) = self.open_port(run.to, device) {
                        let packets = run.segments().len() as u64;
                        device.counters().add_many(Counter::RcvdInMemory, packets);
                        self.receive_run(now, port, &run, buffer, device, scratch);
                    }
                    reader.release();
                }
                Read::Nothing => break,
                Read::End => return (batch, true),
            }
        }
        (batch, false)
    }

    /// Gives a run of a ring to the device. The device copies the payload of a long run from the
    /// ring to the memory of the program. A short run is copied to `buffer` first, which costs less
    /// than a copy of the headers of each packet. So is a run that a capture observes.
    fn receive_run(
        &self,
        now: Time,
        port: &UdpPort,
        run: &Datagrams<'_, AtomicU8>,
        buffer: &mut [u8],
        device: &Device,
        scratch: &mut ReceiveScratch,
    ) {
        // As long as the longest run.
        let Some(private) = buffer.get_mut(..run.bytes.len()) else { return };
        if run.bytes.len() <= COPIED_BYTES || port.is_observed() {
            copy_shared(run.bytes, private);
            let datagrams = run.with_bytes(private, run.segment_size);
            port.record_received(&datagrams);
            return self.receive_in_memory(now, &datagrams, device, scratch);
        }
        port.count_received(run);
        device.receive_shared(now, run, scratch);
        for &position in scratch.unmatched.iter().flat_map(Unmatched::segments) {
            let packet = run.segment(usize::from(position));
            let private = &mut private[..packet.len()];
            copy_shared(packet, private);
            self.receive_unmatched(&run.with_bytes(private, packet.len()), device);
        }
    }

    /// Handles a packet in memory that no queue pair matches. The other process has chosen this
    /// one. So a MAD is for this process, and only a faulty process sends packets for queue pairs
    /// of a third one.
    fn receive_unmatched(&self, packet: &Datagrams<'_>, device: &Device) {
        match management::destination(packet.bytes) {
            Some(_) => self.deliver_mad(device, packet),
            None => device.counters().add(Counter::DropOtherProcess),
        }
    }

    /// Returns the port of the address `to`, if a socket would receive there now.
    fn open_port(&self, to: IpAddr, device: &Device) -> Option<&UdpPort> {
        let is_it = |port: &&UdpPort| port.address() == to && !port.is_address_missing();
        self.iter().find(is_it).filter(|_| device.is_port_active())
    }

    /// Reads the sockets until they are empty.
    fn receive_older(&self, receiver: &mut Receiver, device: &Device) {
        for _ in 0..OLDER_BATCHES {
            if self.receive_from_sockets(receiver, device, ReceiveScope::All) == 0 {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use urxe_wire::mad::{Mad, Req, TransactionId};
    use urxe_wire::packet::ICRC_LEN;
    use urxe_wire::{Bth, Deth, Ext, Gid, Opcode, PacketRepr, Psn, QKey, Qpn, ROCE_PORT};

    use super::*;
    use crate::device::DeviceConfig;
    use crate::driver::eventfd::EventFd;
    use crate::driver::groups::GroupPorts;
    use crate::driver::thread_waker::ThreadWaker;
    use crate::port::sharing::Member;
    use crate::port::udp::UdpConfig;
    use crate::port::{Run, SendOutcome, Transmit};
    use crate::ring::{Accepted, Endpoint, Link, Producer, Record};
    use crate::sync::Arc;
    use crate::sys::shared_memory::SharedMemory;

    /// Writes a request for a connection. All processes of an address read one socket for these.
    fn request() -> Vec<u8> {
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::QP1, Psn::new(0));
        let ext = Ext::Deth(Deth { qkey: QKey::GSI, src_qp: Qpn::QP1 });
        let mut bytes = vec![0; 512];
        let mad = Mad::new(TransactionId(1), Req::default()).to_bytes();
        let end = PacketRepr::new(bth, ext).emit(&mad, &mut bytes).unwrap();
        bytes.truncate(end + ICRC_LEN);
        bytes
    }

    /// The background thread reads the requests, while the thread that polls reads the rings.
    #[test]
    fn a_request_that_comes_with_a_new_ring_leaves_the_ring_to_its_receiver() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let at = IpAddr::from([127, 62, high, low.max(1)]);
        let configs = [UdpConfig::new(at)];
        let groups = GroupPorts::new(&configs).unwrap();
        let mut ports = Ports::open(&configs, groups, |_| None, || 1).unwrap();
        let waker = Arc::new(ThreadWaker::new(EventFd::new().unwrap()));
        ports.set_rings(Rings::new(ports.slot(), Vec::new(), waker).unwrap());
        let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(at)], 1));

        let [_other, link] = Link::pair().unwrap();
        let (memory, file) = SharedMemory::create(1 << 16, 1).unwrap();
        let opened = SharedMemory::open(&*file, 1 << 16, 1).unwrap();
        let from = Endpoint { address: at, scope_id: 0, slot: 1 };
        let rings = ports.rings().unwrap();
        rings.incoming.add(Accepted { link, memory: opened, from }, at).unwrap();
        let record = Record { segment_size: 4, from_port: 9, traffic_class: 0, hop_limit: 64 };
        assert!(Producer::default().push(&memory, record, b"data").is_ok());

        let sender = ports.iter().next().unwrap();
        let bytes = &request()[..];
        let (from, from_port, to, segment_size) = (at, ROCE_PORT, at, bytes.len());
        let run = Run { from, from_port, to, bytes, segment_size, traffic_class: 0, hop_limit: 1 };
        assert_eq!(sender.transmit(&run), SendOutcome::Sent);
        ports.receive_common(&mut Receiver::without_rings().unwrap(), &device);
        let common = ports.members().find_map(Member::common).unwrap();
        assert_eq!(common.counters().received_datagrams, 1, "the request was there");

        let batch = ports.read_rings(&mut Receiver::new().unwrap(), &device);
        assert_eq!(batch.runs, 1);
    }
}
