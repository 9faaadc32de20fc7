//! What is moved.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes that an atomic operation changes.
pub const ATOMIC_SIZE: usize = 8;

/// An operation of the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// SEND into posted receives
    Send,
    /// RDMA WRITE
    Write,
    /// RDMA WRITE with immediate data
    WriteImm,
    /// RDMA READ
    Read,
    /// Atomic fetch and add of 8 bytes
    FetchAdd,
    /// Atomic compare and swap of 8 bytes
    CmpSwap,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Write, Self::WriteImm, Self::Read, Self::FetchAdd, Self::CmpSwap];
    /// Those that change eight bytes.
    pub const ATOMICS: [Self; 2] = [Self::FetchAdd, Self::CmpSwap];

    /// Whether it completes a receive of the peer.
    pub const fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it changes eight bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// Whether the request carries data.
    pub const fn carries_data(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::WriteImm)
    }

    /// Whether its latency is that of a message to and fro, halved; else it is from post to
    /// completion.
    pub const fn is_ping_pong(self) -> bool {
        self.carries_data()
    }

    /// Bytes of a datagram beside its payload (IBTA vol. 1, chapter 9: BTH 12, RETH 16, AETH 4,
    /// AtomicETH 28, immediate 4, ICRC 4): of the only packet of a message, or of most packets of
    /// one that has several.
    pub const fn overhead(self, single: bool) -> usize {
        match self {
            Self::FetchAdd | Self::CmpSwap => 12 + 28 + 4 - ATOMIC_SIZE,
            Self::Write if single => 12 + 16 + 4,
            Self::WriteImm if single => 12 + 16 + 4 + 4,
            Self::Read if single => 12 + 4 + 4,
            _ => 12 + 4,
        }
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
            Self::CmpSwap => "CMP_SWAP",
        })
    }
}
