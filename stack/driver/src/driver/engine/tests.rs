//! Two engines of one process talk over loopback, each on its own address. [`sharing`] has several
//! engines on one address.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use urxe_test_support::qp::{self, address_vector, attributes, bring_up_by, request};
use urxe_wire::{Psn, Qpn};

use super::*;
use crate::cq::{ArmKind, CompletionChannel, WcStatus};
use crate::device::counters::Counter;
use crate::memory::{Access, Buffer, Mr, PdId};
use crate::qp::QpInit;
use crate::qp::attr::{PathMtu, QpState, QpType};
use crate::qp::work_request::{Destination, Remote, SendFlags, SendOp, Sge};

mod background;
mod loopback;
mod multicast;
mod panics;
mod rings;
mod sharing;
mod waits;

fn open(address: Ipv4Addr, config: EngineConfig) -> Result<Engine, OpenEngineError> {
    Engine::open(&format!("rxe0={address}").parse().unwrap(), config)
}

struct End {
    engine: Engine,
    cq: Arc<Cq>,
    channel: Arc<CompletionChannel>,
    descriptor: Arc<EventDescriptor>,
    qp: QpHandle,
    buffer: Arc<Buffer>,
    mr: Mr,
}

const SIZE: usize = 4 << 20;

impl End {
    fn new(address: Ipv4Addr, config: EngineConfig) -> Self {
        let engine = open(address, config).unwrap();
        let device = engine.device();
        let pd = device.alloc_pd().unwrap();
        let descriptor = Arc::new(EventDescriptor::new().unwrap());
        let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&descriptor))));
        let cq = device.create_cq(256, Some(Arc::clone(&channel)), 0).unwrap();
        let init = QpInit { sq_sig_all: true, ..qp::init(QpType::Rc, pd, &cq) };
        let qp = device.create_qp(&init).unwrap();
        let buffer = Arc::new(Buffer::new(SIZE).unwrap());
        let mr = register(device, pd, &buffer);
        Self { engine, cq, channel, descriptor, qp, buffer, mr }
    }

    fn connect(&self, peer: Qpn, peer_ip: IpAddr) {
        let attr = QpAttr {
            path_mtu: PathMtu::Mtu4096,
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            ..attributes(peer_ip, peer)
        };
        bring_up_by(QpType::Rc, &attr, QpState::Rts, |attr, mask| {
            self.engine.modify_qp(self.qp, attr, mask)
        })
        .unwrap();
    }

    fn post(&self, op: SendOp, len: u32) {
        let sges = [Sge { addr: self.mr.iova, length: len, lkey: self.mr.lkey }];
        let request = SendRequest { wr_id: 1, ..request(op, &sges) };
        self.engine.post_send(self.qp, &[request]).unwrap();
    }

    fn recv(&self, len: u32) {
        let sges = [Sge { addr: self.mr.iova, length: len, lkey: self.mr.lkey }];
        self.engine.post_recv(self.qp, &[RecvRequest { wr_id: 2, sges: &sges }]).unwrap();
    }

    /// Returns the next completion. Calls `pause` after each poll without one.
    fn completion(&self, pause: impl Fn()) -> Completion {
        let (start, mut out) = (Instant::now(), [Completion::default(); 1]);
        while self.engine.poll(&self.cq, &mut out).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "no completion");
            pause();
        }
        out[0]
    }

    fn poll_one(&self) -> Completion {
        let completion = self.completion(|| ());
        assert_eq!(completion.status, WcStatus::Success);
        completion
    }

    /// Expects that a message to a peer that has ended fails.
    fn send_fails(&self) {
        self.post(SendOp::Send, 64);
        let completion = self.completion(|| std::thread::sleep(Duration::from_millis(1)));
        assert_eq!(completion.status, WcStatus::RetryExcErr);
    }

    fn fill(&self, data: &[u8]) {
        self.buffer.write(0, data).unwrap();
    }

    fn holds(&self, data: &[u8], what: &str) {
        let mut got = vec![0; data.len()];
        self.buffer.read(0, &mut got).unwrap();
        assert!(got == data, "{what}");
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.engine.device().counters().value(counter)
    }

    fn remote(&self) -> Remote {
        Remote { addr: self.mr.iova, rkey: self.mr.rkey }
    }

    fn no_losses(&self) {
        for counter in [Counter::CompleterRetryErr, Counter::OutOfSeqRequest, Counter::DropIcrc] {
            assert_eq!(self.counter(counter), 0, "{}", counter.name());
        }
    }
}

fn register(device: &Device, pd: PdId, buffer: &Arc<Buffer>) -> Mr {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    device.memory().register_buffer(pd, buffer, 0..buffer.len(), 0, access).unwrap()
}

fn address(net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 47, net, host)
}

fn pair(net: u8, config: &EngineConfig) -> (End, End) {
    pair_of(net, [config.clone(), config.clone()])
}

fn pair_of(net: u8, [config_a, config_b]: [EngineConfig; 2]) -> (End, End) {
    let (ip_a, ip_b) = (address(net, 1), address(net, 2));
    let (a, b) = (End::new(ip_a, config_a), End::new(ip_b, config_b));
    a.connect(b.qp.qpn(), ip_b.into());
    b.connect(a.qp.qpn(), ip_a.into());
    (a, b)
}

/// The default configuration, but devices of this process talk over sockets, as those of two
/// processes do.
fn over_sockets() -> EngineConfig {
    EngineConfig { direct: false, ..EngineConfig::default() }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 253) as u8 ^ (i as u8).wrapping_mul(31) ^ seed).collect()
}

#[test]
fn a_large_write_and_a_read_complete_without_a_poll_of_the_target() {
    let (a, b) = pair(1, &over_sockets());
    let data = pattern(SIZE, 3);
    a.fill(&data);
    a.post(SendOp::Write { remote: b.remote() }, SIZE as u32);
    assert_eq!(a.poll_one().wr_id, 1);
    b.holds(&data, "WRITE");
    a.fill(&vec![0; SIZE]);
    a.post(SendOp::Read { remote: b.remote() }, SIZE as u32);
    let _ = a.poll_one();
    a.holds(&data, "READ");
}

#[test]
fn ping_pong_by_polling_and_by_events() {
    let (a, b) = pair(2, &over_sockets());
    b.recv(64);
    for _ in 0..200 {
        a.recv(64);
        a.post(SendOp::Send, 64);
        // Both ends are on this thread: its polls serve both engines.
        for _ in 0..2 {
            b.poll_one_or_send();
        }
        let _ = a.poll_one();
        let _ = a.poll_one();
    }
    a.no_losses();
    b.no_losses();

    a.recv(64);
    assert!(!a.cq.arm(ArmKind::Next));
    b.post(SendOp::Send, 64);
    let event = a.descriptor.take_event(|| a.channel.next_event_for_count()).unwrap();
    assert_eq!(event.cq, a.cq.id());
    a.cq.ack_events(1);
    let _ = a.poll_one();
}

impl End {
    /// Replies to a message that arrived, or takes the completion of the reply.
    fn poll_one_or_send(&self) {
        if self.poll_one().wr_id == 2 {
            self.recv(64);
            self.post(SendOp::Send, 64);
        }
    }
}

/// An acknowledgement that waits for a reply also leaves if there is no reply and no further poll.
#[test]
fn a_program_that_stops_polling_still_acknowledges() {
    let (a, b) = pair(6, &over_sockets());
    for _ in 0..200 {
        b.recv(64);
        // Time for the background threads to fall asleep.
        std::thread::sleep(Duration::from_millis(3));
        a.post(SendOp::Send, 64);
        let _ = b.poll_one();
        let _ = a.poll_one();
    }
    a.no_losses();
}

#[test]
fn without_gso_and_gro_everything_still_works() {
    let config = EngineConfig { gso: false, gro: false, ..over_sockets() };
    let (a, b) = pair(3, &config);
    let data = pattern(300_001, 9);
    a.fill(&data);
    b.recv(300_001);
    a.post(SendOp::SendImm { imm: 77 }, 300_001);
    let _ = a.poll_one();
    assert_eq!(b.poll_one().imm_data(), Some(77));
    b.holds(&data, "SEND");
}

#[test]
fn a_link_that_loses_on_purpose_loses_no_data() {
    let faults = "loss=3%".parse().unwrap();
    let config = EngineConfig { faults, seed: Some(5), ..over_sockets() };
    let (a, b) = pair(21, &config);
    let data = pattern(SIZE, 7);
    a.fill(&data);
    a.post(SendOp::Write { remote: b.remote() }, SIZE as u32);
    let _ = a.poll_one();
    b.holds(&data, "WRITE");
    assert!(b.counter(Counter::DropSimulated) > 0, "a thousand packets");
}

#[test]
fn a_peer_that_is_gone_ends_in_retry_exceeded() {
    let (a, b) = pair(4, &over_sockets());
    drop(b);
    // Before the post: the retry timer starts there, and this thread may lose the processor in
    // between.
    let start = Instant::now();
    a.send_fails();
    // (7 + 1) × 4.096 µs · 2^14 = 537 ms.
    assert!(start.elapsed() >= Duration::from_nanos(8 * (4096 << 14)), "{:?}", start.elapsed());
}

#[test]
fn an_address_in_use_says_which_is_free() {
    let at = address(5, 1);
    let _holder = UdpPort::open(UdpConfig::new(at.into())).unwrap();
    let error = open(at, EngineConfig::default()).unwrap_err();
    assert_eq!(error.errno(), libc::EADDRINUSE);
    assert!(error.to_string().contains("is free"), "{error}");
}
