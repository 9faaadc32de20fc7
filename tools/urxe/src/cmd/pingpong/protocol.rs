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

/// A range of messages of one size, in slots 0 and on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Bytes of each.
    pub size: usize,
    /// Number of the first.
    pub first: u64,
    /// How many.
    pub count: u32,
}

impl Burst {
    /// Slots with the numbers of their messages and the offsets of their bytes.
    pub fn slots(self) -> impl Iterator<Item = (u64, usize)> {
        (0..self.count).map(move |slot| (self.first + u64::from(slot), slot as usize * self.size))
    }
}

/// Messages that the peer sends back. Message n uses slot n mod `slots` of its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// SEND, or WRITE with immediate data. The immediate is n, and message n returns to offset
    /// `back` + n · `size` of the parent's region.
    pub operation: Operation,
    /// Bytes of each.
    pub size: usize,
    /// How many.
    pub count: u32,
    /// Receives that are posted at a time.
    pub slots: u32,
    /// Where in the parent's region WRITEs go back to.
    pub back: usize,
}

/// How the peer is to open its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Devices as `NAME=ADDRESS`. The peer opens the first with a free address.
    pub links: Vec<String>,
    /// The service of its queue pair.
    pub transport: Transport,
    /// Bytes of its region.
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
    /// Its link.
    pub link: String,
    /// The peer's end.
    pub end: End,
    /// The largest path MTU that fits its link, in bytes.
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
    /// Put messages into the region.
    Fill(Burst),
    /// Receive messages and return each at once.
    Echo(Echo),
    /// After the last echo: wait until all of them have left.
    EndEcho,
    /// Set the first eight bytes.
    SetCounter(u64),
    /// Check the first eight bytes.
    CheckCounter(u64),
    /// Report the device's retransmissions.
    Count,
}
