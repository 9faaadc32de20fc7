//! The requester of a reliable connection, which takes work requests from the send queue and sends
//! their packets.
//!
//! ```text
//!   queue.head          cursor                                queue.tail
//!      |                  |                                       |
//!   ---+-- acknowledged? -+-- being sent --+-- not begun ---------+---
//!      una                cursor_psn       next_psn
//!                               sent_psn: one past the highest PSN ever sent
//! ```
//!
//! A work request gets its PSNs when its first packet is sent. To retransmit, the requester moves
//! the cursor back to a PSN between `una` and `sent_psn`. The credit taken from the path's window
//! is always that of the packets between `una` and `cursor_psn`.
//!
//! [`super::completer`] handles responses. Packets leave in bursts ([`super::burst`]).
//!
//! Sources: IBTA vol. 1, 9.7.2 (PSNs), 9.7.3 (requests), 10.8.3.3 (fences).

use std::collections::VecDeque;
use std::ops::Range;

use urxe_wire::{
    AtomicEth, Bth, Ext, Feth, Opcode, PacketRepr, PacketView, Psn, Qpn, Reth, SelectivityLevel,
    Service,
};

use super::burst::{Burst, credit_bytes, packet_count};
use super::recovery::Recovery;
use super::reorder_buffer::ReorderBuffer;
use super::xrc::xrceth;
use crate::cq::{Completion, PolledSends, WcStatus};
use crate::path::run::{RunBuffer, packet_len};
use crate::path::scheduler::TransmitStatus;
use crate::path::window::{Credit, PACKET_OVERHEAD};
use crate::qp::attr::{QpAttrMask, QpState};
use crate::qp::context::QpContext;
use crate::qp::headers::data_headers;
use crate::qp::local_ops;
use crate::qp::origin::{PsnMatch, RECENT};
use crate::qp::qp_core::QpCore;
use crate::qp::queue::{SendQueue, SendWqe};
use crate::qp::service::SendHalf;
use crate::qp::work_request::{FlushRange, PostError, Remote, SendFlags, SendOp, SendRequest};
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::counters::Counter;
use urxe_types::port::{MAX_RUN_BYTES, MAX_RUN_SEGMENTS};
use urxe_types::sync::Arc;
use urxe_types::time::Time;

/// The most PSNs that may be unacknowledged. This is far below half the PSN space. The window of
/// the path is the tighter limit.
pub(super) const MAX_UNACKNOWLEDGED: u32 = 1 << 16;
/// A READ, atomic, ATOMIC WRITE or FLUSH that was sent and lacks some of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The PSN after its last response.
    pub end: Psn,
    /// The bytes of the path's read budget that are still taken.
    pub charged: u64,
}

/// The requester of a reliable connection.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent
pub(in crate::qp) struct Requester {
    /// The position of the entry that is sent next.
    pub(super) cursor: u64,
    /// The completion status of the entry at the cursor, which cannot be sent. The entry completes
    /// after all entries before it.
    pub(super) failed: Option<WcStatus>,
    pub(super) recovery: Recovery,
    /// Responses that arrived before an earlier one.
    pub(super) reorder_buffer: Option<Box<ReorderBuffer>>,
    /// The path MTU in bytes, constant while requests are queued.
    pub(super) mtu: u32,
    /// The length in bytes of the longest message that was acknowledged since the start.
    longest_acknowledged: u32,
    /// The PSN of the next packet.
    pub(super) cursor_psn: Psn,
    /// The first PSN of the next entry to begin.
    pub(super) next_psn: Psn,
    /// One past the highest PSN ever sent.
    pub(super) sent_psn: Psn,
    /// The oldest unacknowledged PSN.
    pub(super) una: Psn,
    pub(super) burst: Burst,
    pub(super) queue: SendQueue,
    /// The requests with a response of their own that were sent, oldest first; at most
    /// `max_rd_atomic`.
    pub(super) reads: VecDeque<Outstanding>,
}

impl Requester {
    pub fn new(queue: SendQueue) -> Self {
        let psn = Psn::new(0);
        Self {
            queue,
            cursor: 0,
            mtu: 256,
            longest_acknowledged: 0,
            cursor_psn: psn,
            next_psn: psn,
            sent_psn: psn,
            una: psn,
            reads: VecDeque::new(),
            burst: Burst::default(),
            failed: None,
            recovery: Recovery::default(),
            reorder_buffer: None,
        }
    }

    fn restart_at_tail(&mut self) {
        self.cursor = self.queue.tail();
        self.cursor_psn = self.next_psn;
        (self.sent_psn, self.una) = (self.next_psn, self.next_psn);
        self.failed = None;
        self.burst.left = 0;
        self.recovery = Recovery::default();
        self.reorder_buffer = None;
    }

    /// Appends packets to `run` until there is nothing more to send now, or the run or the window
    /// is full.
    fn send_requests(
        &mut self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        if self.recovery.is_waiting(cx.now) {
            return TransmitStatus::Idle;
        }
        while self.cursor != self.queue.tail() && self.failed.is_none() {
            let mut wqe = *self.queue.wqe(self.cursor);
            if !wqe.is_begun() && !self.begin(&mut wqe, qp, cx) {
                return TransmitStatus::Idle;
            }
            if wqe.op.is_local() {
                self.execute(&wqe, qp, cx);
                continue;
            }
            let sent = if wqe.op.has_response() {
                self.send_read_like(&wqe, qp, cx, run)
            } else {
                self.send_data(&wqe, qp, cx, run)
            };
            if let Some(stop) = sent {
                return stop;
            }
        }
        TransmitStatus::Idle
    }

    /// Gives the entry at the cursor its PSNs. `wqe` is a copy of that entry. Returns `false` if
    /// the entry may not begin yet.
    fn begin(&mut self, wqe: &mut SendWqe, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        let draining = qp.state == QpState::Sqd;
        let fenced = wqe.flags.contains(SendFlags::FENCE) && !self.reads.is_empty();
        // Required, as in rdma_rxe: earlier packets that use the key may have to be sent again, or
        // their responses may be missing.
        let before_invalidate =
            matches!(wqe.op, SendOp::LocalInv { .. }) && self.cursor != self.queue.head();
        if draining || fenced || before_invalidate {
            return false;
        }
        wqe.first_psn = self.next_psn;
        if !wqe.op.is_local() {
            let mtu = qp.mtu();
            wqe.packets = packet_count(wqe.length, mtu);
            if matches!(wqe.op, SendOp::Read { .. }) {
                wqe.read_chunk_packets = read_chunk(mtu, qp, cx);
            }
            self.next_psn = wqe.first_psn.add(wqe.packets);
        }
        // The fields are written one by one, so that the copy is not written back as a whole.
        let entry = self.queue.wqe_mut(self.cursor);
        (entry.first_psn, entry.packets) = (wqe.first_psn, wqe.packets);
        entry.read_chunk_packets = wqe.read_chunk_packets;
        debug_assert_eq!(self.cursor_psn, wqe.first_psn);
        true
    }

    /// Executes the local operation at the cursor, unless that was done before the cursor moved
    /// back.
    fn execute(&mut self, wqe: &SendWqe, qp: &QpCore, cx: &mut QpContext<'_>) {
        if !wqe.executed {
            if let Err(status) = local_ops::execute(&wqe.op, qp, cx) {
                self.failed = Some(status);
                return;
            }
            self.queue.wqe_mut(self.cursor).executed = true;
        }
        self.cursor += 1;
    }

    /// Returns whether the next entry is an invalidation that waited only for local operations of
    /// this turn, which have completed. Nothing else would give the queue pair another turn.
    fn may_invalidate(&self, qp: &QpCore, cx: &QpContext<'_>) -> bool {
        self.wants_to_send(cx.now)
            && self.cursor == self.queue.head()
            && qp.state == QpState::Rts
            && matches!(self.queue.wqe(self.cursor).op, SendOp::LocalInv { .. })
    }

    /// Completes the local operations that were executed and have no entry before them.
    pub(super) fn complete_executed(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        while self.has_executed() {
            self.complete_one(qp, cx, WcStatus::Success);
        }
    }

    /// Sends one packet of a SEND or WRITE.
    fn send_data(
        &mut self,
        wqe: &SendWqe,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Option<TransmitStatus> {
        let mtu = qp.mtu();
        let index = self.cursor_psn.steps_from(wqe.first_psn);
        let last = index + 1 == wqe.packets;
        let payload_len = wqe.payload_len(index, mtu);
        let (opcode, ext) = data_headers(Service::Rc, &wqe.op, wqe.length, index == 0, last);
        let mut bth = qp.bth(opcode, self.cursor_psn);
        // The window is checked before the run, so that no run ends early for a packet that must
        // wait.
        if self.burst.left == 0 && !self.begin_burst(wqe, index, cx) {
            return Some(TransmitStatus::Blocked(Credit::Send));
        }
        if let Some(stop) = cx.rejects(run, packet_len(bth.opcode, payload_len as usize)) {
            return Some(stop);
        }
        if last && self.burst.left == 1 {
            self.extend_burst(qp, cx);
        }
        bth.solicited = last && wqe.flags.contains(SendFlags::SOLICITED);
        bth.ack_req = self.burst.left == 1;

        let offset = u64::from(index) * u64::from(mtu);
        let packet = PacketRepr { bth, xrceth: xrceth(wqe), ext };
        if !self.append(packet, offset, payload_len as usize, qp, cx, run) {
            return None;
        }
        self.burst.left -= 1;
        cx.credit.consume(u64::from(payload_len) + PACKET_OVERHEAD);
        cx.sent_writes += u64::from(
            index == 0 && matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteImm { .. }),
        );
        self.advance_cursor(1, bth.ack_req, qp, cx);
        None
    }

    /// Sends one wire request of a READ, or an atomic, ATOMIC WRITE or FLUSH.
    fn send_read_like(
        &mut self,
        wqe: &SendWqe,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Option<TransmitStatus> {
        if qp.attr.max_rd_atomic == 0 {
            // `max_rd_atomic` became 0 after the request was posted, so it could never be sent.
            self.failed = Some(WcStatus::LocQpOpErr);
            return None;
        }
        if self.reads.len() >= usize::from(qp.attr.max_rd_atomic) {
            return Some(TransmitStatus::Idle);
        }
        let (opcode, ext, packets) = self.read_like_headers(wqe, qp.mtu());
        let mut bth = qp.bth(opcode, self.cursor_psn);
        bth.ack_req = true;
        let payload_len = if matches!(wqe.op, SendOp::AtomicWrite { .. }) { 8 } else { 0 };
        let cost = u64::from(packets) * (u64::from(qp.mtu()) + PACKET_OVERHEAD);
        let unacknowledged = self.cursor_psn.steps_from(self.una);
        if self.yields(Credit::ReadResponse, cx)
            || !cx.path.window.admits_read(cost)
            || (unacknowledged > 0 && unacknowledged + packets > MAX_UNACKNOWLEDGED)
        {
            return Some(TransmitStatus::Blocked(Credit::ReadResponse));
        }
        if let Some(stop) = cx.rejects(run, packet_len(bth.opcode, payload_len)) {
            return Some(stop);
        }
        let packet = PacketRepr { bth, xrceth: xrceth(wqe), ext };
        if !self.append(packet, 0, payload_len, qp, cx, run) {
            return None;
        }
        cx.path.window.consume_read(cost);
        self.reads.push_back(Outstanding { end: self.cursor_psn.add(packets), charged: cost });
        if self.cursor_psn == wqe.first_psn {
            cx.device.counters.add(Counter::RdmaSends);
        }
        self.advance_cursor(packets, true, qp, cx);
        None
    }

    /// Appends a packet with `payload_len` bytes of the message at the cursor, from byte `offset`
    /// on. If the payload cannot be read, fails the message and returns `false`.
    #[inline(always)] // two callers, one call a packet
    fn append(
        &mut self,
        packet: PacketRepr,
        offset: u64,
        payload_len: usize,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> bool {
        let (queue, position, pins) = (&self.queue, self.cursor, &mut cx.pins);
        let appended = run.append(packet, payload_len, |to| {
            queue.copy_payload(position, pins, qp.pd, offset, to)
        });
        let Err(fault) = appended else { return true };
        tracing::debug!(qp = %qp.qpn, %fault, "send work request: local protection error");
        self.failed = Some(WcStatus::LocProtErr);
        self.burst.left = 0;
        false
    }

    /// Returns opcode, header and number of PSNs of the request for the missing responses from the
    /// cursor on. A request for a READ ends at the latest where the wire request ended that first
    /// covered the cursor, because a responder resumes a READ only inside that.
    fn read_like_headers(&self, wqe: &SendWqe, mtu: u32) -> (Opcode, Ext, u32) {
        let atomic = |Remote { addr: va, rkey }: Remote, swap_or_add, compare| {
            Ext::Atomic(AtomicEth { va, rkey, swap_or_add, compare })
        };
        let reth = |Remote { addr: va, rkey }: Remote, dma_len| Reth { va, rkey, dma_len };
        match wqe.op {
            SendOp::CompareSwap { remote, compare, swap } => {
                (Opcode::RcCompareSwap, atomic(remote, swap, compare), 1)
            }
            SendOp::FetchAdd { remote, add } => (Opcode::RcFetchAdd, atomic(remote, add, 0), 1),
            SendOp::Read { remote } => {
                let index = self.cursor_psn.steps_from(wqe.first_psn);
                let chunk = wqe.read_chunk_packets;
                let end = ((index / chunk + 1) * chunk).min(wqe.packets);
                let start_byte = u64::from(index) * u64::from(mtu);
                let end_byte = (u64::from(end) * u64::from(mtu)).min(u64::from(wqe.length));
                let rest = Remote { addr: remote.addr.wrapping_add(start_byte), ..remote };
                let reth = reth(rest, (end_byte - start_byte) as u32);
                (Opcode::RcReadRequest, Ext::Reth(reth), end - index)
            }
            SendOp::AtomicWrite { remote } => {
                (Opcode::RcAtomicWrite, Ext::Reth(reth(remote, wqe.length)), 1)
            }
            SendOp::Flush { remote, placement, range } => {
                let (selectivity, dma_len) = match range {
                    FlushRange::Bytes(len) => (SelectivityLevel::Range, len),
                    FlushRange::Region => (SelectivityLevel::Region, 0),
                };
                let feth = Feth { placement, selectivity };
                (Opcode::RcFlush, Ext::Flush(feth, reth(remote, dma_len)), 1)
            }
            _ => unreachable!("{:?} has no response of its own", wqe.op),
        }
    }

    fn advance_cursor(&mut self, packets: u32, ack_req: bool, qp: &QpCore, cx: &QpContext<'_>) {
        let psn = self.cursor_psn;
        let first_time = psn == self.sent_psn;
        self.cursor_psn = psn.add(packets);
        if self.cursor_psn == self.queue.wqe(self.cursor).end_psn() {
            self.cursor += 1;
        }
        if self.cursor_psn.steps_from(self.una) > self.sent_psn.steps_from(self.una) {
            self.sent_psn = self.cursor_psn;
        }
        self.recovery.on_sent(psn, first_time && ack_req, qp, cx);
    }

    /// Moves the cursor back to `psn`, which must not be before `una`, and returns the credit of
    /// the packets after it.
    pub(super) fn rewind(&mut self, psn: Psn, cx: &QpContext<'_>) {
        let mut position = self.queue.head();
        let mut at = self.una;
        let target = psn.steps_from(self.una);
        let end = self.cursor_psn.steps_from(self.una);
        let mut cursor = self.cursor;
        while at.steps_from(self.una) < end {
            let wqe = *self.queue.wqe(position);
            let from = at.steps_from(self.una).max(target);
            let stop = wqe.end_psn().steps_from(self.una).min(end);
            if stop > target {
                cursor = cursor.min(position);
                if !wqe.op.has_response() {
                    let skip = self.una.add(from).steps_from(wqe.first_psn);
                    cx.path.window.return_credit(credit_bytes(&wqe, skip, stop - from, self.mtu));
                }
            }
            at = self.una.add(stop);
            position += 1;
        }
        for read in self.reads.drain(..) {
            cx.path.window.return_read_credit(read.charged);
        }
        if target < end {
            self.cursor = cursor;
            self.cursor_psn = psn;
            // The entries before the failed one are sent again. Then its sending fails again.
            self.failed = None;
        }
        self.burst.left = 0;
    }

    /// Completes the oldest entry. If it succeeded, also completes the executed local operations
    /// right behind it.
    pub(super) fn complete_head(&mut self, qp: &mut QpCore, cx: &QpContext<'_>, status: WcStatus) {
        self.complete_one(qp, cx, status);
        if status.is_success() {
            self.complete_executed(qp, cx);
        }
    }

    fn complete_one(&mut self, qp: &mut QpCore, cx: &QpContext<'_>, status: WcStatus) {
        qp.send_lost |= !status.is_success();
        if let Some(completion) = self.retire_head(qp.qpn, status) {
            qp.complete_send(completion, cx);
        }
    }

    /// Removes the oldest entry and returns its completion, if there is one.
    #[inline(always)] // returns a completion without copying
    pub(super) fn retire_head(&mut self, qpn: Qpn, status: WcStatus) -> Option<Completion> {
        let position = self.queue.head();
        let wqe = self.queue.wqe(position);
        let is_told = !status.is_success() || wqe.flags.contains(SendFlags::SIGNALED);
        let completion = is_told.then(|| {
            let completion = Completion::new(wqe.wr_id, qpn, wqe.op.wc_opcode(), status)
                .with_send_position(position as u32);
            if status.is_success() { completion.with_byte_len(wqe.length) } else { completion }
        });
        if status.is_success() {
            self.longest_acknowledged = self.longest_acknowledged.max(wqe.length);
        }
        self.queue.pop();
        if self.cursor == position {
            self.cursor += 1;
            // The response arrived, so the failure to send the entry again has no effect.
            self.failed = None;
        }
        completion
    }

    /// Returns whether the peer acknowledged packets since the start, but none of the path MTU, and
    /// the oldest unacknowledged packet is of the path MTU.
    pub(super) fn suspects_path_mtu(&self, qp: &QpCore) -> bool {
        let wqe = self.queue.wqe(self.queue.head());
        // The later packets of a message follow one of the path MTU that was acknowledged.
        let is_first = self.una == wqe.first_psn && self.una != qp.attr.sq_psn;
        is_first && wqe.length >= self.mtu && self.longest_acknowledged < self.mtu
    }

    /// Returns whether the oldest entry is a local operation that was executed.
    pub(super) fn has_executed(&self) -> bool {
        !self.queue.is_empty() && self.queue.wqe(self.queue.head()).executed
    }
}

impl SendHalf for Requester {
    fn reserve(&mut self, reads: usize) -> Result<(), OutOfMemory> {
        let more = reads.saturating_sub(self.reads.len());
        let error = || OutOfMemory::of::<Outstanding>(reads);
        allocate::reserved(self.reads.try_reserve(more), error)
    }

    fn start(&mut self, qp: &QpCore) {
        let psn = qp.attr.sq_psn;
        self.mtu = qp.mtu();
        self.longest_acknowledged = 0;
        (self.cursor_psn, self.next_psn, self.sent_psn, self.una) = (psn, psn, psn, psn);
        self.recovery = Recovery::new(qp);
    }

    /// Other attributes are read when they are used.
    fn attributes_changed(&mut self, qp: &QpCore, mask: QpAttrMask) {
        if mask.contains(QpAttrMask::RNR_RETRY) {
            self.recovery.allow_rnr_retries(qp);
        }
    }

    fn reset(&mut self, cx: &QpContext<'_>) {
        self.return_credit(cx);
        self.queue.clear();
        self.restart_at_tail();
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.return_credit(cx);
        while !self.queue.is_empty() {
            self.complete_head(qp, cx, WcStatus::WrFlushErr);
        }
        self.restart_at_tail();
    }

    /// Returns all credit. The unacknowledged packets will be sent again.
    fn return_credit(&mut self, cx: &QpContext<'_>) {
        self.rewind(self.una, cx);
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty() || !self.queue.wqe(self.queue.head()).is_begun()
    }

    fn make_strict(&mut self, polled: Arc<PolledSends>) {
        self.queue.make_strict(polled);
    }

    fn posted(&self) -> Range<u64> {
        self.queue.head()..self.queue.tail()
    }

    fn push(&mut self, qp: &QpCore, request: &SendRequest<'_>) -> Result<(), PostError> {
        if request.op.has_response() && qp.attr.max_rd_atomic == 0 && qp.state != QpState::Err {
            return Err(PostError::NoReadDepth);
        }
        self.queue.push(request, qp.max_message, qp.sq_sig_all)
    }

    /// Appends packets to `run` if the state allows it. Fails the queue pair if a request cannot be
    /// sent.
    fn transmit(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> TransmitStatus {
        if qp.fatal || !matches!(qp.state, QpState::Rts | QpState::Sqd) {
            return TransmitStatus::Idle;
        }
        let mut sent = self.send_requests(qp, cx, run);
        self.complete_executed(qp, cx);
        while sent == TransmitStatus::Idle && self.may_invalidate(qp, cx) {
            sent = self.send_requests(qp, cx, run);
            self.complete_executed(qp, cx);
        }
        cx.credit.commit_turn(&cx.path.window, cx.turn.more_pending);
        qp.fatal |= self.complete_failed(qp, cx).is_err();
        sent
    }

    fn has_short_tail(&self) -> bool {
        if self.cursor == self.queue.tail() {
            return false;
        }
        let wqe = self.queue.wqe(self.cursor);
        !wqe.op.has_response() && wqe.length > self.mtu && !wqe.length.is_multiple_of(self.mtu)
    }

    #[inline]
    fn wants_to_send(&self, now: Time) -> bool {
        self.cursor != self.queue.tail() && self.failed.is_none() && !self.recovery.is_waiting(now)
    }

    fn first_unsent_bytes(&self, posted: usize) -> Option<u64> {
        if posted == 0 || self.queue.tail() - self.cursor != posted as u64 {
            return None;
        }
        let wqe = self.queue.wqe(self.cursor);
        let is_data = !wqe.op.has_response() && !wqe.op.is_local();
        is_data.then(|| credit_bytes(wqe, 0, 1, self.mtu))
    }

    fn psn_match(&self, packet: &PacketView<'_>) -> PsnMatch {
        let outstanding = self.sent_psn.steps_from(self.una).min(RECENT as u32);
        match packet.psn().steps_from(self.una) < outstanding {
            true => PsnMatch::Expected,
            false => PsnMatch::Implausible,
        }
    }

    fn on_response(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        qp.fatal |= self.receive_response(qp, cx, packet).is_err();
    }

    fn on_timer(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        qp.fatal |= self.check_timers(qp, cx).is_err();
    }

    #[inline]
    fn deadline(&self) -> Time {
        self.recovery.deadline().min(ReorderBuffer::deadline(self.reorder_buffer.as_deref()))
    }
}

/// Returns the number of responses that one wire request of a READ asks for.
fn read_chunk(mtu: u32, qp: &QpCore, cx: &QpContext<'_>) -> u32 {
    // Two wire READs in flight keep the link busy, if the peer allows two.
    let share = if qp.attr.max_rd_atomic > 1 { 2 } else { 1 };
    let chunk = cx.path.window.read_budget() / share / (u64::from(mtu) + PACKET_OVERHEAD);
    whole_runs(u32::try_from(chunk).unwrap_or(u32::MAX), mtu).max(1)
}

/// Returns how many of `packets` packets a READ asks for, so that its responses fill whole runs.
/// The first and last response have an AETH and are longer than the others. The last one of a READ
/// and the first two of the next READ form a run; the responses between them form whole runs.
fn whole_runs(packets: u32, mtu: u32) -> u32 {
    let longest = urxe_wire::packet::packet_len(Bth::LEN, mtu as usize);
    let of_run = (MAX_RUN_BYTES / longest).min(MAX_RUN_SEGMENTS) as u32;
    match packets.checked_sub(3) {
        Some(between) if between >= of_run => between / of_run * of_run + 3,
        _ => packets,
    }
}
