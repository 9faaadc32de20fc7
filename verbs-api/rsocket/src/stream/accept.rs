//! Listeners: connection requests, and connections that wait to be accepted.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

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

/// Established connections that wait to be accepted.
pub struct AcceptQueue {
    /// Counts the connections, and one more when the listener closes.
    ready: EventFd,
    waiting: Mutex<VecDeque<Arc<Stream>>>,
    is_closed: AtomicBool,
    /// Connections that are not established yet; the service watches their descriptors.
    opening: Mutex<Vec<Arc<Stream>>>,
}

impl AcceptQueue {
    pub fn new() -> Result<Self> {
        Ok(Self {
            ready: EventFd::new()?,
            waiting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            opening: Mutex::default(),
        })
    }

    /// Adds an established connection.
    pub fn push(&self, stream: Arc<Stream>) {
        self.remove_opening(&stream);
        lock(&self.waiting).push_back(stream);
        self.ready.wake();
        poll_waiters::wake_all();
    }

    /// Removes a connection that failed.
    pub fn remove_opening(&self, stream: &Arc<Stream>) {
        lock(&self.opening).retain(|other| !Arc::ptr_eq(other, stream));
    }

    /// Returns the oldest connection.
    pub fn pop(&self, wait: Wait) -> Result<Arc<Stream>> {
        loop {
            match wait {
                Wait::Here => self.ready.take()?,
                Wait::Never if self.ready.try_take()? => {}
                Wait::Never => return Err(Errno::AGAIN),
            }
            if let Some(stream) = lock(&self.waiting).pop_front() {
                return Ok(stream);
            }
            if self.is_closed.load(Ordering::Acquire) {
                // Wakes the next waiting thread.
                self.ready.wake();
                return Err(Errno::BADF);
            }
        }
    }

    /// Returns whether a connection waits.
    pub fn is_ready(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Wakes waiting threads, and closes the connections that were not accepted.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.ready.wake();
        let left = std::mem::take(&mut *lock(&self.waiting));
        let opening = std::mem::take(&mut *lock(&self.opening));
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
    /// Answers all pending requests.
    pub fn answer_requests(self: &Arc<Self>) {
        loop {
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
        let io = self.io.get_or_init(|| StreamIo::new(endpoint, &peer));
        *self.phase() = Phase::Accepting(Arc::downgrade(listener));
        let Some(queue) = listener.queue.get() else { return Err(Errno::INVAL) };
        lock(&queue.opening).push(Arc::clone(self));
        self.id
            .accept(&io.endpoint.queues, conn, request.ece.0, &said)
            .and_then(|()| Service::get().watch(self))
            .inspect_err(|_| queue.remove_opening(self))
    }

    /// Accepts a connection. Returns the connection and its descriptor.
    pub fn accept(&self, wait: Wait) -> Result<(Arc<Stream>, RawFd)> {
        if !matches!(*self.phase(), Phase::Listening) {
            return Err(Errno::INVAL);
        }
        let stream = self.queue.get().ok_or(Errno::INVAL)?.pop(wait)?;
        let number = stream.allocate_number().inspect_err(|_| stream.close())?;
        Ok((stream, number))
    }
}
