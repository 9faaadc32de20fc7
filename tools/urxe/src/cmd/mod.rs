//! The subcommands.

pub mod applets;
pub mod completions;
pub mod decode;
mod devinfo;
mod doctor;
mod install;
pub mod link;
mod messages;
mod perf;
mod pingpong;
mod processes;
mod rping;
mod run;

use std::io;

use clap::{Parser, Subcommand};
use urxe_stack::link::LinkError;

use crate::capture::CaptureError;
use crate::traffic::selection::SelectionError;
use crate::traffic::variables::VariableError;

/// RDMA in userspace: RoCEv2 over UDP, without root and without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "urxe", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Environment:
  URXE_DEVICES   devices instead of the user's list, such as
                 rxe0=10.0.0.1,rxe1=eth0
  URXE_LOG       log filter for standard error: error, warn,
                 info, debug, trace, or by module, such as
                 urxe_device=debug,urxe_io::udp=trace
                 [default: warn; programs of `urxe run`: error]
  URXE_CAPTURE, URXE_FAULTS
                 capture file and faults of received packets;
                 link, devinfo, doctor, decode and install refuse them";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move data with every operation and verify every byte, on this host or with another
    Pingpong(pingpong::Args),
    /// Measure bandwidth, message rate and latency, as ratios to plain UDP and TCP
    Perf(Box<perf::Args>),
    /// Ping with rdma_cm, READ and WRITE; compatible with rdma-core's rping
    Rping(rping::Args),
    /// Wait for `urxe connect`, and print the data that it sends
    Listen(messages::ListenArgs),
    /// Connect to `urxe listen`, and send standard input or a pattern to be verified
    Connect(messages::ConnectArgs),
    /// Run a program that was linked against libibverbs or librdmacm, over urxe
    Run(run::Run),
    /// Print the environment variables of `urxe run`, for a shell
    Env(run::Env),
    /// Let all programs of this machine use urxe, without urxe run
    Install(install::Install),
    /// Undo urxe install
    Uninstall(install::Uninstall),
    /// Show, add or delete devices
    Link(link::Args),
    /// Show device attributes in the format of ibv_devinfo
    Devinfo(devinfo::Args),
    /// Test what this machine supports, and print consequences and advice
    Doctor(doctor::Args),
    /// Show the packets of a capture file, one line each
    Decode(decode::Args),
    /// Print the script by which a shell completes the options of urxe
    Completions(completions::Args),
}

impl Command {
    /// Runs the subcommand.
    pub fn run(self) -> Result<Outcome, CmdError> {
        match self {
            Self::Pingpong(args) => args.run(),
            Self::Perf(args) => args.run(),
            Self::Rping(args) => args.run(),
            Self::Listen(args) => args.run(),
            Self::Connect(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Env(args) => args.run(),
            Self::Install(args) => args.run(),
            Self::Uninstall(args) => args.run(),
            Self::Link(args) => args.run(),
            Self::Devinfo(args) => args.run(),
            Self::Doctor(args) => args.run(),
            Self::Decode(args) => args.run(),
            Self::Completions(args) => args.run(),
        }
    }

    /// Returns the log filter that applies without `URXE_LOG`.
    pub fn log_filter(&self) -> &'static str {
        match self {
            // The probes provoke warnings of the stack, and print the results themselves.
            Self::Doctor(_) => "off",
            _ => "warn",
        }
    }
}

/// The result of a subcommand that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// The command failed, and its output says so.
    Failed,
}

/// Errors of the subcommands.
#[derive(Debug, thiserror::Error)]
pub enum CmdError {
    /// A combination of arguments that clap cannot check.
    #[error("{0}")]
    Usage(&'static str),
    /// A link does not exist, cannot be resolved, or its list cannot be read or written.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A device cannot exist on this machine.
    #[error("device {device}: {error}")]
    Device {
        device: String,
        #[source]
        error: LinkError,
    },
    /// An argument is not a device name, address or interface.
    #[error("{}", .0.reason)]
    Word(#[from] urxe_stack::link::ParseError),
    /// A capture file cannot be read.
    #[error("{file}: {error}")]
    Capture {
        file: String,
        #[source]
        error: CaptureError,
    },
    /// The options select no device.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The command does not read a variable that is set.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// `urxe pingpong` failed, or found wrong data.
    #[error(transparent)]
    Pingpong(#[from] pingpong::PingpongError),
    /// `urxe perf` failed, or found wrong data.
    #[error(transparent)]
    Perf(#[from] perf::PerfError),
    /// `urxe rping` failed, or found wrong data.
    #[error(transparent)]
    Rping(#[from] rping::RpingError),
    /// `urxe listen` or `urxe connect` failed, or found wrong data.
    #[error(transparent)]
    Messages(#[from] messages::MessagesError),
    /// `urxe run` did not start the program.
    #[error(transparent)]
    Run(#[from] run::RunError),
    /// The system-wide installation failed.
    #[error(transparent)]
    Install(#[from] install::InstallError),
    /// The result cannot be written.
    #[error("cannot write the result")]
    Output(#[from] io::Error),
}

impl CmdError {
    /// Returns whether the error is a usage error.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Perf(perf::PerfError::Case(_)))
    }

    /// Returns whether the reader of standard output has stopped reading.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
