//! Private folders for files that the loader and the started programs read.
//!
//! The loader takes code from such a folder, so no other user may write to it
//! ([`files::private_folder`]).
//!
//! | place | used |
//! |---|---|
//! | `XDG_CACHE_HOME`, else `HOME/.cache` | first, because it outlives the session |
//! | `/run/user/UID` | for files of one run, and where the cache does not serve |
//! | `/tmp/urxe-UID` | last |
//!
//! The cache does not serve without an existing `HOME`, on a file system that is full or read-only,
//! and if the loader would split its path.

use std::path::{Path, PathBuf};

use urxe_stack::files::{self, OutputFileError};
use urxe_stack::sys::environment;

use super::library::LibraryError;

/// Characters at which the loader splits `LD_LIBRARY_PATH` or `LD_PRELOAD`, or with which it begins
/// a name to be expanded (ld.so(8)).
const SPECIAL: [u8; 5] = *b" :;$\n";

/// Returns whether the loader takes a path in its variables as it is.
pub fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|byte| SPECIAL.contains(byte))
}

/// Returns the folder `inside` in the cache, or in one of the other places.
///
/// # Errors
/// Fails if another user can write to the folder in the cache, or if no place serves.
pub fn lasting(inside: &Path, is_usable: impl Fn(&Path) -> bool) -> Result<PathBuf, LibraryError> {
    let first = match cache() {
        Some(cache) if is_usable(&cache) => {
            match files::private_folder(&cache, &Path::new("urxe").join(inside)) {
                Ok(folder) => return Ok(folder),
                Err(error @ OutputFileError::System { .. }) => Some(error.into()),
                Err(error) => return Err(error.into()),
            }
        }
        _ => None,
    };
    of_session(inside).map_err(|error| first.unwrap_or(error))
}

/// Returns the folder `inside` in a place that the machine empties when it starts.
///
/// # Errors
/// Fails if another user can write to the folders, or the system refuses.
pub fn of_session(inside: &Path) -> Result<PathBuf, LibraryError> {
    let user = rustix::process::geteuid().as_raw();
    let session = PathBuf::from(format!("/run/user/{user}"));
    if session.is_dir()
        && let Ok(folder) = files::private_folder(&session, &Path::new("urxe").join(inside))
    {
        return Ok(folder);
    }
    let own = PathBuf::from(format!("urxe-{user}"));
    Ok(files::private_folder(Path::new("/tmp"), &own.join(inside))?)
}

/// Returns the user's cache folder.
fn cache() -> Option<PathBuf> {
    let absolute =
        |name| environment::value(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The home folder of a user without one, such as /nonexistent, is not created.
    let home = || absolute("HOME").filter(|home| home.is_dir()).map(|home| home.join(".cache"));
    absolute("XDG_CACHE_HOME").or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_the_loader_splits_or_expands_are_not_plain() {
        for (path, plain) in [
            ("/usr/lib/urxe", true),
            ("/home/jürgen/.cache/a-b_c+d,e", true),
            ("/home/my user/lib", false),
            ("/tmp/a:b", false),
            ("/tmp/a;b", false),
            ("/tmp/$LIB", false),
        ] {
            assert_eq!(is_plain(Path::new(path)), plain, "{path}");
        }
    }

    #[test]
    fn a_folder_of_the_session_is_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let inside = format!("test-{}", std::process::id());
        let folder = of_session(Path::new(&inside)).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(is_plain(&folder));
        std::fs::remove_dir(folder).unwrap();
    }
}
