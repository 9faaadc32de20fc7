//! Two hosts, the model beside the second one, and the execution of a plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use urxe_stack::cq::WcStatus;
use urxe_stack::device::{DeviceConfig, QpHandle};
use urxe_stack::memory::{Access, Bind, MwType, PdId};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::QpState;
use urxe_stack::qp::work_request::{Remote, SendOp, Sge};
use urxe_test_support::host::{A, B, Host, HostOptions, connect, run};
use urxe_test_support::wire::Wire;
use urxe_wire::{Gid, Lkey, Rkey};

use super::model::{Kind, Model, Object, Range, User};
use super::{Key, Place, Step};

/// The maximum number of executed steps.
const MAX_STEPS: usize = 200;
/// The maximum number of requests that wait on one side.
const MAX_WAITING: usize = 8;
/// Bytes of the owner's memory.
const MEMORY: usize = 4 * 4096;
const PAGE: usize = 4096;
/// The connections' protection domains.
const PDS: [usize; 3] = [0, 0, 1];
/// The places in the peer's memory: bytes that never change, and the places of results.
const PATTERN_AT: u64 = 0;
const RESULT_AT: u64 = 8192;

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_CHANGE);
/// The rights of regions, and without the last ones those of windows.
const RIGHTS: [Access; 8] = [
    ALL,
    Access::REMOTE_READ,
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
    Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC),
    Access::empty(),
    ALL.union(Access::MW_BIND),
    Access::REMOTE_READ.union(Access::MW_BIND),
    ALL.union(Access::ZERO_BASED),
];

/// A key that an object had, with its addresses then.
#[derive(Clone, Copy, Debug)]
struct Past {
    key: u32,
    start: u64,
    len: usize,
}

/// A request of the owner that is posted and not executed.
#[derive(Clone, Copy, Debug)]
enum Local {
    RegisterFast {
        key: u32,
        access: Access,
    },
    Bind(Bind),
    Invalidate {
        key: u32,
    },
    /// A READ into a region, or a WRITE from it.
    Data {
        key: u32,
        reads: bool,
        addr: u64,
        len: usize,
    },
}

/// A request of the peer that is not executed.
#[derive(Clone, Copy, Debug)]
struct RemoteRequest {
    qp: usize,
    op: u8,
    key: u32,
    addr: u64,
    len: usize,
}

/// The hosts and the model.
pub struct Scenario {
    a: Host,
    b: Host,
    wire: Wire,
    pds: [PdId; 2],
    qps: Vec<(QpHandle, QpHandle)>,
    model: Model,
    /// The owner's memory as the model has it.
    bytes: Vec<u8>,
    past: Vec<Past>,
    /// Keys of regions, and the upper 24 bits of the keys of other objects.
    known: BTreeSet<u32>,
    local: (usize, Vec<Local>),
    remote: Vec<RemoteRequest>,
}

fn host(address: std::net::Ipv4Addr, seed: u64) -> Host {
    let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], seed);
    let options = HostOptions { memory: MEMORY, ..HostOptions::default() };
    Host::with(address.into(), config, options)
}

impl Scenario {
    /// Makes the hosts and their connections.
    pub fn new() -> Self {
        let (a, b) = (host(A, 1), host(B, 2));
        // The owner's memory has no key at first.
        b.device.memory().deregister(b.mr.lkey).expect("it is registered");
        let pds = [b.pd, b.device.alloc_pd().expect("there are many")];
        let bytes: Vec<u8> = (0..MEMORY).map(|at| (at / 7) as u8).collect();
        b.write(0, &bytes);
        a.write(PATTERN_AT as usize, &[0xc3, 0x5a, 0x96].repeat(MEMORY / 3)[..8192]);
        let qps = PDS.map(|pd| {
            let init = QpInit { pd: pds[pd], ..b.init() };
            let pair = (a.create_qp(), b.create(&init));
            connect(&a, pair.0, &b, pair.1);
            pair
        });
        Self {
            a,
            b,
            wire: Wire::default(),
            pds,
            qps: qps.to_vec(),
            model: Model::default(),
            bytes,
            past: Vec::new(),
            known: BTreeSet::new(),
            local: (0, Vec::new()),
            remote: Vec::new(),
        }
    }

    /// Runs a plan, and ends all objects.
    pub fn run(mut self, steps: &[Step]) {
        for step in steps.iter().take(MAX_STEPS) {
            self.step(step);
        }
        self.execute();
        let objects: Vec<Object> = self.model.0.iter().flatten().copied().collect();
        let (windows, regions): (Vec<Object>, Vec<Object>) =
            objects.into_iter().partition(|object| matches!(object.kind, Kind::Window { .. }));
        for object in windows {
            self.deallocate(object.key);
        }
        for object in regions {
            self.deregister(object.key);
        }
        assert!(self.model.0.iter().all(Option::is_none));
        let memory = self.b.device.memory();
        assert_eq!((memory.count(), memory.count_windows()), (0, 0));
        for Past { key, start, .. } in self.past {
            let pin = memory.pin(key, self.pds[0], Access::empty(), start, 1);
            assert!(pin.is_err(), "{key:#x} has ended");
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { pd, place, access } => self.register(pd, place, access),
            Step::Reregister { key, place, pd, access } => self.reregister(key, place, pd, access),
            Step::AllocateFast { pd } => {
                let key = self.b.device.memory().alloc_fast(self.pds[usize::from(pd)], 4);
                let kind = Kind::Fast { staged: None };
                self.add(kind, pd, key.expect("there are many").value(), Range::default());
            }
            Step::MapFast { key, place } => self.map_fast(key, place),
            Step::AllocateWindow { pd, is_type_2, by_handle } => {
                let (memory, of) = (self.b.device.memory(), self.pds[usize::from(pd)]);
                let mw_type = if is_type_2 { MwType::Type2 } else { MwType::Type1 };
                let key = match by_handle {
                    true => memory.alloc_mw_by_handle(of, mw_type),
                    false => memory.alloc_mw(of, mw_type),
                };
                let kind = Kind::Window { is_type_2, by_handle, qp: None, below: None };
                self.add(kind, pd, key.expect("there are many").value(), Range::default());
            }
            Step::Deregister { key } => self.deregister(self.past(key).key),
            Step::Deallocate { key } => self.deallocate(self.past(key).key),
            Step::RegisterFast { qp, key, low, access } => {
                let key = self.past(key).key & !0xff | u32::from(low);
                let access = RIGHTS[usize::from(access) % RIGHTS.len()];
                self.post(qp, Local::RegisterFast { key, access });
            }
            Step::Bind { qp, window, low, region, at, length, access } => {
                let (window, region) = (self.past(window), self.past(region));
                let access = RIGHTS[usize::from(access) % 5];
                let (addr, length) = address(region, at, length);
                let length = if at == u16::MAX { 0 } else { length as u64 };
                let new_rkey = Rkey(low.into());
                let (region, window) = (Lkey(region.key), Rkey(window.key));
                self.post(qp, Local::Bind(Bind { window, new_rkey, region, addr, length, access }));
            }
            Step::Invalidate { qp, key } => {
                self.post(qp, Local::Invalidate { key: self.past(key).key });
            }
            Step::Local { qp, key, reads, at, length } => {
                let key = self.past(key);
                let (addr, len) = address(key, at, length);
                self.post(qp, Local::Data { key: key.key, reads, addr, len });
            }
            Step::Remote { qp, op, key, at, length } => {
                let (key, qp) = (self.past(key), usize::from(qp) % PDS.len());
                let (addr, len) = address(key, at, length);
                if self.remote.len() == MAX_WAITING {
                    self.execute();
                }
                self.remote.push(RemoteRequest { qp, op: op % 4, key: key.key, addr, len });
            }
            Step::Execute => self.execute(),
        }
    }

    /// Returns a key of the past or of the present; a key that never existed if there is none.
    fn past(&self, Key { nth, change }: Key) -> Past {
        let count = self.past.len().max(1);
        let found = self.past.iter().rev().nth(usize::from(nth) % count).copied();
        let past = found.unwrap_or(Past { key: 0x1234_5678, start: 0, len: 8 });
        Past { key: past.key ^ u32::from(change.saturating_sub(240)), ..past }
    }

    /// Remembers a key with its addresses.
    fn remember(&mut self, key: u32, range: Range) {
        self.past.push(Past { key, start: range.start, len: range.len });
    }

    /// Returns part of the owner's memory.
    fn range(&self, Place { offset, length }: Place) -> Range {
        let base = usize::from(offset) * 8 % MEMORY;
        let len = (usize::from(length) * 8 % MEMORY).clamp(8, MEMORY - base);
        Range { start: self.b.buffer.addr() as u64 + base as u64, base, len }
    }

    fn add(&mut self, kind: Kind, pd: bool, key: u32, range: Range) {
        let (is_region, access) = (kind == Kind::Region, Access::empty());
        let fresh = if is_region { key } else { key & !0xff };
        assert!(self.known.insert(fresh), "{key:#x} existed before");
        let pd = usize::from(pd);
        self.model.0.push(Some(Object { kind, pd, key, is_valid: is_region, range, access }));
        self.remember(key, range);
    }

    fn register(&mut self, pd: bool, place: Place, access: u8) {
        let mut range = self.range(place);
        let access = RIGHTS[usize::from(access) % RIGHTS.len()];
        let bytes = range.base..range.base + range.len;
        let (memory, of) = (self.b.device.memory(), self.pds[usize::from(pd)]);
        let mr = memory.register_buffer(of, &self.b.buffer, bytes, range.start, access);
        let mr = mr.expect("all values are valid");
        range.start = mr.iova;
        self.add(Kind::Region, pd, mr.lkey.0, range);
        if let Some(Some(object)) = self.model.0.last_mut() {
            object.access = access;
        }
    }

    fn reregister(&mut self, key: Key, place: Option<Place>, pd: Option<bool>, access: Option<u8>) {
        let key = self.past(key).key;
        let range = place.map(|place| self.range(place));
        let access = access.map(|access| RIGHTS[usize::from(access) % RIGHTS.len()]);
        let place =
            range.map(|range| (&self.b.buffer, range.base..range.base + range.len, range.start));
        let of = pd.map(|pd| self.pds[usize::from(pd)]);
        let changed = self.b.device.memory().reregister_buffer(Lkey(key), place, of, access);
        let Ok(mr) = changed else { return };
        let nr = self.model.changeable(key).expect("only an unused region can change");
        let Some(object) = &mut self.model.0[nr] else { return };
        object.range = Range { start: mr.iova, ..range.unwrap_or(object.range) };
        object.pd = pd.map_or(object.pd, usize::from);
        object.access = access.unwrap_or(object.access);
        let range = object.range;
        assert_eq!((mr.len, mr.access), (range.len, object.access));
        self.remember(key, range);
    }

    fn map_fast(&mut self, key: Key, place: Place) {
        let (key, range) = (self.past(key).key, self.range(place));
        let parts = [(&self.b.buffer, range.base..range.base + range.len)];
        let (memory, parts): (_, &[(&Arc<_>, _)]) = (self.b.device.memory(), &parts);
        let mapped = memory.map_fast_buffers(Rkey(key), parts, PAGE, range.start);
        let found = self.model.fast(key);
        assert_eq!(mapped.is_ok(), found.is_some(), "{mapped:?}");
        if let Some(Some(object)) = found.map(|nr| &mut self.model.0[nr]) {
            object.kind = Kind::Fast { staged: Some(range) };
            let key = object.key;
            self.remember(key, range);
        }
    }

    fn deregister(&mut self, key: u32) {
        let ended = self.b.device.memory().deregister(Lkey(key));
        assert_eq!(ended.is_ok(), self.model.deregister(key), "{key:#x}: {ended:?}");
    }

    fn deallocate(&mut self, key: u32) {
        let ended = self.b.device.memory().dealloc_mw(Rkey(key));
        assert_eq!(ended.is_ok(), self.model.deallocate(key), "{key:#x}: {ended:?}");
    }

    /// Posts a request of the owner. Requests for one connection wait together, and a transfer is
    /// the last of them.
    fn post(&mut self, qp: u8, request: Local) {
        let qp = usize::from(qp) % PDS.len();
        let ends = matches!(self.local.1.last(), Some(Local::Data { .. }));
        if ends || self.local.0 != qp || self.local.1.len() == MAX_WAITING {
            self.execute_local();
        }
        let remote = |at| Remote { addr: self.a.mr.iova + at, rkey: self.a.mr.rkey };
        let mut sges = Vec::new();
        let op = match request {
            Local::RegisterFast { key, access } => SendOp::RegMr { key: Rkey(key), access },
            Local::Bind(bind) => SendOp::BindMw(bind),
            Local::Invalidate { key } => SendOp::LocalInv { rkey: Rkey(key) },
            Local::Data { key, reads, addr, len } => {
                sges.push(Sge { addr, length: len as u32, lkey: Lkey(key) });
                match reads {
                    true => SendOp::Read { remote: remote(PATTERN_AT) },
                    false => SendOp::Write { remote: remote(RESULT_AT) },
                }
            }
        };
        let posted =
            self.b.post_request(self.qps[qp].1, &urxe_test_support::qp::request(op, &sges));
        posted.expect("posting checks no key");
        self.local.0 = qp;
        self.local.1.push(request);
    }

    fn execute(&mut self) {
        self.execute_local();
        for request in std::mem::take(&mut self.remote) {
            self.execute_remote(&request);
        }
    }

    /// Executes the requests of the owner. Those after a failed one are flushed.
    fn execute_local(&mut self) {
        let (qp, requests) = (self.local.0, std::mem::take(&mut self.local.1));
        if requests.is_empty() {
            return;
        }
        run(&self.a, &self.b, &self.wire);
        let statuses = self.b.statuses();
        assert_eq!(statuses.len(), requests.len(), "{requests:?}");
        let mut has_failed = false;
        for (request, status) in requests.iter().zip(&statuses) {
            if has_failed {
                assert_eq!(*status, WcStatus::WrFlushErr, "{request:?}");
                continue;
            }
            let succeeds = self.model_local(qp, request);
            assert_eq!(status.is_success(), succeeds, "{request:?}: {status:?}");
            has_failed = !succeeds;
        }
        self.check(qp, has_failed);
    }

    /// Executes a request of the owner in the model. Returns whether it succeeds.
    fn model_local(&mut self, qp: usize, request: &Local) -> bool {
        let (pd, owner) = (PDS[qp], User { pd: PDS[qp], qp: None });
        match *request {
            Local::RegisterFast { key, access } => {
                let succeeds = self.model.register_fast(pd, key, access);
                if let (true, Some(nr)) = (succeeds, self.model.fast(key))
                    && let Some(object) = &mut self.model.0[nr]
                {
                    if access.contains(Access::ZERO_BASED) {
                        object.range.start = 0;
                    } else {
                        object.range.start = self.b.buffer.addr() as u64 + object.range.base as u64;
                    }
                    let range = object.range;
                    self.remember(key, range);
                }
                succeeds
            }
            Local::Bind(bind) => {
                let succeeds = self.model.bind(pd, qp, &bind);
                if succeeds {
                    let key = bind.window.value() & !0xff | bind.new_rkey.value() & 0xff;
                    let len = bind.length as usize;
                    self.remember(key, Range { start: bind.addr, base: 0, len });
                }
                succeeds
            }
            Local::Invalidate { key } => {
                self.model.invalidate(User { pd, qp: Some(qp) }, key, false)
            }
            Local::Data { key, reads, addr, len } => {
                let need = if reads { Access::LOCAL_WRITE } else { Access::empty() };
                let Some(at) = self.model.resolve(owner, key, need, addr, len as u64) else {
                    if reads {
                        self.take_first_packets(owner, key, addr, len);
                    }
                    return false;
                };
                if reads {
                    let pattern = self.a.bytes(PATTERN_AT as usize, len);
                    self.bytes[at..at + len].copy_from_slice(&pattern);
                } else {
                    let result = self.a.bytes(RESULT_AT as usize, len);
                    assert_eq!(result, self.bytes[at..at + len], "{request:?}");
                }
                true
            }
        }
    }

    /// Takes over the bytes of a READ into memory that ends too early. The packets before the end
    /// may have been placed.
    fn take_first_packets(&mut self, owner: User, key: u32, addr: u64, len: usize) {
        let need = Access::LOCAL_WRITE;
        let pattern = self.a.bytes(PATTERN_AT as usize, len);
        for (byte, addr) in pattern.into_iter().zip(addr..) {
            let Some(at) = self.model.resolve(owner, key, need, addr, 1) else { return };
            if self.b.bytes(at, 1) == [byte] {
                self.bytes[at] = byte;
            }
        }
    }

    /// Executes a request of the peer.
    fn execute_remote(&mut self, request: &RemoteRequest) {
        let RemoteRequest { qp, op, key, addr, mut len } = *request;
        let peer = User { pd: PDS[qp], qp: Some(qp) };
        let remote = Remote { addr: if op == 2 { addr & !7 } else { addr }, rkey: Rkey(key) };
        let mut sge = self.a.sge(if op == 0 { PATTERN_AT } else { RESULT_AT }, len as u32);
        let (op, need) = match op {
            0 => (SendOp::Write { remote }, Access::REMOTE_WRITE),
            1 => (SendOp::Read { remote }, Access::REMOTE_READ),
            2 => {
                (len, sge.length) = (8, 8);
                (SendOp::FetchAdd { remote, add: 0x0101_0101_0101_0101 }, Access::REMOTE_ATOMIC)
            }
            _ => (SendOp::SendInvalidate { rkey: Rkey(key) }, Access::empty()),
        };
        let is_send = matches!(op, SendOp::SendInvalidate { .. });
        let mut sges = vec![sge];
        if is_send {
            sges.clear();
            self.b.post_recv_on(self.qps[qp].1, 1, &[]);
        }
        self.a.post_on(self.qps[qp].0, op, &sges);
        run(&self.a, &self.b, &self.wire);
        let statuses = self.a.statuses();
        let _ = self.b.completions();
        let place = self.model.resolve(peer, key, need, remote.addr, len as u64);
        let succeeds = match is_send {
            true => self.model.invalidate(peer, key, true),
            false => place.is_some(),
        };
        let found: Vec<bool> = statuses.iter().map(|status| status.is_success()).collect();
        assert_eq!(found, [succeeds], "{request:?}: {statuses:?}");
        if let (false, Some(at)) = (is_send, place) {
            let result = self.a.bytes(RESULT_AT as usize, len);
            let old = self.bytes[at..at + len].to_vec();
            match op {
                SendOp::Write { .. } => {
                    let pattern = self.a.bytes(PATTERN_AT as usize, len);
                    self.bytes[at..at + len].copy_from_slice(&pattern);
                }
                SendOp::FetchAdd { add, .. } => {
                    let value = u64::from_ne_bytes(old[..].try_into().expect("eight bytes"));
                    let new = value.wrapping_add(add).to_ne_bytes();
                    self.bytes[at..at + len].copy_from_slice(&new);
                    assert_eq!(result, old, "{request:?}");
                }
                _ => assert_eq!(result, old, "{request:?}"),
            }
        }
        self.check(qp, !succeeds);
    }

    /// Compares the memory with the model, and connects again after an error.
    fn check(&mut self, qp: usize, has_failed: bool) {
        let found = self.b.bytes(0, MEMORY);
        let wrong = found.iter().zip(&self.bytes).position(|(found, model)| found != model);
        assert_eq!(wrong, None, "the first byte that changed");
        if has_failed {
            let (a, b) = self.qps[qp];
            self.a.go_to(a, QpState::Reset);
            self.b.go_to(b, QpState::Reset);
            let _ = (self.a.completions(), self.b.completions());
            connect(&self.a, a, &self.b, b);
        }
        // The asynchronous events of failed connections have no room without end.
        let _ = (self.a.events(), self.b.events());
    }
}

/// Returns an address and a length near the range that a key had.
fn address(past: Past, at: u16, length: u16) -> (u64, usize) {
    let inside = u64::from(at) % (past.len as u64 + 9);
    let most = (past.len as u64 + 8 - inside).clamp(1, 4000) as usize;
    (
        past.start.wrapping_add(inside).wrapping_sub(u64::from(at == 77)),
        usize::from(length) % most + 1,
    )
}
