//! The errors of calls on shared receive queues, with the errno of the libibverbs call.

use super::xrcd::XrcdError;
use crate::cq::{CqError, CqId, SrqId};
use urxe_types::allocate::OutOfMemory;

urxe_types::errors! {
    /// Why a shared receive queue cannot be used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum SrqError {
        #[error("the shared receive queue was destroyed")]
        Destroyed = EINVAL,
        #[error(
            "shared receive queue {} belongs to an XRC domain: only XRC target queue pairs can use \
             it",
            given.0
        )]
        Xrc { given: SrqId } = EINVAL,
        /// `given`: its number on its own device.
        #[error("shared receive queue {} belongs to another device", given.0)]
        OtherDevice { given: SrqId } = EINVAL,
    }
}

/// A size that the device does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {given}, not {min} to {max}")]
#[non_exhaustive]
pub struct SrqSizeError {
    /// The name of the field in `struct ibv_srq_attr`.
    pub field: &'static str,
    /// The requested value.
    pub given: u32,
    /// The least allowed value.
    pub min: u32,
    /// The largest allowed value.
    pub max: u32,
}

pub(crate) fn check_size(
    field: &'static str,
    given: u32,
    min: u32,
    max: u32,
) -> Result<(), SrqSizeError> {
    match (min..=max).contains(&given) {
        true => Ok(()),
        false => Err(SrqSizeError { field, given, min, max }),
    }
}

urxe_types::errors! {
    /// Why a shared receive queue was not created.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CreateSrqError {
        /// A size is not allowed.
        #[error(transparent)] Size(#[from] SrqSizeError) = EINVAL,
        #[error("there is no such protection domain: it was deallocated")]
        NoPd = EINVAL,
        /// The XRC domain cannot be used.
        #[error(transparent)] Xrcd(#[from] XrcdError),
        /// The completion queue of an XRC shared receive queue cannot be used.
        #[error(transparent)] Cq(#[from] CqError),
        /// That completion queue is for an XRC shared receive queue.
        ///
        /// `given`: its number on its own device.
        #[error("completion queue {} belongs to another device", given.0)]
        OtherCq { given: CqId } = EINVAL,
        #[error("the device has {allowed} shared receive queues and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
        /// The system has no memory for the queue.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// Why a shared receive queue was not changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ModifySrqError {
        #[error("the shared receive queue was destroyed")]
        NoSrq = EINVAL,
        #[error("the attribute mask has {given:#x}; only IBV_SRQ_MAX_WR (0x1) and IBV_SRQ_LIMIT \
                 (0x2) exist")]
        Mask { given: u32 } = EINVAL,
        /// The new size is not allowed.
        #[error(transparent)] Size(#[from] SrqSizeError) = EINVAL,
        #[error("the shared receive queue holds {held} receives and cannot shrink to {given}")]
        Holds { given: u32, held: u32 } = EINVAL,
        /// `given`: the new limit, or the armed one.
        ///
        /// `max_wr`: the new size, or the current one.
        #[error("srq_limit is {given}, and the shared receive queue holds {max_wr} receives at \
                 most")]
        Limit { given: u32, max_wr: u32 } = EINVAL,
        /// The system has no memory for a queue of the new size.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// Why a shared receive queue was not destroyed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DestroySrqError {
        #[error("the shared receive queue was destroyed before")]
        NoSrq = EINVAL,
        #[error("{users} queue pairs use the shared receive queue: destroy them first")]
        Busy { users: u32 } = EBUSY,
    }
}
