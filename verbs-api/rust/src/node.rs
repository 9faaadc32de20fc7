//! What a device stands on: sockets with a thread, or a node of a simulated network.
//!
//! Everything above is the same for both. The choice is one branch a call, which costs nothing beside the call.

use urxe_stack::cq::{Completion, Cq, CqError};
use urxe_stack::device::{Device as Core, ModifyError, QpHandle};
use urxe_stack::driver::Engine;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask};
use urxe_stack::qp::wr::{PostError, RecvRequest, SendRequest};
use urxe_stack::time::Time;

/// A device and what moves it.
pub(crate) enum Node {
    /// Over UDP.
    Udp(Engine),
}

impl Node {
    pub(crate) fn core(&self) -> &Core {
        match self {
            Self::Udp(engine) => engine.device(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Udp(engine) => engine.now(),
        }
    }

    pub(crate) fn modify_qp(&self, qp: QpHandle, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        match self {
            Self::Udp(engine) => engine.modify_qp(qp, attr, mask),
        }
    }

    pub(crate) fn post_send(
        &self,
        qp: QpHandle,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        match self {
            Self::Udp(engine) => engine.post_send(qp, requests),
        }
    }

    pub(crate) fn post_recv(
        &self,
        qp: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        match self {
            Self::Udp(engine) => engine.post_recv(qp, requests),
        }
    }

    pub(crate) fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        match self {
            Self::Udp(engine) => engine.poll(cq, out),
        }
    }
}
