//! The descriptors that the background thread sleeps on, sorted by subject.

use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};

use crate::driver::rings::Rings;
use crate::driver::shared::Shared;
use crate::sys::clock;

/// The subject of a descriptor. The thread always sleeps on a range of subjects, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    /// The timer that polling threads extend.
    Watchdog,
    /// The descriptor through which other threads wake this one.
    Waker,
    /// The netlink socket, readable when interfaces or addresses change.
    Changes,
    /// The rendezvous socket of this process, the common socket of all processes of an address, and
    /// the connections of rings.
    Shared,
    /// A socket of this engine alone, and the messages of processes that write a ring.
    Socket,
}

/// Descriptors in the order of their [`Entry`].
pub(super) struct PollSet<'a> {
    entries: Vec<Entry>,
    descriptors: Vec<PollFd<'a>>,
    /// Whether the set has the common sockets.
    pub has_common: bool,
}

impl<'a> PollSet<'a> {
    /// Collects the current descriptors of `shared`.
    pub fn new(shared: &'a Shared, has_common: bool) -> Self {
        let mut set = Self { entries: Vec::new(), descriptors: Vec::new(), has_common };
        set.push(Entry::Watchdog, [shared.watchdog.as_fd()]);
        set.push(Entry::Waker, [shared.waker.descriptor().as_fd()]);
        set.push(Entry::Changes, shared.changes.as_ref().map(AsFd::as_fd));
        for member in shared.ports.members() {
            set.push(Entry::Shared, member.rendezvous());
            set.push(Entry::Shared, member.common().filter(|_| has_common).map(AsFd::as_fd));
        }
        let rings = shared.ports.rings();
        set.push(Entry::Shared, rings.into_iter().flat_map(Rings::control));
        set.push(Entry::Socket, rings.map(|rings| rings.incoming.wakes()));
        set.push(Entry::Socket, shared.ports.iter().map(AsFd::as_fd));
        set.push(Entry::Socket, [shared.ports.groups.descriptor()]);
        debug_assert!(set.entries.is_sorted());
        set
    }

    fn push(&mut self, entry: Entry, descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) {
        for descriptor in descriptors {
            self.entries.push(entry);
            self.descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
    }

    fn range(&self, entries: RangeInclusive<Entry>) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry < entries.start());
        let end = self.entries.partition_point(|entry| entry <= entries.end());
        start..end
    }

    /// Sleeps until one of `entries` is readable or `timeout_ns` has passed.
    pub fn sleep(&mut self, entries: RangeInclusive<Entry>, timeout_ns: Option<u64>) {
        let range = self.range(entries);
        // If interrupted or failed, the next round polls again.
        let _ = poll(&mut self.descriptors[range], timeout_ns.map(clock::timespec).as_ref());
    }

    /// Returns whether the last sleep on `entry` found a readable descriptor.
    pub fn is_ready(&self, entry: Entry) -> bool {
        let range = self.range(entry..=entry);
        self.descriptors[range].iter().any(|descriptor| !descriptor.revents().is_empty())
    }

    /// Returns whether the last sleep, which was on `entries`, found an error in a socket's queue.
    pub fn has_socket_error(&self, entries: RangeInclusive<Entry>) -> bool {
        let range = self.range(Entry::Shared..=*entries.end());
        self.descriptors[range]
            .iter()
            .any(|descriptor| descriptor.revents().contains(PollFlags::ERR))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::decision::Wait;
    use super::*;

    #[test]
    fn an_error_of_a_common_socket_is_seen_in_each_state_and_a_stale_one_in_none() {
        // A pipe without a reader reports an error, as a socket with a queued ICMP error does.
        let broken = || std::io::pipe().unwrap().1;
        let (common, socket) = (broken(), broken());
        let mut set = PollSet { entries: Vec::new(), descriptors: Vec::new(), has_common: true };
        set.push(Entry::Socket, [socket.as_fd()]);
        set.sleep(Wait::Idle.entries(), Some(0));
        assert!(set.has_socket_error(Wait::Idle.entries()));
        for wait in [Wait::Led, Wait::Polled] {
            set.sleep(wait.entries(), Some(0));
            assert!(!set.has_socket_error(wait.entries()), "{wait:?} leaves the socket alone");
        }
        let mut set = PollSet { entries: Vec::new(), descriptors: Vec::new(), has_common: true };
        set.push(Entry::Shared, [common.as_fd()]);
        for wait in [Wait::Led, Wait::Polled, Wait::Idle] {
            set.sleep(wait.entries(), Some(0));
            assert!(set.has_socket_error(wait.entries()), "{wait:?}");
        }
    }
}
