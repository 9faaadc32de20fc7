//! The subcommands.

mod decode;
mod devinfo;
mod doctor;
mod link;
mod messages;
mod perf;
mod pingpong;
mod processes;
mod rping;
mod run;

use std::io;

use clap::Subcommand;
use urxe_stack::link::LinkError;

use crate::capture::CaptureError;

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move data by every operation and check every byte; alone, or with another host
    Pingpong(pingpong::Args),
    /// Measure bandwidth, message rate and latency, as ratios to plain UDP and TCP
    Perf(Box<perf::Args>),
    /// Ping by rdma_cm, READ and WRITE, as rdma-core's rping and with it
    Rping(rping::Args),
    /// Wait for `urxe connect`, and print what it sends
    Listen(messages::ListenArgs),
    /// Connect to `urxe listen`, and send what stands on standard input, or a pattern that it
    /// compares
    Connect(messages::ConnectArgs),
    /// Run a program that was linked against libibverbs or librdmacm, over urxe
    Run(run::Run),
    /// Show the environment that does the same, for a shell
    Env(run::Env),
    /// Show, add or delete devices
    Link(link::Args),
    /// Show the devices' attributes, in the form of ibv_devinfo
    Devinfo(devinfo::Args),
    /// Try out what this machine grants, and say what follows
    Doctor(doctor::Args),
    /// Show the packets of a capture file, one readable line each
    Decode(decode::Args),
}

impl Command {
    /// Does what was asked for.
    pub fn run(self) -> Result<Outcome, CmdError> {
        match self {
            Self::Pingpong(args) => args.run(),
            Self::Perf(args) => args.run(),
            Self::Rping(args) => args.run(),
            Self::Listen(args) => args.run(),
            Self::Connect(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Env(args) => args.run(),
            Self::Link(args) => args.run(),
            Self::Devinfo(args) => args.run(),
            Self::Doctor(args) => args.run(),
            Self::Decode(args) => args.run(),
        }
    }

    /// What is logged unless `URXE_LOG` says otherwise.
    pub fn log_filter(&self) -> &'static str {
        match self {
            // It provokes what the stack warns of, and tells it itself.
            Self::Doctor(_) => "off",
            _ => "warn",
        }
    }
}

/// How a subcommand that ran to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// Something is not, and the output said so.
    Failed,
}

/// Why a subcommand could not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CmdError {
    /// The words of the command line do not go together; what clap cannot see.
    #[error("{0}")]
    Usage(&'static str),
    /// A link does not exist, cannot be resolved, or its list cannot be read or written.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A word of the command line is no device name, address or interface.
    #[error("{}", .0.reason)]
    Word(#[from] urxe_stack::link::ParseError),
    /// A capture file cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
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
    /// The result cannot be written.
    #[error("cannot write the result")]
    Output(#[from] io::Error),
}

impl CmdError {
    /// Whether the command line asks for what cannot be.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Perf(perf::PerfError::Case(_)))
    }

    /// Whether the reader of standard output has stopped reading.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
