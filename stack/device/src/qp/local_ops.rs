//! Work requests that send nothing. They bind memory windows, and register or invalidate keys of
//! this device.
//!
//! These work requests have no PSN. The requester executes each once, when it is next in the send
//! queue. They complete in the order of that queue.
//!
//! Sources: IBTA vol. 1, 10.6.5.1 and 10.8.3. The completion statuses are those of
//! `rxe_do_local_ops` (`rxe_req.c`).

use super::context::QpContext;
use super::qp_core::QpCore;
use super::work_request::SendOp;
use crate::cq::WcStatus;
use urxe_memory::Invalidator;
use urxe_types::counters::Counter;

/// Executes `op` for a queue pair.
///
/// # Errors
/// Fails with the status of the completion; nothing was changed.
pub(super) fn execute(op: &SendOp, qp: &QpCore, cx: &mut QpContext<'_>) -> Result<(), WcStatus> {
    // Invalidating a key waits for its pins, including those of this call.
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
