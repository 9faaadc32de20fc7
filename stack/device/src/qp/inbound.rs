//! The message that a connected responder is receiving, and the placement of its packets.
//!
//! Reliable and unreliable connections check and place the packets of SENDs and WRITEs alike. They
//! differ in the effect of a refused packet. A reliable connection sends a NAK. An unreliable
//! connection drops the message.
//!
//! ```text
//!   packet -> continues_with? -> place_send:  into the receive at the head of the queue
//!                             -> place_write: into the memory that the RETH names
//! ```
//!
//! Sources: IBTA vol. 1, 9.7.4.1.2 (opcode sequence), C9-88 (zero-length RDMA checks no R_Key).

use urxe_wire::{Kind, OpcodeInfo, PacketView, Rkey};

use super::context::QpContext;
use super::qp_core::QpCore;
use super::recv_queue::RecvQueue;
use super::sge_copy::{LocalFault, check, scatter};
use urxe_memory::Access;
use urxe_types::counters::{Counter, Counters};

/// The message that the next packet must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// No message: the next packet must begin one.
    None,
    /// A SEND of which `received` bytes have arrived.
    Send { received: u64 },
    /// A WRITE of `total` bytes. The `left` bytes that are missing go to `va`.
    Write { va: u64, rkey: Rkey, left: u32, total: u32 },
}

/// Why a packet was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive is posted, and the packet needs one.
    NoReceive,
    /// The message is longer than its receive, or longer than a message may be.
    TooLong,
    /// The payload of a WRITE does not match the length in its RETH, or that length is not allowed.
    BadLength,
    /// The packet continues no message, or begins a WRITE and has no RETH.
    NoStart,
    /// The access flags of the queue pair do not allow WRITEs.
    NoRight,
    /// The receive at the head of the queue names memory that may not be used.
    Local,
    /// The WRITE names memory that may not be used.
    Remote,
}

impl Message {
    /// Returns whether a packet continues this message, or begins one if there is none.
    pub fn continues_with(self, info: &OpcodeInfo) -> bool {
        match self {
            Self::None => info.position.is_start(),
            Self::Send { .. } => info.kind == Kind::Send && !info.position.is_start(),
            Self::Write { .. } => info.kind == Kind::Write && !info.position.is_start(),
        }
    }

    /// Copies the payload of a SEND to the receive at the head of `queue`. Returns the number of
    /// bytes of the message that have arrived.
    #[inline(always)] // one caller in each service
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
            check(&mut cx.pins, qp.recv_pd, sges, Access::LOCAL_WRITE)
                .map_err(|fault| local_protection_error(qp, &fault))?;
        }
        let payload = packet.data();
        let total = received + payload.len() as u64;
        if total > wqe.length || total > qp.max_message {
            return Err(Refusal::TooLong);
        }
        scatter(&mut cx.pins, qp.recv_pd, sges, received, payload)
            .map_err(|fault| local_protection_error(qp, &fault))?;
        *self = Self::Send { received: total };
        Ok(total)
    }

    /// Copies the payload of a WRITE to the memory that its first packet named. Returns the length
    /// of the message in bytes.
    #[inline(always)] // one caller in each service
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
        let payload = packet.data();
        let len = payload.len() as u32;
        // The last packet carries exactly the rest. Every other packet leaves some of it.
        let adds_up = if info.position.is_end() { len == left } else { len < left };
        if !adds_up || u64::from(total) > qp.max_message {
            return Err(Refusal::BadLength);
        }
        if info.needs_recv_wqe && queue.is_empty() {
            return Err(Refusal::NoReceive);
        }
        if left != 0 {
            // The pin covers the whole rest, so that a message that must fail writes nothing.
            let need = Access::REMOTE_WRITE;
            cx.pins
                .access(rkey.0, qp.accessor(), need, va, u64::from(left))
                .map_err(|error| remote_access_error(qp, cx.device.counters, &error))?
                .write(va, payload)
                .map_err(|error| remote_access_error(qp, cx.device.counters, &error))?;
        }
        // Counted per call: an atomic addition here would wait until the payload is in the cache.
        cx.received_writes += u64::from(info.position.is_start());
        *self = Self::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, total };
        Ok(u64::from(total))
    }
}

/// Logs why a receive cannot be used.
#[cold]
pub(super) fn local_protection_error(qp: &QpCore, fault: &LocalFault) -> Refusal {
    tracing::debug!(qp = %qp.qpn, %fault, "receive: local protection error");
    Refusal::Local
}

/// Counts and logs why the access of a peer was refused or failed.
#[cold]
pub(super) fn remote_access_error<'e, E>(qp: &QpCore, counters: &Counters, error: &'e E) -> Refusal
where
    E: std::fmt::Display,
    Counter: From<&'e E>,
{
    tracing::debug!(qp = %qp.qpn, %error, "request: remote access error");
    counters.add(error.into());
    Refusal::Remote
}
