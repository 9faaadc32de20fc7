//! Unreliable connections and datagrams over a bad network: each message arrives whole or not at
//! all, nothing is written elsewhere, and each send completes once.
//!
//! - UC: Received messages are a subsequence of the sent ones. A WRITE changes only its own bytes.
//! - UD: Received messages were sent to this receiver with the right Q_Key. Their header has the
//!   sender's address. Duplicates may occur.
//! - Both: After the faults end, every message arrives.
//!
//! Each message contains its number, in its first bytes or as immediate data. `URXE_SEED` runs a
//! single seed, `URXE_SIM_SEEDS` sets the number of seeds.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults};
use urxe::*;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::{
    Scenario, Seeds, address, assert_bug_is_found, assert_runs_follow_seeds, device, error_text,
    faults, percent,
};
use urxe_test_support::tally;

const SEEDS: u64 = 60;
/// Messages of each end in the bad network, and afterwards.
const MESSAGES: usize = 40;
const LAST: usize = 3;
/// The room of a message, and the gap behind it, which must never change.
const PART: usize = 6000;
const GAP: usize = 64;
const STRIDE: usize = PART + GAP;
const BUFFERS: usize = 10;
/// UC: the peer of each end.
const PEERS: [usize; 6] = [2, 4, 0, 5, 1, 3];
const UNTOUCHED: u8 = 0xa5;
const QKEY: QKey = QKey(0x0123_4567);
const STEP: Duration = Duration::from_micros(40);

/// A message that was sent.
struct Sent {
    bytes: Vec<u8>,
    imm: Option<u32>,
    /// UC: whether the data goes into the part of its number instead of a receive.
    is_write: bool,
    /// The receiving end.
    to: usize,
    /// UD: whether the Q_Key is another one.
    is_foreign: bool,
    /// The number of received copies.
    came: u32,
}

struct End {
    address: IpAddr,
    qp: QueuePair,
    cq: CompletionQueue,
    /// The shared receive queue; `None` if the end has receives of its own.
    srq: Option<SharedReceiveQueue>,
    /// The sources of all messages, by number.
    source: MemoryRegion,
    /// The buffers of receives.
    destination: MemoryRegion,
    /// The targets of the peer's WRITEs, by number.
    target: MemoryRegion,
    sent: Vec<Sent>,
    done: usize,
    free: Vec<usize>,
    posted: VecDeque<(u64, usize)>,
    next_recv: u64,
    /// UC: the smallest number that may still arrive from the peer.
    next_due: usize,
    /// UD: the address handles of all ends.
    ways: Vec<AddressHandle>,
}

tally! {
    struct Tally {
        arrived: u32,
        copies: u32,
        lost: u32,
        writes_told: u32,
        /// Messages with another Q_Key.
        foreign: u32,
        /// The devices' counters of [`COUNTERS`].
        counted: [u64; 5],
    }
}

const COUNTERS: [Counter; 5] = [
    Counter::DropNoReceive,
    Counter::DropIcrc,
    Counter::DropIncomplete,
    Counter::DropDuplicate,
    Counter::DropWrongQkey,
];

/// An injected bug: a received message has one byte too many.
#[derive(Clone, Copy)]
struct WrongByte;

struct Unreliable {
    fabric: Fabric,
    rng: Rng,
    transport: QpType,
    devices: Vec<Device>,
    ends: Vec<End>,
    mtu: usize,
    bug: Option<WrongByte>,
    tally: Tally,
}

impl Scenario for Unreliable {
    type Kind = QpType;
    type InjectedBug = WrongByte;
    type Tally = Tally;

    fn new(seed: u64, transport: QpType, bug: Option<WrongByte>) -> Self {
        let mut rng = Rng::stream(seed, 0x0bad);
        let fabric = Fabric::manual(seed);
        fabric.set_faults(faults(&mut rng, [10, 10, 10, 5]));
        let active_mtu = rng.pick(&[PathMtu::Mtu256, PathMtu::Mtu1024, PathMtu::Mtu4096]);
        let v6 = percent(&mut rng, 30);
        let mut options = DeviceOptions::default();
        options.active_mtu = active_mtu;
        let addresses: Vec<IpAddr> = (1..=3).map(|n| address(n, v6)).collect();
        let devices: Vec<Device> =
            addresses.iter().map(|at| device(&fabric, *at, options.clone())).collect();
        // Each device has two ends; datagrams go from every end to every end.
        let mut ends: Vec<End> = (0..6)
            .map(|nr| End::new(&devices[nr / 2], addresses[nr / 2], transport, &mut rng))
            .collect();
        if transport == QpType::Uc {
            for (a, b) in [(0, 2), (1, 4), (3, 5)] {
                let options = ConnectOptions::new().access(Access::REMOTE_WRITE);
                ends[a].qp.connect(&ends[b].qp.endpoint(), &options).unwrap();
                ends[b].qp.connect(&ends[a].qp.endpoint(), &options).unwrap();
            }
        } else {
            let gids: Vec<Gid> = ends.iter().map(|end| end.qp.endpoint().gid).collect();
            for end in &mut ends {
                end.qp.start_datagrams(QKEY).unwrap();
                end.ways =
                    gids.iter().map(|gid| end.qp.pd().address_handle(*gid).unwrap()).collect();
            }
        }
        let tally = Tally::default();
        Self { fabric, rng, transport, devices, ends, mtu: active_mtu.bytes(), bug, tally }
    }

    fn run(&mut self) -> Result<(), String> {
        while self.ends.iter().any(|end| end.sent.len() < MESSAGES) {
            self.post_receives(false)?;
            for nr in 0..self.ends.len() {
                if self.ends[nr].sent.len() < MESSAGES && percent(&mut self.rng, 50) {
                    self.send(nr, false)?;
                }
            }
            error_text(self.fabric.run_for(STEP))?;
            self.check()?;
        }
        // In a good network, delayed packets arrive first. Afterwards every new message must
        // arrive.
        self.fabric.set_faults(LinkFaults::default());
        error_text(self.fabric.run_for(STEP * 100))?;
        self.check()?;
        for _ in 0..LAST {
            self.post_receives(true)?;
            (0..self.ends.len()).try_for_each(|nr| self.send(nr, true))?;
            error_text(self.fabric.run_for(STEP * 100))?;
            self.check()?;
        }
        self.conclude()
    }

    fn tally(&self) -> Tally {
        let count = |counter| self.devices.iter().map(|device| device.counter(counter)).sum();
        Tally { counted: COUNTERS.map(count), ..self.tally }
    }

    fn trace_hash(&self) -> u64 {
        self.fabric.trace_hash()
    }
}

impl Unreliable {
    fn post_receives(&mut self, everything: bool) -> Result<(), String> {
        for end in &mut self.ends {
            while !end.free.is_empty() && (everything || percent(&mut self.rng, 40)) {
                let buffer = end.free.swap_remove(self.rng.index(end.free.len()));
                let (start, cut) = (buffer * STRIDE, self.rng.index(PART));
                let pieces = [
                    error_text(end.destination.slice(start..start + cut))?,
                    error_text(end.destination.slice(start + cut..start + PART))?,
                ];
                let request = RecvRequest::new(pieces).wr_id(end.next_recv);
                match &end.srq {
                    None => error_text(end.qp.post_recv(&request))?,
                    Some(srq) => error_text(srq.post_recv(&request))?,
                }
                end.posted.push_back((end.next_recv, buffer));
                end.next_recv += 1;
            }
        }
        Ok(())
    }

    /// Sends the next message of end `from`.
    fn send(&mut self, from: usize, plain: bool) -> Result<(), String> {
        let rng = &mut self.rng;
        let number = self.ends[from].sent.len();
        let to = match self.transport {
            QpType::Uc => PEERS[from],
            _ => rng.index(self.ends.len()),
        };
        let longest = if self.transport == QpType::Uc { PART } else { self.mtu };
        let len = match rng.index(4) {
            0 => 4 + rng.index(60),
            1 => longest,
            _ => 4 + rng.index(longest - 3),
        };
        let (is_write, has_imm) = match (self.transport, plain) {
            (_, true) => (false, true),
            (QpType::Uc, _) => (rng.index(2) == 0, rng.index(2) == 0),
            _ => (false, rng.index(2) == 0),
        };
        let is_foreign = self.transport == QpType::Ud && !plain && percent(rng, 10);
        let len = if has_imm && percent(rng, 10) { 0 } else { len };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        if len >= 4 {
            bytes[..4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        let imm = has_imm.then_some(number as u32);
        let end = &self.ends[from];
        let start = number * STRIDE;
        error_text(end.source.write(start, &bytes))?;
        let data = error_text(end.source.slice(start..start + len))?;
        let remote =
            error_text(self.ends[to].target.remote().slice(start as u64..(start + len) as u64))?;
        let request = match (is_write, imm) {
            (false, None) => SendRequest::send(data),
            (false, Some(imm)) => SendRequest::send_imm(data, imm),
            (true, None) => SendRequest::write(data, remote),
            (true, Some(imm)) => SendRequest::write_imm(data, remote, imm),
        };
        let request = match self.transport {
            QpType::Ud => {
                let qkey = if is_foreign { QKey(QKEY.0 ^ 0x10) } else { QKEY };
                request.to(&end.ways[to], self.ends[to].qp.qpn(), qkey)
            }
            _ => request,
        };
        error_text(end.qp.post_send(&request.wr_id(number as u64)))?;
        self.tally.foreign += u32::from(is_foreign);
        self.ends[from].sent.push(Sent { bytes, imm, is_write, to, is_foreign, came: 0 });
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        for nr in 0..self.ends.len() {
            while let Some(wc) = error_text(self.ends[nr].cq.poll_one())? {
                let verdict = if wc.opcode.is_receive() {
                    self.received(nr, &wc)
                } else {
                    self.left(nr, &wc)
                };
                verdict.map_err(|what| format!("end {nr}: {what}: {wc:?}"))?;
            }
        }
        Ok(())
    }

    /// Checks the completion of a send: once, in order, and never in error, because an unreliable
    /// service reports no loss.
    fn left(&mut self, nr: usize, wc: &Completion) -> Result<(), String> {
        let end = &mut self.ends[nr];
        if wc.wr_id != end.done as u64 || end.done >= end.sent.len() || !wc.status.is_success() {
            return Err(format!("expected send {}", end.done));
        }
        end.done += 1;
        Ok(())
    }

    fn received(&mut self, nr: usize, wc: &Completion) -> Result<(), String> {
        let header = if self.transport == QpType::Ud { GRH_LEN } else { 0 };
        let end = &mut self.ends[nr];
        let Some((wr_id, buffer)) = end.posted.pop_front() else {
            return Err("nothing is posted".into());
        };
        if wr_id != wc.wr_id || !wc.status.is_success() {
            return Err(format!("expected receive {wr_id}"));
        }
        end.free.push(buffer);
        let len = (wc.byte_len as usize).checked_sub(header).ok_or("shorter than a header")?;
        let is_write = wc.opcode == WcOpcode::RecvRdmaWithImm;
        let start = buffer * STRIDE;
        let grh = error_text(end.destination.read_vec(start, header))?;
        let (local, next_due) = (end.address, end.next_due);
        let from = match self.transport {
            QpType::Uc => PEERS[nr],
            _ => self
                .ends
                .iter()
                .position(|e| e.qp.qpn() == wc.src_qp)
                .ok_or("no end sent this message")?,
        };
        if header > 0 && !header_is(&grh, self.ends[from].address, local) {
            return Err(format!("the header {grh:02x?} is wrong"));
        }
        let end = &self.ends[nr];
        let number = match wc.imm_data() {
            Some(imm) => imm as usize,
            None if len < 4 => return Err("a message without a number".into()),
            None => {
                let first = error_text(end.destination.read_vec(start + header, 4))?;
                u32::from_le_bytes([first[0], first[1], first[2], first[3]]) as usize
            }
        };
        let mut bytes = match is_write {
            true => error_text(end.target.read_vec(number * STRIDE, len))?,
            false => error_text(end.destination.read_vec(start + header, len))?,
        };
        if self.bug.is_some() && self.tally.arrived == 10 {
            bytes.push(0);
        }
        let Some(sent) = self.ends[from].sent.get_mut(number) else {
            return Err("never sent".into());
        };
        if (sent.to, sent.is_write, sent.imm, sent.is_foreign)
            != (nr, is_write, wc.imm_data(), false)
        {
            return Err(format!("message {number} is another"));
        }
        if sent.bytes != bytes {
            return Err(format!("message {number} has other bytes"));
        }
        sent.came += 1;
        self.tally.copies += u32::from(sent.came > 1);
        if self.transport == QpType::Uc {
            if number < next_due {
                return Err(format!("message {number} came after {}", next_due - 1));
            }
            self.ends[nr].next_due = number + 1;
        }
        self.tally.arrived += 1;
        self.tally.writes_told += u32::from(is_write);
        Ok(())
    }

    fn conclude(&mut self) -> Result<(), String> {
        for (nr, end) in self.ends.iter().enumerate() {
            if end.done != end.sent.len() {
                return Err(format!("end {nr}: {} of {} sends are done", end.done, end.sent.len()));
            }
            if let Some(late) = end.sent[MESSAGES..].iter().position(|sent| sent.came != 1) {
                return Err(format!(
                    "end {nr}: message {} is missing on a good network",
                    MESSAGES + late
                ));
            }
            let lost = end
                .sent
                .iter()
                .filter(|sent| sent.came == 0 && (!sent.is_write || sent.imm.is_some()));
            self.tally.lost += lost.count() as u32;
            // Each byte of a target must be unchanged or a byte of the peer's WRITE to that place.
            let writer = PEERS[nr];
            let target = error_text(end.target.read_vec(0, end.target.len()))?;
            for (at, byte) in target.iter().enumerate() {
                let written = self.ends[writer].sent.get(at / STRIDE).filter(|sent| sent.is_write);
                let written = written.and_then(|sent| sent.bytes.get(at % STRIDE));
                if *byte != UNTOUCHED && written != Some(byte) {
                    return Err(format!("end {nr}: byte {at} of the target is {byte:#x}"));
                }
            }
            let destination = error_text(end.destination.read_vec(0, end.destination.len()))?;
            if destination
                .chunks(STRIDE)
                .any(|part| part[PART..].iter().any(|byte| *byte != UNTOUCHED))
            {
                return Err(format!("end {nr}: something was written behind a receive"));
            }
        }
        Ok(())
    }
}

impl End {
    fn new(device: &Device, address: IpAddr, transport: QpType, rng: &mut Rng) -> Self {
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4096).unwrap());
        let region = |parts: usize, access| {
            let region = pd.allocate(parts * STRIDE, access).unwrap();
            region.write(0, &vec![UNTOUCHED; parts * STRIDE]).unwrap();
            region
        };
        let parts = MESSAGES + LAST;
        let target = region(parts, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let (source, destination) =
            (region(parts, Access::empty()), region(BUFFERS, Access::LOCAL_WRITE));
        let builder = pd.queue_pair(&cq).qp_type(transport).signal_all(true);
        let srq = (rng.index(2) == 0)
            .then(|| pd.shared_receive_queue(BUFFERS as u32).max_sge(2).create().unwrap());
        let qp = match &srq {
            None => builder.create(),
            Some(srq) => builder.shared_receive_queue(srq).create(),
        };
        let qp = qp.unwrap();
        if transport == QpType::Uc {
            qp.init(&ConnectOptions::new().access(Access::REMOTE_WRITE)).unwrap();
        }
        Self {
            address,
            qp,
            cq,
            srq,
            source,
            destination,
            target,
            sent: Vec::new(),
            done: 0,
            free: (0..BUFFERS).collect(),
            posted: VecDeque::new(),
            next_recv: 0,
            next_due: 0,
            ways: Vec::new(),
        }
    }
}

/// Returns whether the bytes in front of a datagram are the IP header from one host to another.
fn header_is(grh: &[u8], from: IpAddr, to: IpAddr) -> bool {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let sum = grh[20..]
                .chunks(2)
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum::<u32>();
            grh[..20] == [0; 20]
                && grh[20] == 0x45
                && grh[29] == 17
                && (sum & 0xffff) + (sum >> 16) == 0xffff
                && grh[32..36] == from.octets()
                && grh[36..] == to.octets()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            grh[0] >> 4 == 6
                && grh[6] == 17
                && grh[8..24] == from.octets()
                && grh[24..] == to.octets()
        }
        _ => false,
    }
}

/// Runs all seeds over one service. Returns the sum of the tallies.
fn all_seeds(transport: QpType) -> Tally {
    let all = Seeds::chosen(SEEDS).run::<Unreliable>(transport);
    println!("{transport:?}: {all:?}; counted: {COUNTERS:?}");
    all
}

#[test]
fn unreliable_connections_come_out_right() {
    let Tally { arrived, copies, lost, writes_told, counted, .. } = all_seeds(QpType::Uc);
    if Seeds::chosen(SEEDS).are_many() {
        assert!(arrived > 2000 && lost > 100 && writes_told > 300 && copies == 0);
        let [no_receive, icrc, incomplete, duplicate, _] = counted;
        assert!(no_receive > 0 && icrc > 0 && incomplete > 0 && duplicate > 0, "{counted:?}");
    }
}

#[test]
fn datagrams_come_out_right() {
    let Tally { arrived, copies, lost, foreign, counted, .. } = all_seeds(QpType::Ud);
    if Seeds::chosen(SEEDS).are_many() {
        assert!(arrived > 4000 && lost > 100 && copies > 20 && foreign > 100);
        let [no_receive, icrc, _, _, wrong_qkey] = counted;
        assert!(no_receive > 0 && icrc > 0 && wrong_qkey > 0, "{counted:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    [QpType::Uc, QpType::Ud].into_iter().for_each(assert_runs_follow_seeds::<Unreliable>);
}

#[test]
fn a_wrong_byte_is_found() {
    for kind in [QpType::Uc, QpType::Ud] {
        assert_bug_is_found::<Unreliable>(kind, WrongByte);
    }
}
