//! `urxe run` and `urxe env`: run programs that were linked against libibverbs over urxe.
//!
//! The loader finds `libibverbs.so.1` and `librdmacm.so.1` through `LD_LIBRARY_PATH`, in a folder
//! of links to `liburxe.so`. `LD_PRELOAD` has the library as well, for programs that bring another
//! libibverbs. Environment variables carry all other settings, so child processes inherit the
//! settings. The process of `urxe run` becomes the program, so signals, exit status and job control
//! are those of the program.
//!
//! | file | subject |
//! |---|---|
//! | `elf` | the parts of a program that decide which libraries the loader takes |
//! | `formats` | formats of programs that the administrator added |
//! | `launcher` | programs that start others without the variables |
//! | `commands` | the folder of small commands such as `rdma`, before the others in `PATH` |
//! | `library` | the place of `liburxe.so`, and the folder of links |
//! | `pci` | the PCI folder of devices with a profile |
//! | `places` | private folders at paths that the loader does not split |
//! | `preload` | the values of the loader's variables |
//! | `program` | programs for which the loader would not use the library |
//! | `report` | the note about a run that opened no device |
//! | `sysfs` | the view of /sys/class/infiniband |

mod commands;
mod elf;
mod formats;
mod launcher;
pub mod library;
mod pci;
mod places;
mod preload;
mod program;
mod report;
mod sysfs;

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use urxe_stack::link::{ENVIRONMENT, LinkSpec};
use urxe_stack::port::faults::FaultSpec;
use urxe_stack::sys::environment;

use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::selection::{DeviceArgs, SelectionError};

use library::Libraries;
use program::Program;

pub use library::LibraryError;
pub use program::ProgramError;
pub use sysfs::{CAP_MASK, SysfsError, rate};

/// The environment variable that names the capture file.
const CAPTURE: &str = "URXE_CAPTURE";
/// The environment variable for captures without payload.
const CAPTURE_HEADERS: &str = "URXE_CAPTURE_HEADERS";
/// The environment variable with the faults of received packets.
const FAULTS: &str = "URXE_FAULTS";
/// Variables of the loader.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";
/// The variable with the options of AddressSanitizer.
const SANITIZER: &str = "ASAN_OPTIONS";
/// Where programs are searched, and its default.
const PATH: &str = "PATH";
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The environment variable with the folder that replaces /sys.
const SYSFS: &str = "URXE_SYSFS";

/// Errors before a program starts.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The program cannot use the library.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The options select no device.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The system call failed.
    #[error("cannot run {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        error: std::io::Error,
    },
}

/// The options of both subcommands.
#[derive(Debug, clap::Args)]
struct EnvironmentArgs {
    #[command(flatten)]
    devices: DeviceArgs,
    /// Record all packets in a pcapng file; %p in the name stands for the process id
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Record only the headers of packets, without payload
    #[arg(long, requires = "capture")]
    capture_headers: bool,
    /// Faults of received packets, separated by commas: loss=1%, burst=4, duplicate=1%, reorder=1%,
    /// late=200us, corrupt=1%, rebind=0.1%, delay=50us, jitter=20us, rate=100M, seed=7; without a
    /// seed, one is chosen and printed
    #[arg(long, value_name = "FAULTS", visible_alias = "faults")]
    fault: Option<FaultSpec>,
    /// Do not show the devices in /sys/class/infiniband to programs that read this folder (UCX,
    /// perftest's counters, ls), and do not report a run that opened no device
    #[arg(long)]
    no_sysfs: bool,
    /// The view is on by default
    #[arg(long, hide = true, conflicts_with = "no_sysfs")]
    sysfs: bool,
    /// Preload no library: programs with a libibverbs of another name or path use that one; implies
    /// --no-sysfs
    #[arg(long)]
    no_preload: bool,
}

/// Brings the view of sysfs of this run up to date, after a change of the list of devices.
pub fn refresh_sysfs() -> Result<(), SysfsError> {
    match environment::value(SYSFS) {
        Some(folder) => sysfs::refresh(Path::new(&folder)),
        None => Ok(()),
    }
}

/// Returns whether `urxe run` would run the program. It refuses static programs, for example.
pub fn serves(name: &OsStr) -> bool {
    program::check(name, &[], true, None).is_ok()
}

/// Returns the value of `PATH` with the folder of small commands before all others.
fn path_with(commands: &Path) -> OsString {
    let old = environment::value(PATH).unwrap_or_else(|| DEFAULT_PATH.into());
    let others = std::env::split_paths(&old).filter(|folder| folder != commands);
    let all = std::iter::once(commands.to_owned()).chain(others);
    // No folder here has a colon in its name.
    std::env::join_paths(all).unwrap_or(old)
}

impl EnvironmentArgs {
    /// Returns the variables to be set.
    fn variables(&self) -> Result<Vec<(&'static str, OsString)>, RunError> {
        let links = match self.devices.is_given() {
            true => self.devices.select()?.links,
            false => Vec::new(),
        };
        let libraries = Libraries::find()?;
        let path = preload::library_path(&libraries.folder, environment::value(LIBRARY_PATH));
        let commands = path_with(&commands::folder()?);
        let mut variables = vec![(LIBRARY_PATH, path), (PATH, commands)];
        self.preload(libraries, &links, &mut variables);
        if !links.is_empty() {
            let links: Vec<String> = links.iter().map(LinkSpec::to_string).collect();
            variables.push((ENVIRONMENT, links.join(",").into()));
        }
        if let Some(capture) = &self.capture {
            // The program may change its working directory before it opens a device.
            let capture = std::path::absolute(capture).unwrap_or_else(|_| capture.clone());
            variables.push((CAPTURE, capture.into()));
            if self.capture_headers {
                variables.push((CAPTURE_HEADERS, "on".into()));
            }
        }
        if let Some(fault) = &self.fault {
            // All started processes use one seed, so that the printed options reproduce the run.
            let seed = fault.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
            let fault = FaultSpec { seed: Some(seed), ..fault.clone() }.to_string();
            output::note(&format!("packets that arrive suffer {fault}"));
            variables.push((FAULTS, fault.into()));
        }
        Ok(variables)
    }

    /// Adds the preloaded libraries and the view of sysfs. Without the view, programs run as well.
    /// An outer `urxe run` or `urxe env` may have set the variables, too.
    fn preload(
        &self,
        libraries: Libraries,
        links: &[LinkSpec],
        variables: &mut Vec<(&'static str, OsString)>,
    ) {
        let ours: Vec<PathBuf> =
            [libraries.verbs()].into_iter().chain(libraries.sysfs.clone()).collect();
        let is_viewed = libraries.sysfs.is_some() && !self.no_sysfs && !self.no_preload;
        let chosen = match (self.no_preload, is_viewed) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => ours.len(),
        };
        let earlier = environment::value(PRELOAD);
        if chosen > 0 || earlier.is_some() {
            variables.push((PRELOAD, preload::preloads(&ours, chosen, earlier)));
        }
        if chosen > 0 {
            let options = preload::sanitizer_options(environment::value(SANITIZER));
            variables.extend(options.map(|options| (SANITIZER, options)));
        }
        let view = is_viewed.then(|| viewed(links)).flatten();
        if view.is_some() || environment::value(SYSFS).is_some() {
            variables.push((SYSFS, view.unwrap_or_default().into()));
        }
    }
}

/// Returns the folder with the view of sysfs, or prints why there is none.
fn viewed(links: &[LinkSpec]) -> Option<PathBuf> {
    let view = view_of(links);
    view.inspect_err(|error| {
        output::note(&format!(
            "programs do not see the devices in /sys/class/infiniband: {}",
            output::describe(error)
        ));
    })
    .ok()
}

/// Returns the folder with the view of these devices, or of the configured ones.
fn view_of(links: &[LinkSpec]) -> Result<PathBuf, SysfsError> {
    let place = places::lasting(Path::new("sysfs"), |_| true)?;
    sysfs::folder(links, &place)
}

/// What programs of `urxe run` get on this machine.
pub struct View {
    /// The folder of the libraries.
    pub folder: PathBuf,
    /// The folder with the view of sysfs, if its library is there.
    pub sysfs: Option<Result<PathBuf, SysfsError>>,
}

/// Prepares a run without options, and returns its folders.
///
/// # Errors
/// Fails if the library cannot be used.
pub fn view_here() -> Result<View, LibraryError> {
    let libraries = Libraries::find()?;
    let sysfs = libraries.sysfs.map(|_| view_of(&[]));
    Ok(View { folder: libraries.folder, sysfs })
}

/// Arguments of `urxe run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  urxe run -- ibv_rc_pingpong
  urxe run -d 127.0.0.2 -- ib_write_bw -x 0
  urxe run --fault loss=1%,seed=7 -- ibv_rc_pingpong -c
  urxe run -- ucx_info -d

The program sees only urxe's devices, not those of the kernel. URXE_LOG=warn prints why a verb was \
refused. At its end, a note on standard error says if a program loaded the library and no program \
opened a device.")]
pub struct Run {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Do not report a run that opened no device
    #[arg(long)]
    no_report: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Run {
    /// Replaces this process with the program.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let (name, arguments) =
            self.command.split_first().expect("clap asks for at least one word");
        let mut variables = self.environment.variables()?;
        let path = variables.iter().find(|(name, _)| *name == PATH).map(|(_, path)| &**path);
        let is_preloaded = !self.environment.no_preload;
        let program = program::check(name, arguments, is_preloaded, path);
        let Program { path: program, notes, needs_verbs } = program.map_err(RunError::from)?;
        notes.iter().for_each(|sentence| output::note(sentence));
        // The preloaded library of the view prints the note.
        if variables.iter().any(|(name, view)| *name == SYSFS && !view.is_empty())
            && !self.no_report
        {
            let file = report::file(&program, needs_verbs).map(PathBuf::into_os_string);
            variables.extend(file.map(|file| (report::VARIABLE, file)));
        }
        let error = Command::new(&program).arg0(name).args(arguments).envs(variables).exec();
        Err(RunError::Start { program, error }.into())
    }
}

/// Arguments of `urxe env`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In a shell:
  eval \"$(urxe env)\"")]
pub struct Env {
    #[command(flatten)]
    environment: EnvironmentArgs,
}

impl Env {
    /// Prints the variables for a shell.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let mut out = output::stdout();
        for (name, value) in self.environment.variables()? {
            let value = value.to_string_lossy().replace('\'', r"'\''");
            writeln!(out, "export {name}='{value}'")?;
        }
        out.flush()?;
        Ok(Outcome::Done)
    }
}
