//! The protocol between the two processes of the default run.
//!
//! The parent writes commands to the peer's standard input, and the peer writes one reply each to
//! its standard output, as lines of JSON. The reply to `Open` is [`Opened`], the reply to `Count`
//! is the number of retransmissions, and other replies are empty.
//!
//! Messages are numbered. Message n of a burst that starts with `first` uses slot n - first of the
//! peer's region. A slot has `size` bytes.

use serde::{Deserialize, Serialize};

use super::transport::Transport;
use crate::traffic::Wait;
use crate::traffic::operation::Operation;

/// Messages of one size, in slots from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Bytes of each message.
    pub size: usize,
    /// Number of the first message.
    pub first: u64,
    /// Number of messages.
    pub count: u32,
}

impl Burst {
    /// Returns the numbers of the messages with the offsets of their slots.
    pub fn slots(self) -> impl Iterator<Item = (u64, usize)> {
        (0..self.count).map(move |slot| (self.first + u64::from(slot), slot as usize * self.size))
    }
}

/// Messages that the peer returns. Message n uses slot n mod `slots` of the peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// SEND, or WRITE with immediate data. The immediate is n, and message n returns to offset
    /// `back` + n · `size` of the parent's region.
    pub operation: Operation,
    /// Bytes of each message.
    pub size: usize,
    /// Number of messages.
    pub count: u32,
    /// Posted receives.
    pub slots: u32,
    /// Offset in the parent's region for returned WRITEs.
    pub back: usize,
}

/// The peer's device and endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Devices as `NAME=ADDRESS`. The peer opens the first with a free address.
    pub links: Vec<String>,
    /// The service of the queue pair.
    pub transport: Transport,
    /// Bytes of the region.
    pub region_bytes: usize,
    /// How the peer waits for completions.
    pub wait: Wait,
}

/// One end of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Queue pair and address, as the text of [`Address`](super::exchange::Address).
    pub address: String,
    /// The region, as the text of [`RemoteRegion`](urxe::RemoteRegion).
    pub region: String,
}

/// The peer's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The link of the device.
    pub link: String,
    /// The peer's end.
    pub end: End,
    /// The largest path MTU of the link, in bytes.
    pub mtu: usize,
}

/// The commands of the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Open the device.
    Open(Setup),
    /// Connect to the parent.
    Connect {
        /// The parent's end.
        peer: End,
        /// Path MTU in bytes.
        mtu: usize,
    },
    /// Post a receive for each message of the burst.
    Receive(Burst),
    /// Take the completions of these receives, and check their messages.
    CheckReceived(Burst),
    /// Check the messages in the region.
    CheckWritten(Burst),
    /// Write messages into the region.
    Fill(Burst),
    /// Receive messages and return each at once.
    Echo(Echo),
    /// Wait until all returned messages are sent.
    EndEcho,
    /// Set the first eight bytes of the region.
    SetCounter(u64),
    /// Check the first eight bytes of the region.
    CheckCounter(u64),
    /// Report the device's retransmissions.
    Count,
}
