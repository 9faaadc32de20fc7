//! One atomic instruction on a word that may not be there.
//!
//! No system call carries out an eight byte atomic operation and answers EFAULT, and an instruction
//! on a page that somebody takes away raises SIGSEGV or SIGBUS, however often one looks before. So
//! a helper process carries it out, which shares this process's memory and nothing else
//! (`CLONE_VM`, as `posix_spawn` makes one): the fault is the helper's, whose own handler ends it.
//! The program's signal handlers are neither needed nor touched, and it hears of no child. The
//! thread that asks waits meanwhile (`CLONE_VFORK`); `cargo bench -p urxe-stack --bench copies`
//! tells how long.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use super::checked_copy::{self, CheckedCopyError};
use super::copy::Operation;

impl Operation {
    /// Carries it out; returns what was there, if it looks. `guarded`: the word may be gone, or go
    /// now.
    ///
    /// # Safety
    /// `word` is aligned, and no reference covers any of it. Whatever is mapped and writable there
    /// may be changed; unless `guarded`, it is mapped and, but for a load, writable.
    #[inline]
    pub(super) unsafe fn perform(
        self,
        word: *mut u64,
        checked: bool,
    ) -> Result<u64, CheckedCopyError> {
        // SAFETY: the caller's promise.
        unsafe { if checked { self.execute_checked(word) } else { Ok(self.execute(word)) } }
    }

    /// # Safety
    /// As [`perform`](Self::perform), `guarded`.
    unsafe fn execute_checked(self, word: *mut u64) -> Result<u64, CheckedCopyError> {
        let writes = !matches!(self, Self::Load);
        let page = checked_copy::make_present(word.cast(), size_of::<u64>(), writes);
        // What is not there most often was not there before either, which is told sooner like this.
        page.map_err(|_| CheckedCopyError::NotMapped)?;
        let mut task = Task { operation: self, word, before: 0, is_done: false };
        match run_helper(&mut task) {
            Ok(()) if task.is_done => Ok(task.before),
            Ok(()) => Err(CheckedCopyError::NotMapped),
            // An emulator that knows no such process, or a filter that allows none. Then at least
            // its page was there a moment ago.
            // SAFETY: the caller's promise.
            Err(libc::EINVAL | libc::ENOSYS | libc::EPERM) => Ok(unsafe { self.execute(word) }),
            Err(errno) => Err(CheckedCopyError::Refused(errno)),
        }
    }
}

struct Task {
    operation: Operation,
    word: *mut u64,
    before: u64,
    is_done: bool,
}

/// Bytes of the helper's stack: its few calls, and the frame of a signal with all that a processor
/// has for registers.
const STACK: usize = 64 << 10;
/// What the helper says of itself where the page was there, and where it was not.
const DONE: libc::c_int = 0;
const FAULTED: libc::c_int = 1;

/// Has a helper do `task`, and returns when it is gone. `Err`: the `errno` of why there was none.
fn run_helper(task: &mut Task) -> Result<(), libc::c_int> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let task: *mut Task = task;
    let mut status = FAULTED << 8;
    // SAFETY: every pointer is to something that outlives the helper, since this thread goes on
    // only when that has ended. It runs in `helper_main`, on a stack of its own that is aligned and large
    // enough, without the program's handlers, for every signal is blocked from before it is there
    // until it is gone.
    unsafe {
        let (mut every, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        libc::sigfillset(every.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr());
        let helper = libc::clone(helper_main, top.cast(), flags, task.cast());
        let outcome = if helper < 0 { Err(errno()) } else { Ok(()) };
        if helper > 0 {
            // It has ended; where another thread took its status (`__WALL`), the task tells as
            // much.
            while libc::waitpid(helper, &raw mut status, libc::__WCLONE) < 0
                && errno() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        outcome?;
        let is_done = (&raw const (*task).is_done).read_volatile();
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            // It had a copy of this process's memory, as valgrind gives it.
            (true, DONE) if !is_done => Err(libc::ENOSYS),
            (true, DONE | FAULTED) => Ok(()),
            // Somebody killed it.
            _ => Err(libc::EINTR),
        }
    }
}

fn errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What the helper does: nothing but calls that are allowed between `vfork` and `exec`.
extern "C" fn helper_main(task: *mut libc::c_void) -> libc::c_int {
    let task: *mut Task = task.cast();
    // SAFETY: the task is this process's alone until it ends. Handlers are a process's own (no
    // `CLONE_SIGHAND`), and the two signals are unblocked only when theirs is in place. The word is
    // as `execute_checked` was promised; where it is gone, the handler ends this process.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        (*action.as_mut_ptr()).sa_sigaction = exit_on_fault as extern "C" fn(libc::c_int) as usize;
        let mut faults = MaybeUninit::zeroed();
        libc::sigemptyset(faults.as_mut_ptr());
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, action.as_ptr(), null_mut());
            libc::sigaddset(faults.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, faults.as_ptr(), null_mut());
        let before = (*task).operation.execute((*task).word);
        (&raw mut (*task).before).write_volatile(before);
        (&raw mut (*task).is_done).write_volatile(true);
        libc::_exit(DONE)
    }
}

/// The helper's handler.
extern "C" fn exit_on_fault(_signal: libc::c_int) {
    // SAFETY: ends the helper, and nothing of the process that it helps.
    unsafe { libc::_exit(FAULTED) }
}

#[cfg(all(test, not(loom)))]
mod tests;
