//! Replacements of the C library's functions that take a path; they pass another path on.
//!
//! Functions with a variable number of arguments (`open`) are written with all possible arguments.
//! On the processors that Linux supports here (x86-64, AArch64), variable arguments are passed like
//! others, and arguments that the caller did not pass are ignored.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::counters;
use crate::path::{is_candidate, leads_to_devices, replaced, root, with_place};

/// A function of the next library, looked up on first use.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the function, and `None` if the C library has no function of this name. No program
    /// can then have called it.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of this name.
    pub unsafe fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: the name ends with a zero, and preloaded libraries may use RTLD_NEXT.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Release);
        }
        // SAFETY: the pointer is not NULL, so it is the function. The caller states that `F` is its
        // pointer type, and the sizes are compared above.
        (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
    }
}

/// A result type of functions, with the value for a failure.
pub trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for ssize_t {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = ptr::null_mut();
}

/// A result type of functions that open files.
trait Opened: Copy {
    /// Returns the descriptor, and `None` for a failure.
    fn descriptor(self) -> Option<c_int>;
}

impl Opened for c_int {
    fn descriptor(self) -> Option<c_int> {
        (self >= 0).then_some(self)
    }
}

impl Opened for *mut FILE {
    /// The C library reads and rewinds a stream by internal functions, which this library cannot
    /// replace.
    fn descriptor(self) -> Option<c_int> {
        None
    }
}

/// Calls the function of the next library with the given arguments.
macro_rules! next {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        type Call = unsafe extern "C" fn($($type),*) -> $result;
        const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
        static NEXT: $crate::calls::Next = $crate::calls::Next::new(
            // SAFETY: a name contains no zero, so the only zero is at the end.
            unsafe { ::std::ffi::CStr::from_bytes_with_nul_unchecked(NAME) },
        );
        // SAFETY: the C library's function of this name has the type. The arguments are the
        // caller's, except for a replaced path, which ends with a zero.
        match unsafe { NEXT.get::<Call>() } {
            // SAFETY: as above.
            Some(call) => unsafe { call($($argument),*) },
            None => <$result as $crate::calls::Failed>::FAILED,
        }
    }};
}

pub(crate) use next;

/// Replaces functions that open files: counter files are created during the call.
macro_rules! opening {
    ($($name:ident(
        $($before:ident: $before_type:ty,)* [path] $(, $after:ident: $after_type:ty)*
    ) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            let call = |path: *const c_char| next!($name(
                $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
            ) -> $result);
            // SAFETY: the function's own contract.
            if !unsafe { is_candidate(path) } {
                return call(path);
            }
            // SAFETY: the function's own contract.
            with_place(|place| match unsafe { counters::Live::open(path, place) } {
                Some((live, path)) => {
                    let opened = call(path);
                    live.opened(opened.descriptor());
                    opened
                }
                // SAFETY: the function's own contract.
                None => call(unsafe { replaced(path, place) }),
            })
        }
    )*};
}

/// Replaces the other functions with a path.
macro_rules! looking {
    ($($name:ident(
        $($before:ident: $before_type:ty,)* [path] $(, $after:ident: $after_type:ty)*
    ) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            let call = |path: *const c_char| next!($name(
                $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
            ) -> $result);
            // SAFETY: the function's own contract.
            if !unsafe { is_candidate(path) } {
                return call(path);
            }
            // SAFETY: the function's own contract.
            with_place(|place| call(unsafe { replaced(path, place) }))
        }
    )*};
}

opening! {
    open([path], flags: c_int, mode: mode_t) -> c_int;
    open64([path], flags: c_int, mode: mode_t) -> c_int;
    openat(dir: c_int, [path], flags: c_int, mode: mode_t) -> c_int;
    openat64(dir: c_int, [path], flags: c_int, mode: mode_t) -> c_int;
    __open_2([path], flags: c_int) -> c_int;
    __open64_2([path], flags: c_int) -> c_int;
    __openat_2(dir: c_int, [path], flags: c_int) -> c_int;
    __openat64_2(dir: c_int, [path], flags: c_int) -> c_int;
    fopen([path], mode: *const c_char) -> *mut FILE;
    fopen64([path], mode: *const c_char) -> *mut FILE;
}

/// Replaces functions that read from the beginning again: counter files are updated first.
macro_rules! rewinding {
    ($($name:ident(
        $fd:ident $(, $after:ident: $after_type:ty)*; if $condition:expr
    ) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($fd: c_int $(, $after: $after_type)*) -> $result {
            if $condition {
                counters::refresh($fd);
            }
            next!($name($fd: c_int $(, $after: $after_type)*) -> $result)
        }
    )*};
}

rewinding! {
    read(fd, bytes: *mut c_void, size: size_t; if true) -> ssize_t;
    pread(fd, bytes: *mut c_void, size: size_t, offset: i64; if offset == 0) -> ssize_t;
    pread64(fd, bytes: *mut c_void, size: size_t, offset: i64; if offset == 0) -> ssize_t;
}

// The pointers after the path are passed on and never dereferenced.
looking! {
    opendir([path]) -> *mut DIR;
    scandir([path], list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    scandir64([path], list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int;
    chdir([path]) -> c_int;
    stat([path], found: *mut c_void) -> c_int;
    stat64([path], found: *mut c_void) -> c_int;
    lstat([path], found: *mut c_void) -> c_int;
    lstat64([path], found: *mut c_void) -> c_int;
    fstatat(dir: c_int, [path], found: *mut c_void, flags: c_int) -> c_int;
    fstatat64(dir: c_int, [path], found: *mut c_void, flags: c_int) -> c_int;
    __xstat(version: c_int, [path], found: *mut c_void) -> c_int;
    __xstat64(version: c_int, [path], found: *mut c_void) -> c_int;
    __lxstat(version: c_int, [path], found: *mut c_void) -> c_int;
    __lxstat64(version: c_int, [path], found: *mut c_void) -> c_int;
    __fxstatat(version: c_int, dir: c_int, [path], found: *mut c_void, flags: c_int) -> c_int;
    __fxstatat64(version: c_int, dir: c_int, [path], found: *mut c_void, flags: c_int) -> c_int;
    statx(dir: c_int, [path], flags: c_int, mask: u32, found: *mut c_void) -> c_int;
    access([path], mode: c_int) -> c_int;
    eaccess([path], mode: c_int) -> c_int;
    euidaccess([path], mode: c_int) -> c_int;
    faccessat(dir: c_int, [path], mode: c_int, flags: c_int) -> c_int;
    readlink([path], text: *mut c_char, size: size_t) -> ssize_t;
    readlinkat(dir: c_int, [path], text: *mut c_char, size: size_t) -> ssize_t;
    __readlink_chk([path], text: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    getxattr([path], name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    lgetxattr([path], name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    listxattr([path], list: *mut c_char, size: size_t) -> ssize_t;
    llistxattr([path], list: *mut c_char, size: size_t) -> ssize_t;
    __readlinkat_chk(dir: c_int, [path], text: *mut c_char, size: size_t, room: size_t) -> ssize_t;
}

/// Removes the replacement directory from the beginning of a path.
///
/// # Safety
/// `text` is NULL or a writable string that ends with a zero.
unsafe fn put_back(text: *mut c_char) -> *mut c_char {
    let Some(root) = root().filter(|_| !text.is_null()) else { return text };
    // SAFETY: the caller's word.
    let found = unsafe { CStr::from_ptr(text) }.to_bytes();
    if let Some(rest) = found.strip_prefix(root).filter(|rest| leads_to_devices(rest)) {
        let (from, len) = (rest.as_ptr(), rest.len() + 1);
        // SAFETY: the rest of the string, with its zero, moves to the front of the same string.
        unsafe { ptr::copy(from, text.cast::<u8>(), len) };
    }
    text
}

/// Replaces functions that return the canonical path of a path; the result must not name the
/// replacement directory.
macro_rules! resolving {
    ($($name:ident([path] $(, $after:ident: $after_type:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char $(, $after: $after_type)*) -> *mut c_char {
            let call = |path: *const c_char| {
                next!($name(path: *const c_char $(, $after: $after_type)*) -> *mut c_char)
            };
            // SAFETY: the function's own contract.
            let found = match unsafe { is_candidate(path) } {
                false => call(path),
                // SAFETY: the function's own contract.
                true => with_place(|place| call(unsafe { replaced(path, place) })),
            };
            // SAFETY: the function's own contract: NULL, or a text that is the caller's.
            unsafe { put_back(found) }
        }
    )*};
}

resolving! {
    realpath([path], resolved: *mut c_char);
    __realpath_chk([path], resolved: *mut c_char, room: size_t);
    canonicalize_file_name([path]);
}

#[cfg(test)]
mod tests;
