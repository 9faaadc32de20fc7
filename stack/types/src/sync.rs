//! Locks and atomics: the standard library's, or loom's under `--cfg loom`.
//!
//! The standard library's locks are futexes, so a child after `fork` finds no global table in an
//! unknown state. Every structure that threads share imports from here, so that loom can explore
//! its interleavings. Reference counts are the standard library's in both: they say who owns a
//! thing, and decide nothing else.

pub use std::sync::{Arc, TryLockError};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(loom)]
pub use loom::thread::ThreadId;
#[cfg(not(loom))]
pub use std::thread::ThreadId;

/// The thread that calls.
pub fn current_thread() -> ThreadId {
    #[cfg(not(loom))]
    return std::thread::current().id();
    #[cfg(loom)]
    return loom::thread::current().id();
}

/// Gives the processor to another thread; under loom, tells the scheduler that this one cannot go
/// on alone.
pub fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Locks `mutex`. A poisoned lock is taken all the same: the stack's own state machines assert
/// their invariants, and one panicking application thread must not stop the traffic of all others.
#[inline(always)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks `mutex` if nobody holds it.
#[inline(always)]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits on `condvar`; like [`lock`], whether or not another thread panicked under the lock.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    match condvar.wait(guard) {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
