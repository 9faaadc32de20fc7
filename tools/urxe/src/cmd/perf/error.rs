//! Errors of `urxe perf`.

use std::io;
use std::time::Duration;

use urxe::WcStatus;

use super::case::CaseError;
use crate::traffic::error::TrafficError;
use crate::traffic::operation::Operation;
use crate::traffic::responder::Refusal;

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The case cannot be measured.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// Either end failed.
    #[error(transparent)]
    Traffic(TrafficError),
    /// A message failed.
    #[error("{operation} failed with status {} ({status})", status.number())]
    Status { operation: Operation, status: WcStatus },
    /// Nothing completes.
    #[error("no completion for {} seconds; check that the peer is still running", limit.as_secs())]
    Stalled { limit: Duration },
    /// A byte differs from the one sent.
    #[error("wrong data: byte {offset} of slot {slot} is {found:#04x} instead of {expected:#04x}")]
    Byte { slot: usize, offset: usize, found: u8, expected: u8 },
    /// The numbers of sent and received messages differ.
    #[error("wrong data: queue pair {qp} received {found} messages of {expected}")]
    Count { qp: usize, found: u64, expected: u64 },
    /// The counter of atomic operations is wrong.
    #[error("wrong data: the counter of queue pair {qp} is {found} instead of {expected}")]
    Counter { qp: usize, found: u64, expected: u64 },
    /// A figure is for shared memory, and the packets used sockets.
    #[error(
        "no packet went through shared memory: unset URXE_FAULTS, and see the row of shared memory \
         in `urxe doctor`"
    )]
    NotInMemory,
    /// The floor's sockets failed.
    #[error("the floor: {doing}")]
    Floor {
        doing: &'static str,
        #[source]
        error: io::Error,
    },
    /// The connection to the other host failed.
    #[error("{doing} {at}: {error}{remedy}")]
    Host {
        doing: &'static str,
        at: String,
        error: io::Error,
        /// Begins with a semicolon, unless empty.
        remedy: &'static str,
    },
    /// The built-in device cannot reach another host.
    #[error(
        "the built-in device is on a loopback address and cannot reach {host}; use -d \
         {local} or --link rxe0={local}"
    )]
    LoopbackOnly { host: std::net::IpAddr, local: std::net::IpAddr },
    /// The plot cannot be written.
    #[error("there is no plot: {reason}")]
    Plot { reason: String },
}

impl<E: Into<TrafficError>> From<E> for PerfError {
    fn from(error: E) -> Self {
        Self::Traffic(error.into())
    }
}

impl Refusal for PerfError {
    fn wrong_data(&self) -> Option<String> {
        let is_wrong =
            matches!(self, Self::Byte { .. } | Self::Count { .. } | Self::Counter { .. });
        is_wrong.then(|| self.to_string())
    }
}

/// Returns a conversion for errors of the floor's sockets, where `doing` names the failed step.
pub fn floor(doing: &'static str) -> impl FnOnce(io::Error) -> PerfError {
    move |error| PerfError::Floor { doing, error }
}
