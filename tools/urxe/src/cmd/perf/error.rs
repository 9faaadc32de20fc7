//! Why `urxe perf` failed.

use std::io;
use std::time::Duration;

use urxe::WcStatus;

use super::case::CaseError;
use crate::traffic::error::TrafficError;
use crate::traffic::operation::Operation;
use crate::traffic::responder::Refusal;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// It cannot be measured.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// An end, or the other one.
    #[error(transparent)]
    Traffic(TrafficError),
    /// A message failed.
    #[error("{operation} failed with status {} ({status})", status.number())]
    Status {
        /// Which operation.
        operation: Operation,
        /// How it ended.
        status: WcStatus,
    },
    /// Nothing completes.
    #[error("nothing has completed for {} seconds: has the peer gone?", limit.as_secs())]
    Stalled {
        /// How long.
        limit: Duration,
    },
    /// A byte is not what was sent.
    #[error("wrong data: byte {offset} of slot {slot} is {found:#04x} instead of {expected:#04x}")]
    Byte {
        /// Which slot.
        slot: usize,
        /// Which of its bytes.
        offset: usize,
        /// What is there.
        found: u8,
        /// What was sent.
        expected: u8,
    },
    /// More or fewer messages arrived than were sent.
    #[error("wrong data: queue pair {lane} received {found} messages of {expected}")]
    Count {
        /// Which queue pair, counted from 0.
        lane: usize,
        /// Received.
        found: u64,
        /// Sent.
        expected: u64,
    },
    /// A counter that atomic operations changed.
    #[error("wrong data: the counter of queue pair {lane} is {found} instead of {expected}")]
    Counter {
        /// Which queue pair, counted from 0.
        lane: usize,
        /// What it is.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// The floor's sockets.
    #[error("the floor: {doing}")]
    Floor {
        /// In the middle of what.
        doing: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The other host.
    #[error("{doing} {at}")]
    Host {
        /// In the middle of what.
        doing: &'static str,
        /// With whom.
        at: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The built-in device cannot reach another host.
    #[error(
        "{host} cannot be reached from the built-in device, which is on a loopback address; add --device {local}"
    )]
    LoopbackOnly {
        /// The other host.
        host: std::net::IpAddr,
        /// This host's address towards it.
        local: std::net::IpAddr,
    },
    /// The plot.
    #[error("cannot write the plot {path}: {reason}")]
    Plot {
        /// Where to.
        path: String,
        /// Why not.
        reason: String,
    },
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

/// What the floor was doing.
pub fn floor(doing: &'static str) -> impl FnOnce(io::Error) -> PerfError {
    move |error| PerfError::Floor { doing, error }
}
