//! Waiting in a thread, in real or virtual time.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use urxe_stack::time::Time;

use crate::cq::WaitError;
use crate::device::Device;
use crate::sim::Advance;
use crate::waiters::{Place, Sleeper, Waiters};

/// One wait with its deadline.
pub(crate) struct Wait<'a> {
    device: &'a Device,
    real: Option<Instant>,
    virtual_time: Time,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(device: &'a Device, timeout: Option<Duration>) -> Self {
        Self {
            device,
            real: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            virtual_time: timeout.map_or(Time::NEVER, |timeout| device.inner.node.now() + timeout),
        }
    }

    /// Waits until `take` finds something. `missed`, called when this thread stands among the `waiters`, asks for the next wake-up and
    /// says whether something came before that.
    pub(crate) fn until<T>(
        &self,
        waiters: &Waiters,
        mut take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut missed: impl FnMut() -> bool,
    ) -> Result<T, WaitError> {
        let mut sleeping: Option<(Arc<Sleeper>, Waker, Place<'_>)> = None;
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            match self.device.inner.node.advance(self.virtual_time)? {
                Advance::Moved => continue,
                // What needs no packet (a bind, a request that fails at once) is done when others look for packets to send.
                Advance::Limit => return take()?.ok_or(WaitError::TimedOut),
                Advance::Quiet => return take()?.ok_or(WaitError::Quiet),
                Advance::Real => {}
            }
            let (sleeper, waker, place) = sleeping.get_or_insert_with(|| {
                let sleeper = Sleeper::new();
                let waker = Waker::from(Arc::clone(&sleeper));
                (sleeper, waker, Place::new(waiters))
            });
            place.register(waker);
            if missed() {
                continue;
            }
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            if !sleeper.sleep(self.real) {
                // It may have come at the last moment.
                return take()?.ok_or(WaitError::TimedOut);
            }
        }
    }
}
