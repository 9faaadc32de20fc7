//! Descriptors that a forked child must not keep.
//!
//! After `fork` a child has copies of its parent's descriptors. A copy of a socket keeps its port
//! taken, its abstract name bound and its index in a SO_REUSEPORT group, even after the parent has
//! ended. So every descriptor that other processes can notice is wrapped in [`CloseOnFork`]. A
//! handler runs in the child before `fork` returns there, and replaces each such descriptor by an
//! eventfd. The number stays taken, because objects that the child inherited still own that number:
//! their calls on the number fail, and dropping them closes the eventfd.
//!
//! ```text
//!   close_on_fork(): lock, create, list the number, unlock
//!   drop():          lock, remove the number from the list, close, unlock
//!   fork():  lock | copy the process | parent: unlock
//!                                    | child:  replace the listed numbers, clear the list, unlock
//! ```
//! Creating and listing a descriptor is one step under a lock that `fork` waits for, and so is
//! closing it. So a fork finds each open descriptor in the list, and no number that belongs to
//! another owner by now. All descriptors are also close-on-exec. `vfork` and `posix_spawn` run no
//! handlers, but an `exec` follows, which closes the descriptors. A child made by `_Fork` or by
//! `clone` directly keeps its copies until it ends.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

/// The listed descriptors of this process.
static DESCRIPTORS: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
/// The lock that `prepare` took for the two handlers after it.
static FORK_GUARD: ForkGuard = ForkGuard(UnsafeCell::new(None));
static FORKS: AtomicU32 = AtomicU32::new(0);
static HANDLERS: Once = Once::new();

struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, Vec<RawFd>>>>);

// SAFETY: only the handlers use the cell, each under the mutex DESCRIPTORS. `prepare` writes the
// cell after locking. Of the two other handlers, the one that runs in a process takes the guard out
// before unlocking, on the thread that locked.
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
    // SAFETY: `prepare` locked on the thread of which this one is the copy, and there is no other
    // thread, see `ForkGuard`.
    let guard = unsafe { (*FORK_GUARD.0.get()).take() };
    if let Some(mut list) = guard {
        replace(&list);
        list.clear();
    }
}

/// Replaces all of `descriptors` by one new eventfd.
fn replace(descriptors: &[RawFd]) {
    let Some((&first, rest)) = descriptors.split_first() else { return };
    // SAFETY: `CloseOnFork` values own these descriptors, and expect that a fork replaces them. The
    // first is closed before the eventfd is created, so that a number is free even if the table is
    // full. All calls are async-signal-safe, as required between fork and exec.
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
        // SAFETY: the handlers are functions of this library. They do not unwind, and call nothing
        // that is forbidden at a fork.
        let failed =
            unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        if failed != 0 {
            tracing::warn!(
                "pthread_atfork failed: children of this process keep copies of its sockets"
            );
        }
    });
}

/// A descriptor that is replaced in a forked child. See the [module](self).
#[derive(Debug)]
pub struct CloseOnFork<T: AsFd>(ManuallyDrop<T>);

/// Creates a descriptor that is replaced in a forked child. `create` should make few system calls,
/// because `fork` in another thread waits for it.
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

/// Creates several descriptors by one call, as [`close_on_fork`] does.
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
    CloseOnFork(ManuallyDrop::new(owned))
}

impl<T: AsFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        let number = self.0.as_fd().as_raw_fd();
        let mut list = descriptors();
        if let Some(position) = list.iter().position(|&listed| listed == number) {
            list.swap_remove(position);
        }
        // SAFETY: the value is not used again. The list is still locked, so no fork comes between
        // the removal and the closing.
        unsafe { ManuallyDrop::drop(&mut self.0) };
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

/// The process that made an object, to detect that a forked child inherited the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    forks: u32,
    pid: u32,
}

impl ProcessId {
    /// Returns this process.
    #[must_use]
    pub fn this() -> Self {
        install_handlers();
        Self { forks: FORKS.load(Ordering::Relaxed), pid: super::process::own_id() }
    }

    /// Returns whether this process differs from the recorded one.
    #[must_use]
    pub fn is_other(self) -> bool {
        self != Self::this()
    }
}

/// A value that each process makes for itself. A forked child does not use its parent's value,
/// whose locks another thread may have held. The parent's value stays allocated in the child.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<(ProcessId, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Starts without a value.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// Returns this process's value, if it was made.
    pub fn get_if_made(&self) -> Option<&'static T> {
        Self::of_this_process(self.current.load(Ordering::Acquire))
    }

    fn of_this_process(current: *mut (ProcessId, T)) -> Option<&'static T> {
        // SAFETY: a non-null pointer is from a box that `get` leaked, which is never freed.
        let (process, value) = unsafe { current.as_ref() }?;
        (!process.is_other()).then_some(value)
    }

    /// Returns this process's value. Makes it on first use.
    pub fn get(&self) -> &'static T {
        loop {
            let current = self.current.load(Ordering::Acquire);
            if let Some(value) = Self::of_this_process(current) {
                return value;
            }
            let made = Box::into_raw(Box::new((ProcessId::this(), (self.make)())));
            let swapped =
                self.current.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_err() {
                // SAFETY: no other thread has seen the pointer.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
