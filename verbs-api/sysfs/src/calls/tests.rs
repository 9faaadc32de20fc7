//! The replaced functions in a signal handler that runs on a small stack of its own.

use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize};

use super::*;

/// Stack in bytes for the handler, less than a path takes.
const ROOM: usize = 3584;
/// Inaccessible bytes below a stack.
const GUARD: usize = 1 << 20;

static RESULT: AtomicI32 = AtomicI32::new(-2);
/// The address of a variable of the handler.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn look(_signal: c_int) {
    let inside = 0_u8;
    INSIDE.store((&raw const inside).addr(), Ordering::Relaxed);
    // SAFETY: the path ends with a zero.
    RESULT.store(unsafe { access(c"/dev/null".as_ptr(), libc::R_OK) }, Ordering::Relaxed);
}

/// Handles a signal on a stack of `len` bytes with a guard below. Returns the bytes of the signal
/// frame and of the handler's own variables.
fn look_on_a_stack_of(len: usize) -> usize {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, of which the lower part becomes inaccessible. The handler is a
    // function of this test, and the stack stays until the end of the process.
    let top = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let place = libc::mmap(ptr::null_mut(), GUARD + len, rights, flags, -1, 0);
        assert_ne!(place, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(place, GUARD, libc::PROT_NONE), 0);
        let stack = libc::stack_t { ss_sp: place.byte_add(GUARD), ss_flags: 0, ss_size: len };
        assert_eq!(libc::sigaltstack(&raw const stack, ptr::null_mut()), 0);
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        (*action.as_mut_ptr()).sa_sigaction = look as extern "C" fn(c_int) as usize;
        (*action.as_mut_ptr()).sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, action.as_ptr(), ptr::null_mut()), 0);
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        place.addr() + GUARD + len
    };
    assert_eq!(RESULT.load(Ordering::Relaxed), 0);
    top - INSIDE.load(Ordering::Relaxed)
}

#[test]
fn other_paths_need_little_stack() {
    const ROLE: &str = "URXE_TEST_SMALL_STACK";
    if std::env::var_os(ROLE).is_some() {
        // This is the process that the test starts below. The first call also looks the function
        // up, which needs more stack.
        let used = look_on_a_stack_of(1 << 16);
        look_on_a_stack_of(used + ROOM);
        return;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let status = child.args(["--exact", &name]).env(ROLE, "").status().unwrap();
    assert!(status.success(), "{status}");
}
