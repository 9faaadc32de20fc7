//! The sending half that the unreliable services share: a message is complete when its last packet
//! was handed to the network.
//!
//! No answer ever comes, so nothing is charged to the path's window and nothing is kept. What
//! stands in for the window is the path's pace ([`crate::path::pace`]): a sender that it stops lets
//! the clock list it again.
//!
//! A message that cannot be sent completes with its error; the queue pair goes to SQE, what was
//! posted after it is flushed, and receiving goes on until the program brings the queue pair back
//! to RTS.
//!
//! Sources: IBTA vol. 1, 9.8.2.1 (UC requester), 9.8.3.1 (UD requester), 10.3.1.6 (SQE), 9.9.2.1
//! (local errors).

use urxe_wire::{Bth, Opcode, Psn, Qpn};

use super::context::{Common, Context};
use super::gather::LocalFault;
use super::queue::{SendQueue, SendWqe};
use super::wr::SendFlags;
use crate::cq::{Completion, WcStatus};
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Sender {
    pub queue: SendQueue,
    /// PSN of the next packet.
    pub psn: Psn,
    /// The pace stopped it until then.
    resume_at: Time,
}

impl Sender {
    pub fn new(queue: SendQueue) -> Self {
        Self { queue, psn: Psn::new(0), resume_at: Time::ZERO }
    }

    /// RTR to RTS: the first PSN is known.
    pub fn start(&mut self, qp: &Common) {
        self.psn = qp.attr.sq_psn;
    }

    /// Forgets everything that was posted (RESET).
    pub fn reset(&mut self) {
        self.queue.clear();
        self.resume_at = Time::ZERO;
    }

    /// Completes everything that was posted with "flushed".
    pub fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        while !self.queue.is_empty() {
            self.complete_head(qp, cx, WcStatus::WrFlushErr);
        }
        self.resume_at = Time::ZERO;
    }

    /// The oldest message.
    pub fn head(&self) -> Option<&SendWqe> {
        (!self.queue.is_empty()).then(|| self.queue.wqe(self.queue.head()))
    }

    /// The BTH of the next packet.
    pub fn bth(&self, opcode: Opcode, dest_qp: Qpn, qp: &Common) -> Bth {
        let mut bth = Bth::new(opcode, dest_qp, self.psn);
        bth.pkey = qp.pkey;
        bth.mig_req = qp.mig_req;
        bth
    }

    /// Whether a packet of `len` bytes may leave now; if not, the clock lists the queue pair again.
    pub fn admits(&mut self, len: usize, cx: &Context<'_>) -> bool {
        match cx.path.pace.admit(cx.now, len as u64) {
            Ok(()) => true,
            Err(resume_at) => {
                self.resume_at = resume_at;
                false
            }
        }
    }

    /// Completes the oldest message.
    pub fn complete_head(&mut self, qp: &mut Common, cx: &Context<'_>, status: WcStatus) {
        let wqe = *self.queue.wqe(self.queue.head());
        self.queue.pop();
        if status.is_success() && !wqe.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, wqe.op.wc_opcode(), status);
        if status.is_success() {
            completion = completion.with_byte_len(wqe.length);
        }
        qp.complete_send(completion, cx);
    }

    /// The oldest message cannot be sent.
    pub fn fail_head(&mut self, qp: &mut Common, cx: &Context<'_>, status: WcStatus) {
        self.complete_head(qp, cx, status);
        qp.send_failed = true;
    }

    /// The oldest message's own buffers may not be used.
    pub fn fail_locally(&mut self, qp: &mut Common, cx: &Context<'_>, fault: LocalFault) {
        tracing::debug!(qp = %qp.qpn, %fault, "send work request: local protection error");
        self.fail_head(qp, cx, WcStatus::LocProtErr);
    }

    /// When the pace lets it go on, [`Time::NEVER`] if it has not stopped it.
    pub fn deadline(&self) -> Time {
        if self.queue.is_empty() || self.resume_at == Time::ZERO {
            Time::NEVER
        } else {
            self.resume_at
        }
    }

    /// Whether there may be something to send now.
    pub fn wants_to_send(&self, now: Time) -> bool {
        !self.queue.is_empty() && now >= self.resume_at
    }

    /// The clock says `now`.
    pub fn on_timer(&mut self, now: Time) {
        if now >= self.resume_at {
            self.resume_at = Time::ZERO;
        }
    }
}
