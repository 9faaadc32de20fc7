//! `urxe listen` and `urxe connect`: messages over an `rdma_cm` connection, to try out a network.
//!
//! Each end sends its standard input as messages to the standard output of the other end. In the
//! second mode, one end sends a known pattern and the other end compares.
//!
//! ```text
//!   connect                                    listen
//!   request ("urxe lines" or "urxe verify") -> accept
//!   lines   <--------------------------------> lines
//!   an empty message: end of input ----------> the remaining lines
//!           <--------------------------------- an empty message
//!   disconnect
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `channel` | messages in registered memory, in order, limited by the peer's receives |
//! | `transfer` | the pattern, and the throughput |

mod channel;
mod transfer;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use urxe::cm::{self, Listener, Options};

use self::channel::{MESSAGE_MAX, Messages};
use crate::arguments::Size;
use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::device::ConnectionDevices;
use crate::traffic::error::TrafficError;
use crate::traffic::selection::DeviceArgs;

/// The private data of a request.
const LINES: &[u8] = b"urxe lines 1";
const VERIFY: &[u8] = b"urxe verify 1";

/// Arguments of `urxe listen`.
#[derive(Debug, clap::Args)]
pub struct ListenArgs {
    /// The port to listen on
    port: u16,
    /// The address to listen on; by default all addresses of the devices
    #[arg(short, long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    address: IpAddr,
    /// Accept the next connection after the first; end by a signal
    #[arg(short, long)]
    keep: bool,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Arguments of `urxe connect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard input goes to the listener's standard output, and vice versa:
  urxe listen 7471
  echo hello | urxe connect 127.0.0.1 7471")]
pub struct ConnectArgs {
    /// The listener's address or name
    host: String,
    /// The listener's port
    port: u16,
    /// Send this many bytes of a pattern instead of standard input, such as 64K or 100M; the
    /// listener verifies them
    #[arg(short, long, value_name = "BYTES")]
    verify: Option<Size>,
    /// The local address
    #[arg(short, long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Time limit for the listener's reply, in seconds; an ICMP message such as "port unreachable"
    /// is reported at once, but does not end the wait
    #[arg(short, long, default_value_t = 10)]
    timeout: u64,
    #[command(flatten)]
    devices: DeviceArgs,
}

/// Errors of `urxe listen` and `urxe connect`.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    /// The connection or a verb failed.
    #[error(transparent)]
    Connection(TrafficError),
    /// The other end disconnected too early.
    #[error("the other end disconnected before the end of the data")]
    Ended,
    /// A byte differs from the pattern.
    #[error("byte {at} differs from the pattern")]
    Wrong { at: u64 },
    /// The listener received another number of bytes.
    #[error("the listener received {counted} of {sent} bytes")]
    Count { counted: u64, sent: u64 },
    /// Standard input or output failed.
    #[error("standard input or output: {0}")]
    Io(#[from] io::Error),
}

impl<E: Into<TrafficError>> From<E> for MessagesError {
    fn from(error: E) -> Self {
        Self::Connection(error.into())
    }
}

impl ListenArgs {
    /// Serves one connection, or all with `--keep`.
    pub fn run(self) -> Result<Outcome, CmdError> {
        self.serve()?;
        Ok(Outcome::Done)
    }

    fn serve(self) -> Result<(), MessagesError> {
        let _devices = ConnectionDevices::open(&self.devices)?;
        let listener = Listener::bind((self.address, self.port))?;
        output::note(&format!("listens on {}", listener.local_addr()));
        loop {
            let request = listener.wait(None)?;
            let from = request.peer_addr();
            let is_transfer = request.peer_private_data().starts_with(VERIFY);
            if !is_transfer && !request.peer_private_data().starts_with(LINES) {
                output::note(&format!("{from} is not `urxe connect`; its request is rejected"));
                request.reject(LINES)?;
                continue;
            }
            let served =
                Messages::new(request.prepare(&channel::options())?).and_then(|messages| {
                    match is_transfer {
                        true => transfer::receive(&messages, from),
                        false => relay(&messages, false),
                    }
                });
            if !self.keep {
                return served;
            }
            if let Err(error) = served {
                output::note(&format!("{from}: {error}"));
            }
        }
    }
}

impl ConnectArgs {
    /// Connects and sends everything.
    pub fn run(self) -> Result<Outcome, CmdError> {
        self.connect()?;
        Ok(Outcome::Done)
    }

    fn connect(self) -> Result<(), MessagesError> {
        let _devices = ConnectionDevices::open(&self.devices)?;
        let said = if self.verify.is_some() { VERIFY } else { LINES };
        let mut options: Options =
            channel::options().private_data(said).timeout(Duration::from_secs(self.timeout));
        if let Some(source) = self.source {
            options = options.source_ip(source);
        }
        let messages = Messages::new(cm::prepare((self.host.as_str(), self.port), &options)?)?;
        match self.verify {
            Some(size) => transfer::send(&messages, size.bytes() as u64),
            None => relay(&messages, true),
        }
    }
}

/// Sends standard input to the other end, and prints the messages of the other end. With
/// `is_first`, the end of this end's input ends the connection.
fn relay(messages: &Messages, is_first: bool) -> Result<(), MessagesError> {
    if is_first {
        // Another thread prints the messages of the other end.
        return thread::scope(|threads| {
            let printing = threads.spawn(|| print(messages));
            let sent = send_input(messages).and_then(|()| messages.end_of_input());
            let printed = printing.join().unwrap_or(Err(MessagesError::Ended));
            messages.disconnect();
            sent.and(printed)
        });
    }
    // The thread is not joined, because a read from a terminal may never return.
    let input = messages.clone();
    thread::spawn(move || send_input(&input));
    print(messages)?;
    messages.end_of_input()?;
    messages.wait_for_end();
    Ok(())
}

/// Sends standard input up to its end.
fn send_input(messages: &Messages) -> Result<(), MessagesError> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut input = io::stdin().lock();
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            len => messages.send(&buffer[..len])?,
        }
    }
}

/// Prints messages until the other end announces the end of its input.
fn print(messages: &Messages) -> Result<(), MessagesError> {
    let mut out = output::data();
    while let Some(message) = messages.receive()? {
        if message.is_empty() {
            return Ok(());
        }
        out.write_all(&message)?;
        out.flush()?;
    }
    Err(MessagesError::Ended)
}
