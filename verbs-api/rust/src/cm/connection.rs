//! Connections.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::ConnEvent;

use super::connection_state::{ConnectionState, accessors};
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::waker_list::{WakerList, WakerSlot};

/// What happened to a connection (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// One side has ended it, or the peer is gone and did not answer when this side ended it. The
    /// queue pair is in the error state: what was outstanding has completed with `WrFlushErr`.
    Disconnected,
    /// The device was taken away.
    DeviceRemoved,
    /// No packet of the connection can be on its way any more.
    TimewaitExit,
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disconnected => "disconnected",
            Self::DeviceRemoved => "device removed",
            Self::TimewaitExit => "end of timewait",
        })
    }
}

/// A connection with its queue pair; all calls take `&self`. When the peer ends it, the queue pair
/// goes into the error state by itself, so who waits for completions gets `WrFlushErr`. Dropping
/// the connection ends it without waiting for anything that was posted: wait for the completions of
/// your last sends first.
pub struct Connection {
    connection: Arc<ConnectionState>,
    peer: ConnEvent,
    local_addr: SocketAddr,
}

impl Connection {
    pub(super) fn new(connection: Arc<ConnectionState>) -> Self {
        let peer = connection.peer();
        let (local, _) = connection.id.addresses();
        // It was bound before it connected.
        let local_addr = local.unwrap_or_else(|| SocketAddr::new([0, 0, 0, 0].into(), 0));
        Self { connection, peer, local_addr }
    }

    /// This end's address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What the peer's program said with its request, or when it accepted, with the zeros behind
    /// that fill the message.
    #[must_use]
    pub fn peer_private_data(&self) -> &[u8] {
        &self.peer.private_data
    }

    /// What else the peer said of the connection: READs and atomics at a time, retries, its queue
    /// pair.
    #[must_use]
    pub fn peer_parameters(&self) -> &ConnEvent {
        &self.peer
    }

    /// Ends the connection (`rdma_disconnect`): the queue pair goes into the error state, what is
    /// outstanding completes with `WrFlushErr`, the peer is told. Does not wait for its answer;
    /// [`ConnectionEvent::Disconnected`] tells of that.
    pub fn disconnect(&self) {
        self.connection.end();
        self.connection.id.service.run_ready_wakers();
    }

    /// Its events.
    #[must_use]
    pub fn events(&self) -> ConnectionEvents<'_> {
        ConnectionEvents { connection: &self.connection }
    }
}

accessors!(Connection);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("local_addr", &self.local_addr)
            .field("peer_addr", &self.peer_addr())
            .field("qp", self.qp())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionState")
            .field("peer_addr", &self.peer_addr)
            .field("qp", &self.qp)
            .finish_non_exhaustive()
    }
}

/// The events of a connection, in the order in which they came; made by [`Connection::events`].
/// Each goes to one who asks.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEvents<'a> {
    connection: &'a ConnectionState,
}

impl<'a> ConnectionEvents<'a> {
    /// Takes the oldest event, if there is one.
    pub fn try_next(&self) -> Option<ConnectionEvent> {
        self.connection.next_event()
    }

    /// Sleeps until there is an event, and takes it. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<ConnectionEvent, WaitError> {
        let wait = BlockingWait::new(self.connection.qp.pd().device(), timeout);
        wait.until(&self.connection.wakers, || Ok(self.try_next()), || false)
    }

    /// Waits in a task until there is an event, and takes it. Needs no runtime.
    pub fn next(&self) -> NextConnectionEvent<'a> {
        let Self { connection } = *self;
        NextConnectionEvent { connection, slot: WakerSlot::new(&connection.wakers) }
    }
}

/// Future of [`ConnectionEvents::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextConnectionEvent<'a> {
    connection: &'a ConnectionState,
    slot: WakerSlot<&'a WakerList>,
}

impl Future for NextConnectionEvent<'_> {
    type Output = ConnectionEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionEvent> {
        let Self { connection, slot } = &mut *self;
        slot.poll(cx, || connection.next_event())
    }
}
