//! The protocol between the two ends: lines of JSON with commands of the measuring end and replies
//! of the other end.
//!
//! | command | reply |
//! |---|---|
//! | `Open` | [`Opened`]: a device |
//! | `Prepare` | number of the session, [`Ends`] |
//! | `PrepareFloor` | number of the session, [`Sockets`] |
//! | `Begin` | empty; a bidirectional case later sends its [`Sample`] and [`Sent`] when its own messages are done |
//! | `Stop` | a floor's received data as a [`Sample`]; the number of verified messages |
//! | `Resident` | peak memory in bytes |
//! | `Connect`, `ConnectFloor`, `Close` | empty |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::floor::Floor;
#[cfg(doc)]
use super::statistics::Sample;

/// How to open a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Bytes of receive buffer to request; the kernel doubles the value. `None` for the device's
    /// default.
    pub receive_buffer: Option<usize>,
    /// Packets of a million that the device loses, at random.
    pub loss_per_million: u32,
}

/// A device of the other end; devices are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its link.
    pub link: String,
    /// The largest path MTU that fits its link, in bytes.
    pub mtu: usize,
}

/// One end's queue pairs and region, as texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Of each queue pair, [`QpEndpoint`](urxe::QpEndpoint).
    pub endpoints: Vec<String>,
    /// [`RemoteRegion`](urxe::RemoteRegion).
    pub region: String,
}

/// The messages that a queue pair sent in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Messages.
    pub messages: u64,
    /// Place in its ring of the first of them.
    pub first: usize,
    /// Places of its ring, from that on.
    pub places: usize,
}

/// One end's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// UDP.
    pub udp: SocketAddr,
    /// Where a TCP stream is accepted.
    pub tcp: Option<SocketAddr>,
}

/// The commands of the measuring end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Open a device: the first of these links whose address is free, or the listening host's own
    /// device if there are none.
    Open {
        /// `NAME=ADDRESS`.
        links: Vec<String>,
        /// How.
        options: DeviceOptions,
    },
    /// Make queue pairs on a device.
    Prepare {
        /// Which device, in the order of their opening.
        device: usize,
        /// The case.
        case: Case,
    },
    /// Connect them.
    Connect {
        /// Which session.
        session: usize,
        /// The measuring end's queue pairs.
        ends: Ends,
    },
    /// Make a floor's sockets at a device's address.
    PrepareFloor {
        /// Which device.
        device: usize,
        /// The floor.
        floor: Floor,
    },
    /// Set the addresses of the measuring end, which has connected its TCP stream.
    ConnectFloor {
        /// Which session.
        session: usize,
        /// The measuring end's sockets.
        sockets: Sockets,
    },
    /// Begin a round.
    Begin {
        /// Of which session.
        session: usize,
    },
    /// End the round.
    Stop {
        /// The messages that the measuring end sent, by queue pair.
        sent: Vec<Sent>,
    },
    /// Drop a session.
    Close {
        /// Which.
        session: usize,
    },
    /// Report the peak memory of the process.
    Resident,
}
