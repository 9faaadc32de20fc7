//! A work completion: the result of a work request.
//!
//! Numbers and names are those of `struct ibv_wc` (libibverbs `verbs.h`), which corresponds to the
//! work completion of IBTA vol. 1, 11.4.2.1. Every message of a connection makes one or two
//! completions, so [`Completion`] is small and `Copy`.
//!
//! In a completion with an error only `wr_id`, `status` and `qp_num` are valid. libibverbs also has
//! a valid `vendor_err`, which is always 0 here.

use urxe_wire::{Qpn, Rkey};

mod error;
#[cfg(test)]
mod tests;

pub use self::error::WcError;

crate::named_enum! {
    /// Result of a work request (`enum ibv_wc_status`), named as by `ibv_wc_status_str`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum WcStatus: as_str, number -> u8, from_number(u32) {
        /// The work request succeeded.
        #[default]
        Success = 0 => "success",
        /// A message exceeds the posted buffers or the limits of the operation.
        LocLenErr = 1 => "local length error",
        /// The queue pair could not execute the request, for an internal reason.
        LocQpOpErr = 2 => "local QP operation error",
        /// Inconsistent end-to-end context. Used by Reliable Datagram only.
        LocEecOpErr = 3 => "local EE context operation error",
        /// A scatter-gather entry names memory that this queue pair must not use in that way.
        LocProtErr = 4 => "local protection error",
        /// The queue pair entered the error state before it executed the request.
        WrFlushErr = 5 => "Work Request Flushed Error",
        /// Binding a memory window failed.
        MwBindErr = 6 => "memory management operation error",
        /// The response is not valid.
        BadRespErr = 7 => "bad response error",
        /// A remote operation (WRITE with immediate data) failed the local access checks.
        LocAccessErr = 8 => "local access error",
        /// The responder reported an invalid request.
        RemInvReqErr = 9 => "remote invalid request error",
        /// The responder reported a violation of access rights.
        RemAccessErr = 10 => "remote access error",
        /// The responder could not execute the request, for an internal reason.
        RemOpErr = 11 => "remote operation error",
        /// No response arrived after all retries.
        RetryExcErr = 12 => "transport retry counter exceeded",
        /// The responder had no receive posted after all retries.
        RnrRetryExcErr = 13 => "RNR retry counter exceeded",
        /// Used by Reliable Datagram only.
        LocRddViolErr = 14 => "local RDD violation error",
        /// Used by Reliable Datagram only.
        RemInvRdReqErr = 15 => "remote invalid RD request",
        /// The responder aborted the operation.
        RemAbortErr = 16 => "aborted error",
        /// Used by Reliable Datagram only.
        InvEecnErr = 17 => "invalid EE context number",
        /// Used by Reliable Datagram only.
        InvEecStateErr = 18 => "invalid EE context state",
        /// The device failed.
        FatalErr = 19 => "fatal error",
        /// Used by Reliable Datagram only.
        RespTimeoutErr = 20 => "response timeout error",
        /// Any other reason.
        GeneralErr = 21 => "general error",
        /// Tag matching failed. Not used here.
        TmErr = 22 => "TM error",
        /// Tag matching left the rendezvous to software. Not used here.
        TmRndvIncomplete = 23 => "TM software rendezvous",
    }
}

impl WcStatus {
    /// Returns whether the work request succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

crate::named_enum! {
    /// Type of the completed work request (`enum ibv_wc_opcode`, without hardware tag matching).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum WcOpcode: as_str, number -> u8 {
        /// SEND of any kind.
        #[default]
        Send = 0 => "IBV_WC_SEND",
        /// RDMA WRITE, with or without immediate data.
        RdmaWrite = 1 => "IBV_WC_RDMA_WRITE",
        /// RDMA READ.
        RdmaRead = 2 => "IBV_WC_RDMA_READ",
        /// Atomic compare-and-swap.
        CompSwap = 3 => "IBV_WC_COMP_SWAP",
        /// Atomic fetch-and-add.
        FetchAdd = 4 => "IBV_WC_FETCH_ADD",
        /// Bind of a memory window.
        BindMw = 5 => "IBV_WC_BIND_MW",
        /// Local invalidation of a key.
        LocalInv = 6 => "IBV_WC_LOCAL_INV",
        /// Segmented send of a datagram queue pair. Not used here.
        Tso = 7 => "IBV_WC_TSO",
        /// FLUSH.
        Flush = 8 => "IBV_WC_FLUSH",
        /// ATOMIC WRITE.
        AtomicWrite = 9 => "IBV_WC_ATOMIC_WRITE",
        /// Fast registration. The kernel has this number, libibverbs does not.
        RegMr = 10 => "IB_WC_REG_MR",
        /// A receive that a SEND consumed.
        Recv = 128 => "IBV_WC_RECV",
        /// A receive that an RDMA WRITE with immediate data consumed.
        RecvRdmaWithImm = 129 => "IBV_WC_RECV_RDMA_WITH_IMM",
    }
}

impl WcOpcode {
    /// Returns whether a receive completed, which bit 7 of the number states.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        self.number() & Self::Recv.number() != 0
    }
}

bitflags::bitflags! {
    /// The valid parts of a completion (`enum ibv_wc_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcFlags: u8 {
        /// The receive buffer starts with a GRH (UD).
        const GRH = 1;
        /// The message carried immediate data.
        const WITH_IMM = 1 << 1;
        /// The IP checksum was checked and is correct.
        const IP_CSUM_OK = 1 << 2;
        /// The message invalidated a key.
        const WITH_INV = 1 << 3;
    }
}

/// A work completion (`struct ibv_wc` and the completion time of `struct ibv_cq_ex`).
///
/// A failed request also makes a completion. [`ok`](Self::ok) turns its status into an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use = "the request may have failed: call `ok`, or assign the completion to `_`"]
pub struct Completion {
    /// Identifier of the work request, as the program posted it.
    pub wr_id: u64,
    /// Time of completion in nanoseconds of the core's clock, or 0 if not measured.
    pub timestamp_ns: u64,
    /// Number of bytes received or read. Not valid for sends and writes.
    pub byte_len: u32,
    /// Always 0. The field exists for programs that print it.
    pub vendor_err: u32,
    /// The local queue pair.
    pub qp_num: Qpn,
    /// The sender's queue pair (UD receives).
    pub src_qp: Qpn,
    /// Immediate data or the invalidated key, which share a field as in `struct ibv_wc`. Of a send,
    /// its position in the send queue.
    detail: u32,
    /// Index of the partition key (UD receives).
    pub pkey_index: u16,
    /// Source LID (UD receives), always 0 in RoCE.
    pub slid: u16,
    /// Result.
    pub status: WcStatus,
    /// Type of the completed request.
    pub opcode: WcOpcode,
    /// The valid parts.
    flags: WcFlags,
    /// Service level (UD receives): 10 for a packet over IPv4, 9 over IPv6, as NVIDIA's devices.
    pub sl: u8,
}

impl Completion {
    /// Returns the completion of `wr_id` on `qp_num`, with 0 in all other fields.
    pub fn new(wr_id: u64, qp_num: Qpn, opcode: WcOpcode, status: WcStatus) -> Self {
        Self { wr_id, qp_num, opcode, status, ..Self::default() }
    }

    /// Returns this completion with `imm_data` in host order, and without an invalidated key.
    pub fn with_imm(mut self, imm_data: u32) -> Self {
        self.detail = imm_data;
        self.flags.remove(WcFlags::WITH_INV);
        self.flags.insert(WcFlags::WITH_IMM);
        self
    }

    /// Returns this completion with the key that the message invalidated, and without immediate
    /// data.
    pub fn with_invalidated(mut self, rkey: Rkey) -> Self {
        self.detail = rkey.value();
        self.flags.remove(WcFlags::WITH_IMM);
        self.flags.insert(WcFlags::WITH_INV);
        self
    }

    /// Returns this completion of a send, with its position in the send queue modulo 2^32.
    #[inline(always)]
    pub const fn with_send_position(mut self, position: u32) -> Self {
        self.detail = position;
        self
    }

    /// Returns the position in the send queue of a send, modulo 2^32.
    #[must_use]
    pub const fn send_position(&self) -> Option<u32> {
        if self.opcode.is_receive() { None } else { Some(self.detail) }
    }

    /// Returns this completion for a receive buffer that starts with a GRH.
    pub fn with_grh(mut self) -> Self {
        self.flags.insert(WcFlags::GRH);
        self
    }

    /// Returns this completion for `bytes` received or read.
    pub const fn with_byte_len(mut self, bytes: u32) -> Self {
        self.byte_len = bytes;
        self
    }

    /// Returns the completion, if its request succeeded.
    ///
    /// # Errors
    /// Fails with [`WcError`], which names the operation, the queue pair and `wr_id`.
    pub const fn ok(self) -> Result<Self, WcError> {
        match self.status {
            WcStatus::Success => Ok(self),
            status => {
                Err(WcError { status, opcode: self.opcode, qp_num: self.qp_num, wr_id: self.wr_id })
            }
        }
    }

    /// Returns the flags for the valid parts.
    #[must_use]
    pub const fn flags(&self) -> WcFlags {
        self.flags
    }

    /// Returns the message's immediate data in host order, if any.
    #[must_use]
    pub fn imm_data(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.detail)
    }

    /// Returns the key that the message invalidated, if any.
    #[must_use]
    pub fn invalidated_rkey(&self) -> Option<Rkey> {
        self.flags.contains(WcFlags::WITH_INV).then_some(Rkey(self.detail))
    }
}
