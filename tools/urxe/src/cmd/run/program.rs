//! Finds a program, and detects reasons why it would not start or not use the library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use urxe_stack::sys::environment;

use super::commands;
use super::elf::{self, Image, Kind};
use super::formats;
use super::launcher::{self, Verdict};

/// Mode bits of a file: run with the rights of the file's owner or group.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// The extended attribute with a file's capabilities.
const CAPABILITIES: &str = "security.capability";

/// The kernel reads so many bytes of a script's first line (`BINPRM_BUF_SIZE`).
const FIRST_LINE_MAX: u64 = 256;
/// Interpreters that are scripts themselves, as the kernel limits them (`fs/exec.c`).
const DEPTH_MAX: usize = 5;

/// Errors of programs that cannot use the library.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No program has this name.
    #[error("there is no program {given} in PATH{}", hint(.given))]
    NotFound { given: String },
    /// No file has this path.
    #[error("there is no program {}; check the path, or build the program", path.display())]
    Missing { path: PathBuf },
    /// The file is a folder.
    #[error("{} is a folder; name a program in it", path.display())]
    Folder { path: PathBuf },
    /// The file is not executable.
    #[error(
        "{0} is not executable; make it so (chmod +x {0}), or name its interpreter, such as: \
         urxe run -- sh {0}",
        path.display()
    )]
    NotExecutable { path: PathBuf },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A script that does not name its interpreter.
    #[error(
        "{0} has no first line with #!, so the kernel does not start it; name its interpreter, \
         such as: urxe run -- sh {0}",
        path.display()
    )]
    NoInterpreter { path: PathBuf },
    /// The first line names a program that does not exist.
    #[error(
        "the first line of {0} names the interpreter {interpreter}, which does not exist; name \
         another: urxe run -- INTERPRETER {0}",
        path.display()
    )]
    MissingInterpreter { path: PathBuf, interpreter: String },
    /// Interpreters that are scripts of each other.
    #[error("the interpreter of {} is a script of a script; name a program", path.display())]
    DeepScript { path: PathBuf },
    /// A file of a format that is no program.
    #[error("{} is not a program of Linux; build it, or name its interpreter", path.display())]
    NoProgram { path: PathBuf },
    /// The program is for another machine.
    #[error(
        "{} is a program for {machine}, and this urxe is for {}; build the program for this \
         machine, or use urxe on the other",
        path.display(), env::consts::ARCH
    )]
    Machine { path: PathBuf, machine: String },
    /// The program is for another word size.
    #[error(
        "{} is a {bits}-bit program, and the library is for 64-bit programs; build the program \
         for 64 bits",
        path.display()
    )]
    Bits { path: PathBuf, bits: u8 },
    /// The loader of the program does not exist.
    #[error(
        "{} needs the loader {loader}, which this machine does not have; build the program here, \
         or install its C library",
        path.display()
    )]
    NoLoader { path: PathBuf, loader: String },
    /// The program has another C library.
    #[error(
        "{} is linked against the C library musl, and the library needs glibc; build the program \
         for glibc",
        path.display()
    )]
    Musl { path: PathBuf },
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
    /// The program needs a library of another name.
    #[error(
        "{} needs {needed}, but the library replaces only libibverbs.so.1 and librdmacm.so.1",
        path.display()
    )]
    OtherName { path: PathBuf, needed: String },
    /// The program defines the folder of its libraries.
    #[error(
        "{} sets the folder of its libraries (DT_RPATH {rpath}), which contains {name} and has \
         priority; omit --no-preload",
        path.display()
    )]
    Rpath { path: PathBuf, rpath: String, name: String },
    /// The program starts another one without the variables.
    #[error("{sentence}")]
    Launcher { sentence: String },
}

/// Returns what a user may have meant by a name that is no program.
fn hint(given: &str) -> String {
    if given.contains(char::is_whitespace) {
        return format!("; for a command line, use: urxe run -- sh -c '{given}'");
    }
    if Path::new(given).is_file() {
        return format!("; for the file in this folder, use: urxe run -- ./{given}");
    }
    "; install it, or give its path".to_owned()
}

/// A program that can be started.
#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    /// Sentences about processes that urxe does not serve.
    pub notes: Vec<String>,
    /// Whether the program needs libibverbs or librdmacm.
    pub needs_verbs: bool,
}

/// Finds a program and checks that it will start and use the library. With `is_preloaded`, the
/// library has priority over the program's own. `path` replaces `PATH`.
pub fn check(
    name: &OsStr,
    arguments: &[OsString],
    is_preloaded: bool,
    path: Option<&OsStr>,
) -> Result<Program, ProgramError> {
    let mut program = Program { path: find(name, path)?, notes: Vec::new(), needs_verbs: false };
    if commands::is_one(&program.path) {
        return Ok(program);
    }
    match launcher::check(&program.path, arguments) {
        Verdict::Passes => {}
        Verdict::Note(sentence) => program.notes.push(sentence),
        Verdict::Refused(sentence) => return Err(ProgramError::Launcher { sentence }),
    }
    let mut path = program.path.clone();
    for _ in 0..DEPTH_MAX {
        match check_file(&path, is_preloaded, &mut program)? {
            Some(interpreter) => path = interpreter,
            None => return Ok(program),
        }
    }
    Err(ProgramError::DeepScript { path: program.path })
}

/// Finds a program as a shell does: a name with a slash is a path, and `path` is searched for other
/// names, or else the present `PATH`.
fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    in_path(name, path)
        .ok_or_else(|| ProgramError::NotFound { given: name.to_string_lossy().into() })
}

fn in_path(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let path = path.map(OsStr::to_owned).or_else(|| environment::value("PATH"));
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| fs::metadata(path).is_ok_and(|file| file.is_file() && is_executable(&file)))
}

fn is_executable(file: &Metadata) -> bool {
    file.permissions().mode() & 0o111 != 0
}

/// Checks a file. Returns the interpreter of a script, which is a program to be checked as well.
fn check_file(
    path: &Path,
    is_preloaded: bool,
    program: &mut Program,
) -> Result<Option<PathBuf>, ProgramError> {
    let read = |error| ProgramError::Read { path: path.to_owned(), error };
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(ProgramError::Folder { path: path.to_owned() });
        }
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ProgramError::Missing { path: path.to_owned() });
        }
        Err(error) => return Err(read(error)),
    };
    if !is_executable(&metadata) {
        return Err(ProgramError::NotExecutable { path: path.to_owned() });
    }
    let file = match File::open(path) {
        Ok(file) => file,
        // The kernel starts a program that its user may not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(read(error)),
    };
    let owned = path.to_owned();
    match elf::read(&file).map_err(read)? {
        Kind::Program(image) => {
            check_rights(path, &metadata)?;
            check_image(path, &image, is_preloaded, program)?;
            Ok(None)
        }
        _ if formats::has_handler(&file, path) => Ok(None),
        Kind::Bits(bits) => Err(ProgramError::Bits { path: owned, bits }),
        Kind::Machine(machine) => Err(ProgramError::Machine { path: owned, machine }),
        Kind::NoProgram => Err(ProgramError::NoProgram { path: owned }),
        Kind::Other => check_script(path, &file).map(Some),
    }
}

/// Returns the interpreter of a script.
fn check_script(path: &Path, file: &File) -> Result<PathBuf, ProgramError> {
    let mut start = Vec::new();
    let owned = path.to_owned();
    let read = file.take(FIRST_LINE_MAX).read_to_end(&mut start);
    read.map_err(|error| ProgramError::Read { path: owned.clone(), error })?;
    let Some(line) = start.strip_prefix(b"#!") else {
        // A text, as far as can be seen.
        return Err(match start.contains(&0) {
            true => ProgramError::NoProgram { path: owned },
            false => ProgramError::NoInterpreter { path: owned },
        });
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next().unwrap_or_default()));
    let missing = |name: &Path| ProgramError::MissingInterpreter {
        path: owned.clone(),
        interpreter: name.display().to_string(),
    };
    if !interpreter.is_file() {
        return Err(missing(interpreter));
    }
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return Ok(interpreter.to_owned());
    }
    let words: Vec<OsString> = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    if let Verdict::Refused(sentence) = launcher::check(interpreter, &words) {
        return Err(ProgramError::Launcher { sentence });
    }
    // env(1) finds the interpreter in PATH. Options and assignments before it are rare.
    let is_option =
        |word: &&OsString| word.as_bytes().starts_with(b"-") || word.as_bytes().contains(&b'=');
    match words.iter().find(|word| !is_option(word)) {
        Some(name) if !name.as_bytes().contains(&b'/') => {
            in_path(name, None).ok_or_else(|| missing(Path::new(name)))
        }
        _ => Ok(interpreter.to_owned()),
    }
}

/// Checks that the program runs with the rights of its caller.
fn check_rights(path: &Path, file: &Metadata) -> Result<(), ProgramError> {
    let path = path.to_owned();
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
    Ok(())
}

/// Checks that the loader of the program will use the library.
fn check_image(
    path: &Path,
    image: &Image,
    is_preloaded: bool,
    program: &mut Program,
) -> Result<(), ProgramError> {
    let owned = path.to_owned();
    let Some(loader) = &image.interpreter else {
        if !program.notes.is_empty() {
            return Ok(());
        }
        program.notes.push(format!(
            "{} is statically linked, so urxe serves only the dynamically linked programs that it \
             starts; if it uses RDMA itself, link it dynamically",
            path.display()
        ));
        return Ok(());
    };
    if !Path::new(loader).exists() {
        return Err(ProgramError::NoLoader { path: owned, loader: loader.clone() });
    }
    if loader.contains("/ld-musl-") {
        return Err(ProgramError::Musl { path: owned });
    }
    let is_verbs = |name: &&String| name.starts_with("libibverbs") || name.starts_with("librdmacm");
    program.needs_verbs |= image.needed.iter().any(|name| is_verbs(&name));
    let ours = |name: &str| name.starts_with("libibverbs.so") || name.starts_with("librdmacm.so");
    let replaced = |name: &str| {
        ["libibverbs.so", "librdmacm.so"].iter().any(|own| {
            name.strip_prefix(own).is_some_and(|rest| rest == ".1" || rest.starts_with(".1."))
        })
    };
    if let Some(needed) = image.needed.iter().find(|name| ours(name) && !replaced(name)) {
        return Err(ProgramError::OtherName { path: owned, needed: needed.clone() });
    }
    if is_preloaded { Ok(()) } else { check_rpath(owned, image) }
}

/// Checks `DT_RPATH`, which has priority over the environment, unlike `DT_RUNPATH`.
fn check_rpath(path: PathBuf, image: &Image) -> Result<(), ProgramError> {
    let Some(rpath) = &image.rpath else { return Ok(()) };
    let origin = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    for folder in rpath.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).split(':') {
        let name = image.needed.iter().find(|name| {
            (name.starts_with("libibverbs") || name.starts_with("librdmacm"))
                && Path::new(folder).join(name).exists()
        });
        if let Some(name) = name {
            return Err(ProgramError::Rpath { path, rpath: rpath.clone(), name: name.clone() });
        }
    }
    Ok(())
}
