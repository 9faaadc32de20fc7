//! Shared receive queues (`struct ibv_srq`): receives for the messages of many queue pairs.
//!
//! Invariants:
//!
//! - A queue pair takes an entry at the first packet of a message, under the lock of the SRQ. The
//!   entry then belongs to the queue pair, and completes or is flushed there. Entries that were not
//!   taken stay, whatever happens to queue pairs.
//! - Taking and posting allocate nothing.
//! - The limit is one shot. When a take leaves fewer entries than the armed limit, one event is
//!   raised and the limit becomes 0 (`ibv_modify_srq`; IBTA vol. 1, 10.2.9.1). If the queue holds
//!   fewer entries than the limit at that time, the next take raises the event, as in `rdma_rxe`.
//! - The local keys of entries are checked against the protection domain of the SRQ, which may
//!   differ from that of the queue pair.
//!
//! An SRQ of an XRC domain has a completion queue, because its queue pairs have none. Packets name
//! the SRQ by its number. The SRQ may be destroyed while queue pairs hold receives of it; those
//! never complete.
//!
//! Lock order: queue pair before SRQ before completion queue.
//!
//! | file | subject |
//! |---|---|
//! | `ring` | the ring of receives |
//! | [`xrcd`] | XRC domains |
//! | [`error`] | the errors of calls |

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
use urxe_types::allocate::OutOfMemory;
use urxe_types::counters::{Counter, Counters};
use urxe_types::sync::atomic::{AtomicU32, Ordering};
use urxe_types::sync::{Arc, Mutex, lock};
use urxe_types::work_request::{PostError, RecvRequest, Sge};

/// The sizes of a shared receive queue (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SrqAttr {
    /// The number of receives that the queue can hold, at least 1.
    pub max_wr: u32,
    /// The most scatter-gather entries of a receive.
    pub max_sge: u32,
    /// The limit: one event is raised when the queue holds fewer receives. 0 for no event.
    pub srq_limit: u32,
}

bitflags::bitflags! {
    /// The attributes that a call sets (`enum ibv_srq_attr_mask`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SrqAttrMask: u32 {
        /// `max_wr`: the call resizes the queue.
        const MAX_WR = 1;
        /// `srq_limit`: the call arms the limit.
        const LIMIT = 1 << 1;
    }
}

/// The properties of a shared receive queue.
#[derive(Clone, Debug)]
pub struct SrqInit {
    /// The protection domain of the buffers.
    pub pd: PdId,
    /// The sizes.
    pub attr: SrqAttr,
    /// The XRC domain and completion queue of an XRC shared receive queue. Only target queue pairs
    /// take from such a queue.
    pub xrc: Option<XrcSrqInit>,
    /// The program's value (`srq_context`).
    pub context: u64,
}

/// The additional properties of an XRC shared receive queue.
#[derive(Clone, Debug)]
pub struct XrcSrqInit {
    /// The XRC domain.
    pub xrcd: Arc<Xrcd>,
    /// The completion queue of its receives.
    pub cq: Arc<Cq>,
}

/// References to the domain and the completion queue of an XRC shared receive queue.
#[derive(Debug)]
pub(crate) struct XrcPart {
    pub xrcd: XrcdRef,
    pub cq: CqRef,
}

/// What a device passes to a new shared receive queue.
pub(crate) struct SrqResources {
    pub id: SrqId,
    /// The protection domain of the queue. `SrqInit::pd` may name a parent.
    pub pd: PdId,
    pub max_wr: u32,
    pub events: Arc<AsyncEvents>,
    pub counters: Arc<Counters>,
}

/// The number of users of a destroyed queue.
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
    /// The protection domain named at creation: `pd` or one of its parent domains.
    created_with_pd: PdId,
    context: u64,
    max_sge: u32,
    /// The most entries that the device allows.
    max_wr: u32,
    is_xrc: bool,
    events: Arc<AsyncEvents>,
    counters: Arc<Counters>,
    users: AtomicU32,
    state: Mutex<State>,
}

impl Srq {
    /// Makes a shared receive queue. The caller has checked the sizes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn new(
        init: &SrqInit,
        xrc: Option<XrcPart>,
        resources: SrqResources,
    ) -> Result<Self, OutOfMemory> {
        let SrqResources { id, pd, max_wr, events, counters } = resources;
        let SrqAttr { max_wr: entries, max_sge, srq_limit: limit } = init.attr;
        Ok(Self {
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
                ring: RecvRing::new(entries, max_sge)?,
                limit,
                destroyed: false,
                xrc,
            }),
        })
    }

    /// Returns the number of the queue within its device.
    #[must_use]
    pub const fn id(&self) -> SrqId {
        self.id
    }

    /// Returns the protection domain of the buffers.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns the protection domain named at creation, which may be a parent domain.
    pub(crate) const fn created_with_pd(&self) -> PdId {
        self.created_with_pd
    }

    /// Returns the program's value.
    #[must_use]
    pub const fn context(&self) -> u64 {
        self.context
    }

    /// Returns whether the queue belongs to an XRC domain.
    #[must_use]
    pub const fn is_xrc(&self) -> bool {
        self.is_xrc
    }

    /// Returns whether the queue belongs to this XRC domain and is not destroyed.
    pub(crate) fn is_in(&self, xrcd: &XrcdRef) -> bool {
        lock(&self.state).xrc.as_ref().is_some_and(|xrc| xrc.xrcd.holds(xrcd))
    }

    /// Returns whether the queue is destroyed. Takes no lock.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.users.load(Ordering::Acquire) == DESTROYED
    }

    /// Completes a receive that was taken from this XRC shared receive queue.
    pub(crate) fn complete(&self, completion: Completion, solicited: bool) -> Result<(), CqError> {
        let state = lock(&self.state);
        state.xrc.as_ref().map_or(Ok(()), |xrc| xrc.cq.push(completion, solicited))
    }

    /// Returns the most scatter-gather entries of a receive.
    #[must_use]
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Returns the sizes, and the armed limit (`ibv_query_srq`).
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        let state = lock(&self.state);
        SrqAttr { max_wr: state.ring.capacity(), max_sge: self.max_sge, srq_limit: state.limit }
    }

    /// Returns the number of receives that were posted and not taken.
    #[must_use]
    pub fn len(&self) -> u32 {
        lock(&self.state).ring.len()
    }

    /// Returns whether there is no receive to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of queue pairs that take from this queue.
    #[must_use]
    pub fn users(&self) -> u32 {
        match self.users.load(Ordering::Acquire) {
            DESTROYED => 0,
            users => users,
        }
    }

    /// Returns whether the queue belongs to the device of these events.
    pub(crate) fn is_of(&self, events: &Arc<AsyncEvents>) -> bool {
        Arc::ptr_eq(&self.events, events)
    }

    /// Resizes the queue, arms its limit, or both (`ibv_modify_srq`). The receives stay.
    ///
    /// # Errors
    /// Fails with [`ModifySrqError`]; nothing was changed.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<(), ModifySrqError> {
        let unknown = mask.bits() & !SrqAttrMask::all().bits();
        if unknown != 0 {
            return Err(ModifySrqError::Mask { given: unknown });
        }
        let resize = mask.contains(SrqAttrMask::MAX_WR);
        // Allocated before the lock is taken, so that no data path waits.
        let mut larger = if resize {
            error::check_size("max_wr", attr.max_wr, 1, self.max_wr)?;
            Some(RecvRing::new(attr.max_wr, self.max_sge)?)
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

    /// Posts receives in order. Any thread may post.
    ///
    /// # Errors
    /// Fails with the index of the first request that is refused, and the reason. The requests
    /// before it are posted.
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

    /// Takes the oldest receive. Its scatter-gather entries are copied to the front of `sges`.
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

    /// Destroys the queue. Its receives never complete.
    pub(crate) fn destroy(&self) -> Result<(), DestroySrqError> {
        match self.users.compare_exchange(0, DESTROYED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(DESTROYED) => return Err(DestroySrqError::NoSrq),
            Err(users) => return Err(DestroySrqError::Busy { users }),
        }
        let mut state = lock(&self.state);
        state.destroyed = true;
        let former = (std::mem::replace(&mut state.ring, RecvRing::none()), state.xrc.take());
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

/// A queue pair's reference to its shared receive queue. A queue with references cannot be
/// destroyed.
#[derive(Debug)]
pub struct SrqRef(Arc<Srq>);

impl SrqRef {
    /// Adds one user.
    ///
    /// # Errors
    /// Fails with [`SrqError::Destroyed`].
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

/// The table of a device's shared receive queues, by number.
pub(crate) struct SrqTable(SlotTable<Mutex<Option<Arc<Srq>>>>);

impl SrqTable {
    pub const fn new() -> Self {
        Self(SlotTable::new())
    }

    /// Returns the shared receive queue with this number, if `xrcd` has it.
    pub fn find(&self, id: SrqId, xrcd: &XrcdRef) -> Option<Arc<Srq>> {
        let srq = lock(self.at(id)?).clone()?;
        (srq.id() == id && srq.is_in(xrcd)).then_some(srq)
    }

    /// Returns the slot of a number, if there is one.
    pub fn at(&self, id: SrqId) -> Option<&Mutex<Option<Arc<Srq>>>> {
        self.0.at(index_of(id))
    }

    /// Returns the slot of a number, made if needed.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn place(&self, id: SrqId) -> Result<Option<&Mutex<Option<Arc<Srq>>>>, OutOfMemory> {
        self.0.ensure(index_of(id), |_| Mutex::new(None))
    }
}

/// The bits of a number that are the index. The other bits of its 24 count the uses of the index.
pub(crate) const INDEX_BITS: u32 = 16;
/// The most shared receive queues of a device.
pub(crate) const MAX_SRQS: u32 = 1 << INDEX_BITS;
/// The number of uses of an index before its numbers repeat.
pub(crate) const GENERATIONS: u32 = 1 << (24 - INDEX_BITS);

fn index_of(id: SrqId) -> u32 {
    id.0 & (MAX_SRQS - 1)
}

#[cfg(all(test, not(loom)))]
mod tests;
