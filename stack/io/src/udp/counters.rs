//! What has happened on a UDP port.

use super::{PathError, PathErrorReason};
use urxe_types::sync::atomic::{AtomicU64, Ordering};

/// One counter. Relaxed: a number for people, nothing is ordered by it.
#[derive(Debug)]
pub(super) struct Count(AtomicU64);

impl Default for Count {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// The port's own counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Count,)+
        }

        /// The counters of a UDP port at one moment; all but the last count from its opening.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct UdpCounters {
            $($(#[$doc])+ pub $name: u64,)+
            /// Datagrams that the kernel dropped at the socket, most often because the receive
            /// buffer was full; a merged datagram counts once. `None` where the kernel does not
            /// tell (before 4.12). Wraps at 2^32.
            pub socket_dropped: Option<u32>,
        }

        impl Counters {
            pub(super) fn read(&self, socket_dropped: Option<u32>) -> UdpCounters {
                UdpCounters { $($name: self.$name.read(),)+ socket_dropped }
            }
        }

        impl UdpCounters {
            /// The counters by name, in a fixed order, without the kernel's.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Runs handed to the network, or to a device of the same process.
    sent_runs,
    /// Packets in them.
    sent_packets,
    /// Of these, packets handed to a device of the same process, over no socket.
    sent_directly,
    /// Datagrams received; several merged ones count once.
    received_datagrams,
    /// Packets in them.
    received_packets,
    /// Bytes in them.
    received_bytes,
    /// Received datagrams dropped since the kernel cut them off, told no IP address or gave an
    /// impossible segment size.
    received_malformed,
    /// Received datagrams dropped since they were empty.
    received_empty,
    /// Times a send had to wait for room in the send buffer.
    send_waits,
    /// Runs dropped since the wait was in vain.
    send_buffer_full,
    /// Runs dropped since a packet does not fit the path's MTU.
    send_too_big,
    /// Runs dropped since the system knows no way to the peer.
    send_unreachable,
    /// Runs dropped for another reason of the system's (a firewall, a full device queue).
    send_failed,
    /// Times the network device refused GSO.
    gso_refused,
    /// Runs dropped since they were empty, beyond the limits of a run, or too long to be sent
    /// without GSO.
    sent_over_limit,
    /// Runs dropped since they are to come from another address or UDP port than this port's.
    sent_wrong_source,
    /// Runs dropped since the peer's address is of the other IP version.
    sent_wrong_family,
    /// ICMP messages: the peer has no socket on port 4791.
    icmp_port_unreachable,
    /// ICMP messages: the peer's host or network is out of reach, or a firewall forbids it.
    icmp_host_unreachable,
    /// ICMP messages, and the system's own: a packet does not fit the path's MTU.
    icmp_too_big,
    /// ICMP messages of other kinds.
    icmp_other,
}

impl Counters {
    pub(super) fn count_path_error(&self, error: &PathError) {
        let count = match error.reason {
            PathErrorReason::PortUnreachable => &self.icmp_port_unreachable,
            PathErrorReason::NetworkUnreachable
            | PathErrorReason::HostUnreachable
            | PathErrorReason::Prohibited => &self.icmp_host_unreachable,
            PathErrorReason::TooBig { .. } => &self.icmp_too_big,
            PathErrorReason::ProtocolUnreachable
            | PathErrorReason::TimeExceeded
            | PathErrorReason::Other { .. } => &self.icmp_other,
        };
        count.add(1);
    }
}
