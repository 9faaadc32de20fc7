//! What can go wrong, and how often: the settings of links and nodes.

use urxe_types::rng::Probability;
use urxe_types::time::Time;

/// A node of a [`SimNetwork`](crate::SimNetwork), in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// 0 for the node that was added first, and so on.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// One microsecond in nanoseconds.
const MICROSECOND_NS: u64 = 1_000;

/// The behaviour of one direction between two nodes. The default is a good link: every packet once,
/// in order, after 10 µs, IP packets up to 9,000 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFaults {
    /// A packet disappears.
    pub loss: Probability,
    /// A loss takes the following packets with it: so many in all, drawn from 1 to this. 1 = losses
    /// are independent; 0 counts as 1.
    pub loss_burst_max: u32,
    /// A packet arrives twice.
    pub duplicate: Probability,
    /// A packet is overtaken by those behind it: it takes up to
    /// [`reorder_delay_ns`](Self::reorder_delay_ns) longer.
    pub reorder: Probability,
    /// The most that a reordered packet is late, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// A packet whose sender heeds marks (ECN) is marked, as by a router whose queue grows. The
    /// others stay as they are.
    pub mark: Probability,
    /// Bits of a packet flip. The UDP checksum does not save it here, so the ICRC must.
    pub corrupt: Probability,
    /// The most bits that flip in a corrupted packet; 0 counts as 1.
    pub corrupt_bits_max: u32,
    /// The time every packet takes, in nanoseconds.
    pub delay_ns: u64,
    /// What is added to the delay, from 0 to this, in nanoseconds. Packets keep their order.
    pub jitter_ns: u64,
    /// The largest IP packet, in bytes (headers of IP and UDP included). Larger ones are refused to
    /// the sender, as by a socket that sets DF.
    pub mtu: usize,
    /// The rate in bits a second, Ethernet framing included; `None` or 0 = without limit.
    pub bandwidth_bps: Option<u64>,
    /// How many bytes may wait for a link of limited rate; packets beyond are lost.
    pub queue_bytes: u64,
    /// When more bytes than this wait, packets whose sender heeds marks (ECN) are marked.
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
    /// The same link without its faults: delay, jitter, MTU and rate stay.
    #[must_use]
    pub fn healed(&self) -> Self {
        Self {
            loss: Probability::NEVER,
            duplicate: Probability::NEVER,
            reorder: Probability::NEVER,
            mark: Probability::NEVER,
            corrupt: Probability::NEVER,
            ..self.clone()
        }
    }
}

/// The behaviour of one node's receiving socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Receive buffer in bytes; packets beyond it are dropped. Packets are charged as Linux charges
    /// them: a single 4 KiB packet takes 8.3 KiB. 425,984 is what Linux grants by default
    /// (`rmem_default`, doubled).
    pub receive_buffer_bytes: usize,
    /// How long after the first arrival the program reads, in nanoseconds; what arrives meanwhile
    /// is read with it.
    pub read_delay_ns: u64,
    /// How often a packet is merged to the one before it where GRO would: same sender, same size or
    /// a shorter last. [`Probability::NEVER`] = no GRO.
    pub merge: Probability,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { receive_buffer_bytes: 8 << 20, read_delay_ns: 0, merge: Probability::NEVER }
    }
}

/// What a [`Pause`] stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// One node. Held: it does not run, as a stopped process; its socket goes on receiving until
    /// the buffer is full. Dropped: it runs, but nothing reaches or leaves it, as with the cable
    /// out.
    Node(NodeId),
    /// One direction between two nodes.
    Link {
        /// The sending node.
        from: NodeId,
        /// The receiving node.
        to: NodeId,
    },
}

/// What becomes of packets in a [`Pause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausedPackets {
    /// They wait until it ends.
    Hold,
    /// They are lost, those on the way included.
    Drop,
}

/// A stop of a node or a link from one time up to, not including, another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// What stops.
    pub scope: PauseScope,
    /// What becomes of the packets.
    pub packets: PausedPackets,
    /// First instant of the pause.
    pub from: Time,
    /// First instant after it.
    pub until: Time,
}

impl Pause {
    /// Whether `now` lies in the pause.
    #[must_use]
    pub fn covers(&self, now: Time) -> bool {
        self.from <= now && now < self.until
    }
}
