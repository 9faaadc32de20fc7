//! Decides which bytes become a packet, by shape and ICRC.
//!
//! ```text
//!   comes in                     is decided                       goes out
//!   ---------------------------  -------------------------------  -------------------------
//!   a datagram (a segment)       whether it parses                a PacketView, or a counter
//!   its ICRC and its position    the IPv4 identification, if      the identification, or a
//!                                any, that yields this ICRC       counter
//! ```
//!
//! A UDP socket does not show the IPv4 identification, which the ICRC covers. Senders of this stack
//! use the position of the packet in its run as the identification. IPv6 has no identification.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use urxe_memory::copy_shared;
use urxe_wire::packet::MAX_HEADERS_LEN;
use urxe_wire::{IcrcSeed, IcrcSolver, IcrcVerdict, PacketView, ParseError, ROCE_PORT};

use super::Device;
use super::counters::Counter;
use urxe_types::port::Datagrams;

/// The most packets of a run on any port. The identification of a packet from this stack is its
/// position in the run, and therefore below this number.
pub(super) const MAX_SEGMENTS: u16 = 128;

/// The check of received ICRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IcrcPolicy {
    /// Only the identifications that senders of this stack use pass. The kernel's `rdma_rxe` uses
    /// others.
    Strict,
    /// A packet passes if some identification yields its ICRC. A damaged packet passes with a
    /// chance of 2^-16.
    #[default]
    Solve,
    /// The ICRC is not checked.
    Off,
}

/// The state that checks of ICRCs keep from one datagram to the next.
#[derive(Debug, Default)]
pub(super) struct IcrcCheck {
    /// Finds identifications. Caches constants by packet length.
    solver: IcrcSolver,
    /// The flow of the previous datagrams, and the seed of the ICRCs of its packets.
    seed: Option<(FlowKey, IcrcSeed)>,
    /// Packets whose ICRC is right for their position and that are not counted yet, because threads
    /// share the counter.
    pub exact: u64,
}

/// The address and port from which datagrams came, and their destination address.
type FlowKey = (IpAddr, u16, IpAddr);

impl IcrcCheck {
    /// Returns the seed of the ICRCs of `datagrams`, which are most often of the same flow as the
    /// datagrams before. `None` if the IP versions differ.
    pub fn seed<T>(&mut self, datagrams: &Datagrams<'_, T>) -> Option<IcrcSeed> {
        let flow = (datagrams.from, datagrams.from_port, datagrams.to);
        if let Some((of, seed)) = self.seed
            && of == flow
        {
            return Some(seed);
        }
        let seed = IcrcSeed::new(flow.0, flow.1, flow.2, ROCE_PORT)?;
        self.seed = Some((flow, seed));
        Some(seed)
    }
}

/// Room for a copy of the headers of a packet.
pub(super) type Headers = [u8; MAX_HEADERS_LEN];

/// A byte of received packets.
pub(super) trait Octet: Sized {
    /// Checks the shape of a packet. `headers` has room for a copy of its headers.
    ///
    /// # Errors
    /// As [`PacketView::parse`].
    fn parse<'p>(
        packet: &'p [Self],
        headers: &'p mut Headers,
    ) -> Result<PacketView<'p>, ParseError>;

    /// Returns the first byte of a packet, which names its opcode. Another process may change it
    /// before [`parse`](Self::parse) reads it.
    fn first(packet: &[Self]) -> Option<u8>;
}

/// A byte of this process.
impl Octet for u8 {
    #[inline(always)]
    fn parse<'p>(packet: &'p [u8], _: &'p mut Headers) -> Result<PacketView<'p>, ParseError> {
        PacketView::parse(packet)
    }

    fn first(packet: &[u8]) -> Option<u8> {
        packet.first().copied()
    }
}

/// A byte that another process can change.
impl Octet for AtomicU8 {
    #[inline(always)]
    fn parse<'p>(
        packet: &'p [AtomicU8],
        headers: &'p mut Headers,
    ) -> Result<PacketView<'p>, ParseError> {
        let copied = packet.len().min(MAX_HEADERS_LEN);
        let headers = &mut headers[..copied];
        copy_shared(&packet[..copied], headers);
        PacketView::parse_shared(headers, packet)
    }

    fn first(packet: &[AtomicU8]) -> Option<u8> {
        packet.first().map(|byte| byte.load(Ordering::Relaxed))
    }
}

impl Device {
    /// Checks shape and ICRC of the packet at position `segment` of its [`Datagrams`]. Returns the
    /// packet with the IPv4 identification that its ICRC was made for, or with the one that senders
    /// of this stack use if the ICRC is not checked.
    ///
    /// `headers` has room for a copy of the headers, if another process can change the bytes.
    pub(super) fn accept<'p, T: Octet>(
        &self,
        seed: &IcrcSeed,
        check: &mut IcrcCheck,
        policy: IcrcPolicy,
        (bytes, segment): (&'p [T], usize),
        headers: &'p mut Headers,
    ) -> Option<(PacketView<'p>, u16)> {
        let packet = match T::parse(bytes, headers) {
            Ok(packet) => packet,
            Err(reason) => {
                tracing::debug!(%reason, "dropped: malformed packet");
                self.counters.add(Counter::DropMalformed);
                return None;
            }
        };
        if policy == IcrcPolicy::Off {
            return Some((packet, segment as u16));
        }
        let verdict = seed.verify(&mut check.solver, packet.bytes(), segment as u16);
        let identification = match (verdict, policy) {
            (IcrcVerdict::Exact { identification }, _) => {
                check.exact += 1;
                identification
            }
            // A packet of a run whose neighbours were lost, late, or not merged with it.
            (IcrcVerdict::Solved { identification }, IcrcPolicy::Strict)
                if identification < MAX_SEGMENTS =>
            {
                self.counters.add(Counter::IcrcSolved);
                identification
            }
            (IcrcVerdict::Solved { identification }, IcrcPolicy::Solve) => {
                self.counters.add(Counter::IcrcSolved);
                identification
            }
            _ => {
                tracing::debug!(qp = %packet.dest_qp(), psn = %packet.psn(), "dropped: wrong ICRC");
                self.counters.add(Counter::DropIcrc);
                return None;
            }
        };
        Some((packet, identification))
    }
}
