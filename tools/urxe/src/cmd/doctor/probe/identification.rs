//! Compares the IPv4 identification on the wire with the one that ICRCs are computed for.
//!
//! The ICRC covers the identification, which a UDP socket can neither set nor read. For a single
//! datagram of an unconnected socket with path-MTU discovery, Linux sends 0 with DF. For the
//! segments of a GSO send, Linux sends the index. Only a packet socket shows the identification,
//! and it requires CAP_NET_RAW.
//!
//! Loopback accepts GSO sends unsegmented, which hides the identifications of the segments. A send
//! that fills 64 KiB with its headers exceeds loopback's limit. The kernel segments it before
//! loopback (measured), so the packet socket sees the segments.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{SendFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};
use urxe_stack::port::udp::UdpPort;
use urxe_wire::ROCE_PORT;

use super::{ARRIVAL_TIMEOUT, Name, Probe, marked, send, wait_readable};

pub(super) const NAME: Name = Name("IPv4 identification and DF");

/// Bytes of a GSO send that the kernel segments before loopback: the largest UDP payload.
const CUT_UP_BYTES: usize = 65_507;
const CUT_UP_SEGMENT: usize = 4116;

/// The fields of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    identification: u16,
    dont_fragment: bool,
}

pub(super) fn probe(_: Name, a: UdpPort, b: UdpPort) -> Probe {
    let watch = match watch() {
        Ok(watch) => watch,
        Err(error) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            return NAME
                .unverified(
                    format!("no packet socket: {error} (Linux {})", release.trim()),
                    "assumed to be 0 with DF, as on every measured Linux; \
                     otherwise peers count ICRC errors",
                )
                .advise("run `sudo urxe doctor`");
        }
    };
    let single = marked(64, 6);
    send(&a, b.address(), &single, single.len());
    let singles = seen(&watch, &a, &b, 1, Instant::now() + ARRIVAL_TIMEOUT);
    let segments = if a.gso() { cut_up(&watch, &a, &b) } else { Vec::new() };
    verdict(&singles, &segments, a.gso())
}

fn verdict(singles: &[Seen], segments: &[Seen], gso: bool) -> Probe {
    let expected = |(index, seen): (usize, &Seen)| {
        seen.dont_fragment && usize::from(seen.identification) == index
    };
    let list = |seen: &[Seen]| {
        seen.iter()
            .map(|seen| {
                format!(
                    "{}{}",
                    seen.identification,
                    if seen.dont_fragment { "" } else { " without DF" }
                )
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    let peers = "peers drop packets, because their ICRC is for another identification";
    let whole = CUT_UP_BYTES.div_ceil(CUT_UP_SEGMENT);
    if singles.is_empty() {
        return NAME.unverified("the packet socket received no packet", "assumed to be 0 with DF");
    }
    if !singles.iter().enumerate().all(expected) {
        let detail =
            format!("a single packet has the identification {}, not 0 with DF", list(singles));
        return NAME.fails(detail, peers);
    }
    if !gso {
        return NAME
            .works("a single packet has 0 with DF", "the ICRCs of single packets are correct");
    }
    if segments.len() != whole {
        let detail = format!(
            "a single packet has 0 with DF; of a run, {} of {whole} segments arrived",
            segments.len()
        );
        return NAME.unverified(detail, "assumed to be the index for the segments of a run");
    }
    if !segments.iter().enumerate().all(expected) {
        let detail = format!(
            "a single packet has 0 with DF, but the segments of a run have {}",
            list(segments)
        );
        return NAME.limited(detail, peers);
    }
    let detail = format!(
        "a single packet has 0 with DF, the segments of a run have 0 to {} with DF",
        whole - 1
    );
    NAME.works(detail, "the ICRCs of all packets are correct")
}

/// Returns a socket that sees every IPv4 packet of this network namespace, from the IP header on.
fn watch() -> std::io::Result<Socket> {
    const ETHERTYPE_IPV4: u16 = 0x0800;
    let socket = Socket::new(
        Domain::PACKET,
        Type::DGRAM.nonblocking(),
        // The kernel expects network byte order (packet(7)).
        Some(Protocol::from(i32::from(ETHERTYPE_IPV4.to_be()))),
    )?;
    socket.set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}

/// Returns the headers of packets from `a` to `b` that `watch` receives, until `count` packets or
/// the deadline.
fn seen(
    mut watch: &Socket,
    a: &UdpPort,
    b: &UdpPort,
    count: usize,
    deadline: Instant,
) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut head = [0; 64];
    while all.len() < count {
        match watch.read(&mut head) {
            Ok(len) => all.extend(parse(&head[..len], a.address(), b.address())),
            _ if wait_readable(watch.as_fd(), deadline) => {}
            _ => break,
        }
    }
    all
}

/// Returns the IPv4 header's fields (RFC 791, 3.1), if the packet is from `from` to `to`.
fn parse(packet: &[u8], from: IpAddr, to: IpAddr) -> Option<Seen> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let address = |at: usize| {
        header.get(at..at + 4)?.first_chunk().map(|&octets: &[u8; 4]| IpAddr::from(octets))
    };
    if address(12)? != from || address(16)? != to {
        return None;
    }
    Some(Seen {
        identification: u16::from_be_bytes([header[4], header[5]]),
        dont_fragment: header[6] & 0x40 != 0,
    })
}

/// Returns the headers of a GSO send that the kernel segments before loopback.
fn cut_up(watch: &Socket, a: &UdpPort, b: &UdpPort) -> Vec<Seen> {
    let bytes = marked(CUT_UP_BYTES, 7);
    let to = SocketAddr::new(b.address(), ROCE_PORT);
    // The send bypasses the port, because the port limits runs to a smaller size.
    if setsockopt(a, sockopt::UdpGsoSegment, &(CUT_UP_SEGMENT as i32)).is_err()
        || sendto(a, &bytes, SendFlags::empty(), &to).is_err()
    {
        return Vec::new();
    }
    seen(watch, a, b, CUT_UP_BYTES.div_ceil(CUT_UP_SEGMENT), Instant::now() + ARRIVAL_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    fn counted(count: u16) -> Vec<Seen> {
        (0..count).map(|identification| Seen { identification, dont_fragment: true }).collect()
    }

    #[test]
    fn verdicts() {
        let whole = counted(16);
        assert_eq!(verdict(&counted(1), &whole, true).outcome, Outcome::Works);
        assert_eq!(verdict(&counted(1), &[], false).outcome, Outcome::Works);
        assert_eq!(verdict(&[], &whole, true).outcome, Outcome::Unverified);
        assert_eq!(verdict(&counted(1), &counted(1), true).outcome, Outcome::Unverified);
        let other = [Seen { identification: 77, dont_fragment: true }];
        assert_eq!(verdict(&other, &whole, true).outcome, Outcome::Fails);
        let unprotected = [Seen { identification: 0, dont_fragment: false }];
        assert_eq!(verdict(&unprotected, &whole, true).outcome, Outcome::Fails);
        let mut zeros = counted(16);
        zeros.iter_mut().for_each(|seen| seen.identification = 0);
        let probe = verdict(&counted(1), &zeros, true);
        assert_eq!(probe.outcome, Outcome::Limited);
        assert!(probe.detail.contains("have 0, 0, 0"), "{}", probe.detail);
    }

    #[test]
    fn headers() {
        let (from, to) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 3]));
        let mut packet =
            [0x45, 0, 0, 20, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 2, 127, 0, 0, 3];
        assert_eq!(
            parse(&packet, from, to),
            Some(Seen { identification: 0x1234, dont_fragment: true })
        );
        assert_eq!(parse(&packet, to, from), None);
        assert_eq!(parse(&packet[..19], from, to), None);
        packet[6] = 0;
        assert_eq!(
            parse(&packet, from, to),
            Some(Seen { identification: 0x1234, dont_fragment: false })
        );
    }
}
