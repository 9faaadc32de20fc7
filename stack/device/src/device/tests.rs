//! Two devices joined by a wire that loses nothing: every operation once. Loss and the rest: the
//! fault simulation.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use urxe_wire::{Gid, Qpn, ROCE_PORT};

mod acks;
mod bursts;
mod completions;
mod destination;
mod domains;
mod holes;
mod keys;
mod limits;
mod paths;
mod peer;
mod port;
mod queues;
mod reordering;
mod replies;
mod seeds;
mod source_ports;
mod srq;
mod turns;
mod xrc;

use super::counters::Counter;
use super::*;
use crate::cq::{Completion, Cq, WcOpcode, WcStatus};
use crate::qp::QpInit;
use crate::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use crate::qp::transition;
use crate::qp::wr::{
    Destination, Payload, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use crate::srq::Srq;
use urxe_memory::{Access, Buffer, Mr};
use urxe_types::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_types::time::Time;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Packets {
    from: IpAddr,
    to: IpAddr,
    bytes: Vec<u8>,
    segment_size: usize,
}

impl Packets {
    /// As they arrive.
    fn arrived(&self) -> Datagrams<'_> {
        Datagrams {
            from: self.from,
            from_port: ROCE_PORT,
            to: self.to,
            bytes: &self.bytes,
            segment_size: self.segment_size,
            traffic_class: 0,
            hop_limit: 64,
        }
    }
}

#[derive(Default)]
struct Wire(Mutex<VecDeque<Packets>>);

impl Transmit for Wire {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        lock(&self.0).push_back(Packets {
            from: run.from,
            to: run.to,
            bytes: run.bytes.to_vec(),
            segment_size: run.segment_size,
        });
        SendOutcome::Sent
    }
}

struct End {
    device: Device,
    pd: PdId,
    cq: Arc<Cq>,
    qp: QpHandle,
    buffer: Arc<Buffer>,
    mr: Mr,
}

impl End {
    fn new(address: Ipv4Addr, seed: u64) -> Self {
        let device = Device::new(DeviceConfig::new(vec![Gid::from_ip(address.into())], seed));
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(64, None, 0).unwrap();
        let qp = create_qp(&device, pd, &cq);
        let buffer = Arc::new(Buffer::new(1 << 20).unwrap());
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr = register(&device, pd, &buffer, access);
        Self { device, pd, cq, qp, buffer, mr }
    }

    fn connect(&self, peer: &Self, peer_ip: Ipv4Addr) {
        self.connect_qp(self.qp, peer.qp.qpn(), peer_ip);
    }

    fn connect_qp(&self, qp: QpHandle, dest_qp_num: Qpn, peer_ip: Ipv4Addr) {
        self.connect_as(QpType::Rc, qp, dest_qp_num, peer_ip);
    }

    fn connect_as(&self, qp_type: QpType, qp: QpHandle, dest_qp_num: Qpn, peer_ip: Ipv4Addr) {
        let allowed = |from, to, mask| {
            transition::attributes(from, to, qp_type).unwrap().allowed().intersection(mask)
        };
        let mask = |bits: &[QpAttrMask]| bits.iter().fold(QpAttrMask::STATE, |all, bit| all | *bit);
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            ..QpAttr::default()
        };
        let bits = mask(&[QpAttrMask::PKEY_INDEX, QpAttrMask::PORT, QpAttrMask::ACCESS_FLAGS]);
        self.device.modify_qp(Time::ZERO, qp, &attr, bits).unwrap();
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: PathMtu::Mtu1024,
            dest_qp_num,
            rq_psn: urxe_wire::Psn::new(0xff_fffe),
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ah: AddressVector {
                dgid: Gid::from_ip(peer_ip.into()),
                is_global: true,
                port_num: 1,
                ..AddressVector::default()
            },
            ..QpAttr::default()
        };
        let bits = mask(&[
            QpAttrMask::AV,
            QpAttrMask::PATH_MTU,
            QpAttrMask::DEST_QPN,
            QpAttrMask::RQ_PSN,
            QpAttrMask::MAX_DEST_RD_ATOMIC,
            QpAttrMask::MIN_RNR_TIMER,
        ]);
        let bits = allowed(QpState::Init, QpState::Rtr, bits);
        self.device.modify_qp(Time::ZERO, qp, &attr, bits).unwrap();
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: urxe_wire::Psn::new(0xff_fffe),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..QpAttr::default()
        };
        let bits = mask(&[
            QpAttrMask::TIMEOUT,
            QpAttrMask::RETRY_CNT,
            QpAttrMask::RNR_RETRY,
            QpAttrMask::SQ_PSN,
            QpAttrMask::MAX_QP_RD_ATOMIC,
        ]);
        let bits = allowed(QpState::Rtr, QpState::Rts, bits);
        self.device.modify_qp(Time::ZERO, qp, &attr, bits).unwrap();
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.mr.iova + offset, length, lkey: self.mr.lkey }
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.mr.iova + offset, rkey: self.mr.rkey }
    }

    fn post(&self, op: SendOp, sges: &[Sge]) {
        let request = SendRequest {
            wr_id: 7,
            op,
            to: Destination::Peer,
            flags: SendFlags::SIGNALED,
            payload: Payload::Sges(sges),
        };
        self.device.post_send(Time::ZERO, self.qp, &[request]).unwrap();
    }

    fn completions(&self) -> Vec<Completion> {
        let mut out = [Completion::default(); 64];
        let count = self.cq.poll(&mut out).unwrap();
        out[..count].to_vec()
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffer.read(offset, &mut out).unwrap();
        out
    }
}

fn create_qp(device: &Device, pd: PdId, cq: &Arc<Cq>) -> QpHandle {
    create_qp_on(device, pd, cq, None)
}

fn create_qp_on(device: &Device, pd: PdId, cq: &Arc<Cq>, srq: Option<&Arc<Srq>>) -> QpHandle {
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    };
    let init = QpInit {
        qp_type: QpType::Rc,
        pd,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        srq: srq.map(Arc::clone),
        cap,
        sq_sig_all: false,
    };
    device.create_qp(&init).unwrap()
}

fn register(device: &Device, pd: PdId, buffer: &Arc<Buffer>, access: Access) -> Mr {
    let iova = buffer.addr() as u64;
    device.memory().register_buffer(pd, buffer, 0..buffer.len(), iova, access).unwrap()
}

fn pair() -> (End, End, Wire) {
    let (a, b) = (End::new(A, 1), End::new(B, 2));
    a.connect(&b, B);
    b.connect(&a, A);
    (a, b, Wire::default())
}

/// Moves packets until both sides are silent.
fn run(a: &End, b: &End, wire: &Wire) {
    let mut scratch = ReceiveScratch::default();
    loop {
        a.device.transmit_pending(Time::ZERO, wire);
        b.device.transmit_pending(Time::ZERO, wire);
        let Some(packets) = lock(&wire.0).pop_front() else { return };
        let device = if packets.to == IpAddr::V4(A) { &a.device } else { &b.device };
        device.receive(Time::ZERO, &packets.arrived(), &mut scratch);
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn quiet(end: &End) {
    for counter in
        Counter::ALL.iter().filter(|c| c.name().starts_with("drop") || c.name().ends_with("_err"))
    {
        assert_eq!(end.device.counters().value(*counter), 0, "{}", counter.name());
    }
    let path = end.device.paths.at(0).unwrap();
    assert_eq!(path.window.in_flight(), 0);
}

#[test]
fn every_operation_of_every_size_arrives() {
    let (a, b, wire) = pair();
    for size in [0usize, 1, 3, 1023, 1024, 1025, 5000, 200_000] {
        let data = pattern(size);
        a.buffer.write(0, &data).unwrap();
        b.device
            .post_recv(
                Time::ZERO,
                b.qp,
                &[RecvRequest { wr_id: 9, sges: &[b.sge(0, 1000), b.sge(2000, 300_000)] }],
            )
            .unwrap();
        let half = size as u32 / 2;
        a.post(
            SendOp::SendImm { imm: 0xdead },
            &[a.sge(0, half), a.sge(u64::from(half), size as u32 - half)],
        );
        run(&a, &b, &wire);
        let sent = a.completions();
        assert_eq!(sent.len(), 1, "size {size}");
        assert_eq!(
            (sent[0].wr_id, sent[0].status, sent[0].opcode),
            (7, WcStatus::Success, WcOpcode::Send)
        );
        let received = b.completions();
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].byte_len, received[0].imm_data()), (size as u32, Some(0xdead)));
        let mut got = b.bytes(0, size.min(1000));
        got.extend(b.bytes(2000, size - got.len()));
        assert_eq!(got, data, "size {size}");

        a.post(SendOp::Write { remote: b.remote(400_000) }, &[a.sge(0, size as u32)]);
        a.post(SendOp::Read { remote: b.remote(400_000) }, &[a.sge(700_000, size as u32)]);
        run(&a, &b, &wire);
        let done = a.completions();
        assert_eq!(
            done.iter().map(|c| c.opcode).collect::<Vec<_>>(),
            [WcOpcode::RdmaWrite, WcOpcode::RdmaRead]
        );
        assert!(done.iter().all(|c| c.status == WcStatus::Success));
        assert_eq!(b.bytes(400_000, size), data);
        assert_eq!(a.bytes(700_000, size), data);
    }
    quiet(&a);
    quiet(&b);
}

#[test]
fn atomics_return_the_old_value() {
    let (a, b, wire) = pair();
    b.buffer.write(64, &41u64.to_ne_bytes()).unwrap();
    a.post(SendOp::FetchAdd { remote: b.remote(64), add: 1 }, &[a.sge(0, 8)]);
    a.post(SendOp::CompareSwap { remote: b.remote(64), compare: 42, swap: 7 }, &[a.sge(8, 8)]);
    a.post(SendOp::CompareSwap { remote: b.remote(64), compare: 42, swap: 9 }, &[a.sge(16, 8)]);
    run(&a, &b, &wire);
    assert!(a.completions().iter().all(|c| c.status == WcStatus::Success));
    let old: Vec<u64> =
        a.bytes(0, 24).chunks(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect();
    assert_eq!(old, [41, 42, 7]);
    assert_eq!(b.bytes(64, 8), 7u64.to_ne_bytes());
    quiet(&a);
}

#[test]
fn a_wrong_key_is_a_remote_access_error_and_flushes() {
    let (a, b, wire) = pair();
    b.device
        .post_recv(Time::ZERO, b.qp, &[RecvRequest { wr_id: 9, sges: &[b.sge(0, 8)] }])
        .unwrap();
    let remote = Remote { rkey: urxe_wire::Rkey(b.mr.rkey.0 ^ 1), ..b.remote(0) };
    a.post(SendOp::Write { remote }, &[a.sge(0, 5000)]);
    a.post(SendOp::Send, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    let statuses: Vec<_> = a.completions().iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::RemAccessErr, WcStatus::WrFlushErr]);
    assert_eq!(a.device.query_qp(a.qp).unwrap().qp_state, QpState::Err);
    assert_eq!(b.device.query_qp(b.qp).unwrap().qp_state, QpState::Err);
    assert_eq!(b.completions()[0].status, WcStatus::WrFlushErr);
    assert_eq!(b.bytes(0, 5000), vec![0; 5000]);
    a.post(SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.completions()[0].status, WcStatus::WrFlushErr);
}

#[test]
fn destroying_frees_numbers_paths_and_the_domain() {
    let (a, b, _wire) = pair();
    assert!(matches!(
        a.device.dealloc_pd(a.pd),
        Err(DeallocPdError::Busy { qps: 1, srqs: 0, ahs: 0, cqs: 0, mrs: 1, parents: 0 })
    ));
    a.device.destroy_qp(Time::ZERO, a.qp).unwrap();
    assert_eq!(a.device.destroy_qp(Time::ZERO, a.qp), Err(DestroyQpError::NoQp));
    assert!(a.device.query_qp(a.qp).is_none());
    a.device.memory().deregister(a.mr.lkey).unwrap();
    a.device.dealloc_pd(a.pd).unwrap();
    assert!(lock(&a.device.control).paths.is_empty());
    drop(b);
}

#[test]
fn an_idle_queue_pair_is_small() {
    let size = size_of::<Qp>() + size_of::<QpSlot>();
    assert!(size < 2048, "{size} bytes");
}
