//! The functions of the same name in the libraries behind this one.

use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the libraries behind this one, looked up when it is first needed.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function; `None` if the C library has none of this name, which then nobody can have
    /// called.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of this name.
    pub unsafe fn get<F: Copy>(&self) -> Option<F> {
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
