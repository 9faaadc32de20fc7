//! A small language for scenarios: one device with one connected queue pair, and a peer that is the
//! test itself.
//!
//! ```
//! use urxe_tests::lab::{Lab, PACKET, Packet, Setup, ack};
//! use urxe_stack::cq::WcStatus;
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

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{AsyncEventType, Completion, Cq, SrqId, WcStatus};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::{Device, DeviceConfig, IcrcPolicy, QpHandle, ReceiveScratch};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_stack::qp::wr::{
    Destination, Payload, PostError, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::time::Time;
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Ext, Feth, Gid, IcrcSeed, IcrcSolver, IcrcVerdict, Lkey,
    Msn, NakCode, Opcode, PKey, PacketRepr, PacketView, PlacementType, Psn, Qpn, ROCE_PORT, Reth,
    Rkey, RnrTimer, SelectivityLevel, Syndrome,
};

/// The device's address.
pub const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// The peer's address.
pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
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
pub const OVERTAKEN: u64 = 100_000;

/// A packet from BTH to payload; lengths, pad and ICRC follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub opcode: Opcode,
    /// Its PSN.
    pub psn: u32,
    /// Whether it asks for an acknowledgement.
    pub ack_req: bool,
    /// Whether it carries the solicited event bit.
    pub solicited: bool,
    /// Its partition.
    pub pkey: u16,
    /// Whether it tells of congestion backwards (BECN).
    pub becn: bool,
    /// Its extension headers.
    pub ext: Ext,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The template: a SEND of no bytes.
pub const PACKET: Packet = Packet {
    opcode: Opcode::RcSendOnly,
    psn: 100,
    ack_req: false,
    solicited: false,
    pkey: 0xffff,
    becn: false,
    ext: Ext::None,
    payload: Vec::new(),
};

/// An acknowledgement from the peer.
#[must_use]
pub fn ack(psn: u32) -> Packet {
    answer(psn, Syndrome::ACK)
}

/// A NAK from the peer.
#[must_use]
pub fn nak(psn: u32, code: NakCode) -> Packet {
    answer(psn, Syndrome::Nak(code))
}

/// An RNR NAK from the peer that asks for a wait of this code.
///
/// # Panics
/// If there is no such code.
#[must_use]
pub fn rnr_nak(psn: u32, code: u8) -> Packet {
    answer(psn, Syndrome::RnrNak(RnrTimer::new(code).expect("a code of five bits")))
}

/// An acknowledgement of any kind; its MSN is 0.
#[must_use]
pub fn answer(psn: u32, syndrome: Syndrome) -> Packet {
    let ext = Ext::Aeth(Aeth { syndrome, msn: Msn::masked(0) });
    Packet { opcode: Opcode::RcAcknowledge, psn, ext, ..PACKET }
}

/// What the device answers: with the number of messages it has completed.
#[must_use]
pub fn answered(psn: u32, syndrome: Syndrome, msn: u32) -> Packet {
    Packet { ext: Ext::Aeth(Aeth { syndrome, msn: Msn::masked(msn) }), ..answer(psn, syndrome) }
}

/// A READ response from the peer, or from the device with the number of messages it has completed.
#[must_use]
pub fn read_response(opcode: Opcode, psn: u32, msn: u32, payload: &[u8]) -> Packet {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(msn) };
    let ext = if opcode == Opcode::RcReadResponseMiddle { Ext::None } else { Ext::Aeth(aeth) };
    Packet { opcode, psn, ext, payload: payload.to_vec(), ..PACKET }
}

/// The answer to an atomic.
#[must_use]
pub fn atomic_response(psn: u32, msn: u32, original: u64) -> Packet {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(msn) };
    let ext = Ext::AtomicAck(aeth, AtomicAckEth { original });
    Packet { opcode: Opcode::RcAtomicAcknowledge, psn, ext, ..PACKET }
}

/// A WRITE of one packet that asks for an acknowledgement.
#[must_use]
pub fn write_only(psn: u32, va: u64, rkey: Rkey, payload: &[u8]) -> Packet {
    let ext = reth(va, rkey, payload.len());
    Packet {
        opcode: Opcode::RcWriteOnly,
        psn,
        ack_req: true,
        ext,
        payload: payload.to_vec(),
        ..PACKET
    }
}

/// A SEND of one packet that asks for an acknowledgement.
#[must_use]
pub fn send_only(psn: u32, payload: &[u8]) -> Packet {
    Packet { psn, ack_req: true, payload: payload.to_vec(), ..PACKET }
}

/// A READ request.
#[must_use]
pub fn read_request(psn: u32, va: u64, rkey: Rkey, len: usize) -> Packet {
    Packet { opcode: Opcode::RcReadRequest, psn, ack_req: true, ext: reth(va, rkey, len), ..PACKET }
}

/// A fetch and add.
#[must_use]
pub fn fetch_add(psn: u32, va: u64, rkey: Rkey, add: u64) -> Packet {
    let ext = Ext::Atomic(AtomicEth { va, rkey, swap_or_add: add, compare: 0 });
    Packet { opcode: Opcode::RcFetchAdd, psn, ack_req: true, ext, ..PACKET }
}

/// A compare and swap.
#[must_use]
pub fn compare_swap(psn: u32, va: u64, rkey: Rkey, compare: u64, swap: u64) -> Packet {
    let ext = Ext::Atomic(AtomicEth { va, rkey, swap_or_add: swap, compare });
    Packet { opcode: Opcode::RcCompareSwap, psn, ack_req: true, ext, ..PACKET }
}

/// An ATOMIC WRITE.
#[must_use]
pub fn atomic_write(psn: u32, va: u64, rkey: Rkey, value: [u8; 8]) -> Packet {
    let ext = reth(va, rkey, 8);
    Packet {
        opcode: Opcode::RcAtomicWrite,
        psn,
        ack_req: true,
        ext,
        payload: value.to_vec(),
        ..PACKET
    }
}

/// A FLUSH of this placement, of the range or of the whole region.
#[must_use]
pub fn flush(
    psn: u32,
    (va, len): (u64, usize),
    rkey: Rkey,
    placement: PlacementType,
    selectivity: SelectivityLevel,
) -> Packet {
    let reth = Reth { va, rkey, dma_len: len as u32 };
    let ext = Ext::Flush(Feth { placement, selectivity }, reth);
    Packet { opcode: Opcode::RcFlush, psn, ack_req: true, ext, ..PACKET }
}

/// A RETH as the extension of a packet.
#[must_use]
pub fn reth(va: u64, rkey: Rkey, len: usize) -> Ext {
    Ext::Reth(Reth { va, rkey, dma_len: len as u32 })
}

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
            access: Access::REMOTE_READ
                | Access::REMOTE_WRITE
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL,
        }
    }
}

/// What the device sent, as runs; their packets are checked and taken apart when they are looked
/// at.
#[derive(Default)]
struct Outbox(Mutex<VecDeque<Packet>>);

impl Transmit for Outbox {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        assert_eq!((run.from, run.to), (OWN, PEER));
        let seed =
            IcrcSeed::new(run.from, run.from_port, run.to, ROCE_PORT).expect("both are IPv4");
        let mut outbox = self.0.lock().expect("one thread");
        for (index, bytes) in run.segments().enumerate() {
            let verdict = seed.verify(&mut IcrcSolver::new(), bytes, index as u16);
            assert_eq!(verdict, IcrcVerdict::Exact { identification: index as u16 });
            let packet = PacketView::parse(bytes).expect("what the device sends parses");
            assert_eq!(packet.dest_qp(), Qpn::masked(PEER_QPN));
            outbox.push_back(Packet {
                opcode: packet.opcode(),
                psn: packet.psn().value(),
                ack_req: packet.ack_req(),
                solicited: packet.solicited(),
                pkey: packet.pkey().0,
                becn: packet.to_repr().bth.becn,
                ext: packet.to_repr().ext,
                payload: packet.payload().to_vec(),
            });
        }
        SendOutcome::Sent
    }
}

/// See the module.
pub struct Lab {
    device: Device,
    scratch: ReceiveScratch,
    qp: QpHandle,
    qp_type: QpType,
    pd: PdId,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    now: Time,
    outbox: Outbox,
    /// The whole buffer with every right.
    pub mr: Mr,
    /// Dropped after the device, which reaches into it.
    memory: Arc<Buffer>,
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
        let device = Device::new(config);
        let memory = Arc::new(Buffer::new(MEMORY).expect("a few KiB"));
        let image: Vec<u8> = (0..MEMORY).map(|at| (at * 7 + at / 256) as u8).collect();
        memory.write(0, &image).expect("the image is as long as the memory");
        let pd = device.alloc_pd().expect("a protection domain");
        let mr = register(&device, pd, &memory, all_rights());
        let [send_cq, recv_cq] =
            [(); 2].map(|()| device.create_cq(256, None, 0).expect("a completion queue"));
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        let init = QpInit {
            qp_type: setup.qp_type,
            pd,
            send_cq: Arc::clone(&send_cq),
            recv_cq: Arc::clone(&recv_cq),
            srq: None,
            cap,
            sq_sig_all: false,
        };
        let qp = device.create_qp(&init).expect("a queue pair");
        let scratch = ReceiveScratch::default();
        let (now, outbox) = (Time::ZERO, Outbox::default());
        let qp_type = setup.qp_type;
        let lab =
            Self { device, scratch, qp, qp_type, pd, send_cq, recv_cq, now, outbox, mr, memory };
        lab.connect(setup);
        lab
    }

    fn connect(&self, setup: Setup) {
        let attr = QpAttr {
            port_num: 1,
            access_flags: setup.access,
            ah: AddressVector {
                dgid: Gid::from_ip(PEER),
                is_global: true,
                port_num: 1,
                ..AddressVector::default()
            },
            path_mtu: PathMtu::Mtu256,
            dest_qp_num: Qpn::masked(PEER_QPN),
            rq_psn: Psn::new(setup.rq_psn),
            sq_psn: Psn::new(setup.sq_psn),
            max_dest_rd_atomic: setup.max_dest_rd_atomic,
            max_rd_atomic: setup.max_rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..QpAttr::default()
        };
        let init = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        let rtr = QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        let rts = QpAttrMask::SQ_PSN
            | QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY
            | QpAttrMask::MAX_QP_RD_ATOMIC;
        let allowed = |from, to, mask: QpAttrMask| {
            let attributes =
                transition::attributes(from, to, setup.qp_type).expect("every service goes there");
            mask & attributes.allowed()
        };
        let rtr = allowed(QpState::Init, QpState::Rtr, rtr);
        let rts = allowed(QpState::Rtr, QpState::Rts, rts);
        let steps = [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)];
        for (qp_state, mask) in steps.into_iter().take(if setup.rtr_only { 2 } else { 3 }) {
            self.modify(&QpAttr { qp_state, ..attr }, QpAttrMask::STATE | mask);
        }
    }

    /// Changes the queue pair.
    ///
    /// # Panics
    /// If the stack refuses that.
    pub fn modify(&self, attr: &QpAttr, mask: QpAttrMask) {
        let changed = self.device.modify_qp(self.now, self.qp, attr, mask);
        changed.unwrap_or_else(|error| panic!("to {}: {error}", attr.qp_state));
    }

    /// Moves the queue pair to `qp_state`, with no other attribute.
    ///
    /// # Panics
    /// If the stack refuses that.
    pub fn go_to(&self, qp_state: QpState) {
        self.modify(&QpAttr { qp_state, ..QpAttr::default() }, QpAttrMask::STATE);
    }

    /// The protection domain of its region.
    #[must_use]
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The queue pair's state.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.device.query_qp(self.qp).expect("the queue pair").qp_state
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// A counter of the device.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.device.counters().value(counter)
    }

    /// The whole buffer again, with these rights alone.
    #[must_use]
    pub fn mr_with(&self, access: Access) -> Mr {
        register(&self.device, self.pd, &self.memory, access)
    }

    /// The whole buffer with every right, in another protection domain.
    ///
    /// # Panics
    /// If the device has no more protection domains.
    #[must_use]
    pub fn mr_of_another_pd(&self) -> Mr {
        let pd = self.device.alloc_pd().expect("another protection domain");
        register(&self.device, pd, &self.memory, all_rights())
    }

    /// Bytes of the buffer as they are now.
    ///
    /// # Panics
    /// If they are not in it.
    #[must_use]
    pub fn memory(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at as usize, &mut bytes).expect("in the buffer");
        bytes
    }

    /// Eight bytes of the buffer.
    ///
    /// # Panics
    /// If they are not in it, or not aligned.
    #[must_use]
    pub fn word(&self, at: u64) -> u64 {
        self.memory.load_u64(at as usize).expect("in the buffer, aligned")
    }

    /// Writes to the buffer, as the program does.
    ///
    /// # Panics
    /// If the place is not in it.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write(at as usize, bytes).expect("in the buffer");
    }

    /// The first bytes of the source.
    #[must_use]
    pub fn source(&self, len: usize) -> Vec<u8> {
        self.memory(SOURCE, len)
    }

    /// A piece of the buffer as a work request names it.
    #[must_use]
    pub fn sge(&self, at: u64, length: usize) -> Sge {
        Sge { addr: at, length: length as u32, lkey: self.mr.lkey }
    }

    /// Posts a signalled work request: SENDs and WRITEs take the first bytes of the source, the
    /// others land at [`LANDING`].
    ///
    /// # Panics
    /// If it is refused.
    pub fn post(&mut self, wr_id: u64, op: SendOp, len: usize) {
        let at = if op.returns_data() { LANDING } else { SOURCE };
        let sge = self.sge(at, len);
        self.post_request(wr_id, op, SendFlags::SIGNALED, &[sge]).expect("taken");
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// What the stack says.
    pub fn post_request(
        &mut self,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let to = match self.qp_type {
            QpType::XrcSend => Destination::XrcSrq { srq: SrqId(1) },
            _ => Destination::Peer,
        };
        let request = SendRequest { wr_id, op, to, flags, payload: Payload::Sges(sges) };
        self.device.post_send(self.now, self.qp, &[request]).map_err(|(_, error)| error)
    }

    /// Posts a signalled SEND.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_send(&mut self, wr_id: u64, len: usize) {
        self.post(wr_id, SendOp::Send, len);
    }

    /// Posts a signalled READ of the peer's address 0x1000, with the key 0x2000.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_read(&mut self, wr_id: u64, len: usize) {
        self.post(wr_id, SendOp::Read { remote: remote() }, len);
    }

    /// Posts a receive of `len` bytes at [`LANDING`].
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_recv(&mut self, wr_id: u64, len: usize) {
        let sge = self.sge(LANDING, len);
        self.post_recv_sge(wr_id, sge);
    }

    /// Posts a receive.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_recv_sge(&mut self, wr_id: u64, sge: Sge) {
        let posted =
            self.device.post_recv(self.now, self.qp, &[RecvRequest { wr_id, sges: &[sge] }]);
        posted.expect("taken");
    }

    /// Hands a packet of the peer to the device, and lets it send.
    pub fn deliver(&mut self, packet: Packet) {
        self.deliver_from(PEER, packet);
    }

    /// Hands a packet from any address to the device, and lets it send.
    pub fn deliver_from(&mut self, from: IpAddr, packet: Packet) {
        let bytes = self.bytes(from, &packet);
        self.deliver_bytes(from, &bytes, bytes.len());
    }

    /// Hands packets of one size to the device at once, as GRO merges them, and lets it send.
    ///
    /// # Panics
    /// If they are of different sizes.
    pub fn deliver_merged(&mut self, packets: impl IntoIterator<Item = Packet>) {
        let packets: Vec<Vec<u8>> =
            packets.into_iter().map(|packet| self.bytes(PEER, &packet)).collect();
        let segment_size = packets[0].len();
        assert!(packets.iter().all(|packet| packet.len() == segment_size));
        self.deliver_bytes(PEER, &packets.concat(), segment_size);
    }

    /// Hands bytes to the device, and lets it send.
    pub fn deliver_bytes(&mut self, from: IpAddr, bytes: &[u8], segment_size: usize) {
        self.deliver_as(from, 0, bytes, segment_size);
    }

    /// Hands a packet of the peer to the device that a router has marked (CE), and lets it send.
    pub fn deliver_marked(&mut self, packet: Packet) {
        let bytes = self.bytes(PEER, &packet);
        self.deliver_as(PEER, 3, &bytes, bytes.len());
    }

    fn deliver_as(&mut self, from: IpAddr, traffic_class: u8, bytes: &[u8], segment_size: usize) {
        let datagrams = Datagrams {
            from,
            from_port: ROCE_PORT,
            to: OWN,
            bytes,
            segment_size,
            traffic_class,
            hop_limit: 64,
        };
        self.device.receive(self.now, &datagrams, &mut self.scratch);
        self.flush();
    }

    /// A packet as it stands in a datagram.
    ///
    /// # Panics
    /// If its extension is not its opcode's.
    #[must_use]
    pub fn bytes(&self, from: IpAddr, packet: &Packet) -> Vec<u8> {
        let mut bth = Bth::new(packet.opcode, self.qp.qpn(), Psn::new(packet.psn));
        bth.ack_req = packet.ack_req;
        bth.solicited = packet.solicited;
        bth.pkey = PKey(packet.pkey);
        bth.becn = packet.becn;
        bth.pad_count = urxe_wire::packet::pad_count(packet.payload.len());
        let mut bytes = vec![0xa5; urxe_wire::packet::MAX_PACKET_LEN];
        let end = PacketRepr::new(bth, packet.ext)
            .emit_headers(&mut bytes)
            .expect("the opcode's extension");
        bytes[end..end + packet.payload.len()].copy_from_slice(&packet.payload);
        let end =
            urxe_wire::packet::emit_pad(&mut bytes, end + packet.payload.len()).expect("room");
        let seed = IcrcSeed::new(from, ROCE_PORT, OWN, ROCE_PORT).expect("both are IPv4");
        let end = seed.append(0, &mut bytes, end).expect("room");
        bytes.truncate(end);
        bytes
    }

    /// Lets the device send.
    pub fn flush(&mut self) {
        self.device.transmit_pending(self.now, &self.outbox);
    }

    /// Lets time pass, with every timer on the way.
    pub fn wait(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        self.flush();
        while let Some(deadline) = self.device.next_deadline().filter(|&deadline| deadline <= until)
        {
            self.now = self.now.max(deadline);
            self.device.handle_timeouts(self.now);
            self.flush();
        }
        self.now = until;
    }

    /// What the device has sent since the last look.
    ///
    /// # Panics
    /// Never: one thread uses it.
    pub fn sent(&mut self) -> Vec<Packet> {
        self.flush();
        self.outbox.0.lock().expect("one thread").drain(..).collect()
    }

    /// The device must have sent exactly these.
    ///
    /// # Panics
    /// If not.
    pub fn expect<const N: usize>(&mut self, packets: [Packet; N]) {
        assert_eq!(self.sent(), packets);
    }

    /// The device must have sent packets with these opcodes and PSNs.
    ///
    /// # Panics
    /// If not.
    pub fn expect_sent<const N: usize>(&mut self, packets: [(Opcode, u32); N]) {
        let sent: Vec<_> = self.sent().iter().map(|packet| (packet.opcode, packet.psn)).collect();
        assert_eq!(sent, packets);
    }

    /// Exactly these sends must have completed since the last look.
    ///
    /// # Panics
    /// If not.
    pub fn expect_sends<const N: usize>(&mut self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&poll(&self.send_cq)), completions);
    }

    /// Exactly these receives must have completed since the last look.
    ///
    /// # Panics
    /// If not.
    pub fn expect_recvs<const N: usize>(&mut self, completions: [(u64, WcStatus); N]) {
        assert_eq!(statuses(&poll(&self.recv_cq)), completions);
    }

    /// Completions of receives since the last look.
    pub fn recvs(&mut self) -> Vec<Completion> {
        poll(&self.recv_cq)
    }

    /// Asynchronous events since the last look.
    pub fn events(&mut self) -> Vec<AsyncEventType> {
        let events = self.device.events();
        std::iter::from_fn(|| events.next_event().inspect(|event| events.ack(event)))
            .map(|event| event.event_type())
            .collect()
    }
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
    let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    Access::LOCAL_WRITE | remote | Access::FLUSH_GLOBAL
}

fn register(device: &Device, pd: PdId, memory: &Arc<Buffer>, access: Access) -> Mr {
    let access = access | Access::ZERO_BASED;
    device.memory().register_buffer(pd, memory, 0..memory.len(), 0, access).expect("registered")
}

fn poll(cq: &Cq) -> Vec<Completion> {
    let mut completions = vec![Completion::default(); 128];
    let count = cq.poll(&mut completions).expect("not overrun");
    completions.truncate(count);
    completions
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}
