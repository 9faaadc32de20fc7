//! Paths that lead to the devices, and their replacements.

use std::env;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Names the replacement directory, which holds the replaced directories under their own paths.
const VARIABLE: &str = "URXE_SYSFS";
/// The replaced directories, with all their contents. `/dev/infiniband` is for programs that check
/// whether the file of a device exists (UCX). The PCI domain is that of devices with a profile.
const REPLACED: [&[u8]; 7] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/sys/devices/virtual/infiniband",
    b"/sys/devices/virtual/infiniband_verbs",
    b"/dev/infiniband",
    b"/sys/devices/pci7e57:00",
    b"/sys/bus/pci/devices/7e57",
];
/// Includes the terminating zero.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Returns the replacement directory without a trailing slash. A privileged program has none,
/// because its caller chose the variable (secure_getenv(3)).
pub fn root() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<Box<[u8]>>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        if is_privileged() {
            return None;
        }
        let given = env::var_os(VARIABLE)?;
        let bytes = given.as_bytes();
        let len = bytes.iter().rposition(|byte| *byte != b'/')? + 1;
        bytes.starts_with(b"/").then(|| bytes[..len].into())
    });
    root.as_deref()
}

/// Returns whether the kernel started the program with more rights than its caller has.
pub fn is_privileged() -> bool {
    // SAFETY: the call takes no pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns whether a path leads into a replaced directory.
pub fn leads_to_devices(path: &[u8]) -> bool {
    let leads_into = |folder: &&[u8]| {
        path.strip_prefix(*folder)
            .is_some_and(|inside| matches!(inside.first(), None | Some(b'/' | b':')))
    };
    REPLACED.iter().any(leads_into)
}

/// Room for a path.
pub struct Place(MaybeUninit<[u8; PATH_MAX]>);

impl Place {
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Stores the parts one after another and a terminating zero. Returns `None` if they are too
    /// long.
    pub fn join(&mut self, parts: &[&[u8]]) -> Option<*const c_char> {
        let start = self.0.as_mut_ptr().cast::<u8>();
        let mut len = 0;
        for part in parts {
            if len + part.len() >= PATH_MAX {
                return None;
            }
            // SAFETY: `len + part.len()` bytes are inside the place, which overlaps with nothing of
            // the caller's.
            unsafe { start.add(len).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            len += part.len();
        }
        // SAFETY: `len` is below the place's length.
        unsafe { start.add(len).write(0) };
        Some(start.cast_const().cast())
    }
}

/// Calls `call` with room for a path. The room is on the stack of this function only, because a
/// signal handler may open files on an alternate stack of a few kilobytes (sigaltstack(2)).
#[cold]
#[inline(never)]
pub fn with_place<R>(call: impl FnOnce(&mut Place) -> R) -> R {
    call(&mut Place::new())
}

/// Returns whether [`replaced`] may return another path.
///
/// Most paths differ in the second byte. The function calls nothing of the C library, because
/// MemorySanitizer would check the bytes of callers that it does not know.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn is_candidate(path: *const c_char) -> bool {
    // SAFETY: the caller's word. Each byte is read only if the ones before it are not zero, because
    // no folder's name has a zero.
    let leads_into = |folder: &&[u8]| unsafe {
        let byte = |at| path.add(at).cast::<u8>().read();
        (0..folder.len()).all(|at| byte(at) == folder[at])
            && matches!(byte(folder.len()), 0 | b'/' | b':')
    };
    !path.is_null() && REPLACED.iter().any(leads_into)
}

/// Returns the bytes of a program's path.
///
/// # Safety
/// `path` is NULL or a string that ends with a zero and does not change while the result is used.
pub unsafe fn bytes<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    Some(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Returns `path`, or its replacement in `place`.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn replaced(path: *const c_char, place: &mut Place) -> *const c_char {
    // SAFETY: the caller's word.
    let Some(bytes) = (unsafe { bytes(path) }).filter(|bytes| leads_to_devices(bytes)) else {
        return path;
    };
    let Some(root) = root() else { return path };
    place.join(&[root, bytes]).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_the_devices_and_no_others_are_replaced() {
        for (path, inside) in [
            ("/sys/class/infiniband", true),
            ("/sys/class/infiniband/", true),
            ("/sys/class/infiniband/rxe0/ports/1/state", true),
            ("/sys/class/infiniband_verbs/abi_version", true),
            ("/sys/devices/virtual/infiniband/rxe0", true),
            ("/dev/infiniband/uverbs0", true),
            ("/sys/bus/pci/devices/7e57:01:00.0/vendor", true),
            ("/sys/devices/pci7e57:00/7e57:00:01.0", true),
            ("/sys/bus/pci/devices/0000:01:00.0", false),
            ("/sys/devices/pci0000:00", false),
            ("/dev/null", false),
            ("/sys/class/infiniband_mad", false),
            ("/sys/class/infinibandx/rxe0", false),
            ("/sys/class", false),
            ("/sys/class/net/eth0", false),
            ("/system/class/infiniband", false),
            ("/sys", false),
            ("sys/class/infiniband", false),
            ("", false),
        ] {
            let text = std::ffi::CString::new(path).unwrap();
            // SAFETY: the text lives as long as its bytes.
            let leads = unsafe { bytes(text.as_ptr()) }.is_some_and(leads_to_devices);
            assert_eq!(leads, inside, "{path:?}");
            // SAFETY: as above.
            assert_eq!(unsafe { is_candidate(text.as_ptr()) }, inside, "{path:?}");
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { bytes(std::ptr::null()) }.is_none());
        // SAFETY: NULL is allowed.
        assert!(!unsafe { is_candidate(std::ptr::null()) });
    }

    #[test]
    fn what_does_not_fit_is_not_joined() {
        let mut place = Place::new();
        let long = vec![b'a'; PATH_MAX - 2];
        let joined = place.join(&[b"/", &long]).unwrap();
        // SAFETY: the place holds the path with its zero.
        assert_eq!(unsafe { CStr::from_ptr(joined) }.to_bytes().len(), PATH_MAX - 1);
        assert!(place.join(&[b"/b", &long]).is_none());
    }
}
