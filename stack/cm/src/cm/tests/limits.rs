//! Floods of forged MADs, in virtual time. The sources never answer, and an honest peer connects.
//!
//! | attack | before the limits | test |
//! |---|---|---|
//! | REQs with the longest timeouts | 16,384 half-open connections for 38 h | `half_open…` |
//! | closed connections with the longest TIMEWAIT | 65,536 entries after 2 h | `timewait…` |
//! | SIDR_REQs | no own connection for 17 s | `service_requests…` |
//! | one REQ with a timeout of 4 µs | 17 MADs in 1 ms | `an_unknown_address…` |
//! | all of them, a million from 100,000 sources | not measured | `after_a_million…` |

use std::net::Ipv4Addr;

use urxe_types::rng::Rng;
use urxe_types::time::Time;
use urxe_wire::mad::{
    Attribute, Bits, CmMessage, CommId, Dreq, Mad, Mra, PrivateData, Rej, RejReason, Rep, Req, Rtu,
    SidrRep, SidrReq, TransactionId,
};
use urxe_wire::{Gid, Qpn};

use super::pair::{Pair, SERVICE, Script, manager, path, reply, request, route};
use crate::cm::table::CmState;
use crate::cm::{CmEventKind, CmEviction, CmPath, ConnectionManager};
use crate::test_network::{Fate, SECOND_NS};

/// The limit of half-open connections, and of TIMEWAIT.
const LIMIT: usize = 16_384;
const HOUR_NS: u64 = 3600 * SECOND_NS;

/// A connection manager with a program that accepts everything.
struct Server {
    cm: ConnectionManager,
    now: Time,
    established: usize,
}

impl Server {
    fn new() -> Self {
        let mut cm = manager(1, 7);
        cm.listen(SERVICE, None, 128).unwrap();
        Self { cm, now: Time::ZERO, established: 0 }
    }

    fn path_to(source: u32) -> CmPath {
        let remote = Gid::from_ip(Ipv4Addr::from_bits(source).into());
        CmPath { local: path(1).local, remote }
    }

    /// Returns a REQ of this source, with the exponents of its timeouts.
    fn req(source: u32, n: u32, ack_timeout: u32, response_timeout: u32) -> Req {
        Req {
            local_comm_id: CommId(n),
            primary_local_gid: Self::path_to(source).remote,
            primary_remote_gid: Self::path_to(source).local,
            primary_ack_timeout: Bits::masked(ack_timeout),
            local_cm_response_timeout: Bits::masked(response_timeout),
            ..request(n)
        }
    }

    /// Receives a MAD, lets the program act, and returns the MADs sent.
    fn receive(&mut self, source: u32, tid: u32, message: impl Into<CmMessage>) -> Vec<Mad> {
        let mad = Mad::new(TransactionId(tid.into()), message.into());
        self.cm.receive(self.now, Self::path_to(source), &mad.to_bytes());
        self.act()
    }

    fn act(&mut self) -> Vec<Mad> {
        let Self { cm, now, established } = self;
        while let Some(event) = cm.poll_event() {
            match event.kind {
                CmEventKind::Request { mad, .. } => match mad.message {
                    CmMessage::SidrReq(_) => {
                        let rep = SidrRep { qpn: Qpn::masked(9), ..SidrRep::default() };
                        cm.send_sidr_rep(*now, event.id, rep).unwrap();
                        cm.destroy(*now, event.id).unwrap();
                    }
                    _ => cm.accept(*now, event.id, reply(9), 0).unwrap(),
                },
                CmEventKind::Message(mad) if matches!(mad.message, CmMessage::Rtu(_)) => {
                    *established += 1;
                }
                CmEventKind::Message(mad) if matches!(mad.message, CmMessage::Dreq(_)) => {
                    cm.confirm_disconnect(*now, event.id, PrivateData::NONE).unwrap();
                    cm.destroy(*now, event.id).unwrap();
                }
                CmEventKind::TimedOut(_) | CmEventKind::TimewaitExit => {
                    cm.destroy(*now, event.id).unwrap();
                }
                _ => {}
            }
        }
        std::iter::from_fn(|| cm.poll_transmit())
            .map(|sent| Mad::parse(&sent.mad).unwrap())
            .collect()
    }

    /// Advances the time, and returns the number of MADs sent meanwhile.
    fn run_until(&mut self, end: Time) -> usize {
        let mut sent = 0;
        while let Some(at) = self.cm.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.cm.handle_timeout(self.now);
            sent += self.act().len();
        }
        self.now = end;
        sent
    }

    /// Does the handshake of an honest peer, and returns whether the connection is established.
    fn honest_peer_connects(&mut self, n: u32) -> bool {
        const HONEST: u32 = 0x0a00_0063;
        let before = self.established;
        let sent = self.receive(HONEST, n, Self::req(HONEST, n, 16, 20));
        let Some(CmMessage::Rep(rep)) = sent.first().map(|mad| mad.message) else { return false };
        let ids = (CommId(n), rep.local_comm_id);
        let rtu = Rtu { local_comm_id: ids.0, remote_comm_id: ids.1, ..Rtu::default() };
        self.receive(HONEST, n, rtu);
        self.established == before + 1 && self.cm.state(ids.1) == Some(CmState::Established)
    }

    fn own_connection_begins(&mut self) -> bool {
        let begun = self.cm.connect(self.now, route(1), request(3), 0, false);
        let sent = self.act();
        begun.is_ok() && sent.iter().any(|mad| mad.message.attribute() == Attribute::Req)
    }

    fn states(&self, of: CmState) -> u64 {
        self.cm.states().find(|(state, _)| *state == of).map_or(0, |(_, count)| count)
    }
}

#[test]
fn half_open_connections_of_forged_sources_end_after_minutes_and_lock_no_peer_out() {
    let mut server = Server::new();
    // The longest response timeout that a REQ can state is 2.4 h.
    for n in 1..=LIMIT as u32 + 100 {
        server.receive(0x0b00_0000 + n, n, Server::req(0x0b00_0000 + n, n, 20, 31));
    }
    assert_eq!(server.states(CmState::RepSent), LIMIT as u64);
    assert_eq!(server.cm.counters().evicted(CmEviction::HalfOpen), 100);
    assert!(server.honest_peer_connects(900_000));
    server.run_until(Time::from_ns(300 * SECOND_NS));
    assert_eq!(server.states(CmState::RepSent), 0);
    assert!(server.honest_peer_connects(900_001));
}

#[test]
fn a_source_with_many_half_open_connections_evicts_its_own() {
    let mut server = Server::new();
    server.receive(0x0c00_0001, 1, Server::req(0x0c00_0001, 1, 16, 20));
    for n in 2..=2 * LIMIT as u32 {
        server.receive(0x0b00_0001, n, Server::req(0x0b00_0001, n, 20, 31));
    }
    let first = server.receive(0x0c00_0001, 1, Server::req(0x0c00_0001, 1, 16, 20));
    assert!(matches!(first[0].message, CmMessage::Rep(_)), "the older entry of another source");
    assert_eq!(server.states(CmState::RepSent), LIMIT as u64);
}

#[test]
fn timewait_lasts_seconds_and_leaves_room_for_own_connections() {
    let mut server = Server::new();
    let source = 0x0b00_0001;
    for n in 1..=65_536u32 {
        // The longest ACK timeout that a REQ can state is 2.4 h.
        let sent = server.receive(source, n, Server::req(source, n, 31, 20));
        let Some(CmMessage::Rep(rep)) = sent.first().map(|mad| mad.message) else {
            panic!("connection {n}: {sent:?}")
        };
        let (local_comm_id, remote_comm_id) = (CommId(n), rep.local_comm_id);
        server.receive(source, n, Rtu { local_comm_id, remote_comm_id, ..Rtu::default() });
        let remote_qpn = rep.local_qpn;
        let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn, ..Dreq::default() };
        server.receive(source, n, dreq);
        let next = server.now.plus_ns(1_000_000);
        server.run_until(next);
    }
    assert!(server.cm.connection_count() <= LIMIT);
    assert!(server.cm.counters().evicted(CmEviction::Timewait) > 0);
    assert!(server.own_connection_begins());
    let end = server.now.plus_ns(18 * SECOND_NS);
    server.run_until(end);
    assert_eq!(server.states(CmState::Timewait), 0);
}

#[test]
fn service_requests_of_forged_sources_leave_room_for_own_connections() {
    let mut server = Server::new();
    for n in 1..=200_000u32 {
        let req = SidrReq { request_id: CommId(n), service_id: SERVICE, ..SidrReq::default() };
        let sent = server.receive(0x0b00_0000 + n, n, req);
        assert!(matches!(sent[..], [Mad { message: CmMessage::SidrRep(_), .. }]), "{n}");
        server.now = server.now.plus_ns(70_000);
    }
    assert!(server.cm.connection_count() <= LIMIT);
    assert!(server.own_connection_begins());
}

#[test]
fn an_unknown_address_gets_three_mads_and_one_for_each_repetition() {
    for response_timeout in [0, 20, 31] {
        let mut server = Server::new();
        let source = 0x0b00_0001;
        let req = Server::req(source, 5, 20, response_timeout);
        let first = server.receive(source, 5, req).len();
        let soon = server.run_until(Time::from_ns(1_000_000));
        assert_eq!((first, soon), (1, 0), "within 1 ms");
        let mut repeated = 0;
        for _ in 0..10 {
            repeated += server.receive(source, 5, req).len();
        }
        assert_eq!(repeated, 10);
        let later = server.run_until(Time::from_ns(HOUR_NS));
        assert_eq!(first + later, 3, "two REPs and a REJ");
        assert!(server.cm.is_idle());
    }
}

#[test]
fn an_mra_extends_by_a_bounded_time() {
    let mut server = Server::new();
    let source = 0x0b00_0001;
    let sent = server.receive(source, 5, Server::req(source, 5, 31, 20));
    let CmMessage::Rep(Rep { local_comm_id, .. }) = sent[0].message else { panic!("{sent:?}") };
    let mra = Mra {
        local_comm_id: CommId(5),
        remote_comm_id: local_comm_id,
        answered: urxe_wire::mad::Answered::Rep,
        service_timeout: Bits::masked(31),
        ..Mra::default()
    };
    server.receive(source, 5, mra);
    assert_eq!(server.states(CmState::MraRepRcvd), 1);
    // 69 s and 17 s, for each of the 16 times that the REP is sent.
    server.run_until(Time::from_ns(16 * 87 * SECOND_NS));
    assert!(server.cm.is_idle());
}

/// The kernel sends a REP up to 16 times by its own timer. This side answers each repetition of the
/// REQ, of which the kernel sends 16.
#[test]
fn a_loss_of_thirty_percent_of_the_replies_costs_no_connection() {
    const COUNT: u32 = 1000;
    let mut pair = Pair::new(Script::Closes(0), 5);
    pair.sides[1].cm = manager(2, 9);
    pair.sides[1].cm.listen(SERVICE, None, 10_000).unwrap();
    let mut rng = Rng::new(11);
    for n in 0..COUNT {
        pair.send_request(0, n);
    }
    pair.run(Time::from_ns(100 * SECOND_NS), |_, sent| {
        let is_rep = Mad::parse(&sent.mad).unwrap().message.attribute() == Attribute::Rep;
        if is_rep && rng.below(100) < 30 { Fate::Lose } else { Fate::Deliver }
    });
    let established = [pair.sides[0].established, pair.sides[1].established];
    assert_eq!(established, [COUNT as usize; 2]);
}

#[test]
fn after_a_million_forged_mads_an_honest_peer_connects_at_once() {
    const MADS: u32 = 1_000_000;
    const SOURCES: u64 = 100_000;
    let seed = std::env::var("URXE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    eprintln!("URXE_SEED={seed}");
    let (mut server, mut rng) = (Server::new(), Rng::new(seed));
    let (mut most, mut sent) = (0, 0);
    for n in 1..=MADS {
        let source = 0x0b00_0000 + rng.below(SOURCES) as u32;
        let (theirs, ours) = (CommId(rng.below(1 << 20) as u32), CommId(rng.next_u32()));
        let message = match rng.below(10) {
            0..6 => {
                let exponents = [rng.below(32) as u32, rng.below(32) as u32];
                Server::req(source, theirs.0, exponents[0], exponents[1]).into()
            }
            6 | 7 => {
                let service_id = SERVICE;
                CmMessage::from(SidrReq { request_id: theirs, service_id, ..SidrReq::default() })
            }
            8 => Rej {
                local_comm_id: theirs,
                remote_comm_id: ours,
                reason: RejReason::TIMEOUT,
                ..Rej::default()
            }
            .into(),
            _ => Rtu { local_comm_id: theirs, remote_comm_id: ours, ..Rtu::default() }.into(),
        };
        sent += server.receive(source, n, message).len();
        // 50,000 MADs a second.
        let next = server.now.plus_ns(20_000);
        sent += server.run_until(next);
        most = most.max(server.cm.connection_count());
    }
    assert!(most <= 2 * LIMIT + 128, "{most} entries");
    let received = u64::from(MADS) * 8 / 10;
    assert!(sent as u64 <= 3 * received, "{sent} MADs for {received} requests");
    // The handshake takes no virtual time, and needs no repetition.
    assert!(server.honest_peer_connects(0x7fff_0001));
    assert!(server.own_connection_begins());
}
