//! The operations that are measured.

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
    /// All operations.
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Write, Self::WriteImm, Self::Read, Self::FetchAdd, Self::CmpSwap];
    /// The operations that change eight bytes.
    pub const ATOMICS: [Self; 2] = [Self::FetchAdd, Self::CmpSwap];

    /// Returns whether the operation completes a receive of the peer.
    pub const fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Returns whether the operation changes eight bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// Returns whether the request carries data.
    pub const fn carries_data(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::WriteImm)
    }

    /// Returns whether the latency is half a round trip. For other operations it is the time from
    /// post to completion.
    pub const fn is_ping_pong(self) -> bool {
        self.carries_data()
    }

    /// Returns the bytes of a datagram without its payload. `single` selects the only packet of a
    /// message, else most packets of a message with several.
    ///
    /// Lengths: BTH 12, RETH 16, AETH 4, AtomicETH 28, immediate 4, ICRC 4 (IBTA vol. 1, chapter
    /// 9).
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
