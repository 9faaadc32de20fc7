//! Errors of packets sent earlier: ICMP messages (RFC 792, RFC 4443) and the path's MTU.

use std::fmt;
use std::net::IpAddr;

use crate::sys::message::QueuedError;
use urxe_types::sync::atomic::{AtomicU64, Ordering};
use urxe_types::time::Time;

/// An error of a packet to `peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathError {
    /// The destination of the packet.
    pub peer: IpAddr,
    /// The host that reported the error; `None` for this host.
    pub reporter: Option<IpAddr>,
    /// The reason.
    pub reason: PathErrorReason,
}

/// The reason of a path error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathErrorReason {
    /// The peer has no socket on port 4791.
    PortUnreachable,
    /// There is no route to the peer's network.
    NetworkUnreachable,
    /// The peer does not respond on its network.
    HostUnreachable,
    /// A firewall or policy forbids the packet.
    Prohibited,
    /// The peer does not support UDP.
    ProtocolUnreachable,
    /// The packet does not fit the path.
    TooBig {
        /// The largest IP packet that fits, in bytes; 0 if the reporter did not say.
        mtu: u32,
    },
    /// The hop limit was exceeded: a routing loop.
    TimeExceeded,
    /// Another ICMP message, or an error of this system.
    Other {
        /// The ICMP type.
        icmp_type: u8,
        /// The ICMP code.
        icmp_code: u8,
    },
}

impl PathError {
    /// Translates an entry of the error queue.
    pub(super) fn from_queued(error: &QueuedError) -> Self {
        let remote = matches!(error.origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
        Self {
            peer: error.to,
            reporter: if remote { error.offender } else { None },
            reason: match error.origin {
                libc::SO_EE_ORIGIN_ICMP => icmp_v4_reason(error),
                libc::SO_EE_ORIGIN_ICMP6 => icmp_v6_reason(error),
                _ => local_reason(error),
            },
        }
    }
}

/// Translates an ICMP message (RFC 792, RFC 1122 3.2.2.1, RFC 1191).
fn icmp_v4_reason(error: &QueuedError) -> PathErrorReason {
    let QueuedError { icmp_type, icmp_code, info, .. } = *error;
    match (icmp_type, icmp_code) {
        (3, 0 | 6 | 11) => PathErrorReason::NetworkUnreachable,
        (3, 1 | 7 | 8 | 12) => PathErrorReason::HostUnreachable,
        (3, 2) => PathErrorReason::ProtocolUnreachable,
        (3, 3) => PathErrorReason::PortUnreachable,
        (3, 4) => PathErrorReason::TooBig { mtu: info },
        (3, 9 | 10 | 13) => PathErrorReason::Prohibited,
        (11, 0) => PathErrorReason::TimeExceeded,
        _ => PathErrorReason::Other { icmp_type, icmp_code },
    }
}

/// Translates an ICMPv6 message (RFC 4443 3.1 to 3.4).
fn icmp_v6_reason(error: &QueuedError) -> PathErrorReason {
    let QueuedError { icmp_type, icmp_code, info, .. } = *error;
    match (icmp_type, icmp_code) {
        (1, 0) => PathErrorReason::NetworkUnreachable,
        (1, 1 | 5 | 6) => PathErrorReason::Prohibited,
        (1, 2 | 3) => PathErrorReason::HostUnreachable,
        (1, 4) => PathErrorReason::PortUnreachable,
        (2, _) => PathErrorReason::TooBig { mtu: info },
        (3, 0) => PathErrorReason::TimeExceeded,
        (4, 1) => PathErrorReason::ProtocolUnreachable,
        _ => PathErrorReason::Other { icmp_type, icmp_code },
    }
}

/// Translates an error that this system found before the packet left.
fn local_reason(error: &QueuedError) -> PathErrorReason {
    use rustix::io::Errno;
    match error.errno {
        Errno::MSGSIZE => PathErrorReason::TooBig { mtu: error.info },
        Errno::NETUNREACH => PathErrorReason::NetworkUnreachable,
        Errno::HOSTUNREACH => PathErrorReason::HostUnreachable,
        Errno::ACCESS | Errno::PERM => PathErrorReason::Prohibited,
        _ => PathErrorReason::Other { icmp_type: error.icmp_type, icmp_code: error.icmp_code },
    }
}

impl PathErrorReason {
    /// Returns the name of the ICMP message (RFC 792, RFC 1812 5.2.7.1).
    const fn icmp_name(self) -> &'static str {
        match self {
            Self::PortUnreachable => "port unreachable",
            Self::NetworkUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::Prohibited => "administratively prohibited",
            Self::ProtocolUnreachable => "protocol unreachable",
            Self::TooBig { .. } => "packet too big",
            Self::TimeExceeded => "time exceeded",
            Self::Other { .. } => "another message",
        }
    }
}

impl std::error::Error for PathError {}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PathErrorReason as Reason;
        let peer = self.peer;
        match self.reason {
            Reason::PortUnreachable => write!(f, "no process listens on UDP port 4791 of {peer}"),
            Reason::NetworkUnreachable => write!(f, "no route to the network of {peer}"),
            Reason::HostUnreachable => write!(f, "{peer} cannot be reached"),
            Reason::Prohibited => write!(f, "a firewall forbids packets to {peer}"),
            Reason::ProtocolUnreachable => write!(f, "{peer} does not speak UDP"),
            Reason::TooBig { mtu: 0 } => write!(f, "a packet to {peer} is too big for the path"),
            Reason::TooBig { mtu } => write!(
                f,
                "a packet to {peer} exceeds the path's MTU of {mtu} bytes: use a smaller path MTU"
            ),
            Reason::TimeExceeded => write!(f, "a packet to {peer} ran out of hops"),
            Reason::Other { icmp_type, icmp_code } => {
                write!(f, "a packet to {peer} failed with ICMP type {icmp_type} code {icmp_code}")
            }
        }?;
        let name = self.reason.icmp_name();
        match self.reporter {
            Some(reporter) if reporter != peer => write!(f, " (ICMP of {reporter}: {name})"),
            Some(_) => write!(f, " (ICMP: {name})"),
            None => Ok(()),
        }
    }
}

/// Allows one message a second, so a broken path does not flood the log.
#[derive(Debug)]
pub(super) struct LogLimit {
    /// The time of the next allowed message in nanoseconds.
    next_ns: AtomicU64,
    /// Messages suppressed since the last allowed one.
    suppressed: AtomicU64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { next_ns: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }
}

impl LogLimit {
    /// Nanoseconds between two messages.
    const INTERVAL_NS: u64 = 1_000_000_000;

    /// Returns the number of suppressed messages, if a message is allowed now.
    pub(super) fn pass(&self, now: Time) -> Option<u64> {
        let next = self.next_ns.load(Ordering::Relaxed);
        let after = now.plus_ns(Self::INTERVAL_NS).as_ns();
        let swap = || {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            self.next_ns.compare_exchange(next, after, success, failure).is_ok()
        };
        if now.as_ns() >= next && swap() {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests;
