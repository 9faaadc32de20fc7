//! `urxe run` and `urxe env`: run programs that were linked against libibverbs over urxe.
//!
//! The loader finds `libibverbs.so.1` and `librdmacm.so.1` through `LD_LIBRARY_PATH`, in a folder
//! of links to `liburxe.so`. Environment variables carry all other settings, so child processes
//! inherit the settings.
//!
//! | file | subject |
//! |---|---|
//! | `library` | the place of `liburxe.so`, and the folder of links |
//! | `program` | programs for which the loader would not use the library |
//! | `sysfs` | the view of /sys/class/infiniband |

mod library;
mod program;
mod sysfs;

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use urxe_stack::files;
use urxe_stack::link::{ENVIRONMENT, LinkSpec};
use urxe_stack::port::faults::FaultSpec;
use urxe_stack::sys::environment;

use crate::cmd::{CmdError, Outcome};
use crate::output;

pub use library::LibraryError;
pub use program::ProgramError;
pub use sysfs::SysfsError;

/// The environment variable that names the capture file.
const CAPTURE: &str = "URXE_CAPTURE";
/// The environment variable for captures without payload.
const CAPTURE_HEADERS: &str = "URXE_CAPTURE_HEADERS";
/// The environment variable with the faults of received packets.
const FAULTS: &str = "URXE_FAULTS";
/// Variables of the loader.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";
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
    /// The view of sysfs cannot be created.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
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
    /// A device, before all configured ones; may be given several times
    #[arg(long = "link", value_name = "NAME=ADDRESS|INTERFACE")]
    links: Vec<LinkSpec>,
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
    /// Show the devices in /sys/class/infiniband to programs that read this folder (UCX, perftest's
    /// counters, ls)
    #[arg(long)]
    sysfs: bool,
}

/// Returns `first`, followed by the present value of a loader variable.
fn prepend(first: OsString, variable: &str) -> OsString {
    let mut value = first;
    if let Some(old) = environment::value(variable) {
        value.push(":");
        value.push(old);
    }
    value
}

impl EnvironmentArgs {
    /// Returns the variables to be set.
    fn variables(&self) -> Result<Vec<(&'static str, OsString)>, RunError> {
        let path = prepend(library::folder_of_links()?.into_os_string(), LIBRARY_PATH);
        let mut variables = vec![(LIBRARY_PATH, path)];
        if self.sysfs {
            variables.push((PRELOAD, prepend(library::sysfs()?.into_os_string(), PRELOAD)));
            let place = files::private_folder(&library::cache()?, Path::new("urxe/sysfs"))
                .map_err(LibraryError::from)?;
            variables.push((SYSFS, sysfs::folder(&self.links, &place)?.into()));
        }
        if !self.links.is_empty() {
            let links: Vec<String> = self.links.iter().map(LinkSpec::to_string).collect();
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
}

/// Arguments of `urxe run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  urxe run -- ibv_rc_pingpong
  urxe run --link rxe0=127.0.0.2 -- ib_write_bw -x 0
  urxe run --fault loss=1%,seed=7 -- ibv_rc_pingpong -c
  urxe run --sysfs -- ucx_info -d

The program sees only urxe's devices, not those of the kernel. URXE_LOG=warn prints why a verb was \
refused.")]
pub struct Run {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Run {
    /// Replaces this process with the program.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let (name, arguments) =
            self.command.split_first().expect("clap asks for at least one word");
        let program = program::find(name).and_then(|path| program::check(&path).map(|()| path));
        let program = program.map_err(RunError::from)?;
        let variables = self.environment.variables()?;
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
