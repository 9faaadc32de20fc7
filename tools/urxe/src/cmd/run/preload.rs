//! The values of the loader's variables.
//!
//! The libraries of urxe come last in `LD_PRELOAD`. A library that the user preloads, such as an
//! allocator or the runtime of a sanitizer, so stays first. Each library is named by its path,
//! because the loader reports an error for names that it does not find.
//!
//! `liburxe.so` is preloaded as well as found by `LD_LIBRARY_PATH`, because a program may bring a
//! libibverbs of another name or path: wheels contain `libibverbs-1de1263b.so.1.14.48.0`, and
//! `DT_RPATH` has priority over the variable. The loader searches preloaded libraries first, so the
//! symbols of the other library are not used.
//!
//! AddressSanitizer ends a program if its runtime is not the first library, unless
//! `verify_asan_link_order=0` is in `ASAN_OPTIONS`. Its functions work in any order, because the
//! preloaded libraries call the next library's functions by `RTLD_NEXT`. Children inherit the
//! variable. The other remedy, a preloaded runtime, would sanitize all children.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The option of AddressSanitizer that permits other libraries before its runtime.
const LINK_ORDER: &[u8] = b"verify_asan_link_order";

/// Returns the value of `LD_PRELOAD`: the earlier libraries, then the first `chosen` of ours. Ours
/// are removed from the earlier ones.
pub fn preloads(ours: &[PathBuf], chosen: usize, earlier: Option<OsString>) -> OsString {
    let earlier = earlier.unwrap_or_default().into_vec();
    let ours: Vec<&[u8]> = ours.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let kept = earlier.split(|byte| b" :".contains(byte));
    let kept = kept.filter(|library| !library.is_empty() && !ours.contains(library));
    OsString::from_vec(kept.chain(ours[..chosen].iter().copied()).collect::<Vec<_>>().join(&b':'))
}

/// Returns the value of `LD_LIBRARY_PATH`: this folder, then the earlier ones.
pub fn library_path(ours: &Path, earlier: Option<OsString>) -> OsString {
    let mut value = ours.as_os_str().to_owned();
    let Some(earlier) = earlier else { return value };
    for folder in earlier.as_bytes().split(|byte| *byte == b':') {
        if folder != ours.as_os_str().as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(folder));
        }
    }
    value
}

/// Returns the value of `ASAN_OPTIONS`, or `None` if the user already chose the option.
pub fn sanitizer_options(earlier: Option<OsString>) -> Option<OsString> {
    let earlier = earlier.unwrap_or_default();
    if earlier.as_bytes().windows(LINK_ORDER.len()).any(|part| part == LINK_ORDER) {
        return None;
    }
    let mut value = OsString::from_vec([LINK_ORDER, b"=0"].concat());
    if !earlier.is_empty() {
        value.push(":");
        value.push(earlier);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<OsString> {
        Some(text.into())
    }

    #[test]
    fn earlier_libraries_come_first_and_ours_once() {
        let ours = ["/u/libibverbs.so.1", "/u/liburxe_sysfs.so"].map(PathBuf::from);
        let both = "/u/libibverbs.so.1:/u/liburxe_sysfs.so";
        assert_eq!(preloads(&ours, 2, None), both);
        let user = format!("libjemalloc.so.2:/x/libasan.so.8:{both}");
        assert_eq!(preloads(&ours, 2, some("libjemalloc.so.2 /x/libasan.so.8")), *user);
        assert_eq!(preloads(&ours, 2, some(&user)), *user);
        assert_eq!(preloads(&ours, 2, some(&format!("{both}::a.so"))), *format!("a.so:{both}"));
        // An inner run without the view, and one without preloads, undo the outer run.
        assert_eq!(preloads(&ours, 1, some(both)), "/u/libibverbs.so.1");
        assert_eq!(preloads(&ours, 0, some(&format!("a.so:{both}"))), "a.so");
    }

    #[test]
    fn our_folder_comes_first_and_once() {
        let ours = Path::new("/u");
        assert_eq!(library_path(ours, None), "/u");
        assert_eq!(library_path(ours, some("/opt/a:/opt/b")), "/u:/opt/a:/opt/b");
        assert_eq!(library_path(ours, some("/opt/a:/u:")), "/u:/opt/a:");
    }

    #[test]
    fn the_users_options_are_kept_and_win() {
        assert_eq!(sanitizer_options(None), some("verify_asan_link_order=0"));
        let both = some("verify_asan_link_order=0:detect_leaks=0");
        assert_eq!(sanitizer_options(some("detect_leaks=0")), both);
        assert_eq!(sanitizer_options(both), None);
        assert_eq!(sanitizer_options(some("verify_asan_link_order=1")), None);
    }
}
