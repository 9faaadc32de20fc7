//! A lock-free list of things with work to do, by index: queue pairs on their path, paths on their
//! device.
//!
//! Anyone may [`push`](ReadyList::push); a thing is on the list once, however often it is pushed.
//! One consumer at a time takes all of them. Each thing brings its own [`ReadyLink`], so nothing is
//! ever allocated. Since the consumer always takes the whole list, a link cannot be popped and
//! pushed again under a pusher's feet (no ABA).

use std::collections::VecDeque;

use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const END: u32 = u32::MAX;

/// A thing's place in a list.
#[derive(Debug)]
pub(crate) struct ReadyLink {
    next: AtomicU32,
    listed: AtomicBool,
}

impl ReadyLink {
    pub fn new() -> Self {
        Self { next: AtomicU32::new(END), listed: AtomicBool::new(false) }
    }

    /// The consumer is about to look at the thing: whatever happens from now on lists it again.
    pub fn unlist(&self) {
        self.listed.swap(false, Ordering::AcqRel);
    }

    /// The same, for a consumer who takes the lock next that every change of the thing is made
    /// under. What a pusher changed before that the consumer sees; who changes it later finds it
    /// unlisted, since the lock orders this store before.
    pub fn unlist_before_lock(&self) {
        self.listed.store(false, Ordering::Release);
    }
}

/// The list.
#[derive(Debug)]
pub(crate) struct ReadyList {
    head: AtomicU32,
}

impl ReadyList {
    pub fn new() -> Self {
        Self { head: AtomicU32::new(END) }
    }

    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == END
    }

    /// Puts the thing `index` on the list, unless it is on it.
    pub fn push(&self, index: u32, link: &ReadyLink) {
        if link.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.put(index, link);
    }

    /// As [`push`](Self::push), for a list whose pushers exclude each other by the thing's lock,
    /// and whose consumer takes that only after
    /// [`unlist_before_lock`](ReadyLink::unlist_before_lock): what is listed is only looked at, and
    /// nothing is exchanged. Whether the thing was on no list.
    pub fn push_alone(&self, index: u32, link: &ReadyLink) -> bool {
        let is_free = !link.listed.load(Ordering::Acquire);
        if is_free {
            link.listed.store(true, Ordering::Relaxed);
            self.put(index, link);
        }
        is_free
    }

    fn put(&self, index: u32, link: &ReadyLink) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, index, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, newest first. The things stay listed until [`ReadyLink::unlist`].
    pub fn take_all<'a>(&self, link_of: impl Fn(u32) -> &'a ReadyLink, mut each: impl FnMut(u32)) {
        let mut index = self.head.swap(END, Ordering::AcqRel);
        while index != END {
            let next = link_of(index).next.load(Ordering::Relaxed);
            each(index);
            index = next;
        }
    }

    /// Takes everything to the end of `to`, oldest first; `taken` is told of each link.
    #[inline(never)] // out of the way of who finds nothing
    pub fn append_to<'a>(
        &self,
        to: &mut VecDeque<u32>,
        link_of: impl Fn(u32) -> &'a ReadyLink,
        taken: impl Fn(&ReadyLink),
    ) {
        let before = to.len();
        if before == 0 {
            // Begins anew, so that what comes stands in one piece.
            to.clear();
        }
        self.take_all(&link_of, |index| {
            taken(link_of(index));
            to.push_back(index);
        });
        to.make_contiguous()[before..].reverse();
    }
}

#[cfg(test)]
mod tests;
