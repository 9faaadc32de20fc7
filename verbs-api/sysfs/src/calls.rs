//! The C library's functions that take a path, with another path.
//!
//! Functions with a variable number of arguments (`open`) are written with all that they can have:
//! on the processors that Linux runs this on (x86-64, AArch64), such arguments are passed like
//! others, and what the caller did not pass is not looked at.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::counters;
use crate::path::{Place, leads_to_devices, replaced, root};

/// A function of the libraries behind this one, looked up when it is first needed.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function; `None` if the C library has none of this name, which then nobody can have
    /// called.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of this name.
    unsafe fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: the name ends with zero; RTLD_NEXT is what libraries that are preloaded may
            // ask for.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Release);
        }
        // SAFETY: not NULL, so it is the function, whose pointer type `F` is by the caller's word;
        // sizes are compared above.
        (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
    }
}

/// What a function returns when it fails.
trait Failed {
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

/// What a function that opens returns.
trait Opened: Copy {
    /// The descriptor, if it is one and not a failure.
    fn descriptor(self) -> Option<c_int>;
}

impl Opened for c_int {
    fn descriptor(self) -> Option<c_int> {
        (self >= 0).then_some(self)
    }
}

impl Opened for *mut FILE {
    /// The C library reads and rewinds it by functions of its own, which nothing stands before.
    fn descriptor(self) -> Option<c_int> {
        None
    }
}

/// Opens files: counters are made for the occasion.
macro_rules! opening {
    ($($name:ident($($before:ident: $before_type:ty,)* [path] $(, $after:ident: $after_type:ty)*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            let mut place = Place::new();
            // SAFETY: the function's own contract.
            match unsafe { counters::Live::open(path, &mut place) } {
                Some((live, path)) => {
                    let opened = next!($name($($before: $before_type,)* path: *const c_char $(, $after: $after_type)*) -> $result);
                    live.opened(opened.descriptor());
                    opened
                }
                None => {
                    // SAFETY: the function's own contract.
                    let path = unsafe { replaced(path, &mut place) };
                    next!($name($($before: $before_type,)* path: *const c_char $(, $after: $after_type)*) -> $result)
                }
            }
        }
    )*};
}

/// All others.
macro_rules! looking {
    ($($name:ident($($before:ident: $before_type:ty,)* [path] $(, $after:ident: $after_type:ty)*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            let mut place = Place::new();
            // SAFETY: the function's own contract.
            let path = unsafe { replaced(path, &mut place) };
            next!($name($($before: $before_type,)* path: *const c_char $(, $after: $after_type)*) -> $result)
        }
    )*};
}

/// Calls the function behind this one, by the arguments that stand there.
macro_rules! next {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        type Call = unsafe extern "C" fn($($type),*) -> $result;
        static NEXT: Next = Next::new(
            // SAFETY: the only zero is the one at the end: a name has none.
            unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
        );
        // SAFETY: the type is the C library's of this name, and the arguments are the caller's but
        // for a path that was replaced, which ends with zero.
        match unsafe { NEXT.get::<Call>() } {
            // SAFETY: as above.
            Some(call) => unsafe { call($($argument),*) },
            None => <$result as Failed>::FAILED,
        }
    }};
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

/// Reads again from the beginning: counters are brought up to date.
macro_rules! rewinding {
    ($($name:ident($fd:ident $(, $after:ident: $after_type:ty)*; if $condition:expr) -> $result:ty;)*) => {$(
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

// What the pointers after the path point to is passed on and not looked at.
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

/// Takes away the folder in which the replaced ones stand.
///
/// # Safety
/// `text` is NULL or ends with zero, and may be written.
unsafe fn put_back(text: *mut c_char) -> *mut c_char {
    let Some(root) = root().filter(|_| !text.is_null()) else { return text };
    // SAFETY: the caller's word.
    let found = unsafe { CStr::from_ptr(text) }.to_bytes();
    if let Some(rest) = found.strip_prefix(root).filter(|rest| leads_to_devices(rest)) {
        let (from, len) = (rest.as_ptr(), rest.len() + 1);
        // SAFETY: the rest with its zero moves to the front of the text that it ends.
        unsafe { ptr::copy(from, text.cast::<u8>(), len) };
    }
    text
}

/// Looks up the path of a path, in which the folder does not appear.
macro_rules! resolving {
    ($($name:ident([path] $(, $after:ident: $after_type:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char $(, $after: $after_type)*) -> *mut c_char {
            let mut place = Place::new();
            // SAFETY: the function's own contract.
            let path = unsafe { replaced(path, &mut place) };
            let found = next!($name(path: *const c_char $(, $after: $after_type)*) -> *mut c_char);
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
