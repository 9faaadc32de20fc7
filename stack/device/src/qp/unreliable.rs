//! The requester of the unreliable services. A message is complete when its last packet was given
//! to the network.
//!
//! No response ever comes, so messages take no credit of the path's window and are not kept. The
//! pacer of the path ([`crate::path::pacer`]) limits the rate instead. A timer lists a queue pair
//! again that the pacer stopped.
//!
//! A message that cannot be sent completes with its error, and the queue pair moves to SQE. The
//! work requests after it are flushed. Receiving continues until the program moves the queue pair
//! to RTS again.
//!
//! Sources: IBTA vol. 1, 9.8.2.1 (UC requester), 9.8.3.1 (UD requester), 10.2.5 (Q_Keys), 10.3.1.6
//! (SQE), 9.9.2.1 (local errors); the kernel's `rxe_req.c`.

use std::net::IpAddr;
use std::ops::Range;

use urxe_wire::{Deth, Ext, ImmDt, Opcode, PacketRepr, Psn, QKey, Qpn, Service};

use super::attr::QpState;
use super::context::QpContext;
use super::headers::data_headers;
use super::local_ops;
use super::qp_core::QpCore;
use super::queue::{SendQueue, SendWqe};
use super::service::SendHalf;
use super::sge_copy::{LocalFault, check};
use super::ud::own_qkey;
use super::work_request::{PostError, SendFlags, SendOp, SendRequest};
use crate::cq::{Completion, PolledSends, WcStatus};
use crate::path::run::{RunBuffer, packet_len};
use crate::path::scheduler::TransmitStatus;
use urxe_memory::Access;
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The requester of an unreliable connection or a datagram queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    pub queue: SendQueue,
    /// The PSN of the next packet.
    pub psn: Psn,
    /// The number of packets of the oldest message that were sent. Always 0 for datagrams, which
    /// have one packet.
    pub sent: u32,
    /// The time until which the pacer stopped the queue pair; [`Time::ZERO`] if it did not.
    resume_at: Time,
}

/// The outcome of appending a packet.
pub(super) enum Appended {
    Yes,
    /// The packet must wait.
    Stop(TransmitStatus),
    /// The message completed with an error.
    Failed,
}

impl Requester {
    pub fn new(queue: SendQueue) -> Self {
        Self { queue, psn: Psn::new(0), sent: 0, resume_at: Time::ZERO }
    }

    /// Returns the oldest message.
    pub fn head(&self) -> Option<&SendWqe> {
        (!self.queue.is_empty()).then(|| self.queue.wqe(self.queue.head()))
    }

    /// Appends a packet of the oldest message with `payload_len` bytes from `offset` on, unless the
    /// packet must wait. If the payload cannot be read, the message fails.
    pub fn append(
        &mut self,
        packet: PacketRepr,
        offset: u64,
        payload_len: usize,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Appended {
        let len = packet_len(packet.bth.opcode, payload_len);
        if let Some(stop) = cx.rejects(run, len) {
            return Appended::Stop(stop);
        }
        if let Err(resume_at) = cx.path.pacer.admit(cx.now, len as u64) {
            // The timer at that time lists the queue pair again.
            self.resume_at = resume_at;
            return Appended::Stop(TransmitStatus::Idle);
        }
        let (queue, pins) = (&self.queue, &mut cx.pins);
        let filled = run.append(packet, payload_len, |to| {
            queue.copy_payload(queue.head(), pins, qp.pd, offset, to)
        });
        if let Err(fault) = filled {
            self.sent = 0;
            self.fail_locally(qp, cx, fault);
            return Appended::Failed;
        }
        self.psn = self.psn.next();
        Appended::Yes
    }

    /// Completes the oldest message.
    pub fn complete_head(&mut self, qp: &mut QpCore, cx: &QpContext<'_>, status: WcStatus) {
        let position = self.queue.head();
        let wqe = *self.queue.wqe(position);
        self.queue.pop();
        qp.send_lost |= !status.is_success();
        if status.is_success() && !wqe.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, wqe.op.wc_opcode(), status)
            .with_send_position(position as u32);
        if status.is_success() {
            completion = completion.with_byte_len(wqe.length);
        }
        qp.complete_send(completion, cx);
    }

    /// Completes the oldest message with an error, and fails the sending half.
    pub fn fail_head(&mut self, qp: &mut QpCore, cx: &QpContext<'_>, status: WcStatus) {
        self.complete_head(qp, cx, status);
        qp.send_failed = true;
    }

    /// Fails the oldest message, because its address handle was destroyed.
    pub fn fail_unaddressed(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) -> TransmitStatus {
        tracing::debug!(qp = %qp.qpn, "send work request: its address handle was destroyed");
        self.fail_head(qp, cx, WcStatus::LocQpOpErr);
        TransmitStatus::Idle
    }

    /// Fails the oldest message, because its buffers may not be used.
    pub fn fail_locally(&mut self, qp: &mut QpCore, cx: &QpContext<'_>, fault: LocalFault) {
        tracing::debug!(qp = %qp.qpn, %fault, "send work request: local protection error");
        self.fail_head(qp, cx, WcStatus::LocProtErr);
    }

    /// Appends packets to `run` until all messages are sent, the run is full, or the pacer stops
    /// the queue pair.
    fn send_messages(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        while let Some(wqe) = self.head().copied() {
            let begins = self.sent == 0;
            if qp.send_failed
                || qp.cq_overrun
                || (begins && qp.state == QpState::Sqd)
                || !self.wants_to_send(cx.now)
            {
                return TransmitStatus::Idle;
            }
            if wqe.op.is_local() {
                // No packet is ever sent again, so the messages before this one no longer use the
                // key.
                match local_ops::execute(&wqe.op, qp, cx) {
                    Ok(()) => self.complete_head(qp, cx, WcStatus::Success),
                    Err(status) => self.fail_head(qp, cx, status),
                }
                continue;
            }
            // The whole list is checked before the first packet, because half a message is useless
            // to the peer.
            let sges = self.queue.sges(self.queue.head());
            if begins && let Err(fault) = check(&mut cx.pins, qp.pd, sges, Access::empty()) {
                self.fail_locally(qp, cx, fault);
                return TransmitStatus::Idle;
            }
            if let Some(stop) = self.send_packet(&wqe, qp, cx, run) {
                return stop;
            }
        }
        TransmitStatus::Idle
    }

    fn send_packet(
        &mut self,
        wqe: &SendWqe,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Option<TransmitStatus> {
        let mtu = qp.mtu();
        let packets = wqe.length.div_ceil(mtu).max(1);
        let (first, last) = (self.sent == 0, self.sent + 1 == packets);
        let payload_len = wqe.payload_len(self.sent, mtu) as usize;
        let (opcode, ext) = data_headers(Service::Uc, &wqe.op, wqe.length, first, last);
        let mut bth = qp.bth(opcode, self.psn);
        bth.solicited = last && wqe.flags.contains(SendFlags::SOLICITED);
        let offset = u64::from(self.sent) * u64::from(mtu);
        match self.append(PacketRepr::new(bth, ext), offset, payload_len, qp, cx, run) {
            Appended::Yes => {}
            Appended::Stop(stop) => return Some(stop),
            Appended::Failed => return None,
        }
        self.sent += 1;
        let is_write = matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteImm { .. });
        cx.sent_writes += u64::from(first && is_write);
        if last {
            self.sent = 0;
            self.complete_head(qp, cx, WcStatus::Success);
        }
        None
    }

    /// Appends datagrams to `run` until all are sent, the next one has another path, the run is
    /// full, or the pacer stops the queue pair.
    fn send_datagrams(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        while let Some(wqe) = self.head().copied() {
            if qp.send_failed || qp.cq_overrun || !self.wants_to_send(cx.now) {
                return TransmitStatus::Idle;
            }
            let Some((ah, to, qkey)) = wqe.datagram() else {
                return self.fail_unaddressed(qp, cx);
            };
            match cx.device.ahs.path_of(ah, to) {
                Some((path, _)) if path == cx.path_index => {}
                Some(_) => return TransmitStatus::Idle,
                None => return self.fail_unaddressed(qp, cx),
            }
            if let Some(stop) = self.send_datagram(&wqe, to, qkey, qp, cx, run) {
                return stop;
            }
        }
        TransmitStatus::Idle
    }

    fn send_datagram(
        &mut self,
        wqe: &SendWqe,
        to: Qpn,
        qkey: QKey,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Option<TransmitStatus> {
        // A privileged Q_Key in a work request means the Q_Key of the queue pair (IBTA vol. 1,
        // 10.2.5).
        let qkey = if qkey.is_controlled() { own_qkey(qp) } else { qkey };
        let deth = Deth { qkey, src_qp: qp.qpn };
        let (opcode, ext) = match wqe.op {
            SendOp::SendImm { imm } => {
                (Opcode::UdSendOnlyImm, Ext::DethImm(deth, ImmDt { data: imm }))
            }
            _ => (Opcode::UdSendOnly, Ext::Deth(deth)),
        };
        let mut bth = qp.bth(opcode, self.psn);
        bth.dest_qp = to;
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let packet = PacketRepr::new(bth, ext);
        match self.append(packet, 0, wqe.length as usize, qp, cx, run) {
            Appended::Yes => self.complete_head(qp, cx, WcStatus::Success),
            Appended::Stop(stop) => return Some(stop),
            Appended::Failed => {}
        }
        None
    }
}

impl SendHalf for Requester {
    fn start(&mut self, qp: &QpCore) {
        self.psn = qp.attr.sq_psn;
    }

    fn reset(&mut self, _cx: &QpContext<'_>) {
        self.queue.clear();
        (self.sent, self.resume_at) = (0, Time::ZERO);
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
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
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        match (qp.qp_type.is_datagram(), qp.state) {
            (true, QpState::Rts) => self.send_datagrams(qp, cx, run),
            (false, QpState::Rts | QpState::Sqd) => self.send_messages(qp, cx, run),
            _ => TransmitStatus::Idle,
        }
    }

    fn next_path(&self, cx: &QpContext<'_>) -> Option<(u32, IpAddr)> {
        let (ah, to, _) = self.head()?.datagram()?;
        cx.device.ahs.path_of(ah, to)
    }

    fn on_path_closed(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        if qp.qp_type.is_datagram() && self.head().is_some() && self.next_path(cx).is_none() {
            self.fail_unaddressed(qp, cx);
        }
    }

    fn on_timer(&mut self, _qp: &mut QpCore, cx: &QpContext<'_>) {
        if cx.now >= self.resume_at {
            self.resume_at = Time::ZERO;
        }
    }

    /// Returns the time at which the pacer lets the queue pair continue, or [`Time::NEVER`] if it
    /// did not stop it.
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

    fn make_strict(&mut self, polled: Arc<PolledSends>) {
        self.queue.make_strict(polled);
    }

    fn posted(&self) -> Range<u64> {
        self.queue.head()..self.queue.tail()
    }
}
