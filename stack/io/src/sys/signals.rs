//! What the program's signal handlers do to the call that they interrupt.

use std::mem::MaybeUninit;

/// Signals that a thread raises by its own fault interrupt no call that sleeps.
const OWN_FAULTS: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Whether all handlers of the program were installed with `SA_RESTART`: a `read` that one
/// interrupts goes on (signal(7)). `poll` never does, so whoever sleeps in it on behalf of a `read`
/// asks here. Some sixty system calls; for the rare moment after a signal.
#[must_use]
pub fn restart_calls() -> bool {
    let signals = 1..=libc::SIGRTMAX();
    signals.filter(|signal| !OWN_FAULTS.contains(signal)).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: no new action is given, and there is room for the present one; zeros are a valid
        // one if the call fails, as it does for the two signals that the C library keeps for
        // itself.
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
        // SAFETY: zeros are an action without mask and flags; the handler does nothing, and nobody
        // else uses the signal.
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
