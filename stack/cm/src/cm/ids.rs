//! The structure of communication ids and transaction ids, which determines the process that must
//! handle a MAD ([`Destination`](urxe_wire::mad::Destination)).
//!
//! ```text
//!  communication id, request id           transaction id
//!  31        26 25                   0    63             32 31                    0
//! | process slot | index and nonce    |  | transaction of  | communication id      |
//! |              | in a random mask   |  | this id         |                       |
//! ```
//!
//! Processes that share an address also share its queue pair 1. A reply names the receiver's
//! communication id, whose slot identifies the process. A request names a service. A socket filter
//! reads the slot, so the first six bits of the id are not masked. They are at byte 44 or 48 of the
//! UDP payload, after BTH, DETH and MAD header.
//!
//! A new process can take over a slot. Among ten thousand ids that a peer still remembers, a new
//! process repeats one with every few thousand ids. An id alone therefore does not distinguish a
//! repeated request from a new one. The random number of its first transaction does.

use urxe_wire::mad::{CommId, TransactionId};

use urxe_types::qpn::MAX_PROCESS_SLOTS;
use urxe_types::rng::Rng;

const INDEX_BITS: u32 = 16;

/// The largest number of connections of one process.
pub const MAX_CONNECTIONS: usize = 1 << INDEX_BITS;

/// The ids of one process.
#[derive(Debug)]
pub struct CommIds {
    slot: u8,
    mask: u32,
    rng: Rng,
}

impl CommIds {
    /// Returns the ids of the process in `slot`.
    ///
    /// # Panics
    /// Panics if `slot` is not below [`MAX_PROCESS_SLOTS`].
    #[must_use]
    pub fn new(slot: u8, mut rng: Rng) -> Self {
        assert!(slot < MAX_PROCESS_SLOTS, "process slot {slot} of {MAX_PROCESS_SLOTS}");
        Self { slot, mask: rng.next_u32(), rng }
    }

    /// Returns a new id for the connection `index`, other than `last` and [`CommId::NONE`].
    pub fn id(&mut self, index: usize, last: CommId) -> CommId {
        debug_assert!(index < MAX_CONNECTIONS);
        loop {
            let nonce = self.rng.next_u32() << INDEX_BITS;
            let id = CommId::with_slot(self.slot, (nonce | index as u32) ^ self.mask);
            if id != last && id != CommId::NONE {
                return id;
            }
        }
    }

    /// Returns the number of a new connection's first transaction.
    pub fn first_transaction(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// Returns the index that `id` refers to, if the id belongs to this process. The caller must
    /// compare the id of the connection at that index.
    #[must_use]
    pub fn index(&self, id: CommId) -> Option<usize> {
        (id.slot() == self.slot).then_some(((id.0 ^ self.mask) & ((1 << INDEX_BITS) - 1)) as usize)
    }
}

/// Returns the `nth` transaction id of a connection.
#[must_use]
pub const fn transaction(id: CommId, nth: u32) -> TransactionId {
    TransactionId((nth as u64) << 32 | id.0 as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_yields_its_index_and_slot() {
        for slot in [0, 1, 37, MAX_PROCESS_SLOTS - 1] {
            let mut ids = CommIds::new(slot, Rng::new(u64::from(slot)));
            let mut seen = BTreeSet::new();
            let mut last = CommId::NONE;
            for index in (0..MAX_CONNECTIONS).step_by(97) {
                let id = ids.id(index, last);
                assert!(id != CommId::NONE && id != last && seen.insert(id));
                assert_eq!((id.slot(), ids.index(id)), (slot, Some(index)));
                assert_eq!(CommId(transaction(id, 7).0 as u32).slot(), slot);
                assert_eq!(ids.index(CommId(id.0 ^ 1 << 31)), None, "of another process");
                last = id;
            }
        }
    }

    #[test]
    fn the_same_index_gets_another_id_each_time() {
        let mut ids = CommIds::new(0, Rng::new(5));
        let mut last = CommId::NONE;
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let id = ids.id(9, last);
            assert_ne!(id, last);
            seen.insert(id);
            last = id;
        }
        assert!(seen.len() > 80, "{} of 100 differ", seen.len());
    }
}
