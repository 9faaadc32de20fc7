//! The execution of the peer's requests by the responder of a reliable connection.
//!
//! [`Responder::execute`] handles the request with the expected PSN in this order:
//!
//! 1. The packet continues the current message, or begins one.
//! 2. XRC: the shared receive queue is found.
//! 3. The data of READ responses that the request would change is saved
//!    ([`super::saved_reads`]).
//! 4. The access rights are checked, and the data moves. Each kind of request has its own function.
//! 5. The response of a READ, atomic, ATOMIC WRITE or FLUSH is queued.
//!
//! Sources: IBTA vol. 1, 9.7.4 (responder), 9.7.4.1.2 (opcode sequence), 9.9.3 (classes of error);
//! annex A19 (ATOMIC WRITE, FLUSH).

use urxe_wire::{HeaderSet, Kind, NakCode, PacketView, PlacementType, Reth, SelectivityLevel};

use super::responder::Responder;
use super::responses::{ReadRest, Response};
use super::saved_reads::Change;
use crate::cq::{QpEventType, WcStatus};
use crate::qp::context::QpContext;
use crate::qp::inbound::{Refusal, remote_access_error};
use crate::qp::qp_core::QpCore;
use urxe_memory::{Access, Invalidator, Pin};
use urxe_types::counters::Counter;

/// The outcome of executing the expected request.
pub(super) enum Executed {
    /// The request took `psns` PSNs. `ends`: this was the last packet of its message.
    Done { psns: u32, ends: bool },
    /// The request needs a receive, and none is posted.
    NotReady,
    /// The request changes memory of READ responses that are not sent yet.
    TooEarly,
}

/// A fault in a request, which moves the queue pair to the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The code of the NAK to the peer.
    pub nak: NakCode,
    /// The completion status of the receive that the message uses.
    pub status: WcStatus,
    /// The asynchronous event for the program.
    pub event: QpEventType,
}

impl Fault {
    pub(super) const INVALID_REQUEST: Self = Self {
        nak: NakCode::InvalidRequest,
        status: WcStatus::RemInvReqErr,
        event: QpEventType::QpReqErr,
    };
    pub(super) const REMOTE_ACCESS: Self = Self {
        nak: NakCode::RemoteAccess,
        status: WcStatus::RemAccessErr,
        event: QpEventType::QpAccessErr,
    };
    const LOCAL_LENGTH: Self = Self {
        nak: NakCode::InvalidRequest,
        status: WcStatus::LocLenErr,
        event: QpEventType::QpReqErr,
    };
    const REMOTE_OPERATION: Self = Self {
        nak: NakCode::RemoteOperational,
        status: WcStatus::RemOpErr,
        event: QpEventType::QpFatal,
    };
    const LOCAL_PROTECTION: Self = Self {
        nak: NakCode::RemoteOperational,
        status: WcStatus::LocProtErr,
        event: QpEventType::QpFatal,
    };
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooLong => Self::LOCAL_LENGTH,
            Refusal::Local => Self::LOCAL_PROTECTION,
            Refusal::Remote => Self::REMOTE_ACCESS,
            Refusal::NoReceive | Refusal::BadLength | Refusal::NoStart | Refusal::NoRight => {
                Self::INVALID_REQUEST
            }
        }
    }
}

/// Refuses a request as invalid unless `holds` is true.
fn require(holds: bool) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::INVALID_REQUEST) }
}

impl Responder {
    /// Executes the request with the expected PSN.
    pub(super) fn execute(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        require(self.message.continues_with(packet.info()))?;
        self.find_srq(qp, cx, packet)?;
        if !self.responses.is_only_ack()
            && let Some(change) = change_of(packet)
            && !self.responses.save_before(change, qp, cx)
        {
            return Ok(Executed::TooEarly);
        }
        let (psns, response) = match packet.info().kind {
            Kind::Send | Kind::Write => return self.place(qp, cx, packet),
            Kind::ReadRequest => self.read(qp, cx, packet)?,
            Kind::CompareSwap | Kind::FetchAdd => (1, self.atomic(qp, cx, packet)?),
            Kind::AtomicWrite => (1, self.atomic_write(qp, cx, packet)?),
            Kind::Flush => (1, self.flush_memory(qp, cx, packet)?),
            _ => return Err(Fault::INVALID_REQUEST),
        };
        cx.device.counters.add(Counter::RdmaRecvs);
        self.responses.push(packet.psn(), self.msn.add(1), response);
        Ok(Executed::Done { psns, ends: true })
    }

    fn place(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        let info = packet.info();
        require(info.position.fits(packet.payload_len(), qp.mtu() as usize))?;
        let placed = match info.kind {
            Kind::Send => self.message.place_send(&mut self.queue, qp, cx, packet),
            _ => self.message.place_write(&mut self.queue, qp, cx, packet),
        };
        let total = match placed {
            Ok(total) => total,
            Err(Refusal::NoReceive) => return Ok(Executed::NotReady),
            Err(refusal) => return Err(refusal.into()),
        };
        if info.completes_recv_wqe {
            self.complete(qp, cx, packet, total)?;
        }
        Ok(Executed::Done { psns: 1, ends: info.position.is_end() })
    }

    /// Checks that the queue pair grants `right`, and that the peer may have one more request with
    /// a response of its own outstanding.
    fn admit(&self, qp: &QpCore, right: Access) -> Result<(), Fault> {
        require(qp.attr.access_flags.contains(right) && self.responses.has_room())
    }

    fn read(
        &self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<(u32, Response), Fault> {
        let reth = packet.reth().ok_or(Fault::INVALID_REQUEST)?;
        require(u64::from(reth.dma_len) <= qp.max_message)?;
        self.admit(qp, Access::REMOTE_READ)?;
        if reth.dma_len != 0 {
            pin(qp, cx, &reth, Access::REMOTE_READ)?;
        }
        let rest = ReadRest::new(reth, qp.pd, qp.mtu());
        Ok((rest.packets_left, Response::Read(rest)))
    }

    fn atomic(
        &self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Response, Fault> {
        let eth = packet.atomic_eth().ok_or(Fault::INVALID_REQUEST)?;
        require(eth.va.is_multiple_of(8))?;
        self.admit(qp, Access::REMOTE_ATOMIC)?;
        let counters = cx.device.counters;
        let pinned =
            pin(qp, cx, &Reth { va: eth.va, rkey: eth.rkey, dma_len: 8 }, Access::REMOTE_ATOMIC)?;
        let original = if packet.info().kind == Kind::CompareSwap {
            pinned.compare_swap(eth.va, eth.compare, eth.swap_or_add)
        } else {
            pinned.fetch_add(eth.va, eth.swap_or_add)
        };
        let original = original.map_err(|error| remote_access_error(qp, counters, &error))?;
        Ok(Response::Atomic { original })
    }

    /// Writes eight bytes by one store (annex A19). The access rights are those of a WRITE, as in
    /// `rxe_resp.c`.
    fn atomic_write(
        &self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Response, Fault> {
        let reth = packet.reth().ok_or(Fault::INVALID_REQUEST)?;
        let value = packet.data();
        require(reth.dma_len as usize == value.len() && reth.va.is_multiple_of(8))?;
        self.admit(qp, Access::REMOTE_WRITE)?;
        let counters = cx.device.counters;
        pin(qp, cx, &reth, Access::REMOTE_WRITE)?
            .write_word(reth.va, value)
            .map_err(|error| remote_access_error(qp, counters, &error))?;
        Ok(Response::Done)
    }

    /// Executes a FLUSH. Earlier writes are in place, because packets are executed in order. The
    /// FLUSH makes them visible or persistent (annex A19).
    fn flush_memory(
        &self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Response, Fault> {
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(Fault::INVALID_REQUEST);
        };
        let need = flush_rights(feth.placement).ok_or(Fault::INVALID_REQUEST)?;
        self.admit(qp, need)?;
        let counters = cx.device.counters;
        let (pinned, range) = match feth.selectivity {
            SelectivityLevel::Range => {
                (pin(qp, cx, &reth, need)?, Some((reth.va, u64::from(reth.dma_len))))
            }
            SelectivityLevel::Region => {
                let whole = cx.pins.whole(reth.rkey.0, qp.accessor(), need);
                (whole.map_err(|error| remote_access_error(qp, counters, &error))?, None)
            }
            SelectivityLevel::Reserved(_) => return Err(Fault::INVALID_REQUEST),
        };
        let persist = need.contains(Access::FLUSH_PERSISTENT);
        pinned.flush(range, persist).map_err(|error| {
            counters.add((&error).into());
            tracing::warn!(qp = %qp.qpn, %error, "FLUSH: the memory cannot be made persistent");
            Fault::REMOTE_OPERATION
        })?;
        Ok(Response::Done)
    }

    /// Completes the receive of the current message with the packet that ended it.
    fn complete(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
        byte_len: u64,
    ) -> Result<(), Fault> {
        let mut invalidated = None;
        if packet.info().has(HeaderSet::IETH)
            && let Some(ieth) = packet.ieth()
        {
            cx.pins.clear();
            let memory = cx.device.memory;
            memory.invalidate(ieth.rkey, qp.accessor(), Invalidator::Peer).map_err(|error| {
                let (qp, rkey) = (qp.qpn, ieth.rkey);
                tracing::debug!(%qp, %rkey, %error, "remote invalidate refused");
                cx.device.counters.add(Counter::InvalidateRefused);
                Fault::INVALID_REQUEST
            })?;
            invalidated = Some(ieth.rkey);
        }
        self.queue.complete(byte_len, packet, invalidated, qp, cx);
        Ok(())
    }
}

/// Returns the change that a request makes. A later packet of a WRITE changes what the first packet
/// announced.
fn change_of(packet: &PacketView<'_>) -> Option<Change> {
    let info = packet.info();
    let range = match info.kind {
        Kind::Write | Kind::AtomicWrite => {
            packet.reth().map(|reth| (reth.va, u64::from(reth.dma_len)))
        }
        Kind::CompareSwap | Kind::FetchAdd => packet.atomic_eth().map(|eth| (eth.va, 8)),
        Kind::Send => None,
        _ => return None,
    };
    let has_key = info.has(HeaderSet::IETH);
    let invalidates = packet.ieth().filter(|_| has_key).map(|ieth| ieth.rkey);
    let is_seen = info.kind == Kind::Send || info.completes_recv_wqe;
    (range.is_some() || is_seen).then_some(Change { range, invalidates, is_seen })
}

/// Pins the memory that a request names.
fn pin<'p, 'm>(
    qp: &QpCore,
    cx: &'p mut QpContext<'m>,
    reth: &Reth,
    need: Access,
) -> Result<&'p Pin<'m>, Fault> {
    let len = u64::from(reth.dma_len);
    let pin = cx.pins.access(reth.rkey.0, qp.accessor(), need, reth.va, len);
    Ok(pin.map_err(|error| remote_access_error(qp, cx.device.counters, &error))?)
}

/// Returns the access rights that a FLUSH of this placement needs. Returns `None` if the placement
/// is empty or has unknown bits.
fn flush_rights(placement: PlacementType) -> Option<Access> {
    let rights = [
        (PlacementType::GLOBAL_VISIBILITY, Access::FLUSH_GLOBAL),
        (PlacementType::PERSISTENCE, Access::FLUSH_PERSISTENT),
    ];
    let known = rights.iter().fold(PlacementType::empty(), |all, (bit, _)| all | *bit);
    let asked = rights.iter().filter(|(bit, _)| placement.contains(*bit));
    let need = asked.fold(Access::empty(), |need, (_, right)| need | *right);
    (known.contains(placement) && !need.is_empty()).then_some(need)
}
