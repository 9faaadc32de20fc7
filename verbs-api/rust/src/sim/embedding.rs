//! Fabrics whose time follows the clock of another simulation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use urxe_stack::port::sim::Stalled;
use urxe_stack::time::Time;

use super::Fabric;
use super::clock::Pace;
use crate::waker_list::lock;

impl Fabric {
    /// Returns a network without devices, whose time follows `elapsed`: the time since the start of
    /// the program's own simulation. It must not call the fabric.
    ///
    /// Work that a task posts has the time of that clock. Packets and timers advance only in
    /// [`drive`](Self::drive) and the `run_` methods, as in a fabric of [`manual`](Self::manual).
    /// See [another simulation](crate::sim#in-another-simulation).
    #[must_use]
    pub fn with_clock(seed: u64, elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self::with(seed, Pace::Clock(Arc::new(elapsed)))
    }

    /// Sends the pending packets, and returns the time of the next event: a packet that arrives, or
    /// a timer. Returns `None` if no event is pending. A later call of the program may cause an
    /// earlier event.
    ///
    /// A program whose loop owns the time calls [`run_until`](Self::run_until) at that time:
    ///
    /// ```
    /// use urxe::cm::{self, Listener, Options};
    /// use urxe::sim::Fabric;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fabric = Fabric::manual(1);
    /// let (server, client) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// let listener = Listener::builder().device(&server).bind("10.0.0.1:7471")?;
    /// let options = Options::new().device(&client);
    /// let _request = cm::prepare("10.0.0.1:7471", &options)?.start()?;
    /// while listener.try_next().is_none() {
    ///     let next = fabric.next_deadline().ok_or("the request is lost")?;
    ///     fabric.run_until(next)?;
    /// }
    /// // The link takes 10 µs.
    /// assert_eq!(fabric.now().as_ns(), 10_000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.shared.clock.now();
        let next = lock(&self.shared.fabric).next_deadline();
        self.shared.ready.run();
        next
    }

    /// Runs the events of the network as the clock of [`with_clock`](Self::with_clock) reaches
    /// them. `sleep_until` returns a future that ends when this time has passed since the start.
    ///
    /// A task of its own awaits this future, which ends only by an error. The future needs no
    /// runtime. It wakes when a call of the program causes an earlier event.
    ///
    /// # Errors
    /// Returns [`Stalled`] if the time does not advance, which is a bug of this library.
    pub async fn drive<S: Future>(&self, mut sleep_until: impl FnMut(Duration) -> S) -> Stalled {
        loop {
            if let Err(stalled) = self.run_until(self.shared.clock.target()) {
                return stalled;
            }
            let work = &self.shared.work;
            work.clear();
            let next = self.next_deadline();
            let mut sleep = pin!(next.map(|at| sleep_until(Duration::from_nanos(at.as_ns()))));
            poll_fn(|cx| {
                let slept =
                    sleep.as_mut().as_pin_mut().is_some_and(|sleep| sleep.poll(cx).is_ready());
                match slept || work.register(cx.waker()) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }

    /// Tells the task that drives the network about changed links. The caller holds no lock.
    pub(super) fn note_change(&self) {
        urxe_stack::cq::Wake::wake(&*self.shared.work);
        self.shared.ready.run();
    }
}
