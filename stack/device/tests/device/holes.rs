//! Regions with a missing page, on demand and others, under every service: the errors of both
//! sides, and the memory that stays unchanged.

use urxe_wire::{Msn, NakCode, Opcode, Psn, Syndrome};

use super::xrc::Xrc;
use super::*;

/// A multiple of every page size.
const PAGE: usize = 1 << 16;
const GONE: u64 = PAGE as u64;

/// Returns a region whose second page of two is missing, and its memory.
fn with_a_hole(end: &Host, pd: PdId, more: Access) -> (Mr, Arc<Buffer>) {
    let file = rustix::fs::memfd_create("shrinking", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 2 * PAGE as u64).unwrap();
    let buffer = Arc::new(Buffer::of_file(&file, 0, 2 * PAGE).unwrap());
    let access = Access::LOCAL_WRITE | REMOTE | more;
    let mr = end.device.memory().register_buffer(pd, &buffer, 0..2 * PAGE, 0, access).unwrap();
    rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
    (mr, buffer)
}

fn counted(end: &Host) -> u64 {
    end.counter(Counter::AccessNotMapped)
}

/// Moves packets until both sides are silent. Returns the answers of `b`: opcode, PSN, syndrome,
/// MSN.
fn run_watched(a: &Host, b: &Host, wire: &Wire) -> Vec<(Opcode, Psn, Syndrome, Msn)> {
    let mut answers = Vec::new();
    loop {
        a.transmit(wire);
        b.transmit(wire);
        let Some(packets) = wire.pop() else { return answers };
        let device = if packets.to == a.address { &a.device } else { &b.device };
        for view in packets.packets().filter(|_| packets.to == a.address) {
            let aeth = view.aeth();
            answers.extend(aeth.map(|aeth| (view.opcode(), view.psn(), aeth.syndrome, aeth.msn)));
        }
        wire.deliver(device, Time::ZERO, &packets);
    }
}

/// Returns bytes of such memory.
fn bytes(memory: &Buffer, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(at, &mut bytes).unwrap();
    bytes
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
        let (mr, memory) = with_a_hole(&b, b.pd, Access::ON_DEMAND);
        a.write(0, &5_u64.to_ne_bytes());
        for wr_id in 1..=2 {
            b.post_recv(wr_id, &[]);
        }
        let remote = Remote { addr: GONE - 8, rkey: mr.rkey };
        a.post(op(remote), &[a.sge(0, 8)]);
        a.write(64, &5_u64.to_ne_bytes());
        a.post(op(Remote { addr: GONE, ..remote }), &[a.sge(64, 8)]);
        run(&a, &b, &wire);
        let expected = [(opcode, WcStatus::Success), (opcode, WcStatus::RemAccessErr)];
        assert_eq!(a.outcomes(), expected);
        assert_eq!(bytes(&memory, PAGE - 8, 8), 5_u64.to_ne_bytes(), "{opcode:?}");
        assert_eq!(counted(&b), 1, "{opcode:?}");
        // The receives of the queue pair are flushed: a WRITE with immediate data to the missing
        // page has completed none.
        let received = b.outcomes();
        assert_eq!(received.last().unwrap().1, WcStatus::WrFlushErr, "{opcode:?}");
    }
}

#[test]
fn a_read_is_answered_up_to_the_page_that_is_gone() {
    let (a, b, wire) = pair();
    let (mr, memory) = with_a_hole(&b, b.pd, Access::ON_DEMAND);
    memory.write(PAGE - 1024, &pattern(1024)).unwrap();
    let remote = Remote { addr: GONE - 1024, rkey: mr.rkey };
    a.post(SendOp::Write { remote: Remote { addr: 0, ..remote } }, &[a.sge(0, 8)]);
    // Three packets. The second is the first to the missing page.
    a.post(SendOp::Read { remote }, &[a.sge(4096, 3072)]);
    let answers = run_watched(&a, &b, &wire);
    let expected =
        [(WcOpcode::RdmaWrite, WcStatus::Success), (WcOpcode::RdmaRead, WcStatus::RemAccessErr)];
    assert_eq!(a.outcomes(), expected);
    let nak = (Opcode::RcAcknowledge, Psn::new(0), Syndrome::Nak(NakCode::RemoteAccess));
    let (opcode, psn, syndrome, msn) = *answers.last().unwrap();
    assert_eq!((opcode, psn, syndrome), nak, "{answers:?}");
    // The WRITE was executed, the READ was not.
    assert_eq!(msn, Msn::masked(1), "{answers:?}");
    assert_eq!(a.bytes(4096, 1024), pattern(1024), "the bytes before the hole");
    assert_eq!(counted(&b), 1);
}

#[test]
fn an_unreliable_write_to_a_page_that_is_gone_is_dropped_and_the_next_one_is_made() {
    let (a, b) = (Host::new(A, 1), Host::new(B, 2));
    let [from, to] = [&a, &b].map(|host| host.create(&qp::init(QpType::Uc, host.pd, &host.cq)));
    a.connect_as(QpType::Uc, from, to.qpn(), B);
    b.connect_as(QpType::Uc, to, from.qpn(), A);
    let (mr, memory) = with_a_hole(&b, b.pd, Access::ON_DEMAND);
    a.write(0, &pattern(3072));
    let post = |addr, len| {
        let remote = Remote { addr, rkey: mr.rkey };
        a.post_on(from, SendOp::Write { remote }, &[a.sge(0, len)]);
    };
    post(GONE - 1024, 3072);
    post(16, 64);
    run(&a, &b, &Wire::default());
    // The sender gets no error.
    assert_eq!(a.outcomes(), [(WcOpcode::RdmaWrite, WcStatus::Success); 2]);
    assert_eq!(bytes(&memory, 16, 64), pattern(64));
    assert_eq!(counted(&b), 1);
    assert_eq!(b.state(to), QpState::Rts);
}

#[test]
fn an_xrc_target_refuses_a_page_that_is_gone() {
    let (xrc, inbox) = Xrc::with_inbox();
    let (mr, memory) = with_a_hole(&xrc.b, inbox.pd, Access::ON_DEMAND);
    xrc.a.write(0, &pattern(16));
    for addr in [GONE - 16, GONE - 8] {
        let remote = Remote { addr, rkey: mr.rkey };
        xrc.post(&inbox, SendOp::Write { remote }, &[xrc.a.sge(0, 16)]);
    }
    xrc.run();
    let expected =
        [(WcOpcode::RdmaWrite, WcStatus::Success), (WcOpcode::RdmaWrite, WcStatus::RemAccessErr)];
    assert_eq!(xrc.a.outcomes(), expected);
    assert_eq!(bytes(&memory, PAGE - 16, 8), pattern(8));
    assert_eq!(counted(&xrc.b), 1);
}

#[test]
fn a_page_that_is_gone_is_a_remote_access_error_or_a_local_protection_error() {
    let ops: [fn(Remote) -> SendOp; 3] = [
        |remote| SendOp::Write { remote },
        |remote| SendOp::Read { remote },
        |remote| SendOp::FetchAdd { remote, add: 1 },
    ];
    for op in ops {
        let (a, b, wire) = pair();
        let (mr, _memory) = with_a_hole(&b, b.pd, Access::empty());
        let remote = Remote { addr: 0, rkey: mr.rkey };
        a.post(op(remote), &[a.sge(0, 8)]);
        a.post(op(Remote { addr: GONE, ..remote }), &[a.sge(0, 8)]);
        run(&a, &b, &wire);
        let done = a.statuses();
        assert_eq!(done, [WcStatus::Success, WcStatus::RemAccessErr]);
        assert_eq!(b.counter(Counter::AccessNotMapped), 1);
    }
    let (a, b, wire) = pair();
    let (mr, _memory) = with_a_hole(&a, a.pd, Access::empty());
    let local = Sge { addr: GONE, length: 8, lkey: mr.lkey };
    a.post(SendOp::Write { remote: b.remote(0) }, &[local]);
    run(&a, &b, &wire);
    assert_eq!(a.outcomes(), [(WcOpcode::RdmaWrite, WcStatus::LocProtErr)]);
    let (a, b, wire) = pair();
    let (mr, _memory) = with_a_hole(&b, b.pd, Access::empty());
    let local = Sge { addr: GONE, length: 8, lkey: mr.lkey };
    b.post_recv(9, &[local]);
    a.post(SendOp::Send, &[a.sge(0, 8)]);
    run(&a, &b, &wire);
    assert_eq!(b.outcomes(), [(WcOpcode::Recv, WcStatus::LocProtErr)]);
    assert_eq!(a.outcomes(), [(WcOpcode::Send, WcStatus::RemOpErr)]);
}
