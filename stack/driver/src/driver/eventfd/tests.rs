//! Counting, polling and reading.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn readable(fd: &EventFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn several_events_are_counted_by_one_write() {
    let fd = EventFd::new().unwrap();
    fd.add(0);
    assert!(!readable(&fd));
    fd.add(2);
    fd.take().unwrap();
    assert_eq!((readable(&fd), fd.try_take(), fd.try_take()), (true, Ok(true), Ok(false)));
}

#[test]
fn it_counts() {
    let fd = EventFd::new().unwrap();
    assert!(!readable(&fd));
    for _ in 0..3 {
        fd.wake();
    }
    for _ in 0..3 {
        assert!(readable(&fd));
        fd.take().unwrap();
    }
    assert!(!readable(&fd));
}

#[test]
fn trying_never_blocks() {
    let fd = EventFd::new().unwrap();
    assert_eq!(fd.try_take(), Ok(false));
    fd.wake();
    assert_eq!(fd.try_take(), Ok(true));
    assert_eq!(fd.try_take(), Ok(false));
}

#[test]
fn withdrawing_more_than_there_is_ends_at_nothing() {
    let fd = EventFd::new().unwrap();
    fd.wake();
    fd.wake();
    fd.wake();
    assert_eq!(fd.withdraw(2), 2);
    assert!(readable(&fd));
    assert_eq!(fd.withdraw(5), 1);
    assert!(!readable(&fd));
}
