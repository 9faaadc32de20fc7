//! Atomic instructions on a word whose page may be missing.
//!
//! No system call performs an eight-byte atomic operation and returns EFAULT. An instruction on a
//! missing page raises SIGSEGV or SIGBUS, and an earlier check cannot prevent that, because another
//! thread may unmap the page at any time. A helper process therefore executes the instruction. The
//! helper shares the memory of this process and nothing else (`CLONE_VM`, as in `posix_spawn`). A
//! fault hits the helper, whose own signal handler ends the helper. The signal handlers of the
//! program are neither used nor changed, and the program gets no SIGCHLD. The calling thread waits
//! meanwhile (`CLONE_VFORK`); `cargo bench -p urxe-stack --bench copies` measures the time.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use urxe_types::allocate;

use super::checked_copy::{self, CheckedCopyError};
use super::copy::Operation;

impl Operation {
    /// Executes the operation. Returns the former value, or 0 for a store. `checked`: the word may
    /// be missing, or become missing during the call.
    ///
    /// # Safety
    /// `word` is aligned, and no reference covers any part of it. If the word is mapped and
    /// writable, the operation may change it. Unless `checked`, the word is mapped and, for
    /// operations other than a load, writable.
    #[inline]
    pub(super) unsafe fn perform(
        self,
        word: *mut u64,
        checked: bool,
    ) -> Result<u64, CheckedCopyError> {
        // SAFETY: the caller's promise.
        unsafe { if checked { self.execute_checked(word) } else { Ok(self.execute(word)) } }
    }

    /// Executes the operation on a word that may be missing.
    ///
    /// # Safety
    /// As [`perform`](Self::perform) with `checked`.
    unsafe fn execute_checked(self, word: *mut u64) -> Result<u64, CheckedCopyError> {
        let writes = !matches!(self, Self::Load);
        let page = checked_copy::make_present(word.cast(), size_of::<u64>(), writes);
        // A missing page has usually been missing before, and this check detects that faster than
        // the helper.
        page.map_err(|_| CheckedCopyError::NotMapped)?;
        let mut task = Task { operation: self, word, before: 0, is_done: false };
        match run_helper(&mut task) {
            Ok(()) if task.is_done => Ok(task.before),
            Ok(()) => Err(CheckedCopyError::NotMapped),
            // An emulator does not support such a process, or a filter forbids it. The check above
            // found the page a moment ago.
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

/// Stack size of the helper in bytes: a few calls, and a signal frame with all registers of the
/// processor.
const STACK: usize = 64 << 10;
/// Exit codes of the helper for a present page and for a missing page.
const DONE: libc::c_int = 0;
const FAULTED: libc::c_int = 1;

/// Runs `task` in a helper, and returns when the helper has ended. `Err` holds the `errno` of the
/// failure to start a helper.
fn run_helper(task: &mut Task) -> Result<(), libc::c_int> {
    let stack = allocate::vec::<u128>(STACK / size_of::<u128>());
    let mut stack = stack.map_err(|error| error.errno())?;
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let task: *mut Task = task;
    let mut status = FAULTED << 8;
    // SAFETY: every pointer is to an object that outlives the helper, because this thread continues
    // only after the helper has ended. The helper runs `helper_main` on its own stack, which is
    // aligned and large enough. The helper runs no handlers of the program, because every signal is
    // blocked from before its start until its end.
    unsafe {
        let (mut every, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        libc::sigfillset(every.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr());
        let helper = libc::clone(helper_main, top.cast(), flags, task.cast());
        let outcome = if helper < 0 { Err(errno()) } else { Ok(()) };
        if helper > 0 {
            // The helper has ended. If another thread took its exit status (`__WALL`), the task
            // holds the result.
            while libc::waitpid(helper, &raw mut status, libc::__WCLONE) < 0
                && errno() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        outcome?;
        let is_done = (&raw const (*task).is_done).read_volatile();
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            // The helper had a copy of the memory of this process, as under valgrind.
            (true, DONE) if !is_done => Err(libc::ENOSYS),
            (true, DONE | FAULTED) => Ok(()),
            // A signal from outside killed the helper.
            _ => Err(libc::EINTR),
        }
    }
}

fn errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The main function of the helper; it calls only functions that are allowed between `vfork` and
/// `exec`.
extern "C" fn helper_main(task: *mut libc::c_void) -> libc::c_int {
    let task: *mut Task = task.cast();
    // SAFETY: only the helper uses the task until the helper ends. Signal handlers belong to a
    // process (no `CLONE_SIGHAND`), and the two signals are unblocked only after the helper has
    // installed its handler. The word is as in `execute_checked`; if it is missing, the handler
    // ends the helper.
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

/// The signal handler of the helper.
extern "C" fn exit_on_fault(_signal: libc::c_int) {
    // SAFETY: ends the helper only, and changes nothing of the process that started it.
    unsafe { libc::_exit(FAULTED) }
}

#[cfg(all(test, not(loom)))]
mod tests;
