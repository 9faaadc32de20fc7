//! A connection in all its phases, and what is done about what the connection manager tells of it.
//!
//! ```text
//!   a MAD, a timeout ──> event in the identifier's channel ──> EventHandler::wake (under locks) ──> ReadyWakers
//!                                                                                                │ under none
//!                 program <── wakers <── phase, events <── ConnectionState::handle_events  <──────────────┘
//! ```
//! What librdmacm does when a program takes an event is done here by whichever thread received the
//! MAD: a queue pair whose peer has accepted goes to RTS, one whose peer has ended the connection
//! into the error state, so that whoever waits for completions learns of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use rustix::io::Errno;
use urxe_stack::cma::{CmaEvent, CmaEventType, ConnEvent, EventParam};
use urxe_stack::cq::Wake;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_wire::mad::RejReason;

use super::connection::ConnectionEvent;
use super::error::ConnectError;
use super::service::CmId;
use crate::qp::QueuePair;
use crate::waker_list::{ReadyWakers, WakerList, lock};

/// Serves the events of one identifier as soon as no lock is held.
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
        // Events that come before are found by who makes the connection.
        if let Some(connection) = self.connection.get().and_then(Weak::upgrade) {
            connection.handle_events();
        }
    }
}

/// READs and atomics at a time, where this end has its own mind of what was agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub initiator: u8,
    pub responder: u8,
}

/// See the module.
pub(super) struct ConnectionState {
    // Goes first: the peer is told by the device that the queue pair may be the last to keep.
    pub id: CmId,
    pub qp: QueuePair,
    pub peer_addr: SocketAddr,
    pub wakers: Arc<WakerList>,
    pub min_rnr_timer: u8,
    progress: Mutex<Progress>,
    /// Events are acted upon in their order.
    handling: Mutex<()>,
}

/// What a connection and one that is about to be made push_event of the same things.
macro_rules! accessors {
    ($of:ty) => {
        impl $of {
            /// Its queue pair: in INIT, and so taking receives, until the connection is made.
            #[must_use]
            pub fn qp(&self) -> &$crate::QueuePair {
                &self.connection.qp
            }

            /// The protection domain of the queue pair.
            #[must_use]
            pub fn pd(&self) -> &$crate::ProtectionDomain {
                self.qp().pd()
            }

            /// The device.
            #[must_use]
            pub fn device(&self) -> &$crate::Device {
                self.pd().device()
            }

            /// Where its sends complete.
            #[must_use]
            pub fn send_cq(&self) -> &$crate::CompletionQueue {
                self.qp().send_cq()
            }

            /// Where its receives complete.
            #[must_use]
            pub fn recv_cq(&self) -> &$crate::CompletionQueue {
                self.qp().recv_cq()
            }

            /// The peer's address and port.
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
    /// What the peer said.
    peer: ConnEvent,
    events: VecDeque<ConnectionEvent>,
}

enum Phase {
    Connecting,
    Established,
    Failed(ConnectError),
    /// The failure was told.
    Reported,
}

impl ConnectionState {
    /// With a queue pair in RESET.
    pub fn new(
        qp: QueuePair,
        id: CmId,
        handler: &EventHandler,
        peer: ConnEvent,
        peer_addr: SocketAddr,
        min_rnr_timer: u8,
    ) -> Result<Arc<Self>, ConnectError> {
        let wakers = Arc::new(WakerList::new(Arc::clone(id.service.ready())));
        let progress =
            Mutex::new(Progress { phase: Phase::Connecting, peer, events: VecDeque::new() });
        let handling = Mutex::default();
        let made = Arc::new(Self { qp, id, peer_addr, wakers, min_rnr_timer, progress, handling });
        made.to_state(QpState::Init, None)?;
        // An handler connection one connection.
        let _ = handler.connection.set(Arc::downgrade(&made));
        Ok(made)
    }

    /// Takes events and does what they ask for.
    pub fn handle_events(&self) {
        let in_order = lock(&self.handling);
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
                self.finish(Err(ConnectError::Rejected { peer, reason, private_data }));
            }
            On::Unreachable | On::ConnectError => {
                self.finish(Err(ConnectError::Unreachable { peer }))
            }
            On::Disconnected => {
                // The peer may have sent and gone before its last word of the handshake came.
                self.finish(Ok(()));
                self.end();
                self.push_event(ConnectionEvent::Disconnected);
            }
            On::DeviceRemoval => {
                self.finish(Err(ConnectError::DeviceRemoved));
                self.push_event(ConnectionEvent::DeviceRemoved);
            }
            On::TimewaitExit => self.push_event(ConnectionEvent::TimewaitExit),
            other => tracing::debug!(event = other.name(), "not for a connection"),
        }
    }

    fn push_event(&self, event: ConnectionEvent) {
        lock(&self.progress).events.push_back(event);
    }

    /// The connection is made, or will not be.
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

    /// What became of making it, once that is known.
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

    /// To RTS, as the connection is.
    pub fn to_rts(&self, depths: Option<Depths>) -> Result<(), ConnectError> {
        [QpState::Init, QpState::Rtr, QpState::Rts]
            .into_iter()
            .try_for_each(|to| self.to_state(to, depths))
    }

    fn to_state(&self, to: QpState, depths: Option<Depths>) -> Result<(), ConnectError> {
        let (mut attr, mask) = self.id.call(|cma, _, id| cma.qp_attr(id, to))?;
        match to {
            // What a kernel that knows FLUSH allows beside.
            QpState::Init => attr.access_flags |= Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
            QpState::Rtr => {
                attr.min_rnr_timer = self.min_rnr_timer;
                attr.max_dest_rd_atomic =
                    depths.map_or(attr.max_dest_rd_atomic, |depths| depths.responder);
            }
            _ => attr.max_rd_atomic = depths.map_or(attr.max_rd_atomic, |depths| depths.initiator),
        }
        // Whom that wakes is called by who called this: it may be one of them itself.
        Ok(self.qp.modify_without_wake(&attr, mask)?)
    }

    fn establish(&self) -> Result<(), ConnectError> {
        self.id.call(|cma, now, id| cma.establish(now, id))
    }

    /// All work of the queue pair ends.
    fn to_error(&self) {
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        // From RESET there is no way and no need.
        let _ = self.qp.modify_without_wake(&attr, QpAttrMask::STATE);
    }

    /// Ends the connection, or agrees to its end.
    pub fn end(&self) {
        self.to_error();
        // Where there is nothing to end, nothing is done.
        let _ = self.id.call(|cma, now, id| cma.disconnect(now, id));
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        if !self.id.service.is_inherited() {
            // What the peer waits for an acknowledgement of is acknowledged before it hears of the
            // end.
            self.to_error();
        }
    }
}

/// What the system said when an address was looked for.
pub(super) fn resolve_error(status: i32, peer: SocketAddr) -> ConnectError {
    match status.saturating_neg() {
        libc::ENODEV => ConnectError::NoDevice { peer },
        errno => ConnectError::NoRoute { peer, errno: Errno::from_raw_os_error(errno) },
    }
}
