//! The send queue of a queue pair: a ring of fixed size, allocated with the queue pair.
//!
//! Positions are `u64` and never wrap. An entry is stored at its position modulo the size of the
//! ring, which is the capacity rounded up to a power of two. Each packet looks up several entries,
//! and a division would take as long as ten other instructions.
//!
//! `head` is the position of the oldest incomplete entry, and `tail` that of the next entry to be
//! posted. The requester keeps the position of the entry that is being sent.

use urxe_wire::{PlacementType, Psn, QKey, Qpn};

use super::sge_copy::{LocalFault, gather};
use super::work_request::{
    AhHandle, Destination, Payload, PostError, SendFlags, SendOp, SendRequest, Sge,
};
use crate::cq::PolledSends;
use urxe_memory::{PdId, Pins, WriteOnly};
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::sync::Arc;

/// The payload of an ATOMIC WRITE in bytes.
const ATOMIC_BYTES: usize = 8;

/// An entry of the send queue. The fields are in the order in which a packet reads them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    /// The scatter-gather entry, if there is exactly one. Several are in `SendQueue::sges`.
    sge: Sge,
    /// The length of the message in bytes.
    pub length: u32,
    pub flags: SendFlags,
    /// The PSN of the first packet, set when the entry is begun.
    pub first_psn: Psn,
    /// The number of PSNs: one for each packet, or of a READ for each response. 0 until the
    /// entry is begun.
    pub packets: u32,
    pub op: SendOp,
    /// The number of scatter-gather entries; 0 for inline data.
    pub num_sge: u8,
    /// The number of responses that one wire request of a READ asks for. Fixed with the first
    /// wire request, because a responder resumes a READ only inside a request already seen.
    pub read_chunk_packets: u32,
    /// A local operation that was executed.
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

    /// Returns the address handle, the destination queue pair and the Q_Key of a datagram.
    pub fn datagram(&self) -> Option<(AhHandle, Qpn, QKey)> {
        match self.to {
            Destination::Datagram { ah, qpn, qkey } => Some((ah, qpn, qkey)),
            Destination::Peer | Destination::XrcSrq { .. } => None,
        }
    }

    /// Returns the PSN after the last packet. The entry must be begun.
    pub fn end_psn(&self) -> Psn {
        self.first_psn.add(self.packets)
    }

    /// Returns the payload of packet `index` in bytes.
    pub fn payload_len(&self, index: u32, mtu: u32) -> u32 {
        self.length.saturating_sub(index.saturating_mul(mtu)).min(mtu)
    }
}

/// The send queue.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent
pub(crate) struct SendQueue {
    head: u64,
    tail: u64,
    /// The entries; their number is a power of two.
    wqes: Box<[SendWqe]>,
    capacity: u32,
    /// The number of incomplete entries up to which a request is taken without another look: all
    /// entries, or 0 in a strict queue.
    unchecked: u32,
    max_sge: u32,
    max_inline: u32,
    /// The bytes reserved for the inline data of an entry. An ATOMIC WRITE takes eight, whatever
    /// `max_inline` is.
    inline_room: u32,
    /// The lists of entries with several scatter-gather entries. Empty if `max_sge` is at most 1.
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    /// The entries that are free again, in a [strict queue](crate::cq::PolledSends).
    polled: Option<Arc<PolledSends>>,
}

impl SendQueue {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Result<Self, OutOfMemory> {
        let n = (capacity as usize).next_power_of_two();
        let listed = if max_sge > 1 { n.saturating_mul(max_sge as usize) } else { 0 };
        let room = max_inline.max(ATOMIC_BYTES as u32);
        Ok(Self {
            head: 0,
            tail: 0,
            wqes: allocate::slice(SendWqe::default(), n)?,
            capacity,
            unchecked: capacity,
            max_sge,
            max_inline,
            inline_room: room,
            sges: allocate::slice(Sge::default(), listed)?,
            inline: urxe_memory::zeroed(n.saturating_mul(room as usize))?,
            polled: None,
        })
    }

    /// Keeps entries in use until `polled` frees them. Called before the first request.
    pub fn make_strict(&mut self, polled: Arc<PolledSends>) {
        self.unchecked = 0;
        self.polled = Some(polled);
    }

    /// Checks that the queue has room for a request.
    #[cold]
    fn check_room(&self) -> Result<(), PostError> {
        let capacity = self.capacity;
        let incomplete = self.tail - self.head;
        match &self.polled {
            _ if incomplete >= u64::from(capacity) => Err(PostError::QueueFull { capacity }),
            Some(polled) if polled.in_use(self.tail) >= capacity => {
                Err(PostError::NotPolled { capacity })
            }
            _ => Ok(()),
        }
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

    /// Returns the scatter-gather entries of the entry at `position`.
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

    /// Returns the inline data of the entry at `position`.
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
        to: WriteOnly<'_>,
    ) -> Result<(), LocalFault> {
        if self.wqe(position).is_inline() {
            let start = offset as usize;
            to.copy_from(&self.inline_data(position)[start..start + to.len()]);
            return Ok(());
        }
        gather(pins, pd, self.sges(position), offset, to)
    }

    /// Checks and queues a request. The caller has checked the state and the type of the queue
    /// pair.
    pub fn push(
        &mut self,
        request: &SendRequest<'_>,
        max_message: u64,
        all_signalled: bool,
    ) -> Result<(), PostError> {
        if self.tail - self.head >= u64::from(self.unchecked) {
            self.check_room()?;
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
        // The fields are written one by one. Copying an entry that was built elsewhere would stall
        // on its parts.
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

    /// Removes the oldest entry.
    pub fn pop(&mut self) {
        debug_assert!(self.head < self.tail);
        self.head += 1;
    }

    /// Removes all entries (RESET).
    pub fn clear(&mut self) {
        self.head = self.tail;
        if let Some(polled) = &self.polled {
            polled.advance(self.tail as u32);
        }
    }
}

/// Checks the payload of an operation: `length` bytes in `num_sge` scatter-gather entries.
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
