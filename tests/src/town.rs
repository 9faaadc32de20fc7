//! A few devices with datagram queue pairs on a wire that loses nothing: for scenarios of datagrams
//! and groups.
//!
//! ```
//! use urxe_tests::town::{Town, payload};
//!
//! let mut town = Town::new(2);
//! town.post_recv(1, 7, 40 + 100);
//! town.send(0, 1, b"hello");
//! town.run();
//! let (completion, bytes) = town.received(1).expect("it arrived");
//! assert_eq!((completion.wr_id, payload(&bytes)), (7, &b"hello"[..]));
//! ```
//! Device n has the address 10.0.0.(n+1), or fd00::(n+1), and one queue pair with the Q_Key
//! [`QKEY`]. What is on the wire can be looked at before it is delivered, and changed.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use urxe_stack::cq::{Completion, Cq};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::{Device, DeviceConfig, Limits, QpHandle, ReceiveScratch};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::port::groups::{JoinError, JoinGroups};
use urxe_stack::port::{Datagrams, Run, SendOutcome, Transmit};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::wr::{
    AhHandle, Destination, Payload, PostError, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::time::Time;
use urxe_wire::{Gid, Psn, QKey, Qpn};

/// The Q_Key of every queue pair.
pub const QKEY: QKey = QKey(0x1111_1111);
/// Bytes of each device's buffer.
pub const MEMORY: usize = 1 << 16;
/// Where messages are sent from; receives land at 0.
pub const SOURCE: u64 = 1 << 15;
/// The hop limit of everything that arrives.
pub const HOPS: u8 = 63;

/// What stands behind the 40 bytes of header.
#[must_use]
pub fn payload(bytes: &[u8]) -> &[u8] {
    &bytes[40..]
}

/// A run on the wire.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The sender.
    pub from: IpAddr,
    /// Its UDP port.
    pub from_port: u16,
    /// A device, a group, or nobody.
    pub to: IpAddr,
    /// The packets.
    pub bytes: Vec<u8>,
    /// Bytes of each but the last.
    pub segment_size: usize,
    /// Its hop limit, 0 for the system's.
    pub hop_limit: u8,
    /// Its traffic class.
    pub traffic_class: u8,
}

#[derive(Default)]
struct Wire(Mutex<VecDeque<Carried>>);

impl Transmit for Wire {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.0.lock().expect("one thread").push_back(Carried {
            from: run.from,
            from_port: run.from_port,
            to: run.to,
            bytes: run.bytes.to_vec(),
            segment_size: run.segment_size,
            hop_limit: run.hop_limit,
            traffic_class: run.traffic_class,
        });
        SendOutcome::Sent
    }
}

/// The groups that a device's port has joined.
#[derive(Debug, Default)]
pub struct Joined {
    groups: Mutex<BTreeSet<IpAddr>>,
    /// The port joins no more.
    pub refuses: AtomicBool,
}

impl Joined {
    fn groups(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        self.groups.lock().expect("no test panics in here")
    }

    /// The groups, in order.
    ///
    /// # Panics
    /// If a test panicked while it used them.
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

/// One device.
pub struct House {
    /// The device.
    pub device: Device,
    /// Its address.
    pub address: IpAddr,
    /// Its protection domain.
    pub pd: PdId,
    /// Its queue pair, in RTS.
    pub qp: QpHandle,
    /// Where everything completes.
    pub cq: Arc<Cq>,
    /// The buffer as registered.
    pub mr: Mr,
    /// The groups that its port has joined. What is sent to others reaches it all the same.
    pub joined: Arc<Joined>,
    memory: Arc<Buffer>,
}

/// See the module.
pub struct Town {
    /// The devices.
    pub houses: Vec<House>,
    wire: Wire,
    scratch: ReceiveScratch,
    /// The time.
    pub now: Time,
}

impl Town {
    /// So many devices with IPv4 addresses.
    #[must_use]
    pub fn new(houses: u8) -> Self {
        Self::of((1..=houses).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))))
    }

    /// So many devices with IPv6 addresses.
    #[must_use]
    pub fn v6(houses: u8) -> Self {
        Self::of(
            (1..=houses).map(|n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()))),
        )
    }

    /// Devices with these addresses.
    #[must_use]
    pub fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        Self::with(addresses, Limits::default())
    }

    /// Devices with these addresses that can do so much.
    #[must_use]
    pub fn with(addresses: impl Iterator<Item = IpAddr>, limits: Limits) -> Self {
        let house = |(seed, address)| House::new(address, seed, limits);
        let houses = (0..).zip(addresses).map(house).collect();
        Self { houses, wire: Wire::default(), scratch: ReceiveScratch::default(), now: Time::ZERO }
    }

    /// Posts a receive of `len` bytes at the beginning of the buffer of device `at`.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_recv(&self, at: usize, wr_id: u64, len: u32) {
        let house = &self.houses[at];
        house.post_recv(house.qp, self.now, wr_id, len);
    }

    /// Sends a message from one device's queue pair to another's, with a completion.
    ///
    /// # Panics
    /// If it is refused.
    pub fn send(&self, from: usize, to: usize, message: &[u8]) {
        let peer = &self.houses[to];
        let ah = self.houses[from].ah(peer.address);
        self.post_send(from, 1, to_qp(ah, peer.qp.qpn(), QKEY), message).expect("taken");
    }

    /// Posts a message.
    ///
    /// # Errors
    /// What the stack says.
    pub fn post_send(
        &self,
        from: usize,
        wr_id: u64,
        to: Destination,
        message: &[u8],
    ) -> Result<(), PostError> {
        self.post_send_op(from, wr_id, to, SendOp::Send, message)
    }

    /// Posts a message of any kind.
    ///
    /// # Errors
    /// What the stack says.
    ///
    /// # Panics
    /// If it is longer than half the buffer.
    pub fn post_send_op(
        &self,
        from: usize,
        wr_id: u64,
        to: Destination,
        op: SendOp,
        message: &[u8],
    ) -> Result<(), PostError> {
        let house = &self.houses[from];
        house.memory.write(SOURCE as usize, message).expect("it fits");
        let sges = [Sge { addr: SOURCE, length: message.len() as u32, lkey: house.mr.lkey }];
        let (flags, payload) = (SendFlags::SIGNALED, Payload::Sges(&sges));
        let request = SendRequest { wr_id, op, to, flags, payload };
        let posted =
            house.device.post_send(self.now, house.qp, &[request]).map_err(|(_, error)| error);
        house.device.transmit_pending(self.now, &self.wire);
        posted
    }

    /// What is on the wire now; taken off it.
    ///
    /// # Panics
    /// Never: one thread uses it.
    pub fn on_the_wire(&mut self) -> Vec<Carried> {
        for house in &self.houses {
            house.device.transmit_pending(self.now, &self.wire);
        }
        self.wire.0.lock().expect("one thread").drain(..).collect()
    }

    /// Delivers a run to the devices that it is for: a group's packets reach every device, as on a
    /// wire.
    pub fn deliver(&mut self, run: &Carried) {
        for house in self.houses.iter().filter(|h| run.to.is_multicast() || h.address == run.to) {
            let datagrams = Datagrams {
                from: run.from,
                from_port: run.from_port,
                to: run.to,
                bytes: &run.bytes,
                segment_size: run.segment_size,
                traffic_class: run.traffic_class,
                hop_limit: HOPS,
            };
            house.device.receive(self.now, &datagrams, &mut self.scratch);
        }
    }

    /// Delivers everything until nothing more is sent.
    pub fn run(&mut self) {
        loop {
            let runs = self.on_the_wire();
            if runs.is_empty() {
                return;
            }
            runs.iter().for_each(|run| self.deliver(run));
        }
    }

    /// The oldest completion at a device, and as many bytes of the buffer's beginning as it says.
    ///
    /// # Panics
    /// If the completion queue was overrun.
    #[must_use]
    pub fn received(&self, at: usize) -> Option<(Completion, Vec<u8>)> {
        let completion = self.houses[at].completion()?;
        let mut bytes = vec![0; completion.byte_len as usize];
        self.houses[at].memory.read(0, &mut bytes).expect("it fits");
        Some((completion, bytes))
    }

    /// A counter of a device.
    #[must_use]
    pub fn counter(&self, at: usize, counter: Counter) -> u64 {
        self.houses[at].device.counters().value(counter)
    }
}

/// A message to a queue pair.
#[must_use]
pub fn to_qp(ah: AhHandle, qpn: Qpn, qkey: QKey) -> Destination {
    Destination::Datagram { ah, qpn, qkey }
}

/// An address vector with this destination and everything else 0.
#[must_use]
pub fn address(to: IpAddr) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ip(to),
        is_global: true,
        port_num: 1,
        ..AddressVector::default()
    }
}

impl House {
    fn new(address: IpAddr, seed: u64, limits: Limits) -> Self {
        let joined = Arc::<Joined>::default();
        let mut config = DeviceConfig::new(vec![Gid::from_ip(address)], seed);
        config.active_mtu = PathMtu::Mtu1024;
        config.limits = limits;
        config.groups = Box::new(Port(Arc::clone(&joined)));
        let device = Device::new(config);
        let memory = Arc::new(Buffer::new(MEMORY).expect("a few KiB"));
        let pd = device.alloc_pd().expect("a protection domain");
        let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
        let mr =
            device.memory().register_buffer(pd, &memory, 0..MEMORY, 0, access).expect("registered");
        let cq = device.create_cq(256, None, 0).expect("a completion queue");
        let qp = create(&device, pd, &cq, QpType::Ud);
        let house = Self { device, address, pd, qp, cq, mr, joined, memory };
        house.start(qp);
        house
    }

    /// Another queue pair of this device, in RTS.
    #[must_use]
    pub fn another(&self, qp_type: QpType) -> QpHandle {
        let qp = create(&self.device, self.pd, &self.cq, qp_type);
        self.start(qp);
        qp
    }

    fn start(&self, qp: QpHandle) {
        let attr =
            QpAttr { port_num: 1, qkey: QKEY, sq_psn: Psn::new(0xff_ffff), ..QpAttr::default() };
        for (qp_state, mask) in [
            (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY),
            (QpState::Rtr, QpAttrMask::empty()),
            (QpState::Rts, QpAttrMask::SQ_PSN),
        ] {
            let attr = QpAttr { qp_state, ..attr };
            self.device
                .modify_qp(Time::ZERO, qp, &attr, QpAttrMask::STATE | mask)
                .expect("changed");
        }
    }

    /// Posts a receive to any queue pair of the device.
    ///
    /// # Panics
    /// If it is refused.
    pub fn post_recv(&self, qp: QpHandle, now: Time, wr_id: u64, len: u32) {
        let sges = [Sge { addr: 0, length: len, lkey: self.mr.lkey }];
        self.device.post_recv(now, qp, &[RecvRequest { wr_id, sges: &sges }]).expect("taken");
    }

    /// An address handle for a peer or a group.
    ///
    /// # Panics
    /// If it is refused.
    #[must_use]
    pub fn ah(&self, to: IpAddr) -> AhHandle {
        self.device.create_ah(self.pd, &address(to)).expect("an address")
    }

    /// The oldest completion.
    ///
    /// # Panics
    /// If the completion queue was overrun.
    #[must_use]
    pub fn completion(&self) -> Option<Completion> {
        let mut one = [Completion::default()];
        (self.cq.poll(&mut one).expect("not overrun") == 1).then_some(one[0])
    }

    /// The queue pair's state.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.device.query_qp(self.qp).expect("the queue pair").qp_state
    }
}

fn create(device: &Device, pd: PdId, cq: &Arc<Cq>, qp_type: QpType) -> QpHandle {
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    };
    let (send_cq, recv_cq) = (Arc::clone(cq), Arc::clone(cq));
    let init = QpInit { qp_type, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
    device.create_qp(&init).expect("a queue pair")
}
