//! Queue pairs.
//!
//! A queue pair is a state machine behind `&mut self`. Packets, posted work requests and the time
//! come in. Packets go out into a run, and completions into the completion queues. The state
//! machine uses no socket and no other queue pair. `Qp` holds the parts that all services share,
//! and passes the rest on to the service of its type.
//!
//! | file | subject |
//! |---|---|
//! | [`transition`] | the transitions and their attributes, in one table |
//! | `queue` | the ring of send work requests |
//! | `recv_queue` | the source of receives: a ring of its own, or a shared receive queue |
//! | `service` | the traits of a service: one half sends, the other receives |
//! | `any_service` | the service of each type of queue pair |
//! | `rc` | reliable connections |
//! | `uc` | the responder of an unreliable connection |
//! | [`ud`] | the responder of a datagram queue pair |
//! | `unreliable` | the requester of both unreliable services |
//! | `origin` | the UDP source port of the peer |
//! | `inbound` | the message that a connected responder is receiving |
//! | `headers` | the opcode and headers of SEND and WRITE packets |
//! | `local_ops` | work requests that send nothing: memory windows and fast registration |
//! | `context` | the surroundings of a call into a queue pair |
//! | `qp_core` | the state and attributes that the two halves share |
//! | `completion_batch` | batches of send completions |
//! | [`send_watch`] | waiting for the sends that are posted |
//! | `sge_copy` | copies between packets and scatter-gather lists |

// Must precede `any_service`: enum_dispatch expands the enum where the later of the two is
// declared.
mod service;

mod any_service;
pub(crate) mod completion_batch;
pub(crate) mod context;
mod headers;
mod inbound;
mod local_ops;
mod origin;
mod peer_watch;
pub(crate) mod qp_core;
mod queue;
mod rc;
mod recv_queue;
pub mod send_watch;
mod sge_copy;
pub mod transition;
mod uc;
pub mod ud;
mod unreliable;

pub use urxe_types::{attr, work_request};

use std::net::IpAddr;

use urxe_wire::{PacketView, Qpn};

use self::any_service::AnyService;
use self::attr::{PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use self::context::QpContext;
use self::origin::{Origin, PsnMatch};
use self::peer_watch::PeerWatch;
use self::qp_core::{QpCore, XrcTarget};
use self::recv_queue::RecvQueue;
use self::send_watch::{SendWatch, WatchedSends};
use self::service::{SchedulingHint, TransportService};
use self::transition::Step;
use self::work_request::{Destination, PostError, RecvRequest, SendRequest};
use crate::cq::{Cq, CqRef, PolledSends, QpEventType};
use crate::path::Path;
use crate::path::acks::Ack;
use crate::path::ecn::{self, Cnp};
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::srq::xrcd::XrcdRef;
use crate::srq::{Srq, SrqRef};
use urxe_memory::PdId;
use urxe_types::allocate::OutOfMemory;
use urxe_types::counters::Counter;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;
use urxe_types::wake::Wake;

/// The properties of a queue pair that are fixed at its creation.
#[derive(Debug)]
pub struct QpInit {
    /// The transport service.
    pub qp_type: QpType,
    /// The protection domain of local buffers and of the memory that peers may reach, or a parent
    /// domain of that.
    pub pd: PdId,
    /// The completion queue of sends.
    pub send_cq: Arc<Cq>,
    /// The completion queue of receives.
    pub recv_cq: Arc<Cq>,
    /// The shared receive queue, if the queue pair has none of its own. The receive sizes in `cap`
    /// are ignored then.
    pub srq: Option<Arc<Srq>>,
    /// The sizes of the queues.
    pub cap: QpCap,
    /// Every send makes a completion, whatever its flags are.
    pub sq_sig_all: bool,
}

/// A queue pair.
#[derive(Debug)]
#[repr(C)] // the fields that each packet reads are adjacent
pub(crate) struct Qp {
    /// The earliest entry of this queue pair in the device's timers.
    pub timer_at: Time,
    /// The entry that was the earliest before that one, if the timers still hold it.
    pub later_timer_at: Time,
    /// The path to the peer, once connected: its index on the device, and the address of the peer.
    pub path: Option<(u32, IpAddr)>,
    /// The queue pair is in an admission queue of its path, or in the path's list of queue pairs
    /// blocked at a post. [`move_to_path`](Self::move_to_path) clears this. Datagrams change `path`
    /// as well, but they take no credit and never set this.
    pub is_blocked: bool,
    /// The source port of the peer's packets.
    origin: Origin,
    peer_watch: PeerWatch,
    drained: bool,
    pub core: QpCore,
    service: AnyService,
    /// The sends that a program waits for. [`QpCore::sends_watched`] says whether some are pending.
    send_watch: Option<Box<SendWatch>>,
}

impl Qp {
    /// Makes a queue pair in RESET.
    ///
    /// `pd` is the protection domain that `init` names, or that of the parent domain named there.
    /// `cqs` are the completion queues of sends and, if the queue pair receives, of receives.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the queues.
    pub fn new(
        init: &QpInit,
        pd: PdId,
        qpn: Qpn,
        cqs: (CqRef, Option<CqRef>),
        srq: Option<SrqRef>,
        limits: &urxe_types::limits::Limits,
        active_mtu: PathMtu,
    ) -> Result<Self, OutOfMemory> {
        let (send_cq, recv_cq) = cqs;
        let mut cap = init.cap;
        if srq.is_some() || init.qp_type == QpType::XrcSend {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let has_srq = srq.is_some();
        let receives = match srq {
            Some(srq) => RecvQueue::shared(srq)?,
            None => RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge)?,
        };
        let core = QpCore {
            created_with_pd: init.pd,
            recv_pd: receives.pd(pd),
            has_srq,
            send_cq: Some(send_cq),
            recv_cq,
            sq_sig_all: init.sq_sig_all,
            ..QpCore::new(qpn, init.qp_type, pd, cap, limits)
        };
        let core = match init.qp_type.is_datagram() {
            true => QpCore { max_message: active_mtu.bytes() as u64, ..core },
            false => core,
        };
        Ok(Self::with(core, AnyService::new(init.qp_type, &cap, receives)?))
    }

    /// Makes the receiving end of an XRC connection, which sends responses only.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn xrc_target(
        qpn: Qpn,
        xrcd: XrcdRef,
        limits: &urxe_types::limits::Limits,
    ) -> Result<Self, OutOfMemory> {
        // A placeholder. Each message brings the protection domain for its checks.
        let nowhere = PdId(0);
        let (qp_type, cap) = (QpType::XrcRecv, QpCap::default());
        let core = QpCore {
            xrc: Some(XrcTarget { xrcd, srq: None, opens: 1 }),
            ..QpCore::new(qpn, qp_type, nowhere, cap, limits)
        };
        let receives = RecvQueue::xrc(limits.max_srq_sge)?;
        Ok(Self::with(core, AnyService::new(qp_type, &cap, receives)?))
    }

    fn with(core: QpCore, service: AnyService) -> Self {
        Self {
            core,
            service,
            path: None,
            timer_at: Time::NEVER,
            later_timer_at: Time::NEVER,
            is_blocked: false,
            origin: Origin::default(),
            peer_watch: PeerWatch::default(),
            drained: false,
            send_watch: None,
        }
    }

    /// Returns all attributes.
    pub fn query(&self) -> QpAttr {
        let state = self.core.state;
        let sq_draining = state == QpState::Sqd && !self.drained;
        QpAttr { qp_state: state, cur_qp_state: state, sq_draining, ..self.core.attr }
    }

    /// Makes room for the READs and atomics that may be outstanding after a transition, so that the
    /// data path does not allocate.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the queue pair is unchanged.
    pub fn reserve(
        &mut self,
        step: Step,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), OutOfMemory> {
        let mut next = self.core.attr;
        next.update(attr, mask);
        let sent = usize::from(next.max_rd_atomic);
        let received = usize::from(next.max_dest_rd_atomic);
        match (step.from, step.to) {
            (QpState::Init, QpState::Rtr) => self.service.receive_half().reserve(received),
            (QpState::Rtr, QpState::Rts) => self.service.send_half().reserve(sent),
            (QpState::Sqd, QpState::Sqd) => {
                self.service.receive_half().reserve(received)?;
                self.service.send_half().reserve(sent)
            }
            _ => Ok(()),
        }
    }

    /// Applies a transition that [`transition::plan`] and [`reserve`](Self::reserve) allowed, with
    /// the attributes of `mask`.
    pub fn transition(&mut self, step: Step, attr: &QpAttr, mask: QpAttrMask, cx: &QpContext<'_>) {
        self.core.attr.update(attr, mask);
        if step.to == QpState::Err {
            return self.enter_error(cx);
        }
        self.core.state = step.to;
        match (step.from, step.to) {
            (_, QpState::Reset) => self.reset(cx),
            (QpState::Init, QpState::Rtr) => {
                self.service.receive_half().start(&self.core);
                self.origin = Origin::default();
                self.peer_watch = PeerWatch::default();
            }
            (QpState::Rtr, QpState::Rts) => self.service.send_half().start(&self.core),
            (QpState::Sqd, QpState::Sqd) => {
                self.service.send_half().attributes_changed(&self.core, mask);
                self.service.receive_half().attributes_changed(&self.core);
            }
            (_, QpState::Sqd) => {
                self.drained = false;
                self.check_drained(cx);
            }
            _ => {}
        }
    }

    /// Moves to RESET. Completions that were not polled are removed from the completion queues, as
    /// mlx5 does (`mlx5_cq_clean`). Otherwise a program that reuses the queue pair would take them
    /// for completions of its new work requests.
    fn reset(&mut self, cx: &QpContext<'_>) {
        self.fail_watch();
        self.release(cx);
        for cq in self.core.send_cq.iter().chain(&self.core.recv_cq) {
            cq.withdraw(self.core.qpn);
        }
        let cap = self.core.attr.cap;
        self.core.attr = QpAttr { cap, ..QpAttr::default() };
        self.core.cq_overrun = false;
        self.core.fatal = false;
        self.core.send_lost = false;
    }

    /// Moves to the error state and completes all posted work requests as flushed.
    pub fn enter_error(&mut self, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        let first_time = self.core.state != QpState::Err;
        self.fail_watch();
        self.core.state = QpState::Err;
        self.flush(cx);
        if first_time && self.core.has_srq {
            // The queue pair takes no more receives, and those taken are complete (IBTA vol.
            // 1, 11.6.3.2).
            self.core.raise(QpEventType::QpLastWqeReached, cx);
        }
        // An overrun by a flushed completion has no further effect.
        self.core.cq_overrun = false;
        self.core.fatal = false;
        self.core.send_failed = false;
    }

    /// Completes all posted work requests as flushed.
    fn flush(&mut self, cx: &QpContext<'_>) {
        self.service.send_half().flush(&mut self.core, cx);
        self.service.receive_half().flush(&mut self.core, cx);
    }

    /// Moves to SQE after a send of an unreliable service failed. The sends after it are flushed,
    /// and receiving continues (IBTA vol. 1, 10.3.1.6).
    fn enter_send_error(&mut self, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        self.fail_watch();
        self.core.state = QpState::Sqe;
        self.service.send_half().flush(&mut self.core, cx);
        if std::mem::take(&mut self.core.cq_overrun) {
            self.core.raise(QpEventType::QpFatal, cx);
            self.enter_error(cx);
        }
    }

    /// Selects the path of the oldest message, for services in which each message names its path.
    fn select_path(&mut self, cx: &QpContext<'_>) {
        if self.core.qp_type.is_datagram()
            && let Some(path) = self.service.send_half().next_path(cx)
        {
            self.path = Some(path);
        }
    }

    /// Handles the closing of the queue pair's path. The path of a message stays open while the
    /// address handle of the message exists. So no message is left for another path.
    pub fn on_path_closed(&mut self, cx: &QpContext<'_>) {
        self.path = None;
        self.service.send_half().on_path_closed(&mut self.core, cx);
        self.check_outcome(cx);
        debug_assert!(self.service.send_half().next_path(cx).is_none(), "a message is left");
    }

    /// Returns the path that counts this queue pair as a user. Only connections are counted:
    /// datagrams use the paths of their address handles.
    pub fn counted_path(&self) -> Option<(u32, IpAddr)> {
        self.path.filter(|_| !self.core.qp_type.is_datagram())
    }

    /// Moves to another path. Returns the former counted path. `cx` must be on the former path.
    pub fn move_to_path(
        &mut self,
        path: Option<(u32, IpAddr)>,
        cx: &QpContext<'_>,
    ) -> Option<(u32, IpAddr)> {
        self.service.send_half().return_credit(cx);
        // The list of the old path may still hold this queue pair. The entry has no effect there.
        self.is_blocked = false;
        let held = self.counted_path();
        self.path = path;
        held
    }

    /// Drops all posted work requests and returns the credit of the path's window. Used in RESET
    /// and before the queue pair is destroyed.
    pub fn release(&mut self, cx: &QpContext<'_>) {
        self.service.send_half().reset(cx);
        self.service.receive_half().reset();
    }

    /// Queues send work requests in order.
    ///
    /// # Errors
    /// Fails with the index of the first request that is refused, and the reason. The requests
    /// before it are queued.
    pub fn post_send(
        &mut self,
        requests: &[SendRequest<'_>],
        cx: &QpContext<'_>,
    ) -> Result<(), (usize, PostError)> {
        let (state, qp_type) = (self.core.state, self.core.qp_type);
        if qp_type == QpType::XrcRecv {
            return Err((0, PostError::NoQueue { qp_type, queue: "send" }));
        }
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err((0, PostError::State { state }));
        }
        let result = post_each(requests, |request| {
            if let Destination::Datagram { ah, qpn, .. } = request.to
                && qp_type.is_datagram()
            {
                check_destination(cx.device.ahs.path_for(self.core.pd, ah, qpn), qpn)?;
            }
            request.check_type(qp_type)?;
            self.service.push_send(&self.core, request)
        });
        match state {
            QpState::Err => self.flush(cx),
            QpState::Sqe => self.service.send_half().flush(&mut self.core, cx),
            _ => {}
        }
        self.select_path(cx);
        result
    }

    /// Returns whether the queue pair is blocked right after a post of `posted` requests. That is
    /// so if it has nothing else to send and the window has no room for the first of them.
    pub fn is_blocked_at_post(&self, posted: usize, path: &Path) -> bool {
        path.has_window_waiters.load(Ordering::Relaxed)
            && self.path.is_some()
            && !self.is_blocked
            && self.core.state == QpState::Rts
            && self
                .service
                .first_unsent_bytes(posted)
                .is_some_and(|bytes| !path.window.admits(bytes))
    }

    /// Queues receive work requests in order.
    ///
    /// # Errors
    /// Fails with the index of the first request that is refused, and the reason. The requests
    /// before it are queued.
    pub fn post_recv(
        &mut self,
        requests: &[RecvRequest<'_>],
        cx: &QpContext<'_>,
    ) -> Result<(), (usize, PostError)> {
        let (state, qp_type) = (self.core.state, self.core.qp_type);
        let queue = self.service.receive_half().queue().filter(|_| qp_type != QpType::XrcRecv);
        let Some(queue) = queue else {
            return Err((0, PostError::NoQueue { qp_type, queue: "receive" }));
        };
        if self.core.has_srq {
            return Err((0, PostError::SharedReceive));
        }
        if state == QpState::Reset {
            return Err((0, PostError::State { state }));
        }
        let result = post_each(requests, |request| queue.push(request));
        if state == QpState::Err {
            self.flush(cx);
        }
        result
    }

    /// Returns whether a mark on the packet reports congestion: whether the PSN of the packet is
    /// the expected one or close behind it. Always true for services without a check of PSNs.
    pub fn believes_mark(&self, packet: &PacketView<'_>) -> bool {
        packet.info().service == self.core.qp_type.service()
            && matches!(self.service.psn_match(packet), PsnMatch::Expected | PsnMatch::Ahead)
    }

    /// Handles a packet that is addressed to this queue pair and has a valid ICRC.
    pub fn on_packet(&mut self, packet: &PacketView<'_>, cx: &mut QpContext<'_>) {
        let info = packet.info();
        if info.service != self.core.qp_type.service() {
            return cx.device.counters.add(Counter::DropWrongService);
        }
        let state = self.core.state;
        let ready = match info.is_request {
            true => matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe),
            false => matches!(state, QpState::Rts | QpState::Sqd | QpState::Sqe),
        };
        if !ready {
            tracing::debug!(
                qp = %self.core.qpn, %state, opcode = %info.name,
                "dropped: the queue pair is not ready"
            );
            return cx.device.counters.add(Counter::DropNotReady);
        }
        if !self.origin.is(cx.from_port)
            && !self.core.qp_type.is_datagram()
            && !self.origin.admits(self.service.psn_match(packet), packet, cx)
        {
            return;
        }
        if !self.peer_watch.is_heard()
            && info.is_request
            && self.service.psn_match(packet) == PsnMatch::Expected
        {
            self.peer_watch.hear();
            if state == QpState::Rtr {
                self.core.raise(QpEventType::CommEst, cx);
            }
        }
        self.service.on_packet(&mut self.core, cx, packet);
        self.check_outcome(cx);
    }

    /// Appends packets to `run`.
    #[inline(always)]
    pub fn transmit(&mut self, cx: &mut QpContext<'_>, run: &mut RunBuffer<'_>) -> TransmitStatus {
        let sent = self.service.transmit(&mut self.core, cx, run);
        self.check_outcome(cx);
        self.select_path(cx);
        sent
    }

    /// Takes the pending ACK, if there is nothing else to send now.
    #[inline(always)]
    pub fn take_ack(&mut self, now: Time) -> Option<Ack> {
        self.service.take_ack(&self.core, now)
    }

    /// Returns whether routers may mark packets instead of dropping them. That requires a service
    /// that slows down when its peer reports marks.
    pub fn is_ecn_capable(&self) -> bool {
        self.core.qp_type.is_ecn_capable()
    }

    /// Returns the congestion notification for the peer, whose packets arrived marked. Returns
    /// `None` if the last one was sent less than [`ecn::CNP_INTERVAL_NS`] ago.
    pub fn take_cnp(&mut self, now: Time) -> Option<Cnp> {
        let core = &mut self.core;
        if now < core.next_cnp_at {
            return None;
        }
        core.next_cnp_at = now.plus_ns(ecn::CNP_INTERVAL_NS);
        Some(Cnp { to: core.attr.dest_qp_num, pkey: core.pkey })
    }

    /// Handles the timers that are due at `cx.now`.
    pub fn on_timer(&mut self, cx: &QpContext<'_>) {
        self.service.receive_half().resume(cx.now);
        if has_timers(self.core.state) {
            self.service.receive_half().on_timer(cx);
            self.service.send_half().on_timer(&mut self.core, cx);
            self.check_outcome(cx);
        }
    }

    /// Returns the time of the next timer, or [`Time::NEVER`].
    #[inline]
    pub fn deadline(&self) -> Time {
        match &self.service {
            service if !has_timers(self.core.state) => service.resume_at(),
            // Most queue pairs are RC: their call is inlined.
            AnyService::Rc(rc) => rc.deadline(),
            service => service.deadline(),
        }
    }

    /// Returns what the queue pair will do next.
    #[inline(always)]
    pub fn scheduling_hint(&self, now: Time) -> SchedulingHint {
        let mut hint = match &self.service {
            // Most queue pairs are RC: their call is inlined.
            AnyService::Rc(rc) => rc.scheduling_hint(now),
            service => service.scheduling_hint(now),
        };
        hint.has_data_to_send |= self.is_blocked;
        if !has_timers(self.core.state) {
            hint.deadline = self.service.resume_at();
        }
        hint
    }

    /// Returns whether the queue pair may have something to send at `now`.
    pub fn wants_to_send(&self, now: Time) -> bool {
        self.service.wants_to_send(now)
    }

    #[inline]
    fn check_outcome(&mut self, cx: &QpContext<'_>) {
        let core = &self.core;
        if core.cq_overrun
            | core.fatal
            | core.send_failed
            | core.sends_watched
            | (core.state == QpState::Sqd)
        {
            self.apply_outcome(cx);
        }
    }

    #[cold]
    fn apply_outcome(&mut self, cx: &QpContext<'_>) {
        let overrun = std::mem::take(&mut self.core.cq_overrun);
        if overrun {
            self.core.raise(QpEventType::QpFatal, cx);
        }
        if std::mem::take(&mut self.core.fatal) || overrun {
            self.enter_error(cx);
        } else if std::mem::take(&mut self.core.send_failed) {
            self.enter_send_error(cx);
        } else {
            self.check_drained(cx);
            self.advance_watch();
        }
    }

    /// Keeps the entries of the send queue in use until their completions are polled. Called after
    /// the queue pair has got its number.
    pub fn make_strict(&mut self) {
        let Some(cq) = &self.core.send_cq else { return };
        let polled = Arc::new(PolledSends::default());
        cq.track_sends(self.core.qpn, Arc::clone(&polled));
        self.service.send_half().make_strict(polled);
    }

    /// Begins to watch the sends that are posted now, in place of a former watch. `wake` is called
    /// when they are complete or have failed, unless there are none.
    pub fn watch_sends(&mut self, wake: Arc<dyn Wake>) {
        let posted = self.service.send_half().posted();
        let watch = SendWatch::new(posted, self.core.send_lost, wake);
        self.core.sends_watched = watch.is_pending();
        self.send_watch = Some(Box::new(watch));
    }

    /// Returns the state of the watched sends. Without a watch, there are none that are not
    /// complete.
    pub fn watched_sends(&self) -> WatchedSends {
        self.send_watch.as_ref().map_or(WatchedSends::Completed, |watch| watch.state())
    }

    /// Lets the first request of the peer call `wake`, unless one has arrived.
    pub fn watch_peer(&mut self, wake: Arc<dyn Wake>) {
        self.peer_watch.begin(wake);
    }

    /// Returns whether a request of the peer with the expected PSN has arrived since RTR.
    pub fn is_peer_heard(&self) -> bool {
        self.peer_watch.is_heard()
    }

    fn advance_watch(&mut self) {
        if let (true, Some(watch)) = (self.core.sends_watched, &mut self.send_watch) {
            watch.advance(self.service.send_half().posted().start);
            self.core.sends_watched = watch.is_pending();
        }
    }

    fn fail_watch(&mut self) {
        if let (true, Some(watch)) = (self.core.sends_watched, &mut self.send_watch) {
            watch.fail();
            self.core.sends_watched = false;
        }
    }

    /// Raises the event of SQD once all messages that were begun are complete (IBTA vol. 1,
    /// 10.3.1.5).
    fn check_drained(&mut self, cx: &QpContext<'_>) {
        if self.core.state == QpState::Sqd && !self.drained && self.service.send_half().is_drained()
        {
            self.drained = true;
            if self.core.attr.en_sqd_async_notify {
                self.core.raise(QpEventType::SqDrained, cx);
            }
        }
    }
}

/// Posts requests in order.
///
/// # Errors
/// Fails with the index of the first request that is refused, and the reason.
fn post_each<R>(
    requests: &[R],
    mut post: impl FnMut(&R) -> Result<(), PostError>,
) -> Result<(), (usize, PostError)> {
    let mut indexed = requests.iter().enumerate();
    indexed.try_for_each(|(index, request)| post(request).map_err(|error| (index, error)))
}

/// Returns whether a queue pair in this state may wait for packets of its peer.
fn has_timers(state: QpState) -> bool {
    matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd)
}

/// Checks that a datagram may go to queue pair `qpn` on `path`, the path of its address handle.
fn check_destination(path: Result<(u32, IpAddr), PostError>, qpn: Qpn) -> Result<(), PostError> {
    let (_, to) = path?;
    match to.is_multicast() == (qpn == Qpn::MULTICAST) {
        true => Ok(()),
        false => Err(PostError::GroupNumber { given: qpn, to }),
    }
}
