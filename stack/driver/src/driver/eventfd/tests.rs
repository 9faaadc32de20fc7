//! The descriptor as a program uses it: reading and polling, blocking and non-blocking.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use urxe_wire::Qpn;

use super::*;
use crate::cq::{ArmKind, Completion, CompletionChannel, Cq, CqConfig, CqId, WcOpcode, WcStatus};

fn readable(fd: &EventFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

fn set_nonblocking(fd: &EventFd) {
    fcntl_setfl(fd, fcntl_getfl(fd).unwrap() | OFlags::NONBLOCK).unwrap();
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
    set_nonblocking(&fd);
    assert_eq!(fd.take(), Err(Errno::AGAIN));
}

#[test]
fn trying_never_blocks_and_leaves_the_mode_alone() {
    let fd = EventFd::new().unwrap();
    assert_eq!(fd.try_take(), Ok(false));
    fd.wake();
    assert_eq!(fd.try_take(), Ok(true));
    assert_eq!(fd.try_take(), Ok(false));
    assert!(!fcntl_getfl(&fd).unwrap().contains(OFlags::NONBLOCK));
    set_nonblocking(&fd);
    assert_eq!(fd.try_take(), Ok(false));
    fd.wake();
    assert_eq!(fd.try_take(), Ok(true));
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

#[test]
fn a_reader_of_a_withdrawn_event_waits_for_the_next() {
    let fd = EventFd::new().unwrap();
    fd.wake();
    fd.wake();
    let mut events = vec![Some(7), None];
    assert_eq!(fd.take_event(|| events.pop().unwrap()), Ok(7));
    set_nonblocking(&fd);
    assert_eq!(fd.take_event(|| Some(8)), Err(Errno::AGAIN));
}

#[test]
fn taking_without_sleeping_returns_none_in_place_of_sleeping() {
    let fd = EventFd::new().unwrap();
    assert_eq!(fd.try_take_event(|| Some(7)), Ok(None));
    fd.wake();
    fd.wake();
    let mut events = vec![Some(7), None];
    assert_eq!(fd.try_take_event(|| events.pop().unwrap()), Ok(Some(7)));
    fd.wake();
    assert_eq!(fd.try_take_event(|| None::<u8>), Ok(None), "the count was void");
    set_nonblocking(&fd);
    assert_eq!(fd.try_take_event(|| Some(8)), Err(Errno::AGAIN));
}

#[test]
fn a_completion_channel_has_the_descriptor_of_libibverbs() {
    let fd = Arc::new(EventFd::new().unwrap());
    let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&fd))));
    let queue = |id| {
        let config = CqConfig {
            id: CqId(id),
            capacity: 4,
            max_capacity: 4,
            channel: Some(Arc::clone(&channel)),
            events: None,
            moderation_timers: Arc::default(),
            context: u64::from(id),
        };
        Arc::new(Cq::new(config).unwrap())
    };
    let (first, second) = (queue(1), queue(2));
    let done = Completion::new(0, Qpn::QP1, WcOpcode::Send, WcStatus::Success);

    first.arm(ArmKind::Next);
    let pusher = std::thread::spawn({
        let first = Arc::clone(&first);
        move || {
            std::thread::sleep(Duration::from_millis(20));
            first.push(done, false).unwrap();
        }
    });
    let event = fd.take_event(|| channel.next_event_for_count()).unwrap();
    assert_eq!((event.cq, event.context), (CqId(1), 1));
    pusher.join().unwrap();
    assert!(!readable(&fd));

    for cq in [&first, &second] {
        cq.arm(ArmKind::Next);
        cq.push(done, false).unwrap();
    }
    assert!(readable(&fd));
    first.ack_events(1);
    first.destroy().unwrap();
    assert!(readable(&fd), "the second queue's event waits");
    set_nonblocking(&fd);
    assert_eq!(fd.take_event(|| channel.next_event_for_count()).map(|event| event.cq), Ok(CqId(2)));
    assert_eq!(fd.take_event(|| channel.next_event_for_count()), Err(Errno::AGAIN));
    assert!(!readable(&fd));
    second.ack_events(1);
    second.destroy().unwrap();
}
