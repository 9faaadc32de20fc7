//! The requester of a datagram queue pair.
//!
//! Sources: IBTA vol. 1, 9.8.3.1 (requester), 10.2.5 (Q_Keys); the kernel's rxe_req.c.

use std::net::IpAddr;

use urxe_wire::packet::packet_len;
use urxe_wire::{Deth, Ext, IcrcSeed, ImmDt, Opcode, QKey, Qpn};

use super::own_qkey;
use crate::cq::WcStatus;
use crate::path::run::RunBuffer;
use crate::qp::context::{Common, Context, Sent};
use crate::qp::queue::{SendQueue, SendWqe};
use crate::qp::unreliable::Sender;
use crate::qp::wr::{AhHandle, Destination, PostError, SendFlags, SendOp, SendRequest};
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Requester {
    sender: Sender,
}

impl Requester {
    pub fn new(queue: SendQueue) -> Self {
        Self { sender: Sender::new(queue) }
    }

    pub fn start(&mut self, qp: &Common) {
        self.sender.start(qp);
    }

    pub fn reset(&mut self) {
        self.sender.reset();
    }

    pub fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.sender.flush(qp, cx);
    }

    pub fn push(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.sender.queue.push(request, qp.max_message, qp.sq_sig_all)
    }

    /// Appends messages to `run` until all are sent, the next goes another way, the run is full, or
    /// the pace says stop.
    pub fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        while let Some(wqe) = self.sender.head().copied() {
            if qp.send_failed || qp.cq_overrun || !self.sender.wants_to_send(cx.now) {
                return Sent::Idle;
            }
            let Some((ah, to, qkey)) = destination(&wqe) else {
                return self.fail_unaddressed(qp, cx);
            };
            match cx.ahs.path_of(ah, to) {
                Some((path, _)) if path == cx.path_index => {}
                Some(_) => return Sent::Idle,
                None => return self.fail_unaddressed(qp, cx),
            }
            if let Some(stop) = self.send(&wqe, to, qkey, qp, cx, run, icrc) {
                return stop;
            }
        }
        Sent::Idle
    }

    #[expect(clippy::too_many_arguments, reason = "the message and its surroundings, one by one")]
    fn send(
        &mut self,
        wqe: &SendWqe,
        to: Qpn,
        qkey: QKey,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Option<Sent> {
        // A program that may not choose a privileged Q_Key sends the one that its queue pair was
        // given.
        let qkey = if qkey.is_controlled() { own_qkey(qp) } else { qkey };
        let deth = Deth { qkey, src_qp: qp.qpn };
        let (opcode, ext) = match wqe.op {
            SendOp::SendImm { imm } => {
                (Opcode::UdSendOnlyImm, Ext::DethImm(deth, ImmDt { data: imm }))
            }
            _ => (Opcode::UdSendOnly, Ext::Deth(deth)),
        };
        let len = packet_len(opcode.info().headers_len(), wqe.length as usize);
        if let Some(stop) = cx.bars(run, len) {
            return Some(stop);
        }
        if !self.sender.admits(len, cx) {
            return Some(Sent::Idle);
        }
        let mut bth = self.sender.bth(opcode, to, qp);
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let (queue, pins) = (&self.sender.queue, &mut cx.pins);
        let filled = run.append(icrc, bth, ext, wqe.length as usize, |to| {
            queue.copy_payload(queue.head(), pins, qp.pd, 0, to)
        });
        match filled {
            Ok(()) => {
                self.sender.psn = self.sender.psn.next();
                self.sender.complete_head(qp, cx, WcStatus::Success);
            }
            Err(fault) => self.sender.fail_locally(qp, cx, fault),
        }
        None
    }

    /// The oldest message's address handle was destroyed.
    fn fail_unaddressed(&mut self, qp: &mut Common, cx: &Context<'_>) -> Sent {
        tracing::debug!(qp = %qp.qpn, "send work request: its address handle was destroyed");
        self.sender.fail_head(qp, cx, WcStatus::LocQpOpErr);
        Sent::Idle
    }

    /// The path that the oldest message takes.
    pub fn next_path(&self, cx: &Context<'_>) -> Option<(u32, IpAddr)> {
        let (ah, to, _) = self.sender.head().and_then(destination)?;
        cx.ahs.path_of(ah, to)
    }

    /// The path that the queue pair stands on leads nowhere any more: if the oldest message wanted
    /// to go there, it fails.
    pub fn on_path_closed(&mut self, qp: &mut Common, cx: &Context<'_>) {
        if self.sender.head().is_some() && self.next_path(cx).is_none() {
            self.fail_unaddressed(qp, cx);
        }
    }

    pub fn on_timer(&mut self, now: Time) {
        self.sender.on_timer(now);
    }

    pub fn deadline(&self) -> Time {
        self.sender.deadline()
    }

    pub fn wants_to_send(&self, now: Time) -> bool {
        self.sender.wants_to_send(now)
    }
}

fn destination(wqe: &SendWqe) -> Option<(AhHandle, Qpn, QKey)> {
    match wqe.to {
        Destination::Datagram { ah, qpn, qkey } => Some((ah, qpn, qkey)),
        Destination::Peer | Destination::XrcSrq { .. } => None,
    }
}
