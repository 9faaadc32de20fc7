//! Polling with access to one completion at a time (`struct ibv_cq_ex`).

use std::fmt;
use std::ops::Deref;

use urxe_stack::cq::{Completion, CqError, Poller as CorePoller};

use super::CompletionQueue;

/// An exclusive poll of a completion queue with a current completion, made by
/// [`CompletionQueue::start_poll`].
///
/// The poller dereferences to its current completion. Dropping the poller ends the poll
/// (`ibv_end_poll`).
pub struct Poller<'a> {
    core: CorePoller<'a>,
}

impl CompletionQueue {
    /// Starts an exclusive poll (`ibv_start_poll`) whose current completion is the oldest.
    ///
    /// Returns `None` if the queue is empty (ENOENT). Before that, this thread receives pending
    /// packets, as in [`poll`](Self::poll). Other threads that call `start_poll` block until the
    /// poll ends. Posting requests and [`poll`](Self::poll) do not block.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use urxe::{CqError, Poller};
    /// # use urxe::{ConnectOptions, Data, Device, SendRequest};
    /// # let device = Device::open_address([127, 49, 10, 5])?;
    /// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// # let region = pd.allocate(64, urxe::Access::LOCAL_WRITE | urxe::Access::REMOTE_WRITE)?;
    /// # let there = region.remote();
    /// for wr_id in 0..3 {
    ///     let write = SendRequest::write(Data::inline(b"text"), there);
    ///     qp.post_send(&write.wr_id(wr_id).signaled())?;
    /// }
    /// let mut seen = Vec::new();
    /// while seen.len() < 3 {
    ///     let started: Result<Option<Poller<'_>>, CqError> = cq.start_poll();
    ///     let Some(mut poller) = started? else { continue };
    ///     loop {
    ///         assert!(poller.status.is_success());
    ///         // Nanoseconds of the device's clock.
    ///         assert!(poller.timestamp_ns <= device.clock_ns());
    ///         seen.push(poller.wr_id);
    ///         if !poller.advance()? {
    ///             break;
    ///         }
    ///     }
    /// }
    /// assert_eq!(seen, [0, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`CqError::Polling`] if this thread already polls the queue exclusively, and with
    /// [`CqError::Overrun`] as [`poll`](Self::poll) does.
    pub fn start_poll(&self) -> Result<Option<Poller<'_>>, CqError> {
        if let Some(core) = self.core().start_poll()? {
            return Ok(Some(Poller { core }));
        }
        let device = self.device();
        device.inner.backend.progress();
        device.run_ready_wakers();
        Ok(self.core().start_poll()?.map(|core| Poller { core }))
    }
}

impl Poller<'_> {
    /// Moves to the next completion (`ibv_next_poll`). Returns false if there is none (ENOENT); the
    /// current completion stays then.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`] as [`CompletionQueue::poll`] does.
    pub fn advance(&mut self) -> Result<bool, CqError> {
        self.core.advance()
    }
}

impl Deref for Poller<'_> {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        self.core.completion()
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
