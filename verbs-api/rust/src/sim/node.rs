//! A device of a simulated network, and the steps of virtual time.

use std::fmt;
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{Completion, Cq, CqError, Wake};
use urxe_stack::device::{Device as Core, ModifyError, QpHandle};
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::driver::simulated::{Detach, SimulatedHost};
use urxe_stack::port::sim::{Fabric as CoreFabric, NodeId, SimNetwork, SimPort, Stalled};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_stack::qp::work_request::{PostError, SendRequest};
use urxe_stack::time::Time;

use super::clock::{Clock, WorkSignal};
use crate::waker_list::{ReadyWakers, WakerList, lock};

/// The state that all devices of a fabric share.
pub(super) struct Shared {
    /// Locked during each step. A step does not call the program.
    pub(super) fabric: Mutex<CoreFabric<SimulatedHost>>,
    pub(super) network: SimNetwork,
    /// All devices share one list, because a step of one device may wake a waiter of another.
    pub(super) ready: Arc<ReadyWakers>,
    pub(super) clock: Clock,
    pub(super) work: Arc<WorkSignal>,
    /// Tasks that wait although no event is pending. The next request wakes them, because it may
    /// cause events that no other task runs.
    pub(super) quiet: Arc<WakerList>,
}

impl Shared {
    /// Runs the next event, unless it comes after `limit`. Returns whether there was one.
    pub(super) fn step(&self, limit: Time) -> Result<bool, Stalled> {
        self.clock.during(|| {
            let stepped = lock(&self.fabric).step(limit);
            self.ready.run();
            stepped
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("now", &self.network.now()).finish_non_exhaustive()
    }
}

/// The result of advancing virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// An event was run.
    Moved,
    /// No event is due before the limit, to which the time was set.
    Limit,
    /// No event is pending.
    Quiet,
    /// Time advances without the caller, in real time or by another thread.
    Real,
}

/// The backend of a simulated device.
pub(crate) struct SimNode {
    pub(super) id: NodeId,
    pub(super) shared: Arc<Shared>,
    pub(super) port: Option<SimPort>,
    pub(super) _detach: Detach,
    pub(crate) core: Arc<Core>,
    pub(crate) descriptor: Arc<EventDescriptor>,
}

impl SimNode {
    pub(crate) fn now(&self) -> Time {
        self.shared.clock.now()
    }

    pub(crate) fn quiet_wakers(&self) -> Arc<WakerList> {
        Arc::clone(&self.shared.quiet)
    }

    /// Wakes the tasks that wait although no event was pending. Their wakers are called when this
    /// thread holds no lock.
    pub(crate) fn wake_quiet(&self) {
        self.shared.quiet.wake();
    }

    /// Runs the next event, unless it comes after `limit`.
    pub(crate) fn advance(&self, limit: Time) -> Result<Advance, Stalled> {
        if !self.shared.clock.follows_waits() {
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

    /// Takes completions. If there are none, runs one event and polls again.
    pub(crate) fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = cq.poll(out)?;
        if taken > 0 || out.is_empty() {
            return Ok(taken);
        }
        self.progress();
        cq.poll(out)
    }

    /// Runs the next event, if waits advance the time. Returns whether there was one.
    pub(crate) fn progress(&self) -> bool {
        match self.advance(Time::NEVER) {
            Ok(advance) => advance == Advance::Moved,
            Err(stalled) => {
                tracing::error!(%stalled, "virtual time does not advance");
                false
            }
        }
    }

    pub(crate) fn modify_qp(
        &self,
        qp: QpHandle,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        if mask.contains(QpAttrMask::STATE)
            && matches!(attr.qp_state, QpState::Err | QpState::Reset)
        {
            self.flush_acks(qp);
        }
        self.core.modify_qp(self.now(), qp, attr, mask)?;
        self.shared.work.wake();
        Ok(())
    }

    pub(crate) fn post_send(
        &self,
        qp: QpHandle,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        let posted = self.core.post_send(self.now(), qp, requests);
        self.shared.work.wake();
        posted
    }

    /// Sends the ready packets of a queue pair before the next step. A stopped host sends nothing.
    pub(crate) fn flush_acks(&self, qp: QpHandle) {
        if let Some(port) = &self.port
            && self.shared.network.stopped_until(self.id).is_none()
        {
            self.core.transmit_of(qp, self.now(), port);
        }
    }
}
