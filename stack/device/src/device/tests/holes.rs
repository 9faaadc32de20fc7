//! On-demand regions of which a page is gone, as every service meets them: what is told to whom,
//! and what stays as it was.

use urxe_wire::{Msn, NakCode, Opcode, PacketView, Psn, Syndrome};

use super::*;
use crate::srq::xrcd::XrcdFlags;
use crate::srq::{SrqAttr, SrqInit, XrcSrqInit};

/// A multiple of every page size there is.
const PAGE: usize = 1 << 16;
const GONE: u64 = PAGE as u64;

/// An on-demand region whose second page of two is gone, and its memory.
fn with_a_hole(end: &End, pd: PdId) -> (Mr, Arc<Buffer>) {
    let file = rustix::fs::memfd_create("shrinking", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 2 * PAGE as u64).unwrap();
    let buffer = Arc::new(Buffer::of_file(&file, 0, 2 * PAGE).unwrap());
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let access = Access::LOCAL_WRITE | remote | Access::ON_DEMAND;
    let mr = end.device.memory().register_buffer(pd, &buffer, 0..2 * PAGE, 0, access).unwrap();
    rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
    (mr, buffer)
}

fn counted(end: &End) -> u64 {
    end.device.counters().value(Counter::AccessNotMapped)
}

fn statuses(completions: &[Completion]) -> Vec<(WcOpcode, WcStatus)> {
    completions.iter().map(|wc| (wc.opcode, wc.status)).collect()
}

/// Moves packets until both sides are silent; what `b` answered: opcode, PSN, syndrome, messages it
/// counts.
fn run_watched(a: &End, b: &End, wire: &Wire) -> Vec<(Opcode, Psn, Syndrome, Msn)> {
    let mut answers = Vec::new();
    let mut scratch = ReceiveScratch::default();
    loop {
        a.device.transmit_pending(Time::ZERO, wire);
        b.device.transmit_pending(Time::ZERO, wire);
        let Some(packets) = lock(&wire.0).pop_front() else { return answers };
        let to_a = packets.to == IpAddr::V4(A);
        for packet in packets.bytes.chunks(packets.segment_size).filter(|_| to_a) {
            let view = PacketView::parse(packet).unwrap();
            if let Some(aeth) = view.aeth() {
                answers.push((view.opcode(), view.psn(), aeth.syndrome, aeth.msn));
            }
        }
        let device = if to_a { &a.device } else { &b.device };
        device.receive(Time::ZERO, &packets.arrived(), &mut scratch);
    }
}

#[test]
fn a_change_of_a_page_that_is_gone_is_a_remote_access_error_and_one_of_a_present_page_is_made() {
    type MakeOp = fn(Remote) -> SendOp;
    let ops: [(WcOpcode, MakeOp); 4] = [
        (WcOpcode::AtomicWrite, |remote| SendOp::AtomicWrite { remote }),
        (WcOpcode::CompSwap, |remote| SendOp::CompareSwap { remote, compare: 0, swap: 5 }),
        (WcOpcode::FetchAdd, |remote| SendOp::FetchAdd { remote, add: 5 }),
        (WcOpcode::RdmaWrite, |remote| SendOp::WriteImm { remote, imm: 9 }),
    ];
    for (opcode, op) in ops {
        let (a, b, wire) = pair();
        let (mr, memory) = with_a_hole(&b, b.pd);
        a.buffer.write(0, &5_u64.to_ne_bytes()).unwrap();
        for wr_id in 1..=2 {
            b.device.post_recv(Time::ZERO, b.qp, &[RecvRequest { wr_id, sges: &[] }]).unwrap();
        }
        let remote = Remote { addr: GONE - 8, rkey: mr.rkey };
        a.post(op(remote), &[a.sge(0, 8)]);
        a.buffer.write(64, &5_u64.to_ne_bytes()).unwrap();
        a.post(op(Remote { addr: GONE, ..remote }), &[a.sge(64, 8)]);
        run(&a, &b, &wire);
        let expected = [(opcode, WcStatus::Success), (opcode, WcStatus::RemAccessErr)];
        assert_eq!(statuses(&a.completions()), expected);
        let mut there = [0; 8];
        memory.read(PAGE - 8, &mut there).unwrap();
        assert_eq!(u64::from_ne_bytes(there), 5, "{opcode:?}");
        assert_eq!(counted(&b), 1, "{opcode:?}");
        // What the queue pair was to receive ends with it; a WRITE with immediate data whose place
        // is gone has not completed it.
        let received = statuses(&b.completions());
        assert_eq!(received.last().unwrap().1, WcStatus::WrFlushErr, "{opcode:?}");
    }
}

#[test]
fn a_read_is_answered_up_to_the_page_that_is_gone() {
    let (a, b, wire) = pair();
    let (mr, memory) = with_a_hole(&b, b.pd);
    memory.write(PAGE - 1024, &pattern(1024)).unwrap();
    let remote = Remote { addr: GONE - 1024, rkey: mr.rkey };
    a.post(SendOp::Write { remote: Remote { addr: 0, ..remote } }, &[a.sge(0, 8)]);
    // Three packets, of which the second is the first that is gone.
    a.post(SendOp::Read { remote }, &[a.sge(4096, 3072)]);
    let answers = run_watched(&a, &b, &wire);
    let expected =
        [(WcOpcode::RdmaWrite, WcStatus::Success), (WcOpcode::RdmaRead, WcStatus::RemAccessErr)];
    assert_eq!(statuses(&a.completions()), expected);
    let nak = (Opcode::RcAcknowledge, Psn::new(0), Syndrome::Nak(NakCode::RemoteAccess));
    let (opcode, psn, syndrome, msn) = *answers.last().unwrap();
    assert_eq!((opcode, psn, syndrome), nak, "{answers:?}");
    // The WRITE was executed, the READ was not.
    assert_eq!(msn, Msn::masked(1), "{answers:?}");
    assert_eq!(a.bytes(4096, 1024), pattern(1024), "what came before the hole");
    assert_eq!(counted(&b), 1);
}

#[test]
fn an_unreliable_write_to_a_page_that_is_gone_is_dropped_and_the_next_one_is_made() {
    let (a, b) = (End::new(A, 1), End::new(B, 2));
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    };
    let unreliable = |end: &End| {
        let (send_cq, recv_cq) = (Arc::clone(&end.cq), Arc::clone(&end.cq));
        let init = QpInit {
            qp_type: QpType::Uc,
            pd: end.pd,
            send_cq,
            recv_cq,
            srq: None,
            cap,
            sq_sig_all: false,
        };
        end.device.create_qp(&init).unwrap()
    };
    let (from, to) = (unreliable(&a), unreliable(&b));
    a.connect_as(QpType::Uc, from, to.qpn(), B);
    b.connect_as(QpType::Uc, to, from.qpn(), A);
    let (mr, memory) = with_a_hole(&b, b.pd);
    a.buffer.write(0, &pattern(3072)).unwrap();
    let post = |addr, len| {
        let (op, sges) =
            (SendOp::Write { remote: Remote { addr, rkey: mr.rkey } }, [a.sge(0, len)]);
        let (to, flags, payload) = (Destination::Peer, SendFlags::SIGNALED, Payload::Sges(&sges));
        a.device
            .post_send(Time::ZERO, from, &[SendRequest { wr_id: 1, op, to, flags, payload }])
            .unwrap();
    };
    post(GONE - 1024, 3072);
    post(16, 64);
    run(&a, &b, &Wire::default());
    // The sender learns nothing.
    assert_eq!(statuses(&a.completions()), [(WcOpcode::RdmaWrite, WcStatus::Success); 2]);
    let mut there = [0; 64];
    memory.read(16, &mut there).unwrap();
    assert_eq!(there.to_vec(), pattern(64));
    assert_eq!(counted(&b), 1);
    assert_eq!(b.device.query_qp(to).unwrap().qp_state, QpState::Rts);
}

#[test]
fn an_xrc_target_refuses_a_page_that_is_gone() {
    let (a, b) = (End::new(A, 1), End::new(B, 2));
    let xrcd = b.device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None)).unwrap();
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 0,
        max_send_sge: 4,
        max_recv_sge: 0,
        max_inline_data: 64,
    };
    let (send_cq, recv_cq) = (Arc::clone(&a.cq), Arc::clone(&a.cq));
    let init = QpInit {
        qp_type: QpType::XrcSend,
        pd: a.pd,
        send_cq,
        recv_cq,
        srq: None,
        cap,
        sq_sig_all: false,
    };
    let (from, to) =
        (a.device.create_qp(&init).unwrap(), b.device.create_xrc_target(&xrcd).unwrap());
    a.connect_as(QpType::XrcSend, from, to.qpn(), B);
    b.connect_as(QpType::XrcRecv, to, from.qpn(), A);
    let pd = b.device.alloc_pd().unwrap();
    let attr = SrqAttr { max_wr: 16, max_sge: 2, srq_limit: 0 };
    let xrc = Some(XrcSrqInit { xrcd: Arc::clone(&xrcd), cq: Arc::clone(&b.cq) });
    let srq = b.device.create_srq(&SrqInit { pd, attr, xrc, context: 0 }).unwrap();
    let (mr, memory) = with_a_hole(&b, pd);
    a.buffer.write(0, &pattern(16)).unwrap();
    for addr in [GONE - 16, GONE - 8] {
        let (op, sges) = (SendOp::Write { remote: Remote { addr, rkey: mr.rkey } }, [a.sge(0, 16)]);
        let to = Destination::XrcSrq { srq: srq.id() };
        let request = SendRequest {
            wr_id: 1,
            op,
            to,
            flags: SendFlags::SIGNALED,
            payload: Payload::Sges(&sges),
        };
        a.device.post_send(Time::ZERO, from, &[request]).unwrap();
    }
    run(&a, &b, &Wire::default());
    let expected =
        [(WcOpcode::RdmaWrite, WcStatus::Success), (WcOpcode::RdmaWrite, WcStatus::RemAccessErr)];
    assert_eq!(statuses(&a.completions()), expected);
    let mut there = [0; 8];
    memory.read(PAGE - 16, &mut there).unwrap();
    assert_eq!(there.to_vec(), pattern(8));
    assert_eq!(counted(&b), 1);
}
