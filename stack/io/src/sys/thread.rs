//! Threads that take none of the application's signals, which thread this is, and whether it
//! interrupts others.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::thread::{Builder, JoinHandle};

use super::poll::OWN_FAULTS;

/// Whether the caller is that thread. The standard library would allocate a description of a thread
/// that it did not start.
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    // SAFETY: both are threads of this process, the other one joinable as long as its handle is
    // there.
    unsafe { libc::pthread_equal(thread.as_pthread_t(), libc::pthread_self()) != 0 }
}

/// Starts a thread in which every signal is blocked, so that the application's handlers run in the
/// application's threads only and its blocking calls are the ones interrupted. Excepted are those
/// that a thread raises by its own fault (SIGSEGV and its like): blocked, they would kill the
/// process without the application's crash handler.
///
/// The mask is set before the thread exists, which leaves no moment in which it could take a
/// signal, and the calling thread's mask is restored.
///
/// # Errors
/// What the system answers when it cannot start a thread.
pub fn spawn_without_signals<F, T>(builder: Builder, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set it is given, which the calls after it take away from.
    let blocked = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OWN_FAULTS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        blocked.assume_init()
    };
    let before = set_mask(&blocked)?;
    // Restores the mask on every way out of here, a panic of the thread builder's included.
    let _restore = RestoreMask(before);
    builder.spawn(body)
}

/// Sets whether the calling thread is scheduled in batches (SCHED_BATCH, sched(7)). Such a thread
/// does not preempt the running thread when it is woken: it waits until that one sleeps or has had
/// its time. Where another processor is idle it makes no difference.
///
/// # Errors
/// The system's: a sandbox may forbid it.
pub fn set_sched_batch(is_batch: bool) -> io::Result<()> {
    let policy = if is_batch { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
    // SAFETY: integers, for which zero is valid. Both policies know no priority.
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
        // A mask that was in force is a valid one: this cannot fail.
        let _ = set_mask(&self.0);
    }
}

/// Replaces the calling thread's signal mask and returns the one before.
fn set_mask(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `mask` is initialised; `before` is written by a call that succeeds, and read only
    // then.
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

    /// The blocked signals of the calling thread as the kernel tells (proc(5)).
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
