//! The protocol between the two ends: lines of JSON with commands of the measuring end and replies
//! of the other end.
//!
//! | command | reply |
//! |---|---|
//! | `Open` | [`Opened`]: a device |
//! | `Prepare` | number of the session, [`Ends`] |
//! | `PrepareFloor` | number of the session, [`Sockets`] |
//! | `Begin` | empty; a bidirectional case sends its [`Sample`] and [`Sent`] at its end |
//! | `Stop` | a floor's received data as a [`Sample`]; the number of verified messages |
//! | `Resident` | peak memory in bytes |
//! | `Connect`, `ConnectFloor`, `Close` | empty |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::floor::{Floor, Place};
#[cfg(doc)]
use super::statistics::Sample;

/// The options of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Bytes of receive buffer to request; the kernel doubles the value. `None` for the device's
    /// default.
    pub receive_buffer: Option<usize>,
    /// Packets per million that the device drops at random.
    pub loss_per_million: u32,
    /// Whether packets go through memory that both processes share, instead of sockets. `None`: as
    /// `URXE_SHM` says.
    pub shared_memory: Option<bool>,
}

/// A device of the other end; devices are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The link of the device.
    pub link: String,
    /// The largest path MTU of the link, in bytes.
    pub mtu: usize,
}

/// One end's queue pairs and region, as texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// The [`QpEndpoint`](urxe::QpEndpoint) of each queue pair.
    pub endpoints: Vec<String>,
    /// [`RemoteRegion`](urxe::RemoteRegion).
    pub region: String,
}

/// The messages that a queue pair sent in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Number of messages.
    pub messages: u64,
    /// Position of the first message in the ring.
    pub first: usize,
    /// Number of positions in the ring.
    pub places: usize,
}

/// One end's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The UDP address.
    pub udp: SocketAddr,
    /// The address that accepts the TCP stream.
    pub tcp: Option<SocketAddr>,
    /// The memory of a ring, which only processes of one host can share.
    #[serde(default)]
    pub ring: Option<Place>,
}

/// The commands of the measuring end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Open a device: the first of these links whose address is free, or the listening host's own
    /// device if there are none.
    Open {
        /// `NAME=ADDRESS`.
        links: Vec<String>,
        /// The options.
        options: DeviceOptions,
    },
    /// Create queue pairs on a device.
    Prepare {
        /// The number of the device, in the order of opening.
        device: usize,
        /// The case.
        case: Case,
    },
    /// Connect the queue pairs.
    Connect {
        /// The session.
        session: usize,
        /// The measuring end's queue pairs.
        ends: Ends,
    },
    /// Create a floor's sockets at a device's address.
    PrepareFloor {
        /// The number of the device.
        device: usize,
        /// The floor.
        floor: Floor,
    },
    /// Set the addresses of the measuring end, which has connected its TCP stream.
    ConnectFloor {
        /// The session.
        session: usize,
        /// The measuring end's sockets.
        sockets: Sockets,
    },
    /// Begin a round.
    Begin {
        /// The session.
        session: usize,
    },
    /// End the round.
    Stop {
        /// The messages that the measuring end sent, by queue pair.
        sent: Vec<Sent>,
    },
    /// Drop a session.
    Close {
        /// The session.
        session: usize,
    },
    /// Report the peak memory of the process.
    Resident,
}
