//! The other end: obeys orders, from a parent process or from the host that has connected.

use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};
use urxe::{Device, LinkSpec};

use super::case::Limit;
use super::error::PerfError;
use super::floor::FloorEnd;
use super::protocol::{Answer, DeviceOptions, Order, Sent};
use super::session::Session;
use super::statistics::Sample;
use super::{address_of, resident};
use crate::cmd::common::choose::{self, Choice};
use crate::cmd::common::verb_error::VerbError;
use crate::cmd::common::{describe, lines};

/// Obeys the parent process until it closes standard input.
///
/// # Errors
/// Standard output is closed.
pub fn of_parent() -> io::Result<()> {
    // Not even a parent that is killed leaves this process behind. Where the system refuses it,
    // standard input tells.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let reader = io::BufReader::new(io::stdin());
    obey(reader, &mut io::stdout().lock(), None, AtEnd::Exit)
}

/// What the end of the orders means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The end of this process, whatever it is waiting for.
    Exit,
    /// The end of the run.
    Return,
}

/// Obeys until there are no more orders. `own` is the device to open where orders name none.
///
/// # Errors
/// Nobody hears the answers.
pub fn obey(
    mut from: impl BufRead + Send + 'static,
    to: &mut dyn Write,
    own: Option<&Choice>,
    at_end: AtEnd,
) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, orders) = mpsc::channel();
    let over = Arc::clone(&stop);
    thread::spawn(move || {
        while let Ok(Some(order)) = lines::hear::<Order>(&mut from) {
            if matches!(order, Order::Stop { .. }) {
                over.store(true, Ordering::Release);
            }
            if sender.send(order).is_err() {
                return;
            }
        }
        if at_end == AtEnd::Exit {
            std::process::exit(0);
        }
        over.store(true, Ordering::Release);
    });
    let mut servant = Servant { devices: Vec::new(), sessions: Vec::new(), orders, stop, own };
    while let Ok(order) = servant.orders.recv() {
        let answer = servant.obey(order, to).unwrap_or_else(|error| refusal(&error));
        lines::say(to, &answer)?;
    }
    Ok(())
}

fn refusal(error: &PerfError) -> Answer {
    let text = describe(error);
    if error.is_wrong_data() { Answer::Wrong(text) } else { Answer::Failed(text) }
}

enum Work {
    Verbs(Box<Session>),
    Floor(Box<FloorEnd>),
}

struct Servant<'a> {
    devices: Vec<Device>,
    /// Those that were closed leave their place empty.
    sessions: Vec<Option<Work>>,
    orders: Receiver<Order>,
    /// Set as soon as [`Order::Stop`] is read.
    stop: Arc<AtomicBool>,
    own: Option<&'a Choice>,
}

impl Servant<'_> {
    fn obey(&mut self, order: Order, to: &mut dyn Write) -> Result<Answer, PerfError> {
        Ok(match order {
            Order::Open { links, options } => self.open(&links, &options)?,
            Order::Prepare { device, case } => {
                let session = Session::new(self.device(device)?, case)?;
                let ends = session.ends();
                Answer::Prepared { session: self.keep(Work::Verbs(Box::new(session))), ends }
            }
            Order::Connect { session, ends } => {
                match self.session(session)? {
                    Work::Verbs(of) => of.connect(&ends)?,
                    Work::Floor(_) => return Err(odd("queue pairs for a floor")),
                }
                Answer::Ok
            }
            Order::PrepareFloor { device, floor } => {
                let address = address_of(self.device(device)?)?;
                let end = FloorEnd::new(floor, address, true)?;
                let sockets = end.sockets()?;
                Answer::FloorPrepared { session: self.keep(Work::Floor(Box::new(end))), sockets }
            }
            Order::ConnectFloor { session, sockets } => {
                match self.session(session)? {
                    Work::Floor(of) => of.connect(&sockets)?,
                    Work::Verbs(_) => return Err(odd("sockets for queue pairs")),
                }
                Answer::Ok
            }
            Order::Begin { session } => return self.round(session, to),
            Order::Stop { .. } => return Err(odd("the end of a round that has not begun")),
            Order::Close { session } => {
                self.session(session)?;
                self.sessions[session] = None;
                Answer::Ok
            }
            Order::Resident => Answer::Resident { bytes: resident() },
        })
    }

    fn device(&self, device: usize) -> Result<&Device, PerfError> {
        self.devices.get(device).ok_or_else(|| odd("a device that is not open"))
    }

    fn session(&mut self, session: usize) -> Result<&mut Work, PerfError> {
        self.sessions
            .get_mut(session)
            .and_then(Option::as_mut)
            .ok_or_else(|| odd("a session that is not there"))
    }

    fn keep(&mut self, work: Work) -> usize {
        self.sessions.push(Some(work));
        self.sessions.len() - 1
    }

    /// Opens the first device whose address nobody has.
    fn open(&mut self, links: &[String], options: &DeviceOptions) -> Result<Answer, PerfError> {
        let builder = super::builder(options);
        let mut taken = None;
        let mut opened = None;
        if let (true, Some(own)) = (links.is_empty(), self.own) {
            opened = Some(own.open(&builder).map_err(VerbError::from)?);
        }
        for link in links {
            let spec: LinkSpec = link.parse().map_err(|_| odd(link))?;
            match builder.clone().open_link(&spec) {
                Ok(device) => {
                    opened = Some(device);
                    break;
                }
                Err(error) if choose::is_taken(&error) => taken = Some(error),
                Err(error) => return Err(VerbError::from(error).into()),
            }
        }
        let Some(device) = opened else {
            return Err(
                taken.map_or(PerfError::NoPeerAddress, |error| VerbError::from(error).into())
            );
        };
        let address: IpAddr = address_of(&device)?;
        let link =
            device.link().map_or_else(|| device.name().to_owned(), |link| link.spec.to_string());
        let mtu = device.query_port().active_mtu.bytes();
        self.devices.push(device);
        Ok(Answer::Opened { link, address, mtu })
    }

    /// A round, from [`Order::Begin`] to [`Order::Stop`], whose answer is returned.
    fn round(&mut self, session: usize, to: &mut dyn Write) -> Result<Answer, PerfError> {
        self.stop.store(false, Ordering::Release);
        let stop = Arc::clone(&self.stop);
        let is_over = || stop.load(Ordering::Acquire);
        let heard =
            |error| PerfError::Host { doing: "nobody hears", at: "the answers".to_owned(), error };
        let result = match self.session(session)? {
            Work::Floor(end) => {
                lines::say(to, &Answer::Begun).map_err(heard)?;
                end.answer(&is_over).map(|(_, received)| (received, None))
            }
            Work::Verbs(of) => {
                of.begin()?;
                lines::say(to, &Answer::Begun).map_err(heard)?;
                serve(of, to, &is_over).map(|()| (Sample::default(), Some(())))
            }
        };
        // The order that ends it is answered even if the round failed, so that orders and answers
        // stay in step.
        let sent = self.await_stop()?;
        let (received, verbs) = result?;
        let verified = match (verbs, self.session(session)?) {
            (Some(()), Work::Verbs(of)) => {
                let verified = of.verify_target(&sent)? + of.verify_requester()?;
                of.end_round();
                verified
            }
            _ => 0,
        };
        Ok(Answer::Stopped { received, verified })
    }

    fn await_stop(&self) -> Result<Vec<Sent>, PerfError> {
        match self.orders.recv() {
            Ok(Order::Stop { sent }) => Ok(sent),
            Ok(order) => Err(PerfError::Protocol(format!("{order:?} inside a round"))),
            Err(_) => Err(odd("nothing more, inside a round")),
        }
    }
}

/// The part of the other end in a round of queue pairs.
fn serve(
    of: &mut Session,
    to: &mut dyn Write,
    is_over: &dyn Fn() -> bool,
) -> Result<(), PerfError> {
    if of.case().bidirectional {
        let limit: Limit = of.case().limit;
        let sample = of.ask(limit)?;
        let sent = of.sent();
        let heard =
            |error| PerfError::Host { doing: "nobody hears", at: "the answers".to_owned(), error };
        lines::say(to, &Answer::Sent { sample, sent }).map_err(heard)?;
        return of.answer(|| Ok(is_over()));
    }
    if of.is_active_target() { of.answer(|| Ok(is_over())) } else { Ok(()) }
}

fn odd(what: &str) -> PerfError {
    PerfError::Protocol(what.to_owned())
}
