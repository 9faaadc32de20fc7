//! Several devices with datagram queue pairs on a lossless wire, for scenarios of datagrams and
//! multicast groups.
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
//! [`QKEY`]. A test can inspect and change packets on the wire before their delivery.

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
/// The length of each device's buffer, in bytes.
pub const MEMORY: usize = 1 << 16;
/// The offset of messages to send. Receives land at offset 0.
pub const SOURCE: u64 = 1 << 15;

/// Returns the payload behind the network header of 40 bytes.
#[must_use]
pub fn payload(bytes: &[u8]) -> &[u8] {
    &bytes[40..]
}

/// Several hosts on one wire.
pub struct DatagramNet {
    /// The hosts.
    pub hosts: Vec<Host>,
    wire: Wire,
}

impl DatagramNet {
    /// Creates a number of hosts with IPv4 addresses.
    #[must_use]
    pub fn new(hosts: u8) -> Self {
        Self::of((1..=hosts).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))))
    }

    /// Creates a number of hosts with IPv6 addresses.
    #[must_use]
    pub fn v6(hosts: u8) -> Self {
        Self::of((1..=hosts).map(|n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()))))
    }

    /// Creates hosts with these addresses.
    #[must_use]
    pub fn of(addresses: impl Iterator<Item = IpAddr>) -> Self {
        Self::with(addresses, Limits::default())
    }

    /// Creates hosts with these addresses and limits.
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

    /// Posts a receive of `len` bytes at the start of the buffer of host `at`.
    pub fn post_recv(&self, at: usize, wr_id: u64, len: u32) {
        let host = &self.hosts[at];
        host.post_recv(wr_id, &[host.sge(0, len)]);
    }

    /// Sends a signalled message from one host's queue pair to another's.
    ///
    /// # Panics
    /// If the device refuses the message.
    pub fn send(&self, from: usize, to: usize, message: &[u8]) {
        self.post_send(from, 1, self.to(from, to, QKEY), message).expect("taken");
    }

    /// Returns another host's queue pair as a destination, by a new address handle.
    #[must_use]
    pub fn to(&self, from: usize, to: usize, qkey: QKey) -> Destination {
        let peer = &self.hosts[to];
        to_qp(self.hosts[from].ah(peer.address), peer.qp.qpn(), qkey)
    }

    /// Posts a SEND.
    ///
    /// # Errors
    /// The error of `post_send`.
    pub fn post_send(
        &self,
        from: usize,
        wr_id: u64,
        to: Destination,
        message: &[u8],
    ) -> Result<(), PostError> {
        self.post_send_op(from, wr_id, to, SendOp::Send, message)
    }

    /// Posts a message with any operation.
    ///
    /// # Errors
    /// The error of `post_send`.
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

    /// Takes all packets off the wire.
    #[must_use]
    pub fn on_the_wire(&self) -> Vec<PacketRun> {
        self.hosts.iter().for_each(|host| host.transmit(&self.wire));
        self.wire.take()
    }

    /// Delivers a run to the hosts that have its address. A group's packets reach every host.
    pub fn deliver(&self, run: &PacketRun) {
        for host in self.hosts.iter().filter(|h| run.to.is_multicast() || h.address == run.to) {
            self.wire.deliver(&host.device, Time::ZERO, run);
        }
    }

    /// Delivers packets until no host sends any more.
    pub fn run(&self) {
        run_all(&self.hosts.iter().collect::<Vec<_>>(), &self.wire);
    }

    /// Polls the oldest completion of a host, and returns as many bytes from the start of the
    /// buffer as the completion reports.
    #[must_use]
    pub fn received(&self, at: usize) -> Option<(Completion, Vec<u8>)> {
        let completion = self.hosts[at].completion()?;
        Some((completion, self.hosts[at].bytes(0, completion.byte_len as usize)))
    }

    /// Returns a counter of a host's device.
    #[must_use]
    pub fn counter(&self, at: usize, counter: Counter) -> u64 {
        self.hosts[at].counter(counter)
    }
}

/// Returns a queue pair as a destination.
#[must_use]
pub fn to_qp(ah: AhHandle, qpn: Qpn, qkey: QKey) -> Destination {
    Destination::Datagram { ah, qpn, qkey }
}

/// Creates another queue pair of a host and brings the queue pair to RTS.
#[must_use]
pub fn another(host: &Host, qp_type: QpType) -> QpHandle {
    let qp = host.create(&qp::init(qp_type, host.pd, &host.cq));
    start(host, qp, qp_type);
    qp
}

/// Brings a datagram queue pair to RTS, with [`QKEY`] and the last PSN as the first.
pub fn start(host: &Host, qp: QpHandle, qp_type: QpType) {
    let attr = QpAttr { port_num: 1, qkey: QKEY, sq_psn: Psn::new(0xff_ffff), ..QpAttr::default() };
    host.bring_up((qp, qp_type), &attr, QpState::Rts);
}
