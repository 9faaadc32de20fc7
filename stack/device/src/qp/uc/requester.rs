//! The packets of an unreliable connection's messages.
//!
//! Sources: IBTA vol. 1, 9.8.2.1 (requester), 9.9.2.1 (its errors).

use urxe_wire::Service;

use crate::cq::WcStatus;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::attr::QpState;
use crate::qp::context::Context;
use crate::qp::gather::check;
use crate::qp::headers::data_headers;
use crate::qp::local;
use crate::qp::qp_core::QpCore;
use crate::qp::queue::SendWqe;
use crate::qp::service::SendHalf;
use crate::qp::unreliable::Requester;
use crate::qp::wr::{SendFlags, SendOp};
use urxe_memory::Access;
use urxe_types::counters::Counter;

impl Requester {
    /// Appends packets to `run` until all is sent, or the run is full, or the pace says stop.
    pub(in crate::qp) fn send_messages(
        &mut self,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> TransmitStatus {
        while let Some(wqe) = self.head().copied() {
            let begins = self.sent == 0;
            if (begins && qp.state == QpState::Sqd) || !self.wants_to_send(cx.now) {
                return TransmitStatus::Idle;
            }
            if wqe.op.is_local() {
                // Nothing that was sent is ever sent again, so what stands before it is done with
                // its keys.
                match local::execute(&wqe.op, qp, cx) {
                    Ok(()) => self.complete_head(qp, cx, WcStatus::Success),
                    Err(status) => self.fail_head(qp, cx, status),
                }
                if qp.send_failed || qp.cq_overrun {
                    return TransmitStatus::Idle;
                }
                continue;
            }
            // The whole list before the first packet: half a message is worth nothing to anybody.
            if begins && let Err(fault) = self.check_list(qp, cx) {
                self.fail_locally(qp, cx, fault);
                return TransmitStatus::Idle;
            }
            if let Some(stop) = self.send_packet(&wqe, qp, cx, run) {
                return stop;
            }
            if qp.send_failed || qp.cq_overrun {
                return TransmitStatus::Idle;
            }
        }
        TransmitStatus::Idle
    }

    fn check_list(
        &self,
        qp: &QpCore,
        cx: &mut Context<'_>,
    ) -> Result<(), crate::qp::gather::LocalFault> {
        let queue = &self.queue;
        check(&mut cx.pins, qp.pd, queue.sges(queue.head()), Access::empty())
    }

    fn send_packet(
        &mut self,
        wqe: &SendWqe,
        qp: &mut QpCore,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> Option<TransmitStatus> {
        let mtu = qp.mtu();
        let packets = wqe.length.div_ceil(mtu).max(1);
        let (first, last) = (self.sent == 0, self.sent + 1 == packets);
        let payload_len = wqe.payload_len(self.sent, mtu) as usize;
        let (opcode, ext) = data_headers(Service::Uc, &wqe.op, wqe.length, first, last);
        let len = urxe_wire::packet::packet_len(opcode.info().headers_len(), payload_len);
        if let Some(stop) = cx.rejects(run, len) {
            return Some(stop);
        }
        if !self.admits(len, cx) {
            return Some(TransmitStatus::Idle);
        }
        let mut bth = self.bth(opcode, qp.attr.dest_qp_num, qp);
        bth.solicited = last && wqe.flags.contains(SendFlags::SOLICITED);
        let offset = u64::from(self.sent) * u64::from(mtu);
        let (queue, pins) = (&self.queue, &mut cx.pins);
        let filled = run.append(bth, ext, payload_len, |to| {
            queue.copy_payload(queue.head(), pins, qp.pd, offset, to)
        });
        if let Err(fault) = filled {
            self.sent = 0;
            self.fail_locally(qp, cx, fault);
            return None;
        }
        self.psn = self.psn.next();
        self.sent += 1;
        if first && matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteImm { .. }) {
            cx.device.counters.add(Counter::RdmaSends);
        }
        if last {
            self.sent = 0;
            self.complete_head(qp, cx, WcStatus::Success);
        }
        None
    }
}
