//! How communication ids and transaction ids are made up; from it follows which process a MAD is
//! for ([`Destination`](urxe_wire::mad::Destination)).
//!
//! ```text
//!  communication id, request id           transaction id
//!  31        26 25                   0    63             32 31                    0
//! | process slot | index and nonce    |  | transaction of  | communication id      |
//! |              | in a random mask   |  | this id         |                       |
//! ```
//! Processes that share an address share its queue pair 1. An answer names the receiver's
//! communication id, so its slot says who it is for; a request names a service. The slot stands
//! unmasked in the first six bits of the id, byte 44 or 48 of the UDP payload (after a BTH, a DETH
//! and the header of the MAD), where a socket filter can look at it.
//!
//! Processes come and go, and take over slots: of ten thousand ids that a peer still remembers,
//! every few thousandth that a new process makes up is one. So an id alone does not tell a repeated
//! request from a new one; its first transaction, a random number, does.

use urxe_wire::mad::{CommId, TransactionId};

use urxe_types::qpn::MAX_PROCESS_SLOTS;
use urxe_types::rng::Rng;

#[cfg(test)]
mod tests;

const SLOT_SHIFT: u32 = 26;
const INDEX_BITS: u32 = 16;
const LOW_MASK: u32 = (1 << SLOT_SHIFT) - 1;

/// The most communications that one process has at a time.
pub const MAX_COMMUNICATIONS: usize = 1 << INDEX_BITS;

/// The slot of the process that a communication id belongs to, below [`MAX_PROCESS_SLOTS`].
#[must_use]
pub const fn slot_of(id: CommId) -> u8 {
    (id.0 >> SLOT_SHIFT) as u8
}

/// The slot of the process that began a transaction, below [`MAX_PROCESS_SLOTS`].
#[must_use]
pub const fn slot_of_transaction(tid: TransactionId) -> u8 {
    slot_of(CommId(tid.0 as u32))
}

/// The numbering of one process.
#[derive(Debug)]
pub struct CommIds {
    slot: u8,
    mask: u32,
    rng: Rng,
}

impl CommIds {
    /// The numbering of the process in `slot`.
    ///
    /// # Panics
    /// If `slot` is not below [`MAX_PROCESS_SLOTS`].
    #[must_use]
    pub fn new(slot: u8, mut rng: Rng) -> Self {
        assert!(slot < MAX_PROCESS_SLOTS, "process slot {slot} of {MAX_PROCESS_SLOTS}");
        Self { slot, mask: rng.next_u32() & LOW_MASK, rng }
    }

    /// A new id for the communication `index`, which is not `last`, nor [`CommId::NONE`].
    pub fn id(&mut self, index: usize, last: CommId) -> CommId {
        debug_assert!(index < MAX_COMMUNICATIONS);
        loop {
            let nonce = self.rng.next_u32() << INDEX_BITS;
            let low = ((nonce | index as u32) ^ self.mask) & LOW_MASK;
            let id = CommId(u32::from(self.slot) << SLOT_SHIFT | low);
            if id != last && id != CommId::NONE {
                return id;
            }
        }
    }

    /// The number of a new communication's first transaction.
    pub fn first_transaction(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// The index that `id` could belong to. Whether it does, the communication there says.
    #[must_use]
    pub fn index(&self, id: CommId) -> Option<usize> {
        (slot_of(id) == self.slot)
            .then_some(((id.0 ^ self.mask) & ((1 << INDEX_BITS) - 1)) as usize)
    }
}

/// The `nth` transaction of a communication.
#[must_use]
pub const fn transaction(id: CommId, nth: u32) -> TransactionId {
    TransactionId((nth as u64) << 32 | id.0 as u64)
}
