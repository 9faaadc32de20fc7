//! The surroundings of a call into a queue pair.
//!
//! ```text
//!   part of QpContext     is provided by               lasts for
//!   ------------------  ---------------------------  ----------------------------------------
//!   device              the device                   the device's life
//!   path, path_index    the device's table           the queue pairs of one path in turn
//!   now                 the caller                   the call into the device
//!   arrival             the port                     one packet that is received
//!   turn                the scheduler of the path    one queue pair's turn to send
//!   pins, credit,       the queue pairs themselves   the packets of the call, until `commit`
//!   batched_cq, *_writes                                and `release_locks`, or the drop
//! ```

use crate::ah_table::AhTable;
use crate::cq::AsyncEvents;
use crate::path::Path;
use crate::path::run::RunBuffer;
use crate::path::scheduler::{TransmitStatus, TurnRules};
use crate::path::window_credit::WindowCredit;
use crate::srq::SrqTable;
use urxe_memory::{Memory, Pins};
use urxe_types::counters::{Counter, Counters};
use urxe_types::time::Time;
use urxe_wire::Opcode;
use urxe_wire::network_header::Arrival;

use super::completion_batch::BatchedCqLock;

/// The surroundings of one call into a queue pair: borrowed for a run, never for a message.
pub(crate) struct QpContext<'a> {
    pub now: Time,
    pub device: DeviceParts<'a>,
    /// The path to the queue pair's peer; some path for a queue pair without one, which sends
    /// nothing.
    pub path: &'a Path,
    /// Which path that is.
    pub path_index: u32,
    /// While a packet is received: where it came from.
    pub arrival: Option<Arrival>,
    /// While packets are sent: the rules of the queue pair's turn.
    pub turn: TurnRules,
    // The fields below are kept from one packet of the call to the next, and settled once for all
    // of them. They are no struct of their own because contexts are made in place: a part of this
    // size would be copied into each.
    pub pins: Pins<'a>,
    /// Charges and releases that the path's window does not know yet. [`commit`](Self::commit) must
    /// precede a change of `path`: they are this path's.
    pub credit: WindowCredit,
    /// While acknowledgements of many queue pairs are handled: the completion queue that stays
    /// locked for them. Any other completion unlocks it first, since it may lock another queue;
    /// this is free if none is locked (`completion_batch.rs`).
    pub batched_cq: BatchedCqLock<'a>,
    /// WRITEs that began while packets were sent, not counted yet.
    pub sent_writes: u64,
    /// WRITEs that began while packets were received, not counted yet.
    pub received_writes: u64,
}

/// The parts of the device that queue pairs use.
#[derive(Clone, Copy)]
pub(crate) struct DeviceParts<'a> {
    pub memory: &'a Memory,
    pub counters: &'a Counters,
    pub events: &'a AsyncEvents,
    pub srqs: &'a SrqTable,
    /// Where datagrams go.
    pub ahs: &'a AhTable,
}

impl QpContext<'_> {
    /// Releases pins and the completion queue. The caller is about to wait for a queue pair, and
    /// the thread that has it may wait for them.
    #[inline]
    pub fn release_locks(&mut self) {
        self.pins.clear();
        self.batched_cq.release();
    }

    /// Why a packet of `len` bytes does not join `run` now, if it does not.
    #[inline]
    pub fn rejects(&self, run: &RunBuffer, len: usize) -> Option<TransmitStatus> {
        if !run.takes(len) {
            return Some(TransmitStatus::RunFull);
        }
        (!self.turn.may_end_run && run.closes_with(len)).then_some(TransmitStatus::WouldEndRun)
    }

    /// Whether the path's window has room for `bytes` more.
    #[inline]
    pub fn has_credit(&self, bytes: u64) -> bool {
        self.credit.has_room(&self.path.window, bytes)
    }

    /// Adds the charges to the path's window, and the counts of WRITEs to the counters.
    #[inline(always)] // in place, as most often there are none
    pub fn commit(&mut self) {
        self.credit.commit(&self.path.window, self.now);
        let writes = [
            (Counter::RdmaSends, &mut self.sent_writes),
            (Counter::RdmaRecvs, &mut self.received_writes),
        ];
        for (counter, writes) in writes {
            match std::mem::take(writes) {
                0 => {}
                writes => self.device.counters.add_many(counter, writes),
            }
        }
    }
}

/// The length of a packet of `opcode` with `payload_len` bytes of payload.
#[inline]
pub(crate) fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    urxe_wire::packet::packet_len(opcode.info().headers_len(), payload_len)
}
