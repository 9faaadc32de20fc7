//! Asynchronous events of queue pairs, completion queues, shared receive queues and the port.

use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cq::AsyncEvent;

use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot, poll_next};

/// The asynchronous events of a device (`ibv_get_async_event`), in the order of their arrival.
///
/// Made by [`Device::events`]. The program need not acknowledge events. Pending events about an
/// object are removed when the object is destroyed.
#[derive(Clone, Copy)]
pub struct DeviceEvents<'a> {
    device: &'a Device,
}

impl Device {
    /// Returns the queue of asynchronous events.
    ///
    /// ```
    /// use urxe::{AsyncEvent, PortEventType, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = Fabric::new(1);
    /// # let device = fabric.device([10, 0, 0, 1])?;
    /// # fabric.set_port_active(&device, false)?;
    /// match device.events().wait(None)? {
    ///     AsyncEvent::Port(PortEventType::PortErr, _) => println!("the link is down"),
    ///     AsyncEvent::Port(PortEventType::PortActive, _) => println!("the link is up again"),
    ///     AsyncEvent::Port(PortEventType::GidChange, _) => {
    ///         println!("addresses: {:?}", device.query_port().gids);
    ///     }
    ///     other => println!("{other}"),
    /// }
    /// assert!(!device.query_port().is_active);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> DeviceEvents<'_> {
        DeviceEvents { device: self }
    }
}

impl<'a> DeviceEvents<'a> {
    /// Takes the oldest event. Returns `None` if no event is pending.
    pub fn try_next(&self) -> Option<AsyncEvent> {
        let events = self.device.core().events();
        let event = events.next_event()?;
        events.ack(&event);
        Some(event)
    }

    /// Blocks until an event arrives, and takes it. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError::TimedOut`], and in a simulated network with [`WaitError::Quiet`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<AsyncEvent, WaitError> {
        let wait = BlockingWait::new(self.device, timeout);
        wait.until(&self.device.inner.events, || Ok(self.try_next()), || false)
    }

    /// Returns a future that waits for an event and takes it. The future needs no runtime.
    ///
    /// ```
    /// use urxe::{AsyncEventType, NextEvent, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fabric = Fabric::new(1);
    /// let device = fabric.device([10, 0, 0, 1])?;
    /// fabric.set_port_active(&device, false)?;
    /// let next: NextEvent<'_> = device.events().next();
    /// let event = pollster::block_on(next)?;
    /// assert_eq!(event.event_type(), AsyncEventType::PortErr);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future fails with [`WaitError`] only in a simulated network.
    pub fn next(&self) -> NextEvent<'a> {
        NextEvent { events: *self, slot: None }
    }

    /// Returns the number of events that were discarded because the program did not take events for
    /// too long.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.device.core().events().lost()
    }
}

/// Readable while an event is pending. Do not read from the descriptor: [`DeviceEvents::try_next`]
/// does.
impl AsFd for DeviceEvents<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.inner.backend.event_descriptor().as_fd()
    }
}

impl fmt::Debug for DeviceEvents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut events = f.debug_struct("DeviceEvents");
        events.field("device", &self.device.name()).finish_non_exhaustive()
    }
}

/// The future of [`DeviceEvents::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextEvent<'a> {
    events: DeviceEvents<'a>,
    slot: Option<WakerSlot<&'a WakerList>>,
}

impl Future for NextEvent<'_> {
    type Output = Result<AsyncEvent, WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { events, slot } = &mut *self;
        let (device, take) = (events.device, || Ok(events.try_next()));
        poll_next(device, &&*device.inner.events, slot, cx, take, || false)
    }
}
