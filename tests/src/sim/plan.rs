//! A run as plain data, in which every random choice has been made.

use std::fmt;
use std::ops::Range;

use urxe_stack::cq::WcOpcode;
use urxe_stack::port::sim::{LinkFaults, NodeConfig};
use urxe_stack::rng::Rng;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the plan.
    pub seed: u64,
    /// The devices.
    pub devices: Vec<DevicePlan>,
    /// The connections between their queue pairs.
    pub connections: Vec<ConnectionPlan>,
    /// The faults of the network.
    pub faults: FaultPlan,
}

/// One device and the memory of its program.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// The length of the program's memory, in bytes. Bytes outside all regions reveal stray writes.
    pub memory_bytes: usize,
    /// The registered regions. Regions do not overlap and have gaps between them.
    pub regions: Vec<RegionPlan>,
    /// How queue pairs share completion queues.
    pub cqs: CqSharing,
    /// The receiving socket.
    pub socket: NodeConfig,
    /// Whether the device has an IPv6 address.
    pub ipv6: bool,
    /// The number of completions in one poll.
    pub poll_batch: usize,
}

/// How queue pairs share completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqSharing {
    /// One for the device.
    OnePerDevice,
    /// One for each queue pair.
    OnePerQp,
    /// One for each send queue and each receive queue.
    OnePerQueue,
}

/// A registered piece of a device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionPlan {
    /// The range in the device's memory.
    pub range: Range<usize>,
    /// The purpose.
    pub role: Role,
    /// How work requests and peers address the bytes.
    pub naming: Naming,
}

/// How a region's bytes are addressed. Virtual addresses are not used, because they differ from run
/// to run, and with them the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// From 0.
    ZeroBased,
    /// From this page on, with the memory's own offset in the page.
    Page(u64),
}

/// The purpose of a region, which decides the access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data to be sent: no right.
    Source,
    /// Received messages, responses of READs and atomics: local write.
    Destination,
    /// Memory that one peer reads and writes: local write, remote read, remote write, flush.
    Target,
    /// Eight-byte cells for the atomics of one peer: local write, remote atomic.
    Cells,
    /// Cells to which several peers add: local write, remote atomic.
    SharedCells,
    /// A fast-registration region for one peer, which writes to the region and then invalidates the
    /// key: local write, remote write. The program then registers the region under the next key.
    Disposable,
    /// An ordinary region under a type 2 window for one peer, used as a `Disposable`. Addresses and
    /// keys are those of the window.
    Windowed,
    /// The same with a type 1 window, which no peer can invalidate. The peer announces by a message
    /// that it releases the window, and the program binds the window again.
    Rebound,
}

/// Two queue pairs that are connected with each other.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// The path MTU, in bytes.
    pub mtu: usize,
    /// The two ends.
    pub ends: [EndPlan; 2],
}

/// One queue pair and the work requests of its program.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// The device.
    pub device: usize,
    /// The first PSN that the queue pair sends.
    pub first_psn: u32,
    /// The local ACK timeout, as coded in `ibv_qp_attr`.
    pub timeout: u8,
    /// The minimum RNR timer of the responder, as a code.
    pub min_rnr_timer: u8,
    /// Outstanding READs and atomics at the peer.
    pub max_rd_atomic: u8,
    /// Outstanding READs and atomics of the peer; at least the peer's `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// Send queue entries.
    pub send_depth: u32,
    /// Receive queue entries.
    pub recv_depth: u32,
    /// Scatter-gather entries of a work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Whether every send is signalled (`sq_sig_all`).
    pub all_signaled: bool,
    /// The sends, in order.
    pub sends: Vec<SendPlan>,
    /// The pause between two sends, in nanoseconds.
    pub send_pause_ns: u64,
    /// The receives, in order: exactly as many as the peer's messages need.
    pub recvs: Vec<RecvPlan>,
    /// The number of receives that are posted before the peer sends.
    pub recvs_at_start: usize,
    /// The pause between two later receives, in nanoseconds.
    pub recv_pause_ns: u64,
}

/// Bytes in a region. The context names the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The index of the region.
    pub region: usize,
    /// The offset in the region.
    pub offset: usize,
    /// The length, in bytes.
    pub len: usize,
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct SendPlan {
    /// The operation.
    pub op: Op,
    /// The data, or the destination of the response.
    pub local: Local,
    /// Whether the request is signalled.
    pub signaled: bool,
    /// Whether the request waits for earlier READs and atomics.
    pub fence: bool,
    /// Whether the message carries the solicited event bit.
    pub solicited: bool,
}

/// The data of a send work request.
#[derive(Clone, Debug)]
pub enum Local {
    /// Data in registered memory.
    Pieces(Vec<Piece>),
    /// Inline data.
    Inline(Vec<Vec<u8>>),
}

impl Local {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.len).sum(),
            Self::Inline(parts) => parts.iter().map(Vec::len).sum(),
        }
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the pieces in memory; none for inline data.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        match self {
            Self::Pieces(pieces) => pieces,
            Self::Inline(_) => &[],
        }
    }
}

/// A place in the peer's memory. The length is the length of the local data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the region on the peer's device.
    pub region: usize,
    /// The offset in the region.
    pub offset: usize,
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates the key of this region of the peer's device.
    SendInvalidate(usize),
    /// SEND that announces the release of this region of the peer's device.
    SendRelease(usize),
    /// RDMA WRITE.
    Write(Place),
    /// RDMA WRITE with immediate data.
    WriteImm(Place, u32),
    /// RDMA READ.
    Read(Place),
    /// Compare and swap.
    CompareSwap {
        /// The cell.
        at: Place,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// The cell.
        at: Place,
        /// The addend.
        add: u64,
    },
    /// ATOMIC WRITE.
    AtomicWrite(Place),
    /// FLUSH to global visibility.
    Flush {
        /// The start of the range.
        at: Place,
        /// The length in bytes, or `None` for the whole region.
        len: Option<u32>,
    },
}

impl Op {
    /// Returns whether the operation consumes a receive of the peer.
    #[must_use]
    pub fn consumes_recv(&self) -> bool {
        self.is_send() || matches!(self, Self::WriteImm(..))
    }

    /// Returns the opcode of the completion.
    #[must_use]
    pub fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Write(_) | Self::WriteImm(..) => WcOpcode::RdmaWrite,
            Self::Read(_) => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::AtomicWrite(_) => WcOpcode::AtomicWrite,
            Self::Flush { .. } => WcOpcode::Flush,
            _ => WcOpcode::Send,
        }
    }

    /// Returns whether the data goes into the peer's receive.
    #[must_use]
    pub fn is_send(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) | Self::SendRelease(_)
        )
    }

    /// Returns whether the operation returns data.
    #[must_use]
    pub fn returns_data(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// A receive work request.
#[derive(Clone, Debug, Default)]
pub struct RecvPlan {
    /// The memory for the message.
    pub pieces: Vec<Piece>,
}

/// The faults of a run.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The faults of every direction between two nodes: sender, receiver, faults.
    pub links: Vec<(usize, usize, LinkFaults)>,
    /// The times at which faults stop and start; faults are active from 0 ns. The phases are too
    /// short for a retry counter to run out.
    pub toggles_ns: Vec<u64>,
    /// Nodes and links that stop for a while during the active phases.
    pub pauses: Vec<PausePlan>,
    /// The time at which all faults end, in nanoseconds.
    pub end_ns: u64,
    /// The time after that within which everything must complete, in nanoseconds.
    pub liveness_ns: u64,
}

/// A pause.
#[derive(Clone, Copy, Debug)]
pub struct PausePlan {
    /// The node, or the sending node of the link.
    pub node: usize,
    /// The receiving node of the link.
    pub to: Option<usize>,
    /// Whether packets are held instead of dropped.
    pub hold: bool,
    /// The first instant, in nanoseconds.
    pub from_ns: u64,
    /// The first instant after the pause, in nanoseconds.
    pub until_ns: u64,
}

/// One end of one connection, as an index into all tables by end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndId {
    /// The index of the connection.
    pub connection: usize,
    /// 0 or 1.
    pub side: usize,
}

impl EndId {
    /// Returns the other end.
    #[must_use]
    pub fn peer(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
}

/// The queue of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

impl fmt::Display for Plan {
    /// Writes a summary of the run for a replay.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, device) in self.devices.iter().enumerate() {
            writeln!(
                f,
                "device {index}: {} KiB, {:?}, {:?}",
                device.memory_bytes >> 10,
                device.cqs,
                device.socket
            )?;
        }
        for (id, end) in self.ends() {
            let (sends, recvs) = (end.sends.len(), end.recvs.len());
            writeln!(
                f,
                "connection {} end {}: device {}, mtu {}, PSN {:#08x}, \
                 {sends} sends in {} every {} ns, \
                 {recvs} recvs in {} ({} at start, every {} ns), \
                 timeout {}, RNR timer {}, max_rd_atomic {}",
                id.connection,
                id.side,
                end.device,
                self.connections[id.connection].mtu,
                end.first_psn,
                end.send_depth,
                end.send_pause_ns,
                end.recv_depth,
                end.recvs_at_start.min(recvs),
                end.recv_pause_ns,
                end.timeout,
                end.min_rnr_timer,
                end.max_rd_atomic
            )?;
        }
        for (from, to, faults) in &self.faults.links {
            writeln!(f, "link {from} to {to}: {faults:?}")?;
        }
        writeln!(f, "faults on and off at {:?}, {:?}", self.faults.toggles_ns, self.faults.pauses)?;
        write!(f, "faults end at {} ns", self.faults.end_ns)
    }
}

impl Plan {
    /// Returns all ends.
    pub fn ends(&self) -> impl Iterator<Item = (EndId, &EndPlan)> {
        self.connections.iter().enumerate().flat_map(|(connection, plan)| {
            plan.ends.iter().enumerate().map(move |(side, end)| (EndId { connection, side }, end))
        })
    }

    /// Returns one end.
    #[must_use]
    pub fn end(&self, id: EndId) -> &EndPlan {
        &self.connections[id.connection].ends[id.side]
    }

    /// Returns the range of a piece in the device's memory.
    #[must_use]
    pub fn range(&self, device: usize, piece: Piece) -> Range<usize> {
        let start = self.devices[device].regions[piece.region].range.start + piece.offset;
        start..start + piece.len
    }

    /// Returns the regions of the peer's device that the sends of `end` invalidate or release, each
    /// after the index of its send.
    pub fn invalidated(&self, end: EndId) -> impl Iterator<Item = (usize, usize)> {
        self.end(end).sends.iter().enumerate().filter_map(|(index, send)| match send.op {
            Op::SendInvalidate(region) | Op::SendRelease(region) => Some((index, region)),
            _ => None,
        })
    }

    /// Returns a device's memory before the run: random bytes everywhere, gaps included.
    #[must_use]
    pub fn initial_image(&self, device: usize) -> Vec<u8> {
        let mut image = vec![0; self.devices[device].memory_bytes];
        Rng::stream(self.seed, 0x1_0000 + device as u64).fill(&mut image);
        image
    }

    /// Returns the `wr_id` of a work request, which encodes the end, the queue and the index.
    #[must_use]
    pub fn wr_id(&self, end: EndId, queue: Queue, index: usize) -> u64 {
        let end = (end.connection * 2 + end.side) as u64;
        (end << 32 | u64::from(queue == Queue::Recv) << 31 | index as u64) ^ self.seed << 48
    }
}
