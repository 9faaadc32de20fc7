//! The implementation: two devices on a clean simulated link, compared with the model.

mod host;
mod membership;
mod memory;
mod queues;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cq::{ArmKind, AsyncEvent, Cq as Queue, QpEventType, SrqEventType, SrqId};
use urxe_stack::device::{Device, QpHandle};
use urxe_stack::port::sim::{DeviceHost, Fabric};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::work_request::{
    Destination, Payload, RecvRequest, SendFlags, SendRequest, Sge,
};
use urxe_stack::rng::Rng;
use urxe_stack::srq::xrcd::{Xrcd, XrcdFlags};
use urxe_stack::srq::{Srq, SrqAttr, SrqInit, XrcSrqInit};
use urxe_test_support::qp::{self, CAP, bring_up};
use urxe_wire::{Lkey, Psn, QKey, Qpn};

use self::host::{Host, vector_to};
use self::membership::{Member, inode};
use crate::generate::Generator;
use crate::operation::{
    Arm, Cq, DEPTH, Data, INLINE, MEMORY, MTUS, Operation, Piece, QKEY, QPS, Queue as RecvQueue,
    SRQS, Send, Source, To,
};
use crate::specification::{self, Event, Model, OmittedRule};

/// Longer than every timeout and retry here, in nanoseconds.
const SETTLED_NS: u64 = 30_000_000;
/// Entries of each completion queue.
const CQ_DEPTH: u32 = 512;
/// The sizes of each queue pair.
const QUEUES: QpCap = QpCap {
    max_send_wr: DEPTH as u32,
    max_recv_wr: DEPTH as u32,
    max_inline_data: INLINE as u32,
    ..CAP
};
/// An unused number of a shared receive queue.
const NO_SRQ: SrqId = SrqId(0xfe_fefe);

/// The model and the implementation, side by side.
pub struct Scenario {
    mtu: PathMtu,
    pub model: Model,
    pub generator: Generator,
    fabric: Fabric<DeviceHost>,
    hosts: Vec<Host>,
    qps: Vec<QpHandle>,
    srqs: Vec<Arc<Srq>>,
    cqs: BTreeMap<Cq, Arc<Queue>>,
    /// The completion queues, by their contexts.
    cq_names: Vec<Cq>,
    rng: Rng,
    domains: Vec<Arc<Xrcd>>,
    members: Vec<Member>,
}

fn error_context<T, E: Debug>(result: Result<T, E>, what: &str) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

/// Fails if the implementation's value differs from the model's.
fn expect_equal<T: Debug + PartialEq>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{what}: {actual:?}, expected {expected:?}"))
    }
}

fn errno(number: i32) -> Errno {
    Errno::from_raw_os_error(number)
}

impl Scenario {
    pub fn new(seed: u64, omitted: Option<OmittedRule>) -> Self {
        let mut rng = Rng::stream(seed, 0x3071);
        let mut fabric = Fabric::new(seed);
        let mtu = rng.pick(&MTUS);
        let mut memory = [vec![0; MEMORY], vec![0; MEMORY]];
        let hosts: Vec<Host> = memory
            .iter_mut()
            .enumerate()
            .map(|(nr, image)| {
                rng.fill(image);
                Host::new(nr, rng.next_u64(), mtu, image, &mut fabric)
            })
            .collect();
        let xrcd = hosts[1].device.open_xrcd(inode(Some(0)), XrcdFlags::CREATE, |_| Ok(None));
        let xrcd = xrcd.expect("a domain");
        let (mut cqs, mut names) = (BTreeMap::new(), Vec::new());
        let mut cq = |device: usize, name: Cq| {
            let (channel, context) = (Some(Arc::clone(&hosts[device].channel)), cqs.len() as u64);
            let cq = hosts[device]
                .device
                .create_cq(CQ_DEPTH, channel, context)
                .expect("a completion queue");
            names.push(name);
            cqs.insert(name, Arc::clone(&cq));
            cq
        };
        let mut srqs = Vec::new();
        for (nr, plan) in SRQS.iter().enumerate() {
            let attr = SrqAttr { max_wr: DEPTH as u32, max_sge: 4, srq_limit: 0 };
            let xrc = plan
                .is_xrc
                .then(|| XrcSrqInit { xrcd: Arc::clone(&xrcd), cq: cq(plan.device, Cq::Srq(nr)) });
            let host = &hosts[plan.device];
            let init = SrqInit { pd: host.pds[plan.pd], attr, xrc, context: 0 };
            srqs.push(host.device.create_srq(&init).expect("a shared receive queue"));
        }
        let mut qps = Vec::new();
        for (nr, plan) in QPS.iter().enumerate() {
            let host = &hosts[plan.device];
            if plan.qp_type == QpType::XrcRecv {
                qps.push(host.device.create_xrc_target(&xrcd).expect("a target"));
                continue;
            }
            let (send_cq, recv_cq) = (cq(plan.device, Cq::Send(nr)), cq(plan.device, Cq::Recv(nr)));
            let srq = if let Source::Shared(srq) = plan.source {
                Some(Arc::clone(&srqs[srq]))
            } else {
                None
            };
            let init = qp::init(plan.qp_type, host.pds[plan.pd], &send_cq);
            let init = QpInit { recv_cq, srq, cap: QUEUES, ..init };
            qps.push(host.device.create_qp(&init).expect("a queue pair"));
        }
        let members = vec![Member::OfTheScenario; specification::Member::of_the_scenario().len()];
        let model = Model::new(memory, mtu.bytes(), omitted);
        let generator = Generator::new(seed);
        let mut scenario = Self {
            mtu,
            model,
            generator,
            fabric,
            hosts,
            qps,
            srqs,
            cqs,
            cq_names: names,
            rng,
            domains: vec![xrcd],
            members,
        };
        for (qp, plan) in QPS.iter().enumerate() {
            if plan.peer.is_none_or(|peer| peer > qp) {
                scenario.bring_up(qp).expect("a new queue pair");
            }
        }
        scenario
    }

    /// Executes an operation in both, runs the network until no packet is left, and compares.
    pub fn step(&mut self, operation: &Operation) -> Result<(), String> {
        self.act(operation)?;
        let until = self.fabric.now().plus_ns(SETTLED_NS);
        error_context(self.fabric.run_until(until), "the network")?;
        self.compare()
    }

    fn device_of(&self, qp: usize) -> &Device {
        &self.hosts[QPS[qp].device].device
    }

    fn act(&mut self, operation: &Operation) -> Result<(), String> {
        let now = self.fabric.now();
        let accepted = match operation {
            Operation::Send { qp, list } => {
                let sges: Vec<Vec<Sge>> = list.iter().map(|send| sges_of(&send.data)).collect();
                let inline: Vec<[&[u8]; 1]> =
                    list.iter().map(|send| [inline_of(&send.data)]).collect();
                let parts = sges.iter().zip(&inline);
                let requests: Vec<SendRequest<'_>> = list
                    .iter()
                    .zip(parts)
                    .map(|(send, (sges, inline))| self.request(*qp, send, sges, inline))
                    .collect();
                self.device_of(*qp).post_send(now, self.qps[*qp], &requests).is_ok()
            }
            Operation::Recv { queue, list } => {
                let sges: Vec<Vec<Sge>> =
                    list.iter().map(|recv| recv.pieces.iter().map(sge).collect()).collect();
                let requests: Vec<RecvRequest<'_>> = list
                    .iter()
                    .zip(&sges)
                    .map(|(recv, sges)| RecvRequest { wr_id: recv.wr_id, sges })
                    .collect();
                match *queue {
                    RecvQueue::Qp(qp) => {
                        self.device_of(qp).post_recv(now, self.qps[qp], &requests).is_ok()
                    }
                    RecvQueue::Srq(srq) => self.srqs[srq].post(&requests).is_ok(),
                }
            }
            Operation::ModifySrq { srq, max_wr, limit } => {
                return self.modify_srq(*srq, *max_wr, *limit);
            }
            Operation::Fail { qp } => self.go(*qp, QpState::Err).is_ok(),
            Operation::Arm { cq, arm } => self.cqs[cq].arm(match arm {
                Arm::Next => ArmKind::Next,
                Arm::Solicited => ArmKind::Solicited,
            }),
            Operation::Poll { .. } => true,
            Operation::Xrc(call) => return self.xrc(call),
            Operation::Attach { qp, group } => return self.attach(*qp, *group),
            Operation::Detach { qp, group } => return self.detach(*qp, *group),
            Operation::Drain { qp } => {
                let attr = QpAttr {
                    qp_state: QpState::Sqd,
                    en_sqd_async_notify: true,
                    ..QpAttr::default()
                };
                let mask = QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY;
                self.device_of(*qp).modify_qp(now, self.qps[*qp], &attr, mask).is_ok()
            }
            Operation::Resume { qp } => self.go(*qp, QpState::Rts).map(|()| true)?,
            Operation::Restart { qp } => {
                let is_sqe = self.model.states[*qp] == QpState::Sqe;
                if is_sqe {
                    self.go(*qp, QpState::Rts)?
                } else {
                    self.bring_up(*qp)?
                }
                true
            }
            _ => return self.act_on_keys(operation),
        };
        expect_equal("accepted", accepted, self.model.apply(operation))
    }

    fn request<'a>(
        &self,
        qp: usize,
        send: &Send,
        sges: &'a [Sge],
        inline: &'a [&'a [u8]; 1],
    ) -> SendRequest<'a> {
        let to = match send.to {
            To::Peer => Destination::Peer,
            To::Srq(srq) => {
                Destination::XrcSrq { srq: srq.map_or(NO_SRQ, |srq| self.srqs[srq].id()) }
            }
            To::OtherDomain(member) => {
                Destination::XrcSrq { srq: self.members[member].srq().unwrap_or(NO_SRQ) }
            }
            To::Datagram { qp: peer, qkey } => {
                let ah = self.hosts[QPS[qp].device].ah;
                Destination::Datagram { ah, qpn: self.qps[peer].qpn(), qkey: QKey(qkey) }
            }
            To::Group { group, qkey } => {
                let ah = self.hosts[QPS[qp].device].group_ahs[group];
                Destination::Datagram { ah, qpn: Qpn::MULTICAST, qkey: QKey(qkey) }
            }
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, send.signaled);
        flags.set(SendFlags::FENCE, send.fence);
        flags.set(SendFlags::SOLICITED, send.solicited);
        let payload = match send.data {
            Data::Pieces(_) => Payload::Sges(sges),
            Data::Inline(_) => {
                flags |= SendFlags::INLINE;
                Payload::Inline(inline)
            }
        };
        SendRequest { wr_id: send.wr_id, op: send.op, to, flags, payload }
    }

    /// Moves a queue pair to a state, with no other attribute.
    fn go(&self, qp: usize, to: QpState) -> Result<(), String> {
        let (now, handle) = (self.fabric.now(), self.qps[qp]);
        let changed = self.device_of(qp).modify_qp(now, handle, &qp::state(to), QpAttrMask::STATE);
        error_context(changed, to.as_str())
    }

    /// Brings a queue pair and its peer from any state to RTS.
    fn bring_up(&mut self, qp: usize) -> Result<(), String> {
        let ends: Vec<usize> = [Some(qp), QPS[qp].peer].into_iter().flatten().collect();
        let psns: Vec<Psn> =
            ends.iter().map(|_| Psn::new(self.rng.next_u32() & 0xff_ffff)).collect();
        for (nr, &end) in ends.iter().enumerate() {
            let (plan, other) = (&QPS[end], (nr + 1) % ends.len());
            let attr = QpAttr {
                port_num: 1,
                access_flags: plan.access,
                path_mtu: self.mtu,
                dest_qp_num: self.qps[ends[other]].qpn(),
                rq_psn: psns[other],
                sq_psn: psns[nr],
                qkey: QKey(QKEY),
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                min_rnr_timer: 1,
                // The shortest local ACK timeout, 4 ms, which may expire twice.
                timeout: 8,
                retry_cnt: 1,
                rnr_retry: 0,
                ah: vector_to(1 - plan.device),
                ..QpAttr::default()
            };
            // The transition applies to ERR only; a new queue pair is in RESET already.
            let _ = self.go(end, QpState::Reset);
            let qp = (self.qps[end], plan.qp_type);
            bring_up(self.device_of(end), self.fabric.now(), qp, &attr, QpState::Rts)
                .map_err(|refused| format!("queue pair {end} {refused}"))?;
        }
        Ok(())
    }

    fn qp_of(&self, qpn: Qpn) -> Result<usize, String> {
        self.qps
            .iter()
            .position(|qp| qp.qpn() == qpn)
            .ok_or_else(|| format!("no queue pair has the number {qpn}"))
    }

    fn compare(&mut self) -> Result<(), String> {
        self.compare_completions()?;
        let actual = self.events()?;
        let mut expected = std::mem::take(&mut self.model.events);
        expected.sort();
        expect_equal("events", actual, expected)?;
        for (qp, expected) in self.model.states.iter().enumerate() {
            let state = self.device_of(qp).query_qp(self.qps[qp]).map(|attr| attr.qp_state);
            expect_equal(&format!("the state of queue pair {qp}"), state, Some(*expected))?;
        }
        self.compare_srqs()?;
        self.compare_groups()?;
        self.compare_memory()
    }

    fn events(&self) -> Result<Vec<Event>, String> {
        let mut actual = Vec::new();
        for (device, host) in self.hosts.iter().enumerate() {
            while let Some(event) = host.device.events().next_event() {
                host.device.events().ack(&event);
                actual.push(match event {
                    AsyncEvent::Qp(event, qpn) => {
                        let qp = self.qp_of(qpn)?;
                        match event {
                            QpEventType::QpFatal => Event::Fatal(qp),
                            QpEventType::QpReqErr => Event::RequestError(qp),
                            QpEventType::QpAccessErr => Event::AccessError(qp),
                            QpEventType::QpLastWqeReached => Event::LastWqe(qp),
                            QpEventType::SqDrained => Event::Drained(qp),
                            other => return Err(format!("unexpected: {other:?} of {qp}")),
                        }
                    }
                    AsyncEvent::Srq(SrqEventType::SrqLimitReached, id) => {
                        let mut queues = self.srqs.iter().zip(&SRQS);
                        let nr =
                            queues.position(|(srq, plan)| srq.id() == id && plan.device == device);
                        Event::Limit(nr.ok_or("a limit event of an unknown queue")?)
                    }
                    other => return Err(format!("unexpected: {other:?}")),
                });
            }
        }
        actual.sort();
        Ok(actual)
    }

    fn compare_memory(&mut self) -> Result<(), String> {
        for (device, range) in std::mem::take(&mut self.model.open) {
            let mut bytes = vec![0; range.len()];
            error_context(self.hosts[device].buffer.read(range.start, &mut bytes), "reading")?;
            self.model.memory[device][range].copy_from_slice(&bytes);
        }
        let mut bytes = vec![0; MEMORY];
        for (device, host) in self.hosts.iter().enumerate() {
            error_context(host.buffer.read(0, &mut bytes), "reading")?;
            let expected = &self.model.memory[device];
            if bytes != *expected {
                let wrong: Vec<usize> =
                    (0..MEMORY).filter(|at| bytes[*at] != expected[*at]).collect();
                return Err(format!(
                    "device {device}: {} bytes of {:?}..={:?} differ from the model",
                    wrong.len(),
                    wrong.first(),
                    wrong.last()
                ));
            }
        }
        Ok(())
    }

    /// Changes a byte of the implementation's memory, so that the comparison must fail.
    pub fn corrupt_byte(&self) {
        let mut byte = [0];
        self.hosts[1].buffer.read(7, &mut byte).expect("inside");
        self.hosts[1].buffer.write(7, &[!byte[0]]).expect("inside");
    }
}

fn sge(piece: &Piece) -> Sge {
    Sge { addr: piece.addr, length: piece.len, lkey: Lkey(piece.key) }
}

fn sges_of(data: &Data) -> Vec<Sge> {
    if let Data::Pieces(pieces) = data { pieces.iter().map(sge).collect() } else { Vec::new() }
}

fn inline_of(data: &Data) -> &[u8] {
    if let Data::Inline(bytes) = data { bytes } else { &[] }
}
