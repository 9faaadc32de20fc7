//! One work completion: what became of a work request.
//!
//! Numbers and names are those of `struct ibv_wc` (libibverbs `verbs.h`), which carry the work
//! completion of IBTA vol. 1, 11.4.2.1. [`Completion`] is small and `Copy`, since every message of
//! a connection makes one or two of them.
//!
//! Of a completion in error only `wr_id`, `status` and `qp_num` mean something; in libibverbs
//! `vendor_err` as well, which is 0 here.

use urxe_wire::{Qpn, Rkey};

#[cfg(test)]
mod tests;

crate::named_enum! {
    /// Outcome of a work request (`enum ibv_wc_status`), named as by `ibv_wc_status_str`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum WcStatus: as_str, number -> u8, from_number(u32) {
        /// The work request was carried out.
        #[default]
        Success = 0 => "success",
        /// A message does not fit the posted buffers or the operation's limits.
        LocLenErr = 1 => "local length error",
        /// The queue pair could not carry out the request, for a reason inside it.
        LocQpOpErr = 2 => "local QP operation error",
        /// Inconsistency of an end-to-end context (reliable datagrams; does not occur here).
        LocEecOpErr = 3 => "local EE context operation error",
        /// A local scatter-gather entry names no memory that this queue pair may use that way.
        LocProtErr = 4 => "local protection error",
        /// The queue pair entered the error state before the request was carried out.
        WrFlushErr = 5 => "Work Request Flushed Error",
        /// A memory window could not be bound.
        MwBindErr = 6 => "memory management operation error",
        /// The responder's answer makes no sense.
        BadRespErr = 7 => "bad response error",
        /// A remote operation (WRITE with immediate) failed the local access checks.
        LocAccessErr = 8 => "local access error",
        /// The responder says that the request is invalid.
        RemInvReqErr = 9 => "remote invalid request error",
        /// The responder says that the memory may not be used that way.
        RemAccessErr = 10 => "remote access error",
        /// The responder could not carry out the request, for a reason inside it.
        RemOpErr = 11 => "remote operation error",
        /// No answer came, however often the request was sent.
        RetryExcErr = 12 => "transport retry counter exceeded",
        /// The responder had no receive posted, however often the request was sent.
        RnrRetryExcErr = 13 => "RNR retry counter exceeded",
        /// Reliable datagrams only; does not occur here.
        LocRddViolErr = 14 => "local RDD violation error",
        /// Reliable datagrams only; does not occur here.
        RemInvRdReqErr = 15 => "remote invalid RD request",
        /// The responder aborted the operation.
        RemAbortErr = 16 => "aborted error",
        /// Reliable datagrams only; does not occur here.
        InvEecnErr = 17 => "invalid EE context number",
        /// Reliable datagrams only; does not occur here.
        InvEecStateErr = 18 => "invalid EE context state",
        /// The device failed.
        FatalErr = 19 => "fatal error",
        /// Reliable datagrams only; does not occur here.
        RespTimeoutErr = 20 => "response timeout error",
        /// None of the other reasons.
        GeneralErr = 21 => "general error",
        /// Tag matching failed (does not occur here).
        TmErr = 22 => "TM error",
        /// Tag matching left the rendezvous to software (does not occur here).
        TmRndvIncomplete = 23 => "TM software rendezvous",
    }
}

impl WcStatus {
    /// Whether the work request was carried out.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

crate::named_enum! {
    /// Kind of the completed work request (`enum ibv_wc_opcode`, without hardware tag matching),
    /// named as there.
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
        /// Memory window bind.
        BindMw = 5 => "IBV_WC_BIND_MW",
        /// Local invalidation of a key.
        LocalInv = 6 => "IBV_WC_LOCAL_INV",
        /// Segmented send of a datagram queue pair (does not occur here).
        Tso = 7 => "IBV_WC_TSO",
        /// FLUSH.
        Flush = 8 => "IBV_WC_FLUSH",
        /// ATOMIC WRITE.
        AtomicWrite = 9 => "IBV_WC_ATOMIC_WRITE",
        /// Fast registration (the number is the kernel's; libibverbs has none).
        RegMr = 10 => "IB_WC_REG_MR",
        /// A receive that a SEND consumed.
        Recv = 128 => "IBV_WC_RECV",
        /// A receive that an RDMA WRITE with immediate data consumed.
        RecvRdmaWithImm = 129 => "IBV_WC_RECV_RDMA_WITH_IMM",
    }
}

impl WcOpcode {
    /// Whether a receive completed: the number has bit 7, as libibverbs promises.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        self.number() & Self::Recv.number() != 0
    }
}

bitflags::bitflags! {
    /// Which parts of a completion are valid (`enum ibv_wc_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcFlags: u8 {
        /// The receive buffer starts with a GRH (UD).
        const GRH = 1;
        /// The message carried immediate data.
        const WITH_IMM = 1 << 1;
        /// The IP checksum was checked and is right.
        const IP_CSUM_OK = 1 << 2;
        /// The message invalidated a key.
        const WITH_INV = 1 << 3;
    }
}

/// A work completion (`struct ibv_wc` and the completion time of `struct ibv_cq_ex`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The work request's identifier, as the program posted it.
    pub wr_id: u64,
    /// When the request completed, in nanoseconds of the core's clock; 0 where nobody took the
    /// time.
    pub timestamp_ns: u64,
    /// Bytes received or read. Not valid for sends and writes.
    pub byte_len: u32,
    /// Always 0: the status says all that there is to say. There for programs that print it.
    pub vendor_err: u32,
    /// The local queue pair.
    pub qp_num: Qpn,
    /// The sender's queue pair (UD receives).
    pub src_qp: Qpn,
    /// Immediate data or the invalidated key: they share their place, as in `struct ibv_wc`.
    imm_or_rkey: u32,
    /// Index of the partition key (UD receives).
    pub pkey_index: u16,
    /// Source LID (UD receives); always 0 in RoCE.
    pub slid: u16,
    /// Outcome.
    pub status: WcStatus,
    /// Kind of the completed request.
    pub opcode: WcOpcode,
    /// Which parts are valid.
    flags: WcFlags,
    /// Service level (UD receives).
    pub sl: u8,
}

impl Completion {
    /// The completion of `wr_id` on `qp_num`, all other fields 0.
    #[must_use]
    pub fn new(wr_id: u64, qp_num: Qpn, opcode: WcOpcode, status: WcStatus) -> Self {
        Self { wr_id, qp_num, opcode, status, ..Self::default() }
    }

    /// This completion with `imm_data`, in host order, and no invalidated key.
    #[must_use]
    pub fn with_imm(mut self, imm_data: u32) -> Self {
        self.imm_or_rkey = imm_data;
        self.flags.remove(WcFlags::WITH_INV);
        self.flags.insert(WcFlags::WITH_IMM);
        self
    }

    /// This completion with the key that the message invalidated, and no immediate data.
    #[must_use]
    pub fn with_invalidated(mut self, rkey: Rkey) -> Self {
        self.imm_or_rkey = rkey.value();
        self.flags.remove(WcFlags::WITH_IMM);
        self.flags.insert(WcFlags::WITH_INV);
        self
    }

    /// This completion of a receive whose buffer starts with a GRH.
    #[must_use]
    pub fn with_grh(mut self) -> Self {
        self.flags.insert(WcFlags::GRH);
        self
    }

    /// This completion of `bytes` received or read.
    #[must_use]
    pub const fn with_byte_len(mut self, bytes: u32) -> Self {
        self.byte_len = bytes;
        self
    }

    /// Which parts are valid.
    #[must_use]
    pub const fn flags(&self) -> WcFlags {
        self.flags
    }

    /// The message's immediate data, in host order.
    #[must_use]
    pub fn imm_data(&self) -> Option<u32> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.imm_or_rkey)
    }

    /// The key that the message invalidated.
    #[must_use]
    pub fn invalidated_rkey(&self) -> Option<Rkey> {
        self.flags.contains(WcFlags::WITH_INV).then_some(Rkey(self.imm_or_rkey))
    }
}
