//! The service thread: it advances connections, answers requests, handles events of datagram queue
//! pairs, and sends keepalives. The thread runs while it watches a socket.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;
use urxe_stack::sys::thread::spawn_without_signals;

use crate::error::Result;

/// Number of events taken at a time.
const BATCH: usize = 16;
/// The token of the descriptor that wakes the thread.
const WAKE: u64 = u64::MAX;

/// A socket that the service watches.
pub trait Watched: AsFd + Send + Sync {
    /// Handles an event of its descriptor.
    fn on_readable(self: Arc<Self>);

    /// Sends a keepalive.
    fn send_keepalive(&self) {}
}

struct Keepalive {
    socket: Weak<dyn Watched>,
    period: Duration,
    next: Instant,
}

#[derive(Default)]
struct State {
    watched: HashMap<RawFd, Weak<dyn Watched>>,
    keepalives: HashMap<RawFd, Keepalive>,
    is_running: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.keepalives.is_empty()
    }
}

struct Descriptors {
    epoll: OwnedFd,
    wake: EventFd,
}

/// The state of the thread; one for each process.
pub struct Service {
    descriptors: Result<Descriptors>,
    state: Mutex<State>,
    /// Held while the thread works on a socket, so that a thread that closes the socket can wait.
    working: Mutex<()>,
}

static SERVICE: PerProcess<Service> = PerProcess::new(|| Service {
    descriptors: Descriptors::new(),
    state: Mutex::default(),
    working: Mutex::new(()),
});

impl Descriptors {
    fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = EventFd::new()?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake })
    }
}

impl Service {
    pub fn get() -> &'static Self {
        SERVICE.get()
    }

    fn descriptors(&self) -> Result<&Descriptors> {
        self.descriptors.as_ref().map_err(|error| *error)
    }

    /// Watches the descriptor of a socket.
    pub fn watch<T: Watched + 'static>(&'static self, socket: &Arc<T>) -> Result<()> {
        let descriptors = self.descriptors()?;
        let descriptor = socket.as_fd();
        let fd = descriptor.as_raw_fd();
        let mut state = lock(&self.state);
        let weak = Arc::downgrade(socket);
        state.watched.insert(fd, weak);
        let token = epoll::EventData::new_u64(fd as u64);
        match epoll::add(&descriptors.epoll, descriptor, token, epoll::EventFlags::IN) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                state.watched.remove(&fd);
                return Err(error);
            }
        }
        self.ensure_running(&mut state)
    }

    /// Ignores events of a watched descriptor until [`resume`](Self::resume).
    pub fn pause(&self, descriptor: BorrowedFd<'_>) {
        self.set_events(descriptor, epoll::EventFlags::empty());
    }

    /// Handles events of a watched descriptor again, those of the meantime included.
    pub fn resume(&self, descriptor: BorrowedFd<'_>) {
        self.set_events(descriptor, epoll::EventFlags::IN);
    }

    fn set_events(&self, descriptor: BorrowedFd<'_>, events: epoll::EventFlags) {
        let Ok(descriptors) = self.descriptors() else { return };
        let token = epoll::EventData::new_u64(descriptor.as_raw_fd() as u64);
        // Another thread may have closed the socket, so that the descriptor is not watched.
        let _ = epoll::modify(&descriptors.epoll, descriptor, token, events);
    }

    /// Sends a keepalive in each `period`.
    pub fn start_keepalive<T: Watched + 'static>(
        &'static self,
        socket: &Arc<T>,
        period: Duration,
    ) -> Result<()> {
        let descriptors = self.descriptors()?;
        let mut state = lock(&self.state);
        let (weak, next) = (Arc::downgrade(socket), Instant::now() + period);
        let fd = socket.as_fd().as_raw_fd();
        state.keepalives.insert(fd, Keepalive { socket: weak, period, next });
        self.ensure_running(&mut state)?;
        drop(state);
        descriptors.wake.wake();
        Ok(())
    }

    /// Stops keepalives.
    pub fn stop_keepalive(&self, fd: RawFd) {
        lock(&self.state).keepalives.remove(&fd);
    }

    /// Stops watching a socket. On return, the thread does not work on the socket.
    pub fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        let fd = descriptor.as_raw_fd();
        let Ok(descriptors) = self.descriptors() else { return };
        let _turn = lock(&self.working);
        let mut state = lock(&self.state);
        let was_keeping = state.keepalives.remove(&fd).is_some();
        if state.watched.remove(&fd).is_some() {
            let _ = epoll::delete(&descriptors.epoll, descriptor);
        } else if !was_keeping {
            return;
        }
        if state.is_idle() {
            descriptors.wake.wake();
        }
    }

    fn ensure_running(&'static self, state: &mut State) -> Result<()> {
        if state.is_running {
            return Ok(());
        }
        let builder = Builder::new().name("urxe-rsocket".into());
        let started = spawn_without_signals(builder, || self.run());
        started.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        state.is_running = true;
        Ok(())
    }

    fn run(&self) {
        let Ok(descriptors) = self.descriptors() else { return };
        loop {
            let mut events = Vec::with_capacity(BATCH);
            // A time beyond the system's range is no timeout.
            let wait = self.time_to_keepalive().and_then(|wait| Timespec::try_from(wait).ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            let waited = epoll::wait(&descriptors.epoll, spare, wait.as_ref());
            if let Err(error) = waited
                && error != Errno::INTR
            {
                tracing::error!(%error, "rsockets: no connection will be made any more");
                return;
            }
            for event in events {
                match event.data.u64() {
                    WAKE => while let Ok(true) = descriptors.wake.try_take() {},
                    token => self.handle_ready(token as RawFd),
                }
            }
            self.send_due_keepalives();
            let mut state = lock(&self.state);
            if state.is_idle() {
                state.is_running = false;
                return;
            }
        }
    }

    /// Handles an event of a descriptor.
    fn handle_ready(&self, fd: RawFd) {
        let _turn = lock(&self.working);
        let Some(socket) = lock(&self.state).watched.get(&fd).and_then(Weak::upgrade) else {
            return;
        };
        // All rsockets need this thread, so a fault of this library must not end it. Locks that
        // recover protect the data that a panic left incomplete.
        if catch_unwind(AssertUnwindSafe(|| socket.on_readable())).is_err() {
            tracing::error!("rsocket {fd}: an event is lost");
        }
        // The event may have removed a connection that was never established.
        let mut state = lock(&self.state);
        if state.watched.get(&fd).is_some_and(|socket| socket.strong_count() == 0) {
            state.watched.remove(&fd);
        }
    }

    fn time_to_keepalive(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let next = state.keepalives.values().map(|keepalive| keepalive.next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn send_due_keepalives(&self) {
        let now = Instant::now();
        let mut due = Vec::new();
        lock(&self.state).keepalives.retain(|_, keepalive| {
            let Some(socket) = keepalive.socket.upgrade() else { return false };
            if keepalive.next <= now {
                keepalive.next = now + keepalive.period;
                due.push(socket);
            }
            true
        });
        for socket in due {
            socket.send_keepalive();
        }
    }
}
