//! The backend of a device: UDP sockets with a background thread, or a node of a simulated network.
//!
//! All other modules are the same for both backends. Selecting the backend costs one branch for
//! each call.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use urxe_stack::cq::{Completion, Cq, CqError};
use urxe_stack::device::{Device as Core, ModifyError, QpHandle};
use urxe_stack::driver::Engine;
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::link::GidEntry;
use urxe_stack::port::udp::PathError;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::work_request::{PostError, RecvRequest, SendRequest};
use urxe_stack::sys::clock;
use urxe_stack::time::Time;

use crate::sim::{SimNode, Stalled};
use crate::waker_list::WakerList;

/// A device and the engine that drives it.
#[allow(
    clippy::large_enum_variant,
    reason = "one a device, behind an Arc; a box would cost each call an indirection"
)]
pub(crate) enum Backend {
    /// UDP sockets.
    Udp(Engine),
    /// A node of a simulated network. Posted work is sent in the next step of virtual time.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "no value of this type exists"))]
    Simulated(SimNode),
}

/// The result of advancing virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "all time is real"))]
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

impl Backend {
    pub(crate) fn core(&self) -> &Core {
        match self {
            Self::Udp(engine) => engine.device(),
            Self::Simulated(node) => node.device(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Udp(engine) => engine.now(),
            Self::Simulated(node) => node.now(),
        }
    }

    /// Returns whether this process is a child that inherited the device by `fork`.
    ///
    /// The child has none of the device's threads, and locks that they held stay locked. The child
    /// must therefore neither wait for the device nor destroy its objects.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::Udp(engine) => engine.is_inherited(),
            Self::Simulated(_) => false,
        }
    }

    /// Returns the current GID table.
    pub(crate) fn gids(&self) -> Vec<GidEntry> {
        match self {
            Self::Udp(engine) => engine.gids(),
            Self::Simulated(node) => node.gids(),
        }
    }

    pub(crate) fn modify_qp(
        &self,
        qp: QpHandle,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        match self {
            Self::Udp(engine) => engine.modify_qp(qp, attr, mask),
            Self::Simulated(node) => {
                let modified = node.modify_qp(qp, attr, mask);
                node.wake_quiet();
                modified
            }
        }
    }

    /// Sends all packets that a queue pair has ready, including delayed acknowledgements, because
    /// the queue pair is about to be destroyed.
    pub(crate) fn flush_acks(&self, qp: QpHandle) {
        match self {
            Self::Udp(engine) => engine.flush_acks(qp),
            Self::Simulated(node) => node.flush_acks(qp),
        }
    }

    /// Sends requests that were deferred to share a system call, because the program may block
    /// next.
    pub(crate) fn flush_deferred(&self) {
        if let Self::Udp(engine) = self {
            engine.flush_deferred();
        }
    }

    pub(crate) fn post_send(
        &self,
        qp: QpHandle,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        match self {
            Self::Udp(engine) => engine.post_send(qp, requests),
            Self::Simulated(node) => {
                let posted = node.post_send(qp, requests);
                node.wake_quiet();
                posted
            }
        }
    }

    pub(crate) fn post_recv(
        &self,
        qp: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        match self {
            Self::Udp(engine) => engine.post_recv(qp, requests),
            Self::Simulated(node) => node.post_recv(qp, requests),
        }
    }

    pub(crate) fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        match self {
            Self::Udp(engine) => engine.poll(cq, out),
            Self::Simulated(node) => node.poll(cq, out),
        }
    }

    /// Receives and sends pending packets once, on this thread. In a simulated network, runs one
    /// step.
    pub(crate) fn progress(&self) {
        match self {
            Self::Udp(engine) => engine.progress(),
            Self::Simulated(node) => _ = node.progress(),
        }
    }

    /// Blocks until `is_done` returns true, `descriptor` is readable or a signal arrives. Receives
    /// packets meanwhile. Returns `false` if `deadline`, in system time, passed first.
    pub(crate) fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let slept = match self {
            Self::Udp(engine) => engine.wait(descriptor, deadline, is_done),
            Self::Simulated(_) if is_done() => Ok(true),
            // Another thread runs the simulated network.
            Self::Simulated(_) => sleep(descriptor, deadline),
        };
        if slept == Err(Errno::INTR) { Ok(true) } else { slept }
    }

    /// Returns the key of the device among the connections of its service.
    #[cfg(feature = "cm")]
    pub(crate) fn connection_key(&self) -> Option<urxe_stack::cma::DeviceKey> {
        match self {
            Self::Udp(engine) => engine.connection_key(),
            Self::Simulated(node) => node.connection_key(),
        }
    }

    /// Returns a descriptor that is readable while asynchronous events are pending.
    pub(crate) fn event_descriptor(&self) -> &EventDescriptor {
        match self {
            Self::Udp(engine) => engine.event_descriptor(),
            Self::Simulated(node) => node.event_descriptor(),
        }
    }

    /// Returns the last error of packets to `peer` since a time. A simulated network has none.
    pub(crate) fn path_error(&self, peer: IpAddr, since: Time) -> Option<PathError> {
        match self {
            Self::Udp(engine) => engine.path_error(peer, since),
            Self::Simulated(_) => None,
        }
    }

    /// Lets the background thread receive at once, because the thread that polled is about to
    /// sleep.
    pub(crate) fn stop_polling(&self) {
        if let Self::Udp(engine) = self {
            engine.stop_polling();
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Returns the wakers of tasks that wait although the simulated network has no event.
    pub(crate) fn quiet_wakers(&self) -> Option<Arc<WakerList>> {
        match self {
            Self::Udp(_) => None,
            Self::Simulated(node) => Some(node.quiet_wakers()),
        }
    }

    /// Runs the next step of virtual time, unless the step comes after `limit`.
    pub(crate) fn advance(&self, limit: Time) -> Result<Advance, Stalled> {
        match self {
            Self::Udp(_) => Ok(Advance::Real),
            Self::Simulated(node) => node.advance(limit),
        }
    }

    /// Runs the next step of virtual time, if waits advance the time. Returns whether there was
    /// one.
    #[cfg(feature = "cm")]
    pub(crate) fn move_virtual_time(&self) -> bool {
        match self {
            Self::Udp(_) => false,
            Self::Simulated(node) => node.progress(),
        }
    }
}

fn sleep(descriptor: BorrowedFd<'_>, deadline: Time) -> Result<bool, Errno> {
    let left_ns = (deadline != Time::NEVER).then(|| deadline.since_ns(clock::now()));
    let timeout = left_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    Ok(poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], timeout.as_ref())? > 0)
}
