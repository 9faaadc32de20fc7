//! Closing a connection without losing its last messages.
//!
//! ```text
//!   close ──> the sends complete ──> disconnect (DREQ) ──> the peer confirms (DREP) ──> Ok
//!                  │                                             │
//!                  │ the queue pair fails                        │ all repetitions of the DREQ
//!                  v                                             v pass without an answer
//!             SendsFailed, and the peer gets the DREQ       Unconfirmed
//! ```
//!
//! All callers that close a connection share one [`Closing`], so each of them gets its result.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::qp::send_watch::WatchedSends;

use super::connection_state::{ConnectionState, End};
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::waker_list::{WakerList, WakerSlot, lock};

urxe_stack::errors! {
    /// The reason why a connection was not closed in order.
    ///
    /// ```
    /// use std::time::Duration;
    /// use urxe::cm::{self, CloseError, Listener, Options};
    /// use urxe::{Data, Device, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let here = Device::open_address([127, 49, 11, 25])?;
    /// # let there = Device::open_address([127, 49, 11, 26])?;
    /// # let listener = Listener::builder().device(&here).bind("127.49.11.25:0")?;
    /// # let pending = cm::prepare(listener.local_addr(), &Options::new().device(&there))?;
    /// # let client = std::thread::spawn(move || pending.establish());
    /// let connection = listener.wait(None)?.accept()?;
    /// # let peer = client.join().unwrap()?;
    /// // The peer has posted no receive for this message.
    /// connection.qp().post_send(&SendRequest::send(Data::inline(b"last")))?;
    /// let error = connection.close().wait(Some(Duration::from_millis(20))).unwrap_err();
    /// assert!(matches!(error, CloseError::TimedOut { sends: 1, .. }));
    /// println!("{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CloseError {
        /// At least one send of the connection failed, before or during the call. The connection is
        /// disconnected.
        #[error("{peer} has not acknowledged all sends: the queue pair failed, or {peer} \
                 disconnected first; the completions of the sends have the reason")]
        SendsFailed { peer: SocketAddr } = ECONNABORTED,
        /// The sends are complete. A program of the C library may also be stopped, or ignore the
        /// event that the connection ends.
        #[error("{peer} does not confirm that the connection ends: it may be gone; all sends were \
                 acknowledged")]
        Unconfirmed { peer: SocketAddr } = ETIMEDOUT,
        /// The connection stays as it is: sends without an acknowledgement (`sends`) may still
        /// complete, and closing can be tried again. Dropping the connection discards them.
        #[error("{peer} has not {} within {after:?}{}", missing(*sends), hint(*sends))]
        TimedOut { peer: SocketAddr, after: Duration, sends: u64 } = ETIMEDOUT,
        /// No answer can arrive any more.
        #[error("the device of the connection was removed")]
        DeviceRemoved = ENODEV,
        /// The thread cannot wait.
        #[error(transparent)] Wait(WaitError),
    }
}

fn missing(sends: u64) -> String {
    match sends {
        0 => "confirmed that the connection ends".to_owned(),
        1 => "acknowledged the last send".to_owned(),
        sends => format!("acknowledged the last {sends} sends"),
    }
}

const fn hint(sends: u64) -> &'static str {
    if sends == 0 { "" } else { ": is it running, and has it posted receives?" }
}

/// The progress of closing a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Closing {
    /// No caller has asked to close.
    #[default]
    No,
    /// The sends that were posted at the first call are not complete.
    Sending,
    /// The sends are complete or have failed, and this end has asked to disconnect.
    Disconnecting { sends_failed: bool },
}

impl ConnectionState {
    /// Continues to close. Returns the result when there is one.
    fn poll_close(&self) -> Option<Result<(), CloseError>> {
        let closed = self.advance_closing();
        // The wakers run under no lock.
        self.id.service.run_ready_wakers();
        closed
    }

    fn advance_closing(&self) -> Option<Result<(), CloseError>> {
        let peer = self.peer_addr;
        let mut closing = lock(&self.closing);
        loop {
            *closing = match *closing {
                Closing::No => {
                    self.qp.watch_sends(self.wakers.clone());
                    Closing::Sending
                }
                Closing::Sending => match self.qp.watched_sends() {
                    WatchedSends::Pending(_) => return None,
                    watched => {
                        self.end();
                        Closing::Disconnecting { sends_failed: watched == WatchedSends::Failed }
                    }
                },
                Closing::Disconnecting { sends_failed: true } => {
                    return Some(Err(CloseError::SendsFailed { peer }));
                }
                Closing::Disconnecting { sends_failed: false } => {
                    return self.how_ended().map(|end| match end {
                        End::Agreed => Ok(()),
                        End::Unanswered => Err(CloseError::Unconfirmed { peer }),
                        End::DeviceRemoved => Err(CloseError::DeviceRemoved),
                    });
                }
            };
        }
    }

    /// Returns the number of sends that closing still waits for.
    fn unfinished_sends(&self) -> u64 {
        match (*lock(&self.closing), self.qp.watched_sends()) {
            (Closing::Sending, WatchedSends::Pending(sends)) => sends,
            _ => 0,
        }
    }
}

/// The end of a connection, made by [`Connection::close`](super::Connection::close).
///
/// A task awaits the value, and a thread calls [`wait`](Self::wait). Neither does anything before.
/// The future needs no runtime. If it is dropped before its end, the connection stays as it is, and
/// can be closed again.
#[derive(Debug)]
#[must_use = "the connection is not closed until this is awaited or waited for"]
pub struct Close<'a> {
    connection: &'a ConnectionState,
    slot: WakerSlot<&'a WakerList>,
}

impl<'a> Close<'a> {
    pub(super) fn new(connection: &'a ConnectionState) -> Self {
        Self { connection, slot: WakerSlot::new(&connection.wakers) }
    }

    /// Blocks until the connection is closed. With `None` the wait has no time limit of its own.
    ///
    /// # Errors
    /// Fails with [`CloseError`].
    pub fn wait(self, timeout: Option<Duration>) -> Result<(), CloseError> {
        let Self { connection, .. } = self;
        let wait = BlockingWait::new(connection.qp.pd().device(), timeout);
        let closed = wait.until(&connection.wakers, || Ok(connection.poll_close()), || false);
        closed.unwrap_or_else(|error| {
            Err(match (error, timeout) {
                (WaitError::TimedOut, Some(after)) => CloseError::TimedOut {
                    peer: connection.peer_addr,
                    after,
                    sends: connection.unfinished_sends(),
                },
                (error, _) => CloseError::Wait(error),
            })
        })
    }
}

impl Future for Close<'_> {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, slot } = &mut *self;
        slot.poll(connection.qp.pd().device(), cx, || connection.poll_close())
    }
}
