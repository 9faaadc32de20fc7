//! Sysfs for programs: `ibv_get_sysfs_path`, `ibv_read_sysfs_file`, and the counters for programs
//! that read sysfs themselves through `liburxe_sysfs.so` (`urxe run`).

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::fs;
use std::mem::transmute;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::slice::from_raw_parts;
use std::sync::{Once, OnceLock};

use urxe_stack::device::counters::Counter;
use urxe_stack::sys::environment;

use crate::ffi;
use crate::shared_engine::SharedEngine;

/// Returns the mount point of sysfs.
fn root() -> &'static CStr {
    static ROOT: OnceLock<std::ffi::CString> = OnceLock::new();
    ROOT.get_or_init(|| {
        let given = environment::value("SYSFS_PATH");
        let text = given.map_or_else(|| b"/sys".to_vec(), OsString::into_vec);
        let end = text.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
        // Values of environment variables contain no zero bytes.
        std::ffi::CString::new(&text[..end]).unwrap_or_default()
    })
}

/// `ibv_get_sysfs_path`
pub extern "C" fn get_sysfs_path() -> *const c_char {
    ffi::catch_panic(c"/sys".as_ptr(), || root().as_ptr())
}

/// `ibv_read_sysfs_file`: stores the text of the file without its last line feed and with a
/// terminating zero. Returns the length of the text, or -1.
pub unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    ffi::catch_panic(-1, || {
        if dir.is_null() || file.is_null() || buf.is_null() || size == 0 {
            return -1;
        }
        // SAFETY: the ABI's contract: texts that end with zero.
        let [dir, file] = [dir, file].map(|text| unsafe { CStr::from_ptr(text) }.to_bytes());
        let Ok(text) = fs::read(Path::new(OsStr::from_bytes(dir)).join(OsStr::from_bytes(file)))
        else {
            return -1;
        };
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let text = &text[..text.len().min(size - 1)];
        // SAFETY: the ABI's contract: `size` bytes, of which one more than the text's length are
        // written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), text.len());
            buf.add(text.len()).write(0);
        }
        c_int::try_from(text.len()).unwrap_or(c_int::MAX)
    })
}

/// The function by which `liburxe_sysfs.so` reads a counter: device name, counter name, and the
/// place for the value. Returns 0 if the counter exists.
type Read = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut u64) -> c_int;

/// Registers the function that reads counters with `liburxe_sysfs.so`, if the process preloaded
/// that library.
pub fn offer_counters() {
    static OFFERED: Once = Once::new();
    OFFERED.call_once(|| {
        // SAFETY: the name ends with a zero, and a library may search the default order of
        // libraries.
        let offer = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"urxe_sysfs_offer".as_ptr()) };
        if !offer.is_null() {
            // SAFETY: the only function of that name has this type.
            let offer = unsafe { transmute::<*mut c_void, extern "C" fn(Read)>(offer) };
            offer(read_counter);
        }
    });
}

unsafe extern "C" fn read_counter(
    device: *const u8,
    device_len: usize,
    counter: *const u8,
    counter_len: usize,
    value: *mut u64,
) -> c_int {
    ffi::catch_panic(-1, || {
        // SAFETY: as `Read` says: a text of this length.
        let device = unsafe { from_raw_parts(device, device_len) };
        // SAFETY: as `Read` says: a text of this length.
        let counter = unsafe { from_raw_parts(counter, counter_len) };
        let counter = match counter {
            b"port_xmit_packets" => Some(Counter::SentPkts),
            b"port_rcv_packets" => Some(Counter::RcvdPkts),
            name => Counter::ALL.iter().copied().find(|counter| counter.name().as_bytes() == name),
        };
        let Some(now) = counter.and_then(|counter| SharedEngine::counter(device, counter)) else {
            return -1;
        };
        // SAFETY: as `Read` says: a place for the value.
        unsafe { value.write(now) };
        0
    })
}
