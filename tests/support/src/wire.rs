//! A lossless, ordered wire between devices.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard};

use urxe_device::device::{Device, ReceiveScratch};
use urxe_types::port::{Datagrams, MAX_RUN_BYTES, Run, SendInMemory, SendOutcome, Transmit};
use urxe_types::qpn::MANAGEMENT_SLOT;
use urxe_types::time::Time;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{IcrcSeed, PacketView, Qpn, ROCE_PORT};

/// The hop limit of every delivered packet.
pub const HOP_LIMIT: u8 = 63;

/// A run of packets on the wire.
#[derive(Clone, Debug)]
pub struct PacketRun {
    /// The sender's address.
    pub from: IpAddr,
    /// The sender's UDP port.
    pub from_port: u16,
    /// The address of a device or a group, or an address without a device.
    pub to: IpAddr,
    /// The packets, one after the other.
    pub bytes: Vec<u8>,
    /// The length of each packet but the last, in bytes.
    pub segment_size: usize,
    /// The hop limit; 0 is the system's default.
    pub hop_limit: u8,
    /// The traffic class.
    pub traffic_class: u8,
}

impl PacketRun {
    /// Creates a run of packets of this size from the RoCE port.
    #[must_use]
    pub fn new(from: IpAddr, to: IpAddr, bytes: Vec<u8>, segment_size: usize) -> Self {
        let (from_port, hop_limit, traffic_class) = (ROCE_PORT, 0, 0);
        Self { from, from_port, to, bytes, segment_size, hop_limit, traffic_class }
    }

    /// Returns the run as a port receives it.
    #[must_use]
    pub fn datagrams(&self) -> Datagrams<'_> {
        Datagrams {
            from: self.from,
            from_port: self.from_port,
            to: self.to,
            bytes: &self.bytes,
            segment_size: self.segment_size,
            traffic_class: self.traffic_class,
            hop_limit: HOP_LIMIT,
        }
    }

    /// Returns the run as a port sends it.
    #[must_use]
    pub fn run(&self) -> Run<'_> {
        Run {
            from: self.from,
            from_port: self.from_port,
            to: self.to,
            bytes: &self.bytes,
            segment_size: self.segment_size,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }

    /// Returns the packets, each from BTH to ICRC.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment_size)
    }

    /// Parses the packets.
    ///
    /// # Panics
    /// If a packet is malformed.
    pub fn packets(&self) -> impl Iterator<Item = PacketView<'_>> {
        self.segments().map(|bytes| PacketView::parse(bytes).expect("a packet"))
    }

    /// Returns the ICRC seed of the run's addresses and ports.
    ///
    /// # Panics
    /// If the addresses belong to two families.
    #[must_use]
    pub fn icrc_seed(&self) -> IcrcSeed {
        IcrcSeed::new(self.from, self.from_port, self.to, ROCE_PORT).expect("one family")
    }

    /// Computes the ICRC of the run's only packet.
    ///
    /// # Panics
    /// If the packet is too short for an ICRC.
    pub fn seal(&mut self) {
        let end = self.bytes.len() - ICRC_LEN;
        self.icrc_seed().append(0, &mut self.bytes, end).expect("it had an ICRC before");
    }

    /// Changes the destination queue pair of the run's only packet, and computes the ICRC.
    pub fn readdress(&mut self, dest_qp: Qpn) {
        self.bytes[5..8].copy_from_slice(&dest_qp.value().to_be_bytes()[1..]);
        self.seal();
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<PacketRun>,
    /// Buffers for reuse, so that the wire does not allocate in the long run.
    spare: Vec<Vec<u8>>,
}

/// The runs that were sent and not yet delivered.
#[derive(Default)]
pub struct Wire {
    state: Mutex<State>,
    scratch: Mutex<ReceiveScratch>,
    /// The room for runs in memory; empty without such memory.
    room: Box<[AtomicU8]>,
}

impl Transmit for Wire {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.append(run, |bytes| bytes.extend_from_slice(run.bytes));
        SendOutcome::Sent
    }

    fn with_memory(
        &self,
        _: &IpAddr,
        to: &IpAddr,
        peer_slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        let is_in_memory =
            !self.room.is_empty() && !to.is_multicast() && peer_slot != MANAGEMENT_SLOT;
        if is_in_memory {
            send(&mut Memory(self));
        }
        is_in_memory
    }
}

/// A path through memory that another process can change.
struct Memory<'w>(&'w Wire);

impl<'w> SendInMemory<'w> for Memory<'w> {
    /// Each third run finds no room.
    fn room(&mut self) -> Option<&'w [AtomicU8]> {
        (!self.0.len().is_multiple_of(3)).then_some(&*self.0.room)
    }

    fn transmit_room(&mut self, run: &Run<'_, AtomicU8>) -> SendOutcome {
        self.0.append(run, |bytes| {
            // Whatever the other process stores there does not matter to the sender.
            bytes.extend(run.bytes.iter().map(|byte| byte.swap(0xee, Ordering::Relaxed)));
        });
        SendOutcome::Sent
    }

    fn transmit(&mut self, run: &Run<'_>) -> SendOutcome {
        self.0.transmit(run)
    }

    fn is_receiver_congested(&mut self) -> bool {
        false
    }
}

impl Wire {
    fn append<T>(&self, run: &Run<'_, T>, copy: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let mut bytes = state.spare.pop().unwrap_or_else(|| Vec::with_capacity(1 << 16));
        copy(&mut bytes);
        state.waiting.push_back(PacketRun {
            from: run.from,
            from_port: run.from_port,
            to: run.to,
            bytes,
            segment_size: run.segment_size,
            hop_limit: run.hop_limit,
            traffic_class: run.traffic_class,
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics in here")
    }

    /// Takes the oldest run off the wire.
    #[must_use]
    pub fn pop(&self) -> Option<PacketRun> {
        self.state().waiting.pop_front()
    }

    /// Takes everything off the wire.
    #[must_use]
    pub fn take(&self) -> Vec<PacketRun> {
        self.state().waiting.drain(..).collect()
    }

    /// Appends a run.
    pub fn push(&self, run: PacketRun) {
        self.state().waiting.push_back(run);
    }

    /// Returns the number of runs on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Returns whether the wire is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets runs be built, and arrive, in memory that another process can change.
    pub fn set_shared(&mut self, is_shared: bool) {
        let len = if is_shared { MAX_RUN_BYTES } else { 0 };
        self.room = std::iter::repeat_with(AtomicU8::default).take(len).collect();
    }

    /// Delivers a run to a device.
    ///
    /// # Panics
    /// If another thread panicked during a delivery.
    pub fn deliver(&self, device: &Device, now: Time, run: &PacketRun) {
        let mut scratch = self.scratch.lock().expect("no test panics in here");
        let datagrams = run.datagrams();
        if self.room.is_empty() {
            return device.receive(now, &datagrams, &mut scratch);
        }
        let shared: Vec<AtomicU8> = run.bytes.iter().copied().map(AtomicU8::new).collect();
        let datagrams = datagrams.with_bytes(&shared, run.segment_size);
        device.receive_shared(now, &datagrams, &mut scratch);
    }

    /// Returns the buffer of a delivered run for reuse.
    pub fn recycle(&self, run: PacketRun) {
        let mut bytes = run.bytes;
        bytes.clear();
        self.state().spare.push(bytes);
    }
}
