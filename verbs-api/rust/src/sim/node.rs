//! A device of a simulated network, and the steps of virtual time.

use std::fmt;
use std::sync::{Arc, Mutex};

use urxe_stack::cq::{Completion, Cq, CqError, Wake};
use urxe_stack::device::{Device as Core, ModifyError, QpHandle};
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::link::GidEntry;
use urxe_stack::port::sim::{Fabric as CoreFabric, NodeId, SimNetwork, SimPort, Stalled};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_stack::qp::work_request::{PostError, RecvRequest, SendRequest};
use urxe_stack::time::Time;
use urxe_wire::Gid;

use super::clock::{Clock, WorkSignal};
use super::connections::{Detach, Host};
use crate::backend::Advance;
use crate::waker_list::{ReadyWakers, WakerList, lock};

/// The state that all devices of a fabric share.
pub(super) struct Shared {
    /// Locked during each step. A step does not call the program.
    pub(super) fabric: Mutex<CoreFabric<Host>>,
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

/// The backend of a simulated device.
pub(crate) struct SimNode {
    pub(super) id: NodeId,
    pub(super) shared: Arc<Shared>,
    pub(super) port: Option<SimPort>,
    #[cfg_attr(not(feature = "cm"), expect(dead_code, reason = "there are no connections"))]
    pub(super) detach: Detach,
    pub(super) core: Arc<Core>,
    pub(super) descriptor: Arc<EventDescriptor>,
}

impl SimNode {
    pub(crate) fn device(&self) -> &Core {
        &self.core
    }

    pub(crate) fn event_descriptor(&self) -> &EventDescriptor {
        &self.descriptor
    }

    pub(crate) fn gids(&self) -> Vec<GidEntry> {
        let entry = |gid: Gid| GidEntry { gid, assigned: !gid.is_zero() };
        self.core.gids().into_iter().map(entry).collect()
    }

    #[cfg(feature = "cm")]
    pub(crate) fn connection_key(&self) -> Option<urxe_stack::cma::DeviceKey> {
        Some(self.detach.key())
    }

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

    pub(crate) fn post_recv(
        &self,
        qp: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        self.core.post_recv(self.now(), qp, requests)
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
