//! Wakes a thread that has work, but only if the thread sleeps.
//!
//! Waking costs a system call, so a running thread is not woken. The following protocol makes sure
//! that no work is left behind:
//!
//! ```text
//!   thread that leaves work     thread that sleeps
//!   1. leaves the work          1. sets `asleep`
//!   2. fence                    2. fence
//!   3. if `asleep`: wakes       3. does the work that it finds, then sleeps
//! ```
//! The side whose fence comes second sees the store that the other side made before its fence. A
//! loom model tries all orders.

use crate::cq::Wake;
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// Wakes a sleeping thread.
#[derive(Debug)]
pub struct ThreadWaker<D> {
    descriptor: D,
    asleep: AtomicBool,
}

impl<D: Wake> ThreadWaker<D> {
    /// Makes a waker for a thread that sleeps on `descriptor`.
    pub fn new(descriptor: D) -> Self {
        Self { descriptor, asleep: AtomicBool::new(false) }
    }

    /// Returns the descriptor that the thread sleeps on.
    pub fn descriptor(&self) -> &D {
        &self.descriptor
    }

    /// Calls `sleep`, which returns when the descriptor is woken. `last_look` does the work that
    /// was left before other threads could see this thread asleep; its result is passed to `sleep`.
    pub fn sleep<T>(&self, last_look: impl FnOnce() -> T, sleep: impl FnOnce(T)) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        sleep(last_look());
        self.asleep.store(false, Ordering::Relaxed);
    }
}

impl<D: Wake> Wake for ThreadWaker<D> {
    /// Wakes the thread if it sleeps, because work was left.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.descriptor.wake();
        }
    }
}

#[cfg(all(test, loom))]
pub(super) mod loom_tests {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicU32;

    /// Counts wake-ups.
    pub struct Count(pub AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A thread that falls asleep either finds the work that another thread leaves, or is woken.
    #[test]
    fn loom_no_work_is_left_with_a_sleeping_thread() {
        loom::model(|| {
            let waker = Arc::new(ThreadWaker::new(Count(AtomicU32::new(0))));
            let work = Arc::new(AtomicU32::new(0));
            let leaves = {
                let (waker, work) = (Arc::clone(&waker), Arc::clone(&work));
                loom::thread::spawn(move || {
                    work.store(1, Ordering::Relaxed);
                    waker.wake();
                })
            };
            let mut found = 0;
            waker.sleep(|| found = work.load(Ordering::Relaxed), |()| leaves.join().unwrap());
            let woken = waker.descriptor().0.load(Ordering::Relaxed);
            assert!(found == 1 || woken == 1, "the work was neither seen nor announced");
        });
    }
}
