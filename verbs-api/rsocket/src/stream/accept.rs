//! Listeners: connection requests, and connections that wait to be accepted.
//!
//! A listener has at most as many connections as its backlog allows, whether they are established
//! or not. Further requests stay in the connection manager, which drops those beyond its own limit,
//! so that their peers repeat them. As in TCP, a peer that the program does not accept waits and is
//! not refused.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use urxe_stack::cma::CmaEvent;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sync::lock;

use super::connect::Phase;
use super::endpoint::Endpoint;
use super::stream_io::StreamIo;
use crate::error::Result;
use crate::options::Wait;
use crate::poll_waiters;
use crate::protocol::connect::ConnData;
use crate::protocol::stream::Stream as Protocol;
use crate::service::Service;
use crate::stream::Stream;
use crate::transport::id::{CmId, conn_event};

/// The largest number of connections of a listener that wait to be accepted. It is the usual
/// `net.core.somaxconn`, the kernel's limit for TCP. A connection has two descriptors and, by
/// default, 256 KiB of buffers.
const MAX_BACKLOG: usize = 4096;

/// The smallest number of requests that the connection manager keeps for a listener, as the kernel
/// keeps at least 128 SYNs (`net.ipv4.tcp_max_syn_backlog`). A request takes about 2 KiB, and a
/// peer repeats a dropped one after seconds.
const MIN_REQUESTS: usize = 128;

/// Returns the number of requests that the connection manager keeps for a listener of this
/// [`capacity`].
pub fn requests(capacity: usize) -> i32 {
    i32::try_from(capacity.max(MIN_REQUESTS)).unwrap_or(i32::MAX)
}

/// Returns the number of connections that a listener with this backlog may have. As in TCP, it is
/// one more than the backlog, and a negative backlog selects the maximum.
pub fn capacity(backlog: i32) -> usize {
    usize::try_from(backlog).map_or(MAX_BACKLOG, |backlog| backlog.min(MAX_BACKLOG - 1) + 1)
}

/// Connections of a listener that wait to be accepted.
pub struct AcceptQueue {
    /// Counts the established connections, and one more when the listener closes.
    ready: EventFd,
    is_closed: AtomicBool,
    connections: Mutex<Connections>,
}

struct Connections {
    capacity: usize,
    /// Established connections.
    waiting: VecDeque<Arc<Stream>>,
    /// Connections that are not established yet; the service watches their descriptors.
    opening: Vec<Arc<Stream>>,
    /// Whether requests stay in the connection manager, because there is no room.
    is_paused: bool,
}

impl Connections {
    fn has_room(&self) -> bool {
        self.waiting.len() + self.opening.len() < self.capacity
    }

    /// Watches the listener again if there is room.
    fn resume(&mut self, listener: BorrowedFd<'_>) {
        if self.is_paused && self.has_room() {
            self.is_paused = false;
            Service::get().resume(listener);
        }
    }
}

impl AcceptQueue {
    /// Makes the queue of a listener with this [`capacity`].
    pub fn new(capacity: usize) -> Result<Self> {
        Ok(Self {
            ready: EventFd::new()?,
            is_closed: AtomicBool::new(false),
            connections: Mutex::new(Connections {
                capacity,
                waiting: VecDeque::new(),
                opening: Vec::new(),
                is_paused: false,
            }),
        })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        lock(&self.connections)
    }

    /// Changes the capacity. Connections beyond a smaller one stay.
    pub fn set_capacity(&self, listener: BorrowedFd<'_>, capacity: usize) {
        let mut connections = self.connections();
        connections.capacity = capacity;
        connections.resume(listener);
    }

    /// Returns whether there is room for another connection. If not, the service does not watch the
    /// listener until there is.
    fn has_room_or_pause(&self, listener: BorrowedFd<'_>) -> bool {
        let mut connections = self.connections();
        let has_room = connections.has_room();
        if !has_room && !connections.is_paused {
            connections.is_paused = true;
            Service::get().pause(listener);
        }
        has_room
    }

    /// Adds a connection whose request is being accepted. Only the service thread adds.
    fn add_opening(&self, stream: Arc<Stream>) {
        self.connections().opening.push(stream);
    }

    /// Moves a connection that is now established to those that wait.
    pub fn push(&self, stream: Arc<Stream>) {
        let mut connections = self.connections();
        connections.opening.retain(|other| !Arc::ptr_eq(other, &stream));
        connections.waiting.push_back(stream);
        drop(connections);
        self.ready.wake();
        poll_waiters::wake_all();
    }

    /// Removes a connection that failed.
    pub fn remove_opening(&self, listener: BorrowedFd<'_>, stream: &Arc<Stream>) {
        let mut connections = self.connections();
        connections.opening.retain(|other| !Arc::ptr_eq(other, stream));
        connections.resume(listener);
    }

    /// Returns the oldest connection.
    pub fn pop(&self, listener: BorrowedFd<'_>, wait: Wait) -> Result<Arc<Stream>> {
        loop {
            match wait {
                Wait::Here => self.ready.take()?,
                Wait::Never if self.ready.try_take()? => {}
                Wait::Never => return Err(Errno::AGAIN),
            }
            let mut connections = self.connections();
            if let Some(stream) = connections.waiting.pop_front() {
                connections.resume(listener);
                return Ok(stream);
            }
            drop(connections);
            if self.is_closed.load(Ordering::Acquire) {
                // Wakes the next waiting thread.
                self.ready.wake();
                return Err(Errno::BADF);
            }
        }
    }

    /// Returns whether a connection waits.
    pub fn is_ready(&self) -> bool {
        !self.connections().waiting.is_empty()
    }

    /// Wakes waiting threads, and closes the connections that were not accepted.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.ready.wake();
        let mut connections = self.connections();
        let left = std::mem::take(&mut connections.waiting);
        let opening = std::mem::take(&mut connections.opening);
        drop(connections);
        for stream in left.into_iter().chain(opening) {
            stream.close();
        }
    }
}

impl AsFd for AcceptQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Stream {
    /// Answers the pending requests for which there is room.
    pub fn answer_requests(self: &Arc<Self>) {
        let Some(queue) = self.queue.get() else { return };
        while queue.has_room_or_pause(self.as_fd()) {
            match self.id.next_request() {
                Ok(Some((id, request))) => {
                    if let Err(error) = self.answer_request(id, &request) {
                        tracing::info!(%error, "rsocket {}: a request is refused", self.fd);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::info!(%error, "rsocket {}: an event is no request", self.fd);
                    return;
                }
            }
        }
    }

    fn answer_request(self: &Arc<Self>, id: CmId, request: &CmaEvent) -> Result<()> {
        let made = Stream::of_id(id, self.family, lock(&self.options).sizes);
        let inherited = |of: &AtomicI32| of.load(Ordering::Relaxed);
        made.flags.set(inherited(&self.flags.status), inherited(&self.flags.descriptor));
        made.accept_request(self, request).inspect_err(|_| made.id.reject())
    }

    fn accept_request(self: &Arc<Self>, listener: &Arc<Self>, request: &CmaEvent) -> Result<()> {
        let conn = conn_event(request).ok_or(Errno::PROTO)?;
        let peer = ConnData::parse(&conn.private_data).ok_or(Errno::PROTO)?;
        let endpoint = Endpoint::new(&self.id, lock(&self.options).sizes)?;
        let said = Protocol::conn_data(&endpoint.sizes, &endpoint.local_memory()).to_bytes();
        lock(&self.options).sizes = endpoint.sizes;
        let io = StreamIo::new(endpoint, &peer)?;
        let io = self.io.get_or_init(|| io);
        *self.phase() = Phase::Accepting(Arc::downgrade(listener));
        let Some(queue) = listener.queue.get() else { return Err(Errno::INVAL) };
        queue.add_opening(Arc::clone(self));
        self.id
            .accept(&io.endpoint.queues, conn, request.ece.0, &said)
            .and_then(|()| Service::get().watch(self))
            .inspect_err(|_| queue.remove_opening(listener.as_fd(), self))
    }

    /// Accepts a connection. Returns the connection and its descriptor.
    pub fn accept(&self, wait: Wait) -> Result<(Arc<Stream>, RawFd)> {
        if !matches!(*self.phase(), Phase::Listening) {
            return Err(Errno::INVAL);
        }
        let stream = self.queue.get().ok_or(Errno::INVAL)?.pop(self.as_fd(), wait)?;
        let number = stream.allocate_number().inspect_err(|_| stream.close())?;
        Ok((stream, number))
    }
}
