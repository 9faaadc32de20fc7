//! Locks and atomics: those of the standard library, or loom's under `--cfg loom`.
//!
//! All structures that threads share use this module, so that loom can explore their interleavings.
//! The standard library's locks are futexes. A child process after `fork` therefore finds no global
//! table in an unknown state. Reference counts always come from the standard library, because they
//! only express ownership.

pub use std::sync::{Arc, TryLockError};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};

#[cfg(loom)]
pub use loom::thread::ThreadId;
#[cfg(not(loom))]
pub use std::thread::ThreadId;

/// Returns the id of the calling thread.
pub fn current_thread() -> ThreadId {
    #[cfg(not(loom))]
    return std::thread::current().id();
    #[cfg(loom)]
    return loom::thread::current().id();
}

/// Yields the processor to another thread. Under loom, this tells the scheduler that another thread
/// must run first.
pub fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Locks `mutex`, even if it is poisoned.
///
/// The state machines of the stack assert their own invariants, and a panic in one application
/// thread must not stop the traffic of the others.
#[inline(always)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks `mutex` if no thread holds the lock, even if the mutex is poisoned.
#[inline(always)]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits on `condvar`. Like [`lock`], this ignores poisoning.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    match condvar.wait(guard) {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
