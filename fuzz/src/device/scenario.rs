//! The device, its memory and its program, and the execution of a plan.

mod memory;
mod network;
mod posting;
mod states;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use urxe_stack::cq::{Completion, Cq};
use urxe_stack::device::{Device, DeviceConfig, QpHandle};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::qp::attr::{PathMtu, QpAttr, QpAttrMask, QpState};
use urxe_stack::time::Time;
use urxe_test_support::wire::Wire;
use urxe_wire::{Gid, Psn, Qpn};

use self::memory::{GAP, PATTERN, REGIONS, REMOTE};
use super::packets::{self, Request};
use super::plan::{Setup, Step};
use super::posted::Posted;
use super::services::{self, GROUPS, Kind, QKEY, Shared};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
const UNCONNECTED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

/// The maximum number of executed steps.
const MAX_STEPS: usize = 400;

/// A queue pair of the program, and the values that its peer needs.
pub struct QueuePair {
    handle: Option<QpHandle>,
    pub kind: Kind,
    pub qpn: Qpn,
    pub dest_qpn: Qpn,
    pub peer: IpAddr,
    /// The next PSN that the queue pair expects, as far as its responses show.
    pub expected: Psn,
    /// The PSN of the last request that the queue pair sent.
    pub last_sent: Psn,
    posted: Posted,
    /// Whether the queue pair is attached, by group.
    groups: [bool; GROUPS.len()],
}

pub struct Scenario {
    device: Device,
    buffer: Arc<Buffer>,
    offsets: [usize; REGIONS.len()],
    regions: [Option<Mr>; REGIONS.len()],
    /// The first keys of the regions, which are invalid after a deregistration.
    keys: [u32; REGIONS.len()],
    /// The region under the window.
    under_window: Option<Mr>,
    pds: [PdId; 2],
    cq: Arc<Cq>,
    cq_lost: bool,
    /// Taken only at the end.
    shared: Option<Shared>,
    /// Receives in the shared queues that have not completed.
    in_shared: BTreeSet<u64>,
    pub qps: Vec<QueuePair>,
    pub requests: Vec<Request>,
    pub mtu: usize,
    attr: QpAttr,
    sq_sig_all: bool,
    now: Time,
    next_wr: u64,
    wire: Wire,
}

impl Scenario {
    pub fn new(setup: &Setup) -> Self {
        let mut config = DeviceConfig::new(vec![Gid::from_ip(OWN.into())], 7);
        config.max_run_segments = usize::from(setup.max_run_segments % 65).max(1);
        config.read_budget = (u64::from(setup.read_budget_kib) << 10).max(1);
        let device = Device::new(config);
        let pds = [(); 2].map(|()| device.alloc_pd().expect("there are many"));
        let mut offsets = [0; REGIONS.len()];
        let mut end = GAP;
        for (offset, (len, ..)) in offsets.iter_mut().zip(REGIONS) {
            *offset = end;
            end = (end + len + GAP).next_multiple_of(8);
        }
        let buffer = Arc::new(Buffer::new(end).expect("memory"));
        buffer.write(0, &PATTERN[..end]).expect("inside");
        let cq = device.create_cq(if setup.small_cq { 6 } else { 512 }, None, 0).expect("fits");
        let attr = attributes(setup);
        let mut scenario = Self {
            buffer,
            offsets,
            regions: [None; REGIONS.len()],
            keys: [0; REGIONS.len()],
            under_window: None,
            pds,
            shared: Some(Shared::new(&device, pds[0], &cq, &PEERS.map(IpAddr::from))),
            in_shared: BTreeSet::new(),
            device,
            cq,
            cq_lost: false,
            qps: Vec::new(),
            requests: Vec::new(),
            mtu: attr.path_mtu.bytes(),
            attr,
            sq_sig_all: setup.sq_sig_all,
            now: Time::from_ns(1_000_000_000),
            next_wr: 1,
            wire: Wire::default(),
        };
        let kinds = services::kinds(setup.peers >> 3);
        for nr in 0..3 {
            let kind = kinds[nr as usize];
            let peer = PEERS[usize::from(setup.peers >> nr & 1)];
            scenario.qps.push(QueuePair {
                handle: None,
                kind,
                qpn: Qpn::QP0,
                dest_qpn: Qpn::masked(0x11_1000 + nr),
                peer: peer.into(),
                expected: attr.rq_psn,
                last_sent: attr.sq_psn,
                posted: Posted::default(),
                groups: Default::default(),
            });
            let nr = nr as usize;
            scenario.create(nr);
            let states = [QpState::Rts, QpState::Rtr, QpState::Sqd, QpState::Init, QpState::Err];
            // Most plans start in RTS.
            scenario.bring_to(nr, states[usize::from(setup.states[nr]).saturating_sub(128) % 5]);
        }
        for nr in 0..REGIONS.len() {
            scenario.toggle_region(nr);
        }
        scenario
    }

    #[cfg(test)]
    pub fn states(&self) -> [Option<QpState>; 3] {
        [0, 1, 2].map(|nr| self.state(nr))
    }

    #[cfg(test)]
    pub fn counter(&self, counter: urxe_stack::device::counters::Counter) -> u64 {
        self.device.counters().value(counter)
    }

    /// Returns the number of receives that have not completed.
    #[cfg(test)]
    pub fn receives(&self) -> usize {
        self.in_shared.len() + self.qps.iter().map(|qp| qp.posted.receives()).sum::<usize>()
    }

    pub fn address(&self) -> IpAddr {
        OWN.into()
    }

    pub fn unconnected_host(&self) -> IpAddr {
        UNCONNECTED.into()
    }

    pub fn qp_of(&self, nr: u8) -> &QueuePair {
        &self.qps[usize::from(nr) % self.qps.len()]
    }

    pub fn run(mut self, steps: &[Step]) {
        for step in steps.iter().take(MAX_STEPS) {
            self.step(step);
        }
        self.transmit();
        self.poll();
        self.finish();
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Packet(packet) => {
                let built = packets::build(self, packet, 0);
                self.receive(&built);
            }
            Step::Run(list) => self.receive_run(list),
            Step::Bytes { from, bytes } => {
                let (from, end) = (self.qp_of(*from).peer, bytes.len().min(5000));
                let bytes = bytes[..end].to_vec();
                self.receive(&packets::with_icrc(from, self.address(), bytes, 0, false));
            }
            Step::Answer { nth, acknowledge, skip } => {
                let Some(request) = self.request(*nth) else { return };
                for built in packets::answers(self, &request, *acknowledge, u32::from(*skip)) {
                    self.receive(&built);
                }
            }
            Step::Acknowledge { nth, syndrome } => {
                let Some(request) = self.request(*nth) else { return };
                let built = packets::acknowledgement(self, &request, *syndrome);
                self.receive(&built);
            }
            Step::Wait { exponent, to_deadline } => {
                self.now = self.now.plus_ns(1 << (exponent % 40));
                if *to_deadline && let Some(deadline) = self.device.next_deadline() {
                    self.now = self.now.max(deadline);
                }
            }
            Step::Timeouts => self.device.handle_timeouts(self.now),
            Step::Transmit => self.transmit(),
            Step::PostSend { qp, requests } => self.post_send(*qp, requests),
            Step::PostRecv { qp, count, place, second } => {
                self.post_recv(*qp, *count, *place, *second)
            }
            Step::Modify { qp, how, value } => {
                self.modify(usize::from(*qp) % self.qps.len(), *how, *value)
            }
            Step::Region { nr } => self.toggle_region(usize::from(*nr) % REGIONS.len()),
            Step::QueuePair { qp, connect } => {
                let nr = usize::from(*qp) % self.qps.len();
                if self.qps[nr].handle.is_some() {
                    self.destroy(nr);
                } else {
                    self.create(nr);
                    if *connect {
                        self.bring_to(nr, QpState::Rts);
                    }
                }
            }
            Step::Poll => self.poll(),
        }
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("it is there until the end")
    }

    /// Returns the queue number in XRC packets to a target.
    pub fn xrc_srq(&self) -> u32 {
        self.shared().srqs[1].id().0
    }

    fn poll(&mut self) {
        let mut out = [Completion::default(); 64];
        loop {
            let count = match self.cq.poll(&mut out) {
                Ok(0) => return,
                Ok(count) => count,
                Err(_) => {
                    self.cq_lost = true;
                    return;
                }
            };
            for completion in &out[..count] {
                let qp = self.qps.iter_mut().find(|qp| qp.qpn == completion.qp_num);
                let qp = qp.expect("completions name a queue pair that exists");
                if completion.opcode.is_receive() && qp.kind.is_shared {
                    let was_there = self.in_shared.remove(&completion.wr_id);
                    assert!(was_there, "not in a shared queue, or completed twice: {completion:?}");
                } else {
                    qp.posted.completed(completion);
                }
            }
        }
    }

    fn finish(mut self) {
        for nr in 0..self.qps.len() {
            if !self.cq_lost {
                self.go(nr, QpState::Err, QpAttrMask::empty());
                self.poll();
                if self.state(nr) == Some(QpState::Err) && !self.cq_lost {
                    self.qps[nr].posted.must_be_flushed();
                }
            }
            self.destroy(nr);
        }
        assert_eq!(self.device.bytes_in_flight(), (0, 0), "charged to a window and never released");
        for nr in 0..REGIONS.len() {
            if self.regions[nr].is_some() {
                self.toggle_region(nr);
            }
        }
        if let Some(shared) = self.shared.take() {
            shared.end(&self.device);
        }
        for pd in self.pds {
            self.device.dealloc_pd(pd).expect("nothing is left in it");
        }
        self.check_memory();
    }
}

/// Returns the attributes of all queue pairs of a plan.
fn attributes(setup: &Setup) -> QpAttr {
    let access = Access::from_bits_truncate(u32::from(setup.access)) & REMOTE;
    let first = if setup.psn < 128 { 0x00ff_fff8 } else { u32::from(setup.psn) << 12 };
    QpAttr {
        port_num: 1,
        access_flags: if setup.access == 0 { REMOTE } else { access },
        path_mtu: PathMtu::ALL[usize::from(setup.mtu) / 100],
        rq_psn: Psn::new(first),
        sq_psn: Psn::new(first.wrapping_add(u32::from(setup.psn))),
        max_rd_atomic: setup.max_rd_atomic % 9,
        max_dest_rd_atomic: setup.max_dest_rd_atomic % 9,
        min_rnr_timer: setup.timeout % 32,
        timeout: setup.timeout % 32,
        retry_cnt: setup.retry_cnt % 8,
        rnr_retry: setup.rnr_retry % 8,
        qkey: QKEY,
        ..QpAttr::default()
    }
}
