//! The processors on which the process started, for threads of the library.
//!
//! A new thread inherits the processors of its creator (sched_setaffinity(2)). A program that pins
//! a polling thread to a processor, and opens a device there, would have the background thread
//! compete for that processor.

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors at the first call of [`remember`].
static ORIGINAL: OnceLock<Option<CpuSet>> = OnceLock::new();

/// Remembers the processors of the calling thread as those of the process. Only the first call has
/// an effect. The C library calls this function when it is loaded, before the program can pin a
/// thread.
pub fn remember() {
    // A machine may have more processors than a set holds. Threads then inherit.
    ORIGINAL.get_or_init(|| sched_getaffinity(None).ok());
}

/// Lets the calling thread run on the processors of the process. Does nothing if these are unknown.
///
/// # Errors
/// The system's: a sandbox may forbid it, or the processors are no longer there.
pub fn restore() -> Result<(), Errno> {
    match ORIGINAL.get() {
        Some(Some(original)) => sched_setaffinity(None, original),
        _ => Ok(()),
    }
}

/// Returns the number of processors of the process, if known.
#[must_use]
pub fn processors() -> Option<u32> {
    remember();
    ORIGINAL.get().and_then(|original| original.as_ref().map(CpuSet::count))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_of_a_pinned_thread_gets_the_processors_of_the_process() {
        assert_eq!(restore(), Ok(()), "nothing is known, or all is as before");
        remember();
        let all = sched_getaffinity(None).unwrap();
        assert_eq!(processors(), Some(all.count()));
        let pinned = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            let inherits = || sched_getaffinity(None).unwrap();
            let restores = move || restore().map(|()| inherits()).unwrap();
            (one, thread::spawn(inherits).join().unwrap(), thread::spawn(restores).join().unwrap())
        });
        let (one, inherited, restored) = pinned.join().unwrap();
        assert_eq!(inherited, one);
        assert_eq!(restored, all);
    }
}
