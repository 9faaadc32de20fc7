//! A few devices with datagram queue pairs on a wire that loses nothing: for scenarios of datagrams
//! and groups.
//!
//! ```
//! use urxe_test_support::net::{DatagramNet, payload};
//!
//! let mut net = DatagramNet::new(2);
//! net.post_recv(1, 7, 40 + 100);
//! net.send(0, 1, b"hello");
//! net.run();
//! let (completion, bytes) = net.received(1).expect("it arrived");
//! assert_eq!((completion.wr_id, payload(&bytes)), (7, &b"hello"[..]));
//! ```
//! Device n has the address 10.0.0.(n+1), or fd00::(n+1), and one queue pair with the Q_Key
//! [`QKEY`]. What is on the wire can be looked at before it is delivered, and changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use urxe_device::cq::Completion;
use urxe_device::device::counters::Counter;
use urxe_device::device::{DeviceConfig, Limits, QpHandle};
use urxe_device::qp::attr::{PathMtu, QpAttr, QpState, QpType};
use urxe_device::qp::work_request::{
    AhHandle, Destination, Payload, PostError, SendFlags, SendOp, SendRequest,
};
use urxe_memory::Access;
use urxe_types::time::Time;
use urxe_wire::{Gid, Psn, QKey, Qpn};

use crate::host::{Host, HostOptions, run_all};
use crate::qp::{self, CAP};
use crate::wire::Wire;
pub use crate::wire::{HOP_LIMIT, PacketRun};

/// The Q_Key of every queue pair.
pub const QKEY: QKey = QKey(0x1111_1111);
/// Bytes of each device's buffer.
pub const MEMORY: usize = 1 << 16;
/// Where messages are sent from; receives land at 0.
pub const SOURCE: u64 = 1 << 15;

/// What stands behind the 40 bytes of header.
#[must_use]
pub fn payload(bytes: &[u8]) -> &[u8] {
    &bytes[40..]
}

/// See the module.
pub struct DatagramNet {
    /// The devices.
    pub hosts: Vec<Host>,
    wire: Wire,
}

impl DatagramNet {
    /// So many devices with IPv4 addresses.
    #[must_use]
    pub fn new(hosts: u8) -> Self {
        Self::of((1..=hosts).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))))
    }

    /// So many devices with IPv6 addresses.
    #[must_use]
    pub fn v6(hosts: u8) -> Self {
        Self::of((1..=hosts).map(|n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()))))
    }

    /// Devices with these addresses.
    #[must_use]
    pub fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        Self::with(addresses, Limits::default())
    }

    /// Devices with these addresses and limits.
    #[must_use]
    pub fn with(addresses: impl Iterator<Item = IpAddr>, limits: Limits) -> Self {
        let options = HostOptions {
            qp_type: QpType::Ud,
            cap: CAP,
            cq_entries: 256,
            has_recv_cq: false,
            memory: MEMORY,
            access: Access::LOCAL_WRITE | Access::ZERO_BASED,
        };
        let host = |(seed, address)| {
            let mut config = DeviceConfig::new(vec![Gid::from_ip(address)], seed);
            config.active_mtu = PathMtu::Mtu1024;
            config.limits = limits;
            let host = Host::with(address, config, options);
            start(&host, host.qp, QpType::Ud);
            host
        };
        Self { hosts: (0..).zip(addresses).map(host).collect(), wire: Wire::default() }
    }

    /// Posts a receive of `len` bytes at the beginning of the buffer of device `at`.
    pub fn post_recv(&self, at: usize, wr_id: u64, len: u32) {
        let host = &self.hosts[at];
        host.post_recv(wr_id, &[host.sge(0, len)]);
    }

    /// Sends a message from one device's queue pair to another's, with a completion.
    ///
    /// # Panics
    /// If it is refused.
    pub fn send(&self, from: usize, to: usize, message: &[u8]) {
        self.post_send(from, 1, self.to(from, to, QKEY), message).expect("taken");
    }

    /// The way from one device to another's queue pair, by a new address handle.
    #[must_use]
    pub fn to(&self, from: usize, to: usize, qkey: QKey) -> Destination {
        let peer = &self.hosts[to];
        to_qp(self.hosts[from].ah(peer.address), peer.qp.qpn(), qkey)
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
    pub fn post_send_op(
        &self,
        from: usize,
        wr_id: u64,
        to: Destination,
        op: SendOp,
        message: &[u8],
    ) -> Result<(), PostError> {
        let host = &self.hosts[from];
        host.write(SOURCE as usize, message);
        let sges = [host.sge(SOURCE, message.len() as u32)];
        let (flags, payload) = (SendFlags::SIGNALED, Payload::Sges(&sges));
        let posted = host.post_request(host.qp, &SendRequest { wr_id, op, to, flags, payload });
        host.transmit(&self.wire);
        posted
    }

    /// What is on the wire now; taken off it.
    #[must_use]
    pub fn on_the_wire(&self) -> Vec<PacketRun> {
        self.hosts.iter().for_each(|host| host.transmit(&self.wire));
        self.wire.take()
    }

    /// Delivers a run to the devices that it is for: a group's packets reach every device, as on a
    /// wire.
    pub fn deliver(&self, run: &PacketRun) {
        for host in self.hosts.iter().filter(|h| run.to.is_multicast() || h.address == run.to) {
            self.wire.deliver(&host.device, Time::ZERO, run);
        }
    }

    /// Delivers everything until nothing more is sent.
    pub fn run(&self) {
        run_all(&self.hosts.iter().collect::<Vec<_>>(), &self.wire);
    }

    /// The oldest completion at a device, and as many bytes of the buffer's beginning as it says.
    #[must_use]
    pub fn received(&self, at: usize) -> Option<(Completion, Vec<u8>)> {
        let completion = self.hosts[at].completion()?;
        Some((completion, self.hosts[at].bytes(0, completion.byte_len as usize)))
    }

    /// A counter of a device.
    #[must_use]
    pub fn counter(&self, at: usize, counter: Counter) -> u64 {
        self.hosts[at].counter(counter)
    }
}

/// A message to a queue pair.
#[must_use]
pub fn to_qp(ah: AhHandle, qpn: Qpn, qkey: QKey) -> Destination {
    Destination::Datagram { ah, qpn, qkey }
}

/// Another queue pair of a device, in RTS.
#[must_use]
pub fn another(host: &Host, qp_type: QpType) -> QpHandle {
    let qp = host.create(&qp::init(qp_type, host.pd, &host.cq));
    start(host, qp, qp_type);
    qp
}

/// Brings a datagram queue pair to RTS, with [`QKEY`] and the last PSN as its first.
pub fn start(host: &Host, qp: QpHandle, qp_type: QpType) {
    let attr = QpAttr { port_num: 1, qkey: QKEY, sq_psn: Psn::new(0xff_ffff), ..QpAttr::default() };
    host.bring_up((qp, qp_type), &attr, QpState::Rts);
}
