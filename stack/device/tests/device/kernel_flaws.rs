//! Flaws that were published for the kernel's RDMA drivers, each repeated against a device.
//! SECURITY.md has the list.

use std::sync::mpsc;
use std::time::Duration;

use urxe_device::srq::{SrqAttr, SrqInit};
use urxe_test_support::packet::{request as packet, reth, send_only, write_only};
use urxe_types::port::{Run, SendOutcome, Transmit};
use urxe_types::rng::Rng;
use urxe_wire::{Ext, ImmDt, NakCode, Opcode, Reth, Syndrome};

use super::*;

const PSN: u32 = qp::FIRST_PSN.value();

/// Delivers `packets` of host [`B`] to a queue pair of `host`, as one run.
fn deliver(host: &Host, to: Qpn, packets: impl IntoIterator<Item = Packet>) {
    let run = Packet::merge(B.into(), A.into(), packets.into_iter().map(|packet| (to, packet)));
    Wire::default().deliver(&host.device, host.clock.now(), &run);
}

/// Returns a host whose peer is the test.
fn victim() -> Host {
    let host = Host::new(A, 1);
    host.connect_qp(host.qp, Qpn::masked(7), B);
    host
}

/// Returns the syndrome of the only packet that a host sends now.
fn reply(host: &Host) -> Option<Syndrome> {
    let wire = Wire::default();
    host.transmit(&wire);
    let runs = wire.take();
    let mut packets = runs.iter().flat_map(PacketRun::packets);
    let syndrome = packets.next().and_then(|packet| packet.aeth()).map(|aeth| aeth.syndrome);
    assert!(packets.next().is_none(), "one packet at most");
    syndrome
}

/// CVE-2026-46133 (an opcode without a table row), CVE-2026-46043 (a pad beyond the payload) and
/// CVE-2026-46114 (an ATOMIC WRITE without a value), with a valid ICRC.
#[test]
fn packets_that_crashed_kernels_are_dropped_and_counted() {
    let host = victim();
    let bytes = |opcode: u8, flags: u8, len: usize, to: Qpn| {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&[opcode, flags, 0xff, 0xff]);
        bytes[9..12].copy_from_slice(&PSN.to_be_bytes()[1..]);
        let mut run = PacketRun::new(B.into(), A.into(), bytes, len);
        run.readdress(to);
        run
    };
    let own = host.qp.qpn();
    let shapes = [
        (Opcode::RcSendOnly.byte(), 0x30, 16, own),
        (Opcode::RcAtomicWrite.byte(), 0, 32, own),
        (0xff, 0, 48, Qpn::MULTICAST),
        (0xff, 0, 48, own),
    ];
    for ((opcode, flags, len, to), count) in shapes.into_iter().zip(1..) {
        let run = bytes(opcode, flags, len, to);
        Wire::default().deliver(&host.device, host.clock.now(), &run);
        assert_eq!(host.counter(Counter::DropMalformed), count, "{opcode:#x}, {len} bytes");
    }
    assert_eq!(host.counter(Counter::RcvdPkts), 0);
    host.post_recv(1, &[host.sge(0, 8)]);
    deliver(&host, own, [send_only(PSN, b"alive")]);
    assert_eq!(host.statuses(), [WcStatus::Success]);
}

/// CVE-2026-46114: the length of the RETH is 0, and the packet has a value.
#[test]
fn an_atomic_write_of_length_0_is_refused_and_changes_nothing() {
    for len in [0, 4, 16] {
        let host = victim();
        let (va, rkey) = (host.mr.iova, host.mr.rkey);
        let word = packet(Opcode::RcAtomicWrite, PSN, reth(va, rkey, len), &[1; 8]);
        deliver(&host, host.qp.qpn(), [word]);
        assert_eq!(reply(&host), Some(Syndrome::Nak(NakCode::InvalidRequest)), "{len}");
        assert_eq!(host.bytes(0, 16), [0; 16]);
    }
}

/// A wire that refuses a third of the runs.
struct Unwilling<'a> {
    wire: &'a Wire,
    rng: Mutex<Rng>,
}

impl Transmit for Unwilling<'_> {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let refuses = self.rng.lock().unwrap().below(3) == 0;
        if refuses { SendOutcome::Dropped } else { self.wire.transmit(run) }
    }
}

/// CVE-2023-53539: the system refuses a packet, and the packet that is sent in its place must have
/// the same bytes, from whichever entry of the scatter-gather list.
#[test]
fn packets_that_the_port_refuses_are_sent_again_unchanged() {
    const LEN: usize = 9000;
    let mut refused = 0;
    for seed in 0..40 {
        let (a, b, wire) = pair();
        let port = Unwilling { wire: &wire, rng: Mutex::new(Rng::new(seed)) };
        let data = pattern(2 * LEN);
        a.write(0, &data);
        for message in 0..2 {
            let at = (message * LEN) as u64;
            b.post_recv(message as u64, &[b.sge(at, LEN as u32)]);
            a.post(SendOp::Send, &[a.sge(at, 2500), a.sge(at + 2500, 1), a.sge(at + 2501, 6499)]);
        }
        let mut sent = Vec::new();
        for _ in 0..100 {
            a.device.transmit_pending(a.clock.now(), &port);
            while let Some(run) = wire.pop() {
                let to = if run.to == a.address { &a } else { &b };
                wire.deliver(&to.device, to.clock.now(), &run);
                b.transmit(&wire);
            }
            sent.extend(a.statuses());
            let Some(at) = a.device.next_deadline().filter(|_| sent.len() < 2) else { break };
            a.clock.set(at.max(a.clock.now()));
            b.clock.set(a.clock.now());
            a.device.handle_timeouts(a.clock.now());
            b.device.handle_timeouts(b.clock.now());
        }
        assert_eq!(sent, [WcStatus::Success; 2], "seed {seed}");
        refused += a.counter(Counter::SendErr);
        assert_eq!(b.statuses(), [WcStatus::Success; 2]);
        assert!(b.bytes(0, 2 * LEN) == data, "seed {seed}: other bytes arrived");
    }
    assert!(refused > 100, "{refused} packets");
}

/// CVE-2022-49929: a WRITE with immediate data finds no receive, and the region must not stay in
/// use.
#[test]
fn a_region_is_deregistered_after_an_rnr_nak() {
    let host = victim();
    let (va, rkey) = (host.mr.iova, host.mr.rkey);
    let imm = Ext::RethImm(Reth { va, rkey, dma_len: 8 }, ImmDt { data: 9 });
    let with_imm = packet(Opcode::RcWriteOnlyImm, PSN + 1, imm, &[2; 8]);
    // The first request, of the same run, pins the region.
    deliver(&host, host.qp.qpn(), [write_only(PSN, va, rkey, &[1; 12]), with_imm]);
    assert_eq!(host.counter(Counter::SendRnrErr), 1);
    assert_eq!(host.bytes(0, 12), [1; 12]);
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let deregistered = host.device.memory().deregister(host.mr.lkey);
        done.send(deregistered).expect("the test waits");
    });
    let deregistered = wait.recv_timeout(Duration::from_secs(10));
    assert_eq!(deregistered.expect("the region is not in use"), Ok(()));
}

/// CVE-2022-50127, CVE-2026-45852 and CVE-2025-38024: an object is not created, and the parts that
/// exist by then must be freed once.
#[test]
fn a_refused_creation_leaves_nothing_behind() {
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    (config.limits.max_qp, config.limits.max_cq, config.limits.max_srq) = (2, 2, 1);
    let device = Device::new(config);
    let (pd, other_pd) = (device.alloc_pd().unwrap(), device.alloc_pd().unwrap());
    device.dealloc_pd(other_pd).unwrap();
    let cq = device.create_cq(4, None, 0).unwrap();
    let gone = device.create_cq(4, None, 0).unwrap();
    gone.destroy().unwrap();
    let good = qp::init(QpType::Ud, pd, &cq);
    let gsi = device.create_qp(&qp::init(QpType::Gsi, pd, &cq)).unwrap();
    for _ in 0..100 {
        assert!(device.create_qp(&qp::init(QpType::Ud, other_pd, &cq)).is_err());
        let recv_cq = Arc::clone(&gone);
        let on_gone = QpInit { recv_cq, ..qp::init(QpType::Ud, pd, &cq) };
        assert!(device.create_qp(&on_gone).is_err());
        assert!(device.create_qp(&qp::init(QpType::Gsi, pd, &cq)).is_err(), "the second QP1");
        let attr = SrqAttr { max_wr: 0, max_sge: 1, srq_limit: 0 };
        assert!(device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 }).is_err());
        let attr = SrqAttr { max_wr: 1, ..attr };
        let in_other = SrqInit { pd: other_pd, attr, xrc: None, context: 0 };
        assert!(device.create_srq(&in_other).is_err());
        assert!(device.create_cq(0, None, 0).is_err());
    }
    // The one free queue pair and the one shared receive queue are there.
    let qp = device.create_qp(&good).unwrap();
    assert!(matches!(device.create_qp(&good), Err(CreateQpError::NoneLeft { allowed: 2 })));
    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let srq = device.create_srq(&SrqInit { pd, attr, xrc: None, context: 0 }).unwrap();
    for qp in [qp, gsi] {
        device.destroy_qp(Time::ZERO, qp).unwrap();
    }
    device.destroy_srq(&srq).unwrap();
    cq.destroy().expect("no refused queue pair uses it");
    device.dealloc_pd(pd).expect("no refused object is in it");
}

/// CVE-2026-45910, CVE-2025-40061 and CVE-2025-39695: a queue pair is destroyed while its timer
/// runs and packets for it are on their way. Another queue pair takes its place in the table.
#[test]
fn timers_and_packets_of_a_destroyed_queue_pair_reach_no_later_one() {
    let mut config = DeviceConfig::new(vec![Gid::from_ip(A.into())], 1);
    config.limits.max_qp = 1;
    let host = Host::with(A.into(), config, HostOptions::default());
    let mut qp = host.qp;
    for _ in 0..8 {
        host.connect_qp(qp, Qpn::masked(7), B);
        host.post_on(qp, SendOp::Write { remote: host.remote(0) }, &[host.sge(0, 8)]);
        host.transmit(&Wire::default());
        assert!(host.device.next_deadline().is_some(), "its timer runs");
        host.device.destroy_qp(host.clock.now(), qp).unwrap();
        let next = host.create_qp();
        assert_ne!(next.qpn(), qp.qpn());
        host.connect_qp(next, Qpn::masked(7), B);
        host.post_recv_on(next, 1, &[host.sge(0, 8)]);
        let before = host.counter(Counter::DropNoQp);
        deliver(&host, qp.qpn(), [send_only(PSN, b"to the former")]);
        assert_eq!(host.counter(Counter::DropNoQp), before + 1);
        host.clock.advance(3600 * 1_000_000_000);
        host.device.handle_timeouts(host.clock.now());
        assert_eq!(host.statuses(), []);
        assert_eq!(host.state(next), QpState::Rts);
        host.device.destroy_qp(host.clock.now(), next).unwrap();
        qp = host.create_qp();
    }
}
