//! Send queues whose entries stay in use until a completion is polled, as on NICs (strict queues).
//!
//! `rdma_rxe` and urxe free the entry of a send when it is acknowledged. A NIC's library learns the
//! progress of a send queue only from the completions that the program polls: a completion frees
//! its entry and all earlier ones. A program that never signals a request, or polls too rarely,
//! runs here and fails there. In strict mode it fails here as well.
//!
//! ```text
//!   post ──> Qp's send queue ── tail - polled < capacity?          polled: PolledSends, shared
//!   completion (with its position) ──> Cq ──poll──> PolledSends::advance
//! ```
//!
//! Other devices pay nothing for this: their completion queues have no [`StrictSends`], and their
//! send queues compare the same two numbers as without this mode.

use std::collections::HashMap;

use urxe_types::completion::Completion;
use urxe_types::sync::atomic::{AtomicU32, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_wire::Qpn;

/// The position in a send queue behind the last entry whose completion was polled, modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct PolledSends(AtomicU32);

impl PolledSends {
    /// Returns the number of entries before `tail` that are in use.
    pub fn in_use(&self, tail: u64) -> u32 {
        (tail as u32).wrapping_sub(self.0.load(Ordering::Relaxed))
    }

    /// Frees the entries before position `end`. Has no effect if they are free: another thread may
    /// have polled a later completion meanwhile.
    pub fn advance(&self, end: u32) {
        let newer = |before: u32| ((end.wrapping_sub(before) as i32) > 0).then_some(end);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
    }
}

/// The strict send queues that report to a completion queue.
#[derive(Debug, Default)]
pub(super) struct StrictSends(Mutex<HashMap<Qpn, Arc<PolledSends>>>);

impl StrictSends {
    pub fn insert(&self, qpn: Qpn, polled: Arc<PolledSends>) {
        lock(&self.0).insert(qpn, polled);
    }

    pub fn remove(&self, qpn: Qpn) {
        lock(&self.0).remove(&qpn);
    }

    /// Frees the entries of the send queues whose completions were polled.
    #[cold]
    pub fn on_polled(&self, completions: &[Completion]) {
        let queues = lock(&self.0);
        for completion in completions {
            let position = completion.send_position();
            if let (Some(position), Some(polled)) = (position, queues.get(&completion.qp_num)) {
                polled.advance(position.wrapping_add(1));
            }
        }
    }
}
