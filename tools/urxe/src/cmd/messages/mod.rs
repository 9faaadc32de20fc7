//! `urxe listen` and `urxe connect`: messages over a connection by `rdma_cm`, for trying things
//! out.
//!
//! What stands on standard input goes as messages to the other end's standard output, both ways; or
//! one end sends a known pattern, and the other compares.
//!
//! ```text
//!   connect                                    listen
//!   request ("urxe lines" or "urxe verify") -> accept
//!   lines   <--------------------------------> lines
//!   an empty message: that was all ----------> what is still to be said
//!           <--------------------------------- an empty message
//!   disconnect
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `channel` | messages in registered memory, in order, no more than the other end has room for |
//! | `transfer` | the pattern, and the figures |

mod channel;
mod transfer;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use urxe::WcStatus;
use urxe::cm::{self, Listener, Options};

use self::channel::{MESSAGE_MAX, Messages};
use crate::arguments::Size;
use crate::cmd::{CmdError, Outcome};
use crate::output;
use crate::traffic::error::TrafficError;

/// What a request says.
const LINES: &[u8] = b"urxe lines 1";
const VERIFY: &[u8] = b"urxe verify 1";

/// Arguments of `urxe listen`.
#[derive(Debug, clap::Args)]
pub struct ListenArgs {
    /// The port
    port: u16,
    /// The address; by default all addresses of the devices
    #[arg(short, long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    address: IpAddr,
    /// Go on with the next connection, until it is stopped
    #[arg(short, long)]
    keep: bool,
}

/// Arguments of `urxe connect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard input goes to the listener's standard output, and the other way round:
  urxe listen 7471                          in one terminal
  echo hello | urxe connect 127.0.0.1 7471  in another")]
pub struct ConnectArgs {
    /// The listener's address or name
    host: String,
    /// Its port
    port: u16,
    /// Send so many bytes of a pattern, which the listener compares, instead of standard input:
    /// 64K, 100M
    #[arg(short, long, value_name = "BYTES")]
    verify: Option<Size>,
    /// The own address
    #[arg(short, long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// How long the listener may take to answer, in seconds
    #[arg(short, long, default_value_t = 10)]
    timeout: u64,
}

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    /// The connection, or a verb over it.
    #[error(transparent)]
    Connection(TrafficError),
    /// A message failed.
    #[error("a message failed: {status}")]
    Failed { status: WcStatus },
    /// The other end is gone.
    #[error("the other end has ended the connection before all was said")]
    Ended,
    /// The pattern is not what was sent.
    #[error("byte {at} is not what was sent")]
    Wrong { at: u64 },
    /// The listener counts otherwise.
    #[error("the listener says that {counted} bytes came, of {sent}")]
    Count { counted: u64, sent: u64 },
    /// Standard input or output.
    #[error("standard input or output: {0}")]
    Io(#[from] io::Error),
}

impl<E: Into<TrafficError>> From<E> for MessagesError {
    fn from(error: E) -> Self {
        Self::Connection(error.into())
    }
}

impl ListenArgs {
    /// Serves one connection, or all.
    pub fn run(self) -> Result<Outcome, CmdError> {
        self.serve()?;
        Ok(Outcome::Done)
    }

    fn serve(self) -> Result<(), MessagesError> {
        let listener = Listener::bind((self.address, self.port))?;
        output::note(&format!("listens on {}", listener.local_addr()));
        loop {
            let request = listener.wait(None)?;
            let from = request.peer_addr();
            let is_transfer = request.private_data().starts_with(VERIFY);
            if !is_transfer && !request.private_data().starts_with(LINES) {
                output::note(&format!("{from} is no `urxe connect`: refused"));
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
    /// Connects and says all.
    pub fn run(self) -> Result<Outcome, CmdError> {
        self.connect()?;
        Ok(Outcome::Done)
    }

    fn connect(self) -> Result<(), MessagesError> {
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

/// Standard input to the other end, and what it says to standard output. `is_first`: this end's end
/// of input ends all.
fn relay(messages: &Messages, is_first: bool) -> Result<(), MessagesError> {
    if is_first {
        // What the other end says meanwhile is printed by another thread.
        return thread::scope(|threads| {
            let printing = threads.spawn(|| print(messages));
            let said = send_input(messages);
            let printed = printing.join().unwrap_or(Err(MessagesError::Ended));
            messages.disconnect();
            said.and(printed)
        });
    }
    // Not joined: its standard input may be a terminal, where nothing comes any more.
    let input = messages.clone();
    thread::spawn(move || send_input_unless_ended(&input));
    print(messages)?;
    messages.end_of_input()?;
    messages.wait_for_end();
    Ok(())
}

fn send_input(messages: &Messages) -> Result<(), MessagesError> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut input = io::stdin().lock();
    loop {
        match input.read(&mut buffer)? {
            0 => return messages.end_of_input(),
            len => messages.send(&buffer[..len])?,
        }
    }
}

fn send_input_unless_ended(messages: &Messages) {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut input = io::stdin().lock();
    while let Ok(len @ 1..) = input.read(&mut buffer) {
        if messages.send(&buffer[..len]).is_err() {
            return;
        }
    }
}

/// Prints what comes until the other end has said all.
fn print(messages: &Messages) -> Result<(), MessagesError> {
    let mut out = io::stdout().lock();
    while let Some(message) = messages.receive()? {
        if message.is_empty() {
            return Ok(());
        }
        out.write_all(&message)?;
        out.flush()?;
    }
    Err(MessagesError::Ended)
}
