//! Waiting in a thread, in real or virtual time.

use std::task::Waker;
use std::time::Duration;

use urxe_stack::sys::clock;
use urxe_stack::time::Time;

use crate::cq::WaitError;
use crate::device::Device;
use crate::sim::Advance;
use crate::sleeper::Sleeper;
use crate::waiters::{Place, Waiters};

/// One wait with its deadline.
pub(crate) struct Wait<'a> {
    device: &'a Device,
    /// By the device's clock, which is virtual in a simulated network.
    limit: Time,
    /// By the system's.
    deadline: Time,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(device: &'a Device, timeout: Option<Duration>) -> Self {
        Self {
            device,
            limit: timeout.map_or(Time::NEVER, |timeout| device.inner.node.now() + timeout),
            deadline: timeout.map_or(Time::NEVER, |timeout| clock::now() + timeout),
        }
    }

    /// Waits until `take` finds something. `missed`, called when this thread stands among the
    /// `waiters`, asks for the next wake-up and says whether something came before that.
    pub(crate) fn until<T>(
        &self,
        waiters: &Waiters,
        mut take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut missed: impl FnMut() -> bool,
    ) -> Result<T, WaitError> {
        let mut sleeping: Option<(Sleeper, Waker, Place<'_>)> = None;
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            match self.device.inner.node.advance(self.limit)? {
                Advance::Moved => continue,
                // What needs no packet (a bind, a request that fails at once) is done when others
                // look for packets to send.
                Advance::Limit => return take()?.ok_or(WaitError::TimedOut),
                Advance::Quiet => return take()?.ok_or(WaitError::Quiet),
                Advance::Real => {}
            }
            if sleeping.is_none() {
                let sleeper = Sleeper::new().map_err(|errno| WaitError::Descriptor { errno })?;
                let waker = Waker::from(sleeper.bell());
                sleeping = Some((sleeper, waker, Place::new(waiters)));
            }
            let Some((sleeper, waker, place)) = &mut sleeping else {
                unreachable!("it was just made")
            };
            place.register(waker);
            if missed() {
                continue;
            }
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            let rung = sleeper
                .sleep(&self.device.inner.node, self.deadline)
                .map_err(|errno| WaitError::Descriptor { errno })?;
            if !rung {
                // It may have come at the last moment.
                return take()?.ok_or(WaitError::TimedOut);
            }
        }
    }
}
