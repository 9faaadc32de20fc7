//! A small language for scenarios: one device with one connected queue pair, and a peer that is the
//! test itself.
//!
//! ```
//! use urxe_test_support::lab::{Lab, PACKET, Packet, Setup, ack};
//! use urxe_device::cq::WcStatus;
//! use urxe_wire::Opcode;
//!
//! let mut lab = Lab::new(Setup::default());
//! lab.post_send(1, 4);
//! lab.expect([Packet { opcode: Opcode::RcSendOnly, psn: 500, ack_req: true, payload: lab.source(4), ..PACKET }]);
//! lab.deliver(ack(500));
//! lab.expect_sends([(1, WcStatus::Success)]);
//! ```
//! A [`Packet`] is written as what differs from the template [`PACKET`]; what the device sends is
//! compared with it field by field, and its ICRC is verified. Time is virtual: [`Lab::wait`] moves
//! it and runs every timer on the way.
//!
//! The device sends from PSN [`Setup::sq_psn`] on (500) and expects the peer to begin with
//! [`Setup::rq_psn`] (100). All regions are zero-based, so addresses are offsets in the one buffer
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
/// Where the data of sends lies.
pub const SOURCE: u64 = 0x0;
/// Where receives and answers go.
pub const LANDING: u64 = 0x4000;
/// What the peer may reach.
pub const TARGET: u64 = 0x8000;
/// Bytes of the buffer.
pub const MEMORY: usize = 0xc000;
/// Path MTU in bytes.
pub const MTU: usize = 256;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// A packet may be overtaken for so many nanoseconds before it counts as lost, while no longer
/// round trip is known.
pub const REORDER_WAIT_NS: u64 = 100_000;

/// Attributes of the queue pair under test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its service.
    pub qp_type: QpType,
    /// First PSN that the device sends.
    pub sq_psn: u32,
    /// First PSN that it expects.
    pub rq_psn: u32,
    /// Local ACK timeout, as coded.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK.
    pub rnr_retry: u8,
    /// The wait that the device asks for, as coded.
    pub min_rnr_timer: u8,
    /// READs and atomics that it may have at the peer.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have here.
    pub max_dest_rd_atomic: u8,
    /// Whether to stop in RTR.
    pub rtr_only: bool,
    /// What the peer may do.
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
            rtr_only: false,
            access: REMOTE | Access::FLUSH_GLOBAL,
        }
    }
}

/// See the module. It is the host of the queue pair.
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
    /// A device with one queue pair, connected to the peer.
    ///
    /// # Panics
    /// If the stack refuses that.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(OWN)], 1);
        config.icrc_policy = IcrcPolicy::Strict;
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

    /// Changes the queue pair.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) {
        self.host.modify(self.qp, attr, mask);
    }

    /// Moves the queue pair to `qp_state`, with no other attribute.
    pub fn go_to(&self, qp_state: QpState) {
        self.host.go_to(self.qp, qp_state);
    }

    /// The queue pair's state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.host.state(self.qp)
    }

    /// The whole buffer again, with these rights alone.
    #[must_use]
    pub fn mr_with(&self, access: Access) -> Mr {
        self.register(self.pd, access | Access::ZERO_BASED)
    }

    /// The whole buffer with every right, in another protection domain.
    ///
    /// # Panics
    /// If the device has no more protection domains.
    #[must_use]
    pub fn mr_of_another_pd(&self) -> Mr {
        self.register(self.device.alloc_pd().expect("another protection domain"), all_rights())
    }

    /// Bytes of the buffer as they are now.
    #[must_use]
    pub fn memory(&self, at: u64, len: usize) -> Vec<u8> {
        self.bytes(at as usize, len)
    }

    /// Eight bytes of the buffer.
    ///
    /// # Panics
    /// If they are not in it, or not aligned.
    #[must_use]
    pub fn word(&self, at: u64) -> u64 {
        self.buffer.load_u64(at as usize).expect("in the buffer, aligned")
    }

    /// Writes to the buffer, as the program does.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.host.write(at as usize, bytes);
    }

    /// The first bytes of the source.
    #[must_use]
    pub fn source(&self, len: usize) -> Vec<u8> {
        self.memory(SOURCE, len)
    }

    /// A piece of the buffer as a work request names it.
    #[must_use]
    pub fn sge(&self, at: u64, length: usize) -> Sge {
        self.host.sge(at, length as u32)
    }

    /// Posts a signalled work request: SENDs and WRITEs take the first bytes of the source, the
    /// others land at [`LANDING`].
    pub fn post(&self, wr_id: u64, op: SendOp, len: usize) {
        let at = if op.returns_data() { LANDING } else { SOURCE };
        self.post_sges(wr_id, op, &[self.sge(at, len)]);
    }

    /// Posts a signalled work request with these pieces.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_sges(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.post_request(wr_id, op, SendFlags::SIGNALED, sges).expect("taken");
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// What the stack says.
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

    /// Posts a receive of `len` bytes at [`LANDING`].
    pub fn post_recv(&self, wr_id: u64, len: usize) {
        self.post_recv_sge(wr_id, self.sge(LANDING, len));
    }

    /// Posts a receive.
    pub fn post_recv_sge(&self, wr_id: u64, sge: Sge) {
        self.host.post_recv(wr_id, &[sge]);
    }

    /// Hands a packet of the peer to the device, and lets it send.
    pub fn deliver(&self, packet: Packet) {
        self.deliver_from(PEER, packet);
    }

    /// Hands a packet from any address to the device, and lets it send.
    pub fn deliver_from(&self, from: IpAddr, packet: Packet) {
        let bytes = self.packet_bytes(from, &packet);
        self.deliver_bytes(from, &bytes, bytes.len());
    }

    /// Hands packets of one size to the device at once, as GRO merges them, and lets it send.
    pub fn deliver_merged(&self, packets: impl IntoIterator<Item = Packet>) {
        let packets = packets.into_iter().map(|packet| (self.qp.qpn(), packet));
        self.deliver_run(&Packet::merge(PEER, OWN, packets));
    }

    /// Hands bytes to the device, and lets it send.
    pub fn deliver_bytes(&self, from: IpAddr, bytes: &[u8], segment_size: usize) {
        self.deliver_run(&PacketRun::new(from, OWN, bytes.to_vec(), segment_size));
    }

    /// Hands a packet of the peer to the device that a router has marked (CE), and lets it send.
    pub fn deliver_marked(&self, packet: Packet) {
        let run = Packet::merge(PEER, OWN, [(self.qp.qpn(), packet)]);
        self.deliver_run(&PacketRun { traffic_class: 3, ..run });
    }

    /// Hands a packet of the peer to the device in which a bit of this byte has flipped, and lets
    /// it send. The byte counts from the end.
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

    /// A packet as it stands in a datagram.
    #[must_use]
    pub fn packet_bytes(&self, from: IpAddr, packet: &Packet) -> Vec<u8> {
        packet.bytes(from, OWN, self.qp.qpn(), 0)
    }

    /// Lets the device send.
    pub fn flush(&self) {
        self.transmit(&self.wire);
    }

    /// Lets time pass, with every timer on the way.
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

    /// What the device has sent since the last look.
    ///
    /// # Panics
    /// If it is not for the peer, or malformed.
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

    /// The device must have sent exactly these.
    ///
    /// # Panics
    /// If not.
    pub fn expect<const N: usize>(&self, packets: [Packet; N]) {
        assert_eq!(self.sent(), packets);
    }

    /// The device must have sent packets with these opcodes and PSNs.
    ///
    /// # Panics
    /// If not.
    pub fn expect_sent<const N: usize>(&self, packets: [(Opcode, u32); N]) {
        let sent: Vec<_> = self.sent().iter().map(|packet| (packet.opcode, packet.psn)).collect();
        assert_eq!(sent, packets);
    }

    /// Exactly these sends must have completed since the last look.
    ///
    /// # Panics
    /// If not.
    pub fn expect_sends<const N: usize>(&self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&self.completions()), completions);
    }

    /// Exactly these receives must have completed since the last look.
    ///
    /// # Panics
    /// If not.
    pub fn expect_recvs<const N: usize>(&self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&self.recvs()), completions);
    }

    /// Completions of receives since the last look.
    #[must_use]
    pub fn recvs(&self) -> Vec<Completion> {
        poll(&self.recv_cq)
    }

    /// Asynchronous events since the last look.
    #[must_use]
    pub fn events(&self) -> Vec<AsyncEventType> {
        self.host.events().iter().map(|event| event.event_type()).collect()
    }
}

/// A lab as most scenarios need it.
#[must_use]
pub fn lab() -> Lab {
    Lab::new(Setup::default())
}

/// The place that scenarios read from and write to at the peer.
#[must_use]
pub const fn remote() -> Remote {
    Remote { addr: 0x1000, rkey: Rkey(0x2000) }
}

/// A key that no region has.
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
