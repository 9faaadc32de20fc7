//! The device, its memory and its program, and how a plan is played.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex};

use urxe_stack::cq::{Completion, Cq};
use urxe_stack::device::{Device, DeviceConfig, QpHandle, ReceiveScratch};
use urxe_stack::memory::{Access, Accessor, Bind, Buffer, Mr, MwType, PdId};
use urxe_stack::port::{Run, SendOutcome, Transmit};
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_stack::qp::wr::{Destination, Payload, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge};
use urxe_stack::time::Time;
use urxe_wire::{Gid, Lkey, Psn, Qpn, Rkey};

use super::judge::Posted;
use super::packets::{self, Request};
use super::plan::{Place, Send, Setup, Step};
use super::services::{self, Kind, QKEY, Shared};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

const GAP: usize = 512;
/// What each region grants, and whether it is of the queue pairs' domain. Those behind the ordinary ones are special.
const REGIONS: [(usize, Access, bool); 7] = [
    (10 << 10, Access::LOCAL_WRITE.union(REMOTE), true),
    (4 << 10, Access::REMOTE_READ, true),
    (6000, Access::LOCAL_WRITE, true),
    (4 << 10, Access::LOCAL_WRITE.union(REMOTE), false),
    (5001, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE), true),
    (9000, Access::LOCAL_WRITE.union(REMOTE), true),
    (4 << 10, REMOTE, true),
];
/// A fast-registration region, whose key peers and work requests may take away.
const FAST: usize = 5;
/// A window, over a region of its own.
const WINDOW: usize = 6;
const REMOTE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
/// Regions that nobody may ever change, beside the gaps.
const CONSTANT: [usize; 2] = [1, 3];
/// A plan longer than this teaches nothing more.
const MAX_STEPS: usize = 400;

/// Collects what is sent.
#[derive(Default)]
struct Sink(Mutex<Vec<(IpAddr, Vec<u8>, usize)>>);

impl Transmit for Sink {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        assert_eq!(run.from, IpAddr::from(OWN));
        assert!(run.segments().all(|s| s.len() <= run.segment_size));
        self.0.lock().expect("one thread").push((run.to, run.bytes.to_vec(), run.segment_size));
        SendOutcome::Sent
    }
}

/// A queue pair of the program, and what its peer needs to know.
pub struct QueuePair {
    handle: Option<QpHandle>,
    pub kind: Kind,
    pub qpn: Qpn,
    pub dest_qpn: Qpn,
    pub peer: IpAddr,
    /// PSN that it expects next, as far as its answers tell.
    pub expected: Psn,
    /// PSN of the last request that it sent.
    pub last_sent: Psn,
    posted: Posted,
}

pub struct World {
    device: Device,
    buffer: Arc<Buffer>,
    offsets: [usize; REGIONS.len()],
    regions: [Option<Mr>; REGIONS.len()],
    /// Keys as they were at first: wrong ones after a deregistration.
    keys: [u32; REGIONS.len()],
    /// The region under the window.
    under_window: Option<Mr>,
    pds: [PdId; 2],
    cq: Arc<Cq>,
    cq_lost: bool,
    /// Taken apart at the end alone.
    shared: Option<Shared>,
    /// Receives of the shared queues that have not completed.
    in_shared: BTreeSet<u64>,
    pub qps: Vec<QueuePair>,
    pub requests: Vec<Request>,
    pub mtu: usize,
    attr: QpAttr,
    sq_sig_all: bool,
    now: Time,
    next_wr: u64,
    sink: Sink,
    scratch: ReceiveScratch,
}

/// What the buffer holds at first.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..64usize << 10).map(|at| (at.wrapping_mul(167) >> 3) as u8 ^ 0xc3).collect());

impl World {
    pub fn new(setup: &Setup) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(OWN.into())], 7);
        config.max_run_segments = usize::from(setup.max_run_segments % 65).max(1);
        config.read_budget = (u64::from(setup.read_budget_kib) << 10).max(1);
        let device = Device::new(config);
        let pds = [(); 2].map(|()| device.alloc_pd().expect("there are many"));
        let mut offsets = [0; REGIONS.len()];
        let mut end = GAP;
        for (offset, (len, ..)) in offsets.iter_mut().zip(REGIONS) {
            *offset = end;
            end = (end + len + GAP).next_multiple_of(8);
        }
        let buffer = Arc::new(Buffer::new(end).expect("memory"));
        buffer.write(0, &PATTERN[..end]).expect("inside");
        let cq = device.create_cq(if setup.small_cq { 6 } else { 512 }, None, 0).expect("fits");
        let mtu = PathMtu::ALL[usize::from(setup.mtu) / 100];
        let access = Access::from_bits_truncate(u32::from(setup.access)) & REMOTE;
        let access = if setup.access == 0 { REMOTE } else { access };
        let psn = |by: u32| {
            Psn::new(if setup.psn < 128 { 0x00ff_fff8 } else { u32::from(setup.psn) << 12 }.wrapping_add(by))
        };
        let attr = QpAttr {
            port_num: 1,
            access_flags: access,
            path_mtu: mtu,
            rq_psn: psn(0),
            sq_psn: psn(u32::from(setup.psn)),
            max_rd_atomic: setup.max_rd_atomic % 9,
            max_dest_rd_atomic: setup.max_dest_rd_atomic % 9,
            min_rnr_timer: setup.timeout % 32,
            timeout: setup.timeout % 32,
            retry_cnt: setup.retry_cnt % 8,
            rnr_retry: setup.rnr_retry % 8,
            qkey: QKEY,
            ..QpAttr::default()
        };
        let mut world = Self {
            buffer,
            offsets,
            regions: [None; REGIONS.len()],
            keys: [0; REGIONS.len()],
            under_window: None,
            pds,
            shared: Some(Shared::new(&device, pds[0], &cq, &PEERS.map(IpAddr::from))),
            in_shared: BTreeSet::new(),
            device,
            cq,
            cq_lost: false,
            qps: Vec::new(),
            requests: Vec::new(),
            mtu: mtu.bytes(),
            attr,
            sq_sig_all: setup.sq_sig_all,
            now: Time::from_ns(1_000_000_000),
            next_wr: 1,
            sink: Sink::default(),
            scratch: ReceiveScratch::default(),
        };
        let kinds = services::kinds(setup.peers >> 3);
        for nr in 0..3 {
            let kind = kinds[nr as usize];
            let peer = PEERS[usize::from(setup.peers >> nr & 1)];
            world.qps.push(QueuePair {
                handle: None,
                kind,
                qpn: Qpn::QP0,
                dest_qpn: Qpn::masked(0x11_1000 + nr),
                peer: peer.into(),
                expected: attr.rq_psn,
                last_sent: attr.sq_psn,
                posted: Posted::default(),
            });
            let nr = nr as usize;
            world.create(nr);
            let states = [QpState::Rts, QpState::Rtr, QpState::Sqd, QpState::Init, QpState::Err];
            // RTS is where most happens.
            world.bring_to(nr, states[usize::from(setup.states[nr]).saturating_sub(128) % 5]);
        }
        for nr in 0..REGIONS.len() {
            world.toggle_region(nr);
        }
        world
    }

    #[cfg(test)]
    pub fn states(&self) -> [Option<QpState>; 3] {
        [0, 1, 2].map(|nr| self.state(nr))
    }

    pub fn address(&self) -> IpAddr {
        OWN.into()
    }

    pub fn stranger(&self) -> IpAddr {
        STRANGER.into()
    }

    pub fn qp_of(&self, nr: u8) -> &QueuePair {
        &self.qps[usize::from(nr) % self.qps.len()]
    }

    /// Address, length and key that a place means.
    pub fn remote(&self, place: Place) -> (u64, u32, u32) {
        let nr = usize::from(place.region % 8) % REGIONS.len();
        let key = self.keys[nr] ^ if place.region > 240 { u32::from(place.region) } else { 0 };
        let base = self.buffer.addr() as u64 + self.offsets[nr] as u64;
        let offset = u64::from(place.offset) % (REGIONS[nr].0 as u64 + 64);
        // Mostly aligned, now and then before the region.
        let offset = if place.offset & 7 == 5 { offset } else { offset & !7 };
        let addr = if place.offset > 0xff00 { base.wrapping_sub(offset) } else { base + offset };
        (addr, u32::from(place.length), key)
    }

    fn sge(&self, place: Place) -> Sge {
        let (addr, length, key) = self.remote(place);
        Sge { addr, length: length % 12_000, lkey: Lkey(key) }
    }

    pub fn play(mut self, steps: &[Step]) {
        for step in steps.iter().take(MAX_STEPS) {
            self.step(step);
        }
        self.transmit();
        self.poll();
        self.finish();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Packet(packet) => {
                let (from, bytes) = packets::build(self, packet, 0);
                self.receive(from, &bytes, bytes.len());
            }
            Step::Run(list) => self.receive_run(list),
            Step::Bytes { from, bytes } => {
                let from = self.qp_of(*from).peer;
                let end = bytes.len().min(5000);
                let bytes = packets::with_icrc(self, from, bytes[..end].to_vec(), 0, false);
                self.receive(from, &bytes, bytes.len());
            }
            Step::Answer { nth, acknowledge, skip } => {
                let Some(request) = self.request(*nth) else { return };
                for (from, bytes) in packets::answers(self, &request, *acknowledge, u32::from(*skip)) {
                    self.receive(from, &bytes, bytes.len());
                }
            }
            Step::Acknowledge { nth, syndrome } => {
                let Some(request) = self.request(*nth) else { return };
                let (from, bytes) = packets::acknowledgement(self, &request, *syndrome);
                self.receive(from, &bytes, bytes.len());
            }
            Step::Wait { exponent, to_deadline } => {
                self.now = self.now.plus_ns(1 << (exponent % 40));
                if *to_deadline && let Some(deadline) = self.device.next_deadline() {
                    self.now = self.now.max(deadline);
                }
            }
            Step::Timeouts => self.device.handle_timeouts(self.now),
            Step::Transmit => self.transmit(),
            Step::PostSend { qp, requests } => self.post_send(*qp, requests),
            Step::PostRecv { qp, count, place, second } => self.post_recv(*qp, *count, *place, *second),
            Step::Modify { qp, how, value } => self.modify(usize::from(*qp) % self.qps.len(), *how, *value),
            Step::Region { nr } => self.toggle_region(usize::from(*nr) % REGIONS.len()),
            Step::QueuePair { qp, connect } => {
                let nr = usize::from(*qp) % self.qps.len();
                if self.qps[nr].handle.is_some() {
                    self.destroy(nr);
                } else {
                    self.create(nr);
                    if *connect {
                        self.bring_to(nr, QpState::Rts);
                    }
                }
            }
            Step::Poll => self.poll(),
        }
    }

    fn request(&self, nth: u8) -> Option<Request> {
        let from_end = usize::from(nth) + 1;
        self.requests.len().checked_sub(from_end).map(|at| self.requests[at])
    }

    fn receive(&mut self, from: IpAddr, bytes: &[u8], segment_size: usize) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.device.receive(self.now, &packets::datagram(self, from, bytes, segment_size), &mut scratch);
        self.scratch = scratch;
    }

    /// Packets of one source that arrive together, as far as they are equally long.
    fn receive_run(&mut self, list: &[super::plan::Packet]) {
        let (mut run, mut source, mut segment_size, mut count): (Vec<u8>, _, _, _) =
            (Vec::new(), self.address(), 0, 0);
        for packet in list.iter().take(16) {
            let (mut from, mut bytes) = packets::build(self, packet, count);
            if count > 0 && (from != source || bytes.len() > segment_size || run.len() % segment_size != 0) {
                self.receive(source, &run, segment_size);
                run.clear();
                count = 0;
                (from, bytes) = packets::build(self, packet, 0);
            }
            if count == 0 {
                (source, segment_size) = (from, bytes.len());
            }
            run.extend(bytes);
            count += 1;
        }
        if count > 0 {
            self.receive(source, &run, segment_size);
        }
    }

    fn transmit(&mut self) {
        self.device.transmit_pending(self.now, &self.sink);
        let sent = std::mem::take(self.sink.0.get_mut().expect("one thread"));
        for (to, bytes, segment_size) in sent {
            for (nr, packet) in bytes.chunks(segment_size).enumerate() {
                packets::note_sent(self, to, packet, nr as u16);
            }
        }
        if self.requests.len() > 1000 {
            self.requests.drain(..500);
        }
    }

    fn post_send(&mut self, qp: u8, sends: &[Send]) {
        let nr = usize::from(qp) % self.qps.len();
        let Some(handle) = self.qps[nr].handle else { return };
        for send in sends.iter().take(20) {
            let (addr, _, key) =
                self.remote(Place { region: send.operand % 8, offset: send.remote, length: 0 });
            let remote = Remote { addr, rkey: Rkey(key) };
            let operand = u64::from(send.operand);
            let op = match send.op % 8 {
                _ if send.op >= 232 => self.local_op(send, Rkey(key)),
                0 => SendOp::Send,
                1 => SendOp::SendImm { imm: send.operand.into() },
                2 => SendOp::SendInvalidate { rkey: Rkey(key) },
                3 => SendOp::Write { remote },
                4 => SendOp::WriteImm { remote, imm: 9 },
                5 => SendOp::Read { remote },
                6 => SendOp::CompareSwap { remote, compare: operand, swap: 1 },
                _ => SendOp::FetchAdd { remote, add: operand },
            };
            let mut sges = vec![self.sge(send.local)];
            sges.extend(send.second.map(|place| self.sge(place)));
            if op.is_atomic() && send.local.length & 15 != 3 {
                sges.truncate(1);
                sges[0].length = 8;
            }
            let flags = SendFlags::from_bits_truncate(u32::from(send.flags & 7));
            let inline = [send.flags; 100];
            let pieces: [&[u8]; 1] = [&inline[..usize::from(send.operand) % 100]];
            if op.is_local() && send.flags & 0x40 == 0 {
                sges.clear();
            }
            let payload =
                if send.flags & 0xc8 == 0xc8 { Payload::Inline(&pieces) } else { Payload::Sges(&sges) };
            let wr_id = self.next_wr;
            self.next_wr += 1;
            let to = self.destination(nr, send.flags);
            let request = SendRequest { wr_id, op, to, flags, payload };
            if self.device.post_send(self.now, handle, &[request]).is_ok() {
                let signalled = self.sq_sig_all || flags.contains(SendFlags::SIGNALED);
                self.qps[nr].posted.send(wr_id, signalled);
            }
        }
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("it is there until the end")
    }

    fn destination(&self, nr: usize, which: u8) -> Destination {
        let qp = &self.qps[nr];
        self.shared().destination(qp.kind.qp_type, qp.dest_qpn, which)
    }

    /// The number that XRC packets to a target name.
    pub fn xrc_srq(&self) -> u32 {
        self.shared().srqs[1].id().0
    }

    /// A work request that sends nothing, on the special regions or whatever has `key`.
    fn local_op(&mut self, send: &Send, key: Rkey) -> SendOp {
        let next = |key: u32| key & !0xff | u32::from(send.operand);
        match send.op % 3 {
            0 => SendOp::LocalInv { rkey: key },
            1 => {
                self.keys[FAST] = next(self.keys[FAST]);
                SendOp::RegMr { key: Rkey(self.keys[FAST]), access: REGIONS[FAST].1 }
            }
            _ => {
                let bind = self.bind(Rkey(next(self.keys[WINDOW])));
                self.keys[WINDOW] = bind.new_rkey.value();
                SendOp::BindMw(Bind { length: bind.length - u64::from(send.operand), ..bind })
            }
        }
    }

    /// A bind of the window to all of its region.
    fn bind(&self, new_rkey: Rkey) -> Bind {
        let (region, addr) = self.under_window.map_or((Lkey(0), 0), |mr| (mr.lkey, mr.iova));
        let (length, access, _) = REGIONS[WINDOW];
        Bind { window: Rkey(self.keys[WINDOW]), new_rkey, region, addr, length: length as u64, access }
    }

    fn post_recv(&mut self, qp: u8, count: u8, place: Place, second: Option<Place>) {
        let nr = usize::from(qp) % self.qps.len();
        let Some(handle) = self.qps[nr].handle else { return };
        let mut sges = vec![self.sge(place)];
        sges.extend(second.map(|place| self.sge(place)));
        for _ in 0..count % 8 + 1 {
            let wr_id = self.next_wr;
            self.next_wr += 1;
            let request = RecvRequest { wr_id, sges: &sges };
            if let Some(srq) = self.shared().srq(self.qps[nr].kind) {
                if srq.post(&[request]).is_ok() {
                    self.in_shared.insert(wr_id);
                }
            } else if self.device.post_recv(self.now, handle, &[request]).is_ok() {
                self.qps[nr].posted.recv(wr_id);
            }
        }
    }

    fn create(&mut self, nr: usize) {
        let kind = self.qps[nr].kind;
        let handle = self.shared().create(&self.device, kind, self.pds[0], &self.cq, self.sq_sig_all);
        let qp = &mut self.qps[nr];
        qp.qpn = handle.qpn();
        qp.handle = Some(handle);
        qp.posted.reset();
    }

    fn destroy(&mut self, nr: usize) {
        self.transmit();
        self.poll();
        while let Some(event) = self.device.events().next_event() {
            self.device.events().ack(&event);
        }
        if let Some(handle) = self.qps[nr].handle.take() {
            self.device.destroy_qp(self.now, handle).expect("it exists");
            assert!(self.device.query_qp(handle).is_none());
        }
    }

    fn state(&self, nr: usize) -> Option<QpState> {
        Some(self.device.query_qp(self.qps[nr].handle?)?.qp_state)
    }

    fn change(&mut self, nr: usize, attr: &QpAttr, bits: QpAttrMask) -> bool {
        let Some(handle) = self.qps[nr].handle else { return false };
        self.device.modify_qp(self.now, handle, attr, bits).is_ok()
    }

    fn go(&mut self, nr: usize, state: QpState, bits: QpAttrMask) -> bool {
        let qp = &self.qps[nr];
        let ah = AddressVector {
            dgid: Gid::from_ip(qp.peer),
            is_global: true,
            port_num: 1,
            ..AddressVector::default()
        };
        let attr = QpAttr { qp_state: state, dest_qp_num: qp.dest_qpn, ah, ..self.attr };
        let was = self.state(nr);
        // What the service has of them; and what it needs besides.
        let known = was.and_then(|was| transition::attributes(was, state, qp.kind.qp_type));
        let bits = match known {
            Some(known) if qp.kind.qp_type != QpType::Rc => {
                bits.intersection(known.allowed()) | known.required
            }
            _ => bits,
        };
        let changed = self.change(nr, &attr, bits | QpAttrMask::STATE);
        if changed && was == Some(QpState::Sqe) && state == QpState::Rts {
            self.qps[nr].posted.sending_recovered();
        }
        changed
    }

    /// From RESET through the states.
    fn bring_to(&mut self, nr: usize, state: QpState) {
        use QpAttrMask as M;
        self.go(nr, QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        if state == QpState::Init {
            return;
        }
        let bits = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        if self.go(nr, QpState::Rtr, bits) {
            self.qps[nr].expected = self.attr.rq_psn;
        }
        if state == QpState::Rtr {
            return;
        }
        let bits = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        if self.go(nr, QpState::Rts, bits) {
            self.qps[nr].last_sent = self.attr.sq_psn;
        }
        if state != QpState::Rts {
            self.go(nr, state, M::empty());
        }
    }

    fn modify(&mut self, nr: usize, how: u8, value: u8) {
        use QpAttrMask as M;
        match how % 12 {
            0 => drop(self.go(nr, QpState::Sqd, M::empty())),
            1 => drop(self.go(nr, QpState::Rts, M::empty())),
            2 => drop(self.go(nr, QpState::Err, M::empty())),
            3 => {
                // What completed before stays in the completion queue.
                self.transmit();
                self.poll();
                if self.go(nr, QpState::Reset, M::empty()) {
                    self.qps[nr].posted.reset();
                }
            }
            4 => {
                if self.state(nr) == Some(QpState::Reset) {
                    self.qps[nr].peer = PEERS[usize::from(value) % 2].into();
                }
                self.bring_to(nr, QpState::Rts);
            }
            5 => {
                // Another path, as far as it can be changed.
                let old = self.qps[nr].peer;
                self.qps[nr].peer = PEERS[usize::from(value) % 2].into();
                if !self.go(nr, QpState::Sqd, M::AV) {
                    self.qps[nr].peer = old;
                }
            }
            6 => {
                let attr = QpAttr { timeout: value % 32, retry_cnt: value >> 5, ..self.attr };
                self.change(nr, &attr, M::TIMEOUT | M::RETRY_CNT);
            }
            7 => {
                let attr = QpAttr { max_rd_atomic: value % 9, max_dest_rd_atomic: value >> 4, ..self.attr };
                self.change(nr, &attr, M::MAX_QP_RD_ATOMIC | M::MAX_DEST_RD_ATOMIC);
            }
            8 => {
                let access = Access::from_bits_truncate(u32::from(value)) & REMOTE;
                self.change(nr, &QpAttr { access_flags: access, ..self.attr }, M::ACCESS_FLAGS);
            }
            9 => {
                let attr = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..self.attr };
                self.change(nr, &attr, M::STATE | M::EN_SQD_ASYNC_NOTIFY);
            }
            10 => drop(self.go(
                nr,
                QpState::ALL[usize::from(value) % 7],
                M::from_bits_truncate(u32::from(value) << 3),
            )),
            _ => drop(self.go(nr, QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)),
        }
        self.poll();
        if self.state(nr) == Some(QpState::Err) && !self.cq_lost {
            self.qps[nr].posted.must_be_flushed();
        }
    }

    fn toggle_region(&mut self, nr: usize) {
        if let Some(mr) = self.regions[nr].take() {
            let under = if nr == WINDOW { self.under_window.take() } else { None };
            if let Some(under) = under {
                self.device.memory().dealloc_mw(mr.rkey).expect("it is allocated");
                self.device.memory().deregister(under.lkey).expect("no window is left");
            } else {
                self.device.memory().deregister(mr.lkey).expect("it is registered");
            }
            return;
        }
        let (len, access, own) = REGIONS[nr];
        let pd = self.pds[usize::from(!own)];
        let start = self.offsets[nr];
        let iova = (self.buffer.addr() as usize + start) as u64;
        let memory = self.device.memory();
        let under = if nr == WINDOW { Access::LOCAL_WRITE | Access::MW_BIND } else { access };
        let mut mr = Mr { lkey: Lkey(0), rkey: Rkey(0), iova, len, access, pd };
        if nr == FAST {
            mr.rkey = memory.alloc_fast(pd, 4).expect("there are many");
            mr.lkey = Lkey(mr.rkey.value());
            let parts = [(&self.buffer, start..start + len)];
            memory.map_fast_buffers(mr.rkey, &parts, 4096, iova).expect("a good mapping");
            memory.register_fast(mr.rkey, access, pd).expect("it is mapped and free");
        } else {
            mr = memory
                .register_buffer(pd, &self.buffer, start..start + len, iova, under)
                .expect("a good region");
        }
        if nr == WINDOW {
            // Of the first queue pair, or, without one, of the whole domain.
            let qpn = self.qps[0].handle.map(|handle| handle.qpn());
            let kind = if qpn.is_some() { MwType::Type2 } else { MwType::Type1 };
            self.under_window = Some(mr);
            mr.rkey = memory.alloc_mw(pd, kind).expect("there are many");
            self.keys[nr] = mr.rkey.value();
            memory.bind(&self.bind(mr.rkey), Accessor { pd, qpn }).expect("a good window");
        }
        self.keys[nr] = mr.rkey.value();
        self.regions[nr] = Some(mr);
    }

    fn poll(&mut self) {
        let mut out = [Completion::default(); 64];
        loop {
            let count = match self.cq.poll(&mut out) {
                Ok(0) => return,
                Ok(count) => count,
                Err(_) => {
                    self.cq_lost = true;
                    return;
                }
            };
            for completion in &out[..count] {
                let qp = self.qps.iter_mut().find(|qp| qp.qpn == completion.qp_num);
                let qp = qp.expect("completions name a queue pair that exists");
                if completion.opcode.is_receive() && qp.kind.is_shared {
                    let was_there = self.in_shared.remove(&completion.wr_id);
                    assert!(was_there, "not in a shared queue, or completed twice: {completion:?}");
                } else {
                    qp.posted.completed(completion);
                }
            }
        }
    }

    fn finish(mut self) {
        for nr in 0..self.qps.len() {
            if !self.cq_lost {
                self.go(nr, QpState::Err, QpAttrMask::empty());
                self.poll();
                if self.state(nr) == Some(QpState::Err) && !self.cq_lost {
                    self.qps[nr].posted.must_be_flushed();
                }
            }
            self.destroy(nr);
        }
        assert_eq!(self.device.bytes_in_flight(), (0, 0), "charged to a window and never released");
        for nr in 0..REGIONS.len() {
            if self.regions[nr].is_some() {
                self.toggle_region(nr);
            }
        }
        if let Some(shared) = self.shared.take() {
            shared.end(&self.device);
        }
        for pd in self.pds {
            self.device.dealloc_pd(pd).expect("nothing is left in it");
        }
        self.check_memory();
    }

    fn check_memory(&self) {
        let mut bytes = vec![0; self.buffer.len()];
        self.buffer.read(0, &mut bytes).expect("inside");
        let mut start = 0;
        let mut check = |end: usize, next: usize| {
            if bytes[start..end] != PATTERN[start..end] {
                let at = (start..end).find(|at| bytes[*at] != PATTERN[*at]);
                panic!("byte {at:?} of the buffer was written and must not be");
            }
            start = next;
        };
        for nr in (0..REGIONS.len()).filter(|nr| !CONSTANT.contains(nr)) {
            check(self.offsets[nr], self.offsets[nr] + REGIONS[nr].0);
        }
        check(bytes.len(), bytes.len());
    }
}
