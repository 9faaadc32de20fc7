//! Accesses to memory that may be missing, by system calls. A system call returns EFAULT where an
//! instruction would end the process.
//!
//! * Copies use `process_vm_readv` and `process_vm_writev` on the own process. A thread may always
//!   name its own thread group (`ptrace_may_access`), so neither privileges nor Yama matter. The
//!   calls respect page protections, which `/proc/self/mem` does not. Old container runtimes forbid
//!   them (seccomp: EPERM, or ENOSYS). The bytes then go through a pipe that is made for the one
//!   copy. That is slower, but keeps no descriptor that a forked child would share.
//! * Presence checks use `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` (Linux 5.14). On other
//!   systems, one byte of each page is read as above. For writing, `FUTEX_WAKE_OP` ORs 0 into a
//!   word of the page, which changes nothing but needs a writable page.

use super::copy::copy_shared;
use super::error::Fault;
use super::write_only::WriteOnly;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use urxe_wire::Payload;

/// The reason why a checked access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckedCopyError {
    /// The system call returned EFAULT.
    NotMapped,
    /// Neither way of copying is available; the last `errno`.
    Refused(i32),
}

impl CheckedCopyError {
    pub(super) fn into_fault(self, addr: u64, len: u64) -> Fault {
        match self {
            Self::NotMapped => Fault::NotMapped { addr, len },
            Self::Refused(errno) => Fault::Refused { errno },
        }
    }

    /// Returns the error of this thread's last failed call.
    fn last() -> Self {
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT) => Self::NotMapped,
            errno => Self::Refused(errno.unwrap_or(libc::EIO)),
        }
    }
}

/// Direction of a copy between a buffer and memory that may be missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    FromTarget,
    ToTarget,
}

/// Copies `dst.len()` bytes from `src`, which may be unmapped.
pub(super) fn read(src: *const u8, dst: WriteOnly<'_>) -> Result<(), CheckedCopyError> {
    // SAFETY: `dst` may be written, and `src` is only read, by the kernel.
    let outcome = unsafe {
        process_vm(Direction::FromTarget, dst.as_mut_ptr(), [(src.cast_mut(), dst.len())])
    };
    let outcome = match outcome {
        // SAFETY: as above.
        Err(CheckedCopyError::Refused(_)) => unsafe {
            pipe(Direction::FromTarget, dst.as_mut_ptr(), src.cast_mut(), dst.len())
        },
        other => other,
    };
    // A later read must not return older bytes than this read.
    fence(Ordering::Acquire);
    outcome
}

/// Copies `src` to `dst`, which may be unmapped, and stores the last byte last.
///
/// # Safety
/// Mapped and writable bytes of `[dst, dst + src.len())` may be overwritten, and no reference
/// covers any of them.
pub(super) unsafe fn write(dst: *mut u8, src: &[u8]) -> Result<(), CheckedCopyError> {
    let [body @ .., _] = src else { return Ok(()) };
    let (ours, at_last) = (src.as_ptr().cast_mut(), dst.wrapping_add(body.len()));
    // x86 keeps stores in order from one vector to the next (but not inside a string instruction).
    // Other processors need two calls with a fence between them.
    let outcome = if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        // SAFETY: the caller's promise; `ours` is only read.
        unsafe { process_vm(Direction::ToTarget, ours, [(dst, body.len()), (at_last, 1)]) }
    } else {
        // SAFETY: the caller's promise; `ours` is only read.
        unsafe {
            process_vm(Direction::ToTarget, ours, [(dst, body.len())]).and_then(|()| {
                fence(Ordering::SeqCst);
                process_vm(Direction::ToTarget, ours.add(body.len()), [(at_last, 1)])
            })
        }
    };
    match outcome {
        // SAFETY: the caller's promise; `ours` is only read.
        Err(CheckedCopyError::Refused(_)) => unsafe {
            pipe(Direction::ToTarget, ours, dst, body.len())?;
            fence(Ordering::SeqCst);
            pipe(Direction::ToTarget, ours.add(body.len()), at_last, 1)
        },
        other => other,
    }
}

/// Copies `src` to `dst` as [`write`] does. Bytes that another process can change pass through
/// private memory, part by part.
///
/// # Safety
/// As [`write`].
pub(super) unsafe fn write_any(dst: *mut u8, src: Payload<'_>) -> Result<(), CheckedCopyError> {
    let shared = match src {
        // SAFETY: the caller's promise.
        Payload::Private(src) => return unsafe { write(dst, src) },
        Payload::Shared(shared) => shared,
    };
    const PART: usize = 1024;
    let mut private = [0; PART];
    for (number, part) in shared.chunks(PART).enumerate() {
        let private = &mut private[..part.len()];
        copy_shared(part, private);
        // SAFETY: the caller's promise, for this part.
        unsafe { write(dst.wrapping_add(number * PART), private)? };
    }
    Ok(())
}

/// Makes one call of `process_vm_readv` or `process_vm_writev` on this process.
///
/// # Safety
/// `ours` has as many bytes as `theirs` in all, and is writable for [`Direction::FromTarget`]. For
/// [`Direction::ToTarget`], mapped bytes of `theirs` may be overwritten.
unsafe fn process_vm<const N: usize>(
    way: Direction,
    ours: *mut u8,
    theirs: [(*mut u8, usize); N],
) -> Result<(), CheckedCopyError> {
    let len = theirs.iter().map(|(_, len)| len).sum::<usize>();
    let local = libc::iovec { iov_base: ours.cast(), iov_len: len };
    let remote = theirs.map(|(base, len)| libc::iovec { iov_base: base.cast(), iov_len: len });
    let call = match way {
        Direction::FromTarget => libc::process_vm_readv,
        Direction::ToTarget => libc::process_vm_writev,
    };
    // SAFETY: both arrays of vectors are valid for their counts, and the caller guarantees the
    // memory that they name.
    let moved = unsafe {
        call(libc::getpid(), &raw const local, 1, remote.as_ptr(), N as libc::c_ulong, 0)
    };
    match usize::try_from(moved) {
        Ok(moved) if moved == len => Ok(()),
        // The call stops at the first missing page.
        Ok(_) => Err(CheckedCopyError::NotMapped),
        Err(_) => Err(CheckedCopyError::last()),
    }
}

/// Moves `len` bytes through a new pipe.
///
/// # Safety
/// As [`process_vm`].
unsafe fn pipe(
    way: Direction,
    ours: *mut u8,
    theirs: *mut u8,
    len: usize,
) -> Result<(), CheckedCopyError> {
    /// Capacity of the smallest pipe, so that no call blocks.
    const CHUNK: usize = 4096;
    let (out, into) = new_pipe()?;
    let (from, to) = match way {
        Direction::FromTarget => (theirs, ours),
        Direction::ToTarget => (ours, theirs),
    };
    let (mut written, mut read) = (0, 0);
    while read < len {
        if written == read {
            let chunk = CHUNK.min(len - written);
            let start = from.wrapping_add(written);
            // SAFETY: the kernel only reads there, and returns EFAULT for missing pages.
            let write = || unsafe { libc::write(into.as_raw_fd(), start.cast(), chunk) };
            written += moved(write)?;
        }
        let (start, left) = (to.wrapping_add(read), written - read);
        // SAFETY: the caller's promise, for either way.
        let fetch = || unsafe { libc::read(out.as_raw_fd(), start.cast(), left) };
        read += moved(fetch)?;
    }
    Ok(())
}

fn new_pipe() -> Result<(OwnedFd, OwnedFd), CheckedCopyError> {
    let mut fds = [-1; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(CheckedCopyError::last());
    }
    // SAFETY: both were just opened, and no other code owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

fn moved(call: impl Fn() -> isize) -> Result<usize, CheckedCopyError> {
    loop {
        match usize::try_from(call()) {
            // Both ends of the pipe are open and the pipe has room or bytes, so a call always moves
            // some bytes.
            Ok(0) => return Err(CheckedCopyError::Refused(libc::EIO)),
            Ok(moved) => return Ok(moved),
            Err(_) => match CheckedCopyError::last() {
                CheckedCopyError::Refused(libc::EINTR) => {}
                error => return Err(error),
            },
        }
    }
}

/// The reason why pages could not be made present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PopulateError {
    /// A page has no mapping.
    NotMapped,
    /// The mapping of a page does not allow the access, or its file ends before the page.
    NotAccessible,
}

/// Makes every page of `[addr, addr + len)` present for reading, or for writing. The range, rounded
/// to pages, must be inside the address space.
pub(super) fn make_present(addr: *mut u8, len: usize, write: bool) -> Result<(), PopulateError> {
    let (advice, probe): (_, fn(_) -> _) = match write {
        false => (libc::MADV_POPULATE_READ, probe_read),
        true => (libc::MADV_POPULATE_WRITE, probe_write),
    };
    let page = page_size();
    let into_page = addr.addr() % page;
    let (first, len) = (addr.wrapping_sub(into_page), (len + into_page).next_multiple_of(page));
    loop {
        // SAFETY: both kinds of advice only fault pages in, as a read or an unchanging write of
        // each would.
        if unsafe { libc::madvise(first.cast(), len, advice) } == 0 {
            return Ok(());
        }
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => continue,
            Some(libc::ENOMEM) => Err(PopulateError::NotMapped),
            // The mapping has a wrong protection or kind, the kernel is older or emulated, or a
            // filter forbids the call.
            Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => probe_pages(first, len, page, probe),
            _ => Err(PopulateError::NotAccessible),
        };
    }
}

fn probe_read(page: *mut u8) -> Result<(), PopulateError> {
    read(page, WriteOnly::from(&mut [0])).map_err(|_| populate_error(page))
}

fn probe_write(page: *mut u8) -> Result<(), PopulateError> {
    if or_zero(page) { Ok(()) } else { Err(populate_error(page)) }
}

/// Returns the reason why the page at `page` is not accessible: `mincore` fails only for unmapped
/// pages.
fn populate_error(page: *mut u8) -> PopulateError {
    let mut resident = 0;
    // SAFETY: asks about one page, and has room for the answer.
    if unsafe { libc::mincore(page.cast(), 1, &raw mut resident) } == 0 {
        PopulateError::NotAccessible
    } else {
        PopulateError::NotMapped
    }
}

fn probe_pages(
    first: *mut u8,
    len: usize,
    page: usize,
    probe: impl Fn(*mut u8) -> Result<(), PopulateError>,
) -> Result<(), PopulateError> {
    (0..len).step_by(page).try_for_each(|offset| probe(first.wrapping_add(offset)))
}

/// ORs 0 into the aligned 32-bit word at `word`, which changes nothing. Returns whether that
/// succeeded.
fn or_zero(word: *mut u8) -> bool {
    let mut unused_word = 0_u32;
    /// Operation OR, comparison EQ, both arguments 0.
    const OR_ZERO_COMPARE_EQ: u32 = 1 << 28;
    // SAFETY: no thread waits on the local word, and the call leaves the value of the other word
    // unchanged.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw mut unused_word,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0,
            word,
            OR_ZERO_COMPARE_EQ,
        )
    };
    woken >= 0
}

/// Returns the size of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: reads a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(all(test, not(loom)))]
mod tests;
