//! The clock of a fabric, and the signal to the task that drives a fabric by another clock.
//!
//! ```text
//!   a post, a MAD, an earlier deadline ──> WorkSignal ──> the task in Fabric::drive
//!   Fabric::drive ──> run_until(the other clock) ──> sleep until the next deadline
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use urxe_stack::cq::Wake;
use urxe_stack::port::sim::SimNetwork;
use urxe_stack::time::Time;

use crate::waker_list::{ReadyWakers, lock};

/// The actor that advances virtual time.
#[derive(Clone)]
pub(super) enum Pace {
    /// Each call that waits.
    Waits,
    /// The program, by the `run_` methods.
    Program,
    /// The program, which follows this clock: the time since the start.
    Clock(Arc<dyn Fn() -> Duration + Send + Sync>),
}

/// The virtual clock.
#[derive(Clone)]
pub(super) struct Clock {
    network: SimNetwork,
    pace: Pace,
    /// Whether a step runs. Its events have their own times, which may be before that of the other
    /// clock.
    in_step: Arc<AtomicBool>,
}

impl Clock {
    pub(super) fn new(network: SimNetwork, pace: Pace) -> Self {
        Self { network, pace, in_step: Arc::default() }
    }

    /// Returns the virtual time. Outside steps, the time first catches up with the other clock.
    pub(super) fn now(&self) -> Time {
        if matches!(self.pace, Pace::Clock(_)) && !self.in_step.load(Ordering::Relaxed) {
            // A time in the past has no effect.
            self.network.advance(self.target());
        }
        self.network.now()
    }

    /// Returns the time of the other clock, up to which events are due.
    pub(super) fn target(&self) -> Time {
        match &self.pace {
            Pace::Clock(elapsed) => Time::ZERO + elapsed(),
            Pace::Waits | Pace::Program => self.network.now(),
        }
    }

    /// Returns whether calls that wait advance the time.
    pub(super) fn follows_waits(&self) -> bool {
        matches!(self.pace, Pace::Waits)
    }

    /// Runs a step, during which the other clock is not read.
    pub(super) fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        // A waker that runs in a step may run another step.
        let outer = self.in_step.swap(true, Ordering::Relaxed);
        let stepped = step();
        self.in_step.store(outer, Ordering::Relaxed);
        stepped
    }
}

/// Tells the task that drives the fabric that there is work: packets to send or an earlier
/// deadline.
#[derive(Debug)]
pub(super) struct WorkSignal {
    ready: Arc<ReadyWakers>,
    has_work: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

impl WorkSignal {
    pub(super) fn new(ready: Arc<ReadyWakers>) -> Self {
        Self { ready, has_work: AtomicBool::new(false), driver: Mutex::default() }
    }

    /// Forgets work that the next step will find.
    pub(super) fn clear(&self) {
        self.has_work.store(false, Ordering::Release);
    }

    /// Registers the waker of the driving task. Returns whether there is work already.
    pub(super) fn register(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let before = lock(&self.driver).replace(waker);
        drop(before);
        self.has_work.load(Ordering::Acquire)
    }
}

impl Wake for WorkSignal {
    fn wake(&self) {
        if !self.has_work.swap(true, Ordering::AcqRel)
            && let Some(driver) = lock(&self.driver).take()
        {
            self.ready.push(driver);
        }
    }
}
