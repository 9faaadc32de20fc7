//! What a run does, as plain data: everything random has been decided.

use std::fmt;
use std::ops::Range;

use urxe_stack::cq::WcOpcode;
use urxe_stack::port::sim::{LinkFaults, NodeConfig};
use urxe_stack::rng::Rng;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was made from.
    pub seed: u64,
    /// The devices.
    pub devices: Vec<DevicePlan>,
    /// The connections between their queue pairs.
    pub connections: Vec<ConnectionPlan>,
    /// What goes wrong meanwhile.
    pub faults: FaultPlan,
}

/// One device and the memory of its program.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// Size of the program's memory in bytes. What no region covers is there to notice stray
    /// writes.
    pub memory_bytes: usize,
    /// What of it is registered. Regions do not overlap and have gaps between them.
    pub regions: Vec<RegionPlan>,
    /// How queue pairs share completion queues.
    pub cqs: CqSharing,
    /// Its receiving socket.
    pub socket: NodeConfig,
    /// Whether it speaks over IPv6.
    pub ipv6: bool,
    /// How many completions the program polls at once.
    pub poll_batch: usize,
}

/// Which completion queues there are.
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
    /// Where it lies in the device's memory.
    pub range: Range<usize>,
    /// What it is for.
    pub role: Role,
    /// How work requests and peers name its bytes.
    pub naming: Naming,
}

/// How a region's bytes are named. Never by the memory's own addresses: those differ from run to
/// run, and with them every packet that names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// From 0 on.
    ZeroBased,
    /// From this page on; the place in the page is the memory's own.
    Page(u64),
}

/// What a region is for, and so which rights it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data to be sent: no right at all.
    Source,
    /// Received messages, answers of READs and atomics: local write.
    Landing,
    /// What one peer reads and writes: local write, remote read, remote write, flush.
    Target,
    /// Eight-byte cells for the atomics of one peer: local write, remote atomic.
    Cells,
    /// Cells that several peers add to: local write, remote atomic.
    SharedCells,
    /// A fast-registration region for one peer, which writes to it and takes its key away: local
    /// write, remote write. The program then registers it under its next key.
    Disposable,
    /// An ordinary region with a type 2 window over all of it for one peer, used as a `Disposable`:
    /// the names and keys are the window's.
    Windowed,
    /// The same with a type 1 window, whose key no peer can take away: when the peer says that it
    /// is done, by a message, the program binds the window anew.
    Rebound,
}

/// Two queue pairs that are connected with each other.
#[derive(Clone, Debug)]
pub struct ConnectionPlan {
    /// Path MTU in bytes.
    pub mtu: usize,
    /// The two ends.
    pub ends: [EndPlan; 2],
}

/// One queue pair and what its program posts to it.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// Its device.
    pub device: usize,
    /// The first PSN that it sends.
    pub first_psn: u32,
    /// Local ACK timeout, as coded in `ibv_qp_attr`.
    pub timeout: u8,
    /// Least RNR timer that it asks for as a responder, as coded.
    pub min_rnr_timer: u8,
    /// How many READs and atomics it may have at the peer.
    pub max_rd_atomic: u8,
    /// How many the peer may have here; at least the peer's `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// Send queue entries.
    pub send_depth: u32,
    /// Receive queue entries.
    pub recv_depth: u32,
    /// Scatter-gather entries of a work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Whether every send makes a completion whatever its flag (`sq_sig_all`).
    pub all_signaled: bool,
    /// What it sends, in order.
    pub sends: Vec<SendPlan>,
    /// How long the program waits between two sends, in nanoseconds.
    pub send_pause_ns: u64,
    /// What it receives into, in order: exactly as many as the peer's messages need.
    pub recvs: Vec<RecvPlan>,
    /// How many of them are posted before the peer sends anything.
    pub recvs_at_start: usize,
    /// How long the program waits between two later ones, in nanoseconds.
    pub recv_pause_ns: u64,
}

/// Bytes in a region of the device that the context names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the region.
    pub region: usize,
    /// Offset in it.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct SendPlan {
    /// What it does.
    pub op: Op,
    /// Its data, or where the answer goes.
    pub local: Local,
    /// Whether it makes a completion.
    pub signaled: bool,
    /// Whether it waits for earlier READs and atomics.
    pub fence: bool,
    /// Whether its message carries the solicited event bit.
    pub solicited: bool,
}

/// Where a send work request's data is.
#[derive(Clone, Debug)]
pub enum Local {
    /// In registered memory of the own device.
    Pieces(Vec<Piece>),
    /// Inline.
    Inline(Vec<Vec<u8>>),
}

impl Local {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.len).sum(),
            Self::Inline(parts) => parts.iter().map(Vec::len).sum(),
        }
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in memory, if that is where the data is.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        match self {
            Self::Pieces(pieces) => pieces,
            Self::Inline(_) => &[],
        }
    }
}

/// A place in the peer's memory; its length is that of the local data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the region on the peer's device.
    pub region: usize,
    /// Offset in it.
    pub offset: usize,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates the key of this region of the peer's device.
    SendInvalidate(usize),
    /// SEND that says that this region of the peer's device is no longer used under its key.
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
        /// What is expected there.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// The cell.
        at: Place,
        /// What is added.
        add: u64,
    },
    /// ATOMIC WRITE.
    AtomicWrite(Place),
    /// FLUSH to global visibility.
    Flush {
        /// Where the range begins.
        at: Place,
        /// Its length in bytes, `None` for the whole region.
        len: Option<u32>,
    },
}

impl Op {
    /// Whether the peer needs a receive for it.
    #[must_use]
    pub fn consumes_recv(&self) -> bool {
        self.is_send() || matches!(self, Self::WriteImm(..))
    }

    /// The opcode with which a completion names it.
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

    /// Whether its data goes into the peer's receive.
    #[must_use]
    pub fn is_send(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) | Self::SendRelease(_)
        )
    }

    /// Whether it brings data back.
    #[must_use]
    pub fn returns_data(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// A receive work request.
#[derive(Clone, Debug, Default)]
pub struct RecvPlan {
    /// Where the message goes.
    pub pieces: Vec<Piece>,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// Every direction between two nodes while faults are on: sender, receiver, behaviour.
    pub links: Vec<(usize, usize, LinkFaults)>,
    /// When faults go on and off; on from 0 ns. So short that no retry counter can run out.
    pub toggles_ns: Vec<u64>,
    /// Nodes and links that stop for a while, in the times when faults are on.
    pub pauses: Vec<PausePlan>,
    /// When all faults end for good, in nanoseconds.
    pub end_ns: u64,
    /// How much later everything must have completed, in nanoseconds.
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
    /// First instant, in nanoseconds.
    pub from_ns: u64,
    /// First instant after it.
    pub until_ns: u64,
}

/// One end of one connection, as an index into everything that is kept by end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndId {
    /// Index of the connection.
    pub connection: usize,
    /// 0 or 1.
    pub side: usize,
}

impl EndId {
    /// The other end.
    #[must_use]
    pub fn peer(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
}

/// Which queue a work request stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

impl fmt::Display for Plan {
    /// The shape of the run, for whoever replays it.
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
                "connection {} end {}: device {}, mtu {}, PSN {:#08x}, {sends} sends in {} every {} ns, {recvs} recvs in \
                 {} ({} at start, every {} ns), timeout {}, RNR timer {}, max_rd_atomic {}",
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
    /// All ends.
    pub fn ends(&self) -> impl Iterator<Item = (EndId, &EndPlan)> {
        self.connections.iter().enumerate().flat_map(|(connection, plan)| {
            plan.ends.iter().enumerate().map(move |(side, end)| (EndId { connection, side }, end))
        })
    }

    /// One end.
    #[must_use]
    pub fn end(&self, id: EndId) -> &EndPlan {
        &self.connections[id.connection].ends[id.side]
    }

    /// Where a piece lies in its device's memory.
    #[must_use]
    pub fn range(&self, device: usize, piece: Piece) -> Range<usize> {
        let start = self.devices[device].regions[piece.region].range.start + piece.offset;
        start..start + piece.len
    }

    /// The regions of the peer's device whose keys the sends of `end` take away, or have taken
    /// away, with the places of those sends.
    pub fn invalidated(&self, end: EndId) -> impl Iterator<Item = (usize, usize)> {
        self.end(end).sends.iter().enumerate().filter_map(|(index, send)| match send.op {
            Op::SendInvalidate(region) | Op::SendRelease(region) => Some((index, region)),
            _ => None,
        })
    }

    /// A device's memory before the run: random bytes everywhere, gaps included.
    #[must_use]
    pub fn initial_image(&self, device: usize) -> Vec<u8> {
        let mut image = vec![0; self.devices[device].memory_bytes];
        Rng::stream(self.seed, 0x1_0000 + device as u64).fill(&mut image);
        image
    }

    /// The `wr_id` of a work request: it tells the end, the queue and the place in it.
    #[must_use]
    pub fn wr_id(&self, end: EndId, queue: Queue, index: usize) -> u64 {
        let end = (end.connection * 2 + end.side) as u64;
        (end << 32 | u64::from(queue == Queue::Recv) << 31 | index as u64) ^ self.seed << 48
    }
}
