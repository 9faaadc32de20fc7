//! What a device stands on: sockets with a thread, or a node of a simulated network.
//!
//! Everything above is the same for both. The choice is one branch a call, which costs nothing
//! beside the call.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use urxe_stack::cq::{Completion, Cq, CqError};
use urxe_stack::device::{Device as Core, ModifyError, QpHandle};
use urxe_stack::driver::Engine;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::link::GidEntry;
use urxe_stack::port::sim::Stalled;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::work_request::{PostError, RecvRequest, SendRequest};
use urxe_stack::sys::clock;
use urxe_stack::time::Time;
use urxe_wire::Gid;

use crate::sim::{Advance, SimNode};

/// A device and what moves it.
#[allow(
    clippy::large_enum_variant,
    reason = "one a device, behind an Arc; a box would cost each call an indirection"
)]
pub(crate) enum Backend {
    /// ServiceDevices UDP.
    Udp(Engine),
    /// In a simulated network. What is posted leaves with the next step of virtual time.
    Simulated(SimNode),
}

impl Backend {
    pub(crate) fn core(&self) -> &Core {
        match self {
            Self::Udp(engine) => engine.device(),
            Self::Simulated(node) => &node.core,
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Udp(engine) => engine.now(),
            Self::Simulated(node) => node.now(),
        }
    }

    /// Whether this process is a child that inherited the device by `fork`. It has none of the
    /// device's threads, and what those held stays held for ever: nothing may be waited for, and
    /// nothing taken down.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::Udp(engine) => engine.is_inherited(),
            Self::Simulated(_) => false,
        }
    }

    /// The GID table as it is now.
    pub(crate) fn gids(&self) -> Vec<GidEntry> {
        match self {
            Self::Udp(engine) => engine.gids(),
            Self::Simulated(node) => {
                let entry = |gid: Gid| GidEntry { gid, assigned: !gid.is_zero() };
                node.core.gids().into_iter().map(entry).collect()
            }
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
            Self::Simulated(node) => node.core.modify_qp(node.now(), qp, attr, mask),
        }
    }

    /// Sends what a queue pair has ready, an acknowledgement that waits for a reply included, since
    /// it goes.
    pub(crate) fn flush_acks(&self, qp: QpHandle) {
        if let Self::Udp(engine) = self {
            engine.flush_acks(qp);
        }
    }

    /// Sends requests that wait for others, since the program may sleep next.
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
            Self::Simulated(node) => node.core.post_send(node.now(), qp, requests),
        }
    }

    pub(crate) fn post_recv(
        &self,
        qp: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        match self {
            Self::Udp(engine) => engine.post_recv(qp, requests),
            Self::Simulated(node) => node.core.post_recv(node.now(), qp, requests),
        }
    }

    pub(crate) fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        match self {
            Self::Udp(engine) => engine.poll(cq, out),
            Self::Simulated(node) => node.poll(cq, out),
        }
    }

    /// Receives and sends what there is, on this thread, once; in a simulated network, the next
    /// thing happens.
    pub(crate) fn progress(&self) {
        match self {
            Self::Udp(engine) => engine.progress(),
            Self::Simulated(node) => node.progress(),
        }
    }

    /// Sleeps until `is_done` or `descriptor` is readable, receiving meanwhile, or until a signal
    /// comes; `false` if `deadline`, by the system's clock, came first.
    pub(crate) fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let slept = match self {
            Self::Udp(engine) => engine.wait(descriptor, deadline, is_done),
            Self::Simulated(_) if is_done() => Ok(true),
            // Another thread moves the network.
            Self::Simulated(_) => sleep(descriptor, deadline),
        };
        if slept == Err(Errno::INTR) { Ok(true) } else { slept }
    }

    /// Readable while asynchronous events wait.
    pub(crate) fn event_descriptor(&self) -> &EventFd {
        match self {
            Self::Udp(engine) => engine.event_descriptor(),
            Self::Simulated(node) => &node.descriptor,
        }
    }

    /// Lets the next thing happen in virtual time, if it comes no later than `limit`.
    pub(crate) fn advance(&self, limit: Time) -> Result<Advance, Stalled> {
        match self {
            Self::Udp(_) => Ok(Advance::Real),
            Self::Simulated(node) => node.advance(limit),
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
