//! Operations of a program as plain data, which both the model and the implementation execute.

use std::ops::Range;

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{PathMtu, QpType};
use urxe_stack::qp::work_request::SendOp;

use crate::keys::Change;

/// The length of each device's memory, in bytes.
pub const MEMORY: usize = 24 << 10;
/// The path MTUs of scenarios, mostly so small that most messages have several packets.
pub const MTUS: [PathMtu; 4] =
    [PathMtu::Mtu256, PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024];
/// The Q_Key of every datagram queue pair.
pub const QKEY: u32 = 0x0102_0304;
/// Entries of each queue.
pub const DEPTH: usize = 16;
/// The maximum size of a shared receive queue.
pub const MAX_SRQ_WR: u32 = 24;
/// Multicast groups. A device has members in at most two of them at a time, at most two in each.
pub const GROUPS: usize = 3;
pub const MAX_GROUPS: u32 = 2;
pub const MAX_PER_GROUP: u32 = 2;
/// The maximum length of inline data, in bytes.
pub const INLINE: usize = 64;

/// The source of a queue pair's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A queue of its own.
    Own,
    /// A shared receive queue.
    Shared(usize),
    /// None, or the queue that a message names (XRC).
    None,
}

/// A completion queue, which has one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cq {
    Send(usize),
    Recv(usize),
    /// The completion queue of a shared receive queue of the XRC domain.
    Srq(usize),
}

impl Cq {
    /// Returns the device of the completion queue.
    pub fn device(self) -> usize {
        match self {
            Self::Send(qp) | Self::Recv(qp) => QPS[qp].device,
            Self::Srq(srq) => SRQS[srq].device,
        }
    }
}

/// The kind of completion for which an armed completion queue raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    Next,
    /// A receive of a solicited message, or an error.
    Solicited,
}

/// A queue pair of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct QpPlan {
    pub device: usize,
    pub pd: usize,
    pub qp_type: QpType,
    pub source: Source,
    /// The queue pair at the other end; `None` for datagrams.
    pub peer: Option<usize>,
    /// The access rights of the peer.
    pub access: Access,
}

const REMOTE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);
/// Neither atomics nor flushes.
const SOME: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

const fn qp(
    device: usize,
    pd: usize,
    qp_type: QpType,
    source: Source,
    peer: Option<usize>,
    access: Access,
) -> QpPlan {
    QpPlan { device, pd, qp_type, source, peer, access }
}

/// The queue pairs: device, protection domain, service, receives, peer, rights.
pub const QPS: [QpPlan; 16] = [
    qp(0, 0, QpType::Rc, Source::Own, Some(1), REMOTE),
    qp(1, 0, QpType::Rc, Source::Own, Some(0), REMOTE),
    qp(0, 0, QpType::Rc, Source::Own, Some(3), SOME),
    qp(1, 1, QpType::Rc, Source::Own, Some(2), SOME),
    qp(0, 0, QpType::Rc, Source::Shared(0), Some(5), REMOTE),
    qp(1, 0, QpType::Rc, Source::Shared(1), Some(4), REMOTE),
    qp(0, 0, QpType::Uc, Source::Own, Some(7), Access::REMOTE_WRITE),
    qp(1, 0, QpType::Uc, Source::Own, Some(6), Access::REMOTE_WRITE),
    qp(0, 0, QpType::Ud, Source::Own, None, Access::empty()),
    qp(1, 0, QpType::Ud, Source::Own, None, Access::empty()),
    qp(1, 0, QpType::Ud, Source::Shared(1), None, Access::empty()),
    qp(0, 0, QpType::XrcSend, Source::None, Some(12), Access::empty()),
    qp(1, 0, QpType::XrcRecv, Source::None, Some(11), REMOTE),
    qp(0, 0, QpType::Uc, Source::Shared(0), Some(14), Access::REMOTE_WRITE),
    qp(1, 0, QpType::Uc, Source::Shared(1), Some(13), Access::REMOTE_WRITE),
    qp(1, 0, QpType::Ud, Source::Own, None, Access::empty()),
];

/// A shared receive queue of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct SrqPlan {
    pub device: usize,
    pub pd: usize,
    /// Whether the queue belongs to the XRC domain.
    pub is_xrc: bool,
}

/// The shared receive queues.
pub const SRQS: [SrqPlan; 4] = [
    SrqPlan { device: 0, pd: 0, is_xrc: false },
    SrqPlan { device: 1, pd: 0, is_xrc: false },
    SrqPlan { device: 1, pd: 0, is_xrc: true },
    SrqPlan { device: 1, pd: 1, is_xrc: true },
];

/// Local memory in a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub key: u32,
    pub addr: u64,
    pub len: u32,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The queue pair at the other end of the connection.
    Peer,
    /// A shared receive queue; `None` is an unused number.
    Srq(Option<usize>),
    /// A shared receive queue of another XRC domain, by its index in the model's table.
    OtherDomain(usize),
    /// A datagram queue pair.
    Datagram { qp: usize, qkey: u32 },
    /// Every queue pair in a multicast group, on both devices.
    Group { group: usize, qkey: u32 },
}

/// The data of a message.
#[derive(Clone, Debug)]
pub enum Data {
    Pieces(Vec<Piece>),
    Inline(Vec<u8>),
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct Send {
    pub wr_id: u64,
    pub op: SendOp,
    pub to: To,
    pub signaled: bool,
    pub fence: bool,
    /// Whether the receiver's completion raises a solicited event.
    pub solicited: bool,
    pub data: Data,
}

impl Send {
    /// Returns the immediate data of a SEND.
    pub fn send_imm(&self) -> Option<u32> {
        if let SendOp::SendImm { imm } = self.op { Some(imm) } else { None }
    }

    /// Returns the length of the message or of the requested data, in bytes.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Pieces(pieces) => pieces.iter().map(|piece| piece.len as usize).sum(),
            Data::Inline(bytes) => bytes.len(),
        }
    }
}

/// A receive work request.
#[derive(Clone, Debug)]
pub struct Recv {
    pub wr_id: u64,
    pub pieces: Vec<Piece>,
}

impl Recv {
    /// Returns the room for a message, in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len as usize).sum()
    }
}

/// A queue for receives.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    Qp(usize),
    Srq(usize),
}

/// Calls on XRC domains and their members, which are indices into the model's tables.
#[derive(Clone, Debug)]
pub enum XrcCall {
    /// Opens a domain.
    Open { device: usize, file: Option<u64>, create: bool, exclusive: bool },
    /// Closes a domain.
    Close { domain: usize },
    /// Creates a shared receive queue or a target queue pair in a domain.
    Make { domain: usize, is_srq: bool },
    /// Opens a target queue pair again by its number.
    OpenTarget { domain: usize, member: usize },
    /// Destroys a member.
    Destroy { member: usize },
}

/// An operation of a program. Keys are indices into the model's table.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Posts send work requests as one list.
    Send { qp: usize, list: Vec<Send> },
    /// Posts receives as one list.
    Recv { queue: Queue, list: Vec<Recv> },
    /// Registers part of the memory. Peers address it from `start` on, plus the offset of the part
    /// in its page.
    Register { device: usize, pd: usize, range: Range<usize>, start: u64, access: Access },
    /// Reregisters a key, which is not always that of a region.
    Reregister { key: usize, change: Change },
    /// Deregisters a region or a fast-registration region.
    Deregister { key: usize },
    /// Allocates a memory window.
    AllocWindow { device: usize, pd: usize, is_type_2: bool },
    /// Deallocates a memory window.
    DeallocWindow { key: usize },
    /// Allocates a fast-registration region.
    AllocFast { device: usize, pd: usize },
    /// Maps a fast-registration region over part of the memory.
    Map { key: usize, range: Range<usize> },
    /// Changes the size of a shared receive queue, arms its limit, or both.
    ModifySrq { srq: usize, max_wr: Option<u32>, limit: Option<u32> },
    /// Calls a verb on an XRC domain.
    Xrc(XrcCall),
    /// Attaches a queue pair to a group; `None` is an address that is no group.
    Attach { qp: usize, group: Option<usize> },
    /// Detaches a queue pair from a group.
    Detach { qp: usize, group: Option<usize> },
    /// Arms a completion queue for one event.
    Arm { cq: Cq, arm: Arm },
    /// Sets whether a completion queue is polled after each operation.
    Poll { cq: Cq, polled: bool },
    /// Moves a queue pair to ERR.
    Fail { qp: usize },
    /// Moves a queue pair to SQD, where posted sends wait.
    Drain { qp: usize },
    /// Moves a queue pair back to RTS.
    Resume { qp: usize },
    /// Moves a queue pair and its peer through RESET to RTS; from SQE directly to RTS.
    Restart { qp: usize },
}

impl Operation {
    /// Returns the number of verbs.
    pub fn count(&self) -> u64 {
        match self {
            Self::Send { list, .. } => list.len() as u64,
            Self::Recv { list, .. } => list.len() as u64,
            _ => 1,
        }
    }
}
