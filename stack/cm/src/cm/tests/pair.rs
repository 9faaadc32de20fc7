//! The test fixture: two programs that follow a script, and a network with faults.

use std::collections::BTreeMap;
use std::net::IpAddr;

use urxe_wire::mad::{
    Bits, CmMessage, CommId, Guid, InfoLength, Mad, PortSpace, PrivateData, RejReason, Rep, Req,
    ServiceId, SidrRep, SidrReq,
};
use urxe_wire::{Psn, Qpn};

use crate::cm::table::CmState;
use crate::cm::{CmConfig, CmEvent, CmEventKind, CmPath, CmRoute, CmTransmit, ConnectionManager};
use crate::test_network::{Fate, Network, SECOND_NS};
use urxe_types::time::Time;

pub const SERVICE: ServiceId = ServiceId::new(PortSpace::TCP, 7174);
/// A time after all retries of a REQ (78 s), and of a REP for the last of them.
pub const SETTLED: Time = Time::from_ns(400 * SECOND_NS);
const LIMIT: Time = Time::from_ns(4_000 * SECOND_NS);

pub const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
];

/// The behaviour of the programs. Side 0 sends the first request, side 1 listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Side 1 accepts. This side disconnects after all messages have arrived.
    Closes(usize),
    /// Side 1 accepts. Both sides disconnect at the same time.
    BothClose,
    /// As `BothClose`, but the programs do not answer the peer's DREQ.
    BothCloseInSilence,
    /// Side 1 accepts. This side releases the connection as soon as it is established.
    Releases(usize),
    /// The passive side rejects.
    PassiveRejects,
    /// The passive side releases the request.
    PassiveDrops,
    /// The active side rejects the REP.
    ActiveRejects,
    /// The active side releases the connection before a reply arrives.
    ActiveGivesUp,
    /// This side delays its reply and sends an MRA.
    Delays(usize),
    /// The passive side's queue pair receives data before the RTU.
    DataFirst,
    /// There is no listener.
    NobodyListens,
    /// Both sides request the connection.
    PeerToPeer,
    /// A datagram service.
    Service,
    /// A datagram service without a listener.
    NoService,
}

pub const SCRIPTS: [Script; 16] = [
    Script::Closes(0),
    Script::Closes(1),
    Script::BothClose,
    Script::Releases(0),
    Script::Releases(1),
    Script::PassiveRejects,
    Script::PassiveDrops,
    Script::ActiveRejects,
    Script::ActiveGivesUp,
    Script::Delays(0),
    Script::Delays(1),
    Script::DataFirst,
    Script::NobodyListens,
    Script::PeerToPeer,
    Script::Service,
    Script::NoService,
];

/// A delayed action of a program.
#[derive(Clone, Copy, Debug)]
enum Delayed {
    Accept(CommId),
    Confirm(CommId),
}

/// A program and its connection manager.
pub struct Side {
    pub cm: ConnectionManager,
    /// The connections that the program has not released.
    pub held: Vec<CommId>,
    /// Number of connections that were established, rejected, timed out.
    pub established: usize,
    pub refused: Vec<RejReason>,
    pub timed_out: usize,
    pub resolved: usize,
    /// Number of DREQs and DREPs that the program was told of.
    pub disconnected: usize,
}

pub struct Pair {
    pub sides: [Side; 2],
    pub script: Script,
    pub now: Time,
    pub network: Network,
    /// All MADs sent.
    pub trace: Vec<(usize, Mad)>,
    later: BTreeMap<(Time, usize), (usize, Delayed)>,
    sequence: usize,
}

pub fn path(from: usize) -> CmPath {
    CmPath::new(ADDRESSES[from], ADDRESSES[1 - from])
}

pub fn request(qpn: u32) -> Req {
    Req {
        service_id: SERVICE,
        local_qpn: Qpn::masked(qpn),
        starting_psn: Psn::new(0x1000 + qpn),
        responder_resources: 1,
        initiator_depth: 2,
        remote_cm_response_timeout: Bits::masked(20),
        local_cm_response_timeout: Bits::masked(20),
        retry_count: Bits::masked(7),
        rnr_retry_count: Bits::masked(6),
        path_mtu: Bits::masked(3),
        max_cm_retries: Bits::masked(15),
        ..Req::default()
    }
}

pub fn reply(qpn: u32) -> Rep {
    Rep {
        local_qpn: Qpn::masked(qpn),
        starting_psn: Psn::new(0x2000 + qpn),
        responder_resources: 2,
        initiator_depth: 1,
        rnr_retry_count: Bits::masked(5),
        ..Rep::default()
    }
}

pub fn route(from: usize) -> CmRoute {
    CmRoute { path: path(from), packet_life_time: Bits::masked(16) }
}

pub fn manager(slot: u8, seed: u64) -> ConnectionManager {
    ConnectionManager::new(CmConfig::new(slot, seed, Guid(0x5054_00ff_fe77_0000 + u64::from(slot))))
}

pub const NO_INFO: (InfoLength<7>, PrivateData<72>) = (InfoLength::ZERO, PrivateData::NONE);

impl Pair {
    pub fn new(script: Script, seed: u64) -> Self {
        let side = |slot| Side {
            cm: manager(slot, seed + u64::from(slot)),
            held: Vec::new(),
            established: 0,
            refused: Vec::new(),
            timed_out: 0,
            resolved: 0,
            disconnected: 0,
        };
        let mut pair = Self {
            sides: [side(1), side(2)],
            script,
            now: Time::ZERO,
            network: Network::default(),
            trace: Vec::new(),
            later: BTreeMap::new(),
            sequence: 0,
        };
        if !matches!(script, Script::NobodyListens | Script::NoService | Script::PeerToPeer) {
            pair.sides[1].cm.listen(SERVICE, None, 64).unwrap();
        }
        pair
    }

    /// Sends a request of this side.
    pub fn send_request(&mut self, side: usize, qpn: u32) {
        let Self { sides, now, script, .. } = self;
        let cm = &mut sides[side].cm;
        let id = match script {
            Script::Service | Script::NoService => {
                let req = SidrReq { service_id: SERVICE, ..SidrReq::default() };
                cm.send_sidr_req(*now, (path(side), 0), req, 4 * SECOND_NS, 15).unwrap()
            }
            _ => {
                let is_peer = *script == Script::PeerToPeer;
                cm.connect(*now, route(side), request(qpn), 0, is_peer).unwrap()
            }
        };
        sides[side].held.push(id);
    }

    fn after(&mut self, side: usize, ns: u64, later: Delayed) {
        self.sequence += 1;
        self.later.insert((self.now.plus_ns(ns), self.sequence), (side, later));
    }

    pub fn release(&mut self, side: usize, id: CommId) {
        let Side { cm, held, .. } = &mut self.sides[side];
        cm.destroy(self.now, id).unwrap();
        held.retain(|other| *other != id);
    }

    fn on_event(&mut self, side: usize, CmEvent { id, kind }: CmEvent) {
        match kind {
            CmEventKind::Request { mad, .. } => self.on_request(side, id, &mad),
            CmEventKind::Established => self.established(side, id),
            CmEventKind::Message(mad) => self.on_message(side, id, &mad),
            CmEventKind::TimedOut(_) | CmEventKind::PeerLost => {
                self.sides[side].timed_out += 1;
                if self.sides[side].cm.state(id) == Some(CmState::Idle) {
                    self.release(side, id);
                }
            }
            CmEventKind::TimewaitExit => self.release(side, id),
        }
    }

    fn on_request(&mut self, side: usize, id: CommId, mad: &Mad) {
        let now = self.now;
        let Side { cm, held, .. } = &mut self.sides[side];
        if !held.contains(&id) {
            held.push(id);
        }
        match (mad.message, self.script) {
            (CmMessage::SidrReq(_), _) => {
                let rep = SidrRep { qpn: Qpn::masked(9), ..SidrRep::default() };
                cm.send_sidr_rep(now, id, rep).unwrap();
            }
            (_, Script::PassiveRejects) => {
                let data = PrivateData::new(b"no").unwrap();
                cm.reject(now, id, RejReason::CONSUMER_DEFINED, NO_INFO, data).unwrap();
                self.release(side, id);
            }
            (_, Script::PassiveDrops) => self.release(side, id),
            (_, Script::Delays(1)) => {
                cm.send_mra(now, id, Bits::masked(21), PrivateData::NONE).unwrap();
                self.after(side, 7 * SECOND_NS, Delayed::Accept(id));
            }
            _ => self.accept(side, id),
        }
    }

    fn on_message(&mut self, side: usize, id: CommId, mad: &Mad) {
        let now = self.now;
        let Side { cm, refused, resolved, disconnected, .. } = &mut self.sides[side];
        match (mad.message, self.script) {
            (CmMessage::Rep(_), Script::ActiveRejects) => {
                let reason = RejReason::CONSUMER_DEFINED;
                cm.reject(now, id, reason, NO_INFO, PrivateData::NONE).unwrap();
                refused.push(reason);
                self.release(side, id);
            }
            (CmMessage::Rep(_), Script::Delays(0)) => {
                cm.send_mra(now, id, Bits::masked(21), PrivateData::NONE).unwrap();
                self.after(side, 7 * SECOND_NS, Delayed::Confirm(id));
            }
            (CmMessage::Rep(_), Script::DataFirst) => {
                self.receive_data();
                self.confirm(side, id);
            }
            (CmMessage::Rep(_), _) => self.confirm(side, id),
            (CmMessage::Rtu(_), _) => self.established(side, id),
            (CmMessage::Rej(rej), _) => {
                refused.push(rej.reason);
                if cm.state(id) == Some(CmState::Idle) {
                    self.release(side, id);
                }
            }
            (CmMessage::Dreq(_) | CmMessage::Drep(_), Script::BothCloseInSilence) => {
                *disconnected += 1;
            }
            // A DREQ that waited for its window has been answered.
            (CmMessage::Dreq(_), _) if cm.state(id) == Some(CmState::Timewait) => {}
            (CmMessage::Dreq(_), _) => {
                cm.confirm_disconnect(now, id, PrivateData::NONE).unwrap();
            }
            (CmMessage::SidrRep(rep), _) => {
                *resolved += usize::from(rep.qpn == Qpn::masked(9));
                self.release(side, id);
            }
            (CmMessage::Drep(_) | CmMessage::Mra(_), _) => {}
            (other, _) => panic!("{other}"),
        }
    }

    /// Reports data on the passive side's queue pairs before the RTU arrives.
    fn receive_data(&mut self) {
        let Side { cm, held, .. } = &mut self.sides[1];
        for &id in
            held.iter().filter(|&&id| cm.state(id) == Some(CmState::RepSent)).collect::<Vec<_>>()
        {
            cm.communication_established(self.now, id).unwrap();
        }
    }

    fn established(&mut self, side: usize, id: CommId) {
        assert_eq!(self.sides[side].cm.state(id), Some(CmState::Established));
        self.sides[side].established += 1;
        if self.script == Script::Releases(side) {
            self.release(side, id);
        }
    }

    fn accept(&mut self, side: usize, id: CommId) {
        self.sequence += 1;
        let qpn = 0x500 + self.sequence as u32;
        self.sides[side].cm.accept(self.now, id, reply(qpn), 0).unwrap();
    }

    fn confirm(&mut self, side: usize, id: CommId) {
        self.sides[side].cm.confirm(self.now, id, PrivateData::NONE).unwrap();
        self.established(side, id);
    }

    /// Disconnects the established connections, on the sides that the script states.
    pub fn close(&mut self) {
        for side in [0, 1] {
            let closes = match self.script {
                Script::Closes(closer) => closer == side,
                Script::BothClose | Script::BothCloseInSilence => true,
                _ => side == 0,
            };
            let mut held = self.sides[side].held.clone();
            if side == 1 {
                // In another order than the peer.
                held.reverse();
            }
            for id in held {
                if closes && self.sides[side].cm.state(id) == Some(CmState::Established) {
                    self.sides[side].cm.disconnect(self.now, id, PrivateData::NONE).unwrap();
                }
            }
        }
    }

    /// Releases all connections.
    pub fn release_all(&mut self) {
        for side in [0, 1] {
            for id in self.sides[side].held.clone() {
                self.release(side, id);
            }
        }
    }

    /// Runs until `end`, or until nothing is left to do. `fate` decides about each MAD by number.
    pub fn run(&mut self, end: Time, mut fate: impl FnMut(usize, &CmTransmit) -> Fate) {
        assert!(end <= LIMIT);
        loop {
            self.drain(&mut fate);
            let times = [
                self.network.next_arrival(),
                self.later.keys().next().map(|key| key.0),
                self.sides[0].cm.next_deadline(),
                self.sides[1].cm.next_deadline(),
            ];
            let Some(next) = times.into_iter().flatten().min().filter(|&next| next <= end) else {
                self.now = self.now.max(end);
                return;
            };
            self.now = self.now.max(next);
            if times[0] == Some(next) {
                let (to, path, mad) = self.network.arrive();
                self.sides[to].cm.receive(self.now, path, &mad);
            } else if times[1] == Some(next) {
                let (_, (side, later)) = self.later.pop_first().unwrap();
                match later {
                    // The connection may have ended.
                    Delayed::Accept(id)
                        if self.sides[side].cm.state(id) == Some(CmState::MraReqSent) =>
                    {
                        self.accept(side, id);
                    }
                    Delayed::Confirm(id)
                        if self.sides[side].cm.state(id) == Some(CmState::MraRepSent) =>
                    {
                        self.confirm(side, id);
                    }
                    Delayed::Accept(_) | Delayed::Confirm(_) => {}
                }
            } else {
                for side in &mut self.sides {
                    side.cm.handle_timeout(self.now);
                }
            }
        }
    }

    /// Passes events to the programs and MADs to the network until there are none.
    fn drain(&mut self, fate: &mut impl FnMut(usize, &CmTransmit) -> Fate) {
        for side in [0, 1] {
            while let Some(event) = self.sides[side].cm.poll_event() {
                self.on_event(side, event);
            }
        }
        for side in [0, 1] {
            while let Some(transmit) = self.sides[side].cm.poll_transmit() {
                let fate = fate(self.network.sent, &transmit);
                self.trace.push((side, Mad::parse(&transmit.mad).unwrap()));
                self.network.send(self.now, 1 - side, transmit, fate);
            }
        }
    }

    /// Returns whether a side has an established connection.
    pub fn is_connected(&self, side: usize) -> bool {
        let Side { cm, held, .. } = &self.sides[side];
        held.iter().any(|&id| cm.state(id) == Some(CmState::Established))
    }

    /// Checks that no connection is left.
    pub fn assert_idle(&self, context: &str) {
        for (number, side) in self.sides.iter().enumerate() {
            assert!(side.held.is_empty(), "{context}: side {number} still holds {:?}", side.held);
            assert!(side.cm.is_idle(), "{context}: side {number} leaks: {:?}", side.cm);
        }
    }
}
