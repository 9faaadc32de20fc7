//! Extended reliable connections (XRC): reliable connections whose two ends have one half each.
//!
//! ```text
//!   XRC_SEND                                      XRC_RECV (target), in an XRC domain
//!   requester, completer  -- requests, XRCETH --> responder --> the domain's shared receive queues
//!                         <-- responses ---------    (their domains and completion queues)
//! ```
//!
//! Every request names a shared receive queue. The target finds it in its XRC domain, and checks
//! the message with the protection domain of that queue. A number outside the XRC domain makes the
//! request invalid. In all other respects the connection is a reliable connection.
//!
//! Source: IBTA vol. 1, annex A14.

use urxe_wire::{PacketView, Qpn, XrcEth};

use super::execution::Fault;
use super::responder::Responder;
use crate::cq::SrqId;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::work_request::Destination;
use urxe_types::counters::Counter;
use urxe_types::sync::Arc;

impl Responder {
    /// Finds the shared receive queue of an XRC request. The first packet of a message names a
    /// queue of the domain, and the other packets name the same queue.
    pub(super) fn find_srq(
        &mut self,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(), Fault> {
        let Some(target) = &mut qp.xrc else { return Ok(()) };
        let named = packet.xrceth().map(|xrceth| SrqId(xrceth.srq.value()));
        let starts = packet.info().position.is_start();
        let current = target.srq.as_ref().filter(|srq| !starts || !srq.is_destroyed());
        if named.is_some() && named == current.map(|srq| srq.id()) {
            return Ok(());
        }
        let found = named.filter(|_| starts).and_then(|id| cx.device.srqs.find(id, &target.xrcd));
        let Some(srq) = found else {
            tracing::debug!(qp = %qp.qpn, ?named, "request refused: no such SRQ in the XRC domain");
            cx.device.counters.add(Counter::XrcViolation);
            return Err(Fault::INVALID_REQUEST);
        };
        (qp.pd, qp.recv_pd) = (srq.pd(), srq.pd());
        self.queue.select_srq(Arc::clone(&srq));
        target.srq = Some(srq);
        Ok(())
    }
}

/// Returns the XRCETH of an XRC request.
pub(super) fn xrceth(wqe: &SendWqe) -> Option<XrcEth> {
    match wqe.to {
        Destination::XrcSrq { srq } => Some(XrcEth { srq: Qpn::masked(srq.0) }),
        _ => None,
    }
}
