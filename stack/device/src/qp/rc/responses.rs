//! What a responder still has to send, and what it keeps to answer duplicates.
//!
//! Two lists. *Pending* answers leave strictly in order: no acknowledgement overtakes a READ or
//! atomic response before it, since it would acknowledge that too. *Kept* READs and atomics, at
//! most `max_dest_rd_atomic`, answer requests that come again: an atomic with the value of its one
//! execution, a READ by reading again, ATOMIC WRITE and FLUSH with the same empty READ response.
//!
//! Sources: IBTA vol. 1, 9.7.5.1.1 (response order), 9.7.5.1.3 (duplicates), 9.7.5.1.9 (READ
//! response PSNs).

use std::collections::VecDeque;

use urxe_wire::{
    Aeth, AtomicAckEth, Ext, Msn, NakCode, Opcode, Psn, Reth, Rkey, RnrTimer, Syndrome,
};

use super::execution::Fault;
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::context::{QpContext, packet_len};
use crate::qp::qp_core::QpCore;
use urxe_memory::{Access, Accessor, PdId};

/// Pending answers beyond one for each kept operation: acknowledgements between them and a NAK.
const MORE_PENDING: usize = 4;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Ack,
    Nak(NakCode),
    RnrNak,
    /// An atomic was executed, and found this value.
    Atomic {
        original: u64,
    },
    /// An ATOMIC WRITE or FLUSH was executed: answered as a READ of nothing.
    Done,
    Read(ReadRest),
}

impl Response {
    /// Whether it answers a request with a response of its own, which counts against the depth.
    fn is_kept(self) -> bool {
        matches!(self, Self::Atomic { .. } | Self::Done | Self::Read(_))
    }
}

/// What of a READ is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRest {
    va: u64,
    left: u32,
    rkey: Rkey,
    /// Protection domain of the memory: of XRC, that of the queue that the request named.
    pd: PdId,
    pub packets_left: u32,
    /// Its first packet was sent.
    begun: bool,
}

impl ReadRest {
    /// All that the request asks for.
    pub fn new(reth: Reth, pd: PdId, mtu: u32) -> Self {
        let Reth { va, rkey, dma_len: left } = reth;
        Self { va, left, rkey, pd, packets_left: left.div_ceil(mtu).max(1), begun: false }
    }
}

/// An answer to be sent. What answers an executed request with a response of its own is kept as it
/// was at first, until as many later ones came as the peer may have outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    /// Of its next packet.
    psn: Psn,
    msn: Msn,
    response: Response,
    /// It answers a duplicate.
    is_replay: bool,
}

/// What became of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// It will be answered.
    Queued,
    /// Its answer is not kept (any more), or is about to be sent anyway.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
#[repr(C)] // what each packet looks at stands together
pub(super) struct Responses {
    /// The acknowledgement after all of them, as PSN and MSN. Most often there is nothing else, and
    /// of a thousand queue pairs at work none has its list in a cache.
    ack: Option<(Psn, Msn)>,
    pending: VecDeque<Pending>,
    kept: VecDeque<Pending>,
    depth: usize,
}

impl Responses {
    /// `depth`: how many READs and atomics the peer may have outstanding.
    pub fn start(&mut self, depth: usize) {
        self.clear();
        self.depth = depth;
        self.kept.reserve(depth);
        self.pending.reserve(depth * 2 + MORE_PENDING + 1);
    }

    pub fn clear(&mut self) {
        self.pending.clear();
        self.ack = None;
        self.kept.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.ack.is_none()
    }

    /// Whether at most one acknowledgement is to be sent.
    pub fn is_only_ack(&self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        self.pending.iter().all(|pending| pending.response == Response::Ack)
            && self.pending.len() + usize::from(self.ack.is_some()) <= 1
    }

    /// The queue pair failed. If a NAK says so, it is still sent, and so are the answers before it:
    /// what they answer was executed.
    pub fn retain_final_nak(&mut self) {
        let is_fatal = |pending: &Pending| matches!(pending.response, Response::Nak(code) if code != NakCode::PsnSequence);
        let end = self.pending.iter().rposition(is_fatal).map_or(0, |last| last + 1);
        self.pending.truncate(end);
        self.ack = None;
        self.kept.clear();
    }

    /// `depth` while the queue pair lives (SQD): the oldest of what is kept goes, if it is more.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        while self.kept.len() > depth {
            self.kept.pop_front();
        }
    }

    /// Whether the peer may have one more READ or atomic outstanding. Answers to duplicates do not
    /// count: the network may repeat a request whose first answer the peer has long had.
    pub fn has_room(&self) -> bool {
        let is_first = |pending: &&Pending| pending.response.is_kept() && !pending.is_replay;
        let outstanding = self.pending.iter().filter(is_first).count();
        outstanding < self.depth
    }

    /// Acknowledges everything up to `psn`. True if this merged with an acknowledgement that was
    /// still to be sent.
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

    /// The NAK that ends the connection: there is always room for it, since nothing follows.
    pub fn push_fatal_nak(&mut self, psn: Psn, msn: Msn, code: NakCode) {
        self.list_ack();
        let response = Response::Nak(code);
        self.pending.push_back(Pending { psn, msn, response, is_replay: false });
    }

    /// Answers a request that was executed, or asks for one again.
    pub fn push(&mut self, psn: Psn, msn: Msn, response: Response) {
        let pending = Pending { psn, msn, response, is_replay: false };
        if response.is_kept() {
            if self.kept.len() == self.depth {
                self.kept.pop_front();
            }
            self.kept.push_back(pending);
        }
        self.list_ack();
        // Bounded by construction: has_room() for READs and atomics, merging for ACKs, one NAK at a
        // time. Duplicates of NAKs can only come from a peer that goes back again and again; the
        // oldest answers say the same.
        if self.pending.len() < self.depth * 2 + MORE_PENDING {
            self.pending.push_back(pending);
        }
    }

    /// Something is to follow the last acknowledgement, or to be put before it.
    fn list_ack(&mut self) {
        if let Some((psn, msn)) = self.ack.take() {
            let response = Response::Ack;
            self.pending.push_back(Pending { psn, msn, response, is_replay: false });
        }
    }

    /// Puts the answer of a duplicate in its place in PSN order.
    fn insert(&mut self, pending: Pending) -> Replay {
        self.list_ack();
        if self.pending.len() >= self.depth * 2 + MORE_PENDING {
            return Replay::Unknown;
        }
        let later = |other: &Pending| other.psn.distance(pending.psn) > 0;
        let place = self.pending.iter().position(later).unwrap_or(self.pending.len());
        self.pending.insert(place, pending);
        Replay::Queued
    }

    /// A READ request came again: read again from where it says, inside what it first covered.
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
        let still_to_come = |pending: &Pending| matches!(pending.response, Response::Read(rest) if psn.within(pending.psn, rest.packets_left));
        if self.pending.iter().any(still_to_come) {
            return Replay::Unknown;
        }
        // The same READ may be under way further on: the requester takes responses in order only,
        // so start over from here.
        let wanted = kept.psn.add(whole.packets_left).steps_from(psn);
        self.pending.retain(|pending| {
            !(matches!(pending.response, Response::Read(_)) && pending.psn.within(psn, wanted))
        });
        let response = Response::Read(ReadRest::new(reth, whole.pd, mtu));
        self.insert(Pending { psn, response, is_replay: true, ..kept })
    }

    /// An atomic came again: the value of its one execution. An ATOMIC WRITE or FLUSH: that it was
    /// executed (oA19-14).
    pub fn replay_once(&mut self, wanted: Psn, atomic: bool) -> Replay {
        // The newest: another may have had the same PSN 2^24 packets ago.
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

    /// Takes the acknowledgement out, if nothing else is to be sent.
    pub fn take_ack(&mut self, qp: &QpCore) -> Option<Ack> {
        let (psn, msn) = self.ack.take_if(|_| self.pending.is_empty())?;
        let opcode = qp.opcode(Opcode::RcAcknowledge);
        Some(Ack { to: qp.attr.dest_qp_num, psn, msn, opcode, pkey: qp.pkey, mig_req: qp.mig_req })
    }

    /// Appends pending answers to `run`, in order. `Err`: memory that a READ was allowed is gone;
    /// the queue pair must fail, and the NAK for it is pending.
    pub fn transmit(
        &mut self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        run: &mut RunBuffer,
    ) -> Result<TransmitStatus, Fault> {
        while let Some(front) = self.pending.front_mut() {
            let sent = match &mut front.response {
                Response::Read(rest) => send_read(&mut front.psn, front.msn, rest, qp, cx, run),
                response => Ok(send_short(front.psn, front.msn, *response, qp, cx, run)),
            };
            match sent {
                Ok(Progress::Stop(why)) => return Ok(why),
                Ok(Progress::More) => {}
                Ok(Progress::Done) => {
                    self.pending.pop_front();
                }
                Err((psn, msn)) => {
                    let fault = Fault::REMOTE_ACCESS;
                    self.pending.clear();
                    self.ack = None;
                    self.push_fatal_nak(psn, msn, fault.nak);
                    return Err(fault);
                }
            }
        }
        if let Some((psn, msn)) = self.ack {
            match send_short(psn, msn, Response::Ack, qp, cx, run) {
                Progress::Stop(why) => return Ok(why),
                Progress::More | Progress::Done => self.ack = None,
            }
        }
        Ok(TransmitStatus::Idle)
    }
}

enum Progress {
    /// The packet does not join the run.
    Stop(TransmitStatus),
    /// A packet was appended, the same answer has more.
    More,
    /// The answer is complete.
    Done,
}

/// An answer of one packet without payload.
fn send_short(
    psn: Psn,
    msn: Msn,
    response: Response,
    qp: &QpCore,
    cx: &QpContext<'_>,
    run: &mut RunBuffer,
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
    let appended: Result<(), std::convert::Infallible> = run.append(bth, ext, 0, |_| Ok(()));
    debug_assert_eq!(appended, Ok(()));
    Progress::Done
}

/// The next packet of a READ response. `Err` with its PSN and the MSN of what is before the READ
/// when the memory cannot be read any more.
fn send_read(
    next: &mut Psn,
    msn: Msn,
    rest: &mut ReadRest,
    qp: &QpCore,
    cx: &mut QpContext<'_>,
    run: &mut RunBuffer,
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
    if let Some(why) = cx.rejects(run, packet_len(bth.opcode, len as usize)) {
        return Ok(Progress::Stop(why));
    }
    let (pins, counters, from) = (&mut cx.pins, cx.device.counters, rest.va);
    let by = Accessor { pd: rest.pd, qpn: Some(qp.qpn) };
    let filled = run.append(bth, ext, len as usize, |to| {
        if to.is_empty() {
            return Ok(());
        }
        let pin = pins.access(rest.rkey.0, by, Access::REMOTE_READ, from, to.len() as u64);
        let pin = pin.map_err(|error| counters.add((&error).into()))?;
        pin.read(from, to).map_err(|error| counters.add((&error).into()))
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
