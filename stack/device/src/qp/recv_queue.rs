//! The source of a queue pair's receives: a ring of its own, or a shared receive queue.
//!
//! A queue pair takes an entry of a shared queue when the first packet of a message needs it. The
//! queue pair keeps the entry until the message completes (IBTA vol. 1, 10.2.9). For a shared
//! queue, [`RecvQueue::front`] takes an entry, and returns the same entry until [`RecvQueue::pop`].

use urxe_wire::{Kind, PacketView, Rkey};

use super::context::QpContext;
use super::qp_core::QpCore;
use super::work_request::{PostError, RecvRequest, Sge};
use crate::cq::{Completion, QpEventType, WcOpcode, WcStatus};
use crate::srq::ring::{RecvRing, RecvWqe};
use crate::srq::{Srq, SrqRef};
use urxe_memory::PdId;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::sync::Arc;

/// The source of a queue pair's receives.
#[derive(Debug)]
pub(crate) enum RecvQueue {
    /// A ring of the queue pair.
    Own(RecvRing),
    /// A shared receive queue, and the entry that was taken from it.
    Shared(SrqRef, TakenWqe),
    /// The shared receive queue of an XRC domain that the current message names, and the entry that
    /// was taken from it.
    Xrc(Option<Arc<Srq>>, TakenWqe),
}

/// The entry of a shared queue that a queue pair has taken.
#[derive(Debug)]
pub(crate) struct TakenWqe {
    wqe: Option<RecvWqe>,
    /// Room for the most entries that a receive may have. Those of `wqe` are at the front.
    sges: Box<[Sge]>,
}

impl TakenWqe {
    fn new(max_sge: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { wqe: None, sges: allocate::slice(Sge::default(), max_sge as usize)? })
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
    /// Makes a ring of the queue pair.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(capacity: u32, max_sge: u32) -> Result<Self, OutOfMemory> {
        Ok(Self::Own(RecvRing::new(capacity, max_sge)?))
    }

    /// Takes receives from a shared receive queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn shared(srq: SrqRef) -> Result<Self, OutOfMemory> {
        let taken = TakenWqe::new(srq.max_sge())?;
        Ok(Self::Shared(srq, taken))
    }

    /// Takes receives from the queues of an XRC domain. `max_sge` is the most scatter-gather
    /// entries that a shared receive queue may have.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn xrc(max_sge: u32) -> Result<Self, OutOfMemory> {
        Ok(Self::Xrc(None, TakenWqe::new(max_sge)?))
    }

    /// Selects the shared receive queue of the next message.
    pub fn select_srq(&mut self, srq: Arc<Srq>) {
        if let Self::Xrc(current, taken) = self {
            debug_assert!(
                taken.wqe.is_none(),
                "a message under way holds a receive of another queue"
            );
            *current = Some(srq);
        }
    }

    /// Returns the protection domain of receive buffers: that of the shared queue, or else `own`.
    pub fn pd(&self, own: PdId) -> PdId {
        match self {
            Self::Own(_) | Self::Xrc(..) => own,
            Self::Shared(srq, _) => srq.pd(),
        }
    }

    /// Returns whether there is no receive for a message. Takes one from a shared queue if there
    /// is.
    pub fn is_empty(&mut self) -> bool {
        self.front().is_none()
    }

    /// Queues a receive. Receives for a shared queue are posted to that queue.
    pub fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        match self {
            Self::Own(ring) => ring.push(request),
            Self::Shared(..) | Self::Xrc(..) => Err(PostError::SharedReceive),
        }
    }

    /// Returns the receive for the current message, and its scatter-gather entries.
    pub fn front(&mut self) -> Option<(&RecvWqe, &[Sge])> {
        match self {
            Self::Own(ring) => ring.front(),
            Self::Shared(srq, taken) => taken.front(srq),
            Self::Xrc(srq, taken) => taken.front(srq.as_deref()?),
        }
    }

    /// Removes the receive at the front. Entries that are still in a shared queue stay there for
    /// other queue pairs.
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
        byte_len: u64,
        packet: &PacketView<'_>,
        invalidated: Option<Rkey>,
        qp: &mut QpCore,
        cx: &QpContext<'_>,
    ) {
        let Some(wqe) = self.pop() else { return };
        let opcode = match packet.info().kind {
            Kind::Write => WcOpcode::RecvRdmaWithImm,
            _ => WcOpcode::Recv,
        };
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

    /// Completes the receive at the front with an error. Returns `false` if there is none.
    pub fn fail(&mut self, status: WcStatus, qp: &mut QpCore, cx: &QpContext<'_>) -> bool {
        let Some(wqe) = self.pop() else { return false };
        qp.complete_recv(Completion::new(wqe.wr_id, qp.qpn, WcOpcode::Recv, status), true, cx);
        true
    }

    /// Completes the receive at the front with a local protection error, and fails the queue pair
    /// of an unreliable service (class A error).
    pub fn fail_locally(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.fail(WcStatus::LocProtErr, qp, cx);
        qp.raise(QpEventType::QpFatal, cx);
        qp.fatal = true;
    }

    /// Completes all receives as flushed (ERR). Of a shared queue, that is only the one that was
    /// taken.
    pub fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        while self.fail(WcStatus::WrFlushErr, qp, cx) {}
    }

    /// Drops all receives (RESET). Of a shared queue, that is only the one that was taken.
    pub fn clear(&mut self) {
        match self {
            Self::Own(ring) => ring.clear(),
            Self::Shared(_, taken) | Self::Xrc(_, taken) => taken.wqe = None,
        }
    }
}
