//! Errors of `urxe pingpong`.

use std::net::IpAddr;
use std::time::Duration;

use urxe::{PathMtu, WcStatus};

use super::exchange::ExchangeError;
use super::transport::Transport;
use crate::traffic::error::TrafficError;
use crate::traffic::pattern::Mismatch;
use crate::traffic::responder::Refusal;

/// Wrong data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A byte.
    #[error(transparent)]
    Byte(#[from] Mismatch),
    /// A message's length.
    #[error("message {message} has {found} bytes instead of {expected}")]
    Length { message: u64, found: usize, expected: usize },
    /// A completion that is another message's.
    #[error("message {found} completed where {expected} was due")]
    Order { found: u64, expected: u64 },
    /// The immediate data of a message.
    #[error("message {message} came with immediate data {found:?} instead of {expected:?}")]
    Immediate { message: u64, found: Option<u32>, expected: Option<u32> },
    /// A datagram of another sender.
    #[error("message {message} came from queue pair {found} instead of {expected}")]
    Sender { message: u64, found: urxe::Qpn, expected: urxe::Qpn },
    /// The 40 bytes in front of a datagram.
    #[error(
        "the header in front of message {message} says {} instead of {from} to {to}",
        found.map_or_else(|| "no addresses".to_owned(), |(from, to)| format!("{from} to {to}"))
    )]
    Header { message: u64, found: Option<(IpAddr, IpAddr)>, from: IpAddr, to: IpAddr },
    /// The value that an atomic operation found.
    #[error("atomic operation {message} found {found:#x} instead of {expected:#x}")]
    Atomic { message: u64, found: u64, expected: u64 },
    /// The value that atomic operations left.
    #[error("the counter is {found:#x} instead of {expected:#x}")]
    Counter { found: u64, expected: u64 },
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum PingpongError {
    /// An end, or the peer process.
    #[error(transparent)]
    Traffic(TrafficError),
    /// The exchange of addresses.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The data.
    #[error("wrong data: {0}")]
    Wrong(#[from] Wrong),
    /// A work request failed.
    #[error("message {message} failed with status {} ({status})", status.number())]
    Status { message: u64, status: WcStatus },
    /// Nothing completes.
    #[error("nothing has arrived for {} seconds: has the peer gone?", limit.as_secs())]
    Stalled { limit: Duration },
    /// Nothing completes, and lost messages are not retransmitted.
    #[error(
        "nothing has arrived for {} seconds: a message was lost, which {transport} does not send again, or the peer has gone",
        limit.as_secs()
    )]
    Lost { transport: Transport, limit: Duration },
    /// A datagram is one packet.
    #[error(
        "a datagram of {given} bytes does not fit the path MTU {mtu}, which is the longest there can be"
    )]
    DatagramTooLong { given: usize, mtu: PathMtu },
    /// A message on each queue pair must find a receive.
    #[error(
        "--rx-depth {given} is too small for {qps} queue pairs: each needs at least one receive"
    )]
    TooFewReceives { qps: u32, given: u32 },
    /// The other end has fewer queue pairs.
    #[error(
        "the peer has {given} queue pairs, this end {wanted}: give both ends the same number (--srq here, -q there)"
    )]
    FewerQueuePairs { given: usize, wanted: u32 },
    /// A completion of an unknown queue pair.
    #[error("a completion names queue pair {given}, which is none of this end's")]
    UnknownQueuePair { given: urxe::Qpn },
    /// No entry of the GID table has the index.
    #[error(
        "there is no GID with index {given}; the device has {entries} of them, from 0 on (urxe devinfo -v)"
    )]
    NoSuchGid { given: u8, entries: usize },
    /// The built-in device cannot reach another host.
    #[error(
        "{host} cannot be reached from the built-in device, which is on a loopback address; add --device {local}, or a \
         link for good: urxe link add rxe1 {local}"
    )]
    LoopbackOnly { host: IpAddr, local: IpAddr },
}

impl<E: Into<TrafficError>> From<E> for PingpongError {
    fn from(error: E) -> Self {
        Self::Traffic(error.into())
    }
}

impl Refusal for PingpongError {
    fn wrong_data(&self) -> Option<String> {
        if let Self::Wrong(wrong) = self { Some(wrong.to_string()) } else { None }
    }
}

impl PingpongError {
    /// Returns the error for `limit` without a completion.
    pub(super) fn silence(transport: Transport, limit: Duration) -> Self {
        if transport.is_reliable() {
            Self::Stalled { limit }
        } else {
            Self::Lost { transport, limit }
        }
    }
}
