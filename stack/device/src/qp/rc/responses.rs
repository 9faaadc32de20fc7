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
    Aeth, AtomicAckEth, Bth, Ext, Msn, NakCode, Opcode, Psn, Reth, RnrTimer, Syndrome,
};

use super::responder::Fault;
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::qp::context::Context;
use crate::qp::qp_core::QpCore;
use urxe_memory::{Access, Accessor, PdId};

/// Pending answers beyond one for each kept operation: acknowledgements between them and a NAK.
const MORE_PENDING: usize = 4;

/// An executed request with a response of its own, kept until as many later ones came as the peer
/// may have outstanding.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Read {
        first: Psn,
        packets: u32,
        reth: Reth,
        pd: PdId,
        msn: Msn,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: Msn,
    },
    /// ATOMIC WRITE or FLUSH, which is answered as a READ of nothing.
    Done {
        psn: Psn,
        msn: Msn,
    },
}

/// An answer to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Ack {
        psn: Psn,
        msn: Msn,
    },
    Nak {
        psn: Psn,
        msn: Msn,
        code: NakCode,
    },
    RnrNak {
        psn: Psn,
        msn: Msn,
    },
    Atomic {
        psn: Psn,
        msn: Msn,
        original: u64,
        replay: bool,
    },
    /// An ATOMIC WRITE or FLUSH was executed.
    Done {
        psn: Psn,
        msn: Msn,
        replay: bool,
    },
    /// `next` is the next response packet's PSN, `va` and `left` what it and those after it carry.
    Read {
        start: Psn,
        next: Psn,
        va: u64,
        left: u32,
        rkey: urxe_wire::Rkey,
        /// Protection domain of the memory: of XRC, that of the queue that the request named.
        pd: PdId,
        packets_left: u32,
        msn: Msn,
        replay: bool,
    },
}

impl Pending {
    fn psn(&self) -> Psn {
        match *self {
            Self::Ack { psn, .. }
            | Self::Nak { psn, .. }
            | Self::RnrNak { psn, .. }
            | Self::Atomic { psn, .. }
            | Self::Done { psn, .. } => psn,
            Self::Read { next, .. } => next,
        }
    }
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
    kept: VecDeque<Kept>,
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
        let others =
            self.pending.iter().filter(|pending| !matches!(pending, Pending::Ack { .. })).count();
        others == 0 && self.pending.len() + usize::from(self.ack.is_some()) <= 1
    }

    /// The queue pair failed. If a NAK says so, it is still sent, and so are the answers before it:
    /// what they answer was executed.
    pub fn keep_last_words(&mut self) {
        let is_fatal =
            |p: &Pending| matches!(p, Pending::Nak { code, .. } if *code != NakCode::PsnSequence);
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
        let is_first = |p: &&Pending| {
            matches!(
                p,
                Pending::Read { replay: false, .. }
                    | Pending::Atomic { replay: false, .. }
                    | Pending::Done { replay: false, .. }
            )
        };
        let outstanding = self.pending.iter().filter(is_first).count();
        outstanding < self.depth
    }

    /// Acknowledges everything up to `psn`. True if this merged with an acknowledgement that was
    /// still to be sent.
    pub fn push_ack(&mut self, psn: Psn, msn: Msn) -> bool {
        if self.ack.is_none()
            && let Some(Pending::Ack { psn: last, msn: last_msn }) = self.pending.back_mut()
        {
            (*last, *last_msn) = (psn, msn);
            return true;
        }
        self.ack.replace((psn, msn)).is_some()
    }

    pub fn push_nak(&mut self, psn: Psn, msn: Msn, code: NakCode) {
        self.push_back(Pending::Nak { psn, msn, code });
    }

    /// The NAK that ends the connection: there is always room for it, since nothing follows.
    pub fn push_fatal_nak(&mut self, psn: Psn, msn: Msn, code: NakCode) {
        self.list_ack();
        self.pending.push_back(Pending::Nak { psn, msn, code });
    }

    pub fn push_rnr_nak(&mut self, psn: Psn, msn: Msn) {
        self.push_back(Pending::RnrNak { psn, msn });
    }

    pub fn push_read(&mut self, first: Psn, packets: u32, reth: Reth, pd: PdId, msn: Msn) {
        self.keep(Kept::Read { first, packets, reth, pd, msn });
        self.push_back(read(first, packets, reth, pd, msn, false));
    }

    pub fn push_atomic(&mut self, psn: Psn, original: u64, msn: Msn) {
        self.keep(Kept::Atomic { psn, original, msn });
        self.push_back(Pending::Atomic { psn, msn, original, replay: false });
    }

    /// An ATOMIC WRITE or FLUSH was executed.
    pub fn push_done(&mut self, psn: Psn, msn: Msn) {
        self.keep(Kept::Done { psn, msn });
        self.push_back(Pending::Done { psn, msn, replay: false });
    }

    fn keep(&mut self, kept: Kept) {
        if self.kept.len() == self.depth {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
    }

    /// Something is to follow the last acknowledgement, or to be put before it.
    fn list_ack(&mut self) {
        if let Some((psn, msn)) = self.ack.take() {
            self.pending.push_back(Pending::Ack { psn, msn });
        }
    }

    fn push_back(&mut self, pending: Pending) {
        self.list_ack();
        // Bounded by construction: has_room() for READs and atomics, merging for ACKs, one NAK at a
        // time. Duplicates of NAKs can only come from a peer that goes back again and again; the
        // oldest answers say the same.
        if self.pending.len() < self.depth * 2 + MORE_PENDING {
            self.pending.push_back(pending);
        }
    }

    /// Puts the answer of a duplicate in its place in PSN order.
    fn insert(&mut self, pending: Pending) -> Replay {
        self.list_ack();
        if self.pending.len() >= self.depth * 2 + MORE_PENDING {
            return Replay::Unknown;
        }
        let later = |other: &Pending| other.psn().distance(pending.psn()) > 0;
        let place = self.pending.iter().position(later).unwrap_or(self.pending.len());
        self.pending.insert(place, pending);
        Replay::Queued
    }

    /// A READ request came again: read again from where it says, inside what it first covered.
    pub fn replay_read(&mut self, psn: Psn, reth: Reth, mtu: u32) -> Replay {
        let found = self.kept.iter().rev().find_map(|kept| match *kept {
            Kept::Read { first, packets, reth, pd, msn } if psn.within(first, packets) => {
                Some((first, packets, reth, pd, msn))
            }
            _ => None,
        });
        let Some((first, packets, whole, pd, msn)) = found else { return Replay::Unknown };
        let skipped = psn.steps_from(first);
        let offset = u64::from(skipped) * u64::from(mtu);
        let wanted = u64::from(reth.dma_len);
        if reth.rkey != whole.rkey
            || reth.va != whole.va.wrapping_add(offset)
            || offset + wanted > u64::from(whole.dma_len)
        {
            return Replay::Unknown;
        }
        let still_to_come = |pending: &Pending| match *pending {
            Pending::Read { next, packets_left, .. } => psn.within(next, packets_left),
            _ => false,
        };
        if self.pending.iter().any(still_to_come) {
            return Replay::Unknown;
        }
        // The same READ may be under way further on: the requester takes responses in order only,
        // so start over from here.
        let end = first.add(packets);
        self.pending.retain(
            |p| !matches!(*p, Pending::Read { next, .. } if next.within(psn, end.steps_from(psn))),
        );
        self.insert(read(psn, reth.dma_len.div_ceil(mtu).max(1), reth, pd, msn, true))
    }

    /// An atomic came again: the value of its one execution. An ATOMIC WRITE or FLUSH: that it was
    /// executed (oA19-14).
    pub fn replay_once(&mut self, wanted: Psn, atomic: bool) -> Replay {
        // The newest: another may have had the same PSN 2^24 packets ago.
        let found = self.kept.iter().rev().find_map(|kept| match *kept {
            Kept::Atomic { psn, original, msn } if atomic && psn == wanted => {
                Some(Pending::Atomic { psn, msn, original, replay: true })
            }
            Kept::Done { psn, msn } if !atomic && psn == wanted => {
                Some(Pending::Done { psn, msn, replay: true })
            }
            _ => None,
        });
        let is_pending = self.pending.iter().any(|p| match *p {
            Pending::Atomic { psn, .. } | Pending::Done { psn, .. } => psn == wanted,
            _ => false,
        });
        match found {
            Some(pending) if !is_pending => self.insert(pending),
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
        cx: &mut Context<'_>,
        run: &mut RunBuffer,
    ) -> Result<TransmitStatus, Fault> {
        while let Some(front) = self.pending.front_mut() {
            let sent = match front {
                Pending::Read { .. } => send_read(front, qp, cx, run),
                _ => Ok(send_short(front, qp, cx, run)),
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
                    self.pending.push_back(Pending::Nak { psn, msn, code: fault.nak });
                    return Err(fault);
                }
            }
        }
        if let Some((psn, msn)) = self.ack {
            match send_short(&Pending::Ack { psn, msn }, qp, cx, run) {
                Progress::Stop(why) => return Ok(why),
                Progress::More | Progress::Done => self.ack = None,
            }
        }
        Ok(TransmitStatus::Idle)
    }
}

fn read(first: Psn, packets: u32, reth: Reth, pd: PdId, msn: Msn, replay: bool) -> Pending {
    Pending::Read {
        start: first,
        next: first,
        va: reth.va,
        left: reth.dma_len,
        rkey: reth.rkey,
        pd,
        packets_left: packets,
        msn,
        replay,
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

fn bth(opcode: Opcode, psn: Psn, qp: &QpCore) -> Bth {
    let mut bth = Bth::new(qp.opcode(opcode), qp.attr.dest_qp_num, psn);
    bth.pkey = qp.pkey;
    bth.mig_req = qp.mig_req;
    bth
}

/// An answer of one packet without payload.
fn send_short(pending: &Pending, qp: &QpCore, cx: &Context<'_>, run: &mut RunBuffer) -> Progress {
    let (opcode, psn, ext) = match *pending {
        Pending::Ack { psn, msn } => {
            (Opcode::RcAcknowledge, psn, Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn }))
        }
        Pending::Nak { psn, msn, code } => {
            (Opcode::RcAcknowledge, psn, Ext::Aeth(Aeth { syndrome: Syndrome::Nak(code), msn }))
        }
        Pending::RnrNak { psn, msn } => {
            let timer = RnrTimer::new(qp.attr.min_rnr_timer & 0x1f).unwrap_or(RnrTimer::LONGEST);
            (Opcode::RcAcknowledge, psn, Ext::Aeth(Aeth { syndrome: Syndrome::RnrNak(timer), msn }))
        }
        Pending::Atomic { psn, msn, original, .. } => {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn };
            (Opcode::RcAtomicAcknowledge, psn, Ext::AtomicAck(aeth, AtomicAckEth { original }))
        }
        Pending::Done { psn, msn, .. } => {
            (Opcode::RcReadResponseOnly, psn, Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn }))
        }
        Pending::Read { .. } => unreachable!("a READ response carries payload"),
    };
    if let Some(why) =
        cx.rejects(run, urxe_wire::packet::packet_len(opcode.info().headers_len(), 0))
    {
        return Progress::Stop(why);
    }
    let appended: Result<(), std::convert::Infallible> =
        run.append(bth(opcode, psn, qp), ext, 0, |_| Ok(()));
    debug_assert_eq!(appended, Ok(()));
    Progress::Done
}

/// The next packet of a READ response. `Err` with its PSN and the MSN of what is before the READ
/// when the memory cannot be read any more.
fn send_read(
    pending: &mut Pending,
    qp: &QpCore,
    cx: &mut Context<'_>,
    run: &mut RunBuffer,
) -> Result<Progress, (Psn, Msn)> {
    let Pending::Read { start, next, va, left, rkey, pd, packets_left, msn, .. } = pending else {
        unreachable!("only READs are sent here");
    };
    let (first, last) = (*next == *start, *packets_left == 1);
    let opcode = match (first, last) {
        (true, true) => Opcode::RcReadResponseOnly,
        (true, false) => Opcode::RcReadResponseFirst,
        (false, false) => Opcode::RcReadResponseMiddle,
        (false, true) => Opcode::RcReadResponseLast,
    };
    let ext = if first || last {
        Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: *msn })
    } else {
        Ext::None
    };
    let len = (*left).min(qp.mtu());
    if let Some(why) =
        cx.rejects(run, urxe_wire::packet::packet_len(opcode.info().headers_len(), len as usize))
    {
        return Ok(Progress::Stop(why));
    }
    let (pins, counters, from) = (&mut cx.pins, cx.device.counters, *va);
    let by = Accessor { pd: *pd, qpn: Some(qp.qpn) };
    let filled = run.append(bth(opcode, *next, qp), ext, len as usize, |to| {
        if to.is_empty() {
            return Ok(());
        }
        let pin = pins.access(rkey.0, by, Access::REMOTE_READ, from, to.len() as u64);
        let pin = pin.map_err(|error| counters.add((&error).into()))?;
        pin.read(from, to).map_err(|error| counters.add((&error).into()))
    });
    if filled.is_err() {
        return Err((*next, Msn::masked(msn.value().wrapping_sub(1))));
    }
    *va = va.wrapping_add(u64::from(len));
    *left -= len;
    *next = next.next();
    *packets_left -= 1;
    Ok(if *packets_left == 0 { Progress::Done } else { Progress::More })
}
