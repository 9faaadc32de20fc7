//! Reading sysfs for programs: `ibv_get_sysfs_path`, `ibv_read_sysfs_file`.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::border;

/// Where sysfs is mounted, with a terminating zero.
fn root() -> &'static CStr {
    static ROOT: OnceLock<std::ffi::CString> = OnceLock::new();
    ROOT.get_or_init(|| {
        let given = std::env::var_os("SYSFS_PATH").filter(|path| !path.is_empty());
        let text = given.map_or_else(|| b"/sys".to_vec(), |path| path.as_bytes().to_vec());
        let end = text.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
        // The environment has no zeros in its values.
        std::ffi::CString::new(&text[..end]).unwrap_or_default()
    })
}

/// `ibv_get_sysfs_path`
pub extern "C" fn get_sysfs_path() -> *const c_char {
    border::guard(c"/sys".as_ptr(), || root().as_ptr())
}

/// `ibv_read_sysfs_file`: the file's text without the last line feed, ended by a zero; its length, or -1.
pub unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    border::guard(-1, || {
        if dir.is_null() || file.is_null() || buf.is_null() || size == 0 {
            return -1;
        }
        // SAFETY: the ABI's contract: texts that end with zero.
        let [dir, file] = [dir, file].map(|text| unsafe { CStr::from_ptr(text) }.to_bytes());
        let Ok(text) = fs::read(Path::new(OsStr::from_bytes(dir)).join(OsStr::from_bytes(file))) else {
            return -1;
        };
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let text = &text[..text.len().min(size - 1)];
        // SAFETY: the ABI's contract: `size` bytes, of which one more than the text's length are written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), text.len());
            buf.add(text.len()).write(0);
        }
        c_int::try_from(text.len()).unwrap_or(c_int::MAX)
    })
}
