//! Posting work requests.

use urxe_wire::Service;

use super::{Device, QpHandle};
use crate::path::Path;
use crate::path::coalescer::{Deferral, WAIT_NS};
use crate::qp::Qp;
use crate::qp::work_request::{Destination, PostError, RecvRequest, SendRequest};
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;

impl Device {
    /// Posts send work requests. Packets that can be sent leave with the next
    /// [`transmit_pending`](Self::transmit_pending).
    ///
    /// # Errors
    /// The index of the first refused request, and the reason. The requests before it were posted.
    pub fn post_send(
        &self,
        now: Time,
        handle: QpHandle,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        self.post_send_in_epoch(now, handle, requests, None).0
    }

    /// Posts send work requests of a program that polls. `poll_epoch` must change with each poll.
    /// Returns whether the caller must call [`transmit_pending`](Self::transmit_pending) now.
    /// Otherwise the call is due in the next poll epoch or at the device's deadline, whichever is
    /// first. Without a poll epoch the call is always due.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_send_in_epoch(
        &self,
        now: Time,
        handle: QpHandle,
        requests: &[SendRequest<'_>],
        poll_epoch: Option<u64>,
    ) -> (Result<(), (usize, PostError)>, bool) {
        for request in requests {
            if let Destination::Datagram { ah, qpn, .. } = request.to {
                self.ensure_path(ah, qpn);
            }
        }
        let posted = self.with_slot(handle, |slot, qp| {
            let context = self.context(now, qp.path);
            let result = qp.post_send(requests, &context);
            let deferral = match poll_epoch {
                Some(poll_epoch) if result.is_ok() => defer(qp, requests, context.path, poll_epoch),
                _ => Deferral::SendNow,
            };
            if deferral == Deferral::Started {
                self.settle_timer(handle.index, qp, now.plus_ns(WAIT_NS));
                self.data_pending.store(true, Ordering::Release);
            }
            let is_blocked = result.is_ok()
                && qp.is_blocked_at_post(requests.len(), context.path)
                // A queue pair that is still on such a list is enqueued instead, even if the list
                // is its former path's.
                && context.path.blocked_at_post.push_alone(handle.index, &slot.blocked_at_post);
            if is_blocked {
                qp.is_blocked = true;
                self.mark_path_ready(qp.path);
            } else {
                self.enqueue(handle.index, slot, qp);
            }
            (result, deferral == Deferral::SendNow)
        });
        posted.unwrap_or((Err((0, PostError::NoQp)), true))
    }

    /// Posts receive work requests.
    ///
    /// # Errors
    /// The index of the first refused request, and the reason. The requests before it were posted.
    pub fn post_recv(
        &self,
        now: Time,
        handle: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        let posted = self.with_qp(handle, |qp| {
            let context = self.context(now, qp.path);
            qp.post_recv(requests, &context)
        });
        posted.unwrap_or(Err((0, PostError::NoQp)))
    }
}

/// Decides whether requests that were just posted may wait for others. Only requests of reliable
/// services wait, and only while an acknowledgement is expected, because it sends them.
#[inline(never)] // kept out of callers without a poll epoch
fn defer(qp: &Qp, requests: &[SendRequest<'_>], path: &Path, poll_epoch: u64) -> Deferral {
    let is_acknowledged = matches!(qp.core.qp_type.service(), Service::Rc | Service::Xrc);
    if !is_acknowledged || qp.path.is_none() {
        return Deferral::SendNow;
    }
    if path.window.in_flight() == 0 {
        path.coalescer.release();
        return Deferral::SendNow;
    }
    let mtu = u64::from(qp.core.mtu());
    let (packets, bytes) = requests.iter().fold((0, 0), |(packets, bytes), request| {
        let len = request.sent_len();
        (packets + len.div_ceil(mtu).max(1), bytes + len)
    });
    path.coalescer.defer(poll_epoch, requests.len() as u32, packets, bytes)
}
