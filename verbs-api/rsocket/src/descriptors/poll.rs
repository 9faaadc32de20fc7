//! rpoll and rselect: waiting for rsockets and plain descriptors together.

use std::ffi::c_short;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, pollfd};
use urxe_stack::allocate;
use urxe_stack::sys::poll::poll as system_poll;

use super::{Socket, find};
use crate::config::Config;
use crate::datagram::Datagram;
use crate::error::{Result, errno};
use crate::poll_waiters::PollWaiter;
use crate::protocol::stream::ConnState;
use crate::stream::Stream;
use crate::stream::connect::Phase;

/// The object of each descriptor: an rsocket, or a plain descriptor.
pub struct Poller {
    sockets: Vec<Option<Socket>>,
    /// The descriptors passed to poll(2), with one more for the waiter.
    asked: Vec<pollfd>,
}

impl Poller {
    /// Looks the objects of `fds` up.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(fds: &[pollfd]) -> Result<Self> {
        let sockets = allocate::collected(fds.iter().map(|fd| find(fd.fd))).map_err(errno)?;
        Ok(Self { sockets, asked: allocate::vec(fds.len() + 1).map_err(errno)? })
    }

    pub fn has_rsockets(&self) -> bool {
        self.sockets.iter().any(Option::is_some)
    }

    /// Polls once, without sleeping. Returns the number of descriptors with events.
    pub fn poll_once(&mut self, fds: &mut [pollfd]) -> Result<usize> {
        let plain = |(fd, socket): (&pollfd, &Option<Socket>)| pollfd {
            fd: if socket.is_some() { -1 } else { fd.fd },
            ..*fd
        };
        self.asked.clear();
        self.asked.extend(fds.iter().zip(&self.sockets).map(plain));
        system_poll(&mut self.asked, Some(Duration::ZERO))?;
        for ((fd, socket), asked) in fds.iter_mut().zip(&self.sockets).zip(&self.asked) {
            fd.revents = match socket {
                Some(socket) => ready_events(socket, fd.events),
                None => asked.revents,
            };
        }
        Ok(count(fds))
    }

    /// Sleeps until a descriptor may have an event, another thread changes an rsocket, or the
    /// timeout ends. Then polls, and returns the number of descriptors with events.
    pub fn sleep(
        &mut self,
        fds: &mut [pollfd],
        waiter: &PollWaiter,
        limit: Duration,
    ) -> Result<usize> {
        waiter.clear();
        self.asked.clear();
        let mut is_ready = false;
        for (fd, socket) in fds.iter_mut().zip(&self.sockets) {
            let Some(socket) = socket else {
                self.asked.push(pollfd { revents: 0, ..*fd });
                continue;
            };
            let descriptor = arm(socket)?;
            fd.revents = ready_events(socket, fd.events);
            is_ready |= fd.revents != 0;
            self.asked.push(pollfd { fd: descriptor.unwrap_or(-1), events: POLLIN, revents: 0 });
        }
        if is_ready {
            return self.poll_once(fds);
        }
        self.asked.push(pollfd { fd: waiter.as_fd().as_raw_fd(), events: POLLIN, revents: 0 });
        system_poll(&mut self.asked, Some(limit))?;
        for ((fd, socket), asked) in fds.iter_mut().zip(&self.sockets).zip(&self.asked) {
            let Some(socket) = socket else {
                fd.revents = asked.revents;
                continue;
            };
            if asked.revents != 0 {
                take_event(socket)?;
            }
            fd.revents = ready_events(socket, fd.events);
        }
        Ok(count(fds))
    }
}

fn count(fds: &[pollfd]) -> usize {
    fds.iter().filter(|fd| fd.revents != 0).count()
}

/// Waits for events, as poll(2) does.
///
/// # Errors
/// As poll(2), and EMFILE if no descriptor is left for the wait.
pub fn wait(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let mut poller = Poller::new(fds)?;
    if !poller.has_rsockets() {
        return system_poll(fds, timeout);
    }
    let (started, config) = (Instant::now(), Config::get());
    loop {
        let ready = poller.poll_once(fds)?;
        if ready > 0 || timeout == Some(Duration::ZERO) {
            return Ok(ready);
        }
        if started.elapsed() >= config.polling_time {
            break;
        }
    }
    let waiter = PollWaiter::new()?;
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) {
            return Ok(0);
        }
        let limit = left.unwrap_or(config.wake_up_interval).min(config.wake_up_interval);
        let ready = poller.sleep(fds, &waiter, limit)?;
        if ready > 0 {
            return Ok(ready);
        }
    }
}

fn ready_events(socket: &Socket, events: c_short) -> c_short {
    match socket {
        Socket::Stream(stream) => stream_events(stream, events),
        Socket::Datagram(datagram) => datagram_events(datagram, events),
    }
}

fn stream_events(stream: &Arc<Stream>, events: c_short) -> c_short {
    match &*stream.phase() {
        Phase::Connected => {}
        Phase::Listening => {
            let ready = stream.queue.get().is_some_and(|queue| queue.is_ready());
            return if ready { events & POLLIN } else { 0 };
        }
        Phase::Failed => return events & (POLLIN | POLLOUT) | POLLERR,
        Phase::Closed => return POLLNVAL,
        _ => return 0,
    }
    let Some(io) = stream.io.get() else { return 0 };
    if io.progress().is_err() {
        return POLLERR;
    }
    let inner = io.inner();
    let protocol = &inner.protocol;
    let mut ready = match protocol.state() {
        ConnState::Open { .. } => 0,
        // The disconnect often arrives together with the last data. A program that checks POLLHUP
        // first would then lose the data.
        ConnState::Disconnected if protocol.receiver.has_data() => 0,
        ConnState::Disconnected => POLLHUP,
        ConnState::Failed => POLLERR,
    };
    if protocol.receiver.has_data() || !protocol.is_readable() {
        ready |= events & POLLIN;
    }
    if protocol.sender.is_ready() {
        ready |= events & POLLOUT;
    }
    ready
}

fn datagram_events(datagram: &Datagram, events: c_short) -> c_short {
    if datagram.is_closed() {
        return POLLNVAL;
    }
    let [has_data, has_room] = datagram.readiness();
    let mut ready = 0;
    if has_data {
        ready |= events & POLLIN;
    }
    if has_room {
        ready |= events & POLLOUT;
    }
    ready
}

/// Arms an rsocket, and returns the descriptor that becomes readable.
fn arm(socket: &Socket) -> Result<Option<RawFd>> {
    match socket {
        Socket::Stream(stream) => {
            let phase = stream.phase();
            match &*phase {
                Phase::Listening => Ok(stream.queue.get().map(|queue| queue.as_fd().as_raw_fd())),
                Phase::Connected => {
                    drop(phase);
                    let Some(io) = stream.io.get() else { return Ok(None) };
                    io.arm()?;
                    Ok(Some(io.descriptor().as_raw_fd()))
                }
                // A change of the phase wakes all waiters.
                _ => Ok(None),
            }
        }
        Socket::Datagram(datagram) => {
            datagram.arm()?;
            Ok(Some(datagram.descriptor().as_raw_fd()))
        }
    }
}

fn take_event(socket: &Socket) -> Result<()> {
    match socket {
        Socket::Stream(stream) => match stream.io.get() {
            Some(io) => io.take_event(),
            None => Ok(()),
        },
        Socket::Datagram(datagram) => datagram.take_events(),
    }
}
