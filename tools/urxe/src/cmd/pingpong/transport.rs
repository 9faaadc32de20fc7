//! The transport service of a run, and its properties.

use std::fmt;

use serde::{Deserialize, Serialize};
use urxe::{GRH_LEN, PathMtu, QpType};

use crate::arguments::Size;
use crate::traffic::operation::Operation;

/// The service of the queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection: lost messages are not retransmitted.
    Uc,
    /// Unreliable datagrams: the same, and no message is longer than a packet.
    Ud,
}

const fn bytes<const N: usize>(sizes: [usize; N]) -> [Size; N] {
    let mut all = [Size::from_bytes(1); N];
    let mut nr = 0;
    while nr < N {
        all[nr] = Size::from_bytes(sizes[nr]);
        nr += 1;
    }
    all
}

impl Transport {
    /// Returns the queue pair type.
    pub const fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud => QpType::Ud,
        }
    }

    /// Returns the operations for messages of any size. Over an unreliable connection, only
    /// immediate data shows that a WRITE has arrived.
    pub const fn operations(self) -> &'static [Operation] {
        match self {
            Self::Rc => &[Operation::Send, Operation::Write, Operation::Read],
            Self::Uc => &[Operation::Send, Operation::WriteImm],
            Self::Ud => &[Operation::Send],
        }
    }

    /// Operations that change eight bytes.
    pub const fn atomics(self) -> &'static [Operation] {
        if self.is_reliable() { &Operation::ATOMICS } else { &[] }
    }

    /// Returns whether a lost message is sent again.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc)
    }

    /// Returns the bytes before a received message.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Rc | Self::Uc => 0,
            Self::Ud => GRH_LEN,
        }
    }

    /// Returns the bytes of the longest message over this path MTU.
    pub const fn max_size(self, mtu: PathMtu) -> usize {
        match self {
            Self::Rc | Self::Uc => Size::MAX,
            Self::Ud => mtu.bytes(),
        }
    }

    /// Returns the message sizes of a run on one host. Messages of an unreliable service must fit
    /// the receiver's socket at once.
    pub const fn sizes(self) -> &'static [Size] {
        const RC: [Size; 4] = bytes([64, 4 << 10, 64 << 10, 1 << 20]);
        const UC: [Size; 3] = bytes([64, 4 << 10, 64 << 10]);
        const UD: [Size; 3] = bytes([64, 1 << 10, 4 << 10]);
        match self {
            Self::Rc => &RC,
            Self::Uc => &UC,
            Self::Ud => &UD,
        }
    }

    /// Returns the message sizes with `--quick`.
    pub const fn quick_sizes(self) -> &'static [Size] {
        const CONNECTED: [Size; 2] = bytes([64, 64 << 10]);
        const UD: [Size; 2] = bytes([64, 1 << 10]);
        match self {
            Self::Rc | Self::Uc => &CONNECTED,
            Self::Ud => &UD,
        }
    }

    /// Returns the default message size between two hosts, as in `ibverbs-utils`.
    pub const fn two_hosts_size(self) -> usize {
        match self {
            Self::Rc | Self::Uc => 4096,
            Self::Ud => 2048,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}
