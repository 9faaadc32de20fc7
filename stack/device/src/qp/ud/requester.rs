//! The datagrams of a queue pair, one packet each.
//!
//! Sources: IBTA vol. 1, 9.8.3.1 (requester), 10.2.5 (Q_Keys); the kernel's rxe_req.c.

use urxe_wire::packet::packet_len;
use urxe_wire::{Deth, Ext, ImmDt, Opcode, QKey, Qpn};

use super::own_qkey;
use crate::cq::WcStatus;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::context::Context;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::service::SendHalf;
use crate::qp::unreliable::Requester;
use crate::qp::wr::{SendFlags, SendOp};

impl Requester {
    /// Appends messages to `run` until all are sent, the next goes another way, the run is full, or
    /// the pace says stop.
    pub(in crate::qp) fn send_datagrams(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
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
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> Option<TransmitStatus> {
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
        if let Some(stop) = cx.rejects(run, len) {
            return Some(stop);
        }
        if !self.admits(len, cx) {
            return Some(TransmitStatus::Idle);
        }
        let mut bth = self.bth(opcode, to, qp);
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let (queue, pins) = (&self.queue, &mut cx.pins);
        let filled = run.append(bth, ext, wqe.length as usize, |to| {
            queue.copy_payload(queue.head(), pins, qp.pd, 0, to)
        });
        match filled {
            Ok(()) => {
                self.psn = self.psn.next();
                self.complete_head(qp, cx, WcStatus::Success);
            }
            Err(fault) => self.fail_locally(qp, cx, fault),
        }
        None
    }
}
