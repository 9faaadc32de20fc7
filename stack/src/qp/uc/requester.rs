//! The requester of an unreliable connection.
//!
//! Sources: IBTA vol. 1, 9.8.2.1 (requester), 9.9.2.1 (its errors).

use urxe_wire::{IcrcSeed, Service};

use crate::cq::WcStatus;
use crate::device::counters::Counter;
use crate::memory::Access;
use crate::path::run::RunBuffer;
use crate::qp::attr::QpState;
use crate::qp::context::{Common, Context, Sent};
use crate::qp::gather::check;
use crate::qp::headers::data_headers;
use crate::qp::local;
use crate::qp::queue::{SendQueue, SendWqe};
use crate::qp::unreliable::Sender;
use crate::qp::wr::{PostError, SendFlags, SendOp, SendRequest};
use crate::time::Time;

/// See the module.
#[derive(Debug)]
pub(super) struct Requester {
    sender: Sender,
    /// How many packets of the oldest message have been sent.
    sent: u32,
}

impl Requester {
    pub fn new(queue: SendQueue) -> Self {
        Self { sender: Sender::new(queue), sent: 0 }
    }

    pub fn start(&mut self, qp: &Common) {
        self.sender.start(qp);
    }

    pub fn reset(&mut self) {
        self.sender.reset();
        self.sent = 0;
    }

    pub fn flush(&mut self, qp: &mut Common, cx: &Context<'_>) {
        self.sender.flush(qp, cx);
        self.sent = 0;
    }

    pub fn push(&mut self, qp: &Common, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.sender.queue.push(request, qp.max_message, qp.sq_sig_all)
    }

    /// Appends packets to `run` until all is sent, or the run is full, or the pace says stop.
    pub fn transmit(
        &mut self,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Sent {
        while let Some(wqe) = self.sender.head().copied() {
            let begins = self.sent == 0;
            if (begins && qp.state == QpState::Sqd) || !self.sender.wants_to_send(cx.now) {
                return Sent::Idle;
            }
            if wqe.op.is_local() {
                // Nothing that was sent is ever sent again, so what stands before it is done with
                // its keys.
                match local::execute(&wqe.op, qp, cx) {
                    Ok(()) => self.sender.complete_head(qp, cx, WcStatus::Success),
                    Err(status) => self.sender.fail_head(qp, cx, status),
                }
                if qp.send_failed || qp.cq_overrun {
                    return Sent::Idle;
                }
                continue;
            }
            // The whole list before the first packet: half a message is worth nothing to anybody.
            if begins && let Err(fault) = self.check_list(qp, cx) {
                self.sender.fail_locally(qp, cx, fault);
                return Sent::Idle;
            }
            if let Some(stop) = self.send_packet(&wqe, qp, cx, run, icrc) {
                return stop;
            }
            if qp.send_failed || qp.cq_overrun {
                return Sent::Idle;
            }
        }
        Sent::Idle
    }

    fn check_list(
        &self,
        qp: &Common,
        cx: &mut Context<'_>,
    ) -> Result<(), crate::qp::gather::LocalFault> {
        let queue = &self.sender.queue;
        check(&mut cx.pins, qp.pd, queue.sges(queue.head()), Access::empty())
    }

    fn send_packet(
        &mut self,
        wqe: &SendWqe,
        qp: &mut Common,
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
        icrc: &IcrcSeed,
    ) -> Option<Sent> {
        let mtu = qp.mtu();
        let packets = wqe.length.div_ceil(mtu).max(1);
        let (first, last) = (self.sent == 0, self.sent + 1 == packets);
        let payload_len = wqe.payload_len(self.sent, mtu) as usize;
        let (opcode, ext) = data_headers(Service::Uc, &wqe.op, wqe.length, first, last);
        let len = urxe_wire::packet::packet_len(opcode.info().headers_len(), payload_len);
        if let Some(stop) = cx.bars(run, len) {
            return Some(stop);
        }
        if !self.sender.admits(len, cx) {
            return Some(Sent::Idle);
        }
        let mut bth = self.sender.bth(opcode, qp.attr.dest_qp_num, qp);
        bth.solicited = last && wqe.flags.contains(SendFlags::SOLICITED);
        let offset = u64::from(self.sent) * u64::from(mtu);
        let (queue, pins) = (&self.sender.queue, &mut cx.pins);
        let filled = run.append(icrc, bth, ext, payload_len, |to| {
            queue.copy_payload(queue.head(), pins, qp.pd, offset, to)
        });
        if let Err(fault) = filled {
            self.sent = 0;
            self.sender.fail_locally(qp, cx, fault);
            return None;
        }
        self.sender.psn = self.sender.psn.next();
        self.sent += 1;
        if first && matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteImm { .. }) {
            cx.counters.add(Counter::RdmaSends);
        }
        if last {
            self.sent = 0;
            self.sender.complete_head(qp, cx, WcStatus::Success);
        }
        None
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

    /// Whether no message is begun: what SQD waits for.
    pub fn is_drained(&self) -> bool {
        self.sent == 0
    }
}
