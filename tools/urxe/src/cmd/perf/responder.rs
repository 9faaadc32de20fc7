//! The other end: executes commands of the parent process or of the connected host.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use serde::Serialize;
use serde_json::{Value, json};
use urxe::Device;

use super::error::PerfError;
use super::floor::FloorEnd;
use super::protocol::{Command, DeviceOptions, Opened, Sent};
use super::session::{Session, Work};
use super::statistics::Sample;
use super::{builder, resident, verify};
use crate::traffic::device::{self, Choice, address_of};
use crate::traffic::error::{TrafficError, unexpected};
use crate::traffic::responder::{AtEnd, commands_of_parent, read_commands, reply};

/// Executes commands of the parent process until the parent closes standard input.
///
/// # Errors
/// Standard output is closed.
pub fn of_parent() -> io::Result<()> {
    execute(commands_of_parent(), &mut io::stdout().lock(), None, AtEnd::Exit)
}

/// Executes commands until there are no more. `own` is the device for commands that name none.
///
/// # Errors
/// The replies cannot be written.
pub fn execute(
    from: impl BufRead + Send + 'static,
    to: &mut dyn Write,
    own: Option<&Choice>,
    at_end: AtEnd,
) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&stop);
    let commands = read_commands(from, at_end, move |command: Option<&Command>| {
        if matches!(command, None | Some(Command::Stop { .. })) {
            over.store(true, Ordering::Release);
        }
    });
    let mut responder =
        Responder { devices: Vec::new(), sessions: Vec::new(), commands, stop, own };
    while let Ok(command) = responder.commands.recv() {
        let result = responder.execute(command, to);
        reply(to, result)?;
    }
    Ok(())
}

/// The most sessions of a measurement: far more than all rows and rounds have.
const MAX_SESSIONS: usize = 1 << 16;

struct Responder<'a> {
    devices: Vec<Device>,
    /// The sessions by number; a closed session is `None`.
    sessions: Vec<Option<Work>>,
    commands: Receiver<Command>,
    /// Set when [`Command::Stop`] is read.
    stop: Arc<AtomicBool>,
    own: Option<&'a Choice>,
}

impl Responder<'_> {
    fn execute(&mut self, command: Command, to: &mut dyn Write) -> Result<Value, PerfError> {
        Ok(match command {
            Command::Open { links, options } => json!(self.open(&links, &options)?),
            Command::Prepare { device, case } => {
                let session = Session::new(self.device(device)?, case)?;
                let ends = session.end.ends();
                json!((self.keep(Work::Verbs(Box::new(session)))?, ends))
            }
            Command::Connect { session, ends } => match self.session(session)? {
                Work::Verbs(of) => json!(of.end.connect(&ends)?),
                Work::Floor(_) => return Err(unexpected("queue pairs for a floor").into()),
            },
            Command::PrepareFloor { device, floor } => {
                let end = FloorEnd::new(floor, address_of(self.device(device)?)?, true)?;
                let sockets = end.sockets()?;
                json!((self.keep(Work::Floor(Box::new(end)))?, sockets))
            }
            Command::ConnectFloor { session, sockets } => match self.session(session)? {
                Work::Floor(of) => json!(of.connect(&sockets)?),
                Work::Verbs(_) => return Err(unexpected("sockets for queue pairs").into()),
            },
            Command::Begin { session } => json!(self.round(session, to)?),
            Command::Stop { .. } => {
                return Err(unexpected("the end of a round that has not begun").into());
            }
            Command::Close { session } => {
                self.session(session)?;
                self.sessions[session] = None;
                Value::Null
            }
            Command::Resident => json!(resident()),
        })
    }

    fn device(&self, device: usize) -> Result<&Device, TrafficError> {
        self.devices.get(device).ok_or_else(|| unexpected("a device that is not open"))
    }

    fn session(&mut self, session: usize) -> Result<&mut Work, TrafficError> {
        self.sessions
            .get_mut(session)
            .and_then(Option::as_mut)
            .ok_or_else(|| unexpected("a session that is not there"))
    }

    fn keep(&mut self, work: Work) -> Result<usize, TrafficError> {
        if self.sessions.len() == MAX_SESSIONS {
            return Err(unexpected("more sessions than a measurement has"));
        }
        self.sessions.push(Some(work));
        Ok(self.sessions.len() - 1)
    }

    /// Opens the first device whose address is free, or the configured device if `links` is empty.
    fn open(&mut self, links: &[String], options: &DeviceOptions) -> Result<Opened, TrafficError> {
        let device = match self.own {
            Some(own) if links.is_empty() => own.open(&builder(options)?)?,
            _ => device::open_first(links, &builder(options)?)?,
        };
        let link = device::link_of(&device);
        let mtu = device.query_port().active_mtu.bytes();
        self.devices.push(device);
        Ok(Opened { link, mtu })
    }

    /// Runs a round, from [`Command::Begin`] to [`Command::Stop`]. Returns the received data and
    /// the number of verified messages, which is the reply to `Stop`.
    fn round(&mut self, session: usize, to: &mut dyn Write) -> Result<(Sample, u64), PerfError> {
        self.stop.store(false, Ordering::Release);
        let stop = Arc::clone(&self.stop);
        let is_over = || stop.load(Ordering::Acquire);
        let result = match self.session(session)? {
            Work::Floor(end) => {
                send(to, &())?;
                end.respond(&is_over).map(|(_, received)| received)
            }
            Work::Verbs(of) => {
                of.begin()?;
                send(to, &())?;
                serve(of, to, &is_over).map(|()| Sample::default())
            }
        };
        // A failed round still replies to `Stop`, so that commands and replies stay in step.
        let sent = self.await_stop()?;
        let received = result?;
        let verified = match self.session(session)? {
            Work::Verbs(of) => {
                let verified = verify::target(of, &sent)? + verify::requester(of)?;
                of.end_round();
                verified
            }
            Work::Floor(_) => 0,
        };
        Ok((received, verified))
    }

    fn await_stop(&self) -> Result<Vec<Sent>, TrafficError> {
        match self.commands.recv() {
            Ok(Command::Stop { sent }) => Ok(sent),
            Ok(command) => Err(unexpected(format!("{command:?} inside a round"))),
            Err(_) => Err(unexpected("nothing more, inside a round")),
        }
    }
}

/// Sends a value to the measuring end.
fn send(to: &mut dyn Write, what: &impl Serialize) -> Result<(), PerfError> {
    reply(to, Ok::<_, PerfError>(what)).map_err(|error| PerfError::Host {
        doing: "cannot send",
        at: "a reply".to_owned(),
        error,
        remedy: "",
    })
}

/// Runs the other end in a round of queue pairs.
fn serve(
    of: &mut Session,
    to: &mut dyn Write,
    is_over: &dyn Fn() -> bool,
) -> Result<(), PerfError> {
    if of.end.case.bidirectional {
        let sample = of.measure(of.end.case.limit)?;
        send(to, &(sample, of.states.sent()))?;
        return of.respond(|| Ok(is_over()));
    }
    if of.is_active_target() { of.respond(|| Ok(is_over())) } else { Ok(()) }
}
