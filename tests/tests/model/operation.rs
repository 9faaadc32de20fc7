//! What a program does, as plain data: both the model and the implementation carry it out.

use std::ops::Range;

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{PathMtu, QpType};
use urxe_stack::qp::work_request::SendOp;

use crate::keys::Change;

/// Bytes of each device's memory.
pub const MEMORY: usize = 24 << 10;
/// Path MTUs, one of which a scenario has: mostly so small that most messages have several packets.
pub const MTUS: [PathMtu; 4] =
    [PathMtu::Mtu256, PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024];
/// The Q_Key of every datagram queue pair.
pub const QKEY: u32 = 0x0102_0304;
/// Places in each queue.
pub const DEPTH: usize = 16;
/// Places that a shared receive queue can have.
pub const MAX_SRQ_WR: u32 = 24;
/// Multicast groups that messages go to; of two of them at a time a device has queue pairs, at most
/// two in each.
pub const GROUPS: usize = 3;
pub const MAX_GROUPS: u32 = 2;
pub const MAX_PER_GROUP: u32 = 2;
/// Bytes of inline data.
pub const INLINE: usize = 64;

/// Where a queue pair's receives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A queue of its own.
    Own,
    /// A shared one.
    Shared(usize),
    /// It receives nothing, or from whichever queue a message names (XRC).
    None,
}

/// Which completion queue: each has one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cq {
    Send(usize),
    Recv(usize),
    /// Of a shared receive queue of the XRC domain.
    Srq(usize),
}

impl Cq {
    /// The device that it is of.
    pub fn device(self) -> usize {
        match self {
            Self::Send(qp) | Self::Recv(qp) => QPS[qp].device,
            Self::Srq(srq) => SRQS[srq].device,
        }
    }
}

/// What an armed completion queue tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    Next,
    /// A receive whose message asked for it, or an error.
    Solicited,
}

/// A queue pair of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct QpPlan {
    pub device: usize,
    pub pd: usize,
    pub qp_type: QpType,
    pub source: Source,
    /// The other end; of datagrams, none.
    pub peer: Option<usize>,
    /// What its peer may do through it.
    pub access: Access,
}

const REMOTE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);
/// No atomics and no flushes.
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
    /// Whether it is of the XRC domain.
    pub is_xrc: bool,
}

/// The shared receive queues.
pub const SRQS: [SrqPlan; 4] = [
    SrqPlan { device: 0, pd: 0, is_xrc: false },
    SrqPlan { device: 1, pd: 0, is_xrc: false },
    SrqPlan { device: 1, pd: 0, is_xrc: true },
    SrqPlan { device: 1, pd: 1, is_xrc: true },
];

/// A piece of local memory as a work request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub key: u32,
    pub addr: u64,
    pub len: u32,
}

/// Whom a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The queue pair at the other end of the connection.
    Peer,
    /// A shared receive queue; `None` is a number that nobody has.
    Srq(Option<usize>),
    /// A shared receive queue of another XRC domain, by its place in the model's table.
    OtherDomain(usize),
    /// A datagram queue pair.
    Datagram { qp: usize, qkey: u32 },
    /// Every queue pair that is attached to a multicast group, on either device.
    Group { group: usize, qkey: u32 },
}

/// A message's bytes.
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
    /// The receiver's completion is to tell.
    pub solicited: bool,
    pub data: Data,
}

impl Send {
    /// The immediate data of a SEND.
    pub fn send_imm(&self) -> Option<u32> {
        if let SendOp::SendImm { imm } = self.op { Some(imm) } else { None }
    }

    /// Bytes of the message, or that it asks for.
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
    /// Bytes that it has room for.
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

/// Calls on XRC domains and what is in them, which the model's tables name.
#[derive(Clone, Debug)]
pub enum XrcCall {
    /// Opens a domain.
    Open { device: usize, file: Option<u64>, create: bool, exclusive: bool },
    /// Closes it.
    Close { domain: usize },
    /// Makes a shared receive queue in a domain, or a target queue pair.
    Make { domain: usize, is_srq: bool },
    /// Opens a target queue pair once more, by its number.
    OpenTarget { domain: usize, member: usize },
    /// Destroys a member.
    Destroy { member: usize },
}

/// One thing that a program does. Keys are named by their place in the model's table.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Posts send work requests as one list.
    Send { qp: usize, list: Vec<Send> },
    /// Posts receives as one list.
    Recv { queue: Queue, list: Vec<Recv> },
    /// A region over part of the memory; peers name it from `start` on, plus where the part begins.
    Register { device: usize, pd: usize, range: Range<usize>, start: u64, access: Access },
    /// A key stands for something else in part; not always that of a region.
    Reregister { key: usize, change: Change },
    /// Deregisters a region or a fast-registration region.
    Deregister { key: usize },
    /// Allocates a memory window.
    AllocWindow { device: usize, pd: usize, is_type_2: bool },
    /// Deallocates it.
    DeallocWindow { key: usize },
    /// Allocates a fast-registration region.
    AllocFast { device: usize, pd: usize },
    /// Maps it over part of the memory.
    Map { key: usize, range: Range<usize> },
    /// A shared receive queue gets another size, its limit is armed, or both.
    ModifySrq { srq: usize, max_wr: Option<u32>, limit: Option<u32> },
    /// A call on an XRC domain.
    Xrc(XrcCall),
    /// Attaches a queue pair to a group; `None` is an address that no group has.
    Attach { qp: usize, group: Option<usize> },
    /// Detaches it.
    Detach { qp: usize, group: Option<usize> },
    /// Asks a completion queue for one event.
    Arm { cq: Cq, arm: Arm },
    /// A completion queue is polled after each operation, or, from now on, is not.
    Poll { cq: Cq, polled: bool },
    /// A queue pair goes to ERR.
    Fail { qp: usize },
    /// A queue pair goes to SQD: what is posted to its send queue waits.
    Drain { qp: usize },
    /// It goes back to RTS.
    Resume { qp: usize },
    /// A queue pair and its peer go through RESET to RTS; one in SQE just to RTS.
    Restart { qp: usize },
}

impl Operation {
    /// How many verbs this is.
    pub fn count(&self) -> u64 {
        match self {
            Self::Send { list, .. } => list.len() as u64,
            Self::Recv { list, .. } => list.len() as u64,
            _ => 1,
        }
    }
}
