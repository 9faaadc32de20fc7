//! The state that queue pairs with the same `PathKey` share.
//!
//! A path owns the run being built, the right to send to its peer, the congestion window and the
//! measured round trip. To send, a thread lists its queue pair on the path and tries to take the
//! path's sender lock. If another thread holds the lock, the thread sets `Path::rerun_requested`.
//! The holder checks this flag after it releases the lock.
//!
//! | file | subject |
//! |---|---|
//! | `ready` | lists of queue pairs and paths with work |
//! | `scheduler`, `admission_queue` | the order of turns; queue pairs that wait for credit |
//! | `run` | the run being built |
//! | `window`, `window_credit` | the congestion window, and a thread's part of its credit |
//! | `congestion` | an estimate of how often a path is congested |
//! | `pacer` | the rates of services without acknowledgements and of READ responses |
//! | `coalescer` | requests that wait for others to fill a run |
//! | `acks`, `ecn`, `pending_list` | ACKs and congestion notifications without their queue pairs |
//!
//! Lock order: path, queue pair, memory slot, shared receive queue, completion queue. One
//! exception: while a thread handles acknowledgements of many queue pairs, it may keep one
//! completion queue locked. Such a thread never blocks on a queue pair (`qp/completion_batch.rs`).

pub(crate) mod acks;
pub(crate) mod admission_queue;
pub(crate) mod coalescer;
mod congestion;
pub(crate) mod ecn;
pub(crate) mod pacer;
mod pending_list;
pub(crate) mod ready;
pub(crate) mod run;
pub(crate) mod scheduler;
pub(crate) mod window;
pub(crate) mod window_credit;

use std::net::IpAddr;
use std::time::Duration;

use urxe_wire::IcrcSeed;

use self::acks::{Ack, AckList};
use self::coalescer::SendCoalescer;
use self::ecn::{Cnp, CnpList};
use self::pacer::{Pacer, ResponsePacer};
use self::ready::{ReadyLink, ReadyList};
use self::run::RunMemory;
use self::scheduler::TurnQueues;
pub use self::window::EARLY_TIMEOUT_MIN;
use self::window::Window;
use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use urxe_types::sync::{Mutex, lock, try_lock};

/// The key by which queue pairs share a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    pub local: IpAddr,
    pub peer: IpAddr,
    /// The slot of the receiving process among those that share the peer's address. A run goes to
    /// one process.
    pub peer_slot: u8,
    pub traffic_class: u8,
    /// The hop limit of multicast messages, as their sender chose it. 0 for all others: the system
    /// chooses.
    pub hop_limit: u8,
}

/// One use of a path's place in the device's table, from [`Path::open`] to [`Path::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPath {
    /// The path's index in the table.
    pub index: u32,
    /// The number of times that the path was opened, modulo 2^32.
    pub generation: u32,
}

/// A path. Its place in the device's table stays; its peer and its queue pairs change.
#[derive(Debug)]
pub(crate) struct Path {
    /// The path's link in the device's list of ready paths.
    pub link: ReadyLink,
    /// Queue pairs that may have something to send.
    pub ready: ReadyList,
    /// Queue pairs whose only unsent requests found no credit when they were posted. They go to the
    /// end of the admission queue without a turn.
    pub blocked_at_post: ReadyList,
    /// Acknowledgements that left their queue pairs.
    pub acks: AckList,
    /// Congestion notifications that left their queue pairs.
    pub cnps: CnpList,
    pub window: Window,
    pub pacer: Pacer,
    pub response_pacer: ResponsePacer,
    pub coalescer: SendCoalescer,
    /// Queue pairs wait for a [`Credit`](window::Credit). `device/transmit.rs` names writer and
    /// reader of this flag and the next.
    pub has_blocked: AtomicBool,
    /// Queue pairs wait in the admission queue for the window.
    pub has_window_waiters: AtomicBool,
    /// See [`OpenPath`]. Changes only while no queue pair is on the path.
    generation: AtomicU32,
    /// A thread found the sender lock taken: its holder must send once more.
    rerun_requested: AtomicBool,
    sender: Mutex<Sender>,
}

/// The state that only the thread with the sender lock uses.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub route: Option<Route>,
    /// The memory of runs. Allocated when the path first sends.
    pub run: Option<RunMemory>,
    pub waiting: Waiting,
}

/// The queue pairs and packets that wait at a path for their turns.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub queues: TurnQueues,
    /// Acknowledgements taken off the path's list.
    pub acks: Vec<Ack>,
    /// Congestion notifications taken off the path's list.
    pub cnps: Vec<Cnp>,
}

/// The destination of a path's packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub key: PathKey,
    pub source_port: u16,
    pub icrc: IcrcSeed,
}

impl Path {
    pub fn new(read_budget: u64, early_timeout_min: Duration) -> Self {
        Self {
            link: ReadyLink::new(),
            ready: ReadyList::new(),
            blocked_at_post: ReadyList::new(),
            acks: AckList::default(),
            cnps: CnpList::default(),
            window: Window::new(read_budget, early_timeout_min),
            pacer: Pacer::default(),
            response_pacer: ResponsePacer::default(),
            coalescer: SendCoalescer::default(),
            has_blocked: AtomicBool::new(false),
            has_window_waiters: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            rerun_requested: AtomicBool::new(false),
            sender: Mutex::new(Sender::default()),
        }
    }

    /// Opens the path for a new peer. No queue pair is on the path.
    pub fn open(&self, route: Route) {
        let mut sender = lock(&self.sender);
        sender.route = Some(route);
        sender.run = None;
        // The order matters: a thread that adds acknowledgements under the lock of the list either
        // finds the new generation or adds them before the list is cleared.
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.acks.clear();
        self.cnps.clear();
        self.window.reset();
        self.pacer.reset();
        self.response_pacer.reset();
        self.coalescer.release();
    }

    /// Closes the path after its last queue pair left. Frees the memory of the run.
    pub fn close(&self) {
        let mut sender = lock(&self.sender);
        sender.route = None;
        self.acks.clear();
        self.cnps.clear();
        sender.run = None;
    }

    /// Returns the present use of this path, which stands at `index`. The caller must hold the lock
    /// of a queue pair on the path, because the use does not end meanwhile.
    #[inline]
    pub fn opened(&self, index: u32) -> OpenPath {
        OpenPath { index, generation: self.generation.load(Ordering::Relaxed) }
    }

    /// Adds acknowledgements of queue pairs that were on the path during its use `of`. Drops them
    /// if that use has ended, because the path may lead to another peer now. Returns the number
    /// that wait now and the number that was dropped.
    pub fn add_acks(
        &self,
        of: OpenPath,
        acks: impl ExactSizeIterator<Item = Ack>,
    ) -> (usize, usize) {
        self.acks.add_if(|| self.opened(of.index) == of, acks)
    }

    /// Waits until no other thread sends, then runs `send` and [`flush`](Self::flush). When this
    /// function returns, all queue pairs that were listed before the call had their turns.
    pub fn flush_after_others(&self, mut send: impl FnMut(&mut Sender)) {
        send(&mut lock(&self.sender));
        self.flush(send);
    }

    /// Runs `send` under the sender lock until no thread requests another run. If another thread
    /// holds the lock, requests a rerun and returns.
    ///
    /// A thread sets the flag only after it found the lock taken. If a thread set the flag before
    /// each try, two threads could make each other repeat without end.
    pub fn flush(&self, mut send: impl FnMut(&mut Sender)) {
        let mut marked = false;
        loop {
            match try_lock(&self.sender) {
                Some(mut sender) => {
                    // A swap and not a store, because the swap acquires the entries that were
                    // listed before the flag was set.
                    self.rerun_requested.swap(false, Ordering::AcqRel);
                    send(&mut sender);
                    drop(sender);
                    // Pairs with the fence below: either this thread sees the flag, or the thread
                    // that set it finds the lock free.
                    fence(Ordering::SeqCst);
                    if !self.rerun_requested.load(Ordering::Acquire) {
                        return;
                    }
                }
                None if marked => return,
                None => {
                    self.rerun_requested.swap(true, Ordering::AcqRel);
                    fence(Ordering::SeqCst);
                    marked = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
