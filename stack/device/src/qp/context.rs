//! The surroundings of calls into queue pairs.
//!
//! A context lives for one call into the device, on the stack of the calling thread.
//! `Device::context` (`device/objects.rs`) makes the context, and the functions of
//! [`Qp`](super::Qp) take it. The thread holds the lock of the queue pair while such a function
//! runs. One context may serve several queue pairs one after the other. A receiving caller then
//! moves `path` to the next queue pair (`Device::move_context`), and renews the identification in
//! `arrival` for each packet. A sending caller replaces `turn`.
//!
//! ```text
//!   comes in                   from                          valid for
//!   -------------------------  ----------------------------  -----------------------------
//!   now                        the caller                    the life of the context
//!   device                     the device                    the life of the device
//!   path, path_index           the table of paths            the queue pairs of one path
//!   arrival, from_port         the port                      one received packet
//!   turn                       the scheduler of the path     one turn to send
//!
//!   is decided here
//!   -------------------------  -----------------------------------------------------------
//!   rejects                    whether a packet joins the run
//!   has_credit                 whether the window of the path has room for data to send
//!
//!   goes out                   collected in                  by
//!   -------------------------  ----------------------------  -----------------------------
//!   bytes of SENDs and WRITEs  credit                        WindowCredit::commit_turn, by the
//!                                                            requester of a reliable service
//!   bytes acknowledged, the    credit                        commit
//!   unused advance
//!   counts of WRITEs           sent_writes, received_writes  commit
//!   pins of memory             pins                          release_locks, clear, or the drop
//!   the lock of a CQ           batched_cq                    release_locks, every other
//!                                                            completion, enter_error,
//!                                                            enter_send_error, Device::receive
//!                                                            before a packet that is no ACK and
//!                                                            at its end, or the drop
//! ```
//!
//! `batched_cq` has interior mutability, because completions get a shared reference.
//!
//! A caller that passed a received packet in or gave a turn to send must call
//! [`commit`](QpContext::commit) before it drops the context or changes `path`. Credit that is not
//! committed is lost: the window of the path would count those bytes as in flight forever. In debug
//! builds the drop of [`WindowCredit`] panics then. The calls of posts, timers and state changes
//! need no `commit`, because they return credit to the window directly and send nothing.

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
use urxe_wire::network_header::Arrival;

use super::completion_batch::BatchedCqLock;

/// The surroundings of calls into queue pairs, for the time of one call into the device.
pub(crate) struct QpContext<'a> {
    pub now: Time,
    pub device: DeviceParts<'a>,
    /// The path to the peer of the queue pair. A queue pair without a path gets any path, because
    /// nothing is sent then.
    pub path: &'a Path,
    /// The index of `path` in the device's table of paths.
    pub path_index: u32,
    /// The network header fields of the packet that is being received; `None` in other calls.
    pub arrival: Option<Arrival>,
    /// The UDP source port of the packet that is being received; 0 in other calls.
    pub from_port: u16,
    /// The rules of the queue pair's turn to send; [`TurnRules::ALONE`] in other calls.
    pub turn: TurnRules,
    // The fields below collect results over the packets of a call. They are fields of the context
    // and not of a struct of their own, because contexts are made in place: a struct of this size
    // would be copied into each context.
    pub pins: Pins<'a>,
    /// The credit of this call. `WindowCredit::commit_turn` charges the window with the bytes that
    /// a turn sent, and with an advance while other queue pairs wait. `commit` returns the unused
    /// advance and the acknowledged bytes.
    pub credit: WindowCredit,
    /// The completion queue that stays locked while ACKs for several queue pairs are handled. Every
    /// other completion first releases this lock, because it may lock another queue. See
    /// `completion_batch.rs`.
    pub batched_cq: BatchedCqLock<'a>,
    /// The number of WRITEs whose first packet was sent, not yet added to the counters.
    pub sent_writes: u64,
    /// The number of WRITEs whose first packet was received, not yet added to the counters.
    pub received_writes: u64,
}

/// The parts of the device that queue pairs use.
#[derive(Clone, Copy)]
pub(crate) struct DeviceParts<'a> {
    pub memory: &'a Memory,
    pub counters: &'a Counters,
    pub events: &'a AsyncEvents,
    pub srqs: &'a SrqTable,
    /// The address handles, which name the paths of datagrams.
    pub ahs: &'a AhTable,
    /// Whether a packet from another source port than the peer's needs the expected PSN.
    pub port_check: bool,
}

impl QpContext<'_> {
    /// Releases the pins and the lock of the completion queue. A thread must call this before it
    /// waits for the lock of a queue pair. The thread that holds that lock may wait for them:
    /// deregistration of memory waits until no pin is left.
    #[inline]
    pub fn release_locks(&mut self) {
        self.pins.clear();
        self.batched_cq.release();
    }

    /// Returns why a packet of `len` bytes may not join `run` now, or `None` if it may.
    #[inline]
    pub fn rejects(&self, run: &RunBuffer, len: usize) -> Option<TransmitStatus> {
        if !run.takes(len) {
            return Some(TransmitStatus::RunFull);
        }
        (!self.turn.may_end_run && run.closes_with(len)).then_some(TransmitStatus::WouldEndRun)
    }

    /// Returns whether the window of the path has room for `bytes` more.
    #[inline]
    pub fn has_credit(&self, bytes: u64) -> bool {
        self.credit.has_room(&self.path.window, bytes)
    }

    /// Commits the credit to the window of the path, and adds the counts of WRITEs to the counters.
    /// The counters have the names of the kernel's `rdma_rxe`, which counts WRITEs as `rdma_sends`
    /// and `rdma_recvs`.
    #[inline(always)] // usually there is nothing to commit
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
