//! Waiting in a thread, in real or virtual time.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::io::Errno;
use urxe_stack::sys::clock;
use urxe_stack::time::Time;

use crate::backend::Backend;
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
            limit: timeout.map_or(Time::NEVER, |timeout| device.inner.backend.now() + timeout),
            deadline: timeout.map_or(Time::NEVER, |timeout| clock::now() + timeout),
        }
    }

    /// Waits until `take` finds something. `missed`, called when this thread stands among the
    /// `waiters`, asks for the next wake-up and says whether something came before that.
    pub(crate) fn until<T>(
        &self,
        waiters: &Waiters,
        take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut missed: impl FnMut() -> bool,
    ) -> Result<T, WaitError> {
        let mut sleeping: Option<(Sleeper, Waker, Place<&Waiters>)> = None;
        let mut is_armed = false;
        self.until_with(take, |backend, deadline| {
            let (sleeper, waker, place) = match &mut sleeping {
                Some(sleeping) => sleeping,
                None => {
                    let sleeper = Sleeper::new()?;
                    let waker = Waker::from(sleeper.bell());
                    sleeping.insert((sleeper, waker, Place::new(waiters)))
                }
            };
            if std::mem::take(&mut is_armed) {
                return sleeper.sleep(backend, deadline);
            }
            place.register(waker);
            // What came before that is found by looking once more.
            is_armed = !missed();
            Ok(true)
        })
    }

    /// Waits until `take` finds something. In between, `sleep` waits for a reason to look again;
    /// `false` if its deadline came first.
    pub(crate) fn until_with<T>(
        &self,
        mut take: impl FnMut() -> Result<Option<T>, WaitError>,
        mut sleep: impl FnMut(&Backend, Time) -> Result<bool, Errno>,
    ) -> Result<T, WaitError> {
        let backend = &self.device.inner.backend;
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            match backend.advance(self.limit)? {
                Advance::Moved => continue,
                // What needs no packet (a bind, a request that fails at once) is done when others
                // look for packets to send.
                Advance::Limit => return take()?.ok_or(WaitError::TimedOut),
                Advance::Quiet => return take()?.ok_or(WaitError::Quiet),
                Advance::Real => {}
            }
            let woken = sleep(backend, self.deadline);
            if !woken.map_err(|errno| WaitError::Descriptor { errno })? {
                // It may have come at the last moment.
                return take()?.ok_or(WaitError::TimedOut);
            }
        }
    }
}

/// What a future that waits among `waiters` comes to, in real or virtual time: what `take` finds,
/// or a wake-up when it may find something. `missed` as in [`Wait::until`].
pub(crate) fn poll_next<'a, T>(
    device: &Device,
    waiters: &'a Waiters,
    place: &mut Option<Place<&'a Waiters>>,
    cx: &Context<'_>,
    take: impl Fn() -> Result<Option<T>, WaitError>,
    missed: impl Fn() -> bool,
) -> Poll<Result<T, WaitError>> {
    loop {
        if let Some(ready) = take().transpose() {
            *place = None;
            return Poll::Ready(ready);
        }
        place.get_or_insert_with(|| Place::new(waiters)).register(cx.waker());
        if missed() {
            continue;
        }
        let advanced = device.inner.backend.advance(Time::NEVER);
        if let Some(ready) = take().transpose() {
            *place = None;
            return Poll::Ready(ready);
        }
        if advanced? == Advance::Moved {
            // Other tasks' turn, then the next step.
            cx.waker().wake_by_ref();
        }
        return Poll::Pending;
    }
}
