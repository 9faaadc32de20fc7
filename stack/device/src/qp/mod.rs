//! Queue pairs.
//!
//! One queue pair is one `&mut self` state machine: packets, posts and time go in, packets go into
//! a run, completions into the completion queues. It knows no socket and no other queue pair. `Qp`
//! keeps what is the same for every service and hands the rest to the service of its type.
//!
//! | file | subject |
//! |---|---|
//! | [`transition`] | which transition takes which attributes: one table |
//! | `queue` | the ring of sends |
//! | `recv_queue` | where receives come from: the own ring or a shared one |
//! | `service` | a service: a half that sends and a half that receives |
//! | `any_service` | the services by the type of their queue pairs |
//! | `rc` | reliable connections |
//! | `uc` | the responder of an unreliable connection |
//! | [`ud`] | the responder of a datagram queue pair |
//! | `unreliable` | the requester of both: sending without answers |
//! | `inbound` | the message under way to a connected responder |
//! | `headers` | opcode and headers of each packet of a SEND or WRITE |
//! | `local_ops` | work requests that send nothing: windows and fast registration |
//! | `context` | the surroundings of a call into a queue pair |
//! | `qp_core` | the state and attributes that the two halves share |
//! | `completion_batch` | completions of sends, told together |
//! | `sge_copy` | copies between packets and scatter-gather lists |

// Before `any_service`: enum_dispatch writes the enum's code where the second of the two stands.
mod service;

mod any_service;
pub(crate) mod completion_batch;
pub(crate) mod context;
mod headers;
mod inbound;
mod local_ops;
pub(crate) mod qp_core;
mod queue;
mod rc;
mod recv_queue;
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
use self::qp_core::{QpCore, XrcTarget};
use self::recv_queue::RecvQueue;
use self::service::{SchedulingHint, TransportService};
use self::transition::Step;
use self::work_request::{Destination, PostError, RecvRequest, SendRequest};
use crate::cq::{Cq, CqRef, QpEventType};
use crate::path::Path;
use crate::path::acks::Ack;
use crate::path::ecn::{self, Cnp};
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use crate::srq::xrcd::XrcdRef;
use crate::srq::{Srq, SrqRef};
use urxe_memory::PdId;
use urxe_types::counters::Counter;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;

/// What a queue pair is made of; nothing of it changes while it lives.
#[derive(Debug)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Protection domain of its local buffers and of what peers may reach through it, or a parent
    /// domain of that.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: Arc<Cq>,
    /// Where receives complete.
    pub recv_cq: Arc<Cq>,
    /// Where receives come from, if not from a queue of its own; the sizes of that one are then not
    /// looked at.
    pub srq: Option<Arc<Srq>>,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Every send makes a completion, whatever its flags say.
    pub sq_sig_all: bool,
}

/// One queue pair.
#[derive(Debug)]
#[repr(C)] // what each packet looks at stands together
pub(crate) struct Qp {
    /// The earliest entry that the device's timers hold for it.
    pub timer_at: Time,
    /// The entry that was the earliest before, if it still stands.
    pub timer_then: Time,
    /// The path to the peer, once connected: its index on the device, and the peer's address.
    pub path: Option<(u32, IpAddr)>,
    /// It waits in an admission queue of its path, or is on the path's list of queue pairs blocked
    /// at a post. [`move_to_path`](Self::move_to_path) clears it. The other changes of `path` are
    /// those of datagrams, which take no credit and never set it.
    pub is_blocked: bool,
    established: bool,
    drained: bool,
    pub core: QpCore,
    service: AnyService,
}

impl Qp {
    /// `pd`: the protection domain that `init` names or is of. `cqs`: where sends and, if it
    /// receives, receives complete.
    pub fn new(
        init: &QpInit,
        pd: PdId,
        qpn: Qpn,
        cqs: (CqRef, Option<CqRef>),
        srq: Option<SrqRef>,
        limits: &urxe_types::limits::Limits,
        active_mtu: PathMtu,
    ) -> Self {
        let (send_cq, recv_cq) = cqs;
        let mut cap = init.cap;
        if srq.is_some() || init.qp_type == QpType::XrcSend {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let has_srq = srq.is_some();
        let receives = match srq {
            Some(srq) => RecvQueue::shared(srq),
            None => RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge),
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
        Self::with(core, AnyService::new(init.qp_type, &cap, receives))
    }

    /// The receiving end of an XRC connection: it sends answers only.
    pub fn xrc_target(qpn: Qpn, xrcd: XrcdRef, limits: &urxe_types::limits::Limits) -> Self {
        // Each message brings the protection domain that it is checked against; none is in this
        // one.
        let nowhere = PdId(0);
        let (qp_type, cap) = (QpType::XrcRecv, QpCap::default());
        let core = QpCore {
            xrc: Some(XrcTarget { xrcd, srq: None, opens: 1 }),
            ..QpCore::new(qpn, qp_type, nowhere, cap, limits)
        };
        let receives = RecvQueue::xrc(limits.max_srq_sge);
        Self::with(core, AnyService::new(qp_type, &cap, receives))
    }

    fn with(core: QpCore, service: AnyService) -> Self {
        Self {
            core,
            service,
            path: None,
            timer_at: Time::NEVER,
            timer_then: Time::NEVER,
            is_blocked: false,
            established: false,
            drained: false,
        }
    }

    /// All attributes as they are.
    pub fn query(&self) -> QpAttr {
        let state = self.core.state;
        let sq_draining = state == QpState::Sqd && !self.drained;
        QpAttr { qp_state: state, cur_qp_state: state, sq_draining, ..self.core.attr }
    }

    /// Takes a transition that [`transition::plan`] allowed, with the attributes of `mask`.
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
                self.established = false;
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

    /// What was completed and not polled goes, too, as with hardware (mlx5's `mlx5_cq_clean`): a
    /// program that starts over would take it for the outcome of what it posts next.
    fn reset(&mut self, cx: &QpContext<'_>) {
        self.release(cx);
        for cq in self.core.send_cq.iter().chain(&self.core.recv_cq) {
            cq.withdraw(self.core.qpn);
        }
        let cap = self.core.attr.cap;
        self.core.attr = QpAttr { cap, ..QpAttr::default() };
        self.core.cq_overrun = false;
        self.core.fatal = false;
    }

    /// Goes to the error state and completes everything posted as flushed.
    pub fn enter_error(&mut self, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        let first_time = self.core.state != QpState::Err;
        self.core.state = QpState::Err;
        self.flush(cx);
        if first_time && self.core.has_srq {
            // It takes no more, and what it had taken is complete (IBTA vol. 1, 11.6.3.2).
            self.core.raise(QpEventType::QpLastWqeReached, cx);
        }
        // A flushed completion that found its queue full changes nothing any more.
        self.core.cq_overrun = false;
        self.core.fatal = false;
        self.core.send_failed = false;
    }

    /// Completes everything that was posted with "flushed".
    fn flush(&mut self, cx: &QpContext<'_>) {
        self.service.send_half().flush(&mut self.core, cx);
        self.service.receive_half().flush(&mut self.core, cx);
    }

    /// A send failed on an unreliable service: those after it are flushed, receiving goes on
    /// (10.3.1.6).
    fn enter_send_error(&mut self, cx: &QpContext<'_>) {
        cx.batched_cq.release();
        self.core.state = QpState::Sqe;
        self.service.send_half().flush(&mut self.core, cx);
        if std::mem::take(&mut self.core.cq_overrun) {
            self.core.raise(QpEventType::QpFatal, cx);
            self.enter_error(cx);
        }
    }

    /// Stands on the path of the oldest message, for a service whose messages choose theirs.
    fn select_path(&mut self, cx: &QpContext<'_>) {
        if self.core.qp_type.is_datagram()
            && let Some(path) = self.service.send_half().next_path(cx)
        {
            self.path = Some(path);
        }
    }

    /// The path that it stands on was closed. True if it goes on, on another.
    pub fn on_path_closed(&mut self, cx: &QpContext<'_>) -> bool {
        let closed = self.path.take();
        self.service.send_half().on_path_closed(&mut self.core, cx);
        self.check_outcome(cx);
        self.select_path(cx);
        self.path.is_some() && self.path != closed
    }

    /// The path that it counts as a user of: a connection's. Datagrams use those of their address
    /// handles.
    pub fn counted_path(&self) -> Option<(u32, IpAddr)> {
        self.path.filter(|_| !self.core.qp_type.is_datagram())
    }

    /// Moves to another path; returns the former one, whose window `cx` has.
    pub fn move_to_path(
        &mut self,
        path: Option<(u32, IpAddr)>,
        cx: &QpContext<'_>,
    ) -> Option<(u32, IpAddr)> {
        self.service.send_half().return_credit(cx);
        // The list of the old path may still name this queue pair; it will not be found there.
        self.is_blocked = false;
        let held = self.counted_path();
        self.path = path;
        held
    }

    /// Forgets everything that was posted, and gives back what the path's window holds for this
    /// queue pair: in RESET, and before it is destroyed.
    pub fn release(&mut self, cx: &QpContext<'_>) {
        self.service.send_half().reset(cx);
        self.service.receive_half().reset();
    }

    /// Queues send work requests, in order, up to the first that is refused. `Err` with its index.
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

    /// Whether a post finds it blocked: all that it has to send was posted just now, `posted`
    /// requests, and there is no room for it.
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

    /// Queues receive work requests, in order, up to the first that is refused. `Err` with its
    /// index.
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

    /// Takes a packet that is addressed to this queue pair and whose ICRC holds.
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
            tracing::debug!(qp = %self.core.qpn, %state, opcode = %info.name, "dropped: QP is not in ready state");
            return cx.device.counters.add(Counter::DropNotReady);
        }
        if state == QpState::Rtr && !self.established {
            self.established = true;
            self.core.raise(QpEventType::CommEst, cx);
        }
        self.service.on_packet(&mut self.core, cx, packet);
        self.check_outcome(cx);
    }

    /// Appends packets to `run`.
    #[inline(always)]
    pub fn transmit(&mut self, cx: &mut QpContext<'_>, run: &mut RunBuffer) -> TransmitStatus {
        let sent = self.service.transmit(&mut self.core, cx, run);
        self.check_outcome(cx);
        self.select_path(cx);
        sent
    }

    /// Takes its acknowledgement out, if that is all that it has to send now.
    #[inline(always)]
    pub fn take_ack(&mut self, now: Time) -> Option<Ack> {
        self.service.take_ack(&self.core, now)
    }

    /// Whether routers may mark its packets instead of dropping them: it slows down when its peer
    /// tells of that.
    pub fn is_ecn_capable(&self) -> bool {
        self.core.qp_type.is_ecn_capable()
    }

    /// What to tell the peer, whose packets came marked; `None` if it was told a moment ago.
    pub fn take_cnp(&mut self, now: Time) -> Option<Cnp> {
        let core = &mut self.core;
        if now < core.next_cnp_at {
            return None;
        }
        core.next_cnp_at = now.plus_ns(ecn::CNP_PAUSE_NS);
        Some(Cnp { to: core.attr.dest_qp_num, pkey: core.pkey })
    }

    /// Does what is due.
    pub fn on_timer(&mut self, cx: &QpContext<'_>) {
        if has_timers(self.core.state) {
            self.service.receive_half().on_timer(cx);
            self.service.send_half().on_timer(&mut self.core, cx);
            self.check_outcome(cx);
        }
    }

    /// When it wants to be looked at again.
    #[inline]
    pub fn deadline(&self) -> Time {
        match &self.service {
            _ if !has_timers(self.core.state) => Time::NEVER,
            // What most are, in place.
            AnyService::Rc(rc) => rc.deadline(),
            service => service.deadline(),
        }
    }

    /// What it will do next.
    #[inline(always)]
    pub fn scheduling_hint(&self, now: Time) -> SchedulingHint {
        let mut hint = match &self.service {
            // What most are, in place.
            AnyService::Rc(rc) => rc.scheduling_hint(now),
            service => service.scheduling_hint(now),
        };
        hint.has_data_to_send |= self.is_blocked;
        if !has_timers(self.core.state) {
            hint.deadline = Time::NEVER;
        }
        hint
    }

    /// Whether there may be something to send now.
    pub fn wants_to_send(&self, now: Time) -> bool {
        self.service.wants_to_send(now)
    }

    #[inline]
    fn check_outcome(&mut self, cx: &QpContext<'_>) {
        let core = &self.core;
        if core.cq_overrun | core.fatal | core.send_failed | (core.state == QpState::Sqd) {
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
        }
    }

    /// SQD: the event once everything that was begun is complete (10.3.1.5).
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

/// Posts requests in order, up to the first that is refused. `Err` with its index.
fn post_each<R>(
    requests: &[R],
    mut post: impl FnMut(&R) -> Result<(), PostError>,
) -> Result<(), (usize, PostError)> {
    let mut indexed = requests.iter().enumerate();
    indexed.try_for_each(|(index, request)| post(request).map_err(|error| (index, error)))
}

/// Whether a queue pair in this state waits for what its peer sends.
fn has_timers(state: QpState) -> bool {
    matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd)
}

/// Whether a datagram can go to queue pair `qpn` on the way `path`, that of its address handle.
fn check_destination(path: Result<(u32, IpAddr), PostError>, qpn: Qpn) -> Result<(), PostError> {
    let (_, to) = path?;
    match to.is_multicast() == (qpn == Qpn::MULTICAST) {
        true => Ok(()),
        false => Err(PostError::GroupNumber { given: qpn, to }),
    }
}
