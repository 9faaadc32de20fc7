//! Descriptors that a forked child must not keep.
//!
//! A child after `fork` holds copies of its parent's descriptors. A copy of a socket keeps its port
//! taken, its abstract name bound and, in a SO_REUSEPORT group, its place, after the parent died.
//! So every descriptor that other processes can notice is [`CloseOnFork`]: a handler that runs in the
//! child before `fork` returns there puts an eventfd that nobody else knows in its place. The
//! number stays taken, since objects that the child inherited still own it: what they do with it
//! fails, and they close it in the end.
//!
//! ```text
//!   close_on_fork(): lock, create, note the number, unlock
//!   fork():  lock | copy the process | parent: unlock
//!                                    | child:  replace what is noted, forget it, unlock
//! ```
//! Creating and noting is one step under a lock that `fork` waits for, so no descriptor slips
//! through in between. All are close-on-exec as well, so the `fork` of a `vfork` or `posix_spawn`,
//! which runs no handlers, is followed by an `exec` that closes them. A child made by `_Fork` or
//! the bare `clone` keeps its copies until it ends.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

/// The guarded descriptors of this process.
static DESCRIPTORS: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
/// What `prepare` locked for the two handlers after it.
static FORK_GUARD: ForkGuard = ForkGuard(UnsafeCell::new(None));
static FORKS: AtomicU32 = AtomicU32::new(0);
static HANDLERS: Once = Once::new();

struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, Vec<RawFd>>>>);

// SAFETY: only the handlers touch the cell, each while it holds the mutex DESCRIPTORS: `prepare` writes
// it after locking, and of the two others the one that runs in a process takes it out before
// unlocking, on the thread that locked.
unsafe impl Sync for ForkGuard {}

fn descriptors() -> MutexGuard<'static, Vec<RawFd>> {
    match DESCRIPTORS.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

extern "C" fn prepare() {
    let guard = descriptors();
    // SAFETY: the mutex is held, see `ForkGuard`.
    unsafe { *FORK_GUARD.0.get() = Some(guard) };
}

extern "C" fn in_parent() {
    // SAFETY: `prepare` on this thread holds the mutex, see `ForkGuard`.
    drop(unsafe { (*FORK_GUARD.0.get()).take() });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `prepare` locked on the thread that this one is the copy of, and there is no other
    // thread, see `ForkGuard`.
    let guard = unsafe { (*FORK_GUARD.0.get()).take() };
    if let Some(mut list) = guard {
        replace(&list);
        list.clear();
    }
}

/// Puts one new eventfd in the place of all of `descriptors`.
fn replace(descriptors: &[RawFd]) {
    let Some((&first, rest)) = descriptors.split_first() else { return };
    // SAFETY: the numbers are those of descriptors that `CloseOnFork` values own, which know that a
    // fork replaces what they refer to. The first is closed before the eventfd is made, so that one
    // is to be had even when the table is full. All calls are async-signal-safe, as needed between
    // fork and exec.
    unsafe {
        libc::close(first);
        let made = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if made >= 0 && made != first {
            libc::dup3(made, first, libc::O_CLOEXEC);
            libc::close(made);
        }
        for &descriptor in rest {
            libc::dup3(first, descriptor, libc::O_CLOEXEC);
        }
    }
}

fn install_handlers() {
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are functions of this library that neither unwind nor call anything
        // that fork forbids.
        let failed =
            unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        if failed != 0 {
            tracing::warn!(
                "pthread_atfork failed: children of this process keep copies of its sockets"
            );
        }
    });
}

/// A descriptor that a forked child loses. See the [module](self).
#[derive(Debug)]
pub struct CloseOnFork<T: AsFd>(T);

/// Makes one descriptor, or several, under the guard. `create` should be one system call or few:
/// `fork` in another thread waits for it.
///
/// # Errors
/// Those of `create`.
pub fn close_on_fork<T: AsFd, E>(
    create: impl FnOnce() -> Result<T, E>,
) -> Result<CloseOnFork<T>, E> {
    install_handlers();
    let mut list = descriptors();
    create().map(|owned| register(&mut list, owned))
}

/// As [`close_on_fork`], for several that one call makes.
///
/// # Errors
/// Those of `create`.
pub fn close_all_on_fork<T: AsFd, E>(
    create: impl FnOnce() -> Result<Vec<T>, E>,
) -> Result<Vec<CloseOnFork<T>>, E> {
    install_handlers();
    let mut list = descriptors();
    Ok(create()?.into_iter().map(|owned| register(&mut list, owned)).collect())
}

fn register<T: AsFd>(list: &mut Vec<RawFd>, owned: T) -> CloseOnFork<T> {
    list.push(owned.as_fd().as_raw_fd());
    CloseOnFork(owned)
}

impl<T: AsFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        let number = self.0.as_fd().as_raw_fd();
        let mut list = descriptors();
        if let Some(position) = list.iter().position(|&listed| listed == number) {
            list.swap_remove(position);
        }
    }
}

impl<T: AsFd> Deref for CloseOnFork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for CloseOnFork<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process that made an object: whether the one that uses it is a forked child that merely
/// inherited it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    forks: u32,
    pid: u32,
}

impl ProcessId {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        install_handlers();
        Self { forks: FORKS.load(Ordering::Relaxed), pid: super::process::own_id() }
    }

    /// Whether this process is another than the one that made it.
    #[must_use]
    pub fn is_other(self) -> bool {
        self != Self::this()
    }
}

/// A value that each process makes for itself: a forked child does not see its parent's, whose
/// locks another thread may have held. What was the parent's stays allocated in the child.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<(ProcessId, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Nothing is made yet.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// This process's value.
    pub fn get(&self) -> &'static T {
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: a pointer that is not null came from a box that was leaked below, and is
            // never freed.
            if let Some((process, value)) = unsafe { current.as_ref() }
                && !process.is_other()
            {
                return value;
            }
            let made = Box::into_raw(Box::new((ProcessId::this(), (self.make)())));
            let swapped =
                self.current.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_err() {
                // SAFETY: nobody else has seen the pointer.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
