//! repoll: a level-triggered set of rsockets and plain descriptors (rdma-core 65).
//!
//! The members are kept here, and each wait is an rpoll of all members. The original runs a thread
//! for each set instead.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libc::{
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, POLLERR, POLLHUP, POLLIN, POLLOUT, epoll_event, pollfd,
};
use rustix::io::Errno;
use urxe_stack::allocate;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sync::lock;

use super::poll::Poller;
use crate::config::Config;
use crate::error::{Result, errno};
use crate::poll_waiters::{self, PollWaiter};

/// Flags of poll with the equal flags of epoll.
const EVENT_PAIRS: [(i16, c_int); 4] =
    [(POLLIN, EPOLLIN), (POLLOUT, EPOLLOUT), (POLLERR, EPOLLERR), (POLLHUP, EPOLLHUP)];

/// An epoll set.
pub struct Epoll {
    /// Only the number of this descriptor is used.
    descriptor: EventFd,
    members: Mutex<BTreeMap<RawFd, Member>>,
}

#[derive(Clone, Copy)]
struct Member {
    events: i16,
    data: u64,
}

impl Epoll {
    pub fn new() -> Result<Self> {
        Ok(Self { descriptor: EventFd::new()?, members: Mutex::default() })
    }

    pub fn fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.members).is_empty()
    }

    /// Adds, changes or removes a descriptor.
    pub fn control(&self, op: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
        let member = event.map(|event| {
            let asked = event.events.cast_signed();
            let events =
                EVENT_PAIRS.iter().filter(|(_, epoll)| asked & epoll != 0).map(|(poll, _)| poll);
            Member { events: events.sum(), data: event.u64 }
        });
        let mut members = lock(&self.members);
        match (op, members.contains_key(&fd)) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno::EXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno::NOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                members.insert(fd, member.ok_or(Errno::FAULT)?);
            }
            (libc::EPOLL_CTL_DEL, true) => {
                members.remove(&fd);
            }
            _ => return Err(Errno::INVAL),
        }
        drop(members);
        poll_waiters::wake_all();
        Ok(())
    }

    /// Waits for members with events. Returns at most `max_events` events.
    pub fn wait(&self, max_events: usize, timeout: Option<Duration>) -> Result<Vec<epoll_event>> {
        if max_events == 0 {
            return Err(Errno::INVAL);
        }
        let started = Instant::now();
        let waiter = PollWaiter::new()?;
        loop {
            let members = lock(&self.members).clone();
            let member_fds =
                members.iter().map(|(fd, of)| pollfd { fd: *fd, events: of.events, revents: 0 });
            let mut fds = allocate::collected(member_fds).map_err(errno)?;
            let mut poller = Poller::new(&fds)?;
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let ready = if left == Some(Duration::ZERO) {
                poller.poll_once(&mut fds)?
            } else {
                let longest = Config::get().wake_up_interval;
                poller.sleep(&mut fds, &waiter, left.unwrap_or(longest).min(longest))?
            };
            if ready > 0 || left == Some(Duration::ZERO) {
                let of = |fd: &pollfd| {
                    let has = EVENT_PAIRS.iter().filter(|(poll, _)| fd.revents & poll != 0);
                    let events = has.map(|(_, epoll)| epoll.cast_unsigned()).sum();
                    epoll_event { events, u64: members[&fd.fd].data }
                };
                let mut events = allocate::vec(ready.min(max_events)).map_err(errno)?;
                let has_events = fds.iter().filter(|fd| fd.revents != 0);
                events.extend(has_events.take(max_events).map(of));
                return Ok(events);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_stack::cq::Wake;

    #[test]
    fn members_are_waited_for_until_they_are_removed() {
        let (set, member, other) =
            (Epoll::new().unwrap(), EventFd::new().unwrap(), EventFd::new().unwrap());
        let event = |data| Some(epoll_event { events: EPOLLIN.cast_unsigned(), u64: data });
        let control = |op, fd: &EventFd, data| set.control(op, fd.as_raw_fd(), event(data));
        control(libc::EPOLL_CTL_ADD, &member, 7).unwrap();
        control(libc::EPOLL_CTL_ADD, &other, 8).unwrap();
        assert_eq!(control(libc::EPOLL_CTL_ADD, &member, 9), Err(Errno::EXIST));
        assert!(set.wait(4, Some(Duration::ZERO)).unwrap().is_empty());
        member.wake();
        let found = set.wait(4, None).unwrap();
        let (events, data) = (found[0].events, found[0].u64);
        assert_eq!((found.len(), events, data), (1, EPOLLIN.cast_unsigned(), 7));
        other.wake();
        assert_eq!(set.wait(4, None).unwrap().len(), 2);
        assert_eq!(set.wait(1, None).unwrap().len(), 1);
        control(libc::EPOLL_CTL_DEL, &member, 0).unwrap();
        assert_eq!(control(libc::EPOLL_CTL_MOD, &member, 0), Err(Errno::NOENT));
        assert_eq!(set.wait(4, None).unwrap().len(), 1);
        assert!(!set.is_empty());
    }
}
