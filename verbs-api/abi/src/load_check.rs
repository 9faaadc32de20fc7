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
//! - If this library is in `LD_PRELOAD`, other copies are permitted. The loader finds all symbols
//!   of programs and libraries here, so no function of the other copy runs, unless a program gets
//!   its address by a handle of the other copy (`dlsym`).

use std::ffi::{OsStr, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use urxe_stack::rendezvous::LibraryCopy;
use urxe_stack::sys::{affinity, environment};

use crate::error::VerbError;
use crate::ffi;

/// Prefixes of the file names that must be loaded once.
const NAMES: [&str; 3] = ["libibverbs.so", "librdmacm.so", "liburxe.so"];
/// The exit status of a shell for a command that cannot be executed.
const NOT_STARTED: c_int = 127;

/// The loader calls the functions in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = check_libraries;

extern "C" fn check_libraries() {
    ffi::catch_panic((), || {
        affinity::remember();
        // The program may change the variable later.
        is_preloaded();
        let Err(error) = check() else { return };
        eprintln!("urxe: {error}");
        // SAFETY: ends the process before any other code of it has run.
        unsafe { libc::_exit(NOT_STARTED) };
    });
}

/// Checks that the process has no other libibverbs or librdmacm.
///
/// Reads `/proc/self/maps` instead of asking the loader, because the loader's lock stays locked in
/// a child if another thread held it at the time of the fork. Without `/proc`, nothing is found.
///
/// # Errors
/// [`VerbError::OtherLibrary`].
pub fn check() -> Result<(), VerbError> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = address();
    let (this, others): (Vec<_>, Vec<_>) =
        libraries(&maps, own).into_iter().partition(|library| library.is_this);
    let Some(other) = others.into_iter().next() else { return Ok(()) };
    if is_preloaded() {
        return Ok(());
    }
    // The file of this library may have any name.
    let own = || PathBuf::from(LibraryCopy::own().path);
    let this = this.into_iter().next().map_or_else(own, |library| library.path.into());
    Err(VerbError::OtherLibrary { this, other: other.path.into() })
}

/// Returns an address in this library.
fn address() -> usize {
    check as fn() -> Result<(), VerbError> as usize
}

/// Returns whether the loader searches this library before those that the program needs.
fn is_preloaded() -> bool {
    static IS_PRELOADED: OnceLock<bool> = OnceLock::new();
    *IS_PRELOADED.get_or_init(|| {
        let Some(preloads) = environment::value("LD_PRELOAD") else { return false };
        let Ok(own) = fs::canonicalize(LibraryCopy::own().path) else { return false };
        let mut paths = preloads.as_bytes().split(|byte| b" :".contains(byte));
        paths.any(|path| fs::canonicalize(OsStr::from_bytes(path)).is_ok_and(|path| path == own))
    })
}

/// A mapped file.
#[derive(Debug, PartialEq, Eq)]
struct Library<'a> {
    path: &'a str,
    is_this: bool,
}

/// Returns the mapped files with [such names](NAMES), each once. The file with the address `own` is
/// this library.
fn libraries(maps: &str, own: usize) -> Vec<Library<'_>> {
    let mut found: Vec<Library<'_>> = Vec::new();
    for line in maps.lines() {
        let Some(path) = line.find('/').map(|start| &line[start..]) else { continue };
        let name = path.rsplit('/').next().unwrap_or(path);
        if !NAMES.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_this = range
            .and_then(|(start, end)| Some(number(start)?..number(end)?))
            .is_some_and(|range| range.contains(&own));
        match found.iter_mut().find(|library| library.path == path) {
            Some(library) => library.is_this |= is_this,
            None => found.push(Library { path, is_this }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 08:01 17 /usr/bin/my libibverbs.so/program
7f0000000000-7f0000001000 r--p 00000000 08:01 18 /usr/lib/libibverbs.so.1.14.44.0
7f0000001000-7f0000002000 r-xp 00001000 08:01 18 /usr/lib/libibverbs.so.1.14.44.0
7f0000010000-7f0000011000 r--p 00000000 08:01 19 /opt/urxe/liburxe.so
7f0000011000-7f0000012000 r-xp 00001000 08:01 19 /opt/urxe/liburxe.so
7f0000020000-7f0000021000 r-xp 00000000 08:01 20 /usr/lib/libibverbs/librxe-rdmav34.so
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0 [stack]
";

    #[test]
    fn each_file_is_found_once_and_this_library_by_its_address() {
        let system = Library { path: "/usr/lib/libibverbs.so.1.14.44.0", is_this: false };
        let this = Library { path: "/opt/urxe/liburxe.so", is_this: true };
        assert_eq!(libraries(MAPS, 0x7f00_0001_1800), [system, this]);
        assert!(libraries(MAPS, 0x7f00_0001_2000).iter().all(|library| !library.is_this));
        assert_eq!(libraries("", 0), []);
    }
}
