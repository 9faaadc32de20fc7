//! Creating and destroying shared receive queues and XRC domains.

use super::{Control, Device};
use crate::cq::{CqRef, EventObject, SrqId};
use crate::srq::error::{CreateSrqError, DestroySrqError, SrqError, check_size};
use crate::srq::xrcd::{
    Claim, CloseXrcdError, Inode, OpenXrcdError, Xrcd, XrcdError, XrcdFlags, XrcdRef,
};
use crate::srq::{GENERATIONS, INDEX_BITS, MAX_SRQS};
use crate::srq::{Srq, SrqInit, SrqRef, SrqResources, XrcPart};
use urxe_types::sync::{Arc, lock};

impl Device {
    /// Creates a shared receive queue (`ibv_create_srq`). [`Srq::query`] returns its sizes.
    ///
    /// # Errors
    /// [`CreateSrqError`].
    pub fn create_srq(&self, init: &SrqInit) -> Result<Arc<Srq>, CreateSrqError> {
        let limits = &self.limits;
        check_size("max_wr", init.attr.max_wr, 1, limits.max_srq_wr)?;
        check_size("max_sge", init.attr.max_sge, 0, limits.max_srq_sge)?;
        check_size("srq_limit", init.attr.srq_limit, 0, init.attr.max_wr)?;
        let cq = init.xrc.as_ref().map(|xrc| CqRef::new(Arc::clone(&xrc.cq))).transpose()?;
        let mut control = lock(&self.control);
        let xrcd =
            init.xrc.as_ref().map(|xrc| self.use_xrcd(&mut control, &xrc.xrcd)).transpose()?;
        let pd = control.base_of(init.pd).ok_or(CreateSrqError::NoPd)?;
        let none_left = || CreateSrqError::NoneLeft { allowed: limits.max_srq };
        let id = control.free_srqs.take(limits.max_srq, SrqId)?.ok_or_else(none_left)?;
        control.count(init.pd, |domain| &mut domain.srqs, 1);
        drop(control);
        let resources = SrqResources {
            id,
            pd,
            max_wr: limits.max_srq_wr,
            events: Arc::clone(&self.events),
            counters: Arc::clone(&self.counters),
        };
        let xrc = xrcd.zip(cq).map(|(xrcd, cq)| XrcPart { xrcd, cq });
        let placed = self.place_srq(init, xrc, resources);
        if placed.is_err() {
            let mut control = lock(&self.control);
            control.count(init.pd, |domain| &mut domain.srqs, -1);
            control.free_srqs.put(id);
        }
        placed
    }

    fn place_srq(
        &self,
        init: &SrqInit,
        xrc: Option<XrcPart>,
        resources: SrqResources,
    ) -> Result<Arc<Srq>, CreateSrqError> {
        let allowed = self.limits.max_srq;
        let slot = self.srqs.place(resources.id)?.ok_or(CreateSrqError::NoneLeft { allowed })?;
        let srq = Arc::new(Srq::new(init, xrc, resources)?);
        *lock(slot) = Some(Arc::clone(&srq));
        Ok(srq)
    }

    /// Counts one more queue pair that takes receives from `srq`.
    pub(super) fn use_srq(&self, srq: &Arc<Srq>) -> Result<SrqRef, SrqError> {
        if !srq.is_of(&self.events) {
            return Err(SrqError::OtherDevice { given: srq.id() });
        }
        if srq.is_xrc() {
            return Err(SrqError::Xrc { given: srq.id() });
        }
        SrqRef::new(Arc::clone(srq))
    }

    /// Opens an XRC domain (`ibv_open_xrcd`). All calls of this process that name a file share the
    /// file's domain. Without a file, each call makes a domain of its own.
    ///
    /// `claim` is called when a file's domain is made. The call claims the file among the processes
    /// of the host. If another process has a domain of the file, then
    ///
    /// - a call without [`XrcdFlags::CREATE`] fails, because queues of another process cannot be
    ///   reached,
    /// - a call with [`XrcdFlags::EXCLUSIVE`] fails,
    /// - any other call makes a domain of its own for this process.
    ///
    /// # Errors
    /// [`OpenXrcdError`].
    pub fn open_xrcd(
        &self,
        inode: Option<Inode>,
        flags: XrcdFlags,
        claim: impl FnOnce(Inode) -> Result<Option<Claim>, OpenXrcdError>,
    ) -> Result<Arc<Xrcd>, OpenXrcdError> {
        let mut control = lock(&self.control);
        let found =
            inode.and_then(|inode| control.xrcds.iter().find(|xrcd| xrcd.inode() == Some(inode)));
        match (found, inode) {
            (Some(_), Some(given)) if flags.contains(XrcdFlags::EXCLUSIVE) => {
                return Err(OpenXrcdError::Exists { given });
            }
            (Some(xrcd), _) => {
                xrcd.open_again();
                return Ok(Arc::clone(xrcd));
            }
            (None, _) if flags.contains(XrcdFlags::CREATE) => {}
            (None, None) => return Err(OpenXrcdError::NoFile),
            (None, Some(given)) => {
                // If another process has the domain, `claim` fails with that reason.
                claim(given)?;
                return Err(OpenXrcdError::NotThere { given });
            }
        }
        if control.xrcds.len() >= self.limits.max_xrcd as usize {
            return Err(OpenXrcdError::NoneLeft { allowed: self.limits.max_xrcd });
        }
        let claim = match inode.map(claim) {
            // The ends of ibv_xsrq_pingpong make one domain each and do not use the other's.
            Some(Err(OpenXrcdError::OtherProcess { given }))
                if !flags.contains(XrcdFlags::EXCLUSIVE) =>
            {
                tracing::warn!(
                    inode = given.number,
                    "another process has an XRC domain of this file; this process gets a separate \
                     one without the other's queues"
                );
                None
            }
            claim => claim.transpose()?.flatten(),
        };
        let xrcd = Arc::new(Xrcd::new(inode, Arc::clone(&self.events), claim));
        control.xrcds.push(Arc::clone(&xrcd));
        Ok(xrcd)
    }

    /// Closes an XRC domain once (`ibv_close_xrcd`). The domain ends when closed as often as
    /// opened.
    ///
    /// # Errors
    /// [`CloseXrcdError`]. The last close fails while the domain has users.
    pub fn close_xrcd(&self, xrcd: &Arc<Xrcd>) -> Result<(), CloseXrcdError> {
        let mut control = lock(&self.control);
        if !xrcd.is_of(&self.events) {
            return Err(CloseXrcdError::NoXrcd);
        }
        if xrcd.close()? {
            control.xrcds.retain(|other| !Arc::ptr_eq(other, xrcd));
        }
        Ok(())
    }

    /// Counts one more user of `xrcd`. Takes the control lock as an argument, because domains are
    /// closed under it.
    pub(super) fn use_xrcd(
        &self,
        _control: &mut Control,
        xrcd: &Arc<Xrcd>,
    ) -> Result<XrcdRef, XrcdError> {
        if !xrcd.is_of(&self.events) {
            return Err(XrcdError::OtherDevice);
        }
        XrcdRef::new(Arc::clone(xrcd))
    }

    /// Destroys a shared receive queue that no queue pair uses. Its receives do not complete. Waits
    /// until the program has acknowledged the events of the queue that it took.
    ///
    /// # Errors
    /// [`DestroySrqError`].
    pub fn destroy_srq(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        self.remove_srq(srq)?;
        self.events.retire(EventObject::Srq(srq.id()));
        Ok(())
    }

    /// Destroys a shared receive queue without waiting for acknowledged events, for example because
    /// its owner exits.
    ///
    /// # Errors
    /// [`DestroySrqError`].
    pub fn destroy_srq_without_wait(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        self.remove_srq(srq)?;
        self.events.retire_without_wait(EventObject::Srq(srq.id()));
        Ok(())
    }

    fn remove_srq(&self, srq: &Srq) -> Result<(), DestroySrqError> {
        let slot = self.srqs.at(srq.id()).ok_or(DestroySrqError::NoSrq)?;
        let mut guard = lock(slot);
        if !guard.as_ref().is_some_and(|own| std::ptr::eq(&raw const **own, srq)) {
            return Err(DestroySrqError::NoSrq);
        }
        srq.destroy()?;
        *guard = None;
        drop(guard);
        let mut control = lock(&self.control);
        control.count(srq.created_with_pd(), |domain| &mut domain.srqs, -1);
        let id = srq.id().0;
        let generation = ((id >> INDEX_BITS) + 1) % GENERATIONS;
        control.free_srqs.put(SrqId(generation << INDEX_BITS | (id & (MAX_SRQS - 1))));
        Ok(())
    }
}
