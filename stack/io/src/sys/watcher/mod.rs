//! A process that sends the last messages of this one, however it ends.
//!
//! ```text
//!   this process                               the watcher
//!   clone ───────────────────────────────────> closes all descriptors but two
//!   puts last messages into Records            sleeps: polls the socket and the pidfd
//!   (SIGKILL, _exit, execve)  ── end of file ─> sends the messages of Records, ends
//!   or stop: a byte over the socket ──────────> ends
//! ```
//! The watcher shares the memory of this process (`CLONE_VM`). So the messages need no system call,
//! and outlive the process until the watcher ends, less than half a second later. The watcher has
//! its own descriptors, signal mask, session and working folder, so that neither a terminal nor a
//! pipeline nor a mount waits for it, and signals to the process group miss it. Its end raises no
//! SIGCHLD, and `wait` does not return it.
//!
//! The kernel closes the socket when the process ends, and when it executes another program.
//! Children have no copy ([`fork`](super::fork)). The pidfd reports the end even if a process made
//! by `clone` directly still has a copy. A program that closes all descriptors ends its
//! connections; the kernel's rdma_cm does so too.
//!
//! The watcher runs on the thread-local storage of the thread that started it. So it must not use
//! that storage: it neither allocates, nor locks, nor logs, nor calls functions that set `errno`.
//! rustix makes system calls without the C library.
//!
//! Sources: clone(2), pidfd_open(2), socketpair(2), wait(2); the kernel's kernel/fork.c.

mod child;
mod records;

#[cfg(all(test, not(loom)))]
mod tests;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

pub use self::records::{LAST_PACKET_LEN, LastMessage, Records};

use super::fork::{CloseOnFork, close_on_fork};
use super::thread::with_blocked_signals;
use super::{environment, last_errno};

/// Bytes of the watcher's stack, without the page below it that no access may reach.
const STACK_LEN: usize = 128 << 10;
const GUARD_LEN: usize = 64 << 10;
/// How long [`Watcher::stop`] waits for the watcher's end.
const STOP_TIMEOUT: Duration = Duration::from_millis(100);
const STOP_STEP: Duration = Duration::from_micros(100);

/// The reason why a process has no watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWatcher {
    /// A sanitizer or valgrind observes the process, and does not support a second process in its
    /// memory.
    Instrumented,
    /// A system call failed.
    Refused {
        /// The system call.
        call: &'static str,
        /// The error.
        errno: Errno,
    },
}

impl fmt::Display for NoWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instrumented => write!(f, "a sanitizer or valgrind observes the process"),
            Self::Refused { call, errno } => write!(f, "{call} failed: {errno}"),
        }
    }
}

/// The watcher of this process. Dropping it without [`stop`](Self::stop) makes the watcher send the
/// messages.
#[derive(Debug)]
pub struct Watcher {
    process: Pid,
    /// One end of a pair of sockets. The watcher has the other one.
    socket: CloseOnFork<OwnedFd>,
    memory: Box<Memory>,
}

/// The memory that the watcher uses. Freed only after the watcher has ended.
#[derive(Debug)]
struct Memory {
    stack: Stack,
    task: Task,
}

/// The parameters of the watcher.
#[derive(Clone, Copy, Debug)]
struct Task {
    records: &'static Records,
    socket: RawFd,
    pidfd: RawFd,
}

impl Watcher {
    /// Starts the watcher, which sends the messages of `records` when this process ends.
    ///
    /// # Errors
    /// [`NoWatcher`], if the process is observed or a system call fails.
    pub fn start(records: &'static Records) -> Result<Self, NoWatcher> {
        if is_instrumented() {
            return Err(NoWatcher::Instrumented);
        }
        let refused = |call| move |errno| NoWatcher::Refused { call, errno };
        let pidfd = close_on_fork(|| pidfd_open(getpid(), PidfdFlags::empty()))
            .map_err(refused("pidfd_open"))?;
        let mut read_end = None;
        let socket = close_on_fork(|| {
            let flags = SocketFlags::CLOEXEC;
            let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            read_end = Some(theirs);
            Ok(own)
        })
        .map_err(refused("socketpair"))?;
        let read_end =
            read_end.ok_or(NoWatcher::Refused { call: "socketpair", errno: Errno::IO })?;
        let task = Task { records, socket: read_end.as_raw_fd(), pidfd: pidfd.as_raw_fd() };
        let stack = Stack::map().map_err(refused("mmap"))?;
        let memory = Box::new(Memory { stack, task });
        let process = with_blocked_signals(|| clone(&memory)).map_err(refused("clone"))?;
        Ok(Self { process, socket, memory })
    }

    /// Ends the watcher soon, at the end of this process. It sends nothing. Does not wait, because
    /// threads of the program that still run could change the exit code meanwhile.
    pub fn release(self) {
        let Self { process: _, socket, memory } = self;
        say_end(&socket);
        std::mem::forget(memory);
    }

    /// Ends the watcher, and waits for its end. It sends nothing.
    pub fn stop(self) {
        self.stop_within(STOP_TIMEOUT);
    }

    /// Ends the watcher, and waits for its end for about this time.
    fn stop_within(self, limit: Duration) {
        let Self { process, socket, memory } = self;
        say_end(&socket);
        let mut waited = Duration::ZERO;
        while waited < limit {
            if has_ended(process) {
                return;
            }
            std::thread::sleep(STOP_STEP);
            waited += STOP_STEP;
        }
        // The watcher may still use its stack.
        std::mem::forget(memory);
    }
}

/// Asks the watcher to end. Fails only if it has ended already, and then raises no SIGPIPE.
fn say_end(socket: &OwnedFd) {
    let _ = send(socket, &[0], SendFlags::NOSIGNAL);
}

/// Reaps the watcher. Returns whether it has ended.
fn has_ended(process: Pid) -> bool {
    let process = process.as_raw_nonzero().get();
    // SAFETY: the status pointer may be null.
    let reaped = unsafe { libc::waitpid(process, ptr::null_mut(), libc::WNOHANG | libc::__WCLONE) };
    reaped == process || (reaped < 0 && last_errno() == Errno::CHILD)
}

/// Starts the process.
fn clone(memory: &Memory) -> Result<Pid, Errno> {
    // No signal at its end, so that the program's handlers and `wait` do not see it. A debugger
    // must not take it for a thread.
    const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_UNTRACED;
    let task: *const Task = &raw const memory.task;
    // SAFETY: the stack is mapped, aligned, and used by this process only. `memory` is boxed, and
    // its owner frees it only after the process has ended or never. `run` keeps the rules in the
    // module documentation: it shares no thread-local state with the calling thread.
    let process = unsafe { libc::clone(run, memory.stack.top(), FLAGS, task.cast_mut().cast()) };
    if process < 0 {
        return Err(last_errno());
    }
    Pid::from_raw(process).ok_or(Errno::IO)
}

extern "C" fn run(task: *mut c_void) -> c_int {
    // SAFETY: `clone` passed a task that lives until this process has ended.
    let task = unsafe { *task.cast::<Task>() };
    child::run(task);
    0
}

/// The stack of the watcher.
#[derive(Debug)]
struct Stack(*mut c_void);

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Stack {}
// SAFETY: a shared reference gives nothing but the address.
unsafe impl Sync for Stack {}

impl Stack {
    fn map() -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let len = GUARD_LEN + STACK_LEN;
        // SAFETY: a new mapping at an unused address.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let stack = Self(start);
        // SAFETY: the lower part of the mapping just made.
        match unsafe { libc::mprotect(start, GUARD_LEN, libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(last_errno()),
        }
    }

    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(GUARD_LEN + STACK_LEN)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length. No process runs on it any more.
        unsafe { libc::munmap(self.0, GUARD_LEN + STACK_LEN) };
    }
}

/// Returns whether valgrind or a sanitizer observes this process.
fn is_instrumented() -> bool {
    // Valgrind preloads a library into the program that it runs.
    let is_valgrind = environment::value("LD_PRELOAD")
        .is_some_and(|preloaded| preloaded.to_string_lossy().contains("vgpreload"));
    let sanitizers = [c"__asan_init", c"__tsan_init", c"__msan_init"];
    is_valgrind
        || sanitizers.iter().any(|name| {
            // SAFETY: the name is a C string; the symbol is not used.
            !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
        })
}
