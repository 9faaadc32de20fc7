//! Work requests that send nothing: they bind windows and register or invalidate keys of the own
//! device.
//!
//! They have no PSN. A requester carries them out when their turn comes in the send queue, once,
//! and they complete in its order.
//!
//! Sources: IBTA vol. 1, 10.6.5.1, 10.8.3; `rxe_req.c` (`rxe_do_local_ops`), whose statuses these
//! are.

use super::context::QpContext;
use super::qp_core::QpCore;
use super::work_request::SendOp;
use crate::cq::WcStatus;
use urxe_memory::Invalidator;
use urxe_types::counters::Counter;

/// Carries `op` out for a queue pair. `Err` with the status that its completion gets; nothing
/// changed then.
pub(super) fn execute(op: &SendOp, qp: &QpCore, cx: &mut QpContext<'_>) -> Result<(), WcStatus> {
    // Taking a key away waits for its pins, those of this run included.
    cx.pins.clear();
    dispatch(op, qp, cx).inspect_err(|_| cx.device.counters.add(Counter::LocalOpRefused))
}

fn dispatch(op: &SendOp, qp: &QpCore, cx: &QpContext<'_>) -> Result<(), WcStatus> {
    match op {
        SendOp::BindMw(bind) => {
            cx.device.memory.bind(bind, qp.accessor()).map(drop).map_err(|error| {
                tracing::debug!(qp = %qp.qpn, %error, "bind refused");
                WcStatus::MwBindErr
            })
        }
        SendOp::RegMr { key, access } => {
            cx.device.memory.register_fast(*key, *access, qp.pd).map_err(|error| {
                tracing::debug!(qp = %qp.qpn, %error, "fast registration refused");
                WcStatus::LocQpOpErr
            })
        }
        SendOp::LocalInv { rkey } => {
            cx.device.memory.invalidate(*rkey, qp.accessor(), Invalidator::Local).map_err(|error| {
                tracing::debug!(qp = %qp.qpn, %error, "local invalidate refused");
                WcStatus::LocQpOpErr
            })
        }
        _ => unreachable!("{op:?} is no local operation"),
    }
}
