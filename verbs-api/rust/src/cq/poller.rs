//! Polling one completion at a time (`struct ibv_cq_ex`).

use std::fmt;
use std::ops::Deref;

use urxe_stack::cq::{Completion, CqError, Poller as CorePoller};

use super::CompletionQueue;

/// A thread's turn at a completion queue, with one completion in hand, whose fields it derefs to;
/// made by [`CompletionQueue::start_poll`]. Dropping it ends the turn (`ibv_end_poll`).
pub struct Poller<'a> {
    core: CorePoller<'a>,
}

impl CompletionQueue {
    /// Begins to take completions one by one (`ibv_start_poll`), with the oldest in hand; `None` if
    /// there is none (ENOENT). When there is none, this thread first receives what the network has,
    /// as with [`poll`](Self::poll). Other threads that call this wait until the turn ends; posting
    /// and [`poll`](Self::poll) do not.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use urxe::{ConnectOptions, Data, Device, SendRequest};
    /// # let device = Device::open_address([127, 49, 10, 5])?;
    /// # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// # let region = pd.allocate(64, urxe::Access::LOCAL_WRITE | urxe::Access::REMOTE_WRITE)?;
    /// # let there = region.remote();
    /// for wr_id in 0..3 {
    ///     qp.post_send(&SendRequest::write(Data::inline(b"text"), there).wr_id(wr_id).signaled())?;
    /// }
    /// let mut seen = Vec::new();
    /// while seen.len() < 3 {
    ///     let Some(mut poller) = cq.start_poll()? else { continue };
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
    /// [`CqError::Polling`] if this thread has a turn at this queue already, [`CqError::Overrun`]
    /// as [`poll`](Self::poll).
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
    /// Takes the next completion in hand (`ibv_next_poll`); false if there is none (ENOENT), and
    /// then the last one stays.
    ///
    /// # Errors
    /// [`CqError::Overrun`] as [`CompletionQueue::poll`].
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
