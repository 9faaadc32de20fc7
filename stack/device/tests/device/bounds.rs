//! The most work of one call under hostile load, and the fair continuation of that work.
//!
//! A READ request, an IPv4 packet of 60 bytes, names up to 2 GiB. Without bounds, one call answered
//! 128 of them with 8,320 MiB.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use urxe_test_support::packet::{ack, read_request, write_only};
use urxe_types::port::{Run, SendOutcome, Transmit};
use urxe_wire::{Opcode, PacketView, Psn, Rkey};

use super::*;

/// The most bytes of a call: its budget, and the run that uses up the budget.
const CALL: u64 = (2 << 20) + (64 << 10);
/// The burst of READ responses on a path.
const BURST: u64 = 2 << 20;
const REGION: usize = 64 << 20;
const MTU: usize = 1024;
const READS: u32 = 128;
const MS: u64 = 1_000_000;

/// A port that counts the bytes to each queue pair.
#[derive(Default)]
struct Meter {
    bytes: AtomicU64,
    to: Mutex<HashMap<Qpn, u64>>,
    last: Mutex<Option<Opcode>>,
}

impl Meter {
    fn to(&self, qpn: Qpn) -> u64 {
        self.to.lock().unwrap().get(&qpn).copied().unwrap_or(0)
    }
}

impl Transmit for Meter {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.bytes.fetch_add(run.bytes.len() as u64, Ordering::Relaxed);
        for packet in run.bytes.chunks(run.segment_size) {
            let view = PacketView::parse(packet).unwrap();
            *self.to.lock().unwrap().entry(view.dest_qp()).or_default() += packet.len() as u64;
            *self.last.lock().unwrap() = Some(view.opcode());
        }
        SendOutcome::Sent
    }
}

/// A host whose peers are the test.
struct Victim {
    host: Host,
    qps: Vec<(QpHandle, Ipv4Addr)>,
    wire: Wire,
    meter: Meter,
}

impl Victim {
    /// Creates a queue pair for each peer.
    fn new(peers: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let options = HostOptions { memory: REGION, ..HostOptions::default() };
        let config = DeviceConfig {
            max_run_segments: 64,
            ..DeviceConfig::new(vec![Gid::from_ip(A.into())], 1)
        };
        let host = Host::with(A.into(), config, options);
        let connect = |(nr, peer): (u32, Ipv4Addr)| {
            let qp = host.create_qp();
            let attr = qp::attributes(peer.into(), Self::peer_qpn(nr));
            let attr = QpAttr { max_dest_rd_atomic: READS as u8, ..attr };
            host.bring_up((qp, QpType::Rc), &attr, QpState::Rts);
            (qp, peer)
        };
        let qps = (0..).zip(peers).map(connect).collect();
        Self { host, qps, wire: Wire::default(), meter: Meter::default() }
    }

    /// Returns the peer's number of queue pair `nr`.
    fn peer_qpn(nr: u32) -> Qpn {
        Qpn::masked(0x1000 + nr)
    }

    fn deliver(&self, nr: usize, packet: Packet) {
        let (qp, peer) = self.qps[nr];
        let run = Packet::merge(peer.into(), A.into(), [(qp.qpn(), packet)]);
        self.wire.deliver(&self.host.device, self.host.clock.now(), &run);
    }

    /// Sends `count` READ requests for `len` bytes each to queue pair `nr`. Returns the next PSN.
    fn read(&self, nr: usize, count: u32, len: usize) -> Psn {
        let mut psn = qp::FIRST_PSN;
        for _ in 0..count {
            let (va, rkey) = (self.host.mr.iova, self.host.mr.rkey);
            self.deliver(nr, read_request(psn.value(), va, rkey, len));
            psn = psn.add(len.div_ceil(MTU) as u32);
        }
        psn
    }

    /// Calls `send`, and returns the bytes that it sent.
    fn sent_by(&self, send: impl FnOnce(&Device, Time, &Meter)) -> u64 {
        let before = self.meter.bytes.load(Ordering::Relaxed);
        send(&self.host.device, self.host.clock.now(), &self.meter);
        self.meter.bytes.load(Ordering::Relaxed) - before
    }

    /// Calls the device at each deadline until `end`, or until there is none. Returns the bytes.
    fn run_until(&self, end: Time) -> u64 {
        let before = self.meter.bytes.load(Ordering::Relaxed);
        loop {
            let sent = self.sent_by(|device, now, meter| device.transmit_pending(now, meter));
            assert!(sent <= CALL, "{sent}");
            let Some(at) = self.host.device.next_deadline().filter(|at| *at <= end) else { break };
            self.host.clock.set(at.max(self.host.clock.now()));
            self.host.device.handle_timeouts(self.host.clock.now());
        }
        self.meter.bytes.load(Ordering::Relaxed) - before
    }
}

/// Returns the address of peer `nr`.
fn peer(nr: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(B.to_bits() + nr)
}

#[test]
fn no_call_sends_more_than_its_budget() {
    type Call = fn(&Device, Time, &Meter, QpHandle);
    let calls: [(&str, Call); 4] = [
        ("transmit_pending", |device, now, meter, _| device.transmit_pending(now, meter)),
        ("transmit_urgent", |device, now, meter, _| device.transmit_urgent(now, meter)),
        ("transmit_of", |device, now, meter, qp| device.transmit_of(qp, now, meter)),
        ("transmit_within", |device, now, meter, _| {
            device.transmit_within(now, meter, 1 << 20);
        }),
    ];
    for peers in [1, 64] {
        for (name, call) in calls {
            let victim = Victim::new((0..peers).map(peer));
            for nr in 0..peers as usize {
                victim.read(nr, READS, REGION);
            }
            let qp = victim.qps[0].0;
            for round in 0..200 {
                let sent = victim.sent_by(|device, now, meter| call(device, now, meter, qp));
                assert!(sent <= CALL, "{name}, {peers} peers, call {round}: {sent}");
                assert!(round > 0 || sent > 1 << 19, "{name}: {sent}");
            }
            // The rest is not forgotten.
            assert!(victim.host.device.next_deadline().is_some(), "{name}");
        }
    }
}

/// A port whose peers acknowledge at once, while other threads post at once, as on the loopback
/// path.
struct Busy<'v> {
    victim: &'v Victim,
    bytes: AtomicU64,
}

impl Busy<'_> {
    fn post(&self, nr: usize) {
        let host = &self.victim.host;
        let sge = Sge { addr: host.mr.iova, length: 4 * MTU as u32, lkey: host.mr.lkey };
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Write { remote: Remote { addr: 0, rkey: Rkey(1) } },
            to: Destination::Peer,
            flags: SendFlags::empty(),
            payload: Payload::Sges(&[sge]),
        };
        // A full queue takes no more.
        let _ = host.post_request(self.victim.qps[nr].0, &request);
    }
}

impl Transmit for Busy<'_> {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let sent = self.bytes.fetch_add(run.bytes.len() as u64, Ordering::Relaxed);
        // Without a budget, the call would not return.
        for packet in run.bytes.chunks(run.segment_size).filter(|_| sent < 8 * CALL) {
            let view = PacketView::parse(packet).unwrap();
            let nr = (view.dest_qp().value() - Victim::peer_qpn(0).value()) as usize;
            self.victim.deliver(nr, ack(view.psn().value()));
            self.post(nr);
        }
        SendOutcome::Sent
    }
}

#[test]
fn posts_of_other_threads_do_not_keep_a_flush_busy() {
    let victim = Victim::new([B; 4]);
    let busy = Busy { victim: &victim, bytes: AtomicU64::new(0) };
    for _ in 0..4 {
        (0..4).for_each(|nr| busy.post(nr));
    }
    let (device, now) = (&victim.host.device, victim.host.clock.now());
    device.transmit_of(victim.qps[0].0, now, &busy);
    let sent = busy.bytes.load(Ordering::Relaxed);
    assert!((1 << 20..=CALL).contains(&sent), "{sent}");
    assert!(device.next_deadline().is_some_and(|at| at <= now), "the rest is not forgotten");
}

#[test]
fn responses_of_a_path_keep_the_rate() {
    let victim = Victim::new([B]);
    victim.read(0, READS, REGION);
    let sent = victim.run_until(Time::from_ns(10 * MS));
    // 100 Gbit/s are 12.5 bytes a nanosecond.
    let at_the_rate = 10 * MS * 125 / 10;
    assert!((at_the_rate..at_the_rate + 2 * BURST).contains(&sent), "{sent}");
}

#[test]
fn a_flooded_queue_pair_leaves_others_of_its_path_their_share() {
    let victim = Victim::new([B; 8]);
    for nr in 0..7 {
        victim.read(nr, READS, REGION);
    }
    // The last queue pair asks for little.
    victim.read(7, 1, 64 << 10);
    victim.run_until(Time::from_ns(MS / 2));
    assert!(victim.meter.to(Victim::peer_qpn(7)) >= 64 << 10, "a READ of 64 KiB after 0.5 ms");
    victim.run_until(Time::from_ns(10 * MS));
    let shares: Vec<u64> = (0..7).map(|nr| victim.meter.to(Victim::peer_qpn(nr))).collect();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(most - least < 3 << 20, "{shares:?}");
}

#[test]
fn a_flood_of_one_peer_does_not_delay_another_peer() {
    let victim = Victim::new((0..2).map(peer));
    victim.read(0, READS, REGION);
    victim.read(1, 1, 64 << 10);
    victim.sent_by(|device, now, meter| device.transmit_pending(now, meter));
    assert!(victim.meter.to(Victim::peer_qpn(1)) >= 64 << 10, "in the first call");
}

/// The responses before the fault were executed (IBTA C9-110), and the NAK follows them.
#[test]
fn a_failed_queue_pair_sends_its_paced_responses_and_then_the_nak() {
    let victim = Victim::new([B]);
    let psn = victim.read(0, 3, 4 << 20);
    let unknown = Rkey(victim.host.mr.rkey.0 ^ 1);
    // The WRITE is not to the memory of the READs, or it would have to follow their responses.
    let other = victim.host.mr.iova + (4 << 20);
    victim.deliver(0, write_only(psn.value(), other, unknown, &[1; 8]));
    let sent = victim.run_until(Time::from_ns(100 * MS));
    assert_eq!(victim.host.state(victim.qps[0].0), QpState::Err);
    assert!(sent > 3 * (4 << 20), "{sent}");
    assert_eq!(*victim.meter.last.lock().unwrap(), Some(Opcode::RcAcknowledge));
    assert_eq!(victim.host.device.next_deadline(), None);
}

#[test]
fn a_call_handles_a_bounded_number_of_timeouts() {
    const QUEUE_PAIRS: u32 = 1000;
    let victim = Victim::new((0..QUEUE_PAIRS).map(peer));
    let host = &victim.host;
    for (qp, _) in &victim.qps {
        host.post_on(*qp, SendOp::Write { remote: host.remote(0) }, &[host.sge(0, 8)]);
    }
    while host.device.transmit_within(host.clock.now(), &victim.meter, 1 << 20) {}
    host.clock.advance(100_000 * MS);
    // All queue pairs send again after this time.
    let handled = || host.device.counters().value(Counter::CompleterRetryErr);
    let mut calls = 0;
    while host.device.next_deadline().is_some_and(|at| at <= host.clock.now()) {
        let before = handled();
        host.device.handle_timeouts(host.clock.now());
        assert!(handled() - before <= 256);
        calls += 1;
    }
    assert!(calls >= QUEUE_PAIRS.div_ceil(256), "{calls}");
    assert_eq!(handled(), QUEUE_PAIRS.into());
}
