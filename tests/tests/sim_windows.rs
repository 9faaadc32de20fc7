//! Keys that come and go while a peer uses them, over a bad network: what a window or a fast-registration region grants is granted as long as
//! it is valid and not a packet longer.
//!
//! ```text
//! owner: bind / register ─→ key ─→ peer: WRITEs and READs through it, as they come
//!        LOCAL_INV at any time, or the peer's SEND with invalidate behind them
//!        done: from now on nothing changes; what the peer then sends by the old key fails with "remote access error"
//! ```
//! A request that the peer saw succeed was carried out whole; one that it did not may have been, in part. Nothing beside the part that was bound
//! ever changes. `URXE_SEED` runs one seed alone, `URXE_SIM_SEEDS` sets how many there are.

use std::time::Duration;

use urxe::sim::{Chance, DeviceOptions, Fabric, LinkFaults};
use urxe::*;
use urxe_stack::rng::Rng;
use urxe_tests::sim::seeds::{Seeds, assert_fault_is_found, assert_runs_follow_seeds};

const SEEDS: u64 = 60;
const ROUNDS: usize = 12;
/// The region under the keys, and the longest part that a key is for.
const REGION: usize = 40_000;
const PART: usize = 24_000;
const GRANTED: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);
const STEP: Duration = Duration::from_micros(15);
/// Steps in which a connection that can go on must have gone on.
const LIMIT: u32 = 200_000;

/// What the owner lends.
enum Key {
    Window(MemoryWindow),
    Fast(FastRegion),
}

/// What became of a request of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Done,
    Failed(WcStatus),
}

/// A WRITE into the part, or a READ of it.
struct Request {
    /// Offsets in the region.
    range: std::ops::Range<usize>,
    /// What a WRITE carries.
    bytes: Option<Vec<u8>>,
    fate: Fate,
}

struct World {
    fabric: Fabric,
    rng: Rng,
    owner: Device,
    owner_qp: QueuePair,
    peer_qp: QueuePair,
    owner_cq: CompletionQueue,
    peer_cq: CompletionQueue,
    region: MemoryRegion,
    /// The peer's: WRITEs come from it, READs land in it.
    scratch: MemoryRegion,
    keys: Vec<Key>,
    requests: Vec<Request>,
    /// Completions at the owner that nobody has looked at.
    owner_done: Vec<Completion>,
    sabotage: bool,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    done: u32,
    cut_off: u32,
    refused: u32,
    by_peer: u32,
    by_owner: u32,
}

fn say<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn percent(rng: &mut Rng, percent: u32) -> bool {
    rng.chance(Chance::from_percent(percent))
}

impl World {
    fn new(seed: u64, sabotage: bool) -> Self {
        let mut rng = Rng::stream(seed, 0x3140);
        let fabric = Fabric::manual(seed);
        let mut chance = |most: u64| Chance::from_percent(rng.below(most + 1) as u32);
        fabric.set_faults(LinkFaults {
            loss: chance(10),
            duplicate: chance(10),
            reorder: chance(10),
            corrupt: chance(5),
            ..LinkFaults::default()
        });
        let device = |host| {
            let options = DeviceOptions { icrc_policy: IcrcPolicy::Strict, ..DeviceOptions::default() };
            fabric.device_with(&[std::net::IpAddr::from([10, 0, 0, host])], options).unwrap()
        };
        let (owner, peer) = (device(1), device(2));
        let (owner_pd, peer_pd) = (owner.alloc_pd().unwrap(), peer.alloc_pd().unwrap());
        let (owner_cq, peer_cq) = (owner.create_cq(1024).unwrap(), peer.create_cq(1024).unwrap());
        let region = owner_pd.allocate(REGION, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        let mut image = vec![0; REGION];
        rng.fill(&mut image);
        region.write(0, &image).unwrap();
        let scratch = peer_pd.allocate(2 * PART, Access::LOCAL_WRITE).unwrap();
        let keys = vec![
            Key::Window(owner_pd.alloc_window().unwrap()),
            Key::Fast(owner_pd.alloc_fast_region(16).unwrap()),
        ];
        let world = Self {
            owner_qp: owner_pd.queue_pair(&owner_cq).create().unwrap(),
            peer_qp: peer_pd.queue_pair(&peer_cq).signal_all(true).create().unwrap(),
            fabric,
            rng,
            owner,
            owner_cq,
            peer_cq,
            region,
            scratch,
            keys,
            requests: Vec::new(),
            owner_done: Vec::new(),
            sabotage,
            tally: Tally::default(),
        };
        world.connect().unwrap();
        world
    }

    fn connect(&self) -> Result<(), String> {
        let options = ConnectOptions {
            path_mtu: Some(PathMtu::Mtu1024),
            timeout: 10,
            min_rnr_timer: 4,
            ..ConnectOptions::default()
        };
        say(self.owner_qp.connect(&self.peer_qp.endpoint(), &options))?;
        say(self.peer_qp.connect(&self.owner_qp.endpoint(), &options))
    }

    /// A connection that failed, anew; once nothing of the old one is on its way.
    fn reconnect(&mut self) -> Result<(), String> {
        say(self.fabric.run_for(STEP * 1000))?;
        self.poll()?;
        say(self.owner_qp.reset())?;
        say(self.peer_qp.reset())?;
        self.connect()
    }

    fn poll(&mut self) -> Result<(), String> {
        while let Some(wc) = say(self.owner_cq.poll_one())? {
            self.owner_done.push(wc);
        }
        while let Some(wc) = say(self.peer_cq.poll_one())? {
            let Some(request) = self.requests.get_mut(wc.wr_id as usize) else {
                // The SEND with invalidate, or the request by a key that is gone.
                continue;
            };
            if request.fate != Fate::Open {
                return Err(format!("completed twice: {wc:?}"));
            }
            request.fate = if wc.status.is_success() { Fate::Done } else { Fate::Failed(wc.status) };
            let expected = match wc.status {
                WcStatus::Success | WcStatus::RemAccessErr | WcStatus::WrFlushErr => true,
                // The refusal got lost, and who refuses an access is in error and says it only once.
                WcStatus::RetryExcErr => self.owner_qp.state() == QpState::Err,
                _ => false,
            };
            if !expected {
                return Err(format!("unexpected: {wc:?}"));
            }
        }
        Ok(())
    }

    /// Steps until `is_done`, which sees each step; or the limit.
    fn step_until(
        &mut self,
        what: &str,
        mut is_done: impl FnMut(&Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..LIMIT {
            self.poll()?;
            if is_done(self)? {
                return Ok(());
            }
            say(self.fabric.run_for(STEP))?;
        }
        Err(format!("never: {what}"))
    }

    fn owner_completes(&mut self, wr_id: u64) -> Result<Completion, String> {
        let is = move |wc: &Completion| wc.wr_id == wr_id;
        self.step_until("a completion at the owner", |world| Ok(world.owner_done.iter().any(is)))?;
        let at = self.owner_done.iter().position(is).ok_or("it was there")?;
        Ok(self.owner_done.swap_remove(at))
    }

    fn image(&self) -> Result<Vec<u8>, String> {
        say(self.region.read_vec(0, REGION))
    }

    /// One life of a key.
    fn round(&mut self, round: usize) -> Result<(), String> {
        let mut key = self.keys.swap_remove(self.rng.index(self.keys.len()));
        let len = 1 + self.rng.index(PART);
        let start = self.rng.index(REGION - len);
        let base = round as u64 * 10 + 1_000_000;
        let granted = self.grant(&mut key, start..start + len, base)?;
        if self.owner_completes(base)?.status != WcStatus::Success {
            return Err("the key was not made valid".into());
        }
        let before = self.image()?;
        self.use_it(granted, start..start + len)?;
        let by_peer = percent(&mut self.rng, 40);
        let is_fenced = percent(&mut self.rng, 50);
        if by_peer {
            say(self.owner_qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(base + 1)))?;
            let request = SendRequest::send_invalidate(Data::EMPTY, granted.rkey);
            let request = if is_fenced { request.fenced() } else { request };
            say(self.peer_qp.post_send(&request.wr_id(u64::MAX)))?;
        } else {
            say(self.fabric.run_for(STEP * self.rng.index(20) as u32))?;
            self.poll()?;
            let request = SendRequest::invalidate(granted.rkey).wr_id(base + 1).signaled();
            say(self.owner_qp.post_send(&request))?;
        }
        let gone = self.owner_completes(base + 1)?;
        if gone.status != WcStatus::Success || (by_peer && gone.invalidated_rkey() != Some(granted.rkey)) {
            return Err(format!("not invalidated: {gone:?}"));
        }
        let after = self.image()?;
        self.nothing_changes_any_more(granted, &after)?;
        self.judge(start..start + len, &before, &after, (by_peer, is_fenced))?;
        self.keys.push(key);
        // What is still on its way may do that yet.
        say(self.fabric.run_for(STEP * 100))?;
        let (owner, peer) = (self.owner_qp.state(), self.peer_qp.state());
        let has_read = self.requests.iter().any(|request| request.bytes.is_none());
        if owner != peer && !has_read {
            return Err(format!("the owner's queue pair is in {owner}, the peer's in {peer}"));
        }
        self.requests.clear();
        // A late copy of a READ is carried out again, by a key that is gone: then the owner alone is in error.
        if owner != QpState::Rts || peer != QpState::Rts {
            self.reconnect()?;
            self.owner_done.clear();
        }
        Ok(())
    }

    fn grant(
        &mut self,
        key: &mut Key,
        range: std::ops::Range<usize>,
        wr_id: u64,
    ) -> Result<RemoteRegion, String> {
        match key {
            Key::Window(window) => {
                let part = say(self.region.slice(range))?;
                let request = SendRequest::bind(window, part, GRANTED).wr_id(wr_id).signaled();
                say(self.owner_qp.post_send(&request))?;
                window.remote().ok_or_else(|| "bound to nothing".to_owned())
            }
            Key::Fast(fast) => {
                let iova = self.region.iova() + range.start as u64;
                say(fast.map(&self.region, range, iova))?;
                let request = SendRequest::register(fast, GRANTED | Access::LOCAL_WRITE);
                say(self.owner_qp.post_send(&request.wr_id(wr_id).signaled()))?;
                Ok(fast.remote())
            }
        }
    }

    /// The peer posts its requests: WRITEs to places of their own in the first half of the part, READs of the second.
    fn use_it(&mut self, granted: RemoteRegion, part: std::ops::Range<usize>) -> Result<(), String> {
        let half = part.len() / 2;
        let count = 1 + self.rng.index(6);
        for nr in 0..count {
            let place = half / count * nr..half / count * (nr + 1);
            let is_write = percent(&mut self.rng, 70);
            let offsets = if is_write { place.clone() } else { half + place.start..half + place.end };
            let there = say(granted.slice(offsets.start as u64..offsets.end as u64))?;
            let mut bytes = vec![0; place.len()];
            self.rng.fill(&mut bytes);
            let at = if is_write { place.start } else { PART + place.start };
            let local = say(self.scratch.slice(at..at + place.len()))?;
            let request = if is_write {
                say(self.scratch.write(at, &bytes))?;
                SendRequest::write(local, there)
            } else {
                SendRequest::read(local, there)
            };
            say(self.peer_qp.post_send(&request.wr_id(nr as u64)))?;
            let range = part.start + offsets.start..part.start + offsets.end;
            self.requests.push(Request { range, bytes: is_write.then_some(bytes), fate: Fate::Open });
        }
        Ok(())
    }

    /// The key is gone: neither what is on its way nor what the peer tries now changes a byte.
    fn nothing_changes_any_more(&mut self, granted: RemoteRegion, after: &[u8]) -> Result<(), String> {
        if self.sabotage {
            say(self.region.write(REGION / 2, &[!after[REGION / 2]]))?;
        }
        let unchanged = |world: &Self| match world.image()? == after {
            true => Ok(world.requests.iter().all(|request| request.fate != Fate::Open)),
            false => Err("memory changed after its key was taken away".to_owned()),
        };
        self.step_until("the peer's requests", unchanged)?;
        if self.peer_qp.state() == QpState::Rts && granted.len > 0 && percent(&mut self.rng, 60) {
            let by_write = percent(&mut self.rng, 50);
            let (there, wr_id) = (say(granted.slice(..1))?, self.requests.len() as u64);
            let local = say(self.scratch.slice(..1))?;
            let request =
                if by_write { SendRequest::write(local, there) } else { SendRequest::read(local, there) };
            say(self.peer_qp.post_send(&request.wr_id(wr_id)))?;
            self.requests.push(Request { range: 0..0, bytes: None, fate: Fate::Open });
            self.step_until("the refusal", unchanged)?;
            if !matches!(self.requests.pop().map(|request| request.fate), Some(Fate::Failed(_))) {
                return Err("an access by a key that is gone succeeded".into());
            }
            self.tally.refused += 1;
        }
        Ok(())
    }

    /// What succeeded was carried out, what failed perhaps, and nothing else changed.
    fn judge(
        &mut self,
        part: std::ops::Range<usize>,
        before: &[u8],
        after: &[u8],
        (by_peer, is_fenced): (bool, bool),
    ) -> Result<(), String> {
        let mut failed = false;
        for (nr, request) in self.requests.iter().enumerate() {
            let Request { range, bytes, fate } = request;
            let is_done = *fate == Fate::Done;
            if is_done && failed {
                return Err(format!("request {nr} succeeded behind one that failed"));
            }
            // A READ whose answer is lost is asked for again, and its key may be gone by then: hence the fence.
            let refused_write = bytes.is_some() && *fate == Fate::Failed(WcStatus::RemAccessErr);
            if by_peer && !is_done && (is_fenced || refused_write) {
                let fates: Vec<_> = self.requests.iter().map(|r| (r.bytes.is_some(), r.fate)).collect();
                let fence = if is_fenced { "with" } else { "without" };
                return Err(format!("request {nr} failed before an invalidation {fence} a fence: {fates:?}"));
            }
            failed |= !is_done;
            self.tally.done += u32::from(is_done);
            self.tally.cut_off += u32::from(!is_done);
            if let Some(bytes) = bytes {
                let now = &after[range.clone()];
                let may_be =
                    now.iter().zip(bytes).zip(&before[range.clone()]).all(|((n, b), o)| n == b || n == o);
                if !may_be || (is_done && now != bytes) {
                    return Err(format!("request {nr}: the bytes written are wrong"));
                }
            } else if is_done && !range.is_empty() {
                let at = PART + range.start - part.start - part.len() / 2;
                if say(self.scratch.read_vec(at, range.len()))? != before[range.clone()] {
                    return Err(format!("request {nr}: the bytes read are wrong"));
                }
            }
        }
        let is_written = |at: usize| {
            self.requests.iter().any(|request| request.bytes.is_some() && request.range.contains(&at))
        };
        if (0..REGION).any(|at| after[at] != before[at] && !is_written(at)) {
            return Err("a byte changed that nobody wrote".into());
        }
        if by_peer {
            self.tally.by_peer += 1
        } else {
            self.tally.by_owner += 1
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        (0..ROUNDS).try_for_each(|round| self.round(round).map_err(|what| format!("round {round}: {what}")))
    }
}

#[test]
fn a_key_grants_nothing_once_it_is_gone() {
    let (mut all, mut stale) = (Tally::default(), 0);
    let seeds = Seeds::chosen(SEEDS);
    seeds.each(
        |seed| World::new(seed, false),
        World::run,
        |world| {
            let Tally { done, cut_off, refused, by_peer, by_owner } = world.tally;
            all.done += done;
            all.cut_off += cut_off;
            all.refused += refused;
            all.by_peer += by_peer;
            all.by_owner += by_owner;
            stale += world.owner.counter(Counter::AccessStaleKey);
        },
    );
    let Tally { done, cut_off, refused, by_peer, by_owner } = all;
    println!("{done} requests done, {cut_off} cut off, {refused} refused afterwards; {stale} stale keys");
    println!("{by_peer} keys taken away by the peer, {by_owner} by the owner");
    if seeds.are_many() {
        assert!(
            done > 300 && cut_off > 100 && refused > 100 && by_peer > 50 && by_owner > 100 && stale > 100
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_runs_follow_seeds(|seed| {
        let mut world = World::new(seed, false);
        world.run().unwrap();
        world.fabric.trace_hash()
    });
}

#[test]
fn a_change_without_a_key_is_found() {
    assert_fault_is_found(|seed| World::new(seed, true).run());
}
