//! Where packets come and go.
//!
//! A port sends *runs* and receives *datagrams of equal segments*, so that one system call moves
//! many packets (UDP GSO and GRO). The simulated network and the tap see the same two shapes.

pub mod groups;

use std::net::IpAddr;

pub use groups::{EveryGroup, JoinError, JoinGroups};

/// The most packets in a run (`UDP_MAX_SEGMENTS` of kernels before 6.7).
pub const MAX_RUN_SEGMENTS: usize = 64;

/// Bytes that a paced sender (UC, UD) may send at once after a pause.
pub const PACED_BURST: u64 = 120 << 10;

/// Hop limit of what this machine sends, unless somebody has set it otherwise (ip(7),
/// `ip_default_ttl`).
pub const OWN_HOP_LIMIT: u8 = 64;

/// Packets for one peer address, all of [`segment_size`](Self::segment_size) bytes but for a
/// shorter last one. Each is a whole UDP payload, BTH to ICRC, whose ICRC was made for the IPv4
/// identification equal to its index in the run, with DF set: what Linux puts on the wire for a GSO
/// send from an unconnected socket.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The sending address: one of the device's own. With [`from_port`](Self::from_port) it tells
    /// which socket sends.
    pub from: IpAddr,
    /// The UDP source port that the packets' ICRCs were made for (the ICRC covers it).
    pub from_port: u16,
    /// The peer's address; the UDP port is always 4791.
    pub to: IpAddr,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
    /// Length of every packet but the last, in bytes.
    pub segment_size: usize,
    /// The IP header's type of service or traffic class (RoCEv2: DSCP and ECN bits).
    pub traffic_class: u8,
    /// The IP header's time to live or hop limit; 0 leaves it to the system.
    pub hop_limit: u8,
}

impl<'a> Run<'a> {
    /// The packets in order.
    #[inline]
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_size.max(1))
    }
}

/// A packet that arrived and is kept for a while.
#[derive(Clone, Debug)]
pub struct KeptPacket {
    from: IpAddr,
    from_port: u16,
    to: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    /// The packet, BTH to ICRC.
    pub bytes: Box<[u8]>,
}

impl KeptPacket {
    /// `bytes`, which arrived as `datagrams` did.
    pub fn new(datagrams: &Datagrams<'_>, bytes: Box<[u8]>) -> Self {
        let Datagrams { from, from_port, to, traffic_class, hop_limit, .. } = *datagrams;
        Self { from, from_port, to, traffic_class, hop_limit, bytes }
    }

    /// As it arrived.
    pub fn datagrams(&self) -> Datagrams<'_> {
        let Self { from, from_port, to, traffic_class, hop_limit, .. } = *self;
        let (bytes, segment_size) = (&*self.bytes, self.bytes.len());
        Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit }
    }
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// Handed to the network (which may still lose it).
    Sent,
    /// The system could not take it; it counts as lost on the way and the protocol's retransmission
    /// applies.
    Dropped,
}

/// The sending half of a port.
pub trait Transmit: Sync {
    /// Sends one run. Never blocks longer than a few milliseconds.
    fn transmit(&self, run: &Run<'_>) -> SendOutcome;

    /// Whether what the receiver of a path has not read yet fills half of its buffer, as far as can
    /// be seen from here: it is the process `peer_slot` of the same address.
    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        let _ = (to, peer_slot);
        false
    }

    /// How many packets a run may have at this moment. A port that turns out unable to send several
    /// in one call answers 1 from then on, and drops longer runs.
    fn max_run_segments(&self) -> usize {
        MAX_RUN_SEGMENTS
    }
}

/// Packets that arrived together from one peer: one UDP datagram, or several that the system merged
/// (GRO), all of [`segment_size`](Self::segment_size) bytes but for a shorter last one.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'a> {
    /// The source address.
    pub from: IpAddr,
    /// The UDP source port. It says nothing about the peer (senders vary it for routing), but the
    /// ICRC covers it.
    pub from_port: u16,
    /// The destination address: one of the device's own, or a multicast group.
    pub to: IpAddr,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
    /// Length of every packet but the last, in bytes.
    pub segment_size: usize,
    /// The IP header's type of service or traffic class (its low two bits are ECN).
    pub traffic_class: u8,
    /// The IP header's time to live or hop limit, where the port learns it, else 0.
    pub hop_limit: u8,
}

impl<'a> Datagrams<'a> {
    /// The packets in order.
    #[inline]
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_size.max(1))
    }

    /// The packet at place `nr`; empty behind the last.
    #[must_use]
    #[inline]
    pub fn segment(&self, nr: usize) -> &'a [u8] {
        let size = self.segment_size.max(1);
        let rest = self.bytes.get(nr.saturating_mul(size)..).unwrap_or_default();
        &rest[..rest.len().min(size)]
    }
}

/// An observer of the packets that pass a port, for example a capture.
pub trait PacketTap: std::fmt::Debug + Send + Sync {
    /// Observes a run that is about to be sent at `wall_ns`, nanoseconds since 1970.
    fn sent(&self, wall_ns: u64, run: &Run<'_>);

    /// Observes packets that arrived at `wall_ns`, nanoseconds since 1970.
    fn received(&self, wall_ns: u64, datagrams: &Datagrams<'_>);
}
