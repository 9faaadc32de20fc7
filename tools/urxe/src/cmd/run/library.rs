//! Finds `liburxe.so`, and creates a folder with links under the library names of programs.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use urxe_stack::files::OutputFileError;
use urxe_stack::sys::environment;

use super::places;

/// The file name of the library.
const LIBRARY: &str = "liburxe.so";
/// The library that provides the view of sysfs; installed in the same folder.
const SYSFS: &str = "liburxe_sysfs.so";
/// The environment variable that names the library.
const VARIABLE: &str = "URXE_LIBRARY";
/// Places of the library, relative to the folder of the `urxe` binary: in a build, in an unpacked
/// archive, installed.
const PLACES: [&str; 3] = [".", "../lib", "../lib/urxe"];
/// The library names of programs. Some programs pass the names without a version to `dlopen`.
const NAMES: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];
/// The longest name of a folder that says which library it is for.
const FOLDER_NAME_MAX: usize = 128;

/// Errors while the library is located.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The library was not found.
    #[error(
        "{LIBRARY} is not in {}; build the library (cargo build --release -p urxe-abi), or set \
         {VARIABLE} to its path",
        list(.looked)
    )]
    Missing { looked: Vec<PathBuf> },
    /// The environment variable names a file that does not exist.
    #[error("cannot read {}, to which {VARIABLE} is set", given.display())]
    Named {
        given: PathBuf,
        #[source]
        error: io::Error,
    },
    /// Another user can write to the folder for the links.
    #[error(transparent)]
    Folder(#[from] OutputFileError),
    /// The links cannot be created.
    #[error("cannot make links in {}", folder.display())]
    Links {
        folder: PathBuf,
        #[source]
        error: io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The libraries of a run, at paths that the loader does not split.
pub struct Libraries {
    /// The folder with `libibverbs.so.1` and `librdmacm.so.1`.
    pub folder: PathBuf,
    /// The library that provides the view of sysfs, if it is there.
    pub sysfs: Option<PathBuf>,
}

impl Libraries {
    /// Finds the libraries, and creates a folder with links to them if necessary.
    ///
    /// # Errors
    /// Fails if the library is not there, or no place for the links serves.
    pub fn find() -> Result<Self, LibraryError> {
        let library = find()?;
        let sysfs = Some(library.with_file_name(SYSFS)).filter(|sysfs| sysfs.exists());
        // An installation contains the links.
        if let Some(folder) = library.parent()
            && places::is_plain(folder)
            && Self::has_links(folder, &library)
        {
            return Ok(Self { folder: folder.to_owned(), sysfs });
        }
        let inside = Path::new("lib").join(name_of(&library));
        let folder = places::lasting(&inside, places::is_plain)?;
        let links = NAMES.map(|name| (name, library.as_path()));
        let links = links.into_iter().chain(sysfs.as_deref().map(|sysfs| (SYSFS, sysfs)));
        make_links(&folder, links)
            .map_err(|error| LibraryError::Links { folder: folder.clone(), error })?;
        Ok(Self { sysfs: sysfs.map(|_| folder.join(SYSFS)), folder })
    }

    /// Returns the path of the library without symbolic links.
    ///
    /// # Errors
    /// Fails if the library is not there.
    pub fn file() -> Result<PathBuf, LibraryError> {
        find()
    }

    /// Returns whether a folder contains links to the library under all names of programs.
    pub fn has_links(folder: &Path, library: &Path) -> bool {
        NAMES.iter().all(|name| points_to(&folder.join(name), library))
    }

    /// Returns the library of verbs, under the first of its names.
    pub fn verbs(&self) -> PathBuf {
        self.folder.join(NAMES[0])
    }
}

fn find() -> Result<PathBuf, LibraryError> {
    if let Some(given) = environment::value(VARIABLE) {
        let given = PathBuf::from(given);
        return fs::canonicalize(&given).map_err(|error| LibraryError::Named { given, error });
    }
    let binary = env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let looked: Vec<PathBuf> = PLACES.iter().map(|place| folder.join(place)).collect();
    let found = looked.iter().find_map(|place| fs::canonicalize(place.join(LIBRARY)).ok());
    found.ok_or(LibraryError::Missing { looked })
}

/// Returns a folder name for the library's path, so that different builds do not share one.
pub(super) fn name_of(library: &Path) -> String {
    let path = library.to_string_lossy();
    let name = path.trim_start_matches('/').replace('/', "-");
    if places::is_plain(Path::new(&name)) && name.len() <= FOLDER_NAME_MAX {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

pub(super) fn points_to(link: &Path, library: &Path) -> bool {
    fs::canonicalize(link).is_ok_and(|target| target == library)
}

/// Makes links with these names and targets.
pub(super) fn make_links<'a>(
    folder: &Path,
    links: impl Iterator<Item = (&'a str, &'a Path)>,
) -> io::Result<()> {
    for (name, target) in links {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            continue;
        }
        // The rename is atomic, because other programs may be starting.
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        symlink(target, &fresh)?;
        fs::rename(&fresh, &link)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_library_has_a_plain_name_of_its_own() {
        assert_eq!(name_of(Path::new("/opt/urxe/liburxe.so")), "opt-urxe-liburxe.so");
        let names = ["/my lib/liburxe.so", "/my:lib/liburxe.so", "/my;lib/liburxe.so"]
            .map(|path| name_of(Path::new(path)));
        for (nr, name) in names.iter().enumerate() {
            assert!(places::is_plain(Path::new(name)) && !names[..nr].contains(name), "{name}");
        }
        assert!(name_of(Path::new(&"/long".repeat(60))).len() <= FOLDER_NAME_MAX);
    }
}
