//! The execution of the peer's requests by the responder of a reliable connection.
//!
//! [`Responder::execute`] takes the request that is expected. It checks that the packet fits the
//! message under way, finds the receives of XRC, and then checks rights, moves the data and queues
//! the response. What the requests do not share stands in one function each.
//!
//! Sources: IBTA vol. 1, 9.7.4 (responder), 9.7.4.1.2 (opcode sequence), 9.9.3 (classes of error);
//! annex A19 (ATOMIC WRITE, FLUSH).

use urxe_wire::{HeaderSet, Kind, NakCode, PacketView, PlacementType, Reth, SelectivityLevel};

use super::responder::Responder;
use super::responses::{ReadRest, Response};
use crate::cq::{QpEventType, WcOpcode, WcStatus};
use crate::qp::context::QpContext;
use crate::qp::inbound::{Refusal, remote_access_error};
use crate::qp::qp_core::QpCore;
use urxe_memory::{Access, Invalidator, Pin};
use urxe_types::counters::Counter;

/// What became of the expected request.
pub(super) enum Executed {
    /// It took so many PSNs; `ends`: it ended its message.
    Done { psns: u32, ends: bool },
    /// It needs a receive and none is posted.
    NotReady,
}

/// What a fault does beside its NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What the peer is told.
    pub nak: NakCode,
    /// How the receive that was under way completes.
    pub status: WcStatus,
    /// What the own program is told.
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

/// Refuses a request as invalid, unless `holds`.
fn require(holds: bool) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::INVALID_REQUEST) }
}

impl Responder {
    /// Executes the expected request.
    pub(super) fn execute(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Executed, Fault> {
        require(self.message.continues_with(packet.info()))?;
        self.find_srq(qp, cx, packet)?;
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
        let (placed, opcode) = match info.kind {
            Kind::Send => {
                (self.message.place_send(&mut self.queue, qp, cx, packet), WcOpcode::Recv)
            }
            _ => {
                let placed = self.message.place_write(&mut self.queue, qp, cx, packet);
                (placed, WcOpcode::RecvRdmaWithImm)
            }
        };
        let total = match placed {
            Ok(total) => total,
            Err(Refusal::NoReceive) => return Ok(Executed::NotReady),
            Err(refusal) => return Err(refusal.into()),
        };
        if info.completes_recv_wqe {
            self.complete(qp, cx, packet, opcode, total)?;
        }
        Ok(Executed::Done { psns: 1, ends: info.position.is_end() })
    }

    /// Checks what a request with a response of its own needs of the queue pair: `right`, and room
    /// for one more.
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

    /// Eight bytes, by one store (A19). The rights are those of a WRITE, as in `rxe_resp.c`.
    fn atomic_write(
        &self,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<Response, Fault> {
        let reth = packet.reth().ok_or(Fault::INVALID_REQUEST)?;
        let value = packet.payload();
        require(reth.dma_len as usize == value.len() && reth.va.is_multiple_of(8))?;
        self.admit(qp, Access::REMOTE_WRITE)?;
        let counters = cx.device.counters;
        pin(qp, cx, &reth, Access::REMOTE_WRITE)?
            .write_word(reth.va, value)
            .map_err(|error| remote_access_error(qp, counters, &error))?;
        Ok(Response::Done)
    }

    /// Everything that was written before is in place already, since packets are executed in order;
    /// what remains is to make it seen, or lasting (A19).
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

    /// Completes the receive under way with the packet that ended its message.
    fn complete(
        &mut self,
        qp: &mut QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
        opcode: WcOpcode,
        byte_len: u64,
    ) -> Result<(), Fault> {
        let mut invalidated = None;
        if packet.info().has(HeaderSet::IETH)
            && let Some(ieth) = packet.ieth()
        {
            cx.pins.clear();
            let memory = cx.device.memory;
            memory.invalidate(ieth.rkey, qp.accessor(), Invalidator::Peer).map_err(|error| {
                tracing::debug!(qp = %qp.qpn, rkey = %ieth.rkey, %error, "remote invalidate refused");
                cx.device.counters.add(Counter::InvalidateRefused);
                Fault::INVALID_REQUEST
            })?;
            invalidated = Some(ieth.rkey);
        }
        self.queue.complete(opcode, byte_len, packet, invalidated, qp, cx);
        Ok(())
    }
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

/// What a FLUSH of this placement needs of queue pair and region; `None` if it asks for nothing
/// that there is.
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
