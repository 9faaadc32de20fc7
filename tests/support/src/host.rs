//! A host: a device with memory, a completion queue and a queue pair. A pair is two connected
//! hosts.
//!
//! ```
//! use urxe_device::qp::work_request::SendOp;
//! use urxe_test_support::host::{pair, run};
//!
//! let (a, b, wire) = pair();
//! a.write(0, b"hello");
//! a.post(SendOp::Write { remote: b.remote(64) }, &[a.sge(0, 5)]);
//! run(&a, &b, &wire);
//! assert_eq!(b.bytes(64, 5), b"hello");
//! ```

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use urxe_device::cq::{AsyncEvent, Completion, Cq, WcOpcode, WcStatus};
use urxe_device::device::counters::Counter;
use urxe_device::device::{Device, DeviceConfig, QpHandle};
use urxe_device::qp::QpInit;
use urxe_device::qp::attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_device::qp::work_request::{
    AhHandle, PostError, RecvRequest, Remote, SendOp, SendRequest, Sge,
};
use urxe_device::srq::{Srq, SrqAttr, SrqInit, XrcSrqInit};
use urxe_memory::{Access, Buffer, Mr, PdId};
use urxe_types::port::groups::{JoinError, JoinGroups};
use urxe_types::time::Time;
use urxe_wire::{Gid, Qpn};

use crate::qp::{self, CAP, REMOTE};
use crate::wire::Wire;

/// The address of the first of two hosts.
pub const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The address of the second host.
pub const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A virtual clock. All clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_ns(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time.
    pub fn set(&self, now: Time) {
        self.0.store(now.as_ns(), Ordering::Relaxed);
    }

    /// Moves the time forward.
    pub fn advance(&self, ns: u64) {
        self.set(self.now().plus_ns(ns));
    }
}

/// What a host has besides its device.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    /// The service of the queue pair.
    pub qp_type: QpType,
    /// The sizes of the queue pair.
    pub cap: QpCap,
    /// Entries of the completion queue.
    pub cq_entries: u32,
    /// Whether receives have a completion queue of their own.
    pub has_recv_cq: bool,
    /// The length of the buffer, in bytes.
    pub memory: usize,
    /// The access rights of the region. With [`Access::ZERO_BASED`], addresses are offsets in the
    /// buffer.
    pub access: Access,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            cap: QpCap { max_send_wr: 16, max_recv_wr: 16, ..CAP },
            cq_entries: 64,
            has_recv_cq: false,
            memory: 1 << 20,
            access: Access::LOCAL_WRITE | REMOTE,
        }
    }
}

/// A device with the objects of a program.
pub struct Host {
    /// The device.
    pub device: Device,
    /// The device's address.
    pub address: IpAddr,
    /// The protection domain.
    pub pd: PdId,
    /// Completions of sends, and of receives unless [`HostOptions::has_recv_cq`] is set.
    pub cq: Arc<Cq>,
    /// Completions of receives.
    pub recv_cq: Arc<Cq>,
    /// The queue pair.
    pub qp: QpHandle,
    /// The buffer as a registered region.
    pub mr: Mr,
    /// The multicast groups that the port has joined.
    pub joined: Arc<Joined>,
    /// The time of posts, transmissions and receptions.
    pub clock: Clock,
    options: HostOptions,
    /// The buffer. Declared last, so that the device, which refers to the memory, is dropped first.
    pub buffer: Arc<Buffer>,
}

impl Host {
    /// Creates a host with an RC queue pair in RESET.
    #[must_use]
    pub fn new(address: Ipv4Addr, seed: u64) -> Self {
        let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], seed);
        Self::with(address.into(), config, HostOptions::default())
    }

    /// Creates a host with this device configuration.
    ///
    /// # Panics
    /// If the stack refuses an object of the host.
    #[must_use]
    pub fn with(address: IpAddr, mut config: DeviceConfig, options: HostOptions) -> Self {
        let joined = Arc::<Joined>::default();
        config.groups = Box::new(Port(Arc::clone(&joined)));
        let device = Device::new(config);
        let pd = device.alloc_pd().expect("a protection domain");
        let create_cq =
            || device.create_cq(options.cq_entries, None, 0).expect("a completion queue");
        let cq = create_cq();
        let recv_cq = if options.has_recv_cq { create_cq() } else { Arc::clone(&cq) };
        let init = QpInit {
            recv_cq: Arc::clone(&recv_cq),
            cap: options.cap,
            ..qp::init(options.qp_type, pd, &cq)
        };
        let qp = device.create_qp(&init).expect("a queue pair");
        let buffer = Arc::new(Buffer::new(options.memory).expect("memory"));
        let mr = register(&device, pd, &buffer, options.access);
        let clock = Clock::default();
        Self { device, address, pd, cq, recv_cq, qp, mr, joined, clock, options, buffer }
    }

    /// Returns the attributes with which [`create_qp`](Self::create_qp) creates a queue pair.
    #[must_use]
    pub fn init(&self) -> QpInit {
        QpInit { cap: self.options.cap, ..qp::init(self.options.qp_type, self.pd, &self.cq) }
    }

    /// Creates another queue pair with the same attributes.
    #[must_use]
    pub fn create_qp(&self) -> QpHandle {
        self.create(&self.init())
    }

    /// Creates another queue pair that takes receives from a shared receive queue.
    #[must_use]
    pub fn create_qp_on(&self, srq: &Arc<Srq>) -> QpHandle {
        self.create(&QpInit { srq: Some(Arc::clone(srq)), ..self.init() })
    }

    /// Creates a queue pair.
    ///
    /// # Panics
    /// If the device refuses the queue pair.
    #[must_use]
    pub fn create(&self, init: &QpInit) -> QpHandle {
        self.device.create_qp(init).expect("a queue pair")
    }

    /// Creates a shared receive queue for receives of two scatter-gather entries.
    ///
    /// # Panics
    /// If the device refuses the queue.
    #[must_use]
    pub fn create_srq(&self, pd: PdId, max_wr: u32, xrc: Option<XrcSrqInit>) -> Arc<Srq> {
        let attr = SrqAttr { max_wr, max_sge: 2, srq_limit: 0 };
        self.device.create_srq(&SrqInit { pd, attr, xrc, context: 0 }).expect("a queue")
    }

    /// Registers the whole buffer again.
    #[must_use]
    pub fn register(&self, pd: PdId, access: Access) -> Mr {
        register(&self.device, pd, &self.buffer, access)
    }

    /// Brings a queue pair of the host's service to RTS.
    pub fn connect_qp(&self, qp: QpHandle, dest_qp_num: Qpn, peer: Ipv4Addr) {
        self.connect_as(self.options.qp_type, qp, dest_qp_num, peer);
    }

    /// Brings a queue pair of the given service to RTS.
    pub fn connect_as(&self, qp_type: QpType, qp: QpHandle, dest_qp_num: Qpn, peer: Ipv4Addr) {
        self.bring_up((qp, qp_type), &qp::attributes(peer.into(), dest_qp_num), QpState::Rts);
    }

    /// Brings a queue pair from RESET to a state.
    ///
    /// # Panics
    /// If the device refuses a transition.
    pub fn bring_up(&self, qp: (QpHandle, QpType), attr: &QpAttr, to: QpState) {
        qp::bring_up(&self.device, self.clock.now(), qp, attr, to)
            .unwrap_or_else(|refused| panic!("{refused}"));
    }

    /// Modifies a queue pair.
    ///
    /// # Panics
    /// If the device refuses the change.
    pub fn modify(&self, qp: QpHandle, attr: &QpAttr, mask: QpAttrMask) {
        let changed = self.device.modify_qp(self.clock.now(), qp, attr, mask);
        changed.unwrap_or_else(|error| panic!("to {}: {error}", attr.qp_state));
    }

    /// Moves a queue pair to a state, with no other attribute.
    pub fn go_to(&self, qp: QpHandle, qp_state: QpState) {
        self.modify(qp, &qp::state(qp_state), QpAttrMask::STATE);
    }

    /// Returns the state of a queue pair.
    ///
    /// # Panics
    /// If the queue pair does not exist.
    #[must_use]
    pub fn state(&self, qp: QpHandle) -> QpState {
        self.device.query_qp(qp).expect("the queue pair").qp_state
    }

    /// Returns part of the buffer as a scatter-gather entry.
    #[must_use]
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.mr.iova + offset, length, lkey: self.mr.lkey }
    }

    /// Returns part of the buffer as a peer addresses it.
    #[must_use]
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.mr.iova + offset, rkey: self.mr.rkey }
    }

    /// Creates an address handle for a peer or a group.
    ///
    /// # Panics
    /// If the device refuses the address.
    #[must_use]
    pub fn ah(&self, to: IpAddr) -> AhHandle {
        self.device.create_ah(self.pd, &qp::address_vector(to)).expect("an address")
    }

    /// Posts a signalled work request to the host's queue pair.
    pub fn post(&self, op: SendOp, sges: &[Sge]) {
        self.post_on(self.qp, op, sges);
    }

    /// Posts a signalled work request to a queue pair.
    ///
    /// # Panics
    /// If the device refuses the request.
    pub fn post_on(&self, qp: QpHandle, op: SendOp, sges: &[Sge]) {
        self.post_request(qp, &qp::request(op, sges)).expect("taken");
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// The error of `post_send`.
    pub fn post_request(&self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.device.post_send(self.clock.now(), qp, &[*request]).map_err(|(_, error)| error)
    }

    /// Posts a receive to the host's queue pair.
    pub fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.post_recv_on(self.qp, wr_id, sges);
    }

    /// Posts a receive to a queue pair.
    ///
    /// # Panics
    /// If the device refuses the receive.
    pub fn post_recv_on(&self, qp: QpHandle, wr_id: u64, sges: &[Sge]) {
        let posted = self.device.post_recv(self.clock.now(), qp, &[RecvRequest { wr_id, sges }]);
        posted.expect("taken");
    }

    /// Transmits all pending packets.
    pub fn transmit(&self, wire: &Wire) {
        self.device.transmit_pending(self.clock.now(), wire);
    }

    /// Polls all completions.
    #[must_use]
    pub fn completions(&self) -> Vec<Completion> {
        poll(&self.cq)
    }

    /// Polls the oldest completion.
    ///
    /// # Panics
    /// If the completion queue was overrun.
    #[must_use]
    pub fn completion(&self) -> Option<Completion> {
        let mut one = [Completion::default()];
        (self.cq.poll(&mut one).expect("not overrun") == 1).then_some(one[0])
    }

    /// Polls all completions and returns their statuses.
    #[must_use]
    pub fn statuses(&self) -> Vec<WcStatus> {
        self.completions().iter().map(|completion| completion.status).collect()
    }

    /// Polls all completions and returns their opcodes and statuses.
    #[must_use]
    pub fn outcomes(&self) -> Vec<(WcOpcode, WcStatus)> {
        self.completions().iter().map(|completion| (completion.opcode, completion.status)).collect()
    }

    /// Takes all asynchronous events.
    #[must_use]
    pub fn events(&self) -> Vec<AsyncEvent> {
        let events = self.device.events();
        std::iter::from_fn(|| events.next_event().inspect(|event| events.ack(event))).collect()
    }

    /// Returns a counter of the device.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.device.counters().value(counter)
    }

    /// Returns bytes of the buffer.
    ///
    /// # Panics
    /// If the range is not in the buffer.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(offset, &mut bytes).expect("in the buffer");
        bytes
    }

    /// Writes to the buffer, as a program does.
    ///
    /// # Panics
    /// If the range is not in the buffer.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.buffer.write(offset, bytes).expect("in the buffer");
    }
}

/// Registers a whole buffer.
///
/// # Panics
/// If the device refuses it.
#[must_use]
pub fn register(device: &Device, pd: PdId, buffer: &Arc<Buffer>, access: Access) -> Mr {
    let iova = if access.contains(Access::ZERO_BASED) { 0 } else { buffer.addr() as u64 };
    device.memory().register_buffer(pd, buffer, 0..buffer.len(), iova, access).expect("registered")
}

/// Polls all completions of a queue.
///
/// # Panics
/// If the queue was overrun.
#[must_use]
pub fn poll(cq: &Cq) -> Vec<Completion> {
    let mut completions = vec![Completion::default(); 256];
    let count = cq.poll(&mut completions).expect("not overrun");
    completions.truncate(count);
    completions
}

/// Creates two hosts whose queue pairs are connected with each other.
#[must_use]
pub fn pair() -> (Host, Host, Wire) {
    let (a, b) = (Host::new(A, 1), Host::new(B, 2));
    a.connect_qp(a.qp, b.qp.qpn(), B);
    b.connect_qp(b.qp, a.qp.qpn(), A);
    (a, b, Wire::default())
}

/// Creates another connected queue pair on each of two hosts.
#[must_use]
pub fn connect_another(a: &Host, b: &Host) -> (QpHandle, QpHandle) {
    let (from, to) = (a.create_qp(), b.create_qp());
    connect(a, from, b, to);
    (from, to)
}

/// Connects two queue pairs of [`A`] and [`B`] with each other.
pub fn connect(a: &Host, from: QpHandle, b: &Host, to: QpHandle) {
    a.connect_qp(from, to.qpn(), B);
    b.connect_qp(to, from.qpn(), A);
}

/// Moves packets until both hosts have nothing more to send.
pub fn run(a: &Host, b: &Host, wire: &Wire) {
    run_all(&[a, b], wire);
}

/// Moves packets until no host has anything more to send. Packets to a group reach every host.
pub fn run_all(hosts: &[&Host], wire: &Wire) {
    loop {
        hosts.iter().for_each(|host| host.transmit(wire));
        let Some(run) = wire.pop() else { return };
        for host in hosts.iter().filter(|h| run.to.is_multicast() || h.address == run.to) {
            wire.deliver(&host.device, host.clock.now(), &run);
        }
        wire.recycle(run);
    }
}

/// Returns bytes whose period is no power of two, so that a misplaced packet shows.
#[must_use]
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Asserts that a host has dropped nothing, counted no error and has no bytes in flight.
///
/// # Panics
/// If one of these does not hold.
pub fn assert_quiet(host: &Host) {
    for counter in
        Counter::ALL.iter().filter(|c| c.name().starts_with("drop") || c.name().ends_with("_err"))
    {
        assert_eq!(host.counter(*counter), 0, "{}", counter.name());
    }
    assert_eq!(host.device.bytes_in_flight(), (0, 0));
}

/// The multicast groups that a device's port has joined.
#[derive(Debug, Default)]
pub struct Joined {
    groups: Mutex<BTreeSet<IpAddr>>,
    /// Whether the port refuses to join more groups.
    pub refuses: AtomicBool,
}

impl Joined {
    fn groups(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        self.groups.lock().expect("no test panics in here")
    }

    /// Returns the groups, in order.
    #[must_use]
    pub fn now(&self) -> Vec<IpAddr> {
        self.groups().iter().copied().collect()
    }
}

struct Port(Arc<Joined>);

impl JoinGroups for Port {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(JoinError::AddressInUse { group });
        }
        assert!(self.0.groups().insert(group), "{group} is joined twice");
        Ok(())
    }

    fn leave(&self, group: IpAddr) {
        assert!(self.0.groups().remove(&group), "{group} is left and was not joined");
    }
}
