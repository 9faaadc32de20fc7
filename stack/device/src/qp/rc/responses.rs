//! The responses that a responder still has to send, and those kept to answer duplicates.
//!
//! There are two lists:
//!
//! - *Pending* responses are sent strictly in order. An ACK that overtook a READ or atomic response
//!   would acknowledge that request too.
//! - *Kept* responses, at most `max_dest_rd_atomic`, answer duplicates. A duplicate atomic gets the
//!   value of its one execution, and a duplicate READ reads again. ATOMIC WRITE and FLUSH get the
//!   same empty READ response.
//!
//! Sources: IBTA vol. 1, 9.7.5.1.1 (response order), 9.7.5.1.3 (duplicates), 9.7.5.1.9 (READ
//! response PSNs).

use std::collections::VecDeque;

use urxe_wire::{
    Aeth, AtomicAckEth, Ext, Msn, NakCode, Opcode, PacketRepr, Psn, Reth, Rkey, RnrTimer, Syndrome,
};

use super::execution::Fault;
use super::saved_reads::{Change, SavedReads};
use crate::path::acks::Ack;
use crate::path::run::{RunBuffer, packet_len};
use crate::path::scheduler::TransmitStatus;
use crate::qp::context::QpContext;
use crate::qp::qp_core::QpCore;
use urxe_memory::{Access, Accessor, PdId, WriteOnly};
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::time::Time;

/// The pending responses beyond one for each kept response: the ACKs between them, and a NAK.
const MORE_PENDING: usize = 4;

/// The content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Ack,
    Nak(NakCode),
    RnrNak,
    /// An atomic was executed and found the value `original`.
    Atomic {
        original: u64,
    },
    /// An ATOMIC WRITE or FLUSH was executed. Its response is that to a READ of 0 bytes.
    Done,
    Read(ReadRest),
}

impl Response {
    /// Returns whether the request has a response of its own, which counts against the depth.
    fn is_kept(self) -> bool {
        matches!(self, Self::Atomic { .. } | Self::Done | Self::Read(_))
    }
}

/// The part of a READ that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRest {
    va: u64,
    left: u32,
    rkey: Rkey,
    /// The protection domain of the memory. For XRC, that of the shared receive queue that the
    /// request named.
    pd: PdId,
    pub packets_left: u32,
    /// The first packet was sent.
    begun: bool,
}

impl ReadRest {
    /// Returns the whole READ of a request.
    pub fn new(reth: Reth, pd: PdId, mtu: u32) -> Self {
        let Reth { va, rkey, dma_len: left } = reth;
        Self { va, left, rkey, pd, packets_left: left.div_ceil(mtu).max(1), begun: false }
    }

    /// Returns the PSN of the last packet. `next` is that of the next one.
    fn last(&self, next: Psn) -> Psn {
        next.add(self.packets_left - 1)
    }

    /// Reads the next bytes from memory.
    fn read(&self, to: WriteOnly<'_>, qp: &QpCore, cx: &mut QpContext<'_>) -> Result<(), ()> {
        let by = Accessor { pd: self.pd, qpn: Some(qp.qpn) };
        let (counters, len) = (cx.device.counters, to.len() as u64);
        let pin = cx.pins.access(self.rkey.0, by, Access::REMOTE_READ, self.va, len);
        let pin = pin.map_err(|error| counters.add((&error).into()))?;
        pin.read(self.va, to).map_err(|error| counters.add((&error).into()))
    }
}

/// A response to be sent. The response to a READ, atomic, ATOMIC WRITE or FLUSH is also kept in its
/// initial form. It is kept until as many later ones followed as the peer may have outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    /// The PSN of the next packet.
    psn: Psn,
    msn: Msn,
    response: Response,
    /// The response answers a duplicate.
    is_replay: bool,
}

/// The outcome of a duplicate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// The response is pending again.
    Queued,
    /// The response is no longer kept, or is pending already.
    Unknown,
}

/// The responses of one responder.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent
pub(super) struct Responses {
    /// The PSN and MSN of the ACK behind all pending responses. Usually there is no other response.
    /// With a thousand active queue pairs no list is in the cache, so the ACK is stored here.
    ack: Option<(Psn, Msn)>,
    pending: VecDeque<Pending>,
    kept: VecDeque<Pending>,
    /// The data of pending READ responses that a later request changed.
    saved: SavedReads,
    depth: usize,
    /// The time until which the pacer stopped READ responses; [`Time::NEVER`] if it did not.
    resume_at: Time,
}

impl Default for Responses {
    fn default() -> Self {
        let (pending, kept) = (VecDeque::new(), VecDeque::new());
        let saved = SavedReads::default();
        Self { ack: None, pending, kept, saved, depth: 0, resume_at: Time::NEVER }
    }
}

impl Responses {
    /// Starts with empty lists. `depth` is the most READs and atomics that the peer may have
    /// outstanding.
    pub fn start(&mut self, depth: usize) {
        self.clear();
        self.depth = depth;
    }

    /// Makes room for a depth of `depth`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn reserve(&mut self, depth: usize) -> Result<(), OutOfMemory> {
        // A NAK that ends the connection finds room beyond that, and so does an ACK before it.
        let most = most_pending(depth) + 2;
        let error = || OutOfMemory::of::<Pending>(most);
        let (kept, pending) = (self.kept.len(), self.pending.len());
        allocate::reserved(self.kept.try_reserve(depth.saturating_sub(kept)), error)?;
        allocate::reserved(self.pending.try_reserve(most.saturating_sub(pending)), error)
    }

    pub fn clear(&mut self) {
        self.resume_at = Time::NEVER;
        self.pending.clear();
        self.ack = None;
        self.kept.clear();
        self.saved.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ack.is_none()
    }

    /// Returns whether there is no response to send but at most the ACK behind all others.
    pub fn is_only_ack(&self) -> bool {
        self.pending.is_empty()
    }

    /// Handles the failure of the queue pair. The NAK that reports the failure stays pending, and
    /// so do the responses before it, because their requests were executed. Everything else is
    /// dropped.
    pub fn retain_final_nak(&mut self) {
        let is_fatal = |pending: &Pending| match pending.response {
            Response::Nak(code) => code != NakCode::PsnSequence,
            _ => false,
        };
        let end = self.pending.iter().rposition(is_fatal).map_or(0, |last| last + 1);
        self.pending.truncate(end);
        self.ack = None;
        self.kept.clear();
        self.drop_unused_data();
    }

    /// Returns the time at which the pacer admits READ responses again, or [`Time::NEVER`].
    #[inline]
    pub const fn resume_at(&self) -> Time {
        self.resume_at
    }

    /// Forgets the pause of the pacer if it is over.
    pub fn resume(&mut self, now: Time) {
        if self.resume_at <= now {
            self.resume_at = Time::NEVER;
        }
    }

    /// Changes the depth in SQD. If more responses are kept, drops the oldest.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        while self.kept.len() > depth {
            self.kept.pop_front();
        }
    }

    /// Returns whether the peer may have one more READ or atomic outstanding. Responses to
    /// duplicates do not count, because the network may repeat a request whose first response has
    /// arrived.
    pub fn has_room(&self) -> bool {
        let is_first = |pending: &&Pending| pending.response.is_kept() && !pending.is_replay;
        let outstanding = self.pending.iter().filter(is_first).count();
        outstanding < self.depth
    }

    /// Acknowledges everything up to `psn`. Returns whether the ACK replaced a pending one.
    pub fn push_ack(&mut self, psn: Psn, msn: Msn) -> bool {
        if self.ack.is_none()
            && let Some(last) = self.pending.back_mut()
            && last.response == Response::Ack
        {
            (last.psn, last.msn) = (psn, msn);
            return true;
        }
        self.ack.replace((psn, msn)).is_some()
    }

    /// Adds the NAK that ends the connection. There is always room, because no response
    /// follows.
    pub fn push_fatal_nak(&mut self, psn: Psn, msn: Msn, code: NakCode) {
        self.list_ack();
        let response = Response::Nak(code);
        self.pending.push_back(Pending { psn, msn, response, is_replay: false });
    }

    /// Adds a response or a NAK.
    pub fn push(&mut self, psn: Psn, msn: Msn, response: Response) {
        let pending = Pending { psn, msn, response, is_replay: false };
        if response.is_kept() {
            if self.kept.len() == self.depth {
                self.kept.pop_front();
            }
            self.kept.push_back(pending);
        }
        self.list_ack();
        // The list cannot become full otherwise: `has_room` limits READs and atomics, ACKs merge,
        // and there is one NAK at a time. Only a peer that keeps moving back causes repeated NAKs,
        // and the oldest ones say the same.
        if !self.is_full() {
            self.pending.push_back(pending);
        }
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= most_pending(self.depth)
    }

    /// Moves the last ACK into the list, because a response follows it or is inserted before it.
    fn list_ack(&mut self) {
        if let Some((psn, msn)) = self.ack.take() {
            let response = Response::Ack;
            self.pending.push_back(Pending { psn, msn, response, is_replay: false });
        }
    }

    /// Inserts the response to a duplicate in PSN order. An ACK of the same PSN would acknowledge
    /// the request and follows the response.
    fn insert(&mut self, pending: Pending) -> Replay {
        self.list_ack();
        if self.is_full() {
            return Replay::Unknown;
        }
        let follows = |other: &Pending| other.psn.distance(pending.psn) >= 0;
        let place = self.pending.iter().position(follows).unwrap_or(self.pending.len());
        self.pending.insert(place, pending);
        Replay::Queued
    }

    /// Answers a duplicate READ request by reading again from its address on. The request must lie
    /// inside the one that was executed.
    pub fn replay_read(&mut self, psn: Psn, reth: Reth, mtu: u32) -> Replay {
        let found = self.kept.iter().rev().find_map(|kept| match kept.response {
            Response::Read(whole) if psn.within(kept.psn, whole.packets_left) => {
                Some((*kept, whole))
            }
            _ => None,
        });
        let Some((kept, whole)) = found else { return Replay::Unknown };
        let offset = u64::from(psn.steps_from(kept.psn)) * u64::from(mtu);
        if reth.rkey != whole.rkey
            || reth.va != whole.va.wrapping_add(offset)
            || offset + u64::from(reth.dma_len) > u64::from(whole.left)
        {
            return Replay::Unknown;
        }
        let still_to_come = |pending: &Pending| match pending.response {
            Response::Read(rest) => psn.within(pending.psn, rest.packets_left),
            _ => false,
        };
        if self.pending.iter().any(still_to_come) {
            return Replay::Unknown;
        }
        // Later packets of the same READ may be pending. They are dropped, because the requester
        // accepts responses in order only.
        let wanted = kept.psn.add(whole.packets_left).steps_from(psn);
        self.pending.retain(|pending| {
            !(matches!(pending.response, Response::Read(_)) && pending.psn.within(psn, wanted))
        });
        self.drop_unused_data();
        let response = Response::Read(ReadRest::new(reth, whole.pd, mtu));
        self.insert(Pending { psn, response, is_replay: true, ..kept })
    }

    /// Answers a duplicate atomic with the value of its one execution, or a duplicate ATOMIC WRITE
    /// or FLUSH with its confirmation (oA19-14).
    pub fn replay_once(&mut self, wanted: Psn, atomic: bool) -> Replay {
        // The search starts with the newest, because PSNs repeat after 2^24 packets.
        let answers = |pending: &&Pending| match pending.response {
            Response::Atomic { .. } => atomic && pending.psn == wanted,
            Response::Done => !atomic && pending.psn == wanted,
            _ => false,
        };
        let found = self.kept.iter().rev().find(answers);
        let is_pending = self.pending.iter().any(|pending| {
            matches!(pending.response, Response::Atomic { .. } | Response::Done)
                && pending.psn == wanted
        });
        match found {
            Some(kept) if !is_pending => self.insert(Pending { is_replay: true, ..*kept }),
            _ => Replay::Unknown,
        }
    }

    /// Saves the data of the pending READ responses that `change` affects. Returns whether the
    /// request may be executed: false means that too much data would have to be saved, and that the
    /// request must follow the responses.
    #[cold]
    pub fn save_before(&mut self, change: Change, qp: &QpCore, cx: &mut QpContext<'_>) -> bool {
        for pending in &self.pending {
            let Response::Read(rest) = pending.response else { continue };
            let is_affected = change.affects(rest.va, rest.left, rest.rkey);
            let last = rest.last(pending.psn);
            if !(is_affected || change.is_seen)
                || rest.left == 0
                || self.saved.rest(last, rest.left).is_some()
            {
                continue;
            }
            let mut data = Vec::new();
            let has_room = self.saved.has_room(rest.left);
            if !has_room || data.try_reserve_exact(rest.left as usize).is_err() {
                if is_affected {
                    return false;
                }
                continue;
            }
            data.resize(rest.left as usize, 0);
            // If the memory became inaccessible, the response fails when it is sent.
            if rest.read(WriteOnly::from(&mut data), qp, cx).is_ok() {
                self.saved.save(last, data);
            }
        }
        true
    }

    /// Drops the saved data of responses that are no longer pending.
    fn drop_unused_data(&mut self) {
        if self.saved.is_empty() {
            return;
        }
        let pending = &self.pending;
        self.saved.retain(|last| {
            pending.iter().any(|pending| match pending.response {
                Response::Read(rest) => rest.last(pending.psn) == last,
                _ => false,
            })
        });
    }

    /// Takes the pending ACK, if there is no other response to send.
    pub fn take_ack(&mut self, qp: &QpCore) -> Option<Ack> {
        let (psn, msn) = self.ack.take_if(|_| self.pending.is_empty())?;
        let opcode = qp.opcode(Opcode::RcAcknowledge);
        Some(Ack { to: qp.attr.dest_qp_num, psn, msn, opcode, pkey: qp.pkey, mig_req: qp.mig_req })
    }

    /// Appends pending responses to `run`, in order.
    ///
    /// # Errors
    /// Fails if the memory of a READ became inaccessible before the first response was complete.
    /// The NAK for that is pending, and the queue pair must move to the error state.
    pub fn transmit(
        &mut self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer<'_>,
    ) -> Result<TransmitStatus, Fault> {
        while let Some(front) = self.pending.front_mut() {
            let sent = match &mut front.response {
                Response::Read(rest) => {
                    send_read(&mut front.psn, front.msn, rest, &self.saved, qp, cx, run)
                }
                response => Ok(send_short(front.psn, front.msn, *response, qp, cx, run)),
            };
            match sent {
                Ok(Progress::Stop(why)) => return Ok(why),
                Ok(Progress::Paced(resume_at)) => {
                    // The timer at that time lists the queue pair again.
                    self.resume_at = resume_at;
                    return Ok(TransmitStatus::Idle);
                }
                Ok(Progress::More) => {}
                Ok(Progress::Done) => {
                    self.pending.pop_front();
                    self.drop_unused_data();
                }
                Err((psn, msn)) if front.is_replay => {
                    // The requester may have the response of the first execution, after which the
                    // key may end. So the NAK is for a requester that still waits, and does not end
                    // the connection. Other requesters ignore a NAK with an acknowledged PSN.
                    let nak = Response::Nak(Fault::REMOTE_ACCESS.nak);
                    *front = Pending { psn, msn, response: nak, is_replay: true };
                }
                Err((psn, msn)) => {
                    let fault = Fault::REMOTE_ACCESS;
                    self.pending.clear();
                    self.saved.clear();
                    self.ack = None;
                    self.push_fatal_nak(psn, msn, fault.nak);
                    return Err(fault);
                }
            }
        }
        if let Some((psn, msn)) = self.ack {
            match send_short(psn, msn, Response::Ack, qp, cx, run) {
                Progress::Stop(why) => return Ok(why),
                Progress::Paced(_) | Progress::More | Progress::Done => self.ack = None,
            }
        }
        Ok(TransmitStatus::Idle)
    }
}

/// Returns the most pending responses: with a depth of `depth`, before an ACK and a fatal NAK.
fn most_pending(depth: usize) -> usize {
    depth * 2 + MORE_PENDING
}

enum Progress {
    /// The packet does not join the run.
    Stop(TransmitStatus),
    /// The pacer admits the packet at this time.
    Paced(Time),
    /// A packet was appended, and the response has more.
    More,
    /// The response is complete.
    Done,
}

/// Appends a response of one packet without payload.
fn send_short(
    psn: Psn,
    msn: Msn,
    response: Response,
    qp: &QpCore,
    cx: &QpContext<'_>,
    run: &mut RunBuffer<'_>,
) -> Progress {
    let aeth = |syndrome| Aeth { syndrome, msn };
    let (opcode, ext) = match response {
        Response::Ack => (Opcode::RcAcknowledge, Ext::Aeth(aeth(Syndrome::ACK))),
        Response::Nak(code) => (Opcode::RcAcknowledge, Ext::Aeth(aeth(Syndrome::Nak(code)))),
        Response::RnrNak => {
            let timer = RnrTimer::new(qp.attr.min_rnr_timer & 0x1f).unwrap_or(RnrTimer::LONGEST);
            (Opcode::RcAcknowledge, Ext::Aeth(aeth(Syndrome::RnrNak(timer))))
        }
        Response::Atomic { original } => {
            let ext = Ext::AtomicAck(aeth(Syndrome::ACK), AtomicAckEth { original });
            (Opcode::RcAtomicAcknowledge, ext)
        }
        Response::Done => (Opcode::RcReadResponseOnly, Ext::Aeth(aeth(Syndrome::ACK))),
        Response::Read(_) => unreachable!("a READ response carries payload"),
    };
    let bth = qp.bth(opcode, psn);
    if let Some(why) = cx.rejects(run, packet_len(bth.opcode, 0)) {
        return Progress::Stop(why);
    }
    let appended: Result<(), std::convert::Infallible> =
        run.append(PacketRepr::new(bth, ext), 0, |_| Ok(()));
    debug_assert_eq!(appended, Ok(()));
    Progress::Done
}

/// Appends the next packet of a READ response.
///
/// # Errors
/// Fails if the memory is no longer readable, with the PSN of the packet and the MSN before the
/// READ.
fn send_read(
    next: &mut Psn,
    msn: Msn,
    rest: &mut ReadRest,
    saved: &SavedReads,
    qp: &QpCore,
    cx: &mut QpContext<'_>,
    run: &mut RunBuffer<'_>,
) -> Result<Progress, (Psn, Msn)> {
    let is_last = rest.packets_left == 1;
    let opcode = match (rest.begun, is_last) {
        (false, true) => Opcode::RcReadResponseOnly,
        (false, false) => Opcode::RcReadResponseFirst,
        (true, false) => Opcode::RcReadResponseMiddle,
        (true, true) => Opcode::RcReadResponseLast,
    };
    let ext = if !rest.begun || is_last {
        Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn })
    } else {
        Ext::None
    };
    let len = rest.left.min(qp.mtu());
    let bth = qp.bth(opcode, *next);
    let packet_len = packet_len(bth.opcode, len as usize);
    if let Some(why) = cx.rejects(run, packet_len) {
        return Ok(Progress::Stop(why));
    }
    if let Err(resume_at) = cx.path.response_pacer.admit(cx.now, packet_len as u64) {
        return Ok(Progress::Paced(resume_at));
    }
    let saved = saved.rest(rest.last(*next), rest.left);
    let filled = run.append(PacketRepr::new(bth, ext), len as usize, |to| match saved {
        _ if to.is_empty() => Ok(()),
        Some(data) => {
            to.copy_from(&data[..to.len()]);
            Ok(())
        }
        None => rest.read(to, qp, cx),
    });
    if filled.is_err() {
        return Err((*next, Msn::masked(msn.value().wrapping_sub(1))));
    }
    rest.va = rest.va.wrapping_add(u64::from(len));
    rest.left -= len;
    rest.begun = true;
    rest.packets_left -= 1;
    *next = next.next();
    Ok(if is_last { Progress::Done } else { Progress::More })
}
