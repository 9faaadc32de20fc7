//! A lock-free list of things with work to do, by index: queue pairs on their path, paths on their
//! device.
//!
//! Any thread may [`push`](ReadyList::push). A thing is on the list once, however often a thread
//! pushes it. One consumer at a time takes the whole list. Each thing has its own [`ReadyLink`], so
//! the list allocates nothing. Because the consumer always takes the whole list, a link cannot be
//! popped and pushed again while another thread pushes (no ABA problem).

use std::collections::VecDeque;

use urxe_types::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const END: u32 = u32::MAX;

/// A thing's link in a list.
#[derive(Debug)]
pub(crate) struct ReadyLink {
    next: AtomicU32,
    listed: AtomicBool,
}

impl ReadyLink {
    pub fn new() -> Self {
        Self { next: AtomicU32::new(END), listed: AtomicBool::new(false) }
    }

    /// Marks the thing as unlisted: the consumer is about to look at it, so later work lists it
    /// again.
    pub fn unlist(&self) {
        self.listed.swap(false, Ordering::AcqRel);
    }

    /// Does the same for a consumer that takes the thing's lock next, under which every change of
    /// the thing is made. The consumer sees all changes made before. A pusher that changes the
    /// thing later finds it unlisted, because the lock orders this store before.
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

    /// Adds the thing `index`, unless it is listed.
    pub fn push(&self, index: u32, link: &ReadyLink) {
        if link.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.put(index, link);
    }

    /// Does the same as [`push`](Self::push) by a load and a store instead of an exchange. The
    /// pushers must hold the thing's lock, and the consumer must take that lock after
    /// [`unlist_before_lock`](ReadyLink::unlist_before_lock). Returns whether the thing was not
    /// listed.
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

    /// Takes all things, newest first. They stay listed until [`ReadyLink::unlist`].
    pub fn take_all<'a>(&self, link_of: impl Fn(u32) -> &'a ReadyLink, mut each: impl FnMut(u32)) {
        let mut index = self.head.swap(END, Ordering::AcqRel);
        while index != END {
            let next = link_of(index).next.load(Ordering::Relaxed);
            each(index);
            index = next;
        }
    }

    /// Takes all things to the end of `to`, oldest first. Calls `taken` with each link.
    #[inline(never)] // kept out of callers that find an empty list
    pub fn append_to<'a>(
        &self,
        to: &mut VecDeque<u32>,
        link_of: impl Fn(u32) -> &'a ReadyLink,
        taken: impl Fn(&ReadyLink),
    ) {
        let before = to.len();
        if before == 0 {
            // An empty queue starts at its beginning, so that its entries stand in one piece.
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
