//! A wire between devices, which loses nothing and keeps the order.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use urxe_device::device::{Device, ReceiveScratch};
use urxe_types::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_types::time::Time;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{IcrcSeed, PacketView, Qpn, ROCE_PORT};

/// The hop limit of everything that arrives.
pub const HOP_LIMIT: u8 = 63;

/// A run of packets on the wire.
#[derive(Clone, Debug)]
pub struct PacketRun {
    /// The sender.
    pub from: IpAddr,
    /// Its UDP port.
    pub from_port: u16,
    /// A device, a group, or an address that no device has.
    pub to: IpAddr,
    /// The packets.
    pub bytes: Vec<u8>,
    /// Bytes of each but the last.
    pub segment_size: usize,
    /// Its hop limit, 0 for the system's.
    pub hop_limit: u8,
    /// Its traffic class.
    pub traffic_class: u8,
}

impl PacketRun {
    /// Packets of this size from the usual port.
    #[must_use]
    pub fn new(from: IpAddr, to: IpAddr, bytes: Vec<u8>, segment_size: usize) -> Self {
        let (from_port, hop_limit, traffic_class) = (ROCE_PORT, 0, 0);
        Self { from, from_port, to, bytes, segment_size, hop_limit, traffic_class }
    }

    /// The run as it arrives.
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

    /// The run as a port sends it.
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

    /// The packets from BTH to ICRC.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment_size)
    }

    /// The packets, taken apart.
    ///
    /// # Panics
    /// If one is malformed.
    pub fn packets(&self) -> impl Iterator<Item = PacketView<'_>> {
        self.segments().map(|bytes| PacketView::parse(bytes).expect("a packet"))
    }

    /// What the ICRC of the packets begins with.
    ///
    /// # Panics
    /// If its addresses are of two families.
    #[must_use]
    pub fn icrc_seed(&self) -> IcrcSeed {
        IcrcSeed::new(self.from, self.from_port, self.to, ROCE_PORT).expect("one family")
    }

    /// Gives the one packet the ICRC that fits it.
    ///
    /// # Panics
    /// If it is too short for an ICRC.
    pub fn seal(&mut self) {
        let end = self.bytes.len() - ICRC_LEN;
        self.icrc_seed().append(0, &mut self.bytes, end).expect("it had an ICRC before");
    }

    /// Readdresses the one packet to another queue pair, with an ICRC that fits.
    pub fn readdress(&mut self, dest_qp: Qpn) {
        self.bytes[5..8].copy_from_slice(&dest_qp.value().to_be_bytes()[1..]);
        self.seal();
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<PacketRun>,
    /// Buffers to be used again, so that the wire allocates nothing in the long run.
    spare: Vec<Vec<u8>>,
}

/// What devices have sent and nobody has received.
#[derive(Default)]
pub struct Wire {
    state: Mutex<State>,
    scratch: Mutex<ReceiveScratch>,
}

impl Transmit for Wire {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let mut state = self.state();
        let mut bytes = state.spare.pop().unwrap_or_else(|| Vec::with_capacity(1 << 16));
        bytes.extend_from_slice(run.bytes);
        state.waiting.push_back(PacketRun {
            from: run.from,
            from_port: run.from_port,
            to: run.to,
            bytes,
            segment_size: run.segment_size,
            hop_limit: run.hop_limit,
            traffic_class: run.traffic_class,
        });
        SendOutcome::Sent
    }
}

impl Wire {
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

    /// Puts a run behind the others.
    pub fn push(&self, run: PacketRun) {
        self.state().waiting.push_back(run);
    }

    /// How many runs are on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Whether nothing is on the wire.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands a run to a device.
    ///
    /// # Panics
    /// If a test panicked meanwhile.
    pub fn deliver(&self, device: &Device, now: Time, run: &PacketRun) {
        let mut scratch = self.scratch.lock().expect("no test panics in here");
        device.receive(now, &run.datagrams(), &mut scratch);
    }

    /// Gives the buffer of a delivered run back.
    pub fn recycle(&self, run: PacketRun) {
        let mut bytes = run.bytes;
        bytes.clear();
        self.state().spare.push(bytes);
    }
}
