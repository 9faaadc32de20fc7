//! Work requests: what a program posts.
//!
//! The shapes follow `ibv_send_wr` and `ibv_recv_wr`; an operation carries only the fields it uses,
//! so that a combination that means nothing cannot be written. Values on the wire (immediate data)
//! are in host order.

use std::net::IpAddr;

use bitflags::bitflags;
use urxe_wire::{Lkey, PlacementType, QKey, Qpn, Rkey, Service};

use crate::access::{Access, Bind};
use crate::attr::{QpState, QpType};
use crate::completion::WcOpcode;
use crate::ids::SrqId;

/// Numbers of shared receive queues have 24 bits.
const MAX_SRQ_NUMBER: u32 = 0x00ff_ffff;

/// One piece of local memory: `length` bytes at `addr`, inside the region named by `lkey`
/// (`ibv_sge`, whose layout it has).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address in the region's own address space (its `iova`).
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer region's address space.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
}

/// What a send work request does.
///
/// There are no masked atomics (`IB_WR_MASKED_ATOMIC_*` of the kernel): IBTA gives them no opcode,
/// `ib_pack.h` lists none, and what some hardware sends for them lies in the manufacturers' range,
/// so no other peer would know it. `ibv_post_send` has no operation for them either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Message into the peer's next receive.
    Send,
    /// The same, with four bytes of immediate data in its completion.
    SendImm {
        /// Immediate data.
        imm: u32,
    },
    /// The same, invalidating one of the peer's keys (C9-90).
    SendInvalidate {
        /// The key that the peer invalidates.
        rkey: Rkey,
    },
    /// Write into the peer's memory.
    Write {
        /// Where to.
        remote: Remote,
    },
    /// Write, then complete one of the peer's receives with immediate data.
    WriteImm {
        /// Where to.
        remote: Remote,
        /// Immediate data.
        imm: u32,
    },
    /// Read from the peer's memory.
    Read {
        /// Where from.
        remote: Remote,
    },
    /// Atomic compare and swap of eight bytes; the old value arrives in the local buffer.
    CompareSwap {
        /// The eight bytes, aligned to eight.
        remote: Remote,
        /// The value expected there.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
    /// Atomic fetch and add of eight bytes; the old value arrives in the local buffer.
    FetchAdd {
        /// The eight bytes, aligned to eight.
        remote: Remote,
        /// What is added, wrapping.
        add: u64,
    },
    /// Bind a memory window, of either type. Sends nothing and has no data.
    BindMw(Bind),
    /// Make a fast-registration region valid for what was mapped to it last. Sends nothing and has
    /// no data.
    RegMr {
        /// The key that it shall answer to: its upper 24 bits name the region, the low 8 are the
        /// program's choice.
        key: Rkey,
        /// What it grants.
        access: Access,
    },
    /// Take away the key of a fast-registration region or a type 2 window. Sends nothing and has no
    /// data. Starts only when everything before it has completed: the specification's local
    /// invalidate fence (10.6.5.1), which `rdma_rxe` does not leave to the program either
    /// (`rxe_req.c`, `rxe_wqe_is_fenced`).
    LocalInv {
        /// The key.
        rkey: Rkey,
    },
    /// Writes eight bytes as one (ATOMIC WRITE, A19): who looks at them sees all of them or none.
    AtomicWrite {
        /// The eight bytes, aligned to eight.
        remote: Remote,
    },
    /// Completes when what was written before has got as far as asked (FLUSH, A19). Carries no
    /// data.
    Flush {
        /// Where the range begins; of [`FlushRange::Region`] only the key counts.
        remote: Remote,
        /// How far.
        placement: PlacementType,
        /// Which part of the peer's memory.
        range: FlushRange,
    },
}

/// What a FLUSH is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushRange {
    /// So many bytes from the address on.
    Bytes(u32),
    /// The whole region of the key.
    Region,
}

impl SendOp {
    /// The opcode of this operation's completion.
    #[must_use]
    pub const fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm { .. } | Self::SendInvalidate { .. } => WcOpcode::Send,
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::BindMw(_) => WcOpcode::BindMw,
            Self::RegMr { .. } => WcOpcode::RegMr,
            Self::LocalInv { .. } => WcOpcode::LocalInv,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::Flush { .. } => WcOpcode::Flush,
        }
    }

    /// Whether the peer answers with data: READ and the atomics.
    #[must_use]
    pub const fn returns_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether this is carried out here, without a packet: on a key of this device.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindMw(_) | Self::RegMr { .. } | Self::LocalInv { .. })
    }

    /// Whether the peer answers it by a response of its own, which no later answer stands for: what
    /// counts to `max_rd_atomic` and what a fence waits for. READ, the atomics, ATOMIC WRITE, FLUSH
    /// (`rxe_resp.c`).
    #[must_use]
    pub const fn has_response(&self) -> bool {
        self.returns_data() || matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// Whether this is one of the atomic operations that return what was there.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// The right that the local buffers need.
    #[must_use]
    pub const fn local_access(&self) -> Access {
        if self.returns_data() { Access::LOCAL_WRITE } else { Access::empty() }
    }
}

bitflags! {
    /// Flags of a send work request, with libibverbs' values (`ibv_send_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Start only when all earlier READs and atomics have completed.
        const FENCE = 1;
        /// Make a completion.
        const SIGNALED = 2;
        /// Wake a peer that armed its queue for solicited completions.
        const SOLICITED = 4;
        /// The data is taken at once; its memory need not be registered.
        const INLINE = 8;
    }
}

/// Where a send work request's data lies.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In registered memory.
    Sges(&'a [Sge]),
    /// Here: the pieces are copied, one after the other, when the request is posted.
    Inline(&'a [&'a [u8]]),
}

/// Names an address handle of a device. It stays valid as a name when the handle is destroyed:
/// every use then fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AhHandle {
    /// Its place in the device's table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
}

/// Whom a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// The queue pair's peer: connected services know no other.
    #[default]
    Peer,
    /// A shared receive queue of the peer's XRC domain, by its number there: on the sending end of
    /// an XRC connection.
    XrcSrq {
        /// What the peer's `Srq::id` says; below 2^24.
        srq: SrqId,
    },
    /// A datagram queue pair anywhere, or a multicast group.
    Datagram {
        /// The way there.
        ah: AhHandle,
        /// The queue pair there; 0xffffff with a multicast group.
        qpn: Qpn,
        /// Its Q_Key. With the highest bit set, the sending queue pair's own goes out instead (IBTA
        /// vol. 1, 10.2.5; `rdma_rxe` sends what the request names, rxe_req.c).
        qkey: QKey,
    },
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// For whom.
    pub to: Destination,
    /// How.
    pub flags: SendFlags,
    /// With which data (for READ and atomics: where the answer goes).
    pub payload: Payload<'a>,
}

impl SendRequest<'_> {
    /// Bytes of payload that it sends.
    pub fn sent_len(&self) -> u64 {
        match self.payload {
            _ if self.op.returns_data() || self.op.is_local() => 0,
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Payload::Inline(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// Checks that a queue pair of type `qp_type` sends to such a destination, and has the
    /// operation.
    ///
    /// # Errors
    /// [`PostError::SrqNumber`], [`PostError::Destination`] or [`PostError::Unsupported`].
    #[inline]
    pub fn check_type(&self, qp_type: QpType) -> Result<(), PostError> {
        match (qp_type, self.to) {
            (QpType::Rc | QpType::Uc, Destination::Peer)
            | (QpType::Ud | QpType::Gsi, Destination::Datagram { .. }) => {}
            (QpType::XrcSend, Destination::XrcSrq { srq }) if srq.0 <= MAX_SRQ_NUMBER => {}
            (QpType::XrcSend, Destination::XrcSrq { srq }) => {
                return Err(PostError::SrqNumber { given: srq.0 });
            }
            _ => return Err(PostError::Destination { qp_type }),
        }
        let is_send = matches!(self.op, SendOp::Send | SendOp::SendImm { .. });
        let is_write = matches!(self.op, SendOp::Write { .. } | SendOp::WriteImm { .. });
        let has_op = match qp_type.service() {
            Service::Ud => is_send,
            Service::Uc => is_send || is_write || self.op.is_local(),
            _ => true,
        };
        if has_op { Ok(()) } else { Err(PostError::Unsupported { qp_type }) }
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

crate::errors! {
    /// Why a work request was refused; nothing of it was queued.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum PostError {
        /// There is no such queue pair (any more).
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        /// An end of an XRC connection, which has one queue at most.
        #[error("a {qp_type} queue pair has no {queue} queue")]
        NoQueue { qp_type: QpType, queue: &'static str } = EINVAL,
        #[error("{given:#x} is no number of an XRC shared receive queue: those are below \
                 0x1000000")]
        SrqNumber { given: u32 } = EINVAL,
        /// There is no such shared receive queue (any more).
        #[error("no such shared receive queue: it was destroyed")]
        NoSrq = EINVAL,
        /// The queue pair's receives come from a shared receive queue.
        #[error("the queue pair takes its receives from a shared receive queue: post to that")]
        SharedReceive = EINVAL,
        /// A multicast group without a group's queue pair number, or that number without a group.
        #[error(
            "queue pair {given} at {to}: a multicast group is queue pair {}, a single host never",
            Qpn::MULTICAST
        )]
        GroupNumber { given: Qpn, to: IpAddr } = EINVAL,
        #[error("the queue pair is in state {state}: sends need RTS (or SQD, ERR), receives INIT \
                 or later")]
        State { state: QpState } = EINVAL,
        #[error("the queue holds {capacity} work requests and all are outstanding: poll for \
                 completions first")]
        QueueFull { capacity: u32 } = ENOMEM,
        #[error("{given} scatter-gather entries; this queue was created for {allowed}")]
        TooManySges { given: usize, allowed: u32 } = EINVAL,
        #[error("{given} bytes of inline data; this queue pair was created for {allowed}")]
        TooMuchInline { given: usize, allowed: u32 } = EINVAL,
        #[error("a message of {given} bytes; the longest is {allowed}")]
        TooLong { given: u64, allowed: u64 } = EINVAL,
        #[error("an atomic operation returns 8 bytes, the local buffer has {given}")]
        AtomicLength { given: u64 } = EINVAL,
        /// An atomic's remote address is not a multiple of eight.
        #[error("the remote address {addr:#x} of an atomic operation is not a multiple of 8")]
        AtomicAlignment { addr: u64 } = EINVAL,
        #[error("an ATOMIC WRITE carries 8 bytes, {given} were given")]
        AtomicWriteLength { given: u64 } = EINVAL,
        #[error("a FLUSH carries no data, {given} bytes were given")]
        FlushWithData { given: u64 } = EINVAL,
        #[error("a FLUSH asks for global visibility (1), persistence (2) or both (3); {given:#x} \
                 was given")]
        FlushPlacement { given: u8 } = EINVAL,
        /// READ and atomics bring data back, so inline makes no sense.
        #[error("inline data with an operation that returns data")]
        InlineReturnsData = EINVAL,
        /// There is no such address handle (any more).
        #[error("no such address handle: it was destroyed")]
        NoAh = EINVAL,
        /// The address handle is of another protection domain (`rdma_rxe` fails such a request when
        /// it is sent, rxe_av.c).
        #[error("the address handle belongs to another protection domain than the queue pair: make \
                 one in the queue pair's")]
        AhOfOtherPd = EINVAL,
        /// The address handle is of another device, where its name may mean another peer.
        #[error("the address handle belongs to another device than the queue pair: make one on the \
                 queue pair's")]
        AhOfOtherDevice = EINVAL,
        /// A destination that is not of the queue pair's service.
        #[error("a {qp_type} queue pair sends {}", whom(*.qp_type))]
        Destination { qp_type: QpType } = EINVAL,
        #[error("{given} bytes or pieces of data with an operation that has none")]
        NoData { given: u64 } = EINVAL,
        /// READ, atomic, ATOMIC WRITE or FLUSH on a queue pair whose `max_rd_atomic` is 0.
        #[error("READ, atomics, ATOMIC WRITE and FLUSH need max_rd_atomic of at least 1; this \
                 queue pair has 0")]
        NoReadDepth = EINVAL,
        #[error("a queue pair of type {qp_type} has no such operation")]
        Unsupported { qp_type: QpType } = EOPNOTSUPP,
    }
}

/// Whom a queue pair sends to, for an error text.
const fn whom(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Ud | QpType::Gsi => {
            "to an address handle, a queue pair and its Q_Key, and the request names none"
        }
        QpType::XrcSend => "to a shared receive queue of its peer, and the request names none",
        _ => "to its peer only, and the request names somebody else",
    }
}
