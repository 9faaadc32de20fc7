//! Generates a plan from a seed.
//!
//! The generator prefers error-prone cases: lengths around multiples of the path MTU, PSNs near the
//! wrap, queues of one entry, late receives, fences, windows of READs, and intermittent faults.
//!
//! Four rules make the outcome unique and keep the queue pairs alive:
//! - One direction only uses a key and then invalidates the key, so that no packet with that key is
//!   under way any more.
//! - Every response and every message has its own destination memory. Source data never changes,
//!   except for data that an earlier READ returned and a fence protects.
//! - Among any `send_depth` sends one is signalled, and the last one is.
//! - Faults are shorter than the time in which a retry counter runs out. The intervals between
//!   faults are longer than a timeout.

#[cfg(test)]
mod tests;

use urxe_stack::port::sim::{LinkFaults, NodeConfig};
use urxe_stack::rng::{Probability, Rng};

use super::model::read_u64;
use super::plan::{
    ConnectionPlan, CqSharing, DevicePlan, EndPlan, FaultPlan, Local, Naming, Op, PausePlan, Piece,
    Place, Plan, RecvPlan, RegionPlan, Role, SendPlan,
};

const MICROSECOND_NS: u64 = 1_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// The length of the longest message, in bytes.
const MAX_MESSAGE: usize = 64 << 10;
/// Room for the IP, UDP and RoCE headers in a link's MTU, in bytes.
const HEADERS_BYTES: usize = 100;
/// Bytes after which a direction sends short messages only.
const BYTES_PER_DIRECTION: usize = 192 << 10;
const SOURCE_BYTES: usize = 40 << 10;
/// The length of a disposable region: more than two pages.
const DISPOSABLE_BYTES: usize = 9_000;
const CELLS: usize = 8;
const SHARED_CELLS: usize = 3;
/// PSNs are 24 bits wide.
const PSN_MASK: u64 = 0xff_ffff;

/// Options of the generator. The default includes everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether faults occur.
    pub faults: bool,
    /// The maximum number of sends in one direction.
    pub max_sends: usize,
}

impl Default for Profile {
    fn default() -> Self {
        Self { faults: true, max_sends: 40 }
    }
}

/// Generates the plan of `seed`.
#[must_use]
pub fn generate(seed: u64, profile: &Profile) -> Plan {
    let mut rng = Rng::stream(seed, 1);
    let mut plan = Plan { seed, devices: Vec::new(), connections: Vec::new(), faults: no_faults() };
    let ipv6 = rng.chance(Probability::from_percent(25));
    for _ in 0..rng.between(2, 4) {
        plan.devices.push(device(&mut rng, ipv6));
    }
    for _ in 0..rng.between(1, 5) {
        let connection = connection(&mut rng, &mut plan.devices);
        plan.connections.push(connection);
    }
    for index in 0..plan.connections.len() {
        for side in 0..2 {
            direction(&mut rng, &mut plan, index, side, profile);
        }
    }
    place_regions(&mut rng, &mut plan);
    set_compares(&mut rng, &mut plan);
    if profile.faults {
        plan.faults = faults(&mut rng, &plan);
    }
    plan
}

fn percent(rng: &mut Rng, percent: u32) -> bool {
    rng.chance(Probability::from_percent(percent))
}

fn device(rng: &mut Rng, ipv6: bool) -> DevicePlan {
    let shared = region(rng, Role::SharedCells, SHARED_CELLS * 8);
    DevicePlan {
        memory_bytes: 0,
        regions: vec![shared],
        cqs: rng.pick(&[CqSharing::OnePerDevice, CqSharing::OnePerQp, CqSharing::OnePerQueue]),
        socket: NodeConfig {
            receive_buffer_bytes: rng.pick(&[416 << 10, 1 << 20, 8 << 20]),
            read_delay_ns: rng.pick(&[0, 0, 2 * MICROSECOND_NS, 30 * MICROSECOND_NS]),
            merge: Probability::from_percent(rng.pick(&[0, 50, 90, 100])),
        },
        ipv6,
        poll_batch: rng.pick(&[1, 3, 16]),
    }
}

fn region(rng: &mut Rng, role: Role, len: usize) -> RegionPlan {
    let page = Naming::Page(rng.next_u64() >> 8 & !0xfff);
    // A type 1 window uses the addresses of its region.
    let naming = if role != Role::Rebound && percent(rng, 25) { Naming::ZeroBased } else { page };
    RegionPlan { range: 0..len, role, naming }
}

fn connection(rng: &mut Rng, devices: &mut [DevicePlan]) -> ConnectionPlan {
    let mtu = rng.pick(&[256, 512, 1024, 1024, 2048, 4096]);
    let first = rng.index(devices.len());
    // Some devices connect to themselves.
    let other = (first + 1 + rng.index(devices.len() - 1)) % devices.len();
    let second = if percent(rng, 12) { first } else { other };
    let mut ends = [end(rng, first), end(rng, second)];
    for end in &mut ends {
        for (role, len) in [
            (Role::Source, SOURCE_BYTES),
            (Role::Destination, 0),
            (Role::Target, 0),
            (Role::Cells, CELLS * 8),
        ] {
            let len = if role == Role::Target { rng.between(4, 72) as usize * 1024 } else { len };
            let region = region(rng, role, len);
            devices[end.device].regions.push(region);
        }
    }
    for side in 0..2 {
        ends[side].max_dest_rd_atomic =
            rng.between(u64::from(ends[1 - side].max_rd_atomic), 16) as u8;
    }
    ConnectionPlan { mtu, ends }
}

fn end(rng: &mut Rng, device: usize) -> EndPlan {
    let depth = |rng: &mut Rng| rng.pick(&[1, 2, 3, 8, 16, 64]);
    EndPlan {
        device,
        first_psn: match rng.below(3) {
            0 => (PSN_MASK - rng.below(200)) as u32,
            1 => (PSN_MASK / 2 - rng.below(200) + 100) as u32,
            _ => rng.below(PSN_MASK + 1) as u32,
        },
        timeout: rng.between(10, 12) as u8,
        min_rnr_timer: rng.between(1, 12) as u8,
        max_rd_atomic: rng.pick(&[1, 1, 2, 3, 4, 8, 16]),
        max_dest_rd_atomic: 16,
        send_depth: depth(rng),
        recv_depth: depth(rng),
        max_sge: rng.pick(&[1, 2, 4, 32]),
        max_inline: rng.pick(&[0, 16, 64, 220, 512]),
        all_signaled: percent(rng, 25),
        sends: Vec::new(),
        send_pause_ns: if percent(rng, 30) { rng.below(200 * MICROSECOND_NS) } else { 0 },
        recvs: Vec::new(),
        recvs_at_start: usize::MAX,
        recv_pause_ns: 0,
    }
}

/// Returns the index of the region with this role of one end. Each end has one region of each role,
/// in the order of the ends.
///
/// # Panics
/// If ends have no region of this role.
#[must_use]
pub fn region_of(plan: &Plan, connection: usize, side: usize, role: Role) -> usize {
    let device = plan.connections[connection].ends[side].device;
    let ends_before = plan
        .connections
        .iter()
        .enumerate()
        .flat_map(|(index, plan)| (0..2).map(move |side| (index, side, plan.ends[side].device)))
        .filter(|&(index, other, at)| at == device && (index, other) < (connection, side))
        .count();
    let regions = plan.devices[device].regions.iter().enumerate();
    let mut of_role = regions.filter(|(_, region)| region.role == role).map(|(index, _)| index);
    of_role.nth(ends_before).expect("each end has a region of each role")
}

/// The state of the generator for one direction.
struct Direction<'a> {
    rng: &'a mut Rng,
    mtu: usize,
    max_sge: usize,
    peer_max_sge: usize,
    max_inline: usize,
    source: usize,
    destination: usize,
    destination_len: usize,
    peer_destination: usize,
    peer_destination_len: usize,
    target: Place,
    target_len: usize,
    cells: usize,
    bytes: usize,
    sends: Vec<SendPlan>,
    recvs: Vec<RecvPlan>,
}

fn direction(rng: &mut Rng, plan: &mut Plan, connection: usize, side: usize, profile: &Profile) {
    let [end, peer] = [side, 1 - side].map(|side| &plan.connections[connection].ends[side]);
    let (device, peer_device) = (end.device, peer.device);
    let regions = |device: usize, region: usize| plan.devices[device].regions[region].range.len();
    let destination = region_of(plan, connection, side, Role::Destination);
    let peer_destination = region_of(plan, connection, 1 - side, Role::Destination);
    let target = region_of(plan, connection, 1 - side, Role::Target);
    let mut work = Direction {
        mtu: plan.connections[connection].mtu,
        max_sge: end.max_sge as usize,
        peer_max_sge: peer.max_sge as usize,
        max_inline: end.max_inline as usize,
        source: region_of(plan, connection, side, Role::Source),
        destination,
        destination_len: regions(device, destination),
        peer_destination,
        peer_destination_len: regions(peer_device, peer_destination),
        target: Place { region: target, offset: 0 },
        target_len: regions(peer_device, target),
        cells: region_of(plan, connection, 1 - side, Role::Cells),
        bytes: 0,
        sends: Vec::new(),
        recvs: Vec::new(),
        rng,
    };
    let count = work.rng.between(0, profile.max_sends as u64);
    let mut disposables = Vec::new();
    while work.sends.len() < count as usize {
        work.request(&mut disposables, plan.devices[peer_device].regions.len());
    }
    let (destination_len, peer_destination_len) = (work.destination_len, work.peer_destination_len);
    let (mut sends, recvs) = (work.sends, work.recvs);
    let depth = plan.connections[connection].ends[side].send_depth as usize;
    signal(&mut sends, depth);

    plan.devices[peer_device].regions.extend(disposables);
    plan.devices[device].regions[destination].range = 0..destination_len;
    plan.devices[peer_device].regions[peer_destination].range = 0..peer_destination_len;
    let [end, peer] = {
        let ends = &mut plan.connections[connection].ends;
        let (first, second) = ends.split_at_mut(1);
        if side == 0 { [&mut first[0], &mut second[0]] } else { [&mut second[0], &mut first[0]] }
    };
    end.sends = sends;
    peer.recvs = recvs;
    if percent(rng, 40) {
        peer.recvs_at_start = rng.index(peer.recv_depth as usize + 1);
        peer.recv_pause_ns = rng.below(400 * MICROSECOND_NS);
    }
}

impl Direction<'_> {
    fn request(&mut self, disposables: &mut Vec<RegionPlan>, regions: usize) {
        match self.rng.below(100) {
            0..=21 => {
                let len = self.length();
                let op = match self.rng.below(10) {
                    0..=5 => Op::Send,
                    9 => {
                        let role =
                            self.rng.pick(&[Role::Disposable, Role::Windowed, Role::Rebound]);
                        let room = self.rng.pick(&[64, DISPOSABLE_BYTES]);
                        disposables.push(region(self.rng, role, room));
                        let region = regions + disposables.len() - 1;
                        for _ in 0..self.rng.index(3) {
                            let len = self.length().min(room);
                            let offset = self.rng.index(room - len + 1);
                            self.outgoing(Op::Write(Place { region, offset }), len);
                        }
                        if role == Role::Rebound {
                            Op::SendRelease(region)
                        } else {
                            Op::SendInvalidate(region)
                        }
                    }
                    _ => Op::SendImm(self.rng.next_u32()),
                };
                self.outgoing(op, len);
            }
            22..=25 => {
                let offset = self.rng.index(self.target_len / 8) * 8;
                self.outgoing(Op::AtomicWrite(Place { offset, ..self.target }), 8);
            }
            26..=28 => {
                let len = self.length().min(self.target_len);
                let at = self.place(len);
                let len = percent(self.rng, 70).then_some(len as u32);
                let fence = percent(self.rng, 10);
                self.push(Op::Flush { at, len }, Local::Pieces(Vec::new()), fence);
            }
            29..=46 => {
                let len = self.length().min(self.target_len);
                let place = self.place(len);
                let imm = self.rng.next_u32();
                let op =
                    if percent(self.rng, 30) { Op::WriteImm(place, imm) } else { Op::Write(place) };
                self.outgoing(op, len);
            }
            47..=68 => {
                let len = self.length().min(self.target_len);
                let place = self.place(len);
                let fence = percent(self.rng, 10);
                self.incoming(Op::Read(place), len, fence);
            }
            69..=76 => self.read_and_pass_on(),
            77..=84 => {
                let at = self.cell();
                let (compare, swap) = (self.rng.next_u64(), self.rng.next_u64());
                let fence = percent(self.rng, 10);
                self.incoming(Op::CompareSwap { at, compare, swap }, 8, fence);
            }
            85..=91 => {
                let (at, add) = (self.cell(), self.rng.next_u64());
                let fence = percent(self.rng, 10);
                self.incoming(Op::FetchAdd { at, add }, 8, fence);
            }
            _ => {
                let offset = self.rng.index(SHARED_CELLS) * 8;
                let add = self.rng.next_u64();
                self.incoming(Op::FetchAdd { at: Place { region: 0, offset }, add }, 8, false);
            }
        }
    }

    /// Draws a length, preferring critical ones.
    fn length(&mut self) -> usize {
        let mtu = self.mtu;
        let around = |rng: &mut Rng, len: usize| len + rng.index(3) - 1;
        let len = match self.rng.below(100) {
            0..=9 => 0,
            10..=16 => 1,
            17..=35 => self.rng.between(2, 64) as usize,
            36..=55 => around(self.rng, mtu),
            _ if self.bytes > BYTES_PER_DIRECTION => self.rng.index(100),
            56..=79 => {
                let packets = self.rng.between(2, 9) as usize;
                around(self.rng, packets * mtu)
            }
            80..=89 => self.rng.index(4 * mtu),
            90..=93 => MAX_MESSAGE - self.rng.index(2),
            _ => self.rng.index(MAX_MESSAGE),
        };
        self.bytes += len;
        len.min(MAX_MESSAGE)
    }

    fn place(&mut self, len: usize) -> Place {
        Place { offset: self.rng.index(self.target_len - len + 1), ..self.target }
    }

    fn cell(&mut self) -> Place {
        Place { region: self.cells, offset: self.rng.index(CELLS) * 8 }
    }

    /// Splits `len` bytes into lengths of pieces, some of which may be 0.
    fn split(&mut self, len: usize, max_pieces: usize) -> Vec<usize> {
        if len == 0 && percent(self.rng, 50) {
            return Vec::new();
        }
        let most = if percent(self.rng, 15) { max_pieces } else { max_pieces.min(4) };
        let pieces = self.rng.between(1, most as u64) as usize;
        let mut cuts: Vec<usize> = (1..pieces).map(|_| self.rng.index(len + 1)).collect();
        cuts.push(0);
        cuts.push(len);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Draws pieces of the source. Fails for a piece that is longer than the source.
    fn source_pieces(&mut self, len: usize) -> Option<Vec<Piece>> {
        let lens = self.split(len, self.max_sge);
        let pieces = lens.into_iter().map(|len| {
            let room = SOURCE_BYTES.checked_sub(len)?;
            Some(Piece { region: self.source, offset: self.rng.index(room + 1), len })
        });
        pieces.collect()
    }

    /// Allocates destination pieces with gaps between them.
    fn destination_pieces(
        rng: &mut Rng,
        lens: &[usize],
        region: usize,
        region_len: &mut usize,
        align: usize,
    ) -> Vec<Piece> {
        let pieces = lens.iter().map(|&len| {
            let offset = (*region_len + rng.index(24)).next_multiple_of(align);
            *region_len = offset + len;
            Piece { region, offset, len }
        });
        pieces.collect()
    }

    /// Adds a SEND or WRITE of `len` bytes from the source or inline.
    fn outgoing(&mut self, op: Op, len: usize) {
        let local = if len <= self.max_inline && percent(self.rng, 50) {
            let parts = self.split(len, 3);
            Local::Inline(parts.into_iter().map(|len| self.random_bytes(len)).collect())
        } else {
            match self.source_pieces(len) {
                Some(pieces) => Local::Pieces(pieces),
                // A message that is longer than the source is shortened.
                None => return self.outgoing(op, len / 2),
            }
        };
        let fence = percent(self.rng, 10);
        self.push(op, local, fence);
    }

    fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        bytes
    }

    /// Adds a READ or atomic of `len` bytes into memory of its own.
    fn incoming(&mut self, op: Op, len: usize, fence: bool) -> Vec<Piece> {
        // The old value of a shared cell is read back as one piece.
        let max_pieces = if matches!(op, Op::FetchAdd { .. }) { 1 } else { self.max_sge };
        let lens = self.split(len, max_pieces);
        let align = if len == 8 { 8 } else { 1 };
        let pieces = Self::destination_pieces(
            self.rng,
            &lens,
            self.destination,
            &mut self.destination_len,
            align,
        );
        self.push(op, Local::Pieces(pieces.clone()), fence);
        pieces
    }

    /// Adds a READ, then a fenced WRITE or SEND of the data read.
    fn read_and_pass_on(&mut self) {
        let len = self.length().min(self.target_len);
        let from = self.place(len);
        let pieces = self.incoming(Op::Read(from), len, false);
        let to = self.place(len);
        let op = if percent(self.rng, 70) { Op::Write(to) } else { Op::Send };
        self.push(op, Local::Pieces(pieces), true);
    }

    fn push(&mut self, op: Op, local: Local, fence: bool) {
        if op.consumes_recv() {
            let len = if op.is_send() { local.len() } else { 0 };
            self.recv(len);
        }
        let (signaled, solicited) = (percent(self.rng, 60), percent(self.rng, 20));
        self.sends.push(SendPlan { op, local, signaled, fence, solicited });
    }

    /// Adds a receive for a message of `len` bytes, sometimes with spare room.
    fn recv(&mut self, len: usize) {
        let spare = if percent(self.rng, 30) { self.rng.index(300) } else { 0 };
        let lens = self.split(len + spare, self.peer_max_sge);
        let pieces = Self::destination_pieces(
            self.rng,
            &lens,
            self.peer_destination,
            &mut self.peer_destination_len,
            1,
        );
        self.recvs.push(RecvPlan { pieces });
    }
}

/// Signals sends so that completions free the queue in time.
fn signal(sends: &mut [SendPlan], depth: usize) {
    let mut silent = 0;
    for send in sends.iter_mut() {
        silent = if send.signaled { 0 } else { silent + 1 };
        if silent >= depth {
            send.signaled = true;
            silent = 0;
        }
    }
    if let Some(last) = sends.last_mut() {
        last.signaled = true;
    }
}

/// Assigns addresses to all regions, with gaps that must never change.
fn place_regions(rng: &mut Rng, plan: &mut Plan) {
    for device in &mut plan.devices {
        let mut end = 0;
        for region in &mut device.regions {
            // A region of no bytes cannot be registered.
            let len = region.range.len().max(1);
            let start = (end + 64 + rng.index(200)).next_multiple_of(8);
            region.range = start..start + len;
            end = region.range.end;
        }
        device.memory_bytes = (end + 200).next_multiple_of(4096);
    }
}

/// Gives half of the compare-and-swaps the value that they will find.
fn set_compares(rng: &mut Rng, plan: &mut Plan) {
    let images: Vec<_> = (0..plan.devices.len()).map(|device| plan.initial_image(device)).collect();
    for connection in 0..plan.connections.len() {
        for side in 0..2 {
            let peer = plan.connections[connection].ends[1 - side].device;
            let cells = region_of(plan, connection, 1 - side, Role::Cells);
            let start = plan.devices[peer].regions[cells].range.start;
            let mut values: Vec<u64> =
                (0..CELLS).map(|cell| read_u64(&images[peer], start + cell * 8)).collect();
            for send in &mut plan.connections[connection].ends[side].sends {
                match &mut send.op {
                    Op::CompareSwap { at, compare, swap } => {
                        let value = &mut values[at.offset / 8];
                        if percent(rng, 50) {
                            *compare = *value;
                            *value = *swap;
                        }
                    }
                    Op::FetchAdd { at, add } if at.region == cells => {
                        let value = &mut values[at.offset / 8];
                        *value = value.wrapping_add(*add);
                    }
                    _ => {}
                }
            }
        }
    }
}

fn no_faults() -> FaultPlan {
    FaultPlan {
        links: Vec::new(),
        toggles_ns: Vec::new(),
        pauses: Vec::new(),
        end_ns: 0,
        liveness_ns: 2_000 * MILLISECOND_NS,
    }
}

/// Returns the local ACK timeout of a code, in nanoseconds (IBTA vol. 1, 9.7.6.1.3).
#[must_use]
pub fn timeout_ns(code: u8) -> u64 {
    4_096 << code
}

fn faults(rng: &mut Rng, plan: &Plan) -> FaultPlan {
    let ends = || plan.ends().map(|(_, end)| timeout_ns(end.timeout));
    let shortest = ends().min().unwrap_or(MILLISECOND_NS);
    let longest = ends().max().unwrap_or(MILLISECOND_NS);
    let most_mtu = plan.connections.iter().map(|connection| connection.mtu).max().unwrap_or(256);
    let mtu = most_mtu + HEADERS_BYTES + rng.index(1_000);
    let nodes = plan.devices.len();
    let severity = rng.pick(&[0, 1, 3, 10]);
    let mut links = Vec::new();
    for from in 0..nodes {
        for to in 0..nodes {
            let faults =
                if percent(rng, 80) { link(rng, severity, mtu) } else { link(rng, 0, mtu) };
            links.push((from, to, faults));
        }
    }
    // Seven retries take at least eight of the shortest timeouts. A quiet interval longer than the
    // longest timeout lets one retry through.
    let end_ns = rng.between(50, 500) * MILLISECOND_NS;
    let mut toggles_ns = Vec::new();
    let mut at = 0;
    while at < end_ns {
        at += rng.between(shortest / 2, 4 * shortest);
        toggles_ns.push(at);
        at += rng.between(2 * longest, 3 * longest);
        toggles_ns.push(at);
    }
    let mut pauses = Vec::new();
    if percent(rng, 30) {
        let windows = std::iter::once(0).chain(toggles_ns.iter().skip(1).step_by(2).copied());
        let stops = toggles_ns.iter().step_by(2).copied();
        for (from, until) in
            windows.zip(stops).filter(|_| percent(rng, 30)).take(4).collect::<Vec<_>>()
        {
            let (from_ns, until_ns) = (from + rng.below((until - from) / 2), until);
            let node = rng.index(nodes);
            let to = percent(rng, 50).then(|| rng.index(nodes));
            pauses.push(PausePlan { node, to, hold: percent(rng, 50), from_ns, until_ns });
        }
    }
    FaultPlan { links, toggles_ns, pauses, end_ns, liveness_ns: 2_000 * MILLISECOND_NS }
}

fn link(rng: &mut Rng, severity: u64, mtu: usize) -> LinkFaults {
    let mut chance = |most_percent: u64| {
        let some = percent(rng, 70);
        Probability::from_ppm(if some { rng.between(0, most_percent * 10_000) as u32 } else { 0 })
    };
    let (loss, duplicate) = (chance(severity), chance(severity));
    let (reorder, corrupt) = (chance(severity), chance(severity.min(3)));
    LinkFaults {
        loss,
        loss_burst_max: rng.pick(&[1, 1, 1, 5]),
        duplicate,
        reorder,
        reorder_delay_ns: rng.pick(&[10, 100, 1_000]) * MICROSECOND_NS,
        // The rate is not drawn, so that the other draws of a seed stay the same.
        mark: reorder,
        corrupt,
        corrupt_bits_max: 3,
        // Not drawn, for the same reason.
        rebind: Probability::from_ppm(duplicate.as_ppm() / 20),
        delay_ns: rng.pick(&[1, 10, 100]) * MICROSECOND_NS,
        jitter_ns: rng.pick(&[0, 0, 5, 50]) * MICROSECOND_NS,
        mtu,
        bandwidth_bps: rng.pick(&[None, None, Some(1_000_000_000), Some(10_000_000_000)]),
        // At the lowest rate, a full queue takes at most a quarter of the shortest timeout.
        queue_bytes: rng.pick(&[64 << 10, 128 << 10]),
        mark_above_bytes: 16 << 10,
    }
}
