//! The counters of a UDP port.

use super::{PathError, PathErrorReason};
use urxe_types::sync::atomic::{AtomicU64, Ordering};

/// One counter. Relaxed, because no other memory is ordered by it.
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

        /// The counters of a UDP port at one moment. All but the last count from its opening.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct UdpCounters {
            $($(#[$doc])+ pub $name: u64,)+
            /// Datagrams that the kernel dropped at the socket, most often because the receive
            /// buffer was full. A merged datagram counts once. `None` before kernel 4.12. Wraps at
            /// 2^32.
            pub socket_dropped: Option<u32>,
        }

        impl Counters {
            pub(super) fn read(&self, socket_dropped: Option<u32>) -> UdpCounters {
                UdpCounters { $($name: self.$name.read(),)+ socket_dropped }
            }
        }

        impl UdpCounters {
            /// Returns the counters with their names in a fixed order, without the kernel's.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Runs given to the network, or to a device of this host without a socket.
    sent_runs,
    /// Packets in these runs.
    sent_packets,
    /// Of these, packets given to a device of the same process without a socket.
    sent_directly,
    /// Of these, packets given to another process through shared memory.
    sent_in_memory,
    /// Runs dropped because the memory that another process shares stayed full.
    memory_full,
    /// Datagrams received; a merged datagram counts once.
    received_datagrams,
    /// Packets in these datagrams.
    received_packets,
    /// Bytes in these datagrams.
    received_bytes,
    /// Received datagrams dropped because they were truncated, had no IP source address or had an
    /// impossible segment size.
    received_malformed,
    /// Received datagrams dropped because they were empty.
    received_empty,
    /// Times that a send waited for room in the send buffer.
    send_waits,
    /// Runs dropped because the send buffer stayed full.
    send_buffer_full,
    /// Runs dropped because a packet does not fit the path's MTU.
    send_too_big,
    /// Runs dropped because the system has no route to the peer.
    send_unreachable,
    /// Runs dropped for another reason of the system (a firewall, a full device queue).
    send_failed,
    /// Times that the network device refused GSO.
    gso_refused,
    /// Runs dropped because they were empty, over the limits of a run, or too long without GSO.
    sent_over_limit,
    /// Runs dropped because their source address or UDP port is not this port's.
    sent_wrong_source,
    /// Runs dropped because the peer's address is of the other IP version.
    sent_wrong_family,
    /// ICMP messages: the peer has no socket on port 4791.
    icmp_port_unreachable,
    /// ICMP messages: the peer's host or network is unreachable, or a firewall forbids it.
    icmp_host_unreachable,
    /// ICMP messages and errors of this system: a packet does not fit the path's MTU.
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
