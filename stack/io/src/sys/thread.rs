//! Threads and calls with blocked signals, comparison with the calling thread, and scheduling in
//! batches.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use super::poll::OWN_FAULTS;

/// Returns whether `thread` is the calling thread. The standard library would allocate a
/// description of a thread that it did not start.
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    // SAFETY: both are threads of this process; `thread` is joinable as long as its handle exists.
    unsafe { libc::pthread_equal(thread.as_pthread_t(), libc::pthread_self()) != 0 }
}

/// Starts a thread in which every signal is blocked. The application's handlers then run in the
/// application's threads only, and interrupt only its own blocking calls. Signals that a thread
/// raises by its own fault (such as SIGSEGV) are not blocked: a blocked one would kill the process
/// without the application's crash handler.
///
/// The mask is set before the thread starts, so the thread never takes a signal. Then the calling
/// thread's mask is restored.
///
/// # Errors
/// The system's, if no thread can be started.
pub fn spawn_without_signals<F, T>(builder: Builder, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set, and the following calls remove signals from it.
    let blocked = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OWN_FAULTS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        blocked.assume_init()
    };
    let before = set_mask(&blocked)?;
    // Restores the mask on every exit, including a panic of the thread builder.
    let _restore = RestoreMask(before);
    builder.spawn(body)
}

/// Runs `body` while all signals of the calling thread are blocked.
pub(super) fn with_blocked_signals<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set.
    let all = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    };
    let before = set_mask(&all).map_err(|_| Errno::INVAL)?;
    let _restore = RestoreMask(before);
    body()
}

/// Sets whether the calling thread is scheduled in batches (SCHED_BATCH, sched(7)). When woken,
/// such a thread does not preempt the running thread: the woken thread waits until the other sleeps
/// or has used its time. If another processor is idle, the policy makes no difference.
///
/// # Errors
/// The system's: a sandbox may forbid it.
pub fn set_sched_batch(is_batch: bool) -> io::Result<()> {
    let policy = if is_batch { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
    // SAFETY: all fields are integers, for which zero is valid. Both policies have no priority.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread; `param` is only read.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

struct RestoreMask(libc::sigset_t);

impl Drop for RestoreMask {
    fn drop(&mut self) {
        // A mask that was in use is valid, so this cannot fail.
        let _ = set_mask(&self.0);
    }
}

/// Replaces the calling thread's signal mask and returns the previous one.
fn set_mask(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `mask` is initialised; `before` is written by a successful call, and read only then.
    unsafe {
        match libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocked signals of the calling thread (proc(5)).
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    fn bit(signal: libc::c_int) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn a_thread_is_scheduled_in_batches_and_no_longer() {
        // SAFETY: takes an integer; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        if let Err(error) = set_sched_batch(true) {
            return eprintln!("skipped: {error}");
        }
        assert_eq!(policy(), libc::SCHED_BATCH);
        set_sched_batch(false).unwrap();
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn the_thread_blocks_signals_and_the_caller_does_not() {
        let before = blocked();
        let inside = spawn_without_signals(Builder::new(), blocked).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGALRM,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGCHLD,
            libc::SIGPIPE,
            libc::SIGHUP,
            libc::SIGPROF,
            libc::SIGIO,
            libc::SIGWINCH,
        ] {
            assert_ne!(inside & bit(signal), 0, "signal {signal}");
        }
        for signal in OWN_FAULTS {
            assert_eq!(inside & bit(signal), 0, "signal {signal}");
        }
    }
}
