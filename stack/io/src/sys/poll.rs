//! `poll` for a caller's descriptor numbers, and whether the program's signal handlers restart
//! calls.

use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::io::Errno;

/// Signals that a thread raises by its own fault.
pub(super) const OWN_FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Polls `fds` and returns how many have an event. Without `timeout`, waits until one has. The
/// caller may pass closed or negative descriptors; poll(2) reports or ignores them.
///
/// # Errors
/// The system's.
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let millis = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the entries of the slice live through the call.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    usize::try_from(ready).map_err(|_| super::last_errno())
}

/// Returns whether all handlers of the program have `SA_RESTART`, so that a `read` continues after
/// a signal (signal(7)). `poll` is never restarted, so a thread that polls on behalf of a `read`
/// calls this function after a signal. The check makes about sixty system calls.
#[must_use]
pub fn restart_calls() -> bool {
    // Signals of a thread's own fault interrupt no sleeping call.
    let is_own = |signal: &_| OWN_FAULTS.contains(signal) || *signal == libc::SIGABRT;
    (1..=libc::SIGRTMAX()).filter(|signal| !is_own(signal)).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: no new action is given, and there is a buffer for the current one. Zeros are a
        // valid action if the call fails, as it does for the two signals that the C library
        // reserves.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let is_handled =
            action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: libc::c_int) {}

    fn handle(flags: libc::c_int) {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeros are an action without mask and flags; the handler does nothing, and no
        // other code uses the signal.
        unsafe {
            (*action.as_mut_ptr()).sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            (*action.as_mut_ptr()).sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR2, action.as_ptr(), std::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn one_handler_without_the_flag_is_enough() {
        handle(libc::SA_RESTART);
        let with_the_flag = restart_calls();
        handle(0);
        assert!(!restart_calls());
        assert!(with_the_flag);
    }
}
