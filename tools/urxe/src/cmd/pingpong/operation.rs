//! What is moved, and by which operation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::transport::Transport;

/// An operation of the default run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// SEND into posted receives.
    #[serde(rename = "SEND")]
    Send,
    /// RDMA WRITE.
    #[serde(rename = "WRITE")]
    Write,
    /// RDMA WRITE with immediate data.
    #[serde(rename = "WRITE_IMM")]
    WriteImm,
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
    /// Those that change eight bytes.
    const ATOMICS: [Self; 2] = [Self::FetchAdd, Self::CompareSwap];
    /// Bytes of an atomic operation.
    pub const ATOMIC_SIZE: usize = 8;

    /// Those of a service that move messages of any size. Over an unreliable connection the
    /// immediate tells that a WRITE has come; nothing else does.
    pub const fn messages(transport: Transport) -> &'static [Self] {
        match transport {
            Transport::Rc => &[Self::Send, Self::Write, Self::Read],
            Transport::Uc => &[Self::Send, Self::WriteImm],
            Transport::Ud => &[Self::Send],
        }
    }

    /// Those of a service that change eight bytes.
    pub const fn atomics(transport: Transport) -> &'static [Self] {
        if transport.is_reliable() { &Self::ATOMICS } else { &[] }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::WriteImm => "WRITE_IMM",
            Self::Read => "READ",
            Self::FetchAdd => "FETCH_ADD",
            Self::CompareSwap => "CMP_SWAP",
        })
    }
}
