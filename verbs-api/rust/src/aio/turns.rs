//! A fair count of permits: free slots of a send queue, or received messages.
//!
//! Waiters are served in the order in which they came. A permit that becomes free is granted to the
//! first waiter without one, which is then woken. A waiter that leaves with a grant passes it on,
//! so no permit is lost with a dropped future.
//!
//! ```text
//!   first            next_grant
//!     v                  v
//!   [granted] [gone] [waits] [waits] [gone] [waits]     tickets are consecutive numbers
//! ```
//!
//! Invariant: a permit is available only if no waiter waits without a grant.

use std::collections::VecDeque;
use std::task::Waker;

/// The place of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
enum Entry {
    Waits(Waker),
    Granted,
    Gone,
}

/// Permits and the waiters for them. See the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    available: usize,
    /// The ticket of the first entry.
    first: u64,
    /// The ticket of the first entry that has had no grant.
    next_grant: u64,
    entries: VecDeque<Entry>,
}

impl Turns {
    pub fn new(available: usize) -> Self {
        Self { available, first: 0, next_grant: 0, entries: VecDeque::new() }
    }

    /// Takes a permit, if one is available.
    pub fn try_take(&mut self) -> bool {
        let taken = self.available > 0;
        self.available -= usize::from(taken);
        taken
    }

    /// Queues a waiter, because no permit is available.
    pub fn wait(&mut self, waker: Waker) -> Ticket {
        self.entries.push_back(Entry::Waits(waker));
        Ticket(self.first + self.entries.len() as u64 - 1)
    }

    /// Takes the permit of a waiter if it was granted, and returns true. Its ticket is then void.
    /// Otherwise exchanges its waker for `waker`.
    pub fn poll(&mut self, ticket: Ticket, waker: &mut Waker) -> bool {
        match self.entry(ticket) {
            Some(Entry::Waits(stored)) => {
                std::mem::swap(stored, waker);
                return false;
            }
            Some(entry) => *entry = Entry::Gone,
            None => return false,
        }
        self.forget_gone();
        true
    }

    /// Removes a waiter. If it had a grant, the next waiter gets it. Returns the wakers to drop and
    /// to call.
    pub fn leave(&mut self, ticket: Ticket) -> (Option<Waker>, Option<Waker>) {
        let Some(entry) = self.entry(ticket) else { return (None, None) };
        let before = std::mem::replace(entry, Entry::Gone);
        self.forget_gone();
        match before {
            Entry::Waits(waker) => (Some(waker), None),
            Entry::Granted => (None, self.add()),
            Entry::Gone => (None, None),
        }
    }

    /// Adds a permit. Returns the waker of the waiter that it was granted to.
    pub fn add(&mut self) -> Option<Waker> {
        let granted = self.grant();
        self.available += usize::from(granted.is_none());
        granted
    }

    /// Lets all waiters go on, with or without a permit. Returns the waker of one of them until
    /// there are no more.
    pub fn grant(&mut self) -> Option<Waker> {
        self.next_grant = self.next_grant.max(self.first);
        loop {
            let entry = self.entries.get_mut((self.next_grant - self.first) as usize)?;
            self.next_grant += 1;
            if matches!(entry, Entry::Waits(_))
                && let Entry::Waits(waker) = std::mem::replace(entry, Entry::Granted)
            {
                return Some(waker);
            }
        }
    }

    /// Returns whether a waiter waits for a grant, or has not used it.
    pub fn has_waiters(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns the waker of the waiter that is served next.
    pub fn next_waker(&self) -> Option<&Waker> {
        let at = self.next_grant.saturating_sub(self.first) as usize;
        self.entries.range(at.min(self.entries.len())..).find_map(|entry| match entry {
            Entry::Waits(waker) => Some(waker),
            _ => None,
        })
    }

    fn entry(&mut self, Ticket(ticket): Ticket) -> Option<&mut Entry> {
        self.entries.get_mut(ticket.checked_sub(self.first)? as usize)
    }

    fn forget_gone(&mut self) {
        while let Some(Entry::Gone) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests;
