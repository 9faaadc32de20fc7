//! Paths: what all queue pairs with one peer address share.
//!
//! A path owns the run being built and the right to send to its peer (the sender), the congestion
//! window and the measured round trip. Whoever has something to send lists its queue pair on the
//! path and then tries to become the sender; who finds another at it leaves a mark
//! (`Path::rerun_requested`), which the sender looks at again after letting go.
//!
//! Lock order: path, queue pair, shared receive queue, completion queue. One exception: over
//! acknowledgements of many queue pairs a completion queue stays locked, but nobody who has it
//! waits for a queue pair (`qp/completions.rs`).

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
use self::pacer::Pacer;
use self::ready::{ReadyLink, ReadyList};
use self::run::RunBuffer;
use self::scheduler::TurnQueues;
pub use self::window::EARLY_TIMEOUT_MIN;
use self::window::Window;
use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use urxe_types::sync::{Mutex, lock, try_lock};

/// What makes two queue pairs share a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    pub local: IpAddr,
    pub peer: IpAddr,
    /// The process among those that share the peer's address: a run goes to one of them.
    pub peer_slot: u8,
    pub traffic_class: u8,
    /// Of multicast messages, as their sender chose; 0 leaves it to the system, as for all others.
    pub hop_limit: u8,
}

/// One use of a path's place in the device's table, from [`Path::open`] to [`Path::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPath {
    /// The path's index in the table.
    pub index: u32,
    /// How often the path was opened, modulo 2^32.
    pub generation: u32,
}

/// One path. Its place in the device's table stays; who uses it changes.
#[derive(Debug)]
pub(crate) struct Path {
    /// Its place in the device's list of paths with work.
    pub link: ReadyLink,
    /// Queue pairs that may have something to send.
    pub ready: ReadyList,
    /// Queue pairs that have nothing to send but what was posted when there was no room for it:
    /// they go to the end of the admission queue.
    pub blocked_at_post: ReadyList,
    /// Acknowledgements that left their queue pairs.
    pub acks: AckList,
    /// Congestion notifications to be sent.
    pub cnps: CnpList,
    pub window: Window,
    pub pacer: Pacer,
    pub coalescer: SendCoalescer,
    /// Some queue pair waits for a [`Credit`](window::Credit).
    pub has_blocked: AtomicBool,
    /// Some of these wait in the admission queue for the window.
    pub has_window_waiters: AtomicBool,
    /// See [`OpenPath`]. Changes only while no queue pair is on the path.
    generation: AtomicU32,
    rerun_requested: AtomicBool,
    sender: Mutex<Sender>,
}

/// What only the one who sends on the path touches.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub route: Option<Route>,
    /// The run, made when the path first sends.
    pub run: Option<RunBuffer>,
    pub queues: TurnQueues,
    /// Acknowledgements taken off the path's list.
    pub acks: Vec<Ack>,
    /// Congestion notifications taken off the path's list.
    pub cnps: Vec<Cnp>,
}

/// Where a path's packets go.
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
            coalescer: SendCoalescer::default(),
            has_blocked: AtomicBool::new(false),
            has_window_waiters: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            rerun_requested: AtomicBool::new(false),
            sender: Mutex::new(Sender::default()),
        }
    }

    /// Takes the path over for a new peer. Nobody uses it.
    pub fn open(&self, route: Route) {
        let mut sender = lock(&self.sender);
        sender.route = Some(route);
        sender.run = None;
        // Before the list is cleared: a thread that adds acknowledgements under the lock of the
        // list either finds the new generation or adds them before they are cleared.
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.acks.clear();
        self.cnps.clear();
        self.window.reset();
        self.pacer.reset();
        self.coalescer.release();
    }

    /// The last user left: the memory of the run goes.
    pub fn close(&self) {
        let mut sender = lock(&self.sender);
        sender.route = None;
        self.acks.clear();
        self.cnps.clear();
        sender.run = None;
    }

    /// Returns the present use of this path, which stands at `index`. The caller holds the lock of
    /// a queue pair on the path: so the use does not end meanwhile.
    #[inline]
    pub fn opened(&self, index: u32) -> OpenPath {
        OpenPath { index, generation: self.generation.load(Ordering::Relaxed) }
    }

    /// Leaves acknowledgements of queue pairs that were on the path in the use `of` it. Drops them
    /// if that use has ended: the path may lead to another peer now. Returns the numbers of waiting
    /// and of dropped ones.
    pub fn add_acks(
        &self,
        of: OpenPath,
        acks: impl ExactSizeIterator<Item = Ack>,
    ) -> (usize, usize) {
        self.acks.add_if(|| self.opened(of.index) == of, acks)
    }

    /// Waits until no other thread is the sender, then does as [`flush`](Self::flush): what was
    /// listed before has been looked at when this returns.
    pub fn flush_after_others(&self, mut send: impl FnMut(&mut Sender)) {
        send(&mut lock(&self.sender));
        self.flush(send);
    }

    /// Runs `send` as the sender, again and again until nobody has asked for more. Returns when
    /// another thread is the sender: it will see what was asked.
    ///
    /// The mark is set only by who finds the lock taken. Were it set before each try, two threads
    /// could make each other go round for ever.
    pub fn flush(&self, mut send: impl FnMut(&mut Sender)) {
        let mut marked = false;
        loop {
            match try_lock(&self.sender) {
                Some(mut sender) => {
                    // A swap, not a store: it sees what was listed before the mark was set.
                    self.rerun_requested.swap(false, Ordering::AcqRel);
                    send(&mut sender);
                    drop(sender);
                    // Pairs with the fence below: either this sees the mark, or who set it finds
                    // the lock free.
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
