//! Waiting for the sends that were posted before a moment, so that a program can close a connection
//! after its last message.
//!
//! ```text
//!   begin ──> pending ──a packet or a timer completes the last of them──> completed
//!     │          └─────────ERR, SQE or RESET comes first────────────────> failed
//!     └──a send has failed since the last RESET─────────────────────────────^
//! ```
//!
//! `Qp::check_outcome` looks at the watch after each call that can complete a send. Without a watch
//! that costs nothing: one flag stands beside others that the queue pair tests together.

use std::fmt;
use std::ops::Range;

use urxe_types::sync::Arc;
use urxe_types::wake::Wake;

/// The state of the sends that a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedSends {
    /// So many are not complete.
    Pending(u64),
    /// All succeeded.
    Completed,
    /// The queue pair entered ERR, SQE or RESET before all were complete, or a send had failed
    /// before the watch began.
    Failed,
}

/// A watch of the sends before a position of the send queue.
pub(crate) struct SendWatch {
    end: u64,
    state: WatchedSends,
    wake: Arc<dyn Wake>,
}

impl SendWatch {
    /// Begins a watch of the sends at these positions. `wake` is called when they are complete or
    /// have failed, unless that is known now. `is_one_lost`: a send has failed before.
    pub fn new(posted: Range<u64>, is_one_lost: bool, wake: Arc<dyn Wake>) -> Self {
        let state = if is_one_lost {
            WatchedSends::Failed
        } else if posted.is_empty() {
            WatchedSends::Completed
        } else {
            WatchedSends::Pending(posted.end - posted.start)
        };
        Self { end: posted.end, state, wake }
    }

    pub fn state(&self) -> WatchedSends {
        self.state
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.state, WatchedSends::Pending(_))
    }

    /// Handles that the sends before `head` succeeded.
    pub fn advance(&mut self, head: u64) {
        if !self.is_pending() {
            return;
        }
        if head < self.end {
            self.state = WatchedSends::Pending(self.end - head);
        } else {
            self.finish(WatchedSends::Completed);
        }
    }

    /// Handles that the queue pair leaves the states in which sends succeed.
    pub fn fail(&mut self) {
        if self.is_pending() {
            self.finish(WatchedSends::Failed);
        }
    }

    fn finish(&mut self, state: WatchedSends) {
        self.state = state;
        self.wake.wake();
    }
}

impl fmt::Debug for SendWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendWatch")
            .field("end", &self.end)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
