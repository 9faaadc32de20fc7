//! Acknowledgements that left their queue pairs.
//!
//! Packets for many queue pairs may arrive together, so that each queue pair has one
//! acknowledgement to send and nothing else. To list and lock each queue pair once more would cost
//! more than its packet. So the receiving thread takes the acknowledgements along and leaves them
//! with the path.
//!
//! An acknowledgement says which requests were executed. That stays true when the queue pair fails
//! or is destroyed. If a later acknowledgement of the same queue pair leaves first, the earlier one
//! is redundant.
//!
//! ```text
//!   queue pair A ──┐
//!   queue pair B ──┼─> AckBatch of a receiving thread ──> AckList of the path ──> run
//!   queue pair C ──┘
//! ```

use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Aeth, Bth, Msn, Opcode, PKey, Psn, Qpn, Syndrome};

use super::pending_list::BoundedList;

/// The most acknowledgements that wait at a path. More only gather if no thread sends. Peers ask
/// again for acknowledgements that were dropped.
const MAX_WAITING: usize = 1024;
/// The number of waiting acknowledgements that is worth a system call.
pub(crate) const FLUSH_THRESHOLD: usize = 32;
/// The number of latest entries of a batch that are searched for an earlier acknowledgement of the
/// same queue pair.
const RECENT: usize = 4;

/// The fields in which acknowledgements differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub to: Qpn,
    pub psn: Psn,
    pub msn: Msn,
    /// The opcode of an RC or XRC acknowledgement.
    pub opcode: Opcode,
    pub pkey: PKey,
    pub mig_req: bool,
}

impl Ack {
    /// The bytes of the packet: BTH, AETH, ICRC.
    pub const LEN: usize = Bth::LEN + Aeth::LEN + ICRC_LEN;

    /// Returns the headers of the packet.
    #[inline]
    pub fn headers(self) -> (Bth, Aeth) {
        let mut bth = Bth::new(self.opcode, self.to, self.psn);
        (bth.pkey, bth.mig_req) = (self.pkey, self.mig_req);
        (bth, Aeth { syndrome: Syndrome::ACK, msn: self.msn })
    }
}

/// The acknowledgements that a receiving thread has taken, all for one path.
#[derive(Debug, Default)]
pub(crate) struct AckBatch {
    /// The index of each queue pair, and its acknowledgement.
    acks: Vec<(u32, Ack)>,
}

impl AckBatch {
    pub fn is_empty(&self) -> bool {
        self.acks.is_empty()
    }

    /// Adds an acknowledgement of queue pair `index`. It replaces an earlier one of that queue pair
    /// to the same peer.
    pub fn push(&mut self, index: u32, ack: Ack) {
        let start = self.acks.len().saturating_sub(RECENT);
        for (of, earlier) in &mut self.acks[start..] {
            if *of == index && earlier.to == ack.to {
                *earlier = ack;
                return;
            }
        }
        self.acks.push((index, ack));
    }

    /// Takes all acknowledgements out.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Ack> {
        self.acks.drain(..).map(|(_, ack)| ack)
    }
}

/// The acknowledgements that wait at a path.
pub(crate) type AckList = BoundedList<Ack, MAX_WAITING>;

#[cfg(test)]
mod tests;
