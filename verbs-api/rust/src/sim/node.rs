//! One device of a simulated network, and the steps of virtual time.

use std::fmt;
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{Completion, Cq, CqError};
use urxe_stack::device::Device as Core;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::port::sim::{DeviceHost, Fabric as CoreFabric, NodeId, SimNetwork, Stalled};
use urxe_stack::time::Time;

use crate::waker_list::{ReadyWakers, lock};

/// What the fabric's devices share.
pub(super) struct Shared {
    /// Locked for each step. Nothing that runs under it calls the program.
    pub(super) fabric: Mutex<CoreFabric<DeviceHost>>,
    pub(super) network: SimNetwork,
    /// A step of one device may wake who waits on another, so they have one list.
    pub(super) ready: Arc<ReadyWakers>,
    pub(super) manual: bool,
}

impl Shared {
    /// Moves to the next event if it comes no later than `limit`, and lets it happen. Whether there
    /// was one.
    pub(super) fn step(&self, limit: Time) -> Result<bool, Stalled> {
        let stepped = lock(&self.fabric).step(limit);
        self.ready.run();
        stepped
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("now", &self.network.now())
            .field("manual", &self.manual)
            .finish_non_exhaustive()
    }
}

/// What became of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// Something happened.
    Moved,
    /// Nothing will happen up to the limit, which it is now.
    Limit,
    /// Nothing will ever happen.
    Quiet,
    /// Time passes by itself.
    Real,
}

/// A device of the fabric.
pub(crate) struct SimNode {
    pub(super) id: NodeId,
    pub(super) shared: Arc<Shared>,
    pub(crate) core: Arc<Core>,
    pub(crate) descriptor: Arc<EventFd>,
}

impl SimNode {
    pub(crate) fn now(&self) -> Time {
        self.shared.network.now()
    }

    /// Lets the next thing happen, if it comes no later than `limit`.
    pub(crate) fn advance(&self, limit: Time) -> Result<Advance, Stalled> {
        if self.shared.manual {
            return Ok(Advance::Real);
        }
        if self.shared.step(limit)? {
            return Ok(Advance::Moved);
        }
        if limit == Time::NEVER {
            return Ok(Advance::Quiet);
        }
        self.shared.network.advance(limit);
        Ok(Advance::Limit)
    }

    /// Takes completions; when there are none, lets one thing happen and looks again.
    pub(crate) fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = cq.poll(out)?;
        if taken > 0 || out.is_empty() {
            return Ok(taken);
        }
        self.progress();
        cq.poll(out)
    }

    pub(crate) fn progress(&self) {
        if let Err(stalled) = self.advance(Time::NEVER) {
            tracing::error!(%stalled, "a poll moves no time");
        }
    }
}
