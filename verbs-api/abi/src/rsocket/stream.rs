//! A SOCK_STREAM.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::PortSpace;

use super::accept::Queue;
use super::answer::{Result, errno};
use super::config::Config;
use super::connect::Phase;
use super::endpoint::Id;
use super::link::{Link, Wait};
use super::options::Options;
use super::protocol::stream::{Life, Shut, Sizes};
use super::service::Service;
use crate::cm::channel::{self, Channel};
use crate::cm::process::connections;
use crate::cm::{connect as cm_connect, id as cm_id, qp};
use crate::layout::rdma_cm_id;
use crate::node::lock;

/// A stream socket.
pub struct Stream {
    /// The descriptor of its identifier's event channel, which is also its number, unless it was
    /// accepted.
    pub fd: RawFd,
    /// The number of one that was accepted: made only then, since librspreload finds an rsocket in
    /// a set of `select` only if its number is above that by which the program knows it.
    number: OnceLock<OwnedFd>,
    pub id: Id,
    /// Keeps the descriptor open until the identifier is gone.
    channel: Arc<Channel>,
    pub family: i32,
    phase: Mutex<Phase>,
    /// Told when the phase changes.
    changed: Condvar,
    /// The connection, once it stands or is being accepted.
    pub link: OnceLock<Link>,
    /// Of a listener: who may be accepted.
    pub queue: OnceLock<Queue>,
    pub options: Mutex<Options>,
    /// `O_NONBLOCK` and its like, and `FD_CLOEXEC`, as the program set them.
    pub status_flags: AtomicI32,
    pub fd_flags: AtomicI32,
    /// `SO_ERROR`.
    pub error: AtomicI32,
}

impl Stream {
    /// A socket without address.
    pub fn new(family: i32) -> Result<Arc<Self>> {
        let space = u32::from(PortSpace::TCP.0);
        // SAFETY: without a channel it gets one of its own.
        let id =
            unsafe { cm_id::create(std::ptr::null_mut(), std::ptr::null_mut(), space, QpType::Rc) };
        Self::of_id(id.map_err(errno)?, family, Config::get().sizes)
    }

    /// A socket of a synchronous identifier, which becomes its own.
    pub fn of_id(id: *mut rdma_cm_id, family: i32, sizes: Sizes) -> Result<Arc<Self>> {
        // SAFETY: the identifier is there and this thread's.
        let channel = channel::find(unsafe { (*id).channel });
        let channel = channel.map_err(errno)?;
        // The service's thread takes what comes, and never sleeps for it.
        fcntl_setfl(&channel.fd, OFlags::NONBLOCK)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&channel.fd);
        Ok(Arc::new(Self {
            fd,
            number: OnceLock::new(),
            id: Id(id),
            channel,
            family,
            phase: Mutex::new(Phase::Unbound),
            changed: Condvar::new(),
            link: OnceLock::new(),
            queue: OnceLock::new(),
            options: Mutex::new(Options::new(sizes)),
            status_flags: AtomicI32::new(0),
            fd_flags: AtomicI32::new(0),
            error: AtomicI32::new(0),
        }))
    }

    /// Gives one that is being accepted its number.
    pub fn take_number(&self) -> Result<RawFd> {
        let made = rustix::io::fcntl_dupfd_cloexec(&self.channel.fd, 0)?;
        Ok(std::os::fd::AsRawFd::as_raw_fd(self.number.get_or_init(|| made)))
    }

    /// Whether its channel has something for the service's thread.
    pub fn has_event(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.channel.fd, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1))
    }

    pub fn phase(&self) -> std::sync::MutexGuard<'_, Phase> {
        lock(&self.phase)
    }

    /// Tells who waits for the phase.
    pub fn announce(&self) {
        self.changed.notify_all();
        super::sleepers::wake_all();
    }

    /// Waits until it is connected, or will not be.
    pub fn wait_connected(&self, wait: Wait) -> Result<()> {
        let mut phase = self.phase();
        loop {
            match &*phase {
                Phase::Connected => return Ok(()),
                phase if !phase.is_opening() => return Err(Errno::NOTCONN),
                _ if wait == Wait::Never => return Err(Errno::AGAIN),
                _ => phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The connection, for sending and receiving.
    pub fn connected(&self, wait: Wait) -> Result<&Link> {
        let is_connected = matches!(*self.phase(), Phase::Connected);
        if !is_connected {
            self.wait_connected(wait)?;
        }
        self.link.get().ok_or(Errno::NOTCONN)
    }

    /// Whether a call with these flags may sleep.
    pub fn wait(&self, flags: i32) -> Wait {
        let nonblocking = self.status_flags.load(Ordering::Relaxed) & libc::O_NONBLOCK;
        if nonblocking != 0 || flags & libc::MSG_DONTWAIT != 0 { Wait::Never } else { Wait::Here }
    }

    /// Own and peer's address.
    pub fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let core = self.id.object()?.core;
        connections().look(|cma| cma.addresses(core)).map_err(|error| errno(error.into()))
    }

    pub fn bind(&self, address: &libc::sockaddr) -> Result<()> {
        let mut phase = self.phase();
        if !matches!(*phase, Phase::Unbound | Phase::Bound) {
            return Err(Errno::INVAL);
        }
        // SAFETY: nobody else changes the identifier while the phase is locked.
        unsafe { crate::cm::address::bind(self.id.0, address) }.map_err(errno)?;
        *phase = Phase::Bound;
        Ok(())
    }

    pub fn listen(self: &Arc<Self>, backlog: i32) -> Result<()> {
        let mut phase = self.phase();
        match &*phase {
            Phase::Listening => return Ok(()),
            Phase::Unbound | Phase::Bound => {}
            _ => return Err(Errno::INVAL),
        }
        // SAFETY: as above.
        unsafe { cm_connect::listen_to(self.id.0, backlog) }.map_err(errno)?;
        if self.queue.set(Queue::new()?).is_err() {
            return Err(Errno::INVAL);
        }
        *phase = Phase::Listening;
        drop(phase);
        Service::get().watch_stream(self)
    }

    /// Ends a direction, or both.
    pub fn shut(&self, how: Shut) -> Result<()> {
        let Some(link) = self.link.get().filter(|_| matches!(*self.phase(), Phase::Connected))
        else {
            return Ok(());
        };
        lock(&self.options).keepalive = false;
        Service::get().let_sleep(self.fd);
        let done = link.shut(how);
        if link.life() == Life::Disconnected {
            self.end_queue_pair();
        }
        super::sleepers::wake_all();
        done
    }

    /// No more work: who sleeps for a completion hears of it.
    pub fn end_queue_pair(&self) {
        // SAFETY: the identifier is there as long as the socket; moving its queue pair takes the
        // queue pair's own lock.
        if let Err(error) = unsafe { qp::to_error(self.id.0) } {
            errno(error);
        }
    }

    /// The program closes it: what it still sends is sent.
    pub fn close(&self) {
        if let Some(link) = self.link.get()
            && matches!(link.life(), Life::Open { .. })
        {
            let _ = self.shut(Shut::Both);
        }
        Service::get().forget(self.fd);
        *self.phase() = Phase::Closed;
        self.announce();
        if self.link.get().is_some() {
            self.end_queue_pair();
        }
        if let Some(queue) = self.queue.get() {
            queue.close();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(link) = self.link.get() {
            lock(&link.sending).end(&link.endpoint.queues.context);
        }
        // SAFETY: nobody else has the socket, so the identifier is this thread's; what was made for
        // it goes with it.
        unsafe {
            qp::destroy_qp(self.id.0);
            if let Err(error) = cm_id::destroy(self.id.0) {
                errno(error);
            }
        }
    }
}
