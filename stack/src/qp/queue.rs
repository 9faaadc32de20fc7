//! The send queue of a queue pair: a ring of fixed size, allocated when the queue pair is created.
//!
//! Positions count up for ever (`u64`); an entry stands at its position modulo the capacity. The send queue has
//! two marks: `head`, the oldest entry that is not complete, and `tail`, where the next one goes. The cursor of
//! what is being sent belongs to the requester.

use urxe_wire::{PlacementType, Psn};

use super::gather::{LocalFault, gather};
use super::wr::{Destination, Payload, PostError, SendFlags, SendOp, SendRequest, Sge};
use crate::memory::{PdId, Pins};

/// What an ATOMIC WRITE carries.
const ATOMIC_BYTES: usize = 8;

/// A send work queue entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    pub op: SendOp,
    pub to: Destination,
    pub flags: SendFlags,
    /// Bytes of the message.
    pub length: u32,
    /// How many scatter-gather entries are used; 0 for inline data as well.
    pub num_sge: u8,
    /// PSN of its first packet, once it has been sent for the first time.
    pub first_psn: Psn,
    /// How many PSNs it takes (READ: one for each response), 0 while it has none.
    pub packets: u32,
    /// READ: how many responses one wire request asks for. Fixed for good with the first one, because a
    /// responder resumes a READ only inside the request that it knew.
    pub read_chunk_packets: u32,
    /// A local operation: it was carried out.
    pub executed: bool,
}

impl SendWqe {
    pub fn is_begun(&self) -> bool {
        self.packets != 0 || self.executed
    }

    pub fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// PSN after its last packet. Only when begun.
    pub fn end_psn(&self) -> Psn {
        self.first_psn.add(self.packets)
    }

    /// Bytes of payload in its packet `index`.
    pub fn payload_len(&self, index: u32, mtu: u32) -> u32 {
        self.length.saturating_sub(index.saturating_mul(mtu)).min(mtu)
    }
}

const VACANT: SendWqe = SendWqe {
    wr_id: 0,
    op: SendOp::Send,
    to: Destination::Peer,
    flags: SendFlags::empty(),
    length: 0,
    num_sge: 0,
    first_psn: Psn::new(0),
    packets: 0,
    read_chunk_packets: 0,
    executed: false,
};

/// The send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    max_sge: usize,
    max_inline: usize,
    /// Room for the inline data of an entry: an ATOMIC WRITE's eight bytes are taken whatever `max_inline` says.
    inline_room: usize,
    head: u64,
    tail: u64,
}

impl SendQueue {
    pub fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Self {
        let (n, s, i) = (capacity as usize, max_sge as usize, max_inline as usize);
        let room = i.max(ATOMIC_BYTES);
        Self {
            wqes: vec![VACANT; n].into(),
            sges: vec![Sge::default(); n * s].into(),
            inline: vec![0; n * room].into(),
            max_sge: s,
            max_inline: i,
            inline_room: room,
            head: 0,
            tail: 0,
        }
    }

    pub fn capacity(&self) -> u32 {
        self.wqes.len() as u32
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn tail(&self) -> u64 {
        self.tail
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    fn slot(&self, position: u64) -> usize {
        debug_assert!(self.head <= position && position <= self.tail);
        (position % self.wqes.len() as u64) as usize
    }

    pub fn wqe(&self, position: u64) -> &SendWqe {
        &self.wqes[self.slot(position)]
    }

    pub fn wqe_mut(&mut self, position: u64) -> &mut SendWqe {
        let slot = self.slot(position);
        &mut self.wqes[slot]
    }

    /// The scatter-gather entries of the entry at `position`.
    pub fn sges(&self, position: u64) -> &[Sge] {
        let slot = self.slot(position);
        let start = slot * self.max_sge;
        &self.sges[start..start + usize::from(self.wqes[slot].num_sge)]
    }

    /// The inline data of the entry at `position`.
    pub fn inline_data(&self, position: u64) -> &[u8] {
        let slot = self.slot(position);
        let start = slot * self.inline_room;
        &self.inline[start..start + self.wqes[slot].length as usize]
    }

    /// Copies `to.len()` bytes of the message at `position`, from byte `offset` on, into a packet.
    pub fn copy_payload(
        &self,
        position: u64,
        pins: &mut Pins<'_>,
        pd: PdId,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), LocalFault> {
        if self.wqe(position).is_inline() {
            let start = offset as usize;
            to.copy_from_slice(&self.inline_data(position)[start..start + to.len()]);
            return Ok(());
        }
        gather(pins, pd, self.sges(position), offset, to)
    }

    /// Checks and queues a request. Checks of the queue pair's state and type are the caller's.
    pub fn push(
        &mut self,
        request: &SendRequest<'_>,
        max_message: u64,
        all_signalled: bool,
    ) -> Result<(), PostError> {
        if self.tail - self.head == self.wqes.len() as u64 {
            return Err(PostError::QueueFull { capacity: self.capacity() });
        }
        let (length, num_sge) = match request.payload {
            Payload::Sges(sges) => {
                if sges.len() > self.max_sge {
                    return Err(PostError::TooManySges { given: sges.len(), allowed: self.max_sge as u32 });
                }
                (sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>(), sges.len())
            }
            Payload::Inline(pieces) => {
                let given: usize = pieces.iter().map(|piece| piece.len()).sum();
                let is_atomic_write = matches!(request.op, SendOp::AtomicWrite { .. });
                if given > if is_atomic_write { self.inline_room } else { self.max_inline } {
                    return Err(PostError::TooMuchInline { given, allowed: self.max_inline as u32 });
                }
                (given as u64, 0)
            }
        };
        if length > max_message {
            return Err(PostError::TooLong { given: length, allowed: max_message });
        }
        match request.op {
            op if op.is_local() && (length != 0 || num_sge != 0) => {
                return Err(PostError::NoData { given: length.max(num_sge as u64) });
            }
            SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
                if length != 8 {
                    return Err(PostError::AtomicLength { given: length });
                }
                if remote.addr % 8 != 0 {
                    return Err(PostError::AtomicAlignment { addr: remote.addr });
                }
            }
            SendOp::AtomicWrite { remote } => {
                if length != ATOMIC_BYTES as u64 {
                    return Err(PostError::AtomicWriteLength { given: length });
                }
                if remote.addr % 8 != 0 {
                    return Err(PostError::AtomicAlignment { addr: remote.addr });
                }
            }
            SendOp::Flush { placement, .. } => {
                if length != 0 {
                    return Err(PostError::FlushWithData { given: length });
                }
                let known = PlacementType::GLOBAL_VISIBILITY | PlacementType::PERSISTENCE;
                if placement.is_empty() || !known.contains(placement) {
                    return Err(PostError::FlushPlacement { given: placement.bits() });
                }
            }
            _ => {}
        }
        let inline = matches!(request.payload, Payload::Inline(_));
        if inline && request.op.returns_data() {
            return Err(PostError::InlineReturnsData);
        }

        let slot = (self.tail % self.wqes.len() as u64) as usize;
        match request.payload {
            Payload::Sges(sges) => {
                let start = slot * self.max_sge;
                self.sges[start..start + sges.len()].copy_from_slice(sges);
            }
            Payload::Inline(pieces) => {
                let mut at = slot * self.inline_room;
                for piece in pieces {
                    self.inline[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
        }
        let mut flags = request.flags;
        flags.set(SendFlags::INLINE, inline);
        if all_signalled {
            flags |= SendFlags::SIGNALED;
        }
        self.wqes[slot] = SendWqe {
            wr_id: request.wr_id,
            op: request.op,
            to: request.to,
            flags,
            length: length as u32,
            num_sge: num_sge as u8,
            ..VACANT
        };
        self.tail += 1;
        Ok(())
    }

    /// Frees the oldest entry.
    pub fn pop(&mut self) {
        debug_assert!(self.head < self.tail);
        self.head += 1;
    }

    /// Forgets every entry (RESET).
    pub fn clear(&mut self) {
        self.head = self.tail;
    }
}
