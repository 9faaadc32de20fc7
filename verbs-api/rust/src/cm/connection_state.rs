//! The state of a connection in all its phases, and the reactions to events of the connection
//! manager.
//!
//! ```text
//!   a MAD, a timeout ──> event in the channel ──> EventHandler::wake (under locks)
//!                                                            │
//!                       ReadyWakers (under no lock)  <───────┘
//!                            └──> ConnectionState::handle_events ──> phase, events, wakers
//! ```
//!
//! The first request of the peer on the queue pair replaces an RTU that was lost (IBTA vol. 1,
//! 12.9.7.2). The queue pair then wakes the same handler.
//!
//! With librdmacm, the program changes the queue pair when it takes an event. Here the thread that
//! received the MAD does this: when the peer accepts, it moves the queue pair to RTS. When the peer
//! disconnects, it moves the queue pair to the error state, so waits for completions return.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use urxe_stack::cma::{CmaEvent, CmaEventType, ConnEvent, EventParam};
use urxe_stack::cq::Wake;
use urxe_stack::errno::OsError;
use urxe_stack::memory::Access;
use urxe_stack::port::udp::PathError;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_stack::time::Time;
use urxe_wire::mad::RejReason;

use super::closing::Closing;
use super::connection::ConnectionEvent;
use super::error::ConnectError;
use super::service::CmId;
use crate::qp::QueuePair;
use crate::waker_list::{ReadyWakers, WakerList, lock};

/// Handles the events of one identifier as soon as the current thread holds no lock.
pub(super) struct EventHandler {
    ready: Arc<ReadyWakers>,
    me: Weak<Self>,
    connection: OnceLock<Weak<ConnectionState>>,
}

impl EventHandler {
    pub fn new(ready: &Arc<ReadyWakers>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            ready: Arc::clone(ready),
            me: me.clone(),
            connection: OnceLock::new(),
        })
    }
}

impl Wake for EventHandler {
    fn wake(&self) {
        if let Some(me) = self.me.upgrade() {
            self.ready.push(Waker::from(me));
        }
    }
}

impl std::task::Wake for EventHandler {
    fn wake(self: Arc<Self>) {
        // The creator of the connection handles all events that arrive before this pointer is set.
        if let Some(connection) = self.connection.get().and_then(Weak::upgrade) {
            connection.handle_events();
        }
    }
}

/// The numbers of READs and atomics of this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub initiator: u8,
    pub responder: u8,
}

/// The state of one connection.
pub(super) struct ConnectionState {
    // This field is dropped first: the device sends the notification of the peer, and the queue
    // pair may be the last to keep the device open.
    pub id: CmId,
    pub qp: QueuePair,
    pub peer_addr: SocketAddr,
    pub wakers: Arc<WakerList>,
    pub min_rnr_timer: u8,
    pub(super) closing: Mutex<Closing>,
    /// The time of its creation. Errors of the path from before explain nothing.
    since: Time,
    progress: Mutex<Progress>,
    /// Whether one end has disconnected. It is set before the queue pair flushes its work, and
    /// read after a flushed completion was taken.
    is_disconnected: AtomicBool,
    /// Whether this end has accepted, and a request of the peer establishes the connection.
    awaits_peer: AtomicBool,
    handler: Weak<EventHandler>,
    /// Locked while events are handled, so that events are handled in their order.
    handling: Mutex<()>,
}

/// Defines the methods that an established and a pending connection share.
macro_rules! accessors {
    ($of:ty) => {
        impl $of {
            /// Returns the queue pair. Until the connection is established, the queue pair is in
            /// INIT and accepts receives.
            #[must_use]
            pub fn qp(&self) -> &$crate::QueuePair {
                &self.connection.qp
            }

            /// Returns the protection domain of the queue pair.
            #[must_use]
            pub fn pd(&self) -> &$crate::ProtectionDomain {
                self.qp().pd()
            }

            /// Returns the device.
            #[must_use]
            pub fn device(&self) -> &$crate::Device {
                self.pd().device()
            }

            /// Returns the completion queue of sends.
            #[must_use]
            pub fn send_cq(&self) -> &$crate::CompletionQueue {
                self.qp().send_cq()
            }

            /// Returns the completion queue of receives.
            #[must_use]
            pub fn recv_cq(&self) -> &$crate::CompletionQueue {
                self.qp().recv_cq()
            }

            /// Returns the address and port of the peer.
            #[must_use]
            pub fn peer_addr(&self) -> std::net::SocketAddr {
                self.connection.peer_addr
            }
        }
    };
}
pub(super) use accessors;

struct Progress {
    phase: Phase,
    /// The parameters of the peer.
    peer: ConnEvent,
    events: VecDeque<ConnectionEvent>,
    end: Option<End>,
}

/// How an established connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// One end asked to disconnect, and the other end knows.
    Agreed,
    /// The peer does not answer.
    Unanswered,
    DeviceRemoved,
}

enum Phase {
    Connecting,
    Established,
    Failed(ConnectError),
    /// The failure was returned to the program.
    Reported,
}

impl ConnectionState {
    /// Returns the state of a new connection. The queue pair must be in RESET.
    pub fn new(
        qp: QueuePair,
        id: CmId,
        handler: &EventHandler,
        peer: ConnEvent,
        peer_addr: SocketAddr,
        min_rnr_timer: u8,
    ) -> Result<Arc<Self>, ConnectError> {
        let wakers = Arc::new(WakerList::new(Arc::clone(id.service.ready())));
        let progress = Mutex::new(Progress {
            phase: Phase::Connecting,
            peer,
            events: VecDeque::new(),
            end: None,
        });
        let since = qp.pd().device().inner.backend.now();
        let made = Arc::new(Self {
            qp,
            id,
            peer_addr,
            wakers,
            min_rnr_timer,
            closing: Mutex::default(),
            since,
            progress,
            is_disconnected: AtomicBool::new(false),
            awaits_peer: AtomicBool::new(false),
            handler: handler.me.clone(),
            handling: Mutex::default(),
        });
        made.to_state(QpState::Init, None)?;
        // This cannot fail: each handler belongs to one connection.
        let _ = handler.connection.set(Arc::downgrade(&made));
        Ok(made)
    }

    /// Takes and handles all pending events.
    pub fn handle_events(&self) {
        let in_order = lock(&self.handling);
        self.check_peer();
        let mut any = false;
        while let Some(event) = self.id.next_event() {
            any = true;
            self.on_event(event);
        }
        drop(in_order);
        if any {
            self.wakers.wake();
        }
    }

    /// Lets the first request of the peer establish the connection, as its RTU does.
    pub fn await_peer(&self) {
        self.awaits_peer.store(true, Ordering::Relaxed);
        if let Some(handler) = self.handler.upgrade() {
            self.qp.watch_peer(handler);
        }
    }

    fn check_peer(&self) {
        if self.awaits_peer.load(Ordering::Relaxed) && self.qp.is_peer_heard() {
            self.awaits_peer.store(false, Ordering::Relaxed);
            // This fails if the RTU has arrived.
            let _ = self.id.call(|cma, now, id| cma.communication_established(now, id));
        }
    }

    fn on_event(&self, event: CmaEvent) {
        use CmaEventType as On;
        let peer = self.peer_addr;
        match event.event_type {
            On::ConnectResponse => {
                if let EventParam::Conn(param) = event.param {
                    lock(&self.progress).peer = param;
                }
                self.finish(self.to_rts(None).and_then(|()| self.establish()));
            }
            On::Established => self.finish(Ok(())),
            On::Rejected => {
                let reason = RejReason(u16::try_from(event.status).unwrap_or_default());
                let private_data = match event.param {
                    EventParam::Conn(param) => param.private_data,
                    _ => Vec::new(),
                };
                self.finish(Err(ConnectError::Rejected {
                    peer,
                    reason,
                    peer_private_data: private_data,
                }));
            }
            On::Unreachable | On::ConnectError => {
                let likely = self.path_error();
                self.finish(Err(ConnectError::Unreachable { peer, likely }))
            }
            On::Disconnected => {
                // The peer may disconnect before the last message of the handshake arrives.
                self.finish(Ok(()));
                self.end();
                let end = if event.status == 0 { End::Agreed } else { End::Unanswered };
                self.push_end(ConnectionEvent::Disconnected, end);
            }
            On::DeviceRemoval => {
                self.finish(Err(ConnectError::DeviceRemoved));
                self.push_end(ConnectionEvent::DeviceRemoved, End::DeviceRemoved);
            }
            On::TimewaitExit => {
                lock(&self.progress).events.push_back(ConnectionEvent::TimewaitExit)
            }
            other => tracing::debug!(event = other.name(), "not for a connection"),
        }
    }

    /// Returns the error of the path that may explain why the peer does not answer.
    pub fn path_error(&self) -> Option<PathError> {
        self.qp.pd().device().inner.backend.path_error(self.peer_addr.ip(), self.since)
    }

    fn push_end(&self, event: ConnectionEvent, end: End) {
        let mut progress = lock(&self.progress);
        progress.events.push_back(event);
        progress.end.get_or_insert(end);
    }

    /// Returns how the connection ended, if it has ended.
    pub(super) fn how_ended(&self) -> Option<End> {
        lock(&self.progress).end
    }

    /// Returns whether one end has disconnected.
    pub fn is_disconnected(&self) -> bool {
        // Pairs with the store of `end`.
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// Records whether the connection is established.
    fn finish(&self, outcome: Result<(), ConnectError>) {
        let mut progress = lock(&self.progress);
        if !matches!(progress.phase, Phase::Connecting) {
            return;
        }
        progress.phase = match outcome {
            Ok(()) => Phase::Established,
            Err(error) => Phase::Failed(error),
        };
        let failed = matches!(progress.phase, Phase::Failed(_));
        drop(progress);
        if failed {
            self.to_error();
        }
    }

    /// Returns the result of establishing the connection. Returns `None` while the handshake is in
    /// progress.
    pub fn outcome(&self) -> Option<Result<(), ConnectError>> {
        let mut progress = lock(&self.progress);
        match std::mem::replace(&mut progress.phase, Phase::Reported) {
            Phase::Connecting => {
                progress.phase = Phase::Connecting;
                None
            }
            Phase::Established => {
                progress.phase = Phase::Established;
                Some(Ok(()))
            }
            Phase::Failed(error) => Some(Err(error)),
            Phase::Reported => Some(Err(ConnectError::Withdrawn { peer: self.peer_addr })),
        }
    }

    pub fn peer(&self) -> ConnEvent {
        lock(&self.progress).peer.clone()
    }

    pub fn next_event(&self) -> Option<ConnectionEvent> {
        lock(&self.progress).events.pop_front()
    }

    /// Moves the queue pair to RTS with the negotiated attributes.
    pub fn to_rts(&self, depths: Option<Depths>) -> Result<(), ConnectError> {
        [QpState::Init, QpState::Rtr, QpState::Rts]
            .into_iter()
            .try_for_each(|to| self.to_state(to, depths))
    }

    fn to_state(&self, to: QpState, depths: Option<Depths>) -> Result<(), ConnectError> {
        let (mut attr, mask) = self.id.call(|cma, _, id| cma.qp_attr(id, to))?;
        match to {
            // A kernel that supports FLUSH grants these rights, too.
            QpState::Init => attr.access_flags |= Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
            QpState::Rtr => {
                attr.min_rnr_timer = self.min_rnr_timer;
                attr.max_dest_rd_atomic =
                    depths.map_or(attr.max_dest_rd_atomic, |depths| depths.responder);
            }
            _ => attr.max_rd_atomic = depths.map_or(attr.max_rd_atomic, |depths| depths.initiator),
        }
        // The caller runs the wakers that became ready, because the caller may be one of them.
        Ok(self.qp.modify_without_wake(&attr, mask)?)
    }

    fn establish(&self) -> Result<(), ConnectError> {
        self.id.call(|cma, now, id| cma.establish(now, id))
    }

    /// Moves the queue pair to the error state, which flushes its work.
    fn to_error(&self) {
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        // This fails in RESET, where the queue pair has no work.
        let _ = self.qp.modify_without_wake(&attr, QpAttrMask::STATE);
    }

    /// Disconnects, or confirms that the peer disconnected.
    pub fn end(&self) {
        // Pairs with the load of `is_disconnected`.
        self.is_disconnected.store(true, Ordering::Release);
        self.to_error();
        // This fails if the connection is not established.
        let _ = self.id.call(|cma, now, id| cma.disconnect(now, id));
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        if !self.id.service.is_inherited() {
            // The error state sends the outstanding acknowledgements, so the peer receives them
            // before the notification that this end disconnected.
            self.to_error();
        }
    }
}

/// Returns the error for the status of an address resolution.
pub(super) fn resolve_error(status: i32, peer: SocketAddr) -> ConnectError {
    match status.saturating_neg() {
        libc::ENODEV => ConnectError::NoDevice { peer },
        errno => ConnectError::NoRoute { peer, errno: OsError::new(errno) },
    }
}
