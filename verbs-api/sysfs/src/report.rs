//! The note at the end of `urxe run`: a program loaded the library, and no program opened a device.
//!
//! A program may find no device that it likes, use TCP, and report success. `urxe run` names a file
//! in `URXE_REPORT`, and its last part is the process id of the program. `liburxe.so` appends a
//! byte to the file in each process of the run (`verbs-api/abi/src/usage.rs`). This library reads
//! and removes the file when the process with that id ends by `exit` or `_exit`. dash calls the
//! latter.
//!
//! The end of a forked child does nothing, because its process id differs. Nothing is printed if
//! standard error is not the file that it was when the program started: a daemon may have closed
//! the descriptor and opened another file in its place. At the end, only functions run that a
//! signal handler may call (signal-safety(7)).

use std::env;
use std::ffi::{CString, c_int, c_void};
use std::mem::transmute;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use rustix::fs::{Mode, OFlags, open, unlink};

use crate::counters::{Identity, identity};
use crate::path::is_privileged;

/// Names the file.
const VARIABLE: &str = "URXE_REPORT";
/// The bytes that `liburxe.so` writes: the process loaded it, or opened a device.
const LOADED: u8 = b'l';
const OPENED: u8 = b'd';
/// More bytes than a run of a few processes writes. One process of many may open a device late, so
/// the note is omitted if the file is longer.
const READ_MAX: usize = 4096;

const NOTE: &[u8] = b"urxe: note: a program of this run loaded libibverbs, and none opened a \
    device: they may have used TCP; URXE_LOG=warn prints why verbs were refused, and urxe run \
    --no-report omits this note\n";

/// The end of a run.
struct Run {
    file: CString,
    /// The process that `urxe run` became.
    process: c_int,
    /// Standard error when the program started.
    stderr: Option<Identity>,
}

static RUN: OnceLock<Run> = OnceLock::new();
/// Whether the file was read, because `exit` calls `_exit`.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// The C library's `_exit`.
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The loader calls the functions in these sections.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_end;

extern "C" fn at_load() {
    // SAFETY: the name ends with a zero, and preloaded libraries may use RTLD_NEXT.
    let exit = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_exit".as_ptr()) };
    EXIT.store(exit, Ordering::Release);
    if is_privileged() {
        return;
    }
    let Some(file) = env::var_os(VARIABLE) else { return };
    let number = Path::new(&file).file_name().and_then(|name| name.to_str()?.parse().ok());
    let Some(process) = number.filter(|number| *number == current()) else { return };
    let Ok(file) = CString::new(file.into_vec()) else { return };
    let _only_once = RUN.set(Run { file, process, stderr: identity_of_stderr() });
}

fn current() -> c_int {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn identity_of_stderr() -> Option<Identity> {
    // SAFETY: the descriptor is used for one call, which fails if it is closed.
    identity(unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) })
}

extern "C" fn at_end() {
    let Some(run) = RUN.get().filter(|run| run.process == current()) else { return };
    if !IS_OVER.swap(true, Ordering::Relaxed) && run.opened_nothing() {
        run.print();
    }
}

impl Run {
    /// Reads and removes the file. Returns whether a process loaded the library and none opened a
    /// device.
    fn opened_nothing(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = open(&*self.file, flags, Mode::empty()) else { return false };
        let mut bytes = [0; READ_MAX];
        let len = rustix::io::read(&file, &mut bytes).unwrap_or(0);
        let _another_removed_it = unlink(&*self.file);
        let noted = &bytes[..len];
        len < READ_MAX && noted.contains(&LOADED) && !noted.contains(&OPENED)
    }

    fn print(&self) {
        if identity_of_stderr() != self.stderr {
            return;
        }
        // SAFETY: as in `identity_of_stderr`.
        let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
        let _there_is_no_other_place = rustix::io::write(stderr, NOTE);
    }
}

/// Ends the process by the next library's function.
fn end(status: c_int) -> ! {
    at_end();
    let exit = EXIT.load(Ordering::Acquire);
    if !exit.is_null() {
        // SAFETY: the C library's function of this name has this type.
        let exit = unsafe { transmute::<*mut c_void, extern "C" fn(c_int) -> !>(exit) };
        exit(status);
    }
    loop {
        // SAFETY: ends the process, and takes no pointer.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}
