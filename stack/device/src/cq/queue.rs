//! Completion queues (`struct ibv_cq`): bounded queues of completions, each under a lock of its
//! own.
//!
//! Invariants:
//!
//! - Completions are polled in the order in which they were pushed. Pushing and polling allocate
//!   nothing.
//! - Arming causes exactly one event. The queue's lock orders every push before or after every arm.
//!   The first completion after an arm that reported no missed completion causes an event. The next
//!   ones cause none until the queue is armed again.
//! - Arming for the next completion replaces arming for solicited ones, but not vice versa.
//!   Completions in error count as solicited (IBTA vol. 1, 11.4.2.2; `ibv_req_notify_cq`).
//! - Moderation delays an event until several completions were pushed or a time has passed
//!   ([`moderation`](super::moderation)). The event is not delayed for a completion in error or
//!   of an overrun.
//! - A push to a full queue is an overrun: the completion is lost, one asynchronous event reports
//!   that, and the queue stays in error. The completions inside can be polled. After them, polling
//!   fails with [`CqError::Overrun`]. Every further push fails, so that the caller can move its
//!   queue pair to the error state (IBTA vol. 1, 11.6.3; `ibv_poll_cq`).
//! - The completions of a destroyed queue pair stay in the queue until they are polled.
//!
//! [`Cq::is_empty`] and the first step of [`Cq::poll`] read one atomic word and take no lock,
//! because a polling program usually finds an empty queue.
//!
//! Lock order: queue pair before completion queue before channel and asynchronous events. The last
//! two are locked only after the lock of the queue is released.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;

pub use self::cq_writer::CqWriter;
use self::poller::PollOwner;
pub use self::poller::Poller;
pub(crate) use self::strict_sends::PolledSends;
use self::strict_sends::StrictSends;
use super::channel::{Acknowledgements, ChannelSlot};
use super::moderation::{Coalescing, Moderation, ModerationTimers};
use super::{AsyncEvents, Completion, CompletionChannel, CqEvent, CqId, EventObject};
use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use urxe_types::sync::{Arc, Condvar, Mutex, lock, yield_now};
use urxe_types::time::Time;
use urxe_wire::Qpn;

mod cq_writer;
mod poller;
mod strict_sends;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

urxe_types::errors! {
    /// Why a call on a completion queue failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CqError {
        /// The queue was full when a completion was pushed, and can no longer be used.
        #[error("the completion queue overran: all {capacity} entries were in use")]
        Overrun { capacity: u32 } = EOVERFLOW,
        /// `max`: the limit of the device (`max_cqe`).
        #[error("a completion queue has 1 to {max} entries, not {requested}")]
        Capacity { requested: u32, max: u32 } = EINVAL,
        /// The queue holds more completions than the requested capacity.
        #[error("the completion queue holds {held} completions and cannot shrink to {requested} \
                 entries")]
        TooSmall { requested: u32, held: u32 } = EINVAL,
        /// `users`: the send queues, receive queues and shared receive queues that report to the
        /// queue.
        #[error("the completion queue is used by {users} work queues")]
        Busy { users: u32 } = EBUSY,
        /// Two polls of one thread would wait for each other.
        #[error("this thread polls the completion queue one by one already: end that poll first")]
        Polling = EBUSY,
        /// A handle outlived the queue.
        #[error("the completion queue was destroyed")]
        Destroyed = EINVAL,
        /// The system had no memory for the entries.
        #[error("no memory for {requested} completion queue entries")]
        NoMemory { requested: u32 } = ENOMEM,
    }
}

/// The kind of completion that causes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArmKind {
    /// Any completion.
    Next,
    /// A receive whose message had the solicited event bit, or a completion in error.
    Solicited,
}

/// The properties of a completion queue.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// The number of the queue within its device.
    pub id: CqId,
    /// The number of entries, at least 1.
    pub capacity: u32,
    /// The most entries that the device allows, also when the queue is resized.
    pub max_capacity: u32,
    /// The destination of events. Without a channel, arming has no effect.
    pub channel: Option<Arc<CompletionChannel>>,
    /// The destination of the asynchronous event of an overrun.
    pub events: Option<Arc<AsyncEvents>>,
    /// The timers of moderated queues.
    pub moderation_timers: Arc<ModerationTimers>,
    /// The program's value (`cq_context`), which each event returns.
    pub context: u64,
}

/// The bit of the summary word that says that the queue overran. The bits below it are the number
/// of completions.
const OVERRUN: u32 = 1 << 31;
/// The largest capacity of any device, so that the number never reaches [`OVERRUN`].
const MAX_CAPACITY: u32 = OVERRUN - 1;
/// The number of users of a destroyed queue.
const DESTROYED: u32 = u32::MAX;

struct Ring {
    /// The completions. Room for `capacity` is reserved, so pushing never allocates.
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<ArmKind>,
    /// The completions that moderation has not reported yet.
    coalescing: Coalescing,
    overrun: bool,
    /// The thread that polls one by one.
    poll_owner: PollOwner,
}

impl Ring {
    fn held(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("at most MAX_CAPACITY completions are stored")
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
    /// The queue's unit of its device's quota, returned when the queue is dropped.
    quota: Option<QuotaUnit>,
    /// The send queues that wait for polls, on a device with strict queues.
    strict_sends: Option<StrictSends>,
    /// The number of completions and [`OVERRUN`]. Written under the lock, read without it.
    summary: AtomicU32,
    /// Whether the program has found the queue empty since its last event.
    found_empty: AtomicBool,
    users: AtomicU32,
    /// The number of locks that may outlive the queue's users.
    batch_locks: AtomicU32,
    ring: Mutex<Ring>,
    poll_ended: Condvar,
}

impl Cq {
    /// Makes an empty queue that is not armed.
    ///
    /// # Errors
    /// Fails with [`CqError::Capacity`] or [`CqError::NoMemory`].
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
            strict_sends: None,
            summary: AtomicU32::new(0),
            found_empty: AtomicBool::new(false),
            users: AtomicU32::new(0),
            batch_locks: AtomicU32::new(0),
            ring: Mutex::new(ring),
            poll_ended: Condvar::new(),
        })
    }

    /// Makes the queue hold a unit of its device's quota.
    pub(crate) fn of_quota(mut self, unit: QuotaUnit) -> Self {
        self.quota = Some(unit);
        self
    }

    /// Makes polls free the entries of strict send queues.
    pub(crate) fn with_strict_sends(mut self, strict: bool) -> Self {
        self.strict_sends = strict.then(StrictSends::default);
        self
    }

    /// Frees the entries of a strict send queue when its completions are polled. Has no effect on a
    /// device without strict queues.
    pub(crate) fn track_sends(&self, qpn: Qpn, polled: Arc<PolledSends>) {
        if let Some(strict) = &self.strict_sends {
            strict.insert(qpn, polled);
        }
    }

    /// Ends [`track_sends`](Self::track_sends).
    pub(crate) fn untrack_sends(&self, qpn: Qpn) {
        if let Some(strict) = &self.strict_sends {
            strict.remove(qpn);
        }
    }

    /// Returns the number of the queue within its device.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// Returns the program's value.
    #[must_use]
    pub const fn context(&self) -> u64 {
        self.context
    }

    /// Returns the channel of the queue's events.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref().map(|(channel, _)| channel)
    }

    /// Returns the number of entries (`cqe`).
    #[must_use]
    pub fn capacity(&self) -> u32 {
        lock(&self.ring).capacity
    }

    /// Returns the number of completions. Takes no lock.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.summary.load(Ordering::Acquire) & !OVERRUN) as usize
    }

    /// Returns whether there is nothing to poll. Takes no lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is neither a completion nor an overrun. Takes no lock.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.summary.load(Ordering::Acquire) == 0
    }

    /// Returns whether a completion was lost because the queue was full. Takes no lock.
    #[must_use]
    pub fn is_overrun(&self) -> bool {
        self.summary.load(Ordering::Acquire) & OVERRUN != 0
    }

    /// Locks the queue for several pushes. The event, if one is due, is sent when the writer is
    /// dropped.
    pub fn lock(&self) -> CqWriter<'_> {
        self.writer(false)
    }

    /// Locks the queue for a batch that may outlive the users of the queue. Destroying the queue
    /// waits until the writer is dropped. A user must exist during this call.
    pub(crate) fn lock_for_batch(&self) -> CqWriter<'_> {
        self.batch_locks.fetch_add(1, Ordering::Relaxed);
        self.writer(true)
    }

    fn writer(&self, is_batch_lock: bool) -> CqWriter<'_> {
        let ring = Some(lock(&self.ring));
        CqWriter { cq: self, ring, is_batch_lock, notify: false, overran: false, timer_at: None }
    }

    /// Adds one completion. `solicited`: of a receive whose message had the solicited event bit.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`]; the completion is lost.
    pub fn push(&self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        self.lock().push(completion, solicited)
    }

    /// Moves the oldest completions to `out`, as many as fit. Returns their number.
    ///
    /// # Errors
    /// Fails with [`CqError::Overrun`] if the queue overran and all its completions were polled.
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
        if let Some(strict) = &self.strict_sends {
            strict.on_polled(&out[..count]);
        }
        Ok(count)
    }

    /// Removes the completions of a queue pair that moves to RESET.
    pub(crate) fn withdraw(&self, qpn: Qpn) {
        let mut ring = lock(&self.ring);
        ring.entries.retain(|completion| completion.qp_num != qpn);
        self.summary.store(ring.summary(), Ordering::Release);
    }

    /// Requests one event (`ibv_req_notify_cq`). Returns whether the queue holds completions. These
    /// cause no event, so the caller must poll again before sleeping.
    pub fn arm(&self, kind: ArmKind) -> bool {
        self.arm_and_count(kind) > 0
    }

    /// Requests one event like [`arm`](Self::arm). Returns the number of completions in the queue;
    /// a lost one counts as well.
    pub fn arm_and_count(&self, kind: ArmKind) -> usize {
        let mut ring = lock(&self.ring);
        if ring.armed != Some(ArmKind::Next) {
            ring.armed = Some(kind);
        }
        ring.entries.len() + usize::from(ring.overrun)
    }

    /// Returns whether the next completion causes an event, or an event was not taken. A program
    /// that finds such a queue empty is likely to wait next for the event of its channel.
    #[must_use]
    pub fn awaits_event(&self) -> bool {
        let Some((channel, slot)) = &self.channel else { return false };
        let is_armed = lock(&self.ring).armed.is_some();
        is_armed || channel.has_events_of(*slot)
    }

    /// Sends the requested event if the queue holds completions, even those from before the
    /// request. Returns whether it sent the event.
    ///
    /// This is for a caller that polled some completions, left others, and may now sleep.
    /// Moderation does not delay this event, because it waits for new completions, and no other
    /// event may report the present ones. Completions that moderation already counts are reported
    /// by its timer.
    pub fn notify_unpolled(&self) -> bool {
        if self.channel.is_none() || self.is_empty() {
            return false;
        }
        let mut writer = self.lock();
        let ring = writer.ring();
        let is_due = ring.armed == Some(ArmKind::Next)
            && !ring.entries.is_empty()
            && !ring.coalescing.has_deadline();
        if is_due {
            writer.send_event();
        }
        is_due
    }

    /// Records that the program polled the queue until it was empty, for
    /// [`notify_missed`](Self::notify_missed).
    pub fn note_found_empty(&self) {
        if self.channel.is_some() && !self.found_empty.load(Ordering::Relaxed) {
            self.found_empty.store(true, Ordering::Relaxed);
        }
    }

    /// Sends the requested event if completions came after the program found the queue empty, and
    /// no event reported them. Called after an arm for the next completion. Returns whether it sent
    /// the event.
    ///
    /// This is for a program that polls until the queue is empty, arms it and sleeps. A program
    /// that takes an event, arms the queue and then polls gets no extra event for the completions
    /// that it polls next.
    ///
    /// If an event is sent while the program finds the queue empty, there may be an extra event.
    pub fn notify_missed(&self) -> bool {
        self.was_found_empty() && self.notify_unpolled()
    }

    /// Returns whether the program has found the queue empty since its last event.
    pub fn was_found_empty(&self) -> bool {
        self.found_empty.load(Ordering::Relaxed)
    }

    /// Returns the moderation of events.
    #[must_use]
    pub fn moderation(&self) -> Moderation {
        lock(&self.ring).coalescing.moderation()
    }

    /// Changes the moderation of events (`ibv_modify_cq`). It applies to completions that were not
    /// reported yet, too.
    ///
    /// # Errors
    /// Fails with [`CqError::Destroyed`].
    pub fn moderate(self: &Arc<Self>, moderation: Moderation) -> Result<(), CqError> {
        if self.users.load(Ordering::Acquire) == DESTROYED {
            return Err(CqError::Destroyed);
        }
        self.moderation_timers.add(self);
        self.update_coalescing(|coalescing| coalescing.change(moderation));
        Ok(())
    }

    /// Handles the timer that was set for `entry`, at `now`.
    pub(super) fn on_timer(&self, entry: Time, now: Time) {
        self.update_coalescing(|coalescing| coalescing.on_timer(entry, now));
    }

    /// Applies `change`. If it returns that the event is due, sends the event.
    fn update_coalescing(&self, change: impl FnOnce(&mut Coalescing) -> bool) {
        let mut writer = self.lock();
        if change(&mut writer.ring().coalescing) {
            writer.send_event();
        }
        writer.timer_at = writer.ring().coalescing.next_timer();
    }

    /// Changes the number of entries to `capacity` (`ibv_resize_cq`), and returns it. The
    /// completions stay.
    ///
    /// # Errors
    /// Fails with [`CqError::Capacity`], [`CqError::TooSmall`] or [`CqError::NoMemory`]; the queue
    /// is unchanged then.
    pub fn resize(&self, capacity: u32) -> Result<u32, CqError> {
        // Allocated before the lock is taken, so that no data path waits.
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

    /// Returns the number of work queues that report to this queue.
    #[must_use]
    pub fn users(&self) -> u32 {
        match self.users.load(Ordering::Acquire) {
            DESTROYED => 0,
            users => users,
        }
    }

    /// Destroys the queue (`ibv_destroy_cq`). Withdraws its events, and waits until the events that
    /// the program took are acknowledged.
    ///
    /// # Errors
    /// Fails with [`CqError::Busy`] while a work queue reports to this queue, and with
    /// [`CqError::Destroyed`] the second time.
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

    /// Destroys the queue like [`destroy`](Self::destroy), without waiting for acknowledgements. It
    /// is for queues whose context is closed.
    ///
    /// # Errors
    /// As [`destroy`](Self::destroy).
    pub fn destroy_without_wait(&self) -> Result<(), CqError> {
        self.mark_destroyed()?;
        self.detach();
        Ok(())
    }

    /// Marks the queue as destroyed: there will be no more users.
    fn mark_destroyed(&self) -> Result<(), CqError> {
        match self.users.compare_exchange(0, DESTROYED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // All work queues are gone, but a thread may hold a batched lock and send an event.
                // That is brief, because such a thread waits for nothing.
                while self.batch_locks.load(Ordering::Acquire) != 0 {
                    yield_now();
                }
                Ok(())
            }
            Err(DESTROYED) => Err(CqError::Destroyed),
            Err(users) => Err(CqError::Busy { users }),
        }
    }

    /// Removes the queue from its channel and withdraws its events, without waiting.
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

/// A work queue's reference to its completion queue. A queue with references cannot be destroyed.
#[derive(Debug)]
pub struct CqRef(Arc<Cq>);

impl CqRef {
    /// Adds one user.
    ///
    /// # Errors
    /// Fails with [`CqError::Destroyed`].
    pub fn new(cq: Arc<Cq>) -> Result<Self, CqError> {
        let more = |users: u32| users.checked_add(1).filter(|&users| users != DESTROYED);
        match cq.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Self(cq)),
            Err(_) => Err(CqError::Destroyed),
        }
    }

    /// Returns the queue.
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

/// The number of completion queues of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct CqQuota(Arc<AtomicU32>);

impl CqQuota {
    /// Takes a unit if fewer than `allowed` are taken.
    pub fn take(&self, allowed: u32) -> Option<QuotaUnit> {
        let more = |taken| (taken < allowed).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(QuotaUnit(self.clone()))
    }

    /// Returns the number of units that are taken.
    pub fn taken(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The unit of one completion queue, returned at its drop.
#[derive(Debug)]
pub(crate) struct QuotaUnit(CqQuota);

impl Drop for QuotaUnit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reserves room for `capacity` completions.
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
