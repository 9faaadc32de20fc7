//! The settings of links and nodes.

use urxe_types::rng::Probability;
use urxe_types::time::Time;

/// A node of a [`SimNetwork`](crate::SimNetwork). Nodes are numbered in the order of their
/// creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// Returns the index of the node. The first node has index 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// One microsecond in nanoseconds.
const MICROSECOND_NS: u64 = 1_000;

/// The behaviour of one direction between two nodes. By default each packet of up to 9,000 bytes
/// arrives once, in order, after 10 µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFaults {
    /// The probability that a packet is lost.
    pub loss: Probability,
    /// The maximum number of packets in a burst of losses. The number is drawn from 1 to this
    /// value. With 1 losses are independent; 0 counts as 1.
    pub loss_burst_max: u32,
    /// The probability that a packet arrives twice.
    pub duplicate: Probability,
    /// The probability that a packet is reordered: it takes up to
    /// [`reorder_delay_ns`](Self::reorder_delay_ns) longer, and later packets overtake it.
    pub reorder: Probability,
    /// The maximum additional delay of a reordered packet, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// The probability that an ECN-capable packet is marked, as by a congested router.
    pub mark: Probability,
    /// The probability that bits of a packet flip. The simulation has no UDP checksum, so only the
    /// ICRC detects this.
    pub corrupt: Probability,
    /// The maximum number of flipped bits in a corrupted packet; 0 counts as 1.
    pub corrupt_bits_max: u32,
    /// The probability that from a packet on, the link gives all packets another UDP source port,
    /// as a router that translates addresses does when it forgets a flow. The ICRC follows the
    /// port, because it covers the port.
    pub rebind: Probability,
    /// The delay of every packet, in nanoseconds.
    pub delay_ns: u64,
    /// The maximum random addition to the delay, in nanoseconds. Packets stay in order.
    pub jitter_ns: u64,
    /// The size of the largest IP packet in bytes, with the headers of IP and UDP. The network
    /// refuses larger packets, as a socket with DF does.
    pub mtu: usize,
    /// The rate in bits per second, with the Ethernet framing. `None` or 0 means no limit.
    pub bandwidth_bps: Option<u64>,
    /// The size in bytes of the queue of a link with limited rate. Packets that exceed the queue
    /// are lost.
    pub queue_bytes: u64,
    /// The queue length in bytes above which ECN-capable packets are marked.
    pub mark_above_bytes: u64,
}

impl Default for LinkFaults {
    fn default() -> Self {
        Self {
            loss: Probability::NEVER,
            loss_burst_max: 1,
            duplicate: Probability::NEVER,
            reorder: Probability::NEVER,
            reorder_delay_ns: 100 * MICROSECOND_NS,
            mark: Probability::NEVER,
            corrupt: Probability::NEVER,
            corrupt_bits_max: 3,
            rebind: Probability::NEVER,
            delay_ns: 10 * MICROSECOND_NS,
            jitter_ns: 0,
            mtu: 9_000,
            bandwidth_bps: None,
            queue_bytes: 1 << 20,
            mark_above_bytes: u64::MAX,
        }
    }
}

impl LinkFaults {
    /// Returns the link without faults. Delay, jitter, MTU and rate stay.
    #[must_use]
    pub fn healed(&self) -> Self {
        Self {
            loss: Probability::NEVER,
            duplicate: Probability::NEVER,
            reorder: Probability::NEVER,
            mark: Probability::NEVER,
            corrupt: Probability::NEVER,
            rebind: Probability::NEVER,
            ..self.clone()
        }
    }
}

/// The behaviour of the receiving socket of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The size of the receive buffer in bytes. Packets that exceed the buffer are dropped. Packets
    /// are charged as in Linux: a packet of 4 KiB takes 8.3 KiB. Linux grants 425,984 bytes by
    /// default (`rmem_default`, doubled).
    pub receive_buffer_bytes: usize,
    /// The time in nanoseconds from the first arrival to the read of the program, which also reads
    /// the packets that arrive meanwhile.
    pub read_delay_ns: u64,
    /// The probability that a packet is merged with the packet before it, if GRO can merge the two:
    /// they have the same sender, and the same size or a shorter last packet.
    /// [`Probability::NEVER`] means no GRO.
    pub merge: Probability,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { receive_buffer_bytes: 8 << 20, read_delay_ns: 0, merge: Probability::NEVER }
    }
}

/// The node or link that a [`Pause`] stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// One node. With [`PausedPackets::Hold`], the node does not run, like a stopped process. Its
    /// socket receives until the buffer is full. With [`PausedPackets::Drop`], the node runs, but
    /// no packet reaches or leaves it, as with an unplugged cable.
    Node(NodeId),
    /// One direction between two nodes.
    Link {
        /// The sending node.
        from: NodeId,
        /// The receiving node.
        to: NodeId,
    },
}

/// The fate of packets in a [`Pause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PausedPackets {
    /// The packets wait until the pause ends.
    Hold,
    /// The packets are lost, including packets in flight.
    Drop,
}

/// A period in which a node or link is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The stopped node or link.
    pub scope: PauseScope,
    /// The fate of the packets.
    pub packets: PausedPackets,
    /// The start of the pause.
    pub from: Time,
    /// The end of the pause, which does not belong to the pause.
    pub until: Time,
}

impl Pause {
    /// Returns whether the pause covers the time `now`.
    #[must_use]
    pub fn covers(&self, now: Time) -> bool {
        self.from <= now && now < self.until
    }
}
