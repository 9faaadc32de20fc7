//! Acknowledgements that left their queue pairs.
//!
//! When packets for many queue pairs come together, each may have one acknowledgement to send and
//! nothing else. To list each queue pair and lock it once more for that would cost more than the
//! packet, so the receiving thread takes the acknowledgements along and leaves them with the path.
//! They say what was executed, which stays true whatever becomes of the queue pair; one that is
//! overtaken by a later answer of its queue pair says nothing new to the peer.
//!
//! ```text
//!   queue pair A ──┐
//!   queue pair B ──┼─> AckBatch (a receiving thread's) ──> AckList (the path's) ──> run
//!   queue pair C ──┘
//! ```

use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Aeth, Bth, Msn, Opcode, PKey, Psn, Qpn, Syndrome};

use super::pending_list::BoundedList;

/// So many wait at a path at most. Who lets more gather does not send: what he drops the peers ask
/// for again.
const MAX_WAITING: usize = 1024;
/// So many are worth a system call of their own.
pub(crate) const FLUSH_THRESHOLD: usize = 32;
/// Among so many that were taken last, one of the same queue pair is looked for.
const RECENT: usize = 4;

/// An acknowledgement, as much of it as differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub to: Qpn,
    pub psn: Psn,
    pub msn: Msn,
    /// Of RC or XRC.
    pub opcode: Opcode,
    pub pkey: PKey,
    pub mig_req: bool,
}

impl Ack {
    /// Bytes of its packet: BTH, AETH, ICRC.
    pub const LEN: usize = Bth::LEN + Aeth::LEN + ICRC_LEN;

    /// Its packet's headers.
    #[inline]
    pub fn headers(self) -> (Bth, Aeth) {
        let mut bth = Bth::new(self.opcode, self.to, self.psn);
        (bth.pkey, bth.mig_req) = (self.pkey, self.mig_req);
        (bth, Aeth { syndrome: Syndrome::ACK, msn: self.msn })
    }
}

/// What a receiving thread has taken, all for one path.
#[derive(Debug, Default)]
pub(crate) struct AckBatch {
    /// The index of the queue pair, and its acknowledgement.
    acks: Vec<(u32, Ack)>,
}

impl AckBatch {
    pub fn is_empty(&self) -> bool {
        self.acks.is_empty()
    }

    /// Takes an acknowledgement of queue pair `index`; it stands for an earlier one to the same
    /// peer.
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

    /// Gives them away.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Ack> {
        self.acks.drain(..).map(|(_, ack)| ack)
    }
}

/// What waits at a path.
pub(crate) type AckList = BoundedList<Ack, MAX_WAITING>;

#[cfg(test)]
mod tests;
