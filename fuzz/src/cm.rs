//! A connection manager with any peer and any program. The input is a plan of MADs, calls and
//! waits.
//!
//! MADs are nearly valid: most of them name live connections, the listener's service and the peer's
//! addresses. Properties: nothing panics, limits hold, every reply goes to the MAD's sender and
//! parses, and nothing remains when the program has destroyed everything and time has passed.

use arbitrary::{Arbitrary, Unstructured};
use urxe_stack::cm::{CmConfig, CmPath, CmRoute, ConnectionManager};
use urxe_stack::time::Time;
use urxe_wire::mad::{
    Attribute, Bits, CommId, Guid, InfoLength, MAD_LEN, Mad, MadHeader, MadIds, PortSpace,
    PrivateData, RejReason, Rep, Req, ServiceId, SidrRep, SidrReq, TransactionId,
};
use urxe_wire::{Gid, Qpn};

const SERVICE: ServiceId = ServiceId::new(PortSpace::TCP, 7174);
const BACKLOG: usize = 4;
const MAX_HALF_OPEN: usize = 6;
/// Longer than all repetitions with the exponents of a plan, in nanoseconds.
const LONG_NS: u64 = 1 << 58;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Receives a MAD, with the bytes behind its ids.
    Mad { from: u8, attribute: u8, ids: u8, which: u8, body: Vec<u8> },
    /// Receives any bytes.
    Bytes { from: u8, bytes: Vec<u8> },
    /// Requests a connection.
    Connect { to: u8, qpn: u8, is_peer: bool, exponent: u8, retries: u8 },
    /// Requests the queue pair of a service.
    Resolve { to: u8, retries: u8 },
    /// Calls a function for one of the connections.
    Call { which: u8, call: u8, value: u8 },
    /// Lets time pass.
    Wait { us: u32 },
    /// Advances to the next deadline.
    Timeout,
}

struct Scenario {
    cm: ConnectionManager,
    now: Time,
    ids: Vec<CommId>,
}

fn address(n: u8) -> Gid {
    Gid::from_ip([10, 0, 0, 2 + n % 3].into())
}

fn path(n: u8) -> CmPath {
    CmPath::new(Gid::from_ip([10, 0, 0, 1].into()), address(n))
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let config = CmConfig {
        max_half_open: MAX_HALF_OPEN,
        max_timewait: MAX_HALF_OPEN,
        max_connections: 40,
        ..CmConfig::new(5, 1, Guid(7))
    };
    let mut cm = ConnectionManager::new(config);
    cm.listen(SERVICE, None, BACKLOG).expect("the service has no other listener");
    let mut scenario = Scenario { cm, now: Time::ZERO, ids: Vec::new() };
    while let Ok(step) = Step::arbitrary(&mut input) {
        scenario.run(&step);
        scenario.drain(&step);
        if input.is_empty() {
            break;
        }
    }
    scenario.end();
}

impl Scenario {
    fn run(&mut self, step: &Step) {
        let now = self.now;
        match step {
            Step::Mad { from, attribute, ids, which, body } => {
                let mad = self.mad(*from, *attribute, *ids, *which, body);
                self.cm.receive(now, path(*from), &mad);
            }
            Step::Bytes { from, bytes } => self.cm.receive(now, path(*from), bytes),
            Step::Connect { to, qpn, is_peer, exponent, retries } => {
                let req = Req {
                    service_id: SERVICE,
                    local_qpn: Qpn::masked((*qpn).into()),
                    remote_cm_response_timeout: Bits::masked((*exponent).into()),
                    max_cm_retries: Bits::masked((*retries).into()),
                    path_mtu: Bits::masked(3),
                    ..Req::default()
                };
                let packet_life_time = Bits::masked((*exponent >> 3).into());
                let asking = CmRoute { path: path(*to), packet_life_time };
                self.ids.extend(self.cm.connect(now, asking, req, 0, *is_peer));
            }
            Step::Resolve { to, retries } => {
                let req = SidrReq { service_id: SERVICE, ..SidrReq::default() };
                let retries = (*retries).into();
                let id = self.cm.send_sidr_req(now, (path(*to), 0), req, 1_000_000, retries);
                self.ids.extend(id);
            }
            Step::Call { which, call, value } => self.call(*which, *call, *value),
            Step::Wait { us } => {
                self.now = now.plus_ns(u64::from(*us) * 1_000);
                self.cm.handle_timeout(self.now);
            }
            Step::Timeout => {
                if let Some(deadline) = self.cm.next_deadline() {
                    self.now = now.max(deadline);
                    self.cm.handle_timeout(self.now);
                }
            }
        }
    }

    /// Returns an id: of a live connection, of the peer, none, or one of the plan.
    fn id(&self, kind: u8, which: u8) -> CommId {
        match (kind % 4, self.ids.len()) {
            (0 | 1, 1..) => self.ids[usize::from(which) % self.ids.len()],
            (2, _) => CommId::NONE,
            _ => CommId(0x1000 + u32::from(which % 8)),
        }
    }

    fn mad(&self, from: u8, attribute: u8, ids: u8, which: u8, body: &[u8]) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        let attribute = Attribute::ALL[usize::from(attribute) % Attribute::ALL.len()];
        for (to, from) in mad[MadHeader::LEN..].iter_mut().zip(body) {
            *to = *from;
        }
        if let Some(header) = mad.first_chunk_mut() {
            MadHeader::new(attribute, TransactionId(which.into())).emit(header);
        }
        let peer = CommId(0x1000 + u32::from(which % 8));
        let (first, second) = match attribute {
            Attribute::SidrRep => (self.id(ids, which), None),
            Attribute::Req | Attribute::SidrReq => (peer, None),
            _ => (peer, Some(self.id(ids, which))),
        };
        mad[24..28].copy_from_slice(&first.0.to_be_bytes());
        if let Some(second) = second {
            mad[28..32].copy_from_slice(&second.0.to_be_bytes());
        }
        if second.is_none() && ids & 0x80 == 0 {
            mad[32..40].copy_from_slice(&SERVICE.0.to_be_bytes());
        }
        if attribute == Attribute::Req && ids & 0x40 == 0 {
            mad[24 + 50] = 3 << 4;
            mad[24 + 56..24 + 72].copy_from_slice(&address(from).0);
            mad[24 + 72..24 + 88].copy_from_slice(&path(from).local.0);
        }
        mad
    }

    fn call(&mut self, which: u8, call: u8, value: u8) {
        let Self { cm, now, ids } = self;
        let now = *now;
        let Some(&id) = ids.get(usize::from(which) % ids.len().max(1)) else { return };
        let state = cm.state(id).expect("it is ids");
        let result = match call % 10 {
            0 => {
                let rep = Rep { local_qpn: Qpn::masked(value.into()), ..Rep::default() };
                cm.accept(now, id, rep, value.into())
            }
            1 => cm.confirm(now, id, PrivateData::NONE),
            2 => cm.send_mra(now, id, Bits::masked(value.into()), PrivateData::NONE),
            3 => {
                let info = (InfoLength::ZERO, PrivateData::NONE);
                cm.reject(now, id, RejReason(value.into()), info, PrivateData::NONE)
            }
            4 => cm.disconnect(now, id, PrivateData::NONE),
            5 => cm.confirm_disconnect(now, id, PrivateData::NONE),
            6 => cm.communication_established(now, id),
            7 => cm.send_sidr_rep(now, id, SidrRep::default()),
            _ => {
                ids.retain(|&other| other != id);
                return cm.destroy(now, id).expect("it is ids");
            }
        };
        if let Err(error) = result {
            assert_eq!(cm.state(id), Some(state), "a call that fails changes nothing: {error}");
        }
    }

    fn drain(&mut self, step: &Step) {
        while let Some(event) = self.cm.poll_event() {
            assert_eq!(event.id.slot(), 5);
            if !self.ids.contains(&event.id) {
                self.ids.push(event.id);
            }
        }
        let mut sent = 0;
        while let Some(transmit) = self.cm.poll_transmit() {
            sent += 1;
            Mad::parse(&transmit.mad).expect("a sent MAD parses");
            MadIds::parse(&transmit.mad).expect("so do its ids");
            if let Step::Mad { from, .. } | Step::Bytes { from, .. } = step {
                assert_eq!(transmit.path, path(*from), "answers go to the sender of the request");
            }
        }
        if matches!(step, Step::Mad { .. } | Step::Bytes { .. }) {
            assert!(
                sent <= 2,
                "{sent} MADs for one: at most an answer, and a DREQ for a stale connection"
            );
        }
        // Own connections, those of peers, and service id resolutions have 40 each.
        assert!(self.cm.connection_count() <= 3 * 40);
    }

    /// Destroys everything, and lets enough time pass.
    fn end(mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.cm.destroy(self.now, id).expect("it is ids");
        }
        self.drain(&Step::Timeout);
        let end = self.now.plus_ns(LONG_NS);
        while let Some(deadline) = self.cm.next_deadline() {
            assert!(deadline <= end, "{deadline:?}");
            self.cm.handle_timeout(deadline);
            self.drain(&Step::Timeout);
        }
        assert!(self.ids.is_empty(), "a destroyed identifier gets no event");
        assert!(self.cm.is_idle(), "{:?}", self.cm);
    }
}
