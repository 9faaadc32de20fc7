//! What the two ends say to each other: lines of JSON, orders of the end that measures, answers of
//! the other.
//!
//! ```text
//!   Open -> Opened                                        a device
//!   Prepare -> Prepared, Connect -> Ok                    queue pairs, or a floor's sockets
//!   Begin -> Begun, [Sent], Stop -> Stopped               a round, five times and more
//!   Close -> Ok
//! ```
//! `Sent` comes by itself when the other end asks as well (bidirectional) and has got all its
//! answers.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::floor::Floor;
use super::statistics::Sample;
use crate::cmd::common::peer::{Refusal, Reply};

/// How to open a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Bytes of receive buffer to ask for; the kernel doubles them. `None`: what the device asks
    /// for by itself.
    pub receive_buffer: Option<usize>,
    /// Packets of a million that the device loses, at random.
    pub loss_per_million: u32,
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
pub enum Order {
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

/// What the other end answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The device is open; they are counted from 0.
    Opened {
        /// Its link.
        link: String,
        /// Its address.
        address: IpAddr,
        /// The largest path MTU that fits its link, in bytes.
        mtu: usize,
    },
    /// The queue pairs are there.
    Prepared {
        /// Number of the session.
        session: usize,
        /// They.
        ends: Ends,
    },
    /// The sockets are there.
    FloorPrepared {
        /// Number of the session.
        session: usize,
        /// They.
        sockets: Sockets,
    },
    /// Ready for the round.
    Begun,
    /// Bidirectional: all that this end sent is done.
    Sent {
        /// How fast.
        sample: Sample,
        /// What, by queue pair.
        sent: Vec<Sent>,
    },
    /// The round is over here.
    Stopped {
        /// What was received: a floor's figure.
        received: Sample,
        /// Messages whose bytes were compared.
        verified: u64,
    },
    /// Bytes of memory in use at most.
    Resident {
        /// How many.
        bytes: u64,
    },
    /// Done.
    Ok,
    /// The data is not what it should be.
    Wrong(String),
    /// It could not be done.
    Failed(String),
}

impl Reply for Answer {
    fn refusal(&self) -> Option<Refusal<'_>> {
        match self {
            Self::Failed(reason) => Some(Refusal::Failed(reason)),
            Self::Wrong(reason) => Some(Refusal::Wrong(reason)),
            _ => None,
        }
    }
}
