//! The interface between a device and its port: runs to send, datagrams received.
//!
//! A port sends *runs* and receives *datagrams of equal segments*, so that one system call moves
//! many packets (UDP GSO and GRO). The simulated network and captures use the same types.

pub mod groups;

use std::net::IpAddr;
use std::sync::atomic::AtomicU8;

pub use groups::{EveryGroup, JoinError, JoinGroups};

/// The largest number of packets in a run. All kernels with UDP GSO take that many in one call:
/// `UDP_MAX_SEGMENTS` is 64, and 128 since Linux 6.9 and in its stable backports.
pub const MAX_RUN_SEGMENTS: usize = 64;

/// The most bytes of a run. The system call takes up to 65,507 (the largest UDP payload of IPv4).
/// But a run that exceeds 64 KiB with its headers (IPv6 48 bytes, Ethernet 18 with a VLAN tag)
/// exceeds the limit of the device. The kernel then segments the run, and the packets arrive
/// unmerged even over loopback (measured).
pub const MAX_RUN_BYTES: usize = 65_535 - 48 - 18;

/// The number of bytes that a paced sender (UC, UD) may send at once after a pause.
pub const PACED_BURST: u64 = 120 << 10;

/// The default hop limit of this host (ip(7), `ip_default_ttl`).
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// Packets for one peer address. All packets have the length [`segment_size`](Self::segment_size),
/// except a shorter last one.
///
/// Each packet is a whole UDP payload, from BTH to ICRC. The ICRC is computed for DF and an IPv4
/// identification equal to the packet's index in the run. Linux sends these values for GSO from an
/// unconnected socket. A run [in memory](SendInMemory) has zeros instead.
///
/// The type of a byte is `AtomicU8` in memory that another process can change.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a, T = u8> {
    /// The sending address, which is one of the device's own. Together with
    /// [`from_port`](Self::from_port), it determines the socket.
    pub from: IpAddr,
    /// The UDP source port, which the ICRCs of the packets cover.
    pub from_port: u16,
    /// The address of the peer. The UDP port is always 4791.
    pub to: IpAddr,
    /// The packets, one after the other.
    pub bytes: &'a [T],
    /// Length of every packet except the last, in bytes.
    pub segment_size: usize,
    /// The IP header's type of service or traffic class (RoCEv2: DSCP and ECN bits).
    pub traffic_class: u8,
    /// The IP header's time to live or hop limit, or 0 for the system's default.
    pub hop_limit: u8,
}

impl<'a, T> Run<'a, T> {
    /// Returns the packets in order.
    #[inline]
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        self.bytes.chunks(self.segment_size.max(1))
    }
}

/// A received packet that is stored for later.
#[derive(Clone, Debug)]
pub struct StoredPacket {
    from: IpAddr,
    from_port: u16,
    to: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    /// The packet, from BTH to ICRC.
    pub bytes: Box<[u8]>,
}

impl StoredPacket {
    /// Returns a packet of `bytes`, with addresses and IP fields of `datagrams`.
    pub fn new(datagrams: &Datagrams<'_>, bytes: Box<[u8]>) -> Self {
        let Datagrams { from, from_port, to, traffic_class, hop_limit, .. } = *datagrams;
        Self { from, from_port, to, traffic_class, hop_limit, bytes }
    }

    /// Returns the packet in the form in which it arrived.
    pub fn datagrams(&self) -> Datagrams<'_> {
        let Self { from, from_port, to, traffic_class, hop_limit, .. } = *self;
        let (bytes, segment_size) = (&*self.bytes, self.bytes.len());
        Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit }
    }
}

/// The result of sending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The network accepted the run, but may still lose packets.
    Sent,
    /// The system did not accept the run. The run counts as lost, and the protocol retransmits it.
    Dropped,
}

/// The sending half of a port.
pub trait Transmit: Sync {
    /// Sends one run. Must not block for longer than a few milliseconds.
    fn transmit(&self, run: &Run<'_>) -> SendOutcome;

    /// Calls `send` if the runs of a path stay in the memory of this host, and returns whether it
    /// did. `peer_slot` is the [slot](crate::qpn::peer_slot) of the receiving process.
    ///
    /// The port may hold a lock meanwhile. So `send` does not use the port otherwise. It may take
    /// locks of queue pairs and completion queues. A thread that calls any function of a port holds
    /// none of those.
    fn with_memory(
        &self,
        from: &IpAddr,
        to: &IpAddr,
        peer_slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        let _ = (from, to, peer_slot, send);
        false
    }

    /// Returns whether unread data fills half of a receiver's buffer. This is known only for
    /// process `peer_slot` on the same address.
    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        let _ = (to, peer_slot);
        false
    }

    /// Returns the number of packets that a run may currently have. A port that cannot send several
    /// packets in one call returns 1 and drops longer runs.
    fn max_run_segments(&self) -> usize {
        MAX_RUN_SEGMENTS
    }
}

/// Sends the runs of one path that stay in the memory of this host. No wire can damage them, so
/// their packets have four zeros in place of the ICRC.
pub trait SendInMemory<'m> {
    /// Returns room for the packets of the next run, in memory that the receiver reads. Returns
    /// `None` if a run must be built elsewhere, and then copied by
    /// [`transmit`](Self::transmit). Room for a run has [`MAX_RUN_BYTES`] bytes.
    fn room(&mut self) -> Option<&'m [AtomicU8]> {
        None
    }

    /// Sends the run that was built in the [room](Self::room) returned last.
    fn transmit_room(&mut self, run: &Run<'_, AtomicU8>) -> SendOutcome {
        let _ = run;
        SendOutcome::Dropped
    }

    /// Sends a run that was built in private memory. The run is dropped if the path has left the
    /// memory.
    fn transmit(&mut self, run: &Run<'_>) -> SendOutcome;

    /// Returns whether unread data fills half of the receiver's buffer.
    fn is_receiver_congested(&mut self) -> bool;
}

/// Packets that arrived together from one peer: one UDP datagram, or several that the system merged
/// (GRO). All have the length [`segment_size`](Self::segment_size), except a shorter last one.
///
/// The type of a byte is `AtomicU8` in memory that another process can change.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'a, T = u8> {
    /// The source address.
    pub from: IpAddr,
    /// The UDP source port, which the ICRC covers. The port does not identify a peer, because
    /// senders vary it for routing.
    pub from_port: u16,
    /// The destination address: one of the device's own, or a multicast group.
    pub to: IpAddr,
    /// The packets, one after the other.
    pub bytes: &'a [T],
    /// Length of every packet except the last, in bytes.
    pub segment_size: usize,
    /// The IP header's type of service or traffic class (its low two bits are ECN).
    pub traffic_class: u8,
    /// The IP header's time to live or hop limit, or 0 if the port does not learn it.
    pub hop_limit: u8,
}

impl<'a, T> Datagrams<'a, T> {
    /// Returns the packets in order.
    #[inline]
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        self.bytes.chunks(self.segment_size.max(1))
    }

    /// Returns the packet with index `nr`, or an empty slice after the last.
    #[must_use]
    #[inline]
    pub fn segment(&self, nr: usize) -> &'a [T] {
        let size = self.segment_size.max(1);
        let rest = self.bytes.get(nr.saturating_mul(size)..).unwrap_or_default();
        &rest[..rest.len().min(size)]
    }

    /// Returns datagrams with the same addresses and IP fields, and with other packets.
    #[must_use]
    pub fn with_bytes<'b, U>(&self, bytes: &'b [U], segment_size: usize) -> Datagrams<'b, U> {
        let Self { from, from_port, to, traffic_class, hop_limit, .. } = *self;
        Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit }
    }
}

/// An observer of the packets that pass a port, for example a capture.
pub trait PacketTap: std::fmt::Debug + Send + Sync {
    /// Observes a run that is about to be sent at `wall_ns`, nanoseconds since 1970.
    fn sent(&self, wall_ns: u64, run: &Run<'_>);

    /// Observes packets that arrived at `wall_ns`, nanoseconds since 1970.
    fn received(&self, wall_ns: u64, datagrams: &Datagrams<'_>);
}
