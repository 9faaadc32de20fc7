//! The structure of communication ids and transaction ids, which determines the process that must
//! handle a MAD ([`Destination`](urxe_wire::mad::Destination)).
//!
//! ```text
//!  communication id, request id           transaction id
//!  31        26 25                   0    63             32 31                    0
//! | process slot | random             |  | transaction of  | communication id      |
//! |              |                    |  | this id         |                       |
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
use urxe_types::rng::SecretRng;

/// The largest number of connections of one kind: own ones, those of peers, and the service id
/// resolutions of peers.
pub const MAX_CONNECTIONS: usize = 1 << 16;

/// The ids of one process. Earlier ids do not predict later ones.
#[derive(Debug)]
pub struct CommIds {
    slot: u8,
    rng: SecretRng,
}

impl CommIds {
    /// Returns the ids of the process in `slot`.
    ///
    /// # Panics
    /// Panics if `slot` is not below [`MAX_PROCESS_SLOTS`].
    #[must_use]
    pub fn new(slot: u8, rng: SecretRng) -> Self {
        assert!(slot < MAX_PROCESS_SLOTS, "process slot {slot} of {MAX_PROCESS_SLOTS}");
        Self { slot, rng }
    }

    /// Returns a new id that is not in use and not [`CommId::NONE`].
    pub fn id(&mut self, is_used: impl Fn(CommId) -> bool) -> CommId {
        loop {
            let id = CommId::with_slot(self.slot, self.rng.next_u32());
            if id != CommId::NONE && !is_used(id) {
                return id;
            }
        }
    }

    /// Returns the number of a new connection's first transaction.
    pub fn first_transaction(&mut self) -> u32 {
        self.rng.next_u32()
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
    fn ids_have_the_slot_and_differ() {
        for slot in [0, 1, 37, MAX_PROCESS_SLOTS - 1] {
            let mut ids = CommIds::new(slot, SecretRng::stream(1, u64::from(slot)));
            let mut seen = BTreeSet::new();
            for _ in 0..10_000 {
                let id = ids.id(|id| seen.contains(&id));
                assert!(id != CommId::NONE && seen.insert(id));
                assert_eq!((id.slot(), CommId(transaction(id, 7).0 as u32).slot()), (slot, slot));
            }
        }
    }

    #[test]
    fn an_id_in_use_is_not_given_again() {
        let ids = || CommIds::new(1, SecretRng::stream(5, 0));
        let used = ids().id(|_| false);
        assert_ne!(ids().id(|id| id == used), used);
    }

    /// Each free bit of an id equals that of the id before for half of all pairs.
    #[test]
    fn no_bit_of_an_id_follows_from_the_id_before() {
        const PAIRS: u32 = 4096;
        let mut ids = CommIds::new(0, SecretRng::stream(5, 0));
        let mut equal = [0; 26];
        let mut last = ids.id(|_| false);
        for _ in 0..PAIRS {
            let id = ids.id(|_| false);
            for (bit, equal) in equal.iter_mut().enumerate() {
                *equal += !((id.0 ^ last.0) >> bit) & 1;
            }
            last = id;
        }
        // Six standard deviations.
        let range = PAIRS / 2 - 192..PAIRS / 2 + 192;
        assert!(equal.iter().all(|equal| range.contains(equal)), "{equal:?}");
    }
}
