//! The off-path attacker: no forged packet has a PSN that the connection could have.

use std::sync::Arc;

use urxe_stack::cq::WcStatus;
use urxe_stack::device::QpHandle;
use urxe_stack::device::counters::Counter;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpState, QpType};
use urxe_stack::qp::work_request::{Destination, RecvRequest, SendOp, SendRequest};
use urxe_stack::rng::Rng;
use urxe_stack::srq::xrcd::XrcdFlags;
use urxe_stack::srq::{Srq, XrcSrqInit};
use urxe_test_support::host::{A, B, Host, pair, run};
use urxe_test_support::qp::{FIRST_PSN, request};
use urxe_test_support::wire::Wire;
use urxe_wire::ROCE_PORT;

use super::forge::{Hostile, MTU, forge, on_the_wire};
use super::{FORGED, number, seed};

/// The distance of the attacker's PSNs from those of the connection. A connection of the test has
/// far fewer packets.
const PLAUSIBLE: u32 = 200_000;
/// The honest operations of a connection, after which another one begins.
const OPERATIONS: u32 = 200;
/// Counters that stay at 0 without loss.
const RETRANSMISSIONS: [Counter; 4] = [
    Counter::CompleterRetryErr,
    Counter::SendSeqErr,
    Counter::ReorderBuffered,
    Counter::RcvdSeqErr,
];
/// The packets of an attack.
const BURST: u64 = 8;

/// A connection whose program at `a` sends to `b`.
struct Connection {
    a: Host,
    b: Host,
    wire: Wire,
    qps: [QpHandle; 2],
    service: QpType,
    /// The queue that takes the receives of an XRC connection.
    srq: Option<Arc<Srq>>,
}

impl Connection {
    fn new(service: QpType) -> Self {
        let (a, b, wire) = pair();
        if service == QpType::Rc {
            let qps = [a.qp, b.qp];
            return Self { a, b, wire, qps, service, srq: None };
        }
        let xrcd = b.device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None)).expect("a domain");
        let to = b.device.create_xrc_target(&xrcd).expect("a target");
        let init = XrcSrqInit { xrcd, cq: Arc::clone(&b.cq) };
        let srq = Some(b.create_srq(b.pd, 16, Some(init)));
        let from = a.create(&QpInit { qp_type: QpType::XrcSend, ..a.init() });
        a.connect_as(QpType::XrcSend, from, to.qpn(), B);
        b.connect_as(QpType::XrcRecv, to, from.qpn(), A);
        Self { a, b, wire, qps: [from, to], service, srq }
    }

    fn srq(&self) -> u32 {
        self.srq.as_ref().map_or(0, |srq| srq.id().0)
    }

    fn post(&self, op: SendOp, offset: u64, len: u32) {
        let to = match &self.srq {
            Some(srq) => Destination::XrcSrq { srq: srq.id() },
            None => Destination::Peer,
        };
        let sges = [self.a.sge(offset, len)];
        let request = SendRequest { to, ..request(op, &sges) };
        self.a.post_request(self.qps[0], &request).expect("taken");
    }

    fn post_recv(&self, wr_id: u64, offset: u64, len: u32) {
        let sges = [self.b.sge(offset, len)];
        match &self.srq {
            Some(srq) => srq.post(&[RecvRequest { wr_id, sges: &sges }]).expect("taken"),
            None => self.b.post_recv(wr_id, &sges),
        }
    }

    /// The first packets teach the ports.
    fn teach_ports(&self) {
        self.post(SendOp::Write { remote: self.b.remote(0) }, 0, 1);
        run(&self.a, &self.b, &self.wire);
        assert_eq!(self.a.statuses(), [WcStatus::Success]);
        if self.service == QpType::Rc {
            self.b.post(SendOp::Write { remote: self.a.remote(0) }, &[self.b.sge(0, 1)]);
            run(&self.a, &self.b, &self.wire);
            assert_eq!(self.b.statuses(), [WcStatus::Success]);
        }
    }

    /// Starts a random operation of the program at `a`: its kind, its length and its place.
    fn operate(&self, rng: &mut Rng, wr_id: u64) -> (SendOp, usize, u64) {
        let len = 1 + rng.index(4 * MTU);
        let at = rng.below(1 << 18);
        let remote = self.b.remote(at);
        let op = match rng.below(3) {
            0 => SendOp::Send,
            1 => SendOp::Write { remote },
            _ => SendOp::Read { remote },
        };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        match op {
            SendOp::Read { .. } => self.b.write(at as usize, &bytes),
            _ => self.a.write(1 << 19, &bytes),
        }
        if op == SendOp::Send {
            self.post_recv(wr_id, at, len as u32);
        }
        self.post(op, 1 << 19, len as u32);
        (op, len, at)
    }

    /// Sends forged packets to one end, whose PSNs the attacker does not know. Returns the number
    /// of bytes.
    fn attack(&self, rng: &mut Rng, victim: usize) -> usize {
        let hosts = [&self.a, &self.b];
        let (host, peer) = (hosts[victim], hosts[1 - victim].address);
        let wire = Wire::default();
        let mut bytes = 0;
        for _ in 0..BURST {
            let others = (1 << 24) - 2 * u64::from(PLAUSIBLE);
            let psn = FIRST_PSN.value() + PLAUSIBLE + rng.below(others) as u32;
            let from_port = if rng.below(2) == 0 { ROCE_PORT } else { rng.next_u32() as u16 };
            let target = (rng.next_u32(), rng.below(1 << 40), rng.next_u32() >> rng.below(32));
            let hostile = Hostile {
                psn: psn & 0xff_ffff,
                from_port,
                dest_qp: self.qps[victim].qpn().value(),
                service: Hostile::service(self.service),
                srq: if rng.below(8) == 0 { rng.next_u32() } else { self.srq() },
                target: Some(target),
                ..Hostile::default()
            };
            let packet = forge(rng, peer, host.address, hostile);
            bytes += on_the_wire(&packet);
            wire.deliver(&host.device, host.clock.now(), &packet);
        }
        bytes
    }

    /// Moves packets until both hosts have nothing more to send, with attacks in between. Returns
    /// the number of forged packets.
    fn run_under_attack(&self, rng: &mut Rng) -> u64 {
        let (a, b, wire) = (&self.a, &self.b, &self.wire);
        let mut forged = 0;
        loop {
            for victim in [0, 1] {
                if rng.below(2) == 0 {
                    self.attack(rng, victim);
                    forged += BURST;
                }
            }
            a.transmit(wire);
            b.transmit(wire);
            let Some(packets) = wire.pop() else { return forged };
            let receiver = if packets.to == a.address { a } else { b };
            wire.deliver(&receiver.device, receiver.clock.now(), &packets);
        }
    }

    /// Checks that nothing happened to the connection.
    fn check(&self) {
        for (host, qp) in [&self.a, &self.b].into_iter().zip(self.qps) {
            assert_eq!(host.state(qp), QpState::Rts);
            assert_eq!(host.events(), []);
            for counter in RETRANSMISSIONS {
                assert_eq!(host.counter(counter), 0, "{}", counter.name());
            }
        }
    }
}

/// Attacks connections of a service. Returns the number of forged packets, at least `wanted`.
fn attack_connections(rng: &mut Rng, service: QpType, wanted: u64) -> u64 {
    let mut forged = 0;
    while forged < wanted {
        let connection = Connection::new(service);
        connection.teach_ports();
        let Connection { a, b, wire, .. } = &connection;
        for wr_id in 0..OPERATIONS.into() {
            let (op, len, at) = connection.operate(rng, wr_id);
            forged += connection.run_under_attack(rng);
            assert_eq!(a.statuses(), [WcStatus::Success], "{op:?}");
            let received = b.statuses();
            let is_send = op == SendOp::Send;
            assert!(received == vec![WcStatus::Success; is_send.into()], "{op:?}: {received:?}");
            assert!(a.bytes(1 << 19, len) == b.bytes(at as usize, len), "{op:?} of {len} bytes");
            // Nothing is pending, so all packets are a reaction.
            let received = connection.attack(rng, 1);
            forged += BURST;
            b.transmit(wire);
            let reaction: usize = wire.take().iter().map(on_the_wire).sum();
            assert!(reaction <= received, "{reaction} bytes for {received}");
            a.clock.advance(10_000);
            b.clock.set(a.clock.now());
        }
        connection.check();
    }
    forged
}

#[test]
fn an_attacker_without_the_psn_changes_nothing() {
    let mut rng = Rng::stream(seed(), 1);
    let wanted = number("URXE_FORGED", FORGED) / 2;
    for (service, name) in [(QpType::Rc, "RC"), (QpType::XrcSend, "XRC")] {
        let forged = attack_connections(&mut rng, service, wanted);
        println!("{forged} packets of an off-path attacker to {name} in RTS");
    }
}
