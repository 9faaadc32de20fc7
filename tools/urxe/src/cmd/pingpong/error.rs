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
    /// A wrong byte.
    #[error(transparent)]
    Byte(#[from] Mismatch),
    /// A wrong length.
    #[error("message {message} has {found} bytes instead of {expected}")]
    Length { message: u64, found: usize, expected: usize },
    /// The completion of another message.
    #[error("message {found} completed instead of message {expected}")]
    Order { found: u64, expected: u64 },
    /// Wrong immediate data.
    #[error("message {message} arrived with immediate data {found:?} instead of {expected:?}")]
    Immediate { message: u64, found: Option<u32>, expected: Option<u32> },
    /// A datagram of another sender.
    #[error("message {message} arrived from queue pair {found} instead of {expected}")]
    Sender { message: u64, found: urxe::Qpn, expected: urxe::Qpn },
    /// A wrong header before a datagram.
    #[error(
        "the header before message {message} has {} instead of {from} to {to}",
        found.map_or_else(|| "no addresses".to_owned(), |(from, to)| format!("{from} to {to}"))
    )]
    Header { message: u64, found: Option<(IpAddr, IpAddr)>, from: IpAddr, to: IpAddr },
    /// A wrong result of an atomic operation.
    #[error("atomic operation {message} returned {found:#x} instead of {expected:#x}")]
    Atomic { message: u64, found: u64, expected: u64 },
    /// A wrong final value of atomic operations.
    #[error("the counter is {found:#x} instead of {expected:#x}")]
    Counter { found: u64, expected: u64 },
}

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum PingpongError {
    /// An end or the peer process failed.
    #[error(transparent)]
    Traffic(TrafficError),
    /// The exchange of addresses failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Wrong data.
    #[error("wrong data: {0}")]
    Wrong(#[from] Wrong),
    /// A work request failed.
    #[error("message {message} failed with status {} ({status})", status.number())]
    Status { message: u64, status: WcStatus },
    /// Nothing completes.
    #[error("no completion for {} seconds; check that the peer is still running", limit.as_secs())]
    Stalled { limit: Duration },
    /// Nothing completes, and lost messages are not retransmitted.
    #[error(
        "no completion for {} seconds: a message was lost, which {transport} does not \
         retransmit, or the peer has ended",
        limit.as_secs()
    )]
    Lost { transport: Transport, limit: Duration },
    /// The message is longer than a packet.
    #[error(
        "a datagram of {given} bytes does not fit the path MTU; \
         choose a size of at most {mtu} bytes"
    )]
    DatagramTooLong { given: usize, mtu: PathMtu },
    /// A message on each queue pair needs a receive.
    #[error(
        "--rx-depth {given} is too small for {qps} queue pairs: each needs at least one \
         receive; use --rx-depth {qps} or more"
    )]
    TooFewReceives { qps: u32, given: u32 },
    /// The other end has fewer queue pairs.
    #[error(
        "the peer has {given} queue pairs, this end {wanted}: \
         give both ends the same number (--srq here, -q there)"
    )]
    FewerQueuePairs { given: usize, wanted: u32 },
    /// A completion of an unknown queue pair.
    #[error("a completion names queue pair {given}, which this end does not have")]
    UnknownQueuePair { given: urxe::Qpn },
    /// No entry of the GID table has the index.
    #[error(
        "there is no GID with index {given}; the device has {entries}, counted from 0; \
         urxe devinfo -v lists them"
    )]
    NoSuchGid { given: u8, entries: usize },
    /// The built-in device cannot reach another host.
    #[error(
        "the built-in device is on a loopback address and cannot reach {host}; \
         use -d {local} or --link rxe0={local}"
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
