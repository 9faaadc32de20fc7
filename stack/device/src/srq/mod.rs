//! Shared receive queues (`struct ibv_srq`): receives that the messages of many queue pairs take
//! from.
//!
//! Invariants
//! - An entry is taken by one queue pair, at the first packet of a message, under the queue's own
//!   lock. What was taken belongs to that queue pair: it completes there, or is flushed there. What
//!   was not taken stays, whatever becomes of queue pairs.
//! - Taking and posting allocate nothing.
//! - The limit is one shot: when a take leaves fewer entries than the armed limit, one event tells
//!   it and the limit is 0 again (`ibv_modify_srq`; IBTA vol. 1, 10.2.9.1). Like `rdma_rxe`, arming
//!   a limit that is undercut already tells it at the next take.
//! - Local keys of its entries are checked against the queue's own protection domain, which may be
//!   another than the queue pair's.
//!
//! A shared receive queue of an XRC domain has a completion queue of its own: queue pairs that take
//! from it have none. It is found by its number, which packets carry, and may be destroyed while
//! queue pairs hold receives of it: those then complete nowhere.
//!
//! Lock order: queue pair before shared receive queue before completion queue.
//!
//! | file | subject |
//! |---|---|
//! | `ring` | the entries |
//! | [`xrcd`] | the domains of XRC |
//! | [`error`] | why a call was refused |

pub mod error;
pub(crate) mod ring;
pub mod xrcd;

use std::fmt;
use std::ops::Deref;

use self::error::{DestroySrqError, ModifySrqError, SrqError};
use self::ring::{RecvRing, RecvWqe};
use self::xrcd::{Xrcd, XrcdRef};
use crate::cq::{AsyncEvent, AsyncEvents, Completion, Cq, CqError, CqRef, SrqEventType, SrqId};
use crate::slot_table::SlotTable;
use urxe_memory::PdId;
use urxe_types::counters::{Counter, Counters};
use urxe_types::sync::atomic::{AtomicU32, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::work_request::{PostError, RecvRequest, Sge};

/// Sizes of a shared receive queue (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttr {
    /// Receives that it holds, at least 1.
    pub max_wr: u32,
    /// Scatter-gather entries of each.
    pub max_sge: u32,
    /// Below so many receives an event tells it, once; 0 for never.
    pub srq_limit: u32,
}

bitflags::bitflags! {
    /// Which attributes a call means (`enum ibv_srq_attr_mask`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SrqAttrMask: u32 {
        /// `max_wr`: the queue is resized.
        const MAX_WR = 1;
        /// `srq_limit`: the limit is armed.
        const LIMIT = 1 << 1;
    }
}

/// What a shared receive queue is made of.
#[derive(Clone, Debug)]
pub struct SrqInit {
    /// Protection domain of its buffers.
    pub pd: PdId,
    /// Its sizes.
    pub attr: SrqAttr,
    /// What makes it one of an XRC domain, for target queue pairs alone.
    pub xrc: Option<XrcSrqInit>,
    /// The program's own value (`srq_context`).
    pub context: u64,
}

/// What a shared receive queue of an XRC domain has besides.
#[derive(Clone, Debug)]
pub struct XrcSrqInit {
    /// Its domain.
    pub xrcd: Arc<Xrcd>,
    /// Where its receives complete.
    pub cq: Arc<Cq>,
}

/// The same, held.
#[derive(Debug)]
pub(crate) struct XrcPart {
    pub xrcd: XrcdRef,
    pub cq: CqRef,
}

/// What a device gives each of its shared receive queues.
pub(crate) struct SrqResources {
    pub id: SrqId,
    /// The protection domain that the queue is made in, or of whose parent domain.
    pub pd: PdId,
    pub max_wr: u32,
    pub events: Arc<AsyncEvents>,
    pub counters: Arc<Counters>,
}

/// Value of the user count of a destroyed queue.
const DESTROYED: u32 = u32::MAX;

#[derive(Debug)]
struct State {
    ring: RecvRing,
    limit: u32,
    destroyed: bool,
    xrc: Option<XrcPart>,
}

/// A shared receive queue.
pub struct Srq {
    id: SrqId,
    pd: PdId,
    /// That domain, or a parent domain of it.
    created_with_pd: PdId,
    context: u64,
    max_sge: u32,
    /// Entries that the device allows at most.
    max_wr: u32,
    is_xrc: bool,
    events: Arc<AsyncEvents>,
    counters: Arc<Counters>,
    users: AtomicU32,
    state: Mutex<State>,
}

impl Srq {
    /// The device compared the sizes with its limits.
    pub(crate) fn new(init: &SrqInit, xrc: Option<XrcPart>, resources: SrqResources) -> Self {
        let SrqResources { id, pd, max_wr, events, counters } = resources;
        let SrqAttr { max_wr: entries, max_sge, srq_limit: limit } = init.attr;
        Self {
            id,
            pd,
            created_with_pd: init.pd,
            context: init.context,
            max_sge,
            max_wr,
            is_xrc: xrc.is_some(),
            events,
            counters,
            users: AtomicU32::new(0),
            state: Mutex::new(State {
                ring: RecvRing::new(entries, max_sge),
                limit,
                destroyed: false,
                xrc,
            }),
        }
    }

    /// Its number within its device.
    #[must_use]
    pub const fn id(&self) -> SrqId {
        self.id
    }

    /// The protection domain of its buffers.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// That domain, or the parent domain of it that the queue was made with.
    pub(crate) const fn created_with_pd(&self) -> PdId {
        self.created_with_pd
    }

    /// The program's own value.
    #[must_use]
    pub const fn context(&self) -> u64 {
        self.context
    }

    /// Whether it is of an XRC domain.
    #[must_use]
    pub const fn is_xrc(&self) -> bool {
        self.is_xrc
    }

    /// Whether it is of this XRC domain and not destroyed.
    pub(crate) fn is_in(&self, xrcd: &XrcdRef) -> bool {
        lock(&self.state).xrc.as_ref().is_some_and(|xrc| xrc.xrcd.is(xrcd))
    }

    /// Whether it is gone, read without the lock.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.users.load(Ordering::Acquire) == DESTROYED
    }

    /// Completes a receive that was taken from this queue of an XRC domain.
    pub(crate) fn complete(&self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let state = lock(&self.state);
        state.xrc.as_ref().map_or(Ok(()), |xrc| xrc.cq.push(completion, solicited))
    }

    /// Scatter-gather entries of a receive, at most.
    #[must_use]
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Its sizes, and the limit as it is armed now (`ibv_query_srq`).
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        let state = lock(&self.state);
        SrqAttr { max_wr: state.ring.capacity(), max_sge: self.max_sge, srq_limit: state.limit }
    }

    /// How many receives are posted and not taken.
    #[must_use]
    pub fn len(&self) -> u32 {
        lock(&self.state).ring.len()
    }

    /// Whether no receive is left to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many queue pairs take from it.
    #[must_use]
    pub fn users(&self) -> u32 {
        match self.users.load(Ordering::Acquire) {
            DESTROYED => 0,
            users => users,
        }
    }

    /// Whether it is of the device whose events these are.
    pub(crate) fn is_of(&self, events: &Arc<AsyncEvents>) -> bool {
        Arc::ptr_eq(&self.events, events)
    }

    /// Resizes it, arms its limit, or both (`ibv_modify_srq`). What it holds stays.
    ///
    /// # Errors
    /// [`ModifySrqError`]; nothing was changed.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<(), ModifySrqError> {
        let unknown = mask.bits() & !SrqAttrMask::all().bits();
        if unknown != 0 {
            return Err(ModifySrqError::Mask { given: unknown });
        }
        let resize = mask.contains(SrqAttrMask::MAX_WR);
        // Allocated before the lock is taken, so that no data path waits for it.
        let mut larger = if resize {
            error::check_size("max_wr", attr.max_wr, 1, self.max_wr)?;
            Some(RecvRing::new(attr.max_wr, self.max_sge))
        } else {
            None
        };
        let mut state = lock(&self.state);
        if state.destroyed {
            return Err(ModifySrqError::NoSrq);
        }
        let entries = if resize { attr.max_wr } else { state.ring.capacity() };
        let limit = if mask.contains(SrqAttrMask::LIMIT) { attr.srq_limit } else { state.limit };
        if state.ring.len() > entries {
            return Err(ModifySrqError::Holds { given: entries, held: state.ring.len() });
        }
        if limit > entries {
            return Err(ModifySrqError::Limit { given: limit, max_wr: entries });
        }
        state.limit = limit;
        if let Some(larger) = &mut larger {
            state.ring.move_to(larger);
            std::mem::swap(&mut state.ring, larger);
        }
        drop(state);
        Ok(())
    }

    /// Posts receives, in order, up to the first that is refused. From any thread.
    ///
    /// # Errors
    /// The index of the first request that was refused, and why; those before it were taken.
    pub fn post(&self, requests: &[RecvRequest<'_>]) -> Result<(), (usize, PostError)> {
        let mut state = lock(&self.state);
        if state.destroyed {
            return Err((0, PostError::NoSrq));
        }
        for (index, request) in requests.iter().enumerate() {
            state.ring.push(request).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Takes the oldest receive; its scatter-gather entries go to the front of `sges`.
    pub(crate) fn take(&self, sges: &mut [Sge]) -> Option<RecvWqe> {
        let mut state = lock(&self.state);
        let Some((wqe, from)) = state.ring.front() else {
            drop(state);
            self.counters.add(Counter::SrqEmpty);
            return None;
        };
        sges[..from.len()].copy_from_slice(from);
        let wqe = *wqe;
        state.ring.pop();
        let reached = state.ring.len() < state.limit;
        if reached {
            state.limit = 0;
        }
        drop(state);
        if reached {
            self.events.push(AsyncEvent::Srq(SrqEventType::SrqLimitReached, self.id));
        }
        Some(wqe)
    }

    /// Ends its life: what it holds completes nowhere.
    pub(crate) fn destroy(&self) -> Result<(), DestroySrqError> {
        match self.users.compare_exchange(0, DESTROYED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(DESTROYED) => return Err(DestroySrqError::NoSrq),
            Err(users) => return Err(DestroySrqError::Busy { users }),
        }
        let mut state = lock(&self.state);
        state.destroyed = true;
        let former = (std::mem::replace(&mut state.ring, RecvRing::new(0, 0)), state.xrc.take());
        drop(state);
        drop(former);
        Ok(())
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("id", &self.id)
            .field("len", &self.len())
            .field("users", &self.users())
            .finish_non_exhaustive()
    }
}

/// A queue pair's hold on the shared receive queue that it takes from: the queue is not destroyed
/// while there is one.
#[derive(Debug)]
pub struct SrqRef(Arc<Srq>);

impl SrqRef {
    /// Counts one more user.
    ///
    /// # Errors
    /// [`SrqError::Destroyed`].
    pub fn new(srq: Arc<Srq>) -> Result<Self, SrqError> {
        let more = |users: u32| users.checked_add(1).filter(|&users| users != DESTROYED);
        match srq.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Self(srq)),
            Err(_) => Err(SrqError::Destroyed),
        }
    }
}

impl Deref for SrqRef {
    type Target = Srq;

    fn deref(&self) -> &Srq {
        &self.0
    }
}

impl Drop for SrqRef {
    fn drop(&mut self) {
        let users = self.0.users.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(users != 0 && users != DESTROYED, "a queue with users is not destroyed");
    }
}

/// The shared receive queues of a device.
pub(crate) struct SrqTable(SlotTable<Mutex<Option<Arc<Srq>>>>);

impl SrqTable {
    pub const fn new() -> Self {
        Self(SlotTable::new())
    }

    /// Returns the shared receive queue of that number, if `xrcd` has it.
    pub fn find(&self, id: SrqId, xrcd: &XrcdRef) -> Option<Arc<Srq>> {
        let srq = lock(self.at(id)?).clone()?;
        (srq.id() == id && srq.is_in(xrcd)).then_some(srq)
    }

    /// Returns the place of a number, if one was ever made.
    pub fn at(&self, id: SrqId) -> Option<&Mutex<Option<Arc<Srq>>>> {
        self.0.at(index_of(id))
    }

    /// Returns the place of a number, made when there is none yet.
    pub fn place(&self, id: SrqId) -> Option<&Mutex<Option<Arc<Srq>>>> {
        self.0.ensure(index_of(id), |_| Mutex::new(None))
    }
}

/// Bits of a number that are the index; the rest of its 24 bits count how often the index was used.
pub(crate) const INDEX_BITS: u32 = 16;
/// The most shared receive queues of a device.
pub(crate) const MAX_SRQS: u32 = 1 << INDEX_BITS;
/// How often an index is used before its numbers begin anew.
pub(crate) const GENERATIONS: u32 = 1 << (24 - INDEX_BITS);

fn index_of(id: SrqId) -> u32 {
    id.0 & (MAX_SRQS - 1)
}

#[cfg(all(test, not(loom)))]
mod tests;
