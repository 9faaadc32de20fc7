//! How a thread that leaves work hands it to another, which may be about to sleep.
//!
//! Waking costs a system call, so only a thread that sleeps is woken. That needs an agreement, or
//! work is left in between:
//!
//! ```text
//!   who leaves work             who sleeps
//!   1. leave it                 1. say "asleep"
//!   2. fence                    2. fence
//!   3. asleep? then wake        3. look for work a last time, then sleep
//! ```
//! Whichever fence comes second, its side sees what the other did before its own. A loom model
//! tries all orders.

use crate::cq::Wake;
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// Wakes a thread, if it sleeps.
#[derive(Debug)]
pub struct ThreadWaker<D> {
    descriptor: D,
    asleep: AtomicBool,
}

impl<D: Wake> ThreadWaker<D> {
    /// `descriptor` is what the thread sleeps on.
    pub fn new(descriptor: D) -> Self {
        Self { descriptor, asleep: AtomicBool::new(false) }
    }

    /// What is woken.
    pub fn descriptor(&self) -> &D {
        &self.descriptor
    }

    /// Sleeps in `sleep`, unless it is woken. `last_look` does the work that was left before this
    /// thread could be seen to sleep; what it returns goes to `sleep`.
    pub fn sleep<T>(&self, last_look: impl FnOnce() -> T, sleep: impl FnOnce(T)) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        sleep(last_look());
        self.asleep.store(false, Ordering::Relaxed);
    }
}

impl<D: Wake> Wake for ThreadWaker<D> {
    /// Work was left.
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

    /// Work that is left while the other thread goes to sleep is done by its last look, or wakes
    /// it.
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
