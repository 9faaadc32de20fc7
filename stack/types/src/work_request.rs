//! Work requests, which a program posts to a queue.
//!
//! The types follow `ibv_send_wr` and `ibv_recv_wr`. An operation has only the fields that it uses,
//! so a meaningless combination cannot be expressed. Immediate data is in host order.

use std::net::IpAddr;

use bitflags::bitflags;
use urxe_wire::{Lkey, PlacementType, QKey, Qpn, Rkey, Service};

use crate::access::{Access, Bind};
use crate::allocate::OutOfMemory;
use crate::attr::{QpState, QpType};
use crate::completion::WcOpcode;
use crate::ids::SrqId;
use crate::names::DeviceName;

/// The largest number of a shared receive queue, 24 bits.
const MAX_SRQ_NUMBER: u32 = 0x00ff_ffff;

/// A range of local memory: `length` bytes at `addr`, within the region of `lkey`. The layout is
/// that of `ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Sge {
    /// Address in the region's address space (its `iova`).
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// A location in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Address in the peer region's address space.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
}

/// The operation of a send work request.
///
/// There are no masked atomics (`IB_WR_MASKED_ATOMIC_*` of the kernel). IBTA assigns no opcode to
/// them, `ib_pack.h` lists none, and some adapters use manufacturer-defined opcodes that other
/// peers do not know. `ibv_post_send` has no such operation either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message to the peer's next receive.
    #[default]
    Send,
    /// Sends a message with four bytes of immediate data.
    SendImm {
        /// Immediate data.
        imm: u32,
    },
    /// Sends a message and invalidates a key of the peer (C9-90).
    SendInvalidate {
        /// The key to invalidate.
        rkey: Rkey,
    },
    /// Writes to the peer's memory.
    Write {
        /// Destination of the data.
        remote: Remote,
    },
    /// Writes to the peer's memory, then completes one of the peer's receives with immediate data.
    WriteImm {
        /// Destination of the data.
        remote: Remote,
        /// Immediate data.
        imm: u32,
    },
    /// Reads from the peer's memory.
    Read {
        /// Source of the data.
        remote: Remote,
    },
    /// Atomic compare and swap of eight bytes. The original value is stored in the local buffer.
    CompareSwap {
        /// Location of the eight bytes, aligned to eight.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Atomic fetch and add of eight bytes. The original value is stored in the local buffer.
    FetchAdd {
        /// Location of the eight bytes, aligned to eight.
        remote: Remote,
        /// The value to add, wrapping.
        add: u64,
    },
    /// Binds a memory window of either type. A local operation without data.
    BindMw(Bind),
    /// Makes a fast-registration region valid for the memory that was mapped last. A local
    /// operation without data.
    RegMr {
        /// The new key. Its upper 24 bits must name the region. The program chooses the low 8 bits.
        key: Rkey,
        /// The rights that the region grants.
        access: Access,
    },
    /// Invalidates the key of a fast-registration region or a type 2 window. A local operation
    /// without data.
    ///
    /// The operation starts after all earlier work requests have completed (local invalidate fence,
    /// 10.6.5.1). `rdma_rxe` always applies this fence as well (`rxe_req.c`, `rxe_wqe_is_fenced`).
    LocalInv {
        /// The key.
        rkey: Rkey,
    },
    /// Writes eight bytes as one unit (ATOMIC WRITE, A19). Readers see all bytes or none.
    AtomicWrite {
        /// Location of the eight bytes, aligned to eight.
        remote: Remote,
    },
    /// Completes when earlier writes have reached the requested placement (FLUSH, A19). Has no
    /// data.
    Flush {
        /// Start of the range. [`FlushRange::Region`] uses only the key.
        remote: Remote,
        /// The requested placement.
        placement: PlacementType,
        /// The part of the peer's memory.
        range: FlushRange,
    },
}

/// The memory that a FLUSH covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushRange {
    /// This number of bytes from the address.
    Bytes(u32),
    /// The whole region of the key.
    Region,
}

impl SendOp {
    /// Returns the opcode of this operation's completion.
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

    /// Returns whether the peer responds with data: READ and the atomics.
    #[must_use]
    pub const fn returns_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns whether the device executes the operation locally, without a packet.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindMw(_) | Self::RegMr { .. } | Self::LocalInv { .. })
    }

    /// Returns whether the peer sends a separate response: READ, the atomics, ATOMIC WRITE and
    /// FLUSH (`rxe_resp.c`). No later acknowledgement covers such a request. These operations count
    /// towards `max_rd_atomic`, and a fence waits for them.
    #[must_use]
    pub const fn has_response(&self) -> bool {
        self.returns_data() || matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// Returns whether the operation is an atomic that returns the original value.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns the rights that the local buffers need.
    #[must_use]
    pub const fn local_access(&self) -> Access {
        if self.returns_data() { Access::LOCAL_WRITE } else { Access::empty() }
    }
}

bitflags! {
    /// Flags of a send work request, with libibverbs' values (`ibv_send_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Starts the request only after all earlier READs and atomics have completed.
        const FENCE = 1;
        /// Generates a completion.
        const SIGNALED = 2;
        /// Notifies a peer that requested notification of solicited completions.
        const SOLICITED = 4;
        /// Copies the data at once. The memory of the data need not be registered.
        const INLINE = 8;
    }
}

/// The data of a send work request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Data in registered memory.
    Sges(&'a [Sge]),
    /// Inline data: the slices are copied, one after the other, when the request is posted.
    Inline(&'a [&'a [u8]]),
}

/// Identifier of an address handle of a device. After the handle is destroyed, every use of the
/// identifier fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AhHandle {
    /// Index in the device's table.
    pub index: u32,
    /// Number of earlier uses of that table entry.
    pub generation: u32,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// The queue pair's peer, for connected services.
    #[default]
    Peer,
    /// A shared receive queue of the peer's XRC domain, for the sending end of an XRC connection.
    XrcSrq {
        /// The peer's `Srq::id`, below 2^24.
        srq: SrqId,
    },
    /// A datagram queue pair anywhere, or a multicast group.
    Datagram {
        /// Address of the destination.
        ah: AhHandle,
        /// The destination queue pair, or 0xffffff for a multicast group.
        qpn: Qpn,
        /// Q_Key of the destination. If the highest bit is set, the packet carries the Q_Key of the
        /// sending queue pair instead (IBTA vol. 1, 10.2.5). `rdma_rxe` sends the key of the
        /// request (rxe_req.c).
        qkey: QKey,
    },
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Identifier, which the completion returns.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// The destination.
    pub to: Destination,
    /// The flags.
    pub flags: SendFlags,
    /// The data to send. For READ and atomics, the buffer for the response.
    pub payload: Payload<'a>,
}

impl SendRequest<'_> {
    /// Returns the number of payload bytes to send.
    pub fn sent_len(&self) -> u64 {
        match self.payload {
            _ if self.op.returns_data() || self.op.is_local() => 0,
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Payload::Inline(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// Checks that a queue pair of type `qp_type` supports the destination and the operation.
    ///
    /// # Errors
    /// - [`PostError::SrqNumber`]: the number of the shared receive queue exceeds 24 bits.
    /// - [`PostError::Destination`]: the service does not send to such a destination.
    /// - [`PostError::Unsupported`]: the service does not have the operation.
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
    /// Identifier, which the completion returns.
    pub wr_id: u64,
    /// The buffers for the message.
    pub sges: &'a [Sge],
}

crate::errors! {
    /// The reason why a work request was rejected. The queue is unchanged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum PostError {
        /// The queue pair does not exist or was destroyed.
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        /// The queue pair is an end of an XRC connection, which has at most one queue.
        #[error("a {qp_type} queue pair has no {queue} queue")]
        NoQueue { qp_type: QpType, queue: &'static str } = EINVAL,
        /// `given`: the number that a request to an XRC domain names.
        #[error("shared receive queue number {given:#x} is not valid: XRC allows numbers \
                 below 0x1000000")]
        SrqNumber { given: u32 } = EINVAL,
        /// The shared receive queue does not exist or was destroyed.
        #[error("no such shared receive queue: it was destroyed")]
        NoSrq = EINVAL,
        /// The queue pair uses a shared receive queue.
        #[error("the queue pair uses a shared receive queue: post the receive to that queue")]
        SharedReceive = EINVAL,
        /// Only a multicast group has queue pair number 0xffffff, and it has no other.
        #[error("queue pair {given} at {to}: use queue pair {} for a multicast group, and only \
                 for that", Qpn::MULTICAST)]
        GroupNumber { given: Qpn, to: IpAddr } = EINVAL,
        /// The queue pair is not connected yet, or was reset.
        #[error("the queue pair is in state {state}: sends need RTS (or SQD, ERR), receives INIT \
                 or later; connect it first (ibv_modify_qp, in Rust QueuePair::connect)")]
        State { state: QpState } = EINVAL,
        /// `capacity`: the number of entries of the queue, as created.
        #[error("the queue holds {capacity} work requests and all are outstanding: poll for \
                 completions first")]
        QueueFull { capacity: u32 } = ENOMEM,
        /// Only with `DeviceBuilder::strict_queues` or `URXE_STRICT=queues`.
        #[error("all {capacity} entries of the send queue are in use until a completion of theirs \
                 is polled (strict queues): signal at least one of each {capacity} sends, and poll \
                 its completion")]
        NotPolled { capacity: u32 } = ENOMEM,
        /// `allowed`: `max_send_sge` or `max_recv_sge` of the queue pair.
        #[error("{given} scatter-gather entries, but the queue was created for at most {allowed}")]
        TooManySges { given: usize, allowed: u32 } = EINVAL,
        /// `allowed`: `max_inline_data` of the queue pair. Registered memory has no such limit.
        #[error("{given} bytes of inline data; the queue pair was created for at most {allowed}")]
        TooMuchInline { given: usize, allowed: u32 } = EINVAL,
        /// `given`: the sum of all pieces. `allowed`: the limit of the port, or the path MTU of a
        /// datagram.
        #[error("a message of {given} bytes exceeds the maximum of {allowed} bytes")]
        TooLong { given: u64, allowed: u64 } = EINVAL,
        /// The local buffer gets the former value of the 8 bytes of the peer.
        #[error("an atomic operation returns 8 bytes, but the local buffer has {given} bytes")]
        AtomicLength { given: u64 } = EINVAL,
        /// The remote address of an atomic is not a multiple of eight.
        #[error("the remote address {addr:#x} of an atomic operation is not a multiple of 8")]
        AtomicAlignment { addr: u64 } = EINVAL,
        /// `given`: the number of bytes of all pieces.
        #[error("an ATOMIC WRITE needs exactly 8 bytes of data, but has {given}")]
        AtomicWriteLength { given: u64 } = EINVAL,
        /// A FLUSH concerns data of earlier requests.
        #[error("a FLUSH must not have data, but has {given} bytes")]
        FlushWithData { given: u64 } = EINVAL,
        /// `given`: the bits of the placement type.
        #[error("placement {given:#x} of a FLUSH is not valid: use global visibility (1), \
                 persistence (2) or both (3)")]
        FlushPlacement { given: u8 } = EINVAL,
        /// READ and atomics return data, so they cannot use inline data.
        #[error("an operation that returns data cannot use inline data")]
        InlineReturnsData = EINVAL,
        /// The address handle does not exist or was destroyed.
        #[error("no such address handle: it was destroyed")]
        NoAh = EINVAL,
        /// The address handle belongs to another protection domain. `rdma_rxe` fails such a request
        /// when it sends the packet (rxe_av.c).
        #[error("the address handle belongs to another protection domain: create one in the \
                 protection domain of the queue pair")]
        AhOfOtherPd = EINVAL,
        /// The address handle belongs to another device, where it may name another peer.
        #[error("the address handle belongs to device {ah}, but the queue pair to {} {queue}: \
                 create one there", other_device(*ah, *queue))]
        AhOfOtherDevice { ah: DeviceName, queue: DeviceName } = EINVAL,
        /// A slice, window or region belongs to another device. Its key may name other memory here.
        #[error("memory of the request is registered on device {memory}, but the queue belongs to \
                 {} {queue}: register the memory there", other_device(*memory, *queue))]
        MemoryOfOtherDevice { memory: DeviceName, queue: DeviceName } = EINVAL,
        /// The service of the queue pair does not send to such a destination.
        #[error("a {qp_type} queue pair sends {}", allowed_destination(*.qp_type))]
        Destination { qp_type: QpType } = EINVAL,
        /// A request without data is a bind, an invalidation or a registration.
        #[error("the operation has no data, but {given} bytes or pieces of data were given")]
        NoData { given: u64 } = EINVAL,
        /// The queue pair has a `max_rd_atomic` of 0.
        #[error("READ, atomics, ATOMIC WRITE and FLUSH need a max_rd_atomic of at least 1, but \
                 the queue pair has 0")]
        NoReadDepth = EINVAL,
        /// The service of the queue pair has no packet for the operation, such as a READ of an
        /// unreliable connection.
        #[error("a {qp_type} queue pair does not support this operation")]
        Unsupported { qp_type: QpType } = EOPNOTSUPP,
        /// The system had no memory for the list of scatter-gather entries.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }
}

/// Returns the words before the name of the second of two different devices.
fn other_device(first: DeviceName, second: DeviceName) -> &'static str {
    if first == second { "another open device" } else { "device" }
}

/// Returns the allowed destinations of a queue pair, for an error text.
const fn allowed_destination(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Ud | QpType::Gsi => {
            "to an address handle and a queue pair with its Q_Key, but the request has none"
        }
        QpType::XrcSend => "to a shared receive queue of its peer, but the request has none",
        _ => "only to its peer, but the request has another destination",
    }
}
