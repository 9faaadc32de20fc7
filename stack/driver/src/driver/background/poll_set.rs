//! The descriptors that the background thread sleeps on, by what they stand for.

use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};

use crate::driver::shared::Shared;
use crate::sys::clock;

/// What a descriptor stands for. The thread always sleeps on a range of them, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    /// The timer that polling threads keep from going off.
    Watchdog,
    /// Other threads wake this one through it.
    Waker,
    /// Interfaces or addresses changed.
    Changes,
    /// What all processes of an address share: the desk, and the common socket.
    Shared,
    /// A socket of this engine alone.
    Socket,
}

/// Descriptors in the order of their [`Entry`].
pub(super) struct PollSet<'a> {
    entries: Vec<Entry>,
    descriptors: Vec<PollFd<'a>>,
    /// Whether it has the sockets that all processes of an address read.
    pub has_common: bool,
}

impl<'a> PollSet<'a> {
    /// Collects the descriptors of `shared` as they are now.
    pub fn new(shared: &'a Shared, has_common: bool) -> Self {
        let mut set = Self { entries: Vec::new(), descriptors: Vec::new(), has_common };
        set.push(Entry::Watchdog, [shared.watchdog.as_fd()]);
        set.push(Entry::Waker, [shared.alarm.descriptor().as_fd()]);
        set.push(Entry::Changes, shared.changes.as_ref().map(AsFd::as_fd));
        for member in shared.ports.members() {
            set.push(Entry::Shared, member.desk());
            set.push(Entry::Shared, member.common().filter(|_| has_common).map(AsFd::as_fd));
        }
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

    /// Sleeps until one of `entries` is readable or `timeout_ns` is over.
    pub fn sleep(&mut self, entries: RangeInclusive<Entry>, timeout_ns: Option<u64>) {
        let range = self.range(entries);
        // Interrupted or failed: the thread looks at everything anyway.
        let _ = poll(&mut self.descriptors[range], timeout_ns.map(clock::timespec).as_ref());
    }

    /// Returns whether the last sleep on `entry` found one of them readable.
    pub fn is_ready(&self, entry: Entry) -> bool {
        let range = self.range(entry..=entry);
        self.descriptors[range].iter().any(|descriptor| !descriptor.revents().is_empty())
    }

    /// Returns whether the last sleep found an error in a socket's queue.
    pub fn has_socket_error(&self) -> bool {
        let range = self.range(Entry::Shared..=Entry::Socket);
        self.descriptors[range]
            .iter()
            .any(|descriptor| descriptor.revents().contains(PollFlags::ERR))
    }
}
