//! `urxe rping`: rdma-core's `rping` in Rust. It interoperates with the original, on kernels and
//! over urxe.
//!
//! ```text
//!   client                               server
//!   announces its source --------------> READs the source
//!                        <-------------- "go ahead"
//!   announces its sink   --------------> WRITEs the bytes back, up to the first zero
//!                        <-------------- "go ahead"
//!   compares
//! ```
//! Protocol: rdma-core's `librdmacm/examples/rping.c`.
//!
//! | file | subject |
//! |---|---|
//! | `peer` | messages and completions of both ends |
//! | `client`, `server` | the two ends |

mod client;
mod peer;
mod server;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::device::ConnectionDevices;
use crate::traffic::error::TrafficError;
use crate::traffic::selection::{DeviceWord, LinkArgs};

/// The original's limits: the longest number before the data, and the buffer.
const MIN_SIZE: u32 = 26;
const MAX_SIZE: u32 = 65_535;

/// Arguments of `urxe rping`, with the original's letters.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("role").required(true).args(["server", "client"])),
    after_help = EXAMPLES
)]
pub struct Args {
    /// Run as server
    #[arg(short, long)]
    server: bool,
    /// Run as client; needs -a
    #[arg(short, long, requires = "address")]
    client: bool,
    /// The server's address; the server listens on this address, or on all by default
    #[arg(short, long)]
    address: Option<String>,
    /// The server's port
    #[arg(short, long, default_value_t = 7174)]
    port: u16,
    /// The client's local address
    #[arg(short = 'I', long, value_name = "ADDRESS", conflicts_with = "server")]
    source: Option<IpAddr>,
    /// Number of pings that the client sends; 0 for no limit
    #[arg(short = 'C', long, default_value_t = 0)]
    count: u32,
    /// Bytes of a ping
    #[arg(short = 'S', long, default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(i64::from(MIN_SIZE)..=i64::from(MAX_SIZE)))]
    size: u32,
    /// Compare the returned bytes with those sent
    #[arg(short = 'V', long)]
    validate: bool,
    /// Print the pings
    #[arg(short, long)]
    verbose: bool,
    /// Serve many clients; end by a signal
    #[arg(short = 'P', long, requires = "server")]
    persistent: bool,
    /// The device, as in the other commands; without a value, -d is --debug as in the original
    #[arg(short, long, value_name = "DEV", visible_alias = "ib-dev")]
    device: Option<Option<DeviceWord>>,
    #[command(flatten)]
    links: LinkArgs,
    /// Print each step on standard error
    #[arg(long)]
    debug: bool,
    /// Accepted for compatibility; the original then creates queue pairs in another way
    #[arg(short)]
    q: bool,
}

const EXAMPLES: &str = "\
Either end may be rdma-core's rping:
  here:  urxe rping -s -a 10.0.0.1 -v
  there: rping -c -a 10.0.0.1 -v -C 10";

/// Errors of `urxe rping`.
#[derive(Debug, thiserror::Error)]
pub enum RpingError {
    /// The server's name cannot be resolved.
    #[error("cannot resolve {name}: {error}")]
    Address {
        name: String,
        #[source]
        error: io::Error,
    },
    /// The connection or a verb failed.
    #[error(transparent)]
    Connection(TrafficError),
    /// The peer disconnected too early.
    #[error("the peer disconnected {when}")]
    Ended { when: &'static str },
    /// The message has another length than those of rping.
    #[error("the peer's message has {len} bytes; rping messages have 16")]
    Message { len: u32 },
    /// The announced memory is too large.
    #[error("the client announces {len} bytes; at most {MAX_SIZE} are allowed")]
    Announced { len: u32 },
    /// The returned bytes differ from those sent.
    #[error("ping {ping}: the returned data differs from byte {at} on")]
    Mismatch { ping: u32, at: usize },
    /// The output failed.
    #[error("cannot write the result")]
    Output(#[from] io::Error),
}

impl<E: Into<TrafficError>> From<E> for RpingError {
    fn from(error: E) -> Self {
        Self::Connection(error.into())
    }
}

impl Args {
    /// Runs one end.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let devices = self.links.with(self.device.clone().flatten());
        let opened = ConnectionDevices::open(&devices).map_err(RpingError::from);
        let played = opened
            .and_then(|_devices| if self.client { client::run(&self) } else { server::run(&self) });
        match played {
            Ok(()) => Ok(Outcome::Done),
            Err(RpingError::Output(error)) => Err(CmdError::Output(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the server's address and port.
    fn server_addr(&self) -> Result<SocketAddr, RpingError> {
        let name = self.address.as_deref().unwrap_or("0.0.0.0");
        let failed = |error| RpingError::Address { name: name.to_owned(), error };
        let mut found = (name, self.port).to_socket_addrs().map_err(failed)?;
        found.next().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    fn debug(&self, what: impl FnOnce() -> String) {
        if self.debug || self.device == Some(None) {
            output::error_line(&what());
        }
    }
}
