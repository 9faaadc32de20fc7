//! Code shared by the subcommands that move data between two ends.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the device of this end, and addresses for the peer process |
//! | `operation` | the operations |
//! | `pattern` | the bytes of messages, and their comparison |
//! | `peer`, `responder` | the two sides of a control connection: commands and replies |
//! | `error` | errors of all these subcommands |

pub mod device;
pub mod error;
pub mod operation;
pub mod pattern;
pub mod peer;
pub mod responder;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe::{Access, Completion, CompletionQueue, WaitError};

use self::error::TrafficError;

/// The access rights of both ends to a region.
pub const ALL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// How an end waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Polls.
    Poll,
    /// Sleeps until the completion event.
    Events,
}

impl Wait {
    /// Returns `Events` if `events` is true, else `Poll`.
    pub const fn by(events: bool) -> Self {
        if events { Self::Events } else { Self::Poll }
    }

    /// Polls once, or sleeps up to `limit`. Returns the number of completions.
    ///
    /// # Errors
    /// [`TrafficError::Cq`], [`TrafficError::Wait`].
    pub fn take_some(
        self,
        cq: &CompletionQueue,
        out: &mut [Completion],
        limit: Duration,
    ) -> Result<usize, TrafficError> {
        match self {
            Self::Poll => Ok(cq.poll(out)?),
            Self::Events => match cq.wait(out, Some(limit)) {
                Err(WaitError::TimedOut) => Ok(0),
                result => Ok(result?),
            },
        }
    }

    /// Waits for completions. Returns their number, or 0 if `limit` passed without one.
    ///
    /// # Errors
    /// [`TrafficError::Cq`], [`TrafficError::Wait`].
    pub fn take(
        self,
        cq: &CompletionQueue,
        out: &mut [Completion],
        limit: Duration,
    ) -> Result<usize, TrafficError> {
        let mut started = None;
        loop {
            let count = self.take_some(cq, out, limit)?;
            let is_last =
                self == Self::Events || started.get_or_insert_with(Instant::now).elapsed() > limit;
            if count > 0 || is_last {
                return Ok(count);
            }
        }
    }
}
