//! The number of this process, without a system call for each use.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The number, once read by this process, in a page that the kernel zeroes in every child, whatever
/// call forked the child. Null until the page is mapped.
static CACHED: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the system has no such pages.
static IS_UNSUPPORTED: AtomicBool = AtomicBool::new(false);

/// Returns the number of this process.
#[must_use]
pub fn own_id() -> u32 {
    // SAFETY: a non-null pointer was mapped by `cache`, is as long as a word and stays mapped; all
    // threads use it as an atomic.
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

/// Reads the number, and maps a page for it if there is none yet.
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
                    // SAFETY: mapped by this thread with this length, and unknown to other threads.
                    unsafe { libc::munmap(page.cast(), size_of::<AtomicU32>()) };
                }
            }
            None => IS_UNSUPPORTED.store(true, Ordering::Relaxed),
        }
    }
    std::process::id()
}

/// Maps a page of zeros that the kernel zeroes again in a forked child (madvise(2),
/// `MADV_WIPEONFORK`, since Linux 4.14).
fn wiped_page() -> Option<*mut AtomicU32> {
    let (len, rights) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an unused address; no memory of the program changes.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made, which no other thread knows.
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
        // AArch64 has no `fork`.
        let (flags, none) = (libc::SIGCHLD as libc::c_long, 0 as libc::c_long);
        // SAFETY: no handlers run, as after _Fork. Without flags and a stack, `clone` is `fork`.
        // The child calls only functions that neither allocate nor lock, and leaves by _exit.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
        if child == 0 {
            let is_own = own_id() == std::process::id() && own_id() != parent;
            // SAFETY: ends only this process.
            unsafe { libc::_exit(i32::from(!is_own)) }
        }
        let mut status = -1;
        // SAFETY: the status is a variable of the right type.
        let waited = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!((i64::from(waited), status), (child, 0));
        assert_eq!(own_id(), parent);
    }
}
