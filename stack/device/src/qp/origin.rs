//! The UDP source port of the peer.
//!
//! Anyone who knows the address of a peer and the number of a queue pair can send a packet that
//! claims to come from that peer. The PSN of the packet shows whether its sender follows the
//! connection. The source port shows the same for the price of one comparison, so the queue pair
//! learns the port from packets whose PSN is right.
//!
//! | PSN ([`PsnMatch`]) | from the learned port, or before the first | from another port |
//! |---|---|---|
//! | the expected one | handled, port learned | handled, port learned |
//! | of a recent packet | handled | handled |
//! | ahead | handled | dropped |
//! | implausible | acknowledged again or dropped | dropped |
//!
//! A peer behind a router that changes ports, or a peer that opens another socket, goes on at once:
//! its next packet in order comes with the expected PSN. If that packet is lost, the packets behind
//! it are dropped without a NAK, and the peer retransmits after its timeout.
//!
//! Unreliable connections have no such check, because they may lose any packet and go on with the
//! next message. They expect each packet, whatever its port. Datagrams have many senders.
//!
//! IBTA vol. 1, annex A17 leaves the choice of the source port to the sender.

use urxe_types::counters::Counter;
use urxe_wire::PacketView;

use super::context::QpContext;

/// How far behind the expected PSN a request counts as recent. A peer retransmits at most the
/// packets of its window.
pub(super) const RECENT: i32 = 1 << 10;
/// How far ahead of the expected PSN a request is plausible: 64 MiB of packets of 1 KiB.
pub(super) const AHEAD: i32 = 1 << 16;

/// The relation of a packet's PSN to the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PsnMatch {
    /// The next request, or a response to a request that waits for one.
    Expected,
    /// A request that was handled before, at most [`RECENT`] packets ago.
    Recent,
    /// A request at most [`AHEAD`] packets behind the next one.
    Ahead,
    /// Any other PSN.
    Implausible,
}

impl PsnMatch {
    /// Returns the relation of a request, whose PSN is `distance` packets behind the expected one.
    pub fn of_request(distance: i32) -> Self {
        match distance {
            0 => Self::Expected,
            1..=AHEAD => Self::Ahead,
            ..0 if distance >= -RECENT => Self::Recent,
            _ => Self::Implausible,
        }
    }
}

/// The source port of the peer's packets, or `None` before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin(Option<u16>);

impl Origin {
    /// Returns whether `port` is the learned port.
    #[inline(always)] // for each packet
    pub fn is(self, port: u16) -> bool {
        self.0 == Some(port)
    }

    /// Returns whether a packet from a port that is not learned is handled. Learns the port if the
    /// PSN is the expected one. Counts and logs a packet that is dropped.
    #[cold]
    pub fn admits(&mut self, psn: PsnMatch, packet: &PacketView<'_>, cx: &QpContext<'_>) -> bool {
        let port = cx.from_port;
        match psn {
            PsnMatch::Expected => {
                if let Some(before) = self.0.replace(port) {
                    tracing::debug!(qp = %packet.dest_qp(), before, port, "source port changed");
                    cx.device.counters.add(Counter::SourcePortChanged);
                }
                true
            }
            PsnMatch::Recent => true,
            _ if self.0.is_none() || !cx.device.port_check => true,
            PsnMatch::Ahead | PsnMatch::Implausible => {
                tracing::debug!(
                    qp = %packet.dest_qp(), psn = %packet.psn(), port, peer_port = ?self.0,
                    "dropped: another source port, and not the expected PSN"
                );
                cx.device.counters.add(Counter::DropUnknownPort);
                false
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_near_psns_are_plausible() {
        let cases = [
            (0, PsnMatch::Expected),
            (-1, PsnMatch::Recent),
            (-1024, PsnMatch::Recent),
            (-1025, PsnMatch::Implausible),
            (1, PsnMatch::Ahead),
            (65_536, PsnMatch::Ahead),
            (65_537, PsnMatch::Implausible),
            (-(1 << 23), PsnMatch::Implausible),
        ];
        for (distance, expected) in cases {
            assert_eq!(PsnMatch::of_request(distance), expected, "{distance}");
        }
    }
}
