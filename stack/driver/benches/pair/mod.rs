//! Two devices on a wire in memory, for the benches: what one sends is handed to the other, nothing
//! else happens. Each bench uses a part of it.
#![allow(dead_code, reason = "each bench uses a part")]
#![allow(unsafe_code, reason = "registering is unsafe; the buffer outlives the device here")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{Completion, Cq};
use urxe_stack::device::{Device, DeviceConfig, QpHandle, ReceiveScratch};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::wr::{
    Destination, Payload, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::time::Time;
use urxe_wire::{Gid, Psn, Qpn, ROCE_PORT};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const BUFFER_LEN: usize = 1 << 20;
const ACCESS: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Runs under way to one side. Their buffers are used again, so that the wire allocates nothing
/// either.
#[derive(Default)]
struct Line(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<(Vec<u8>, usize)>,
    spare: Vec<Vec<u8>>,
}

impl Transmit for Line {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let mut state = self.0.lock().expect("one thread");
        let mut bytes = state.spare.pop().unwrap_or_else(|| Vec::with_capacity(1 << 16));
        bytes.extend_from_slice(run.bytes);
        state.waiting.push((bytes, run.segment_size));
        SendOutcome::Sent
    }
}

struct End {
    // Before its buffer, so that it is dropped first.
    device: Device,
    pd: PdId,
    mr: Mr,
    qp: QpHandle,
    cq: Arc<Cq>,
    out: Line,
    scratch: ReceiveScratch,
    _buffer: Buffer,
}

impl End {
    fn new(nr: usize, buffer_len: usize) -> Self {
        let device =
            Device::new(DeviceConfig::new(vec![Gid::from_ip(ADDRESSES[nr].into())], nr as u64));
        let pd = device.alloc_pd().expect("there are many");
        let cq = device.create_cq(1024, None, 0).expect("fits");
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let qp = create_qp(&device, pd, &cq, cap);
        let buffer = Buffer::new(buffer_len).expect("memory");
        let addr = buffer.addr();
        // SAFETY: the device is dropped before the buffer, which nobody else looks at.
        let mr = unsafe {
            device.memory().register(
                pd,
                addr,
                buffer_len,
                addr as u64,
                ACCESS | Access::LOCAL_WRITE,
            )
        }
        .expect("a good region");
        Self {
            device,
            pd,
            mr,
            qp,
            cq,
            out: Line::default(),
            scratch: ReceiveScratch::default(),
            _buffer: buffer,
        }
    }

    fn connect(&self, qp: QpHandle, dest_qp_num: Qpn, peer: Ipv4Addr) {
        use QpAttrMask as M;
        let ah = AddressVector {
            dgid: Gid::from_ip(peer.into()),
            is_global: true,
            port_num: 1,
            ..Default::default()
        };
        let attr = QpAttr {
            port_num: 1,
            access_flags: ACCESS,
            ah,
            path_mtu: PathMtu::Mtu4096,
            dest_qp_num,
            rq_psn: Psn::new(1),
            sq_psn: Psn::new(1),
            max_dest_rd_atomic: 16,
            max_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        let rtr = M::AV
            | M::PATH_MTU
            | M::DEST_QPN
            | M::RQ_PSN
            | M::MAX_DEST_RD_ATOMIC
            | M::MIN_RNR_TIMER;
        let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        let init = M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
        for (state, bits) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let attr = QpAttr { qp_state: state, ..attr };
            self.device.modify_qp(Time::ZERO, qp, &attr, bits | M::STATE).expect("the usual way");
        }
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.mr.iova, length, lkey: self.mr.lkey }
    }
}

fn create_qp(device: &Device, pd: PdId, cq: &Arc<Cq>, cap: QpCap) -> QpHandle {
    let init = QpInit {
        qp_type: QpType::Rc,
        pd,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        srq: None,
        cap,
        sq_sig_all: false,
    };
    device.create_qp(&init).expect("there are many")
}

/// A requester (the first) and a responder.
pub struct Pair {
    ends: [End; 2],
    now: Time,
}

impl Pair {
    pub fn new() -> Self {
        Self::with_buffers(BUFFER_LEN)
    }

    /// With so many bytes on each side.
    pub fn with_buffers(len: usize) -> Self {
        let ends = [End::new(0, len), End::new(1, len)];
        ends[0].connect(ends[0].qp, ends[1].qp.qpn(), ADDRESSES[1]);
        ends[1].connect(ends[1].qp, ends[0].qp.qpn(), ADDRESSES[0]);
        Self { ends, now: Time::ZERO }
    }

    /// One more queue pair on each side, connected with each other, with queues of so many entries.
    pub fn connect_another(&mut self, entries: u32) -> [QpHandle; 2] {
        let cap = QpCap {
            max_send_wr: entries,
            max_recv_wr: entries,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let [a, b] = &self.ends;
        let qps = [a, b].map(|end| create_qp(&end.device, end.pd, &end.cq, cap));
        a.connect(qps[0], qps[1].qpn(), ADDRESSES[1]);
        b.connect(qps[1], qps[0].qpn(), ADDRESSES[0]);
        qps
    }

    /// Posts a WRITE of `length` bytes at `offset` of both buffers.
    pub fn post_write(&self, qp: QpHandle, offset: u64, length: u32) {
        let mr = &self.ends[1].mr;
        let op = SendOp::Write { remote: Remote { addr: mr.iova + offset, rkey: mr.rkey } };
        let sge = self.ends[0].sge(length);
        self.post_on(qp, op, Sge { addr: sge.addr + offset, ..sge });
    }

    /// A SEND of `length` bytes, received.
    pub fn send(&mut self, length: u32) {
        let [requester, responder] = &self.ends;
        let sges = [responder.sge(length)];
        responder
            .device
            .post_recv(self.now, responder.qp, &[RecvRequest { wr_id: 1, sges: &sges }])
            .expect("there is room");
        self.post(SendOp::Send, requester.sge(length));
        self.finish(1, 1);
    }

    /// A WRITE of `length` bytes.
    pub fn write(&mut self, length: u32) {
        let op = SendOp::Write { remote: self.remote() };
        self.post(op, self.ends[0].sge(length));
        self.finish(1, 0);
    }

    /// A READ of `length` bytes.
    pub fn read(&mut self, length: u32) {
        let op = SendOp::Read { remote: self.remote() };
        self.post(op, self.ends[0].sge(length));
        self.finish(1, 0);
    }

    fn remote(&self) -> Remote {
        let mr = &self.ends[1].mr;
        Remote { addr: mr.iova, rkey: mr.rkey }
    }

    fn post(&self, op: SendOp, sge: Sge) {
        self.post_on(self.ends[0].qp, op, sge);
    }

    fn post_on(&self, qp: QpHandle, op: SendOp, sge: Sge) {
        let end = &self.ends[0];
        let request = SendRequest {
            wr_id: 2,
            op,
            to: Destination::Peer,
            flags: SendFlags::SIGNALED,
            payload: Payload::Sges(&[sge]),
        };
        end.device.post_send(self.now, qp, &[request]).expect("there is room");
    }

    /// Moves packets until both are silent; checks that so many completed on each side.
    pub fn finish(&mut self, sends: usize, receives: usize) {
        self.now = self.now.plus_ns(1000);
        loop {
            let moved = self.step(0, 1) | self.step(1, 0);
            if !moved {
                break;
            }
        }
        for (end, want) in self.ends.iter().zip([sends, receives]) {
            let mut out = [Completion::default(); 64];
            let count = end.cq.poll(&mut out).expect("it did not overrun");
            assert_eq!(count, want, "completions");
            assert!(out[..count].iter().all(|c| c.status.is_success()));
        }
    }

    fn step(&mut self, from: usize, to: usize) -> bool {
        self.ends[from].device.transmit_pending(self.now, &self.ends[from].out);
        let mut moved = false;
        loop {
            let next = {
                let mut state = self.ends[from].out.0.lock().expect("one thread");
                if state.waiting.is_empty() { None } else { Some(state.waiting.remove(0)) }
            };
            let Some((mut bytes, segment_size)) = next else { return moved };
            moved = true;
            let end = &mut self.ends[to];
            let datagrams = Datagrams {
                from: IpAddr::from(ADDRESSES[from]),
                from_port: ROCE_PORT,
                to: ADDRESSES[to].into(),
                bytes: &bytes,
                segment_size,
                traffic_class: 0,
                hop_limit: 64,
            };
            end.device.receive(self.now, &datagrams, &mut end.scratch);
            bytes.clear();
            self.ends[from].out.0.lock().expect("one thread").spare.push(bytes);
        }
    }
}
