//! SOCK_STREAM sockets.

pub mod accept;
pub mod connect;
pub mod endpoint;
pub mod iomap;
mod options;
pub mod stream_io;

use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use rustix::io::Errno;
use urxe_stack::qp::attr::QpType;
use urxe_stack::sync;
use urxe_stack::sync::lock;
use urxe_wire::mad::PortSpace;

use self::accept::AcceptQueue;
use self::connect::Phase;
use self::stream_io::StreamIo;
use crate::config::Config;
use crate::error::Result;
use crate::numbers::numbered;
use crate::options::{Flags, Options, Wait};
use crate::poll_waiters;
use crate::process::Process;
use crate::protocol::stream::{ConnState, Sizes};
use crate::service::{Service, Watched};
use crate::transport::id::CmId;

/// A stream socket.
pub struct Stream {
    /// The descriptor of the identifier's event channel. It is also the descriptor of the socket,
    /// unless the socket was accepted.
    pub fd: RawFd,
    /// The descriptor of an accepted socket, made by the accept call. So its number is usually
    /// above that of librspreload's descriptor, even if the numbers of [`numbered`] are used up.
    number: OnceLock<OwnedFd>,
    pub family: i32,
    phase: Mutex<Phase>,
    /// Notified when the phase changes.
    changed: Condvar,
    /// The connection, once it is established or being accepted.
    pub io: OnceLock<StreamIo>,
    /// Dropped after the queue pairs of `phase` and `io`.
    pub id: CmId,
    /// For a listener: the connections that may be accepted.
    pub queue: OnceLock<AcceptQueue>,
    pub options: Mutex<Options>,
    pub flags: Flags,
    /// `SO_ERROR`.
    pub error: AtomicI32,
}

impl Stream {
    /// Makes a socket without an address.
    pub fn new(process: &'static dyn Process, family: i32) -> Result<Arc<Self>> {
        let id = CmId::new(process, PortSpace::TCP, QpType::Rc)?;
        Ok(Self::of_id(id, family, Config::get().sizes))
    }

    /// Makes a socket from an identifier.
    pub fn of_id(id: CmId, family: i32, sizes: Sizes) -> Arc<Self> {
        Arc::new(Self {
            fd: id.as_fd().as_raw_fd(),
            number: OnceLock::new(),
            family,
            phase: Mutex::new(Phase::Unbound),
            changed: Condvar::new(),
            io: OnceLock::new(),
            id,
            queue: OnceLock::new(),
            options: Mutex::new(Options::new(sizes)),
            flags: Flags::default(),
            error: AtomicI32::new(0),
        })
    }

    /// Makes the descriptor of a socket that is being accepted.
    pub fn allocate_number(&self) -> Result<RawFd> {
        let made = numbered(&self.id)?;
        Ok(self.number.get_or_init(|| made).as_raw_fd())
    }

    pub fn phase(&self) -> MutexGuard<'_, Phase> {
        lock(&self.phase)
    }

    /// Wakes threads that wait for the phase.
    pub fn notify_waiters(&self) {
        self.changed.notify_all();
        poll_waiters::wake_all();
    }

    /// Waits until the socket is connected, or connecting has failed.
    pub fn wait_connected(&self, wait: Wait) -> Result<()> {
        let mut phase = self.phase();
        loop {
            match &*phase {
                Phase::Connected => return Ok(()),
                phase if !phase.is_opening() => return Err(Errno::NOTCONN),
                _ if wait == Wait::Never => return Err(Errno::AGAIN),
                _ => phase = sync::wait(&self.changed, phase),
            }
        }
    }

    /// Returns the connection for sending and receiving.
    pub fn connected(&self, wait: Wait) -> Result<&StreamIo> {
        let is_connected = matches!(*self.phase(), Phase::Connected);
        if !is_connected {
            self.wait_connected(wait)?;
        }
        self.io.get().ok_or(Errno::NOTCONN)
    }

    pub fn bind(&self, address: SocketAddr) -> Result<()> {
        let mut phase = self.phase();
        if !matches!(*phase, Phase::Unbound | Phase::Bound) {
            return Err(Errno::INVAL);
        }
        self.id.bind(address)?;
        *phase = Phase::Bound;
        Ok(())
    }

    pub fn listen(self: &Arc<Self>, backlog: i32) -> Result<()> {
        let mut phase = self.phase();
        let capacity = accept::capacity(backlog);
        match &*phase {
            Phase::Listening => {
                if let Some(queue) = self.queue.get() {
                    queue.set_capacity(self.as_fd(), capacity);
                }
                return Ok(());
            }
            Phase::Unbound | Phase::Bound => {}
            _ => return Err(Errno::INVAL),
        }
        self.id.listen(accept::requests(capacity))?;
        if self.queue.set(AcceptQueue::new(capacity)?).is_err() {
            return Err(Errno::INVAL);
        }
        *phase = Phase::Listening;
        drop(phase);
        self.watch()
    }

    /// Lets the service watch the socket, unless another thread closes the socket meanwhile.
    pub(super) fn watch(self: &Arc<Self>) -> Result<()> {
        Service::get().watch(self)?;
        if matches!(*self.phase(), Phase::Closed) {
            Service::get().unwatch(self.as_fd());
        }
        Ok(())
    }

    /// Shuts down one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        let Some(io) = self.io.get().filter(|_| matches!(*self.phase(), Phase::Connected)) else {
            return Ok(());
        };
        lock(&self.options).keepalive = false;
        Service::get().stop_keepalive(self.fd);
        let done = io.shutdown(how);
        if io.state() == ConnState::Disconnected {
            self.end_queue_pair();
        }
        poll_waiters::wake_all();
        done
    }

    /// Moves the queue pair to the error state; a thread that sleeps for a completion gets one.
    pub fn end_queue_pair(&self) {
        if let Some(io) = self.io.get() {
            io.endpoint.queues.to_error();
        }
    }

    /// Closes the socket after pending data is sent.
    pub fn close(&self) {
        if let Some(io) = self.io.get()
            && matches!(io.state(), ConnState::Open { .. })
        {
            let _ = self.shutdown(Shutdown::Both);
        }
        Service::get().unwatch(self.as_fd());
        // Dropped outside the lock, because a queue pair may be dropped with it.
        let before = std::mem::replace(&mut *self.phase(), Phase::Closed);
        drop(before);
        self.notify_waiters();
        self.end_queue_pair();
        if let Some(queue) = self.queue.get() {
            queue.close();
        }
    }
}

impl Watched for Stream {
    fn on_readable(self: Arc<Self>) {
        self.handle_event();
    }

    fn send_keepalive(&self) {
        if let Some(io) = self.io.get() {
            io.send_keepalive();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}
