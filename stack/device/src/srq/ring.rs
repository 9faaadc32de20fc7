//! A ring of receives: the receive queue of a queue pair, or a shared receive queue.

use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::work_request::{PostError, RecvRequest, Sge};

/// A receive work queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecvWqe {
    pub wr_id: u64,
    /// The sum of the lengths of its scatter-gather entries in bytes.
    pub length: u64,
    pub num_sge: u8,
}

/// A ring of receives. Positions never wrap. An entry is stored at its position modulo the size of
/// the ring, which is the capacity rounded up to a power of two.
#[derive(Debug)]
pub(crate) struct RecvRing {
    wqes: Box<[RecvWqe]>,
    sges: Box<[Sge]>,
    capacity: u32,
    max_sge: usize,
    head: u64,
    tail: u64,
}

impl RecvRing {
    /// Makes an empty ring.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(capacity: u32, max_sge: u32) -> Result<Self, OutOfMemory> {
        let (n, s) = ((capacity as usize).next_power_of_two(), max_sge as usize);
        Ok(Self {
            wqes: allocate::slice(RecvWqe::default(), n)?,
            sges: allocate::slice(Sge::default(), n.saturating_mul(s))?,
            capacity,
            max_sge: s,
            head: 0,
            tail: 0,
        })
    }

    /// Returns a ring of no entries, which takes no memory and no receive.
    pub fn none() -> Self {
        let (wqes, sges) = (Box::default(), Box::default());
        Self { wqes, sges, capacity: 0, max_sge: 0, head: 0, tail: 0 }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u32 {
        (self.tail - self.head) as u32
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub fn push(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.len() == self.capacity() {
            return Err(PostError::QueueFull { capacity: self.capacity() });
        }
        if request.sges.len() > self.max_sge {
            return Err(PostError::TooManySges {
                given: request.sges.len(),
                allowed: self.max_sge as u32,
            });
        }
        let wqe = RecvWqe {
            wr_id: request.wr_id,
            length: request.sges.iter().map(|sge| u64::from(sge.length)).sum(),
            num_sge: request.sges.len() as u8,
        };
        self.put(wqe, request.sges);
        Ok(())
    }

    fn slot(&self, position: u64) -> usize {
        position as usize & (self.wqes.len() - 1)
    }

    fn put(&mut self, wqe: RecvWqe, sges: &[Sge]) {
        let slot = self.slot(self.tail);
        let start = slot * self.max_sge;
        self.sges[start..start + sges.len()].copy_from_slice(sges);
        self.wqes[slot] = wqe;
        self.tail += 1;
    }

    /// Returns the oldest entry and its scatter-gather entries.
    pub fn front(&self) -> Option<(&RecvWqe, &[Sge])> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.head);
        let wqe = &self.wqes[slot];
        let start = slot * self.max_sge;
        Some((wqe, &self.sges[start..start + usize::from(wqe.num_sge)]))
    }

    /// Removes the oldest entry.
    pub fn pop(&mut self) -> Option<RecvWqe> {
        let wqe = self.front().map(|(wqe, _)| *wqe)?;
        self.head += 1;
        Some(wqe)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.head = self.tail;
    }

    /// Moves all entries to `to`, in order. There must be room.
    pub fn move_to(&mut self, to: &mut Self) {
        debug_assert!(self.len() <= to.capacity() - to.len() && self.max_sge <= to.max_sge);
        while let Some((wqe, sges)) = self.front() {
            to.put(*wqe, sges);
            self.head += 1;
        }
    }
}
