//! Small commands that stand before the system's in the `PATH` of programs of `urxe run`.
//!
//! Scripts that set up soft RoCE load the kernel's `rdma_rxe`, add a device and look at it. Under
//! `urxe run` and `urxe env`, these commands change and show urxe's devices. They need no root and
//! no kernel module. All are the binary `urxe` under another name. Each executes the system's
//! command of its name for everything that does not concern soft RoCE.
//!
//! | file | commands | passed on to the system's |
//! |---|---|---|
//! | `rdma` | `rdma` | links of other types, settings, `monitor` |
//! | `kernel_modules` | `modprobe`, `insmod`, `rmmod`, `lsmod`, `modinfo` | other modules |
//! | `rxe_cfg` | `rxe_cfg` | – |
//! | `show` | `ibv_devices`, `ibv_devinfo`, `ibstat`, `ibstatus`, `show_gids` | `ibv_*` |
//! | `sudo` | `sudo` | other programs |
//!
//! Devices that a command adds stand in the user's list, as with `urxe link add`. Programs that
//! start later find them there.

mod devices;
mod kernel_modules;
mod rdma;
mod rxe_cfg;
mod show;
mod sudo;
mod system;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use urxe_stack::link::{LinkError, LinkSpec, ParseError};

use super::CmdError;
use super::run::SysfsError;
use crate::output;

/// A command under another name.
struct Applet {
    name: &'static str,
    run: fn(&Call) -> Result<ExitCode, AppletError>,
}

/// The commands.
static APPLETS: [Applet; 13] = [
    Applet { name: "rdma", run: rdma::run },
    Applet { name: "modprobe", run: kernel_modules::modprobe },
    Applet { name: "insmod", run: kernel_modules::insmod },
    Applet { name: "rmmod", run: kernel_modules::rmmod },
    Applet { name: "lsmod", run: kernel_modules::lsmod },
    Applet { name: "modinfo", run: kernel_modules::modinfo },
    Applet { name: "rxe_cfg", run: rxe_cfg::run },
    Applet { name: "ibv_devices", run: show::ibv_devices },
    Applet { name: "ibv_devinfo", run: show::ibv_devinfo },
    Applet { name: "ibstat", run: show::ibstat },
    Applet { name: "ibstatus", run: show::ibstatus },
    Applet { name: "show_gids", run: show::show_gids },
    Applet { name: "sudo", run: sudo::run },
];

/// Returns the names of the commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    APPLETS.iter().map(|applet| applet.name)
}

/// Runs the command by whose name this process was started. `None` if that is `urxe` itself.
pub fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = PathBuf::from(arguments.next()?);
    let applet =
        APPLETS.iter().find(|applet| Path::new(applet.name).file_name() == name.file_name())?;
    let call = Call { name: applet.name, arguments: arguments.collect() };
    Some(match (applet.run)(&call) {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::error_line(&format!("{}: {}", applet.name, output::describe(&error)));
            error.code()
        }
    })
}

/// The name and the arguments of a command.
#[derive(Debug)]
struct Call {
    name: &'static str,
    arguments: Vec<OsString>,
}

impl Call {
    /// Returns the arguments as text. No argument that urxe knows has other bytes than ASCII.
    fn words(&self) -> Vec<String> {
        self.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum AppletError {
    /// The devices cannot be listed or changed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A name is not a device's or an interface's.
    #[error("{}", .0.reason)]
    Word(#[from] ParseError),
    /// The device exists, or the interface has one.
    #[error("{given}: the device or its interface is in the list already ({existing})")]
    Exists { given: Box<LinkSpec>, existing: Box<LinkSpec> },
    /// The environment variable defines the devices.
    #[error(
        "URXE_DEVICES (urxe run --link) defines the devices here, so the list does not apply; run \
         without it"
    )]
    FixedList,
    /// The arguments are wrong.
    #[error("{given}: {expected}")]
    Usage { given: String, expected: &'static str },
    /// The system has no command for what urxe does not do.
    #[error(
        "urxe does not handle these arguments and passes them on, but the system has no {name}; \
         install it, or see docs/from-rdma-rxe.md for what urxe handles"
    )]
    NoCommand { name: String },
    /// The system's command cannot be started.
    #[error("cannot run {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A subcommand of urxe failed.
    #[error(transparent)]
    Command(Box<CmdError>),
    /// The view of sysfs cannot be brought up to date.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The result cannot be written.
    #[error("cannot write the result")]
    Output(#[from] io::Error),
}

impl AppletError {
    /// Returns the exit code. 126 and 127 are those of a shell.
    fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NoCommand { .. } => 127,
            Self::Start { .. } => 126,
            _ => 1,
        })
    }

    fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
