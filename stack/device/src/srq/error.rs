//! Why a call on a shared receive queue was refused, and the errno that libibverbs' call gives for
//! it.

use super::xrcd::XrcdError;
use crate::cq::{CqError, CqId, SrqId};

/// Why a shared receive queue cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SrqError {
    /// It is gone.
    #[error("the shared receive queue was destroyed")]
    Destroyed,
    /// It is of an XRC domain, or should be.
    #[error("shared receive queue {} is of an XRC domain: its messages come through target queue pairs", given.0)]
    Xrc {
        /// Its number.
        given: SrqId,
    },
    /// It is of another device.
    #[error("shared receive queue {} belongs to another device", given.0)]
    OtherDevice {
        /// Its number on its own device.
        given: SrqId,
    },
}

impl SrqError {
    /// The number that libibverbs' calls return for this.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::EINVAL
    }
}

/// A size that the device does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {given}, not {min} to {max}")]
pub struct SrqSizeError {
    /// The field's name in `struct ibv_srq_attr`.
    pub field: &'static str,
    /// What was asked for.
    pub given: u32,
    /// The least that is allowed.
    pub min: u32,
    /// The most that is allowed.
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

/// Why a shared receive queue was not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateSrqError {
    /// One of its sizes.
    #[error(transparent)]
    Size(#[from] SrqSizeError),
    /// The protection domain does not exist.
    #[error("there is no such protection domain: it was deallocated")]
    NoPd,
    /// The XRC domain.
    #[error(transparent)]
    Xrcd(#[from] XrcdError),
    /// The completion queue of an XRC shared receive queue.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// The completion queue of an XRC shared receive queue is of another device.
    #[error("completion queue {} belongs to another device", given.0)]
    OtherCq {
        /// Its number on its own device.
        given: CqId,
    },
    /// All of them are in use.
    #[error("the device has {allowed} shared receive queues and all are in use")]
    NoneLeft {
        /// How many there are.
        allowed: u32,
    },
}

impl CreateSrqError {
    /// The errno that `ibv_create_srq` sets.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Size(_) | Self::NoPd | Self::Xrcd(_) | Self::OtherCq { .. } => libc::EINVAL,
            Self::Cq(error) => error.errno(),
            Self::NoneLeft { .. } => libc::ENOMEM,
        }
    }
}

/// Why a shared receive queue was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifySrqError {
    /// It was destroyed.
    #[error("the shared receive queue was destroyed")]
    NoSrq,
    /// Attributes that nobody knows.
    #[error(
        "the attribute mask has {given:#x}; only IBV_SRQ_MAX_WR (0x1) and IBV_SRQ_LIMIT (0x2) exist"
    )]
    Mask {
        /// The bits that mean nothing.
        given: u32,
    },
    /// Its new size.
    #[error(transparent)]
    Size(#[from] SrqSizeError),
    /// It holds more than its new size.
    #[error("the shared receive queue holds {held} receives and cannot shrink to {given}")]
    Holds {
        /// What was asked for.
        given: u32,
        /// What it holds.
        held: u32,
    },
    /// A limit that would always be undercut.
    #[error("srq_limit is {given}, and the shared receive queue holds {max_wr} receives at most")]
    Limit {
        /// The limit, as given or as it is armed.
        given: u32,
        /// Its size, as given or as it is.
        max_wr: u32,
    },
}

impl ModifySrqError {
    /// The errno that `ibv_modify_srq` returns.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::EINVAL
    }
}

/// Why a shared receive queue was not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestroySrqError {
    /// It is gone already.
    #[error("the shared receive queue was destroyed before")]
    NoSrq,
    /// Queue pairs take from it.
    #[error("{users} queue pairs take from the shared receive queue")]
    Busy {
        /// How many.
        users: u32,
    },
}

impl DestroySrqError {
    /// The errno that `ibv_destroy_srq` returns.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoSrq => libc::EINVAL,
            Self::Busy { .. } => libc::EBUSY,
        }
    }
}
