//! Listeners: requests that come, and connections that wait to be accepted.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;

use super::answer::{Result, errno};
use super::connect::Phase;
use super::endpoint::Endpoint;
use super::link::{Link, Wait};
use super::protocol::stream::Stream as Protocol;
use super::service::Service;
use super::stream::Stream;
use super::table::{self, Entry};
use crate::cm::{connect as cm_connect, endpoint as cm_endpoint, id as cm_id};
use crate::layout::rdma_cm_id;
use crate::node::lock;

/// Connections that stand and wait to be accepted.
pub struct Queue {
    /// One count for each, and one more when the listener is closed.
    ready: EventFd,
    waiting: Mutex<VecDeque<Arc<Stream>>>,
    is_closed: AtomicBool,
    /// Those that do not stand yet; their descriptors are the service's to watch.
    opening: Mutex<Vec<Arc<Stream>>>,
}

impl Queue {
    pub fn new() -> Result<Self> {
        Ok(Self {
            ready: EventFd::new()?,
            waiting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            opening: Mutex::default(),
        })
    }

    /// A connection stands.
    pub fn push(&self, stream: Arc<Stream>) {
        self.give_up(&stream);
        lock(&self.waiting).push_back(stream);
        self.ready.wake();
        super::sleepers::wake_all();
    }

    /// A connection will not stand.
    pub fn give_up(&self, stream: &Arc<Stream>) {
        lock(&self.opening).retain(|other| !Arc::ptr_eq(other, stream));
    }

    /// The connection that has waited longest.
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
                // For the next one who waits.
                self.ready.wake();
                return Err(Errno::BADF);
            }
        }
    }

    /// Whether one waits.
    pub fn is_ready(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Wakes who waits; what nobody accepted is closed.
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

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Stream {
    /// Answers all requests that have come.
    pub fn admit_all(self: &Arc<Self>) {
        while self.has_event() {
            // SAFETY: the listener is there, and the service's thread alone takes its events.
            match unsafe { cm_endpoint::take_request(self.id.0) } {
                Ok(id) => {
                    if let Err(error) = self.admit(id) {
                        tracing::info!(target: "urxe_abi", %error, "rsocket {}: a request is refused", self.fd);
                    }
                }
                Err(error) => {
                    errno(error);
                    return;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, id: *mut rdma_cm_id) -> Result<()> {
        let sizes = lock(&self.options).sizes;
        let made = Stream::of_id(id, self.family, sizes).inspect_err(|_| {
            // SAFETY: it was just made, and nobody knows it.
            let _ = unsafe { cm_id::destroy(id) };
        })?;
        lock(&made.options).inherit(&lock(&self.options));
        let inherited = |of: &std::sync::atomic::AtomicI32| of.load(Ordering::Relaxed);
        made.status_flags.store(inherited(&self.status_flags), Ordering::Relaxed);
        made.fd_flags.store(inherited(&self.fd_flags), Ordering::Relaxed);
        let answered = made.answer(self);
        if answered.is_err() {
            // SAFETY: nobody else knows the identifier.
            unsafe { cm_connect::reject(id, std::ptr::null(), 0) };
        }
        answered
    }

    fn answer(self: &Arc<Self>, listener: &Arc<Self>) -> Result<()> {
        // SAFETY: the identifier came with its request as its event, and is this thread's.
        let (peer, endpoint, mut param) = unsafe {
            let peer = self.introduction().ok_or(Errno::PROTO)?;
            let endpoint = Endpoint::new(&self.id, lock(&self.options).sizes)?;
            (peer, endpoint, (*(*self.id.0).event).param.conn)
        };
        let said = Protocol::introduction(&endpoint.sizes, &endpoint.places()).to_bytes();
        (param.private_data, param.private_data_len) = (said.as_ptr().cast(), said.len() as u8);
        lock(&self.options).sizes = endpoint.sizes;
        if self.link.set(Link::new(endpoint, &peer)).is_err() {
            return Err(Errno::INVAL);
        }
        *self.phase() = Phase::Accepting(Arc::downgrade(listener));
        // SAFETY: as above; the data is there during the call.
        let answered = unsafe { cm_connect::accept_request(self.id.0, &param) }.map_err(errno);
        if let Some(queue) = listener.queue.get() {
            lock(&queue.opening).push(Arc::clone(self));
        }
        let stands = match answered {
            Ok(()) => self.step_from(&mut self.phase()),
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        };
        stands.and_then(|()| Service::get().watch_stream(self)).inspect_err(|_| {
            if let Some(queue) = listener.queue.get() {
                queue.give_up(self);
            }
        })
    }

    /// A connection of a listener, and its number.
    pub fn accept(&self, wait: Wait) -> Result<(Arc<Stream>, RawFd)> {
        if !matches!(*self.phase(), Phase::Listening) {
            return Err(Errno::INVAL);
        }
        let stream = self.queue.get().ok_or(Errno::INVAL)?.pop(wait)?;
        let number = stream.take_number().inspect_err(|_| stream.close())?;
        table::insert(number, Entry::Stream(Arc::clone(&stream)));
        Ok((stream, number))
    }
}
