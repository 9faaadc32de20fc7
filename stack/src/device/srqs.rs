//! Creating and destroying shared receive queues, and finding one by its number.

use super::{Control, Device, release_srq_of};
use crate::cq::{EventObject, SrqId};
use crate::srq::error::{CreateSrqError, DestroySrqError, SrqError, check_size};
use crate::srq::{Srq, SrqInit, SrqRef, Surroundings};
use crate::sync::{Arc, Mutex, lock};

/// The place of a shared receive queue in the device's table.
pub(super) type SrqSlot = Mutex<Option<Arc<Srq>>>;

/// Bits of a number that are the index; the rest of its 24 bits count how often the index was used.
const INDEX_BITS: u32 = 16;
/// The most shared receive queues of a device.
pub(super) const MAX_SRQS: u32 = 1 << INDEX_BITS;
const GENERATIONS: u32 = 1 << (24 - INDEX_BITS);

fn index_of(id: SrqId) -> u32 {
    id.0 & (MAX_SRQS - 1)
}

impl Device {
    /// Makes a shared receive queue (`ibv_create_srq`). Its sizes come back in [`Srq::query`].
    ///
    /// # Errors
    /// [`CreateSrqError`].
    pub fn create_srq(&self, init: &SrqInit) -> Result<Arc<Srq>, CreateSrqError> {
        let limits = &self.limits;
        check_size("max_wr", init.attr.max_wr, 1, limits.max_srq_wr)?;
        check_size("max_sge", init.attr.max_sge, 0, limits.max_srq_sge)?;
        check_size("srq_limit", init.attr.srq_limit, 0, init.attr.max_wr)?;
        let mut control = lock(&self.control);
        let pd = control.pds.get_mut(&init.pd).ok_or(CreateSrqError::NoPd)?;
        pd.srqs += 1;
        let none_left = CreateSrqError::NoneLeft { allowed: limits.max_srq };
        let Some(id) = self.take_srq_number(&mut control) else {
            release_srq_of(&mut control, init.pd);
            return Err(none_left);
        };
        drop(control);
        let slot = self.srqs.ensure(index_of(id), |_| Mutex::new(None)).ok_or(none_left)?;
        let around = Surroundings {
            id,
            max_wr: limits.max_srq_wr,
            events: Arc::clone(&self.events),
            counters: Arc::clone(&self.counters),
        };
        let srq = Arc::new(Srq::new(init, around));
        *lock(slot) = Some(Arc::clone(&srq));
        Ok(srq)
    }

    fn take_srq_number(&self, control: &mut Control) -> Option<SrqId> {
        if let Some(id) = control.free_srqs.pop() {
            return Some(id);
        }
        if control.fresh_srq == self.limits.max_srq {
            return None;
        }
        control.fresh_srq += 1;
        Some(SrqId(control.fresh_srq - 1))
    }

    /// One more queue pair takes from `srq`.
    pub(super) fn use_srq(&self, srq: &Arc<Srq>) -> Result<SrqRef, SrqError> {
        if !srq.is_of(&self.events) {
            return Err(SrqError::OtherDevice { given: srq.id() });
        }
        SrqRef::new(Arc::clone(srq))
    }

    /// Destroys a shared receive queue that no queue pair takes from any more: the receives in it complete nowhere. Waits until the
    /// events about it that were taken are acknowledged.
    ///
    /// # Errors
    /// [`DestroySrqError`].
    pub fn destroy_srq(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        self.remove_srq(srq)?;
        self.events.retire(EventObject::Srq(srq.id()));
        Ok(())
    }

    /// Destroys a shared receive queue without waiting for acknowledgements, as when its owner goes away.
    ///
    /// # Errors
    /// [`DestroySrqError`].
    pub fn forget_srq(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        self.remove_srq(srq)?;
        self.events.forget(EventObject::Srq(srq.id()));
        Ok(())
    }

    fn remove_srq(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        let slot = self.srqs.at(index_of(srq.id())).ok_or(DestroySrqError::NoSrq)?;
        let mut guard = lock(slot);
        if !guard.as_ref().is_some_and(|own| std::ptr::eq(&raw const **own, srq)) {
            return Err(DestroySrqError::NoSrq);
        }
        srq.destroy()?;
        *guard = None;
        drop(guard);
        let mut control = lock(&self.control);
        release_srq_of(&mut control, srq.pd());
        let id = srq.id().0;
        let generation = ((id >> INDEX_BITS) + 1) % GENERATIONS;
        control.free_srqs.push(SrqId(generation << INDEX_BITS | (id & (MAX_SRQS - 1))));
        Ok(())
    }
}
