//! `urxe install --system-wide`: all programs of the machine use urxe's libibverbs and librdmacm.
//!
//! A file in `/etc/ld.so.conf.d` names the folder of the libraries. The loader's cache then has
//! them before the system's, whose files do not change. `/etc/ld.so.preload` is not used, because a
//! mistake there keeps every program from starting.
//!
//! All users, root among them, load code from the folder. So the command refuses a folder that
//! another user than root can change, and also a machine with an RDMA device of the kernel, which
//! programs would no longer see.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cmd::run::library::{Libraries, LibraryError};
use crate::cmd::{CmdError, Outcome};
use crate::output;

/// The folder of files that name the loader's folders.
const FOLDER: &str = "etc/ld.so.conf.d";
/// The file. The loader takes the folders in the order of the names of such files.
const FILE: &str = "etc/ld.so.conf.d/00-urxe.conf";
/// The file that includes the others.
const MAIN: &str = "etc/ld.so.conf";
/// The devices of the kernel.
const DEVICES: &str = "sys/class/infiniband";
/// The library by which the result is checked.
const CHECKED: &str = "libibverbs.so.1";
/// Mode bits of a file.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit, a user may only replace files of the same user.
const STICKY: u32 = 0o1000;

/// Errors of a system-wide installation.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Only root may change the files.
    #[error(
        "only root can change {}; use: sudo {} {command} --system-wide",
        Path::new("/").join(FOLDER).display(), own.display()
    )]
    NotRoot { own: PathBuf, command: &'static str },
    /// The kernel has devices.
    #[error(
        "this machine has the RDMA device {}, which programs would no longer see; use urxe run for \
         single programs, or --force",
        names.join(", ")
    )]
    KernelDevice { names: Vec<String> },
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The libraries are not in an installation.
    #[error(
        "{} is not an installation; use cargo xtask install as root, or the Debian package",
        folder.display()
    )]
    NotInstalled { folder: PathBuf },
    /// Another user could change the libraries.
    #[error(
        "programs of all users would load libraries from {}, which others than root can change; \
         install urxe into a folder of root, such as /usr/local",
        path.display()
    )]
    Writable { path: PathBuf },
    /// The loader's configuration does not read the folder.
    #[error(
        "{} does not include {FOLDER}; add the line: include /{FOLDER}/*.conf",
        file.display()
    )]
    NotIncluded { file: PathBuf },
    /// The loader would take another library.
    #[error(
        "the loader takes {found} in place of {}; remove the file in {} that names its folder",
        wanted.display(), Path::new("/").join(FOLDER).display()
    )]
    OtherFirst { wanted: PathBuf, found: String },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The loader's cache was not made.
    #[error("ldconfig failed: {reason}")]
    Ldconfig { reason: String },
}

/// Arguments of `urxe install`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command writes /etc/ld.so.conf.d/00-urxe.conf and runs ldconfig. To undo:
  urxe uninstall --system-wide

Programs that bring their own libibverbs (wheels) and programs that read /sys/class/infiniband \
need urxe run.")]
pub struct Install {
    /// All programs of this machine use urxe; as root
    #[arg(long)]
    system_wide: bool,
    /// Also on a machine with an RDMA device of the kernel
    #[arg(long)]
    force: bool,
    /// The root folder of another system, such as an image
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

/// Arguments of `urxe uninstall`.
#[derive(Debug, clap::Args)]
pub struct Uninstall {
    /// Programs use the system's libibverbs again; as root
    #[arg(long)]
    system_wide: bool,
    /// The root folder of another system, such as an image
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

impl Install {
    /// Installs system-wide. If a step fails, the former state remains.
    pub fn run(self) -> Result<Outcome, CmdError> {
        if !self.system_wide {
            return Err(CmdError::Usage(
                "urxe install needs --system-wide; for one program, use: urxe run -- PROGRAM",
            ));
        }
        need_root("install")?;
        let root = &self.root;
        if !self.force {
            no_kernel_device(root)?;
        }
        let folder = installed(root)?;
        let main = root.join(MAIN);
        let includes = read(&main)?.contains("ld.so.conf.d");
        if !includes {
            return Err(InstallError::NotIncluded { file: main }.into());
        }
        let file = root.join(FILE);
        let failed = |error| InstallError::File { path: file.clone(), error };
        fs::create_dir_all(root.join(FOLDER)).map_err(failed)?;
        fs::write(&file, text(&folder)).map_err(failed)?;
        if let Err(error) = ldconfig(root).and_then(|()| check(root, &folder)) {
            // The first error is reported.
            let _ = remove(root);
            return Err(error.into());
        }
        output::line(&format!(
            "installed: programs of this system use {}; undo: urxe uninstall --system-wide",
            folder.display()
        ));
        Ok(Outcome::Done)
    }
}

impl Uninstall {
    /// Undoes [`Install`].
    pub fn run(self) -> Result<Outcome, CmdError> {
        if !self.system_wide {
            return Err(CmdError::Usage("urxe uninstall needs --system-wide"));
        }
        need_root("uninstall")?;
        let text = match remove(&self.root)? {
            true => "uninstalled: programs of this system use its own libibverbs",
            false => "nothing to do: urxe is not installed system-wide",
        };
        output::line(text);
        Ok(Outcome::Done)
    }
}

/// Returns the folder of a system-wide installation, if there is one.
pub fn system_wide(root: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(root.join(FILE)).ok()?;
    text.lines().find(|line| line.starts_with('/')).map(PathBuf::from)
}

fn text(folder: &Path) -> Vec<u8> {
    let head = b"# Made by urxe install --system-wide; undo: urxe uninstall --system-wide\n";
    [head, folder.as_os_str().as_bytes(), b"\n"].concat()
}

fn need_root(command: &'static str) -> Result<(), InstallError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = std::env::current_exe().unwrap_or_else(|_| "urxe".into());
    Err(InstallError::NotRoot { own, command })
}

fn no_kernel_device(root: &Path) -> Result<(), InstallError> {
    let Ok(entries) = fs::read_dir(root.join(DEVICES)) else { return Ok(()) };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    if names.is_empty() { Ok(()) } else { Err(InstallError::KernelDevice { names }) }
}

/// Returns the folder of the installed libraries, as the system at `root` names it.
fn installed(root: &Path) -> Result<PathBuf, InstallError> {
    let library = Libraries::file()?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    if !Libraries::has_links(folder, &library) {
        return Err(InstallError::NotInstalled { folder: folder.to_owned() });
    }
    let only_root = |path: &Path| {
        let file = fs::metadata(path)
            .map_err(|error| InstallError::File { path: path.to_owned(), error })?;
        let has = |bit| file.mode() & bit != 0;
        let is_open = has(OTHERS_WRITE) || has(GROUP_WRITES) && file.gid() != 0;
        let is_safe = file.uid() == 0 && (!is_open || has(STICKY));
        is_safe.then_some(()).ok_or_else(|| InstallError::Writable { path: path.to_owned() })
    };
    library.ancestors().try_for_each(only_root)?;
    let root = fs::canonicalize(root)
        .map_err(|error| InstallError::File { path: root.to_owned(), error })?;
    let inside = folder.strip_prefix(&root).unwrap_or(folder);
    Ok(Path::new("/").join(inside))
}

/// Removes the file and renews the cache. Returns whether there was a file.
fn remove(root: &Path) -> Result<bool, InstallError> {
    let file = root.join(FILE);
    match fs::remove_file(&file) {
        Ok(()) => ldconfig(root).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(InstallError::File { path: file, error }),
    }
}

fn read(file: &Path) -> Result<String, InstallError> {
    fs::read_to_string(file).map_err(|error| InstallError::File { path: file.to_owned(), error })
}

/// Returns a command of ldconfig for the system at `root`.
fn command(root: &Path) -> Command {
    let places = ["/usr/sbin/ldconfig", "/sbin/ldconfig"];
    let place = places.into_iter().find(|place| Path::new(place).exists());
    let mut command = Command::new(place.unwrap_or("ldconfig"));
    if root != Path::new("/") {
        command.arg("-r").arg(root);
    }
    command.stdin(Stdio::null());
    command
}

fn output_of(command: &mut Command) -> Result<Vec<u8>, InstallError> {
    let output =
        command.output().map_err(|error| InstallError::Ldconfig { reason: error.to_string() })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(InstallError::Ldconfig { reason })
}

fn ldconfig(root: &Path) -> Result<(), InstallError> {
    output_of(&mut command(root)).map(drop)
}

/// Checks that the loader takes the library from this folder.
fn check(root: &Path, folder: &Path) -> Result<(), InstallError> {
    let listed = output_of(command(root).arg("-p"))?;
    let line = listed.split(|byte| *byte == b'\n').find(|line| {
        let name = line.trim_ascii_start().strip_prefix(CHECKED.as_bytes());
        name.is_some_and(|rest| rest.starts_with(b" "))
    });
    let found = line.and_then(|line| {
        let arrow = line.windows(4).position(|part| part == b" => ")?;
        Some(OsStr::from_bytes(&line[arrow + 4..]).to_owned())
    });
    let wanted = folder.join(CHECKED);
    match found {
        Some(found) if found == *wanted.as_os_str() => Ok(()),
        found => {
            let found = found.map_or("none".to_owned(), |path| path.to_string_lossy().into_owned());
            Err(InstallError::OtherFirst { wanted, found })
        }
    }
}
