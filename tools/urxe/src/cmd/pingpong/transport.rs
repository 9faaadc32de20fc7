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
    /// Unreliable datagrams: as UC, and no message is longer than a packet.
    Ud,
}

/// The properties of a service.
pub struct Properties {
    name: &'static str,
    /// The queue pair type.
    pub qp_type: QpType,
    /// The operations for messages of any size.
    pub operations: &'static [Operation],
    /// The operations that change eight bytes.
    pub atomics: &'static [Operation],
    /// Bytes before a received message.
    pub header_len: usize,
    /// The message sizes of a run on one host. Messages of an unreliable service must fit the
    /// receiver's socket at once.
    pub sizes: &'static [usize],
    /// The message sizes with `--quick`.
    pub quick_sizes: &'static [usize],
    /// The default message size between two hosts, as in `ibverbs-utils`.
    pub two_hosts_size: usize,
}

const RC: Properties = Properties {
    name: "RC",
    qp_type: QpType::Rc,
    operations: &[Operation::Send, Operation::Write, Operation::Read],
    atomics: &Operation::ATOMICS,
    header_len: 0,
    sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    quick_sizes: &[64, 64 << 10],
    two_hosts_size: 4096,
};

const UC: Properties = Properties {
    name: "UC",
    qp_type: QpType::Uc,
    // Only immediate data shows that a WRITE has arrived.
    operations: &[Operation::Send, Operation::WriteImm],
    atomics: &[],
    sizes: &[64, 4 << 10, 64 << 10],
    ..RC
};

const UD: Properties = Properties {
    name: "UD",
    qp_type: QpType::Ud,
    operations: &[Operation::Send],
    header_len: GRH_LEN,
    sizes: &[64, 1 << 10, 4 << 10],
    quick_sizes: &[64, 1 << 10],
    two_hosts_size: 2048,
    ..UC
};

impl Transport {
    /// Returns the properties.
    pub const fn properties(self) -> &'static Properties {
        match self {
            Self::Rc => &RC,
            Self::Uc => &UC,
            Self::Ud => &UD,
        }
    }

    /// Returns whether the service retransmits lost messages.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc)
    }

    /// Returns the bytes of the longest message over this path MTU.
    pub const fn max_size(self, mtu: PathMtu) -> usize {
        match self {
            Self::Rc | Self::Uc => Size::MAX,
            Self::Ud => mtu.bytes(),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().name)
    }
}
