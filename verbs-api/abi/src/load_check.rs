//! The check that the process has no other libibverbs or librdmacm.
//!
//! Two copies, for example this library as libibverbs and the original as librdmacm, would each
//! have devices of their own. A pointer to an object of one copy would be invalid in the other. The
//! loader takes each name once, but a path in the program (DT_RPATH, `dlopen`) or a copied file in
//! place of a link can load a second copy.
//!
//! - If the other copy is there when this library is loaded, the process ends at once with an error
//!   message, because none of its code has run.
//! - If the other copy is loaded later, the next call for the list of devices fails.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use urxe_stack::rendezvous::LibraryCopy;

use crate::error::VerbError;
use crate::ffi;

/// Prefixes of the file names that must be loaded once.
const NAMES: [&[u8]; 3] = [b"libibverbs.so", b"librdmacm.so", b"liburxe.so"];
/// The exit status of a shell for a command that cannot be executed.
const NOT_STARTED: c_int = 127;

/// The loader calls the functions in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = check_libraries;

extern "C" fn check_libraries() {
    ffi::catch_panic((), || {
        let Err(error) = check() else { return };
        eprintln!("urxe: {error}");
        // SAFETY: ends the process before any other code of it has run.
        unsafe { libc::_exit(NOT_STARTED) };
    });
}

/// Checks that the process has no other libibverbs or librdmacm.
///
/// # Errors
/// [`VerbError::OtherLibrary`].
pub fn check() -> Result<(), VerbError> {
    let (this, others): (Vec<_>, Vec<_>) =
        mapped_libraries().into_iter().partition(|(_, is_this)| *is_this);
    let Some((other, _)) = others.into_iter().next() else { return Ok(()) };
    // The file of this library may have any name.
    let own = || PathBuf::from(LibraryCopy::own().path);
    let this = this.into_iter().next().map_or_else(own, |(path, _)| path);
    Err(VerbError::OtherLibrary { this, other })
}

/// Returns the mapped files with such names, and whether each is this library.
fn mapped_libraries() -> Vec<(PathBuf, bool)> {
    let mut found: Vec<(PathBuf, bool)> = Vec::new();
    // SAFETY: `collect_library` gets the vector back, and the loader calls that function only
    // during this call.
    unsafe { libc::dl_iterate_phdr(Some(collect_library), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn collect_library(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader's own description of an object, and the vector of `mapped_libraries`.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<(PathBuf, bool)>>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a text of the loader's that ends with zero.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if NAMES.iter().any(|ours| name.starts_with(ours)) {
        let here = check_libraries as extern "C" fn() as usize as u64;
        // SAFETY: so many program headers are there.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let is_this = headers.iter().any(|header| {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD
                && (start..start.saturating_add(header.p_memsz)).contains(&here)
        });
        found.push((PathBuf::from(OsStr::from_bytes(path)), is_this));
    }
    0
}
