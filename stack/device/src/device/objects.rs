//! Creating, changing and destroying completion queues and queue pairs.

use std::net::IpAddr;

use urxe_wire::Qpn;

use super::multicast::GroupChanges;
use super::paths::{AddressError, Peers, index_of};
use super::qpn;
use super::{Control, Device, QpHandle, QpSlot};
use crate::cq::{AsyncEvent, CompletionChannel, Cq, CqConfig, CqError, CqId, CqRef, EventObject};
use crate::path::scheduler::TurnRules;
use crate::path::window_credit::WindowCredit;
use crate::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpState, QpType};
use crate::qp::completion_batch::BatchedCqLock;
use crate::qp::context::{DeviceParts, QpContext};
use crate::qp::send_watch::WatchedSends;
use crate::qp::transition::{self, ModifyQpError};
use crate::qp::{Qp, QpInit};
use crate::srq::error::SrqError;
use crate::srq::xrcd::{Xrcd, XrcdError};
use urxe_memory::Pins;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::ids::PdId;
use urxe_types::sync::atomic::Ordering;
use urxe_types::sync::{Arc, lock};
use urxe_types::time::Time;
use urxe_types::wake::Wake;
use urxe_wire::ecn;

/// The number of the queue pair of management datagrams (IBTA vol. 1, 3.6.1).
pub(super) const GSI_QPN: Qpn = Qpn::masked(1);
/// The number of a queue pair that has not got its number yet.
const UNNUMBERED: Qpn = Qpn::masked(0);
/// The index that stands for no queue pair 1.
pub(super) const NO_GSI: u32 = u32::MAX;

urxe_types::errors! {
    /// The reason why a completion queue was not created.
    #[derive(Debug, thiserror::Error)]
    pub enum CreateCqError {
        /// The number of entries.
        #[error(transparent)] Cq(#[from] CqError),
        #[error("the device has {allowed} completion queues (max_cq) and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
    }

    /// The reason why a queue pair was not created.
    #[derive(Debug, thiserror::Error)]
    pub enum CreateQpError {
        #[error("queue pairs of type {given} are not offered; RC, UC, UD and XRC_SEND are, and \
                 XRC_RECV of a domain")]
        Unsupported { given: QpType } = EOPNOTSUPP,
        /// `field` is the field's name in `struct ibv_qp_cap`.
        #[error("{field} is {given}; the device allows {allowed}")]
        TooLarge { field: &'static str, given: u32, allowed: u32 } = EINVAL,
        #[error("there is no such protection domain: it was deallocated")]
        NoPd = EINVAL,
        /// A completion queue was destroyed.
        #[error(transparent)] Cq(#[from] CqError),
        /// `given` is the number of the completion queue on its own device.
        #[error("completion queue {} belongs to another device", given.0)]
        NoCq { given: CqId } = EINVAL,
        /// The shared receive queue is unusable.
        #[error(transparent)] Srq(#[from] SrqError),
        /// A shared receive queue for a queue pair that receives nothing.
        #[error("a {qp_type} queue pair receives nothing, so it cannot have a shared receive \
                 queue")]
        NoReceives { qp_type: QpType } = EINVAL,
        /// The XRC domain is unusable.
        #[error(transparent)] Xrcd(#[from] XrcdError),
        /// Queue pair 1, over which all programs make connections. Its owner alone would receive
        /// their messages.
        #[error("queue pair 1 (GSI) belongs to the system: use rdma_cm, which shares it; programs \
                 have RC, UC, UD and XRC_SEND")]
        GsiReserved = EPERM,
        /// A device has one queue pair for management datagrams (QP1).
        #[error("the device already has queue pair 1 (GSI)")]
        GsiTaken = EBUSY,
        #[error("the device has {allowed} queue pairs and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
        /// The system has no memory for the queues.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why a queue pair was not changed.
    #[derive(Debug, thiserror::Error)]
    pub enum ModifyError {
        #[error("no such queue pair: it was destroyed")]
        NoQp = EINVAL,
        /// The transition, its attributes or their values.
        #[error(transparent)] Attributes(#[from] ModifyQpError),
        /// The address of the peer.
        #[error(transparent)] Address(#[from] AddressError),
        /// The system has no memory for the READs and atomics that may be outstanding.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }

    /// The reason why a queue pair was not opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum OpenQpError {
        #[error("there is no queue pair {given}")]
        NoQp { given: Qpn } = EINVAL,
        #[error("queue pair {given} belongs to another process, whose queues and buffers \
                 cannot be reached from here")]
        OtherProcess { given: Qpn } = EOPNOTSUPP,
        /// Only the receiving ends of the domain's XRC connections can be shared.
        #[error("queue pair {given} is not the receiving end of an XRC connection in this domain")]
        NotOfDomain { given: Qpn } = EINVAL,
    }

    /// The reason why a queue pair was not destroyed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DestroyQpError {
        #[error("no such queue pair: it was destroyed before")]
        NoQp = EINVAL,
        #[error("the queue pair is attached to {groups} multicast groups: detach it first")]
        Attached { groups: u32 } = EBUSY,
    }
}

impl Device {
    /// Creates a completion queue of at least `capacity` entries (`ibv_create_cq`).
    ///
    /// # Errors
    /// [`CreateCqError`].
    pub fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<CompletionChannel>>,
        context: u64,
    ) -> Result<Arc<Cq>, CreateCqError> {
        let allowed = self.limits.max_cq;
        let unit = self.cq_quota.take(allowed).ok_or(CreateCqError::NoneLeft { allowed })?;
        let id = {
            let mut control = lock(&self.control);
            control.last_cq = control.last_cq.wrapping_add(1).max(1);
            CqId(control.last_cq)
        };
        let events = Some(Arc::clone(&self.events));
        let max_capacity = self.limits.max_cqe;
        let moderation_timers = Arc::clone(&self.moderation_timers);
        let config =
            CqConfig { id, capacity, max_capacity, channel, events, moderation_timers, context };
        let cq = Cq::new(config)?.of_quota(unit).with_strict_sends(self.strict_queues);
        Ok(Arc::new(cq))
    }

    /// Creates a queue pair in RESET (`ibv_create_qp`). [`query_qp`](Self::query_qp) returns its
    /// sizes.
    ///
    /// # Errors
    /// [`CreateQpError`].
    pub fn create_qp(&self, init: &QpInit) -> Result<QpHandle, CreateQpError> {
        if !matches!(
            init.qp_type,
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::XrcSend
        ) {
            return Err(CreateQpError::Unsupported { given: init.qp_type });
        }
        self.check_cap(init)?;
        let send_cq = CqRef::new(Arc::clone(&init.send_cq))?;
        let receives = init.qp_type != QpType::XrcSend;
        let recv_cq = receives.then(|| CqRef::new(Arc::clone(&init.recv_cq))).transpose()?;
        if !receives && init.srq.is_some() {
            return Err(CreateQpError::NoReceives { qp_type: init.qp_type });
        }
        let srq = init.srq.as_ref().map(|srq| self.use_srq(srq)).transpose()?;
        let pd = self.protection_domain(init.pd).ok_or(CreateQpError::NoPd)?;
        let cqs = (send_cq, recv_cq);
        let mut qp = Qp::new(init, pd, UNNUMBERED, cqs, srq, &self.limits, self.active_mtu)?;
        let mut control = lock(&self.control);
        // Another thread may have deallocated the domain meanwhile.
        control.base_of(init.pd).ok_or(CreateQpError::NoPd)?;
        let (slot, mut handle) = self.take_slot(&mut control)?;
        if init.qp_type == QpType::Gsi {
            if control.gsi {
                let generation = self.generation_of(handle);
                control.free_qps.push_back((handle.index, generation));
                return Err(CreateQpError::GsiTaken);
            }
            control.gsi = true;
            handle.qpn = GSI_QPN;
        }
        control.qps += 1;
        control.count(init.pd, |domain| &mut domain.qps, 1);
        drop(control);
        qp.core.qpn = handle.qpn;
        if self.strict_queues {
            qp.make_strict();
        }
        *lock(&slot.qp) = Some(qp);
        if handle.qpn == GSI_QPN {
            self.gsi.store(handle.index, Ordering::Release);
        }
        Ok(handle)
    }

    /// Creates the receiving end of an XRC connection (`IBV_QPT_XRC_RECV`) in RESET.
    ///
    /// # Errors
    /// [`CreateQpError`].
    pub fn create_xrc_target(&self, xrcd: &Arc<Xrcd>) -> Result<QpHandle, CreateQpError> {
        let mut control = lock(&self.control);
        let xrcd = self.use_xrcd(&mut control, xrcd)?;
        let mut qp = Qp::xrc_target(UNNUMBERED, xrcd, &self.limits)?;
        let (slot, handle) = self.take_slot(&mut control)?;
        control.qps += 1;
        drop(control);
        qp.core.qpn = handle.qpn;
        *lock(&slot.qp) = Some(qp);
        Ok(handle)
    }

    /// Takes a free slot and its next number.
    fn take_slot(&self, control: &mut Control) -> Result<(&QpSlot, QpHandle), CreateQpError> {
        let none_left = || CreateQpError::NoneLeft { allowed: self.limits.max_qp };
        let (index, qpn) = self.take_number(control)?.ok_or_else(none_left)?;
        let handle = QpHandle { index, qpn };
        match self.qps.ensure(index, QpSlot::new) {
            Ok(slot) => Ok((slot.ok_or_else(none_left)?, handle)),
            Err(error) => {
                control.free_qps.push_back((index, self.generation_of(handle)));
                Err(error.into())
            }
        }
    }

    /// Opens the receiving end of an XRC connection once more (`ibv_open_qp`). That end exists
    /// until destroyed as often as created and opened.
    ///
    /// # Errors
    /// [`OpenQpError`].
    pub fn open_xrc_target(&self, xrcd: &Arc<Xrcd>, qpn: Qpn) -> Result<QpHandle, OpenQpError> {
        let index = self.numbers.index(qpn).ok_or(OpenQpError::OtherProcess { given: qpn })?;
        let handle = QpHandle { index, qpn };
        let opened = self.with_qp(handle, |qp| match &mut qp.core.xrc {
            Some(target) if target.xrcd.holds(xrcd) => {
                target.opens += 1;
                true
            }
            _ => false,
        });
        match opened {
            Some(true) => Ok(handle),
            Some(false) => Err(OpenQpError::NotOfDomain { given: qpn }),
            None => Err(OpenQpError::NoQp { given: qpn }),
        }
    }

    fn check_cap(&self, init: &QpInit) -> Result<(), CreateQpError> {
        let limits = &self.limits;
        let own_receives = init.srq.is_none() && init.qp_type != QpType::XrcSend;
        for (looked_at, field, given, allowed) in [
            (true, "max_send_wr", init.cap.max_send_wr, limits.max_qp_wr),
            (own_receives, "max_recv_wr", init.cap.max_recv_wr, limits.max_qp_wr),
            (true, "max_send_sge", init.cap.max_send_sge, limits.max_sge),
            (own_receives, "max_recv_sge", init.cap.max_recv_sge, limits.max_sge),
            (true, "max_inline_data", init.cap.max_inline_data, limits.max_inline_data),
        ] {
            if looked_at && given > allowed {
                return Err(CreateQpError::TooLarge { field, given, allowed });
            }
        }
        Ok(())
    }

    /// Takes a free index and the number of its next use. While few indices are free, this is an
    /// index that was never used, which costs memory. Otherwise the index is the one that was free
    /// for longest, so that the number of a destroyed queue pair does not return soon.
    ///
    /// Makes room for the return of the index, so that destroying a queue pair allocates nothing.
    fn take_number(&self, control: &mut Control) -> Result<Option<(u32, Qpn)>, OutOfMemory> {
        loop {
            let (index, generation) = if control.free_qps.len() < qpn::MIN_FREE_QP_INDICES
                && control.fresh_qp < self.limits.max_qp
            {
                let most = control.fresh_qp as usize + 1;
                let more = most - control.free_qps.len();
                let error = || OutOfMemory::of::<(u32, u32)>(most);
                allocate::reserved(control.free_qps.try_reserve(more), error)?;
                control.fresh_qp += 1;
                (control.fresh_qp - 1, 0)
            } else {
                let Some(freed) = control.free_qps.pop_front() else { return Ok(None) };
                freed
            };
            if let Some(qpn) = self.numbers.number(index, generation) {
                return Ok(Some((index, qpn)));
            }
            // A reserved number: the index is used with its next generation.
            control.free_qps.push_back((index, generation + 1));
        }
    }

    /// Returns the present attributes of a queue pair (`ibv_query_qp`). `None` for a destroyed
    /// queue pair.
    #[must_use]
    pub fn query_qp(&self, handle: QpHandle) -> Option<QpAttr> {
        self.with_qp(handle, |qp| qp.query())
    }

    /// Returns number, type, protection domain and attributes of each queue pair except number 1
    /// and those in state RESET.
    pub fn queue_pairs(&self) -> impl Iterator<Item = (Qpn, QpType, PdId, QpAttr)> {
        let fresh = lock(&self.control).fresh_qp;
        (0..fresh).filter_map(|index| {
            let guard = lock(&self.qps.at(index)?.qp);
            let is_listed =
                |qp: &&Qp| qp.core.state != QpState::Reset && qp.core.qp_type != QpType::Gsi;
            let qp = guard.as_ref().filter(is_listed)?;
            Some((qp.core.qpn, qp.core.qp_type, qp.core.created_with_pd, qp.query()))
        })
    }

    /// Begins to watch the sends of a queue pair that are posted now. `wake` is called when they
    /// are complete or have failed, unless there are none. Replaces a former watch.
    pub fn watch_sends(&self, handle: QpHandle, wake: Arc<dyn Wake>) {
        self.with_qp(handle, |qp| qp.watch_sends(wake));
    }

    /// Returns the state of the sends that [`watch_sends`](Self::watch_sends) watches. Returns
    /// `None` if the queue pair does not exist.
    pub fn watched_sends(&self, handle: QpHandle) -> Option<WatchedSends> {
        self.with_qp(handle, |qp| qp.watched_sends())
    }

    /// Lets the first request of the peer of a queue pair call `wake`, unless one has arrived.
    pub fn watch_peer(&self, handle: QpHandle, wake: Arc<dyn Wake>) {
        self.with_qp(handle, |qp| qp.watch_peer(wake));
    }

    /// Returns whether a request of the peer with the expected PSN has arrived since RTR. Returns
    /// `None` if the queue pair does not exist.
    #[must_use]
    pub fn is_peer_heard(&self, handle: QpHandle) -> Option<bool> {
        self.with_qp(handle, |qp| qp.is_peer_heard())
    }

    /// Changes a queue pair (`ibv_modify_qp`). A `max_dest_rd_atomic` above the device's limit
    /// becomes that limit.
    ///
    /// # Errors
    /// [`ModifyError`]. Nothing was changed.
    pub fn modify_qp(
        &self,
        now: Time,
        handle: QpHandle,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        let slot = self.qps.at(handle.index).ok_or(ModifyError::NoQp)?;
        let limits = self.transition_limits();
        let max_dest_rd_atomic = attr.max_dest_rd_atomic.min(self.limits.max_qp_rd_atom);
        let attr = &QpAttr { max_dest_rd_atomic, ..*attr };
        let plan = |qp: &Qp| transition::plan(qp.core.state, qp.core.qp_type, attr, mask, &limits);
        // A path must not be locked under a queue pair. So the path is taken between two locks of
        // the queue pair, and the transition is checked again under the second.
        let planned = self
            .with_qp(handle, |qp| plan(qp).map(|_| (qp.query().dest_qp_num, qp.is_ecn_capable())));
        let (former_dest, is_ecn_capable) = planned.ok_or(ModifyError::NoQp)??;
        let dest = if mask.contains(QpAttrMask::DEST_QPN) { attr.dest_qp_num } else { former_dest };
        let taken = if mask.contains(QpAttrMask::AV) {
            let traffic_class = attr.ah.traffic_class;
            let traffic_class = if self.ecn && is_ecn_capable {
                ecn::capable(traffic_class)
            } else {
                traffic_class
            };
            let ah = AddressVector { traffic_class, ..attr.ah };
            Some(self.take_path(&ah, Peers::Hosts, qpn::peer_slot(dest))?)
        } else {
            None
        };
        let mut guard = lock(&slot.qp);
        let planned = match guard.as_mut().filter(|qp| qp.core.qpn == handle.qpn) {
            Some(qp) => plan(qp).map_err(ModifyError::from).and_then(|step| {
                qp.reserve(step, attr, mask)?;
                Ok((qp, step))
            }),
            None => Err(ModifyError::NoQp),
        };
        let (qp, step) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                drop(guard);
                self.release_path(taken);
                return Err(error);
            }
        };
        let context = self.context(now, qp.path.or(taken));
        qp.transition(step, attr, mask, &context);
        let former = match (taken, step.to) {
            (_, QpState::Reset) => qp.move_to_path(None, &context),
            (Some(_), _) => qp.move_to_path(taken, &context),
            (None, _) => None,
        };
        self.settle_timer(handle.index, qp, qp.deadline());
        self.enqueue(handle.index, slot, qp);
        drop(guard);
        // The credit that the queue pair returned may unblock others on its former path.
        self.mark_path_ready(former);
        self.release_path(former);
        Ok(())
    }

    fn transition_limits(&self) -> transition::Limits {
        transition::Limits {
            active_mtu: self.active_mtu,
            ports: 1,
            max_rd_atomic: self.limits.max_qp_init_rd_atom,
        }
    }

    /// Destroys a queue pair (`ibv_destroy_qp`). Its unfinished requests do not complete. Waits
    /// until the program has acknowledged the events of the queue pair that it took.
    ///
    /// # Errors
    /// [`DestroyQpError`].
    pub fn destroy_qp(&self, now: Time, handle: QpHandle) -> Result<(), DestroyQpError> {
        let changes = self.groups.change();
        // As in uverbs_std_types_qp.c of the kernel.
        match changes.groups_of(handle).len() {
            0 => {}
            groups => return Err(DestroyQpError::Attached { groups: groups as u32 }),
        }
        if self.remove_qp(now, handle, changes)? {
            self.events.retire(EventObject::Qp(handle.qpn));
        }
        Ok(())
    }

    /// Destroys a queue pair without waiting for acknowledged events, for example because its owner
    /// exits. Detaches the queue pair from its multicast groups.
    ///
    /// # Errors
    /// [`DestroyQpError::NoQp`].
    pub fn destroy_qp_without_wait(
        &self,
        now: Time,
        handle: QpHandle,
    ) -> Result<(), DestroyQpError> {
        let changes = self.groups.change();
        changes.detach_all(handle);
        if self.remove_qp(now, handle, changes)? {
            self.events.retire_without_wait(EventObject::Qp(handle.qpn));
        }
        Ok(())
    }

    /// Removes a queue pair that is attached to no group. Returns whether it is gone: the receiving
    /// end of an XRC connection stays while it is open elsewhere.
    fn remove_qp(
        &self,
        now: Time,
        handle: QpHandle,
        changes: GroupChanges<'_>,
    ) -> Result<bool, DestroyQpError> {
        let slot = self.qps.at(handle.index).ok_or(DestroyQpError::NoQp)?;
        let mut guard = lock(&slot.qp);
        if guard.as_ref().is_none_or(|qp| qp.core.qpn != handle.qpn) {
            return Err(DestroyQpError::NoQp);
        }
        if let Some(target) = guard.as_mut().and_then(|qp| qp.core.xrc.as_mut())
            && target.opens > 1
        {
            target.opens -= 1;
            return Ok(false);
        }
        let Some(mut qp) = guard.take() else { return Err(DestroyQpError::NoQp) };
        drop(guard);
        drop(changes);
        let context = self.context(now, qp.path);
        qp.release(&context);
        if let Some(cq) = &qp.core.send_cq {
            cq.untrack_sends(qp.core.qpn);
        }
        self.memory.unbind_all_of(qp.core.qpn);
        self.mark_path_ready(qp.path);
        self.release_path(qp.counted_path());
        let mut control = lock(&self.control);
        if qp.core.xrc.is_none() {
            control.count(qp.core.created_with_pd, |domain| &mut domain.qps, -1);
        }
        control.qps -= 1;
        if handle.qpn == GSI_QPN {
            self.gsi.store(NO_GSI, Ordering::Release);
            control.gsi = false;
        }
        let generation = self.generation_of(handle);
        control.free_qps.push_back((handle.index, generation + 1));
        Ok(true)
    }

    fn generation_of(&self, handle: QpHandle) -> u32 {
        let is_it =
            |generation: &u32| self.numbers.number(handle.index, *generation) == Some(handle.qpn);
        (0..qpn::GENERATIONS).find(is_it).unwrap_or(0)
    }

    pub(super) fn with_qp<T>(
        &self,
        handle: QpHandle,
        use_it: impl FnOnce(&mut Qp) -> T,
    ) -> Option<T> {
        self.with_slot(handle, |_, qp| use_it(qp))
    }

    /// Does the same as [`with_qp`](Self::with_qp) for a caller that also needs the slot, to list
    /// the queue pair.
    pub(super) fn with_slot<T>(
        &self,
        handle: QpHandle,
        use_it: impl FnOnce(&QpSlot, &mut Qp) -> T,
    ) -> Option<T> {
        let slot = self.qps.at(handle.index)?;
        let mut guard = lock(&slot.qp);
        let qp = guard.as_mut().filter(|qp| qp.core.qpn == handle.qpn)?;
        Some(use_it(slot, qp))
    }

    /// Returns the context of one call into a queue pair on `path`.
    #[inline(always)] // made in place, because a copy for each packet would be too slow
    pub(super) fn context(&self, now: Time, path: Option<(u32, IpAddr)>) -> QpContext<'_> {
        let path_index = index_of(path);
        QpContext {
            now,
            device: DeviceParts {
                memory: &self.memory,
                counters: &self.counters,
                events: &self.events,
                srqs: &self.srqs,
                ahs: &self.ahs,
                port_check: self.port_check,
            },
            path: self.path_at(path_index),
            path_index,
            arrival: None,
            from_port: 0,
            turn: TurnRules::ALONE,
            pins: Pins::new(&self.memory),
            credit: WindowCredit::default(),
            batched_cq: BatchedCqLock::default(),
            sent_writes: 0,
            received_writes: 0,
        }
    }

    /// Fails the device after an error of the stack itself. Raises the event DEVICE_FATAL and moves
    /// all queue pairs to the error state, so that their work requests complete as flushed.
    ///
    /// Queue pairs in RESET have no work requests and stay there.
    pub fn fail(&self, now: Time) {
        self.events.push(AsyncEvent::DeviceFatal);
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        let slots = (0..).map_while(|index| Some((index, self.qps.at(index)?)));
        for (index, slot) in slots {
            let Some(qpn) = lock(&slot.qp).as_ref().map(|qp| qp.core.qpn) else { continue };
            let handle = QpHandle { index, qpn };
            if let Err(error) = self.modify_qp(now, handle, &attr, QpAttrMask::STATE) {
                tracing::debug!(qp = %qpn, %error, "not moved to the error state");
            }
        }
    }

    /// Moves the context to a queue pair on `path`. Keeps the pins.
    #[inline(always)]
    pub(super) fn move_context<'d>(
        &'d self,
        context: &mut QpContext<'d>,
        path: Option<(u32, IpAddr)>,
    ) {
        let index = index_of(path);
        if context.path_index != index {
            context.commit();
            context.path = self.path_at(index);
            context.path_index = index;
        }
    }
}
