//! The descriptor as a program uses it: `poll`, `epoll`, duplicates, and both modes.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fcntl_setfl;
use urxe_wire::Qpn;

use super::*;
use crate::cq::{ArmKind, Completion, CompletionChannel, Cq, CqConfig, CqId, WcOpcode, WcStatus};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns the events that `poll` reports, of all that a program can ask for.
fn polled(fd: &impl AsFd) -> PollFlags {
    let all = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
    let mut fds = [PollFd::new(fd, all)];
    poll(&mut fds, Some(&AT_ONCE)).unwrap();
    fds[0].revents()
}

fn is_readable(fd: &EventDescriptor) -> bool {
    polled(fd) == PollFlags::IN
}

fn set_nonblocking(fd: impl AsFd) {
    let fd = fd.as_fd();
    fcntl_setfl(fd, fcntl_getfl(fd).unwrap() | OFlags::NONBLOCK).unwrap();
}

/// Returns the number of events that `epoll_wait` reports at once.
fn waiting(set: &OwnedFd) -> usize {
    let mut events = Vec::with_capacity(4);
    epoll::wait(set, rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE)).unwrap()
}

#[test]
fn it_is_never_writable() {
    let fd = EventDescriptor::new().unwrap();
    assert_eq!(polled(&fd), PollFlags::empty());
    fd.wake();
    fd.wake();
    for _ in 0..2 {
        assert_eq!(polled(&fd), PollFlags::IN);
        assert_eq!(fd.take_event(|| Some(7)), Ok(7));
    }
    assert_eq!(polled(&fd), PollFlags::empty());
}

#[test]
fn a_duplicate_has_its_state_and_its_mode() {
    let fd = EventDescriptor::new().unwrap();
    let duplicate = rustix::io::dup(&fd).unwrap();
    set_nonblocking(&duplicate);
    assert_eq!(fd.take_event(|| Some(7)), Err(Errno::AGAIN));
    fd.wake();
    assert_eq!(polled(&duplicate), PollFlags::IN);
    assert_eq!(fd.take_event(|| Some(7)), Ok(7));
    assert_eq!(polled(&duplicate), PollFlags::empty());
}

#[test]
fn an_edge_triggered_set_reports_each_new_event() {
    let fd = EventDescriptor::new().unwrap();
    let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
    epoll::add(&set, &fd, EventData::new_u64(1), flags).unwrap();
    assert_eq!(waiting(&set), 0);
    for _ in 0..2 {
        fd.wake();
        assert_eq!(waiting(&set), 1);
        assert_eq!(waiting(&set), 0, "no new event");
    }
}

#[test]
fn taking_an_event_waits_for_it() {
    let fd = Arc::new(EventDescriptor::new().unwrap());
    let waker = std::thread::spawn({
        let fd = Arc::clone(&fd);
        move || {
            std::thread::sleep(Duration::from_millis(20));
            fd.wake();
        }
    });
    assert_eq!(fd.take_event(|| Some(7)), Ok(7));
    waker.join().unwrap();
}

#[test]
fn a_reader_of_a_withdrawn_event_waits_for_the_next() {
    let fd = EventDescriptor::new().unwrap();
    fd.wake();
    fd.wake();
    let mut events = vec![Some(7), None];
    assert_eq!(fd.take_event(|| events.pop().unwrap()), Ok(7));
    set_nonblocking(&fd);
    assert_eq!(fd.take_event(|| Some(8)), Err(Errno::AGAIN));
}

#[test]
fn taking_without_sleeping_returns_none_in_place_of_sleeping() {
    let fd = EventDescriptor::new().unwrap();
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
    let fd = Arc::new(EventDescriptor::new().unwrap());
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
    assert!(!is_readable(&fd));

    for cq in [&first, &second] {
        cq.arm(ArmKind::Next);
        cq.push(done, false).unwrap();
    }
    assert!(is_readable(&fd));
    first.ack_events(1);
    first.destroy().unwrap();
    assert!(is_readable(&fd), "the second queue's event waits");
    set_nonblocking(&fd);
    assert_eq!(fd.take_event(|| channel.next_event_for_count()).map(|event| event.cq), Ok(CqId(2)));
    assert_eq!(fd.take_event(|| channel.next_event_for_count()), Err(Errno::AGAIN));
    assert!(!is_readable(&fd));
    second.ack_events(1);
    second.destroy().unwrap();
}
