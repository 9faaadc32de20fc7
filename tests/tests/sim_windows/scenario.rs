//! The owner of the memory and its peer, and the life cycles of keys.

use std::time::Duration;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults};
use urxe::*;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::{Scenario, address, device, error_text, faults, percent};
use urxe_test_support::tally;

use super::InjectedBug;
use super::keys::{CarriedKey, PART, Revocation};

const ROUNDS: usize = 12;
/// The length of the region under the keys, in bytes.
pub const REGION: usize = 40_000;
pub const STEP: Duration = Duration::from_micros(15);
/// Steps after which no packet is under way any more.
pub const SETTLED: u32 = 100;
/// Steps within which a working connection must make progress.
const LIMIT: u32 = 200_000;

/// The service of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Rc,
    Xrc,
    Uc,
}

/// The state of a request of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestState {
    Open,
    /// Completed; over UC, sent.
    Done,
    Failed(WcStatus),
}

/// A WRITE into the part, or a READ of the part.
pub struct Request {
    /// The offsets in the region.
    pub range: std::ops::Range<usize>,
    /// The data of a WRITE.
    pub bytes: Option<Vec<u8>>,
    pub state: RequestState,
}

/// The receiving end over XRC.
struct Target {
    qp: XrcTarget,
    srq: SharedReceiveQueue,
}

pub struct Windows {
    pub fabric: Fabric,
    pub rng: Rng,
    pub service: Service,
    pub owner: Device,
    /// The queue pair that makes keys valid: connected to the peer, except over XRC, where it is
    /// connected to itself.
    pub owner_qp: QueuePair,
    target: Option<Target>,
    peer_qp: QueuePair,
    owner_cq: CompletionQueue,
    peer_cq: CompletionQueue,
    pub region: MemoryRegion,
    /// The peer's memory: the source of WRITEs and the destination of READs.
    pub scratch: MemoryRegion,
    keys: Vec<CarriedKey>,
    pub requests: Vec<Request>,
    /// Whether the peer's SEND with invalidate has not completed yet.
    pub is_invalidating: bool,
    /// Completions at the owner that are not checked yet.
    owner_done: Vec<Completion>,
    faults: LinkFaults,
    pub bug: Option<InjectedBug>,
    pub tally: Tally,
}

tally! {
    pub struct Tally {
        /// Requests of the peer.
        pub done: u32,
        pub cut_off: u32,
        /// Refused requests with revoked keys.
        pub refused: u32,
        /// Revoked keys, by kind of revocation.
        pub by_peer: u32,
        pub by_owner: u32,
        pub rebound: u32,
        pub unbound: u32,
        /// Type 1 windows whose key a peer tried to invalidate.
        pub peer_refused: u32,
        /// Accesses through type 2 windows of another queue pair.
        pub other_qp_refused: u32,
        /// Rounds of UC on a good network.
        pub lossless: u32,
        /// Accesses with a stale key.
        pub stale: u64,
    }
}

impl Service {
    pub const ALL: [Self; 3] = [Self::Rc, Self::Xrc, Self::Uc];
}

impl Scenario for Windows {
    type Kind = Service;
    type InjectedBug = InjectedBug;
    type Tally = Tally;

    fn new(seed: u64, service: Service, bug: Option<InjectedBug>) -> Self {
        let mut rng = Rng::stream(seed, 0x3140);
        let fabric = Fabric::manual(seed);
        let faults = faults(&mut rng, [10, 10, 10, 5]);
        fabric.set_faults(faults.clone());
        let [owner, peer] =
            [1, 2].map(|host| device(&fabric, address(host, false), DeviceOptions::default()));
        let (owner_pd, peer_pd) = (owner.alloc_pd().unwrap(), peer.alloc_pd().unwrap());
        let (owner_cq, peer_cq) = (owner.create_cq(1024).unwrap(), peer.create_cq(1024).unwrap());
        let region = owner_pd.allocate(REGION, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        let mut image = vec![0; REGION];
        rng.fill(&mut image);
        region.write(0, &image).unwrap();
        let scratch = peer_pd.allocate(2 * PART, Access::LOCAL_WRITE).unwrap();
        let (own_type, peer_type) = match service {
            Service::Rc => (QpType::Rc, QpType::Rc),
            Service::Xrc => (QpType::Uc, QpType::XrcSend),
            Service::Uc => (QpType::Uc, QpType::Uc),
        };
        let owner_qp = owner_pd.queue_pair(&owner_cq).qp_type(own_type).create().unwrap();
        let target = (service == Service::Xrc).then(|| {
            owner_qp.connect(&owner_qp.endpoint(), &ConnectOptions::default()).unwrap();
            let domain = owner.new_xrc_domain().unwrap();
            let srq = owner_pd.shared_receive_queue(16).xrc(&domain, &owner_cq).create().unwrap();
            Target { qp: domain.target().unwrap(), srq }
        });
        let peer_qp = peer_pd.queue_pair(&peer_cq).qp_type(peer_type).signal_all(true);
        let scenario = Self {
            owner_qp,
            target,
            peer_qp: peer_qp.create().unwrap(),
            fabric,
            rng,
            service,
            owner,
            owner_cq,
            peer_cq,
            keys: CarriedKey::all(&owner_pd, service),
            region,
            scratch,
            requests: Vec::new(),
            is_invalidating: false,
            owner_done: Vec::new(),
            faults,
            bug,
            tally: Tally::default(),
        };
        scenario.connect().unwrap();
        scenario
    }

    fn run(&mut self) -> Result<(), String> {
        // An injected bug shows in some kinds of rounds only.
        let rounds = if self.bug.is_some() { 5 * ROUNDS } else { ROUNDS };
        (0..rounds).try_for_each(|round| {
            self.round(round).map_err(|what| format!("round {round}: {what}"))
        })
    }

    fn tally(&self) -> Tally {
        Tally { stale: self.owner.counter(Counter::AccessStaleKey), ..self.tally }
    }

    fn trace_hash(&self) -> u64 {
        self.fabric.trace_hash()
    }
}

impl Windows {
    fn connect(&self) -> Result<(), String> {
        let options = ConnectOptions::new()
            .path_mtu(PathMtu::Mtu1024)
            .timeout(AckTimeout::new(10).unwrap())
            .min_rnr_timer(RnrTimer::new(4).unwrap());
        let peer = self.peer_qp.endpoint();
        let owner = match &self.target {
            Some(target) => {
                error_text(target.qp.connect(&peer, &options))?;
                target.qp.endpoint()
            }
            None => {
                error_text(self.owner_qp.connect(&peer, &options))?;
                self.owner_qp.endpoint()
            }
        };
        error_text(self.peer_qp.connect(&owner, &options))
    }

    /// Reconnects a failed connection, when no packet of the old one is under way.
    fn reconnect(&mut self) -> Result<(), String> {
        error_text(self.fabric.run_for(STEP * 1000))?;
        self.poll()?;
        match &self.target {
            Some(target) => {
                let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
                error_text(target.qp.modify(&reset, QpAttrMask::STATE))?;
            }
            None => error_text(self.owner_qp.reset())?,
        }
        error_text(self.peer_qp.reset())?;
        self.owner_done.clear();
        self.is_invalidating = false;
        self.connect()
    }

    fn owner_state(&self) -> QpState {
        self.target.as_ref().map_or_else(|| self.owner_qp.state(), |target| target.qp.state())
    }

    pub fn is_connected(&self) -> bool {
        self.owner_state() == QpState::Rts && self.peer_qp.state() == QpState::Rts
    }

    pub fn peer_posts(&self, request: SendRequest<'_>) -> Result<(), String> {
        error_text(match &self.target {
            Some(target) => self.peer_qp.post_send(&request.to_srq(target.srq.id())),
            None => self.peer_qp.post_send(&request),
        })
    }

    /// Returns the status of the peer's only request, number 0.
    pub fn outcome(&mut self) -> Result<WcStatus, String> {
        self.requests.clear();
        self.requests.push(Request { range: 0..0, bytes: None, state: RequestState::Open });
        self.step_until("the requests of the peer", Self::has_nothing_open)?;
        match self.requests.pop().map(|request| request.state) {
            Some(RequestState::Failed(status)) => Ok(status),
            _ => Ok(WcStatus::Success),
        }
    }

    /// Returns whether the NAK of a refused request may have been lost. A responder in the error
    /// state sends it only once.
    pub fn is_lost_refusal(&self, status: WcStatus) -> bool {
        status == WcStatus::RetryExcErr && self.owner_state() == QpState::Err
    }

    pub fn post_recv(&self, wr_id: u64) -> Result<(), String> {
        let request = RecvRequest::new(Gather::EMPTY).wr_id(wr_id);
        error_text(match &self.target {
            Some(target) => target.srq.post_recv(&request),
            None => self.owner_qp.post_recv(&request),
        })
    }

    fn poll(&mut self) -> Result<(), String> {
        while let Some(wc) = error_text(self.owner_cq.poll_one())? {
            self.owner_done.push(wc);
        }
        while let Some(wc) = error_text(self.peer_cq.poll_one())? {
            let is_refusal = self.is_lost_refusal(wc.status);
            let Some(request) = self.requests.get_mut(wc.wr_id as usize) else {
                // The completion of the SEND with invalidate.
                self.is_invalidating = false;
                continue;
            };
            if request.state != RequestState::Open {
                return Err(format!("completed twice: {wc:?}"));
            }
            request.state = if wc.status.is_success() {
                RequestState::Done
            } else {
                RequestState::Failed(wc.status)
            };
            let expected = match wc.status {
                WcStatus::Success => true,
                WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::WrFlushErr => {
                    self.service != Service::Uc
                }
                _ => is_refusal,
            };
            if !expected {
                return Err(format!("unexpected: {wc:?}"));
            }
        }
        Ok(())
    }

    /// Returns whether all requests of the peer have completed.
    pub fn has_nothing_open(&self) -> bool {
        self.requests.iter().all(|request| request.state != RequestState::Open)
    }

    /// Runs the network until `is_done` returns true, or the limit is reached.
    pub fn step_until(
        &mut self,
        what: &str,
        is_done: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        for _ in 0..LIMIT {
            self.poll()?;
            if is_done(self) {
                return Ok(());
            }
            error_text(self.fabric.run_for(STEP))?;
        }
        Err(format!("never: {what}"))
    }

    /// Runs the network until no packet is under way.
    pub fn drain_network(&mut self) -> Result<(), String> {
        error_text(self.fabric.run_for(STEP * SETTLED))?;
        self.poll()
    }

    pub fn owner_completes(&mut self, wr_id: u64) -> Result<Completion, String> {
        let is = move |wc: &Completion| wc.wr_id == wr_id;
        self.step_until("a completion at the owner", |scenario| {
            scenario.owner_done.iter().any(is)
        })?;
        let at = self.owner_done.iter().position(is).ok_or("it was there")?;
        Ok(self.owner_done.swap_remove(at))
    }

    pub fn image(&self) -> Result<Vec<u8>, String> {
        error_text(self.region.read_vec(0, REGION))
    }

    /// Runs one life cycle of a key.
    fn round(&mut self, round: usize) -> Result<(), String> {
        let mut carried_key = self.keys.swap_remove(self.rng.index(self.keys.len()));
        let base = round as u64 * 10 + 1_000_000;
        let granted = match carried_key.carried.take() {
            Some(granted) => granted,
            None => self.grant(&mut carried_key.key, base)?,
        };
        let is_lossless = self.service == Service::Uc && percent(&mut self.rng, 30);
        if is_lossless {
            self.fabric.set_faults(LinkFaults::default());
            self.tally.lossless += 1;
        }
        let before = self.image()?;
        self.post_requests(&granted)?;
        let revocation = self.choose_revocation(&carried_key);
        let by_peer = matches!(revocation, Revocation::ByPeer { .. });
        // The peer's requests complete before the revocation.
        let waited = !by_peer && (is_lossless || percent(&mut self.rng, 30));
        if waited {
            self.step_until("requests by a valid key", Self::has_nothing_open)?;
            self.drain_network()?;
        } else if !by_peer {
            error_text(self.fabric.run_for(STEP * self.rng.index(20) as u32))?;
            self.poll()?;
        }
        self.revoke(&mut carried_key, &granted, revocation, base + 1)?;
        let after = self.image()?;
        self.check_key_is_revoked(&granted, carried_key.carried.as_ref(), &after, is_lossless)?;
        self.check(&granted.part, &before, &after, revocation, (waited, is_lossless))?;
        // Packets under way may still use the network.
        self.drain_network()?;
        self.check_states()?;
        if let Some(carried) = carried_key.carried.clone()
            && self.service != Service::Uc
            && percent(&mut self.rng, 40)
        {
            self.check_peer_cannot_invalidate(&carried, base + 2)?;
            self.reconnect()?;
        }
        if self.service == Service::Xrc && percent(&mut self.rng, 20) {
            self.check_other_queue_pair_is_refused(base + 3)?;
            self.reconnect()?;
        }
        self.fabric.set_faults(self.faults.clone());
        self.keys.push(carried_key);
        Ok(())
    }

    /// Checks that both ends agree on the state of their connection, and reconnects a failed one.
    fn check_states(&mut self) -> Result<(), String> {
        let (owner, peer) = (self.owner_state(), self.peer_qp.state());
        // The repetition of a READ whose response was lost is refused if the key is revoked
        // meanwhile. Then only the peer is in error.
        let has_read = self.requests.iter().any(|request| request.bytes.is_none());
        let may_be_refused_again = has_read && owner == QpState::Rts;
        let is_strange = match self.service {
            Service::Uc => !self.is_connected(),
            _ => owner != peer && !may_be_refused_again,
        };
        if is_strange {
            return Err(format!("the owner's queue pair is in {owner}, the peer's in {peer}"));
        }
        self.requests.clear();
        if self.is_connected() { Ok(()) } else { self.reconnect() }
    }
}
