//! What is moved, and by which operation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An operation of the default run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// SEND into posted receives.
    #[serde(rename = "SEND")]
    Send,
    /// RDMA WRITE.
    #[serde(rename = "WRITE")]
    Write,
    /// RDMA READ.
    #[serde(rename = "READ")]
    Read,
    /// Atomic fetch and add of 8 bytes.
    #[serde(rename = "FETCH_ADD")]
    FetchAdd,
    /// Atomic compare and swap of 8 bytes.
    #[serde(rename = "CMP_SWAP")]
    CompareSwap,
}

impl Operation {
    /// Those that move messages of any size.
    pub const MESSAGES: [Self; 3] = [Self::Send, Self::Write, Self::Read];
    /// Those that change eight bytes.
    pub const ATOMICS: [Self; 2] = [Self::FetchAdd, Self::CompareSwap];
    /// Bytes of an atomic operation.
    pub const ATOMIC_SIZE: usize = 8;
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::FetchAdd => "FETCH_ADD",
            Self::CompareSwap => "CMP_SWAP",
        })
    }
}
