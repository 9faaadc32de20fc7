//! Established connections.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::ConnEvent;

use super::closing::Close;
use super::connection_state::{ConnectionState, accessors};
use super::private_data::PrivateData;
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::waker_list::{WakerList, WakerSlot};

/// An event of a connection (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// One end has disconnected, or the peer did not answer when this end disconnected. The queue
    /// pair is in the error state: outstanding work has completed with `WrFlushErr`.
    Disconnected,
    /// The device was removed.
    DeviceRemoved,
    /// No packet of the connection can be in the network any more.
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

/// An established connection and its queue pair.
///
/// When the peer disconnects, the queue pair enters the error state, so a wait for completions
/// fails with `WrFlushErr`.
///
/// # The end of a connection
/// [`close`](Self::close) loses no message: it waits until the peer has acknowledged all sends.
/// [`disconnect`](Self::disconnect) and `drop` end the connection at once. They discard:
///
/// * at this end, all sends that the peer has not acknowledged, and all posted receives. They
///   complete with `WrFlushErr` if the program keeps the completion queues. The peer may have
///   executed some of these sends, all or none.
/// * at the peer, all of its sends that this end has not acknowledged, and all posted receives.
///   They complete with `WrFlushErr` there.
///
/// Messages that were acknowledged are safe: their completions stay in the queue of the peer, and
/// the memory that they filled is the peer's own. After `drop`, the device repeats the notification
/// of the peer until the peer answers, as long as the device is open.
///
/// ```
/// use urxe::cm::{self, Connection, ConnectionEvent};
/// # use urxe::Device;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 7])?;
/// # let there = Device::open_address([127, 49, 11, 8])?;
/// # let listener = cm::Listener::builder().device(&here).bind("127.49.11.7:0")?;
/// # let to = listener.local_addr();
/// # let server = std::thread::spawn(move || listener.wait(None).unwrap().accept().unwrap());
/// # let pending = cm::prepare(to, &cm::Options::new().device(&there))?;
/// let connection: Connection = pending.establish()?;
/// println!("{} is connected to {}", connection.local_addr(), connection.peer_addr());
/// # let accepted = server.join().unwrap();
/// assert!(!connection.is_disconnected());
/// connection.disconnect();
/// assert!(connection.is_disconnected());
/// assert_eq!(connection.events().wait(None)?, ConnectionEvent::Disconnected);
/// # Ok(())
/// # }
/// ```
pub struct Connection {
    connection: Arc<ConnectionState>,
    peer: ConnEvent,
    local_addr: SocketAddr,
}

impl Connection {
    pub(super) fn new(connection: Arc<ConnectionState>) -> Self {
        let peer = connection.peer();
        let (local, _) = connection.id.addresses();
        // The identifier was bound to an address before it connected.
        let local_addr = local.unwrap_or_else(|| SocketAddr::new([0, 0, 0, 0].into(), 0));
        Self { connection, peer, local_addr }
    }

    /// Returns the address and port of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the private data of the peer, padded with zeros to the length of the message.
    #[must_use]
    pub fn peer_private_data(&self) -> PrivateData<'_> {
        PrivateData::new(&self.peer.private_data)
    }

    /// Returns the parameters of the peer: its numbers of READs and atomics, its retry counts and
    /// its queue pair number.
    #[must_use]
    pub fn peer_parameters(&self) -> &ConnEvent {
        &self.peer
    }

    /// Closes the connection: completes the sends, disconnects, and waits for the confirmation of
    /// the peer. [Await](Close) the returned value, or block in its [`wait`](Close::wait).
    ///
    /// 1. The sends that are posted when the value is first polled complete. This takes as long as
    ///    the peer takes to post receives, or until the queue pair gives up. `close` also reports a
    ///    send of the connection that failed before.
    /// 2. The connection is disconnected, as by [`disconnect`](Self::disconnect). Posted receives
    ///    complete with `WrFlushErr`.
    /// 3. The peer confirms: a program with this crate at once, and a C program when it calls
    ///    `rdma_disconnect`.
    ///
    /// An acknowledged SEND is in the memory of the peer and its receive is complete, whether or
    /// not the program there has looked at it. If both ends close at the same time, the end that
    /// finishes its sends first disconnects, and the sends of the other end may fail. A protocol in
    /// which both ends send last messages lets one end close, and the other wait for
    /// [`ConnectionEvent::Disconnected`].
    ///
    /// ```
    /// use urxe::cm::{self, Close, Listener, Options};
    /// use urxe::{Access, Data, Device, RecvRequest, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let here = Device::open_address([127, 49, 11, 23])?;
    /// # let there = Device::open_address([127, 49, 11, 24])?;
    /// # let listener = Listener::builder().device(&here).bind("127.49.11.23:0")?;
    /// # let pending = cm::prepare(listener.local_addr(), &Options::new().device(&there))?;
    /// # let inbox = pending.pd().allocate(64, Access::LOCAL_WRITE)?;
    /// # pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
    /// # let client = std::thread::spawn(move || pending.establish());
    /// let connection = listener.wait(None)?.accept()?;
    /// # let peer = client.join().unwrap()?;
    /// connection.qp().post_send(&SendRequest::send(Data::inline(b"the last words")))?;
    /// let close: Close<'_> = connection.close();
    /// pollster::block_on(close)?;
    /// assert_eq!(peer.recv_cq().wait_one(None)?.byte_len, 14);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`CloseError`](super::CloseError).
    pub fn close(&self) -> Close<'_> {
        Close::new(&self.connection)
    }

    /// Disconnects at once (`rdma_disconnect`). The queue pair enters the error state, outstanding
    /// work completes with `WrFlushErr`, and the peer is notified. The call does not wait for the
    /// peer's answer, which creates [`ConnectionEvent::Disconnected`].
    pub fn disconnect(&self) {
        self.connection.end();
        self.connection.id.service.run_ready_wakers();
    }

    /// Returns whether this end or the peer has disconnected. Then the queue pair is in the error
    /// state, or enters it at once.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.connection.is_disconnected()
    }

    /// Returns the queue of events.
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

/// The events of a connection, in the order of their arrival, made by [`Connection::events`]. If
/// several threads or tasks wait, each event goes to one of them.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEvents<'a> {
    connection: &'a ConnectionState,
}

impl<'a> ConnectionEvents<'a> {
    /// Takes the oldest event. Returns `None` if no event is pending.
    pub fn try_next(&self) -> Option<ConnectionEvent> {
        self.connection.next_event()
    }

    /// Blocks until an event arrives, and takes it. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<ConnectionEvent, WaitError> {
        let wait = BlockingWait::new(self.connection.qp.pd().device(), timeout);
        wait.until(&self.connection.wakers, || Ok(self.try_next()), || false)
    }

    /// Returns a future that waits for an event and takes it. The future needs no runtime.
    ///
    /// # Errors
    /// The result has the type of all waits. Over UDP the future does not fail.
    pub fn next(&self) -> NextConnectionEvent<'a> {
        let Self { connection } = *self;
        NextConnectionEvent { connection, slot: WakerSlot::new(&connection.wakers) }
    }
}

/// The future of [`ConnectionEvents::next`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextConnectionEvent<'a> {
    connection: &'a ConnectionState,
    slot: WakerSlot<&'a WakerList>,
}

impl Future for NextConnectionEvent<'_> {
    type Output = Result<ConnectionEvent, WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, slot } = &mut *self;
        slot.poll(connection.qp.pd().device(), cx, || connection.next_event()).map(Ok)
    }
}
