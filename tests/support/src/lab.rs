//! A small language for scenarios: one device with one connected queue pair, and the test itself as
//! the peer.
//!
//! ```
//! use urxe_test_support::lab::{Lab, PACKET, Packet, Setup, ack};
//! use urxe_device::cq::WcStatus;
//! use urxe_wire::Opcode;
//!
//! let mut lab = Lab::new(Setup::default());
//! lab.post_send(1, 4);
//! let sent = Packet { opcode: Opcode::RcSendOnly, psn: 500, ack_req: true, ..PACKET };
//! lab.expect([Packet { payload: lab.source(4), ..sent }]);
//! lab.deliver(ack(500));
//! lab.expect_sends([(1, WcStatus::Success)]);
//! ```
//! A [`Packet`] is written as its differences from the template [`PACKET`]. Packets from the device
//! are compared with such values field by field, and their ICRCs are verified. Time is virtual:
//! [`Lab::wait`] advances the clock and runs every timer on the way.
//!
//! The device sends from PSN [`Setup::sq_psn`] (500) and expects the peer to begin with
//! [`Setup::rq_psn`] (100). All regions are zero-based, so addresses are offsets in one buffer
//! ([`Lab::memory`]).

use std::net::IpAddr;
use std::ops::Deref;

use urxe_device::cq::{AsyncEventType, Completion, SrqId, WcStatus};
use urxe_device::device::{DeviceConfig, IcrcPolicy};
use urxe_device::qp::attr::{PathMtu, QpAttr, QpAttrMask, QpState, QpType};
use urxe_device::qp::work_request::{
    Destination, Payload, PostError, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_memory::{Access, Mr};
use urxe_wire::{Gid, Lkey, Opcode, Psn, Qpn, Rkey};

use crate::host::{A, B, Host, HostOptions, poll};
pub use crate::packet::*;
use crate::qp::{CAP, REMOTE, attributes};
use crate::wire::{PacketRun, Wire};

/// The device's address.
pub const OWN: IpAddr = IpAddr::V4(A);
/// The peer's address.
pub const PEER: IpAddr = IpAddr::V4(B);
/// The peer's queue pair.
pub const PEER_QPN: u32 = 0x77;
/// The address of the data of sends.
pub const SOURCE: u64 = 0x0;
/// The address where receives and responses land.
pub const DESTINATION: u64 = 0x4000;
/// The address that the peer may access.
pub const TARGET: u64 = 0x8000;
/// The length of the buffer, in bytes.
pub const MEMORY: usize = 0xc000;
/// The path MTU, in bytes.
pub const MTU: usize = 256;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// How long a gap is taken for reordering before the packet counts as lost, in nanoseconds, while
/// the round trip is not longer.
pub const REORDER_WAIT_NS: u64 = 100_000;

/// Attributes of the queue pair under test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The service.
    pub qp_type: QpType,
    /// The first PSN that the device sends.
    pub sq_psn: u32,
    /// The first PSN that the device expects.
    pub rq_psn: u32,
    /// The local ACK timeout, as a code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK.
    pub rnr_retry: u8,
    /// The RNR timer that the device requests, as a code.
    pub min_rnr_timer: u8,
    /// Outstanding READs and atomics of the device.
    pub max_rd_atomic: u8,
    /// Outstanding READs and atomics of the peer.
    pub max_dest_rd_atomic: u8,
    /// Whether the device compares the source ports of packets.
    pub port_check: bool,
    /// Whether the queue pair stays in RTR.
    pub rtr_only: bool,
    /// The operations that the queue pair grants to the peer.
    pub access: Access,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            sq_psn: 500,
            rq_psn: 100,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            port_check: true,
            rtr_only: false,
            access: REMOTE | Access::FLUSH_GLOBAL,
        }
    }
}

/// A host whose queue pair is connected to the test.
pub struct Lab {
    host: Host,
    setup: Setup,
    wire: Wire,
}

impl Deref for Lab {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Lab {
    /// Creates a device with one queue pair that is connected to the peer.
    ///
    /// # Panics
    /// If the device refuses the setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(OWN)], 1);
        config.icrc_policy = IcrcPolicy::Strict;
        config.port_check = setup.port_check;
        let options = HostOptions {
            qp_type: setup.qp_type,
            cap: CAP,
            cq_entries: 256,
            has_recv_cq: true,
            memory: MEMORY,
            access: all_rights(),
        };
        let host = Host::with(OWN, config, options);
        let image: Vec<u8> = (0..MEMORY).map(|at| (at * 7 + at / 256) as u8).collect();
        host.write(0, &image);
        let attr = QpAttr {
            access_flags: setup.access,
            path_mtu: PathMtu::Mtu256,
            rq_psn: Psn::new(setup.rq_psn),
            sq_psn: Psn::new(setup.sq_psn),
            max_dest_rd_atomic: setup.max_dest_rd_atomic,
            max_rd_atomic: setup.max_rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..attributes(PEER, Qpn::masked(PEER_QPN))
        };
        let to = if setup.rtr_only { QpState::Rtr } else { QpState::Rts };
        host.bring_up((host.qp, setup.qp_type), &attr, to);
        Self { host, setup, wire: Wire::default() }
    }

    /// Modifies the queue pair.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) {
        self.host.modify(self.qp, attr, mask);
    }

    /// Moves the queue pair to `qp_state`, with no other attribute.
    pub fn go_to(&self, qp_state: QpState) {
        self.host.go_to(self.qp, qp_state);
    }

    /// Returns the state of the queue pair.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.host.state(self.qp)
    }

    /// Registers the whole buffer again with exactly these rights.
    #[must_use]
    pub fn mr_with(&self, access: Access) -> Mr {
        self.register(self.pd, access | Access::ZERO_BASED)
    }

    /// Registers the whole buffer with all rights in another protection domain.
    ///
    /// # Panics
    /// If the device has no more protection domains.
    #[must_use]
    pub fn mr_of_another_pd(&self) -> Mr {
        self.register(self.device.alloc_pd().expect("another protection domain"), all_rights())
    }

    /// Returns bytes of the buffer.
    #[must_use]
    pub fn memory(&self, at: u64, len: usize) -> Vec<u8> {
        self.bytes(at as usize, len)
    }

    /// Returns eight bytes of the buffer.
    ///
    /// # Panics
    /// If the address is outside the buffer or not aligned.
    #[must_use]
    pub fn word(&self, at: u64) -> u64 {
        self.buffer.load_u64(at as usize).expect("in the buffer, aligned")
    }

    /// Writes to the buffer, as a program does.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.host.write(at as usize, bytes);
    }

    /// Returns the first `len` bytes of the source.
    #[must_use]
    pub fn source(&self, len: usize) -> Vec<u8> {
        self.memory(SOURCE, len)
    }

    /// Returns part of the buffer as a scatter-gather entry.
    #[must_use]
    pub fn sge(&self, at: u64, length: usize) -> Sge {
        self.host.sge(at, length as u32)
    }

    /// Posts a signalled work request. SENDs and WRITEs take the first bytes of the source;
    /// responses are written at [`DESTINATION`].
    pub fn post(&self, wr_id: u64, op: SendOp, len: usize) {
        let at = if op.returns_data() { DESTINATION } else { SOURCE };
        self.post_sges(wr_id, op, &[self.sge(at, len)]);
    }

    /// Posts a signalled work request with these scatter-gather entries.
    ///
    /// # Panics
    /// If the device refuses the request.
    pub fn post_sges(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.post_request(wr_id, op, SendFlags::SIGNALED, sges).expect("taken");
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// The error of `post_send`.
    pub fn post_request(
        &self,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let to = match self.setup.qp_type {
            QpType::XrcSend => Destination::XrcSrq { srq: SrqId(1) },
            _ => Destination::Peer,
        };
        let request = SendRequest { wr_id, op, to, flags, payload: Payload::Sges(sges) };
        self.host.post_request(self.qp, &request)
    }

    /// Posts a signalled SEND.
    pub fn post_send(&self, wr_id: u64, len: usize) {
        self.post(wr_id, SendOp::Send, len);
    }

    /// Posts a signalled READ of the peer's address 0x1000, with the key 0x2000.
    pub fn post_read(&self, wr_id: u64, len: usize) {
        self.post(wr_id, SendOp::Read { remote: remote() }, len);
    }

    /// Posts a receive of `len` bytes at [`DESTINATION`].
    pub fn post_recv(&self, wr_id: u64, len: usize) {
        self.post_recv_sge(wr_id, self.sge(DESTINATION, len));
    }

    /// Posts a receive.
    pub fn post_recv_sge(&self, wr_id: u64, sge: Sge) {
        self.host.post_recv(wr_id, &[sge]);
    }

    /// Delivers a packet of the peer, and transmits pending packets.
    pub fn deliver(&self, packet: Packet) {
        self.deliver_from(PEER, packet);
    }

    /// Delivers a packet of the peer, and transmits nothing: more packets of the same batch follow.
    pub fn receive(&self, packet: Packet) {
        let bytes = self.packet_bytes(PEER, &packet);
        let run = PacketRun::new(PEER, OWN, bytes.clone(), bytes.len());
        self.wire.deliver(&self.device, self.clock.now(), &run);
    }

    /// Delivers a packet from any address, and transmits pending packets.
    pub fn deliver_from(&self, from: IpAddr, packet: Packet) {
        let bytes = self.packet_bytes(from, &packet);
        self.deliver_bytes(from, &bytes, bytes.len());
    }

    /// Delivers a packet of the peer from another UDP source port, and transmits pending packets.
    pub fn deliver_from_port(&self, from_port: u16, packet: Packet) {
        let bytes = self.packet_bytes(PEER, &packet);
        let len = bytes.len();
        let mut run = PacketRun { from_port, ..PacketRun::new(PEER, OWN, bytes, len) };
        run.seal();
        self.deliver_run(&run);
    }

    /// Delivers packets of one size at once, as GRO merges them, and transmits pending packets.
    pub fn deliver_merged(&self, packets: impl IntoIterator<Item = Packet>) {
        let packets = packets.into_iter().map(|packet| (self.qp.qpn(), packet));
        self.deliver_run(&Packet::merge(PEER, OWN, packets));
    }

    /// Delivers bytes, and transmits pending packets.
    pub fn deliver_bytes(&self, from: IpAddr, bytes: &[u8], segment_size: usize) {
        self.deliver_run(&PacketRun::new(from, OWN, bytes.to_vec(), segment_size));
    }

    /// Delivers a packet of the peer that a router has marked (CE), and transmits pending packets.
    pub fn deliver_marked(&self, packet: Packet) {
        let run = Packet::merge(PEER, OWN, [(self.qp.qpn(), packet)]);
        self.deliver_run(&PacketRun { traffic_class: 3, ..run });
    }

    /// Delivers a packet of the peer with one flipped bit, and transmits pending packets. The byte
    /// counts from the end.
    pub fn deliver_damaged(&self, packet: &Packet, byte_from_end: usize) {
        let mut bytes = self.packet_bytes(PEER, packet);
        let at = bytes.len() - 1 - byte_from_end;
        bytes[at] ^= 0x80;
        self.deliver_bytes(PEER, &bytes, bytes.len());
    }

    fn deliver_run(&self, run: &PacketRun) {
        self.wire.deliver(&self.device, self.clock.now(), run);
        self.flush();
    }

    /// Returns a packet as the bytes of a datagram.
    #[must_use]
    pub fn packet_bytes(&self, from: IpAddr, packet: &Packet) -> Vec<u8> {
        packet.bytes(from, OWN, self.qp.qpn(), 0)
    }

    /// Transmits all pending packets.
    pub fn flush(&self) {
        self.transmit(&self.wire);
    }

    /// Advances the clock and runs every timer on the way.
    pub fn wait(&self, ns: u64) {
        let until = self.clock.now().plus_ns(ns);
        self.flush();
        while let Some(deadline) = self.device.next_deadline().filter(|&deadline| deadline <= until)
        {
            self.clock.set(self.clock.now().max(deadline));
            self.device.handle_timeouts(self.clock.now());
            self.flush();
        }
        self.clock.set(until);
    }

    /// Returns the packets that the device has sent since the last call.
    ///
    /// # Panics
    /// If a packet is malformed or for another receiver.
    pub fn sent(&self) -> Vec<Packet> {
        self.flush();
        let runs = self.wire.take();
        let packets = runs.iter().inspect(|run| assert_eq!((run.from, run.to), (OWN, PEER)));
        packets
            .flat_map(Packet::sent)
            .inspect(|(dest_qp, _)| assert_eq!(dest_qp.value(), PEER_QPN))
            .map(|(_, packet)| packet)
            .collect()
    }

    /// Asserts that the device has sent exactly these packets since the last call.
    ///
    /// # Panics
    /// If the packets differ.
    pub fn expect<const N: usize>(&self, packets: [Packet; N]) {
        assert_eq!(self.sent(), packets);
    }

    /// Asserts that the device has sent packets with these opcodes and PSNs since the last call.
    ///
    /// # Panics
    /// If the packets differ.
    pub fn expect_sent<const N: usize>(&self, packets: [(Opcode, u32); N]) {
        let sent: Vec<_> = self.sent().iter().map(|packet| (packet.opcode, packet.psn)).collect();
        assert_eq!(sent, packets);
    }

    /// Asserts that exactly these sends have completed since the last call.
    ///
    /// # Panics
    /// If the completions differ.
    pub fn expect_sends<const N: usize>(&self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&self.completions()), completions);
    }

    /// Asserts that exactly these receives have completed since the last call.
    ///
    /// # Panics
    /// If the completions differ.
    pub fn expect_recvs<const N: usize>(&self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&self.recvs()), completions);
    }

    /// Returns the completions of receives since the last call.
    #[must_use]
    pub fn recvs(&self) -> Vec<Completion> {
        poll(&self.recv_cq)
    }

    /// Returns the asynchronous events since the last call.
    #[must_use]
    pub fn events(&self) -> Vec<AsyncEventType> {
        self.host.events().iter().map(|event| event.event_type()).collect()
    }
}

/// Creates a lab with the default setup.
#[must_use]
pub fn lab() -> Lab {
    Lab::new(Setup::default())
}

/// Returns the address at the peer that scenarios read and write.
#[must_use]
pub const fn remote() -> Remote {
    Remote { addr: 0x1000, rkey: Rkey(0x2000) }
}

/// Returns a key that no region has.
#[must_use]
pub const fn no_lkey() -> Lkey {
    Lkey(0xdead)
}

fn all_rights() -> Access {
    Access::LOCAL_WRITE | REMOTE | Access::FLUSH_GLOBAL | Access::ZERO_BASED
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}
