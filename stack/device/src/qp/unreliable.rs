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

use std::net::IpAddr;

use urxe_wire::{Bth, Opcode, Psn, Qpn};

use super::attr::QpState;
use super::context::Context;
use super::gather::LocalFault;
use super::qp_core::QpCore;
use super::queue::{SendQueue, SendWqe};
use super::service::SendHalf;
use super::wr::{PostError, SendFlags, SendRequest};
use crate::cq::{Completion, WcStatus};
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use urxe_types::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Requester {
    pub queue: SendQueue,
    /// PSN of the next packet.
    pub psn: Psn,
    /// How many packets of the oldest message have been sent; a datagram is sent whole.
    pub sent: u32,
    /// The pace stopped it until then.
    resume_at: Time,
}

impl Requester {
    pub fn new(queue: SendQueue) -> Self {
        Self { queue, psn: Psn::new(0), sent: 0, resume_at: Time::ZERO }
    }

    /// The oldest message.
    pub fn head(&self) -> Option<&SendWqe> {
        (!self.queue.is_empty()).then(|| self.queue.wqe(self.queue.head()))
    }

    /// The BTH of the next packet.
    pub fn bth(&self, opcode: Opcode, dest_qp: Qpn, qp: &QpCore) -> Bth {
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
    pub fn complete_head(&mut self, qp: &mut QpCore, cx: &Context<'_>, status: WcStatus) {
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
    pub fn fail_head(&mut self, qp: &mut QpCore, cx: &Context<'_>, status: WcStatus) {
        self.complete_head(qp, cx, status);
        qp.send_failed = true;
    }

    /// The oldest message's address handle was destroyed.
    pub fn fail_unaddressed(&mut self, qp: &mut QpCore, cx: &Context<'_>) -> TransmitStatus {
        tracing::debug!(qp = %qp.qpn, "send work request: its address handle was destroyed");
        self.fail_head(qp, cx, WcStatus::LocQpOpErr);
        TransmitStatus::Idle
    }

    /// The oldest message's own buffers may not be used.
    pub fn fail_locally(&mut self, qp: &mut QpCore, cx: &Context<'_>, fault: LocalFault) {
        tracing::debug!(qp = %qp.qpn, %fault, "send work request: local protection error");
        self.fail_head(qp, cx, WcStatus::LocProtErr);
    }
}

impl SendHalf for Requester {
    fn start(&mut self, qp: &QpCore) {
        self.psn = qp.attr.sq_psn;
    }

    fn reset(&mut self, _cx: &Context<'_>) {
        self.queue.clear();
        (self.sent, self.resume_at) = (0, Time::ZERO);
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &Context<'_>) {
        while !self.queue.is_empty() {
            self.complete_head(qp, cx, WcStatus::WrFlushErr);
        }
        (self.sent, self.resume_at) = (0, Time::ZERO);
    }

    fn push(&mut self, qp: &QpCore, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.queue.push(request, qp.max_message, qp.sq_sig_all)
    }

    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> TransmitStatus {
        match (qp.qp_type.is_datagram(), qp.state) {
            (true, QpState::Rts) => self.send_datagrams(qp, cx, run),
            (false, QpState::Rts | QpState::Sqd) => self.send_messages(qp, cx, run),
            _ => TransmitStatus::Idle,
        }
    }

    fn next_path(&self, cx: &Context<'_>) -> Option<(u32, IpAddr)> {
        let (ah, to, _) = self.head()?.datagram()?;
        cx.device.ahs.path_of(ah, to)
    }

    fn on_path_closed(&mut self, qp: &mut QpCore, cx: &Context<'_>) {
        if qp.qp_type.is_datagram() && self.head().is_some() && self.next_path(cx).is_none() {
            self.fail_unaddressed(qp, cx);
        }
    }

    fn on_timer(&mut self, _qp: &mut QpCore, cx: &Context<'_>) {
        if cx.now >= self.resume_at {
            self.resume_at = Time::ZERO;
        }
    }

    /// When the pace lets it go on, [`Time::NEVER`] if it has not stopped it.
    fn deadline(&self) -> Time {
        if self.queue.is_empty() || self.resume_at == Time::ZERO {
            Time::NEVER
        } else {
            self.resume_at
        }
    }

    fn wants_to_send(&self, now: Time) -> bool {
        !self.queue.is_empty() && now >= self.resume_at
    }

    fn is_drained(&self) -> bool {
        self.sent == 0
    }
}
