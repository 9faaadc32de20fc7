//! The error of a failed work request.

use std::fmt;

use urxe_wire::Qpn;

use super::{WcOpcode, WcStatus};

/// A work request that failed, made by [`Completion::ok`](super::Completion::ok).
///
/// The message names the operation, `wr_id`, the queue pair and the status, and for the frequent
/// statuses also the usual cause. The alternate form (`{:#}`) omits `wr_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WcError {
    /// The status, which is not [`WcStatus::Success`].
    pub status: WcStatus,
    /// The type of the request. A receive has [`WcOpcode::Recv`], whatever message filled it.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qp_num: Qpn,
    /// The identifier of the request, as the program posted it.
    pub wr_id: u64,
}

impl fmt::Display for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, opcode, qp_num, wr_id } = *self;
        f.write_str(operation(opcode))?;
        if !f.alternate() {
            write!(f, " with wr_id {wr_id}")?;
        }
        write!(f, " on queue pair {qp_num} failed: {status}{}", hint(status))
    }
}

impl std::error::Error for WcError {}

/// Returns the name of an operation in a sentence.
const fn operation(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send | WcOpcode::Tso => "SEND",
        WcOpcode::RdmaWrite => "RDMA WRITE",
        WcOpcode::RdmaRead => "RDMA READ",
        WcOpcode::CompSwap => "COMPARE AND SWAP",
        WcOpcode::FetchAdd => "FETCH AND ADD",
        WcOpcode::BindMw => "bind of a memory window",
        WcOpcode::LocalInv => "invalidation of a key",
        WcOpcode::Flush => "FLUSH",
        WcOpcode::AtomicWrite => "ATOMIC WRITE",
        WcOpcode::RegMr => "fast registration",
        WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => "receive",
    }
}

/// Returns the usual cause of a status, with the separator before it.
const fn hint(status: WcStatus) -> &'static str {
    match status {
        WcStatus::LocLenErr => "; the message is longer than the memory of the request",
        WcStatus::LocProtErr => {
            "; a region of the request is gone, or does not grant this use to the queue pair"
        }
        WcStatus::WrFlushErr => {
            "; the connection ended, or the queue pair entered the error state before, for a \
             reason that an earlier completion or an event has"
        }
        WcStatus::MwBindErr => "; the region or the window does not allow the bind",
        WcStatus::RemInvReqErr => {
            "; the queue pair of the peer does not allow the operation, or its receive is too short"
        }
        WcStatus::RemAccessErr => {
            "; at the peer, the key is unknown, or its region does not grant the access to these \
             bytes"
        }
        WcStatus::RetryExcErr => "; the peer is gone, or UDP port 4791 does not pass both ways",
        WcStatus::RnrRetryExcErr => "; the peer posted no receive in time",
        _ => "",
    }
}
