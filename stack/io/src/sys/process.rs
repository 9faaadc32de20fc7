//! This process's number, without a system call each time it is asked for.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The number as this process has learned it, in a page that is empty in every child, however it
/// was forked; null until it is mapped.
static CACHED: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The system has no such pages.
static IS_UNSUPPORTED: AtomicBool = AtomicBool::new(false);

/// The number of this process.
#[must_use]
pub fn own_id() -> u32 {
    // SAFETY: what is not null was mapped by `cache`, is as long as a word and stays mapped; all use
    // it as an atomic.
    let Some(cached) = (unsafe { CACHED.load(Ordering::Acquire).as_ref() }) else { return cache() };
    match cached.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            cached.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Asks for the number, and makes a place for it if there is none yet.
#[cold]
fn cache() -> u32 {
    if !IS_UNSUPPORTED.load(Ordering::Relaxed) {
        match wiped_page() {
            Some(page) => {
                let others = CACHED.compare_exchange(
                    std::ptr::null_mut(),
                    page,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if others.is_err() {
                    // SAFETY: mapped by this thread with this length, and told to nobody.
                    unsafe { libc::munmap(page.cast(), size_of::<AtomicU32>()) };
                }
            }
            None => IS_UNSUPPORTED.store(true, Ordering::Relaxed),
        }
    }
    std::process::id()
}

/// A page of zeros that the kernel empties in a forked child (madvise(2), `MADV_WIPEONFORK`, since
/// Linux 4.14).
fn wiped_page() -> Option<*mut AtomicU32> {
    let (len, rights) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping where nothing is; no memory of the program changes.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made, which nobody knows of.
    if unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above.
        unsafe { libc::munmap(page, len) };
        return None;
    }
    Some(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_by_the_bare_system_call_has_its_own() {
        let parent = std::process::id();
        assert_eq!([own_id(), own_id()], [parent; 2]);
        // SAFETY: no handlers run, as after _Fork or clone; the child calls what allocates nothing
        // and takes no lock, and leaves by _exit.
        let child = unsafe { libc::syscall(libc::SYS_fork) };
        if child == 0 {
            let is_own = own_id() == std::process::id() && own_id() != parent;
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(i32::from(!is_own)) }
        }
        let mut status = -1;
        // SAFETY: the status has a place of its type.
        let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!((i64::from(waited), status), (child, 0));
        assert_eq!(own_id(), parent);
    }
}
