//! The send queue of a queue pair: a ring of fixed size, allocated when the queue pair is created.
//!
//! Positions count up for ever (`u64`); an entry stands at its position modulo the ring's size, the
//! capacity rounded up to a power of two: each packet looks several entries up, and a division
//! takes as long as ten other instructions. The send queue has two marks: `head`, the oldest entry
//! that is not complete, and `tail`, where the next one goes. The cursor of what is being sent
//! belongs to the requester.

use urxe_wire::{Lkey, PlacementType, Psn, QKey, Qpn};

use super::sge_copy::{LocalFault, gather};
use super::work_request::{
    AhHandle, Destination, Payload, PostError, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_memory::{PdId, Pins};

/// What an ATOMIC WRITE carries.
const ATOMIC_BYTES: usize = 8;

/// A send work queue entry, in the order of what a packet looks at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    /// The scatter-gather entry, if there is one only. Several stand in the queue's list.
    sge: Sge,
    /// Bytes of the message.
    pub length: u32,
    pub flags: SendFlags,
    /// PSN of its first packet, once it has been sent for the first time.
    pub first_psn: Psn,
    /// How many PSNs it takes (READ: one for each response), 0 while it has none.
    pub packets: u32,
    pub op: SendOp,
    /// How many scatter-gather entries are used; 0 for inline data as well.
    pub num_sge: u8,
    /// READ: how many responses one wire request asks for. Fixed for good with the first one,
    /// because a responder resumes a READ only inside the request that it knew.
    pub read_chunk_packets: u32,
    /// A local operation: it was carried out.
    pub executed: bool,
    pub to: Destination,
}

impl SendWqe {
    pub fn is_begun(&self) -> bool {
        self.packets != 0 || self.executed
    }

    pub fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// The address handle, queue pair and Q_Key that it is for, if it is a datagram.
    pub fn datagram(&self) -> Option<(AhHandle, Qpn, QKey)> {
        match self.to {
            Destination::Datagram { ah, qpn, qkey } => Some((ah, qpn, qkey)),
            Destination::Peer | Destination::XrcSrq { .. } => None,
        }
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
    sge: Sge { addr: 0, length: 0, lkey: Lkey(0) },
    length: 0,
    flags: SendFlags::empty(),
    first_psn: Psn::new(0),
    packets: 0,
    op: SendOp::Send,
    num_sge: 0,
    read_chunk_packets: 0,
    executed: false,
    to: Destination::Peer,
};

/// The send queue.
#[derive(Debug)]
#[repr(C)] // what each packet looks at stands together
pub(crate) struct SendQueue {
    head: u64,
    tail: u64,
    /// A power of two.
    wqes: Box<[SendWqe]>,
    capacity: u32,
    max_sge: u32,
    max_inline: u32,
    /// Room for the inline data of an entry: an ATOMIC WRITE's eight bytes are taken whatever
    /// `max_inline` says.
    inline_room: u32,
    /// Of entries that have several; none if there can be none such.
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
}

impl SendQueue {
    pub fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Self {
        let n = (capacity as usize).next_power_of_two();
        let listed = if max_sge > 1 { n * max_sge as usize } else { 0 };
        let room = max_inline.max(ATOMIC_BYTES as u32);
        Self {
            head: 0,
            tail: 0,
            wqes: vec![VACANT; n].into(),
            capacity,
            max_sge,
            max_inline,
            inline_room: room,
            sges: vec![Sge::default(); listed].into(),
            inline: vec![0; n * room as usize].into(),
        }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
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
        position as usize & (self.wqes.len() - 1)
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
        let wqe = &self.wqes[slot];
        match wqe.num_sge {
            0 => &[],
            1 => std::slice::from_ref(&wqe.sge),
            several => {
                let start = slot * self.max_sge as usize;
                &self.sges[start..start + usize::from(several)]
            }
        }
    }

    /// The inline data of the entry at `position`.
    pub fn inline_data(&self, position: u64) -> &[u8] {
        let slot = self.slot(position);
        let start = slot * self.inline_room as usize;
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
        if self.tail - self.head == u64::from(self.capacity) {
            return Err(PostError::QueueFull { capacity: self.capacity() });
        }
        let (length, num_sge) = match request.payload {
            Payload::Sges(sges) => {
                if sges.len() > self.max_sge as usize {
                    return Err(PostError::TooManySges {
                        given: sges.len(),
                        allowed: self.max_sge,
                    });
                }
                (sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>(), sges.len())
            }
            Payload::Inline(pieces) => {
                let given: usize = pieces.iter().map(|piece| piece.len()).sum();
                let is_atomic_write = matches!(request.op, SendOp::AtomicWrite { .. });
                if given > if is_atomic_write { self.inline_room } else { self.max_inline } as usize
                {
                    return Err(PostError::TooMuchInline { given, allowed: self.max_inline });
                }
                (given as u64, 0)
            }
        };
        if length > max_message {
            return Err(PostError::TooLong { given: length, allowed: max_message });
        }
        check_operation(&request.op, length, num_sge)?;
        let inline = matches!(request.payload, Payload::Inline(_));
        if inline && request.op.returns_data() {
            return Err(PostError::InlineReturnsData);
        }

        let slot = self.slot(self.tail);
        let sge = match request.payload {
            Payload::Sges([]) => Sge::default(),
            Payload::Sges([sge]) => *sge,
            Payload::Sges(sges) => {
                let start = slot * self.max_sge as usize;
                self.sges[start..start + sges.len()].copy_from_slice(sges);
                Sge::default()
            }
            Payload::Inline(pieces) => {
                let mut at = slot * self.inline_room as usize;
                for piece in pieces {
                    self.inline[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                Sge::default()
            }
        };
        let mut flags = request.flags;
        flags.set(SendFlags::INLINE, inline);
        if all_signalled {
            flags |= SendFlags::SIGNALED;
        }
        // Field by field: made elsewhere and copied, its parts would be waited for.
        let wqe = &mut self.wqes[slot];
        wqe.wr_id = request.wr_id;
        wqe.sge = sge;
        wqe.length = length as u32;
        wqe.flags = flags;
        wqe.packets = 0;
        wqe.op = request.op;
        wqe.num_sge = num_sge as u8;
        wqe.executed = false;
        wqe.to = request.to;
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

/// Checks what an operation asks of its data: `length` bytes in `num_sge` pieces.
fn check_operation(op: &SendOp, length: u64, num_sge: usize) -> Result<(), PostError> {
    let known = PlacementType::GLOBAL_VISIBILITY | PlacementType::PERSISTENCE;
    match *op {
        op if op.is_local() && (length != 0 || num_sge != 0) => {
            Err(PostError::NoData { given: length.max(num_sge as u64) })
        }
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if length != 8 => {
            Err(PostError::AtomicLength { given: length })
        }
        SendOp::AtomicWrite { .. } if length != ATOMIC_BYTES as u64 => {
            Err(PostError::AtomicWriteLength { given: length })
        }
        SendOp::CompareSwap { remote, .. }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::AtomicWrite { remote }
            if remote.addr % 8 != 0 =>
        {
            Err(PostError::AtomicAlignment { addr: remote.addr })
        }
        SendOp::Flush { .. } if length != 0 => Err(PostError::FlushWithData { given: length }),
        SendOp::Flush { placement, .. } if placement.is_empty() || !known.contains(placement) => {
            Err(PostError::FlushPlacement { given: placement.bits() })
        }
        _ => Ok(()),
    }
}
