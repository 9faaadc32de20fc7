//! Finds a program, and detects reasons why the loader would not use the library.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use goblin::elf::Elf;
use goblin::elf::dynamic::DT_RPATH;
use urxe_stack::sys::environment;

/// Mode bits of a file: run with the rights of the file's owner or group.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// The extended attribute with a file's capabilities.
const CAPABILITIES: &str = "security.capability";

/// Errors of programs that cannot use the library.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No program has this name.
    #[error("there is no program {given} in PATH")]
    NotFound { given: String },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The program runs with rights of another user, so the loader ignores the library path.
    #[error(
        "{} runs as another user or group (setuid, setgid), so the loader uses only the system's \
         libraries; run a copy of the program (cp clears these bits)",
        path.display()
    )]
    Setuid { path: PathBuf },
    /// The file has capabilities, which have the same effect.
    #[error(
        "{} has file capabilities (getcap), so the loader uses only the system's libraries; \
         run a copy of the program (cp omits the capabilities)",
        path.display()
    )]
    Capabilities { path: PathBuf },
    /// The program contains its libraries.
    #[error(
        "{} is statically linked, so libibverbs cannot be replaced; link the program dynamically",
        path.display()
    )]
    Static { path: PathBuf },
    /// The program is for another word size.
    #[error("{} is a {bits}-bit program; the library needs a 64-bit program", path.display())]
    Bits { path: PathBuf, bits: u8 },
    /// The program needs a library of another name.
    #[error(
        "{} needs {needed}, but the library replaces only libibverbs.so.1 and librdmacm.so.1",
        path.display()
    )]
    OtherName { path: PathBuf, needed: String },
    /// The program defines the folder of its libraries.
    #[error(
        "{} sets the folder of its libraries (DT_RPATH {rpath}), which contains {name} and has \
         priority; remove the entry from a copy of the program",
        path.display()
    )]
    Rpath { path: PathBuf, rpath: String, name: String },
}

/// Finds a program as a shell does: a name with a slash is a path, and `PATH` is searched for other
/// names.
pub fn find(name: &OsStr) -> Result<PathBuf, ProgramError> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = environment::value("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found =
        env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path));
    found.ok_or_else(|| ProgramError::NotFound { given: name.to_string_lossy().into_owned() })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Checks that the loader will use the library for the program. Scripts pass, because their
/// interpreter is a separate program.
pub fn check(path: &Path) -> Result<(), ProgramError> {
    let read = |error| ProgramError::Read { path: path.to_owned(), error };
    let file = fs::metadata(path).map_err(read)?;
    let bytes = fs::read(path).map_err(read)?;
    let Ok(elf) = Elf::parse(&bytes) else { return Ok(()) };
    let path = path.to_owned();
    if !elf.is_64 {
        return Err(ProgramError::Bits { path, bits: 32 });
    }
    let changes_user =
        file.mode() & SETUID != 0 && file.uid() != rustix::process::getuid().as_raw();
    let changes_group =
        file.mode() & SETGID != 0 && file.gid() != rustix::process::getgid().as_raw();
    if changes_user || changes_group {
        return Err(ProgramError::Setuid { path });
    }
    // For root, file capabilities grant no additional rights.
    let user = rustix::process::getuid();
    if !user.is_root() && rustix::fs::getxattr(&path, CAPABILITIES, &mut [0_u8; 32]).is_ok() {
        return Err(ProgramError::Capabilities { path });
    }
    if elf.interpreter.is_none() {
        return Err(ProgramError::Static { path });
    }
    let ours = |name: &str| name.starts_with("libibverbs.so") || name.starts_with("librdmacm.so");
    let replaced = |name: &str| name == "libibverbs.so.1" || name == "librdmacm.so.1";
    if let Some(needed) = elf.libraries.iter().find(|name| ours(name) && !replaced(name)) {
        return Err(ProgramError::OtherName { path, needed: (*needed).to_owned() });
    }
    check_rpath(path, &elf)
}

/// Checks `DT_RPATH`, which has priority over the environment, unlike `DT_RUNPATH`.
fn check_rpath(path: PathBuf, elf: &Elf<'_>) -> Result<(), ProgramError> {
    let Some(dynamic) = &elf.dynamic else { return Ok(()) };
    if !elf.runpaths.is_empty() || !dynamic.dyns.iter().any(|entry| entry.d_tag == DT_RPATH) {
        return Ok(());
    }
    let origin = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    for rpath in &elf.rpaths {
        for folder in rpath.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).split(':') {
            let name = elf.libraries.iter().find(|name| {
                (name.starts_with("libibverbs") || name.starts_with("librdmacm"))
                    && Path::new(folder).join(name).exists()
            });
            if let Some(name) = name {
                let (rpath, name) = ((*rpath).to_owned(), (*name).to_owned());
                return Err(ProgramError::Rpath { path, rpath, name });
            }
        }
    }
    Ok(())
}
