//! Where a queue pair takes its receives from: a queue of its own or a shared one, behind one face.
//!
//! From a shared queue an entry is taken when a message's first packet asks for it, and the queue
//! pair holds it until the message completes (IBTA vol. 1, 10.2.9). So [`RecvQueue::front`] of a
//! shared queue takes, and says the same until [`RecvQueue::pop`].

use urxe_wire::{PacketView, Rkey};

use super::context::QpContext;
use super::qp_core::QpCore;
use super::work_request::{PostError, RecvRequest, Sge};
use crate::cq::{Completion, QpEventType, WcOpcode, WcStatus};
use crate::srq::ring::{RecvRing, RecvWqe};
use crate::srq::{Srq, SrqRef};
use urxe_memory::PdId;
use urxe_types::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) enum RecvQueue {
    /// Its own.
    Own(RecvRing),
    /// A shared one, and what was taken from it.
    Shared(SrqRef, TakenWqe),
    /// The one that the message under way names, of an XRC domain.
    Xrc(Option<Arc<Srq>>, TakenWqe),
}

/// The one entry that a queue pair holds of a shared queue.
#[derive(Debug)]
pub(crate) struct TakenWqe {
    wqe: Option<RecvWqe>,
    /// As many as an entry may have; those of `wqe` stand first.
    sges: Box<[Sge]>,
}

impl TakenWqe {
    fn new(max_sge: u32) -> Self {
        Self { wqe: None, sges: vec![Sge::default(); max_sge as usize].into() }
    }

    fn front(&mut self, srq: &Srq) -> Option<(&RecvWqe, &[Sge])> {
        if self.wqe.is_none() {
            self.wqe = srq.take(&mut self.sges);
        }
        let wqe = self.wqe.as_ref()?;
        Some((wqe, &self.sges[..usize::from(wqe.num_sge)]))
    }
}

impl RecvQueue {
    /// A queue of its own.
    pub fn new(capacity: u32, max_sge: u32) -> Self {
        Self::Own(RecvRing::new(capacity, max_sge))
    }

    /// A shared one.
    pub fn shared(srq: SrqRef) -> Self {
        let taken = TakenWqe::new(srq.max_sge());
        Self::Shared(srq, taken)
    }

    /// Those of an XRC domain; `max_sge` is the most that a shared receive queue may have.
    pub fn xrc(max_sge: u32) -> Self {
        Self::Xrc(None, TakenWqe::new(max_sge))
    }

    /// The next message is for `srq`.
    pub fn select_srq(&mut self, srq: Arc<Srq>) {
        if let Self::Xrc(current, taken) = self {
            debug_assert!(
                taken.wqe.is_none(),
                "a message under way holds a receive of another queue"
            );
            *current = Some(srq);
        }
    }

    /// The protection domain that receive buffers must be of: the shared queue's, or else the queue
    /// pair's own.
    pub fn pd(&self, own: PdId) -> PdId {
        match self {
            Self::Own(_) | Self::Xrc(..) => own,
            Self::Shared(srq, _) => srq.pd(),
        }
    }

    /// Whether there is no receive for a message. Takes one from a shared queue if there is.
    pub fn is_empty(&mut self) -> bool {
        self.front().is_none()
    }

    /// Queues a receive; a shared queue is posted to by itself.
    pub fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        match self {
            Self::Own(ring) => ring.push(request),
            Self::Shared(..) | Self::Xrc(..) => Err(PostError::SharedReceive),
        }
    }

    /// The receive that a message goes to, and its scatter-gather entries.
    pub fn front(&mut self) -> Option<(&RecvWqe, &[Sge])> {
        match self {
            Self::Own(ring) => ring.front(),
            Self::Shared(srq, taken) => taken.front(srq),
            Self::Xrc(srq, taken) => taken.front(srq.as_deref()?),
        }
    }

    /// Ends the use of the entry at the front. What a shared queue still has stays there, for other
    /// queue pairs.
    pub fn pop(&mut self) -> Option<RecvWqe> {
        match self {
            Self::Own(ring) => ring.pop(),
            Self::Shared(_, taken) | Self::Xrc(_, taken) => taken.wqe.take(),
        }
    }

    /// Completes the receive at the front with the packet that ended its message.
    #[inline]
    pub fn complete(
        &mut self,
        opcode: WcOpcode,
        byte_len: u64,
        packet: &PacketView<'_>,
        invalidated: Option<Rkey>,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
    ) {
        let Some(wqe) = self.pop() else { return };
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, opcode, WcStatus::Success)
            .with_byte_len(u32::try_from(byte_len).unwrap_or(u32::MAX));
        completion.src_qp = qp.attr.dest_qp_num;
        if let Some(imm) = packet.imm() {
            completion = completion.with_imm(imm.data);
        }
        if let Some(rkey) = invalidated {
            completion = completion.with_invalidated(rkey);
        }
        qp.complete_recv(completion, packet.solicited(), cx);
    }

    /// Completes the receive at the front with an error; false if there is none.
    pub fn fail(&mut self, status: WcStatus, qp: &mut QpCore, cx: &QpContext<'_>) -> bool {
        let Some(wqe) = self.pop() else { return false };
        qp.complete_recv(Completion::new(wqe.wr_id, qp.qpn, WcOpcode::Recv, status), true, cx);
        true
    }

    /// The receive at the front cannot be used: it completes with an error and the queue pair of an
    /// unreliable service fails (class A).
    pub fn fail_locally(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.fail(WcStatus::LocProtErr, qp, cx);
        qp.raise(QpEventType::QpFatal, cx);
        qp.fatal = true;
    }

    /// Completes every entry with "flushed" (ERR); of a shared queue only what was taken from it.
    pub fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        while self.fail(WcStatus::WrFlushErr, qp, cx) {}
    }

    /// Forgets every entry (RESET); of a shared queue only what was taken from it.
    pub fn clear(&mut self) {
        match self {
            Self::Own(ring) => ring.clear(),
            Self::Shared(_, taken) | Self::Xrc(_, taken) => taken.wqe = None,
        }
    }
}
