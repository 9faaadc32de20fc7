//! The folder of small commands that stand before the system's in `PATH`
//! ([`applets`](crate::cmd::applets)): links to the binary `urxe`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::library::{LibraryError, make_links, name_of, points_to};
use super::places;
use crate::cmd::applets;

/// The folder in an installation, relative to the folder of the binary.
const INSTALLED: &str = "../libexec/urxe/bin";

/// Returns the folder. Creates it in the user's cache if this installation has none.
pub fn folder() -> Result<PathBuf, LibraryError> {
    let binary = env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    let beside = binary.parent().unwrap_or(Path::new("/")).join(INSTALLED);
    if let Ok(folder) = fs::canonicalize(beside)
        && applets::names().all(|name| points_to(&folder.join(name), &binary))
    {
        return Ok(folder);
    }
    let inside = Path::new("bin").join(name_of(&binary));
    let folder = places::lasting(&inside, places::is_plain)?;
    make_links(&folder, applets::names().map(|name| (name, binary.as_path())))
        .map_err(|error| LibraryError::Links { folder: folder.clone(), error })?;
    Ok(folder)
}

/// Returns whether a path is that of a small command.
pub fn is_one(path: &Path) -> bool {
    let own = env::current_exe().and_then(fs::canonicalize);
    let is_name = || path.file_name().is_some_and(|name| applets::names().any(|one| name == one));
    own.is_ok_and(|own| points_to(path, &own)) && is_name()
}
