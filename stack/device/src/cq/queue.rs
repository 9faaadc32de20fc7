//! Completion queues (`struct ibv_cq`): a bounded queue of completions under one lock of its own.
//!
//! Invariants
//! - Completions come out in the order in which they went in. Pushing and polling allocate nothing.
//! - Arming is one shot, and exactly so: the queue's lock orders every push before or after every
//!   arm. A completion pushed after an arm that reported nothing missed makes one event, the next
//!   ones none until the queue is armed again. An arm for the next completion overrides one for the
//!   next solicited completion and not the other way round; completions in error are always
//!   solicited (IBTA vol. 1, 11.4.2.2; `ibv_req_notify_cq`).
//! - Moderation holds an event back until several completions have come or a time has passed
//!   ([`moderation`](super::moderation)); a completion in error and the overrun are told at once.
//! - A full queue overruns: the completion is lost, one asynchronous event tells it, and the queue
//!   stays in error. What it already holds can be polled, then polling says [`CqError::Overrun`].
//!   Each further push is refused, so that the owner of the queue pair can end it (IBTA vol. 1,
//!   11.6.3; `ibv_poll_cq`).
//! - A destroyed queue pair's completions stay in the queue until they are polled.
//!
//! [`Cq::is_empty`] and the first step of [`Cq::poll`] read one atomic word and take no lock, since
//! an empty queue is what a spinning program sees most of the time.
//!
//! Lock order: queue pair before completion queue before channel and asynchronous events; the
//! latter two are only taken after the queue's own lock is given back.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

pub use self::cq_writer::CqWriter;
use self::poller::PollOwner;
pub use self::poller::Poller;
use super::channel::{Acknowledgements, ChannelSlot};
use super::moderation::{Coalescing, Moderation, ModerationTimers};
use super::{AsyncEvents, Completion, CompletionChannel, CqEvent, CqId, EventObject};
use urxe_types::sync::atomic::{AtomicU32, Ordering};
use urxe_types::sync::{Arc, Condvar, Mutex, lock, yield_now};
use urxe_types::time::Time;
use urxe_wire::Qpn;

mod cq_writer;
mod poller;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

urxe_types::errors! {
    /// Why a call on a completion queue failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CqError {
        /// The queue was full when a completion came, and can no longer be used.
        #[error("the completion queue overran: a completion found all {capacity} entries taken")]
        Overrun { capacity: u32 } = EOVERFLOW,
        #[error("a completion queue has 1 to {max} entries, not {requested}")]
        Capacity { requested: u32, max: u32 } = EINVAL,
        /// The queue holds more completions than the capacity asked for.
        #[error("the completion queue holds {held} completions and cannot shrink to {requested} \
                 entries")]
        TooSmall { requested: u32, held: u32 } = EINVAL,
        /// `users`: send queues, receive queues and shared receive queues that report here.
        #[error("the completion queue is used by {users} work queues")]
        Busy { users: u32 } = EBUSY,
        #[error("this thread polls the completion queue one by one already: end that first")]
        Polling = EBUSY,
        #[error("the completion queue was destroyed")]
        Destroyed = EINVAL,
        #[error("no memory for {requested} completion queue entries")]
        NoMemory { requested: u32 } = ENOMEM,
    }
}

/// Which completion makes the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArmKind {
    /// The next one, whichever it is.
    Next,
    /// The next receive whose message carried the solicited event bit, or the next completion in
    /// error.
    Solicited,
}

/// What a completion queue is made of.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// The queue's number within its device.
    pub id: CqId,
    /// Entries, at least 1. The queue has exactly as many.
    pub capacity: u32,
    /// Entries that the device allows at most, also when resizing.
    pub max_capacity: u32,
    /// Where events of the armed queue go; without a channel, arming has no effect.
    pub channel: Option<Arc<CompletionChannel>>,
    /// Where the overrun is reported.
    pub events: Option<Arc<AsyncEvents>>,
    /// Where the end of a moderated queue's period is waited for.
    pub moderation_timers: Arc<ModerationTimers>,
    /// The program's own value (`cq_context`), returned with each event.
    pub context: u64,
}

/// Bit of the summary word: the queue overran. The bits below it count the completions inside.
const OVERRUN: u32 = 1 << 31;
/// Largest capacity whatever the device says, so that the count never reaches [`OVERRUN`].
const MAX_CAPACITY: u32 = OVERRUN - 1;
/// Value of the user count of a destroyed queue.
const DESTROYED: u32 = u32::MAX;

struct Ring {
    /// Room for `capacity` entries is reserved, so pushing never allocates.
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<ArmKind>,
    /// What the armed queue holds back.
    coalescing: Coalescing,
    overrun: bool,
    /// Who polls one by one.
    poll_owner: PollOwner,
}

impl Ring {
    fn held(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("at most MAX_CAPACITY completions are held")
    }

    fn summary(&self) -> u32 {
        self.held() | if self.overrun { OVERRUN } else { 0 }
    }
}

/// A completion queue.
pub struct Cq {
    id: CqId,
    context: u64,
    max_capacity: u32,
    channel: Option<(Arc<CompletionChannel>, ChannelSlot)>,
    events: Option<Arc<AsyncEvents>>,
    moderation_timers: Arc<ModerationTimers>,
    /// Of its device, if it is of one; returned with the queue.
    quota: Option<QuotaUnit>,
    /// Written under the lock, read without it.
    summary: AtomicU32,
    users: AtomicU32,
    /// Sinks that may outlive the queue's users.
    batch_locks: AtomicU32,
    ring: Mutex<Ring>,
    poll_ended: Condvar,
}

impl Cq {
    /// An empty queue, not armed.
    ///
    /// # Errors
    /// [`CqError::Capacity`] or [`CqError::NoMemory`].
    pub fn new(config: CqConfig) -> Result<Self, CqError> {
        let CqConfig { id, capacity, max_capacity, channel, events, moderation_timers, context } =
            config;
        let max_capacity = max_capacity.min(MAX_CAPACITY);
        let entries = entries(capacity, max_capacity)?;
        let channel = channel.map(|channel| {
            let slot = channel.attach(CqEvent { cq: id, context });
            (channel, slot)
        });
        let ring = Ring {
            entries,
            capacity,
            armed: None,
            coalescing: Coalescing::default(),
            overrun: false,
            poll_owner: PollOwner::default(),
        };
        Ok(Self {
            id,
            context,
            max_capacity,
            channel,
            events,
            moderation_timers,
            quota: None,
            summary: AtomicU32::new(0),
            users: AtomicU32::new(0),
            batch_locks: AtomicU32::new(0),
            ring: Mutex::new(ring),
            poll_ended: Condvar::new(),
        })
    }

    /// The same as one of its device's quota.
    pub(crate) fn of_quota(mut self, unit: QuotaUnit) -> Self {
        self.quota = Some(unit);
        self
    }

    /// The queue's number within its device.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// The program's own value.
    #[must_use]
    pub const fn context(&self) -> u64 {
        self.context
    }

    /// The channel that this queue's events go to.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref().map(|(channel, _)| channel)
    }

    /// Number of entries (`cqe`).
    #[must_use]
    pub fn capacity(&self) -> u32 {
        lock(&self.ring).capacity
    }

    /// Number of completions inside, read without the lock.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.summary.load(Ordering::Acquire) & !OVERRUN) as usize
    }

    /// Whether there is nothing to poll, read without the lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a poll would find neither a completion nor an overrun, read without the lock.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.summary.load(Ordering::Acquire) == 0
    }

    /// Whether a completion was lost for want of room, read without the lock.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.summary.load(Ordering::Acquire) & OVERRUN != 0
    }

    /// Takes the queue's lock for several pushes. The event, if one is due, is sent when the sink
    /// is dropped.
    pub fn lock(&self) -> CqWriter<'_> {
        self.writer(false)
    }

    /// The same for a caller who keeps it locked longer than he keeps what reports to it: whoever
    /// destroys the queue waits for him. To be called while some user keeps it alive.
    pub(crate) fn lock_for_batch(&self) -> CqWriter<'_> {
        self.batch_locks.fetch_add(1, Ordering::Relaxed);
        self.writer(true)
    }

    fn writer(&self, is_batch_lock: bool) -> CqWriter<'_> {
        let ring = Some(lock(&self.ring));
        CqWriter { cq: self, ring, is_batch_lock, notify: false, overran: false, timer_at: None }
    }

    /// Adds one completion. `solicited`: it is a receive whose message carried the solicited event
    /// bit.
    ///
    /// # Errors
    /// [`CqError::Overrun`]: the completion is lost.
    pub fn push(&self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        self.lock().push(completion, solicited)
    }

    /// Moves the oldest completions to `out`, as many as fit; returns their number.
    ///
    /// # Errors
    /// [`CqError::Overrun`]: the queue overran and all that it held was polled.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.is_quiet() || out.is_empty() {
            return Ok(0);
        }
        let mut ring = lock(&self.ring);
        let count = out.len().min(ring.entries.len());
        if count == 0 {
            return if ring.overrun {
                Err(CqError::Overrun { capacity: ring.capacity })
            } else {
                Ok(0)
            };
        }
        let (front, back) = ring.entries.as_slices();
        let first = count.min(front.len());
        out[..first].copy_from_slice(&front[..first]);
        out[first..count].copy_from_slice(&back[..count - first]);
        ring.entries.drain(..count);
        self.summary.store(ring.summary(), Ordering::Release);
        Ok(count)
    }

    /// Takes away what a queue pair completed and nobody polled: it was reset, and what it did
    /// before is no longer of interest.
    pub(crate) fn withdraw(&self, qpn: Qpn) {
        let mut ring = lock(&self.ring);
        ring.entries.retain(|completion| completion.qp_num != qpn);
        self.summary.store(ring.summary(), Ordering::Release);
    }

    /// Asks for one event (`ibv_req_notify_cq`). Returns whether completions were in the queue
    /// already: they make no event, so the caller polls again before it sleeps.
    pub fn arm(&self, kind: ArmKind) -> bool {
        self.arm_and_count(kind) > 0
    }

    /// The same; returns how many completions were in the queue already. One that was lost for want
    /// of room counts as well.
    pub fn arm_and_count(&self, kind: ArmKind) -> usize {
        let mut ring = lock(&self.ring);
        if ring.armed != Some(ArmKind::Next) {
            ring.armed = Some(kind);
        }
        ring.entries.len() + usize::from(ring.overrun)
    }

    /// Sends the event that was asked for if completions are in the queue, although they were there
    /// before: for a caller who took some of them, left the others, and may now sleep. Moderation
    /// does not hold it back: that waits for completions to come, and these are there, of which
    /// nothing else may ever tell. Completions that moderation holds back already are told by it.
    pub fn notify_unpolled(&self) {
        if self.channel.is_none() || self.is_empty() {
            return;
        }
        let mut writer = self.lock();
        let ring = writer.ring();
        if ring.armed == Some(ArmKind::Next)
            && !ring.entries.is_empty()
            && !ring.coalescing.has_deadline()
        {
            writer.send_event();
        }
    }

    /// How events are held back.
    #[must_use]
    pub fn moderation(&self) -> Moderation {
        lock(&self.ring).coalescing.moderation()
    }

    /// Changes how events are held back (`ibv_modify_cq`). What is held back already goes by the
    /// new rule from now on.
    ///
    /// # Errors
    /// [`CqError::Destroyed`].
    pub fn moderate(self: &Arc<Self>, moderation: Moderation) -> Result<(), CqError> {
        if self.users.load(Ordering::Acquire) == DESTROYED {
            return Err(CqError::Destroyed);
        }
        self.moderation_timers.add(self);
        self.update_coalescing(|coalescing| coalescing.change(moderation));
        Ok(())
    }

    /// An entry of the timers came: tells what was held back long enough. The next entry, if one is
    /// needed.
    pub(super) fn on_timer(&self, entry: Time, now: Time) {
        self.update_coalescing(|coalescing| coalescing.on_timer(entry, now));
    }

    /// Changes what is held back; if `change` says that the event is due, sends it.
    fn update_coalescing(&self, change: impl FnOnce(&mut Coalescing) -> bool) {
        let mut writer = self.lock();
        if change(&mut writer.ring().coalescing) {
            writer.send_event();
        }
        writer.timer_at = writer.ring().coalescing.next_timer();
    }

    /// Gives the queue `capacity` entries (`ibv_resize_cq`); returns how many it has then. What it
    /// holds stays.
    ///
    /// # Errors
    /// [`CqError::Capacity`], [`CqError::TooSmall`], [`CqError::NoMemory`]; the queue is then as
    /// before.
    pub fn resize(&self, capacity: u32) -> Result<u32, CqError> {
        // Allocated before the lock is taken, so that no data path waits for it.
        let mut entries = entries(capacity, self.max_capacity)?;
        let mut ring = lock(&self.ring);
        if ring.held() > capacity {
            return Err(CqError::TooSmall { requested: capacity, held: ring.held() });
        }
        entries.extend(ring.entries.iter().copied());
        let old = std::mem::replace(&mut ring.entries, entries);
        ring.capacity = capacity;
        drop(ring);
        drop(old);
        Ok(capacity)
    }

    /// Acknowledges `count` events of this queue (`ibv_ack_cq_events`).
    pub fn ack_events(&self, count: u32) {
        if let Some((channel, slot)) = &self.channel {
            channel.acknowledge(*slot, count);
        }
    }

    /// Number of work queues that report here.
    #[must_use]
    pub fn users(&self) -> u32 {
        match self.users.load(Ordering::Acquire) {
            DESTROYED => 0,
            users => users,
        }
    }

    /// Ends the queue's life (`ibv_destroy_cq`): withdraws its events and waits until those that
    /// the program took are acknowledged.
    ///
    /// # Errors
    /// [`CqError::Busy`] while a work queue reports here, [`CqError::Destroyed`] the second time.
    pub fn destroy(&self) -> Result<(), CqError> {
        self.mark_destroyed()?;
        if let Some((channel, slot)) = &self.channel {
            channel.detach(*slot, Acknowledgements::Await);
        }
        if let Some(events) = &self.events {
            events.retire(EventObject::Cq(self.id));
        }
        Ok(())
    }

    /// As [`destroy`](Self::destroy), without waiting for acknowledgements: when its owner goes
    /// away.
    ///
    /// # Errors
    /// Those of [`destroy`](Self::destroy).
    pub fn destroy_without_wait(&self) -> Result<(), CqError> {
        self.mark_destroyed()?;
        self.detach();
        Ok(())
    }

    /// Nobody uses it from now on.
    fn mark_destroyed(&self) -> Result<(), CqError> {
        match self.users.compare_exchange(0, DESTROYED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // What reported to it is gone, but a thread may be about to tell of it: moments,
                // since such a thread waits for nothing.
                while self.batch_locks.load(Ordering::Acquire) != 0 {
                    yield_now();
                }
                Ok(())
            }
            Err(DESTROYED) => Err(CqError::Destroyed),
            Err(users) => Err(CqError::Busy { users }),
        }
    }

    /// Its events are nobody's.
    fn detach(&self) {
        if let Some((channel, slot)) = &self.channel {
            channel.detach(*slot, Acknowledgements::Ignore);
        }
        if let Some(events) = &self.events {
            events.retire_without_wait(EventObject::Cq(self.id));
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.moderation_timers.remove(self.id);
        if self.users.load(Ordering::Acquire) == DESTROYED {
            return;
        }
        self.detach();
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("id", &self.id)
            .field("len", &self.len())
            .field("overrun", &self.is_overrun())
            .field("users", &self.users())
            .finish_non_exhaustive()
    }
}

/// A work queue's hold on the completion queue that it reports to: the queue is not destroyed while
/// there is one.
#[derive(Debug)]
pub struct CqRef(Arc<Cq>);

impl CqRef {
    /// Counts one more user.
    ///
    /// # Errors
    /// [`CqError::Destroyed`].
    pub fn new(cq: Arc<Cq>) -> Result<Self, CqError> {
        let more = |users: u32| users.checked_add(1).filter(|&users| users != DESTROYED);
        match cq.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Self(cq)),
            Err(_) => Err(CqError::Destroyed),
        }
    }

    /// The queue itself, without the hold.
    #[must_use]
    pub const fn cq(&self) -> &Arc<Cq> {
        &self.0
    }
}

impl Deref for CqRef {
    type Target = Cq;

    fn deref(&self) -> &Cq {
        &self.0
    }
}

impl Drop for CqRef {
    fn drop(&mut self) {
        let users = self.0.users.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(users != 0 && users != DESTROYED, "a queue with users is not destroyed");
    }
}

/// The completion queues that a device may have, by how many it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct CqQuota(Arc<AtomicU32>);

impl CqQuota {
    /// Takes one of `allowed`; `None` when all are taken.
    pub fn take(&self, allowed: u32) -> Option<QuotaUnit> {
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(QuotaUnit(self.clone()))
    }
}

/// One queue of a quota, returned when the queue's last reference is dropped.
#[derive(Debug)]
pub(crate) struct QuotaUnit(CqQuota);

impl Drop for QuotaUnit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room for `capacity` completions.
fn entries(capacity: u32, max: u32) -> Result<VecDeque<Completion>, CqError> {
    if capacity == 0 || capacity > max {
        return Err(CqError::Capacity { requested: capacity, max });
    }
    let mut entries = VecDeque::new();
    match entries.try_reserve_exact(capacity as usize) {
        Ok(()) => Ok(entries),
        Err(_) => Err(CqError::NoMemory { requested: capacity }),
    }
}
