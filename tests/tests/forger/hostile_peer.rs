//! The hostile peer, which attacks each service in each state.

use std::sync::Arc;

use urxe_stack::cq::{WcOpcode, WcStatus};
use urxe_stack::device::{DeviceConfig, QpHandle};
use urxe_stack::memory::{Access, Mr};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpState, QpType};
use urxe_stack::qp::work_request::{
    Destination, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::rng::Rng;
use urxe_stack::srq::xrcd::XrcdFlags;
use urxe_stack::srq::{Srq, XrcSrqInit};
use urxe_test_support::host::{A, B, Host, HostOptions};
use urxe_test_support::qp::{FIRST_PSN, REMOTE, attributes, datagram_attributes, request};
use urxe_test_support::wire::{PacketRun, Wire};
use urxe_wire::{Gid, Kind, Lkey, PacketView, Psn, QKey, Qpn, ROCE_PORT, Syndrome};

use super::forge::{Hostile, forge};
use super::{CALL_BYTES, FORGED, MEMORY, OPEN, RECEIVES, number, seed};

/// The states of all services.
const STATES: [QpState; 6] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err];
/// The services, and the states of each beyond [`STATES`].
const SERVICES: [(QpType, &[QpState]); 5] = [
    (QpType::Rc, &[]),
    (QpType::Uc, &[QpState::Sqe]),
    (QpType::Ud, &[QpState::Sqe]),
    (QpType::XrcSend, &[]),
    (QpType::XrcRecv, &[]),
];
/// The most packets to one target.
const PACKETS: u64 = 2_000;
/// The Q_Key of datagrams.
const QKEY: QKey = QKey(0x1234);

/// A queue pair, and the knowledge of its hostile peer.
struct Target {
    host: Host,
    qp: QpHandle,
    state: QpState,
    /// The shared receive queue of an XRC target.
    srq: Option<Arc<Srq>>,
    qp_type: QpType,
    open: Mr,
    before: Vec<u8>,
    /// The PSN of the next request, as far as the replies tell.
    expected: Psn,
    /// A completion or an event has reported a failure.
    has_reason: bool,
    /// The receives that hostile packets have completed.
    received: u64,
}

impl Target {
    fn new(rng: &mut Rng, qp_type: QpType, state: QpState) -> Self {
        let config = DeviceConfig::new(vec![Gid::from_ip(A.into())], rng.next_u64());
        let access = Access::LOCAL_WRITE | REMOTE | Access::ZERO_BASED;
        let options = HostOptions { memory: MEMORY, access, ..HostOptions::default() };
        let host = Host::with(A.into(), config, options);
        let mut before = vec![0; MEMORY];
        rng.fill(&mut before);
        host.write(0, &before);
        let memory = host.device.memory();
        let open = memory
            .register_buffer(host.pd, &Arc::clone(&host.buffer), OPEN, 0, access)
            .expect("a region");
        let (qp, srq) = queue_pair(&host, qp_type);
        let target = Self {
            host,
            qp,
            state,
            srq,
            qp_type,
            open,
            before,
            expected: FIRST_PSN,
            has_reason: false,
            received: 0,
        };
        target.prepare();
        target
    }

    /// Brings the queue pair to its state, with work requests where the state allows them.
    fn prepare(&self) {
        let Self { host, qp, state, qp_type, .. } = self;
        if *state == QpState::Reset {
            return;
        }
        let attr = match qp_type {
            QpType::Ud => datagram_attributes(QKEY),
            _ => attributes(B.into(), Qpn::masked(0x77)),
        };
        let to = if STATES[..3].contains(state) { *state } else { QpState::Rts };
        host.bring_up((*qp, *qp_type), &attr, to);
        (0..8).for_each(|wr_id| self.post_receive(wr_id));
        let is_reliable = matches!(qp_type, QpType::Rc | QpType::XrcSend);
        if to == QpState::Rts && is_reliable {
            let remote = Remote { addr: 0, rkey: self.open.rkey };
            let half = (RECEIVES.len() / 2) as u32;
            let at = u64::from(RECEIVES.start as u32 + half);
            self.post(SendOp::Read { remote }, host.sge(at, half));
            self.post(SendOp::Send, host.sge(0, 3_000));
        }
        match state {
            QpState::Sqe => {
                self.post(SendOp::Send, Sge { lkey: Lkey(0xdead), ..host.sge(0, 8) });
            }
            _ if to != *state => host.go_to(*qp, *state),
            _ => {}
        }
        host.transmit(&Wire::default());
        assert_eq!(host.state(*qp), *state, "{qp_type}");
        let _ = (host.statuses(), host.events());
    }

    fn post_receive(&self, wr_id: u64) {
        let sges = [self.host.sge(RECEIVES.start as u64, (RECEIVES.len() / 2) as u32)];
        match &self.srq {
            Some(srq) => srq.post(&[RecvRequest { wr_id, sges: &sges }]).expect("taken"),
            // No receives belong to a queue pair that only sends.
            None if self.qp_type == QpType::XrcSend => {}
            None => self.host.post_recv_on(self.qp, wr_id, &sges),
        }
    }

    fn post(&self, op: SendOp, sge: Sge) {
        let host = &self.host;
        let to = match self.qp_type {
            QpType::Ud => {
                let qpn = Qpn::masked(0x77);
                Destination::Datagram { ah: host.ah(B.into()), qpn, qkey: QKEY }
            }
            QpType::XrcSend => Destination::XrcSrq { srq: urxe_stack::cq::SrqId(1) },
            _ => Destination::Peer,
        };
        let sges = [sge];
        let request = SendRequest { to, flags: SendFlags::SIGNALED, ..request(op, &sges) };
        host.post_request(self.qp, &request).expect("taken");
    }

    /// Returns the fields of the next packet.
    fn hostile(&self, rng: &mut Rng) -> Hostile {
        let near = match rng.below(10) {
            0 => rng.next_u32(),
            1..4 => FIRST_PSN.value().wrapping_add(rng.below(16) as u32),
            _ => self.expected.value().wrapping_add(rng.below(3) as u32),
        };
        let va = match rng.below(4) {
            0 => rng.next_u64(),
            _ => rng.below(OPEN.len() as u64 + 64).wrapping_sub(32),
        };
        let key = if rng.below(8) == 0 { rng.next_u32() } else { self.open.rkey.0 };
        let len = rng.next_u32() >> rng.below(32);
        let srq = self.srq.as_ref().filter(|_| rng.below(8) != 0).map(|srq| srq.id().0);
        Hostile {
            psn: near & 0xff_ffff,
            from_port: if rng.below(8) == 0 { rng.next_u32() as u16 } else { ROCE_PORT },
            dest_qp: self.qp.qpn().value(),
            service: Hostile::service(self.qp_type),
            srq: srq.unwrap_or_else(|| rng.next_u32()),
            qkey: if rng.below(8) == 0 { rng.next_u32() } else { QKEY.0 },
            target: Some((key, va, len)),
        }
    }

    /// Sends a hostile packet.
    fn attack(&mut self, rng: &mut Rng, wire: &Wire) {
        let hostile = self.hostile(rng);
        let packet = forge(rng, B.into(), A.into(), hostile);
        let host = &self.host;
        host.clock.advance(rng.below(1_000_000));
        wire.deliver(&host.device, host.clock.now(), &packet);
        host.device.handle_timeouts(host.clock.now());
        host.transmit(wire);
        let sent = wire.take();
        let bytes: usize = sent.iter().map(|run| run.bytes.len()).sum();
        assert!(bytes <= CALL_BYTES, "{bytes} bytes in one call");
        for bytes in sent.iter().flat_map(PacketRun::segments) {
            let reply = PacketView::parse(bytes).expect("the device sends valid packets");
            if let (Kind::Ack, Some(aeth)) = (reply.info().kind, reply.aeth()) {
                let done = matches!(aeth.syndrome, Syndrome::Ack(_));
                self.expected = if done { reply.psn().next() } else { reply.psn() };
            }
        }
        let events = host.events();
        for done in host.completions() {
            if done.status != WcStatus::Success {
                self.has_reason = true;
            } else if matches!(done.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
                self.received += 1;
                self.post_receive(done.wr_id);
            }
        }
        self.has_reason |= !events.is_empty();
    }

    fn has_failed(&self) -> bool {
        self.state != QpState::Err && self.host.state(self.qp) == QpState::Err
    }

    /// Checks the memory, and the reason of a failure.
    fn check(&self) {
        let after = self.host.bytes(0, MEMORY);
        for (at, (before, after)) in self.before.iter().zip(&after).enumerate() {
            let may_change = OPEN.contains(&at) || RECEIVES.contains(&at);
            assert!(may_change || before == after, "byte {at} has changed");
        }
        assert!(!self.has_failed() || self.has_reason, "failed without a completion or an event");
    }
}

/// Returns the queue pair of a service, and the shared receive queue of an XRC target.
fn queue_pair(host: &Host, qp_type: QpType) -> (QpHandle, Option<Arc<Srq>>) {
    if qp_type != QpType::XrcRecv {
        return (host.create(&QpInit { qp_type, ..host.init() }), None);
    }
    let xrcd = host.device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None)).expect("a domain");
    let qp = host.device.create_xrc_target(&xrcd).expect("a target");
    let init = XrcSrqInit { xrcd, cq: Arc::clone(&host.cq) };
    (qp, Some(host.create_srq(host.pd, 16, Some(init))))
}

#[test]
fn hostile_packets_reach_no_other_memory_and_end_a_connection_for_a_reason() {
    let mut rng = Rng::stream(seed(), 2);
    let (wanted, mut forged) = (number("URXE_FORGED", FORGED), 0);
    let states = |more: &[QpState]| [&STATES, more].concat();
    let mut counts: Vec<_> = SERVICES
        .iter()
        .flat_map(|(service, more)| states(more).into_iter().map(|state| (*service, state)))
        .map(|target| (target, 0, 0))
        .collect();
    let wire = Wire::default();
    while forged < wanted {
        // The target with the fewest packets so far, because connections in RTS soon end.
        let ((qp_type, state), packets, failed) =
            counts.iter_mut().min_by_key(|(_, packets, _)| *packets).expect("a target");
        let mut target = Target::new(&mut rng, *qp_type, *state);
        let mut sent = 0;
        while sent < PACKETS && !target.has_failed() {
            target.attack(&mut rng, &wire);
            sent += 1;
        }
        target.check();
        (*packets, *failed) = (*packets + sent, *failed + u64::from(target.has_failed()));
        forged += sent;
    }
    for ((qp_type, state), packets, failed) in &counts {
        println!("{qp_type} in {state}: {packets} packets of a hostile peer, {failed} ended");
    }
    assert!(
        counts.iter().all(|(_, packets, _)| *packets > 0),
        "each service and state: {counts:?}"
    );
}
