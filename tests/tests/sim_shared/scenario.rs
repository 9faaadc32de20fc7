//! The devices with their connections and queues, and the course of a run.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults, Probability};
use urxe::*;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::{Scenario, address, device, error_text, percent};
use urxe_test_support::tally;

use super::InjectedBug;
use super::checker::{Cell, Due, Message, Record};
use super::ending::Ending;
use super::lent_part::{LentPart, State};

pub const PART: usize = 8192;
pub const BUFFERS: usize = 24;
/// The maximum number of connections.
const MOST: usize = 16;
/// The offset of the cells in a queue's region, and their distance.
const CELLS: usize = (BUFFERS + MOST) * PART;
const CELL: usize = 64;
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
const STEP: Duration = Duration::from_micros(40);

/// One connection: the client's end, and the expected messages at the server's end.
pub struct Connection {
    pub client: QueuePair,
    pub server: ServerEnd,
    /// The connection's part of the clients' memory.
    pub part: usize,
    /// The expected completions at the client, in order.
    pub due: VecDeque<Due>,
    pub posted: u64,
    pub expected: VecDeque<Message>,
    /// The cell in each queue's region.
    pub cells: Vec<Cell>,
    /// The latest record in the log.
    pub record: Option<Record>,
    pub lent: LentPart,
    /// The premature end of the connection, after which most results do not matter.
    pub ending: Option<Ending>,
}

pub enum ServerEnd {
    Rc(QueuePair),
    Xrc(XrcTarget),
}

/// A shared receive queue with the buffers that its receives name.
pub struct Pool {
    pub srq: SharedReceiveQueue,
    pub cq: CompletionQueue,
    /// Buffers of receives, then a part for each connection, then the cells.
    pub region: MemoryRegion,
    /// A part for the records of each connection, in a file if the log is persistent.
    pub log: MemoryRegion,
    /// A queue pair that makes keys of the protection domain valid, for targets without a send
    /// queue.
    pub registrar: QueuePair,
    pub free: Vec<usize>,
    /// The buffer of each posted receive.
    pub posted: HashMap<u64, usize>,
    used: HashSet<u64>,
    armed: u32,
}

tally! {
    /// The numbers of a run.
    pub struct Tally {
        pub received: u32,
        /// Flushed receives.
        pub flushed: u32,
        pub limit_events: u32,
        /// Persistent logs.
        pub in_files: u32,
        /// The numbers over RC, and over XRC.
        pub by_service: [Done; 2],
        /// Messages that found an empty queue.
        pub srq_empty: u64,
        /// Duplicate requests.
        pub again: u64,
    }
}

tally! {
    /// The numbers over connections of one service.
    pub struct Done {
        pub atomics: u32,
        /// Compare-and-swaps that found the expected value.
        pub swapped: u32,
        /// ATOMIC WRITEs.
        pub words: u32,
        pub flushes: u32,
        /// Flushes for persistence.
        pub lasting: u32,
        /// Invalidated keys.
        pub invalidated: u32,
        /// Refused requests.
        pub refused: u32,
    }
}

pub struct SharedQueues {
    pub fabric: Fabric,
    pub rng: Rng,
    pub server: Device,
    pub pools: Vec<Pool>,
    pub connections: Vec<Connection>,
    pub memory: MemoryRegion,
    pub client_cq: CompletionQueue,
    pub bug: Option<InjectedBug>,
    pub tally: Tally,
}

fn faults() -> LinkFaults {
    LinkFaults {
        loss: Probability::from_percent(2),
        duplicate: Probability::from_percent(2),
        reorder: Probability::from_percent(2),
        corrupt: Probability::from_percent(1),
        ..LinkFaults::default()
    }
}

impl ServerEnd {
    pub fn qpn(&self) -> Qpn {
        match self {
            Self::Rc(qp) => qp.qpn(),
            Self::Xrc(target) => target.qpn(),
        }
    }

    pub fn is_xrc(&self) -> bool {
        matches!(self, Self::Xrc(_))
    }
}

impl Connection {
    /// Returns the offset of the connection's part in the region of each queue.
    pub fn target(&self) -> usize {
        (BUFFERS + self.part) * PART
    }

    /// Returns the offset of the connection's cell in the region of each queue.
    pub fn cell(&self) -> usize {
        CELLS + self.part * CELL
    }

    pub fn is_idle(&self) -> bool {
        self.due.is_empty() && self.expected.is_empty()
    }

    /// Returns whether no further result is expected.
    fn is_done(&self) -> bool {
        match &self.ending {
            None => self.is_idle(),
            Some(ending) => !ending.waits() || self.due.is_empty(),
        }
    }

    /// Posts a request for a shared receive queue, and records the expected completion.
    pub fn post(&mut self, pool: &Pool, request: SendRequest<'_>, due: Due) -> Result<(), String> {
        let request = request.wr_id(self.posted);
        let posted = match self.server {
            ServerEnd::Rc(_) => self.client.post_send(&request),
            ServerEnd::Xrc(_) => self.client.post_send(&request.to_srq(pool.srq.id())),
        };
        posted.map_err(|error| format!("posting {due:?}: {error}"))?;
        self.due.push_back(Due { wr_id: self.posted, ..due });
        self.posted += 1;
        Ok(())
    }
}

impl Pool {
    fn new(server: &Device, domain: Option<&XrcDomain>, rng: &mut Rng) -> Self {
        let (pd, cq) = (server.alloc_pd().unwrap(), server.create_cq(4096).unwrap());
        let region =
            pd.allocate(CELLS + MOST * CELL, ALL | Access::MW_BIND | Access::FLUSH_GLOBAL).unwrap();
        let builder = pd.shared_receive_queue(BUFFERS as u32);
        let builder = if let Some(domain) = domain { builder.xrc(domain, &cq) } else { builder };
        let (srq, free) = (builder.create().unwrap(), (0..BUFFERS).collect());
        let registrar = pd.queue_pair(&cq).qp_type(QpType::Uc).create().unwrap();
        registrar.connect(&registrar.endpoint(), &ConnectOptions::default()).unwrap();
        // Few logs are persistent, because disks are slow.
        let log = match percent(rng, 4) {
            true => in_a_file(&pd),
            false => in_memory(&pd),
        };
        let (posted, used) = (HashMap::new(), HashSet::new());
        Self { srq, cq, region, log, registrar, free, posted, used, armed: 0 }
    }
}

fn in_memory(pd: &ProtectionDomain) -> MemoryRegion {
    pd.allocate(MOST * PART, ALL | Access::FLUSH_GLOBAL).unwrap()
}

/// Maps a file of the build folder, which is usually on a disk. On other file systems, no region is
/// persistent.
fn in_a_file(pd: &ProtectionDomain) -> MemoryRegion {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file: File = tempfile::tempfile_in(folder).unwrap();
    file.set_len((MOST * PART) as u64).unwrap();
    let rights = ALL | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    match pd.map_file(&file, 0, MOST * PART, rights) {
        Ok(region) => region,
        Err(MapFileError::Register(RegMrError::NotPersistent { .. })) => in_memory(pd),
        Err(error) => panic!("{error}"),
    }
}

impl Scenario for SharedQueues {
    type Kind = ();
    type InjectedBug = InjectedBug;
    type Tally = Tally;

    fn new(seed: u64, (): (), bug: Option<InjectedBug>) -> Self {
        let mut rng = Rng::stream(seed, 0x5309);
        let fabric = Fabric::manual(seed);
        fabric.set_faults(faults());
        let [server, client] =
            [1, 2].map(|host| device(&fabric, address(host, false), DeviceOptions::default()));
        let domain = server.new_xrc_domain().unwrap();
        // Queue 0 is for RC, the others belong to the XRC domain. Each has a protection domain of
        // its own.
        let pools: Vec<Pool> =
            (0..3).map(|nr| Pool::new(&server, (nr > 0).then_some(&domain), &mut rng)).collect();
        let (client_pd, client_cq) = (client.alloc_pd().unwrap(), client.create_cq(4096).unwrap());
        let count = 2 + rng.index(12);
        let memory = client_pd.allocate(count * 2 * PART, ALL).unwrap();
        let options = ConnectOptions::new()
            .timeout(AckTimeout::new(10).unwrap())
            .min_rnr_timer(RnrTimer::new(4).unwrap());
        let connections = (0..count)
            .map(|part| {
                let is_xrc = percent(&mut rng, 40);
                let qp_type = if is_xrc { QpType::XrcSend } else { QpType::Rc };
                let client = client_pd.queue_pair(&client_cq).qp_type(qp_type).signal_all(true);
                let client = client.create().unwrap();
                let server = if is_xrc {
                    let target = domain.target().unwrap();
                    client.connect(&target.endpoint(), &options).unwrap();
                    target.connect(&client.endpoint(), &options).unwrap();
                    ServerEnd::Xrc(target)
                } else {
                    // In the queue's protection domain, so that WRITEs reach the target.
                    let (pd, pool) = (pools[0].srq.pd(), &pools[0]);
                    let qp =
                        pd.queue_pair(&pool.cq).shared_receive_queue(&pool.srq).create().unwrap();
                    client.connect(&qp.endpoint(), &options).unwrap();
                    qp.connect(&client.endpoint(), &options).unwrap();
                    ServerEnd::Rc(qp)
                };
                let lender = if is_xrc { 1 + rng.index(2) } else { 0 };
                let is_window = !is_xrc && rng.index(2) == 0;
                let lent = LentPart::new(pools[lender].srq.pd(), lender, is_window);
                let (due, expected) = (VecDeque::new(), VecDeque::new());
                let mut connection = Connection {
                    client,
                    server,
                    part,
                    due,
                    posted: 0,
                    expected,
                    cells: Vec::new(),
                    record: None,
                    lent,
                    ending: None,
                };
                for pool in &pools {
                    let value = rng.next_u64();
                    pool.region.store_u64(connection.cell(), value).unwrap();
                    connection.cells.push(Cell::new(value));
                }
                connection
            })
            .collect();
        let lasts = |pool: &&Pool| pool.log.access().contains(Access::FLUSH_PERSISTENT);
        let tally =
            Tally { in_files: pools.iter().filter(lasts).count() as u32, ..Tally::default() };
        Self { fabric, rng, server, pools, connections, memory, client_cq, bug, tally }
    }

    fn run(&mut self) -> Result<(), String> {
        for step in 0..600 {
            self.post_receives(false);
            for nr in 0..self.connections.len() {
                if percent(&mut self.rng, 10) {
                    self.make_key_valid(nr)?;
                }
                if percent(&mut self.rng, 30) {
                    self.send(nr)?;
                }
            }
            if step % 150 == 149
                && self.connections.iter().filter(|c| c.ending.is_none()).count() > 1
            {
                self.end_one()?;
            }
            error_text(self.fabric.run_for(STEP))?;
            self.check()?;
        }
        // Without faults, everything must end.
        self.fabric.set_faults(LinkFaults::default());
        for _ in 0..4000 {
            self.post_receives(true);
            error_text(self.fabric.run_for(STEP * 10))?;
            self.check()?;
            if self.connections.iter().all(Connection::is_done) {
                break;
            }
        }
        if let Some(nr) = self.connections.iter().position(|connection| !connection.is_done()) {
            return Err(format!("connection {nr} is not done"));
        }
        self.check_memory()?;
        // Every receive without a completion must still be in its queue, and every limit must have
        // raised one event or still be armed.
        let mut expected = 0;
        for (nr, pool) in self.pools.iter().enumerate() {
            if pool.srq.len() as usize != pool.posted.len() {
                let (left, posted) = (pool.srq.len(), pool.posted.len());
                return Err(format!(
                    "queue {nr} holds {left} receives, and {posted} did not complete"
                ));
            }
            expected += pool.armed - u32::from(pool.srq.query().srq_limit != 0);
        }
        if expected != self.tally.limit_events {
            return Err(format!("{} limit events, expected {expected}", self.tally.limit_events));
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        let [srq_empty, again] = [Counter::SrqEmpty, Counter::DuplicateRequest]
            .map(|counter| self.server.counter(counter));
        Tally { srq_empty, again, ..self.tally }
    }

    fn trace_hash(&self) -> u64 {
        self.fabric.trace_hash()
    }
}

impl SharedQueues {
    /// Posts some receives, not always enough.
    fn post_receives(&mut self, everything: bool) {
        for (nr, pool) in self.pools.iter_mut().enumerate() {
            while !pool.free.is_empty() && (everything || percent(&mut self.rng, 30)) {
                let pick = self.rng.index(pool.free.len());
                let buffer = pool.free.swap_remove(pick);
                let wr_id = (nr as u64) << 32 | self.rng.next_u32() as u64;
                if !pool.used.insert(wr_id) {
                    pool.free.push(buffer);
                    continue;
                }
                let (start, half) = (buffer * PART, PART / 3);
                let slices = [
                    pool.region.slice(start..start + half).unwrap(),
                    pool.region.slice(start + half..start + PART).unwrap(),
                ];
                pool.srq.post_recv(&RecvRequest::new(slices).wr_id(wr_id)).unwrap();
                pool.posted.insert(wr_id, buffer);
            }
            if pool.srq.query().srq_limit == 0 && percent(&mut self.rng, 10) {
                pool.srq.arm_limit(1 + self.rng.below(6) as u32).unwrap();
                pool.armed += 1;
            }
        }
    }

    /// Makes the key of a connection valid, if nothing writes to its part of the memory at present.
    fn make_key_valid(&mut self, nr: usize) -> Result<(), String> {
        let connection = &mut self.connections[nr];
        if connection.ending.is_some()
            || connection.lent.state != State::Free
            || !connection.is_idle()
        {
            return Ok(());
        }
        let pool = &self.pools[connection.lent.queue];
        let part = connection.target()..connection.target() + PART;
        let by = match &connection.server {
            ServerEnd::Rc(qp) => qp,
            ServerEnd::Xrc(_) => &pool.registrar,
        };
        connection.lent.grant(nr, by, &pool.region, part, &mut self.rng)
    }
}
