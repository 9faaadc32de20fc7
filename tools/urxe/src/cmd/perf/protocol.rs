//! What the two ends say to each other: lines of JSON, orders of the end that measures, answers of
//! the other.
//!
//! | order | answer |
//! |---|---|
//! | `Open` | [`Opened`]: a device |
//! | `Prepare` | number of the session, [`Ends`] |
//! | `PrepareFloor` | number of the session, [`Sockets`] |
//! | `Begin` | nothing; a bidirectional case's [`Sample`] and [`Sent`] follow by themselves when all is done that this end sent |
//! | `Stop` | what a floor received, as a [`Sample`]; the messages whose bytes were compared |
//! | `Resident` | bytes of memory in use at most |
//! | `Connect`, `ConnectFloor`, `Close` | nothing |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::floor::Floor;
#[cfg(doc)]
use super::statistics::Sample;

/// How to open a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Bytes of receive buffer to ask for; the kernel doubles them. `None`: what the device asks
    /// for by itself.
    pub receive_buffer: Option<usize>,
    /// Packets of a million that the device loses, at random.
    pub loss_per_million: u32,
}

/// A device of the other end; they are counted from 0.
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

/// What a queue pair sent in a round.
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

/// What the end that measures says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Open a device: the first of these links whose address is free; the listening host's own if
    /// there are none.
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
        /// What for.
        case: Case,
    },
    /// Connect them.
    Connect {
        /// Which session.
        session: usize,
        /// The other end's.
        ends: Ends,
    },
    /// Make a floor's sockets at a device's address.
    PrepareFloor {
        /// Which device.
        device: usize,
        /// What for.
        floor: Floor,
    },
    /// Tell them where the other end is; it has connected its TCP stream.
    ConnectFloor {
        /// Which session.
        session: usize,
        /// The other end's.
        sockets: Sockets,
    },
    /// Begin a round.
    Begin {
        /// Of which session.
        session: usize,
    },
    /// End the round.
    Stop {
        /// What the end that measures has sent, by queue pair.
        sent: Vec<Sent>,
    },
    /// Drop a session.
    Close {
        /// Which.
        session: usize,
    },
    /// Tell what memory the process has in use.
    Resident,
}
