//! The message under way to a connected responder, and where its packets go.
//!
//! Reliable and unreliable connections check and place the packets of SENDs and WRITEs alike. They
//! differ in what a refused packet does: the first answers with a NAK, the second drops the message.
//!
//! ```text
//!   packet -> begins or continues the message? -> place_send: the receive at the head of the queue
//!                                              -> place_write: the memory that RETH names
//! ```
//! Sources: IBTA vol. 1, 9.7.4.1.2 (opcode sequence), C9-88 (zero-length RDMA checks no R_Key).

use urxe_wire::{Kind, OpcodeInfo, PacketView, Rkey};

use super::context::QpContext;
use super::qp_core::QpCore;
use super::recv_queue::RecvQueue;
use super::sge_copy::{LocalFault, check, scatter};
use urxe_memory::Access;
use urxe_types::counters::{Counter, Counters};

/// The message that the expected packet must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// None: the next packet begins one, or belongs to one that was given up.
    None,
    /// A SEND; so many bytes have arrived.
    Send { received: u64 },
    /// A WRITE: where the rest goes.
    Write { va: u64, rkey: Rkey, left: u32, total: u32 },
}

/// Why a packet was not placed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// It needs a receive and none is posted.
    NoReceive,
    /// The message is longer than its receive, or than a message may be.
    TooLong,
    /// The packets of a WRITE do not add up to the length that it began with, or that is too long.
    BadLength,
    /// It continues no message that is under way, or begins a WRITE and has no RETH.
    NoStart,
    /// The queue pair takes no WRITEs.
    NoRight,
    /// The receive at the head of the queue cannot be used.
    Local(LocalFault),
    /// The memory that a WRITE names cannot be used.
    Remote,
}

impl Message {
    /// Does a packet continue the message under way, or begin one when none is?
    pub fn takes(self, info: &OpcodeInfo) -> bool {
        match self {
            Self::None => info.position.is_start(),
            Self::Send { .. } => info.kind == Kind::Send && !info.position.is_start(),
            Self::Write { .. } => info.kind == Kind::Write && !info.position.is_start(),
        }
    }

    /// Copies the payload of a SEND to the receive at the head of `queue`. Returns the bytes that
    /// have arrived so far.
    #[inline]
    pub fn place_send(
        &mut self,
        queue: &mut RecvQueue,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<u64, Refusal> {
        let received = match *self {
            Self::Send { received } => received,
            _ => 0,
        };
        let (wqe, sges) = queue.front().ok_or(Refusal::NoReceive)?;
        if received == 0 {
            check(&mut cx.pins, qp.recv_pd, sges, Access::LOCAL_WRITE).map_err(Refusal::Local)?;
        }
        let payload = packet.payload();
        let total = received + payload.len() as u64;
        if total > wqe.length || total > qp.max_message {
            return Err(Refusal::TooLong);
        }
        scatter(&mut cx.pins, qp.recv_pd, sges, received, payload).map_err(Refusal::Local)?;
        *self = Self::Send { received: total };
        Ok(total)
    }

    /// Copies the payload of a WRITE to the memory that its first packet named. Returns the length
    /// of the message.
    #[inline]
    pub fn place_write(
        &mut self,
        queue: &mut RecvQueue,
        qp: &QpCore,
        cx: &mut QpContext<'_>,
        packet: &PacketView<'_>,
    ) -> Result<u64, Refusal> {
        let info = packet.info();
        let (va, rkey, left, total) = match (*self, packet.reth()) {
            (Self::Write { va, rkey, left, total }, _) => (va, rkey, left, total),
            (_, Some(_)) if !qp.attr.access_flags.contains(Access::REMOTE_WRITE) => {
                return Err(Refusal::NoRight);
            }
            (_, Some(reth)) => (reth.va, reth.rkey, reth.dma_len, reth.dma_len),
            (_, None) => return Err(Refusal::NoStart),
        };
        let payload = packet.payload();
        let len = payload.len() as u32;
        // The last packet brings exactly what is left, every other leaves something.
        let adds_up = if info.position.is_end() { len == left } else { len < left };
        if !adds_up || u64::from(total) > qp.max_message {
            return Err(Refusal::BadLength);
        }
        if info.needs_recv_wqe && queue.is_empty() {
            return Err(Refusal::NoReceive);
        }
        if left != 0 {
            // The whole rest is checked, so that a message that must fail writes nothing.
            let need = Access::REMOTE_WRITE;
            cx.pins
                .access(rkey.0, qp.accessor(), need, va, u64::from(left))
                .map_err(|error| remote_access_error(qp, cx.device.counters, &error))?
                .write(va, payload)
                .map_err(|error| remote_access_error(qp, cx.device.counters, &error))?;
        }
        // An atomic addition would wait here until all that was written is in the cache.
        cx.received_writes += u64::from(info.position.is_start());
        *self = Self::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, total };
        Ok(u64::from(total))
    }
}

/// Counts why a peer's access was refused or could not be done.
pub(super) fn remote_access_error<'e, E>(qp: &QpCore, counters: &Counters, error: &'e E) -> Refusal
where
    E: std::fmt::Display,
    Counter: From<&'e E>,
{
    tracing::debug!(qp = %qp.qpn, %error, "request: remote access error");
    counters.add(error.into());
    Refusal::Remote
}
