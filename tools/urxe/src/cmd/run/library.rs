//! Finds `liburxe.so`, and creates a folder with links under the library names of programs.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use urxe_stack::files::{self, OutputFileError};
use urxe_stack::sys::environment;

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
    /// The sysfs library is not in the folder of the library.
    #[error(
        "there is no {SYSFS} beside {}; build the library (cargo build --release -p urxe-sysfs)",
        library.display()
    )]
    NoSysfs { library: PathBuf },
    /// There is no cache folder.
    #[error("there is no cache folder for links to {LIBRARY}; set HOME or XDG_CACHE_HOME")]
    NoHome,
    /// Another user can write to the folder for the links.
    #[error(transparent)]
    Folder(#[from] OutputFileError),
    /// The links cannot be created.
    #[error("cannot make links to {LIBRARY} in {}", folder.display())]
    Links {
        folder: PathBuf,
        #[source]
        error: io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns a folder with links to the library; creates the links if necessary.
pub fn folder_of_links() -> Result<PathBuf, LibraryError> {
    let library = find()?;
    // An installation contains the links.
    if let Some(folder) = library.parent()
        && NAMES.iter().all(|name| points_to(&folder.join(name), &library))
    {
        return Ok(folder.to_owned());
    }
    let inside = Path::new("urxe/lib").join(name_of(&library));
    let folder = files::private_folder(&cache()?, &inside)?;
    make_links(&folder, &library)
        .map_err(|error| LibraryError::Links { folder: folder.clone(), error })?;
    Ok(folder)
}

/// Returns the library that programs preload to see the devices in sysfs.
pub fn sysfs() -> Result<PathBuf, LibraryError> {
    let library = find()?;
    let sysfs = library.with_file_name(SYSFS);
    if sysfs.exists() { Ok(sysfs) } else { Err(LibraryError::NoSysfs { library }) }
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

/// Returns the user's cache folder. The loader takes code from folders there, so
/// [`files::private_folder`] makes them.
pub fn cache() -> Result<PathBuf, LibraryError> {
    let absolute =
        |name| environment::value(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    absolute("XDG_CACHE_HOME").or_else(home).ok_or(LibraryError::NoHome)
}

/// Returns a folder name for the library's path, so that different builds do not share one.
fn name_of(library: &Path) -> String {
    library.to_string_lossy().trim_start_matches('/').replace('/', "-")
}

fn points_to(link: &Path, library: &Path) -> bool {
    fs::canonicalize(link).is_ok_and(|target| target == library)
}

fn make_links(folder: &Path, library: &Path) -> io::Result<()> {
    for name in NAMES {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        // The rename is atomic, because other programs may be starting.
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        symlink(library, &fresh)?;
        fs::rename(&fresh, &link)?;
    }
    Ok(())
}
