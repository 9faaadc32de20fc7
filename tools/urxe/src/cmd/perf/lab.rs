//! The end that measures: both ends' devices, and contests between cases and floors.
//!
//! A contest runs its contenders in turn, A B C A B C ..., and takes the median of each: what the
//! machine does meanwhile hits all alike, so that their ratios hold where the figures alone would
//! not.

use std::net::IpAddr;
use std::time::Duration;

use urxe::{Device, PathMtu};

use super::case::{Case, Limit, Metric};
use super::error::PerfError;
use super::floor::{Floor, FloorEnd};
use super::protocol::{Answer, DeviceOptions, Order, Sockets};
use super::session::Session;
use super::statistics::{Sample, median_sample};
use super::{address_of, builder, resident};
use crate::cmd::common::choose::{self, Choice};
use crate::cmd::common::peer::{ANSWER_LIMIT, Peer, ProcessError};
use crate::cmd::common::verb_error::VerbError;

/// Part of a round that runs before the clock does.
const WARM_UP_DIVISOR: u32 = 10;

/// Where the second process has its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Addresses {
    /// On the address of the first
    One,
    /// On another address
    Two,
}

/// Who takes part in a contest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// Queue pairs.
    Case {
        /// Which pair of devices.
        devices: usize,
        /// What.
        case: Case,
    },
    /// A floor.
    Floor(Floor),
}

impl Contender {
    /// How long its round takes, about; counted messages are taken for a second.
    pub fn round(&self) -> Duration {
        match self {
            Self::Case { case, .. } => {
                let time = case.limit.time().unwrap_or(Duration::from_secs(1));
                time + time / WARM_UP_DIVISOR
            }
            Self::Floor(floor) => floor.round(),
        }
    }
}

/// What a contender did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The median.
    pub median: Sample,
    /// Each round.
    pub rounds: Vec<Sample>,
    /// Messages whose bytes were compared and were right.
    pub verified: u64,
}

/// A pair of devices.
struct Pair {
    device: Device,
    peer_link: String,
    mtu: usize,
}

/// Both ends. The peer is dropped last: it answers as long as anything may be on the way.
pub struct Lab {
    pairs: Vec<Pair>,
    peer: Peer<Answer>,
}

enum Work {
    Verbs(Box<Session>),
    Floor(Box<FloorEnd>),
}

/// A contender that is ready.
struct Entered {
    session: usize,
    work: Work,
}

impl Lab {
    /// With this other end, and no device yet.
    pub const fn new(peer: Peer<Answer>) -> Self {
        Self { pairs: Vec::new(), peer }
    }

    /// Opens a device here and one at the other end; returns their number.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open(
        &mut self,
        choice: &Choice,
        options: &DeviceOptions,
        addresses: Addresses,
    ) -> Result<usize, PerfError> {
        let device = choice.open(&builder(options)).map_err(VerbError::from)?;
        let links = match addresses {
            Addresses::One => device.link().map(|link| link.spec.clone()).into_iter().collect(),
            Addresses::Two => choose::peers_of(address_of(&device)?).map_err(VerbError::from)?,
        };
        if links.is_empty() {
            return Err(PerfError::NoPeerAddress);
        }
        self.pair(device, links.iter().map(ToString::to_string).collect(), options)
    }

    /// Another pair of a device that is open here and one on the same address at the other end.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open_on_one_address(
        &mut self,
        beside: usize,
        options: &DeviceOptions,
    ) -> Result<usize, PerfError> {
        let device = self.pairs[beside].device.clone();
        let links = device.link().map(|link| link.spec.to_string()).into_iter().collect();
        self.pair(device, links, options)
    }

    /// The same with another host, which opens the device that it was told to.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open_here(
        &mut self,
        device: Device,
        options: &DeviceOptions,
    ) -> Result<usize, PerfError> {
        self.pair(device, Vec::new(), options)
    }

    fn pair(
        &mut self,
        device: Device,
        links: Vec<String>,
        options: &DeviceOptions,
    ) -> Result<usize, PerfError> {
        let order = Order::Open { links, options: options.clone() };
        let (peer_link, peer_mtu) = match self.peer.ask(&order, ANSWER_LIMIT)? {
            Answer::Opened { link, mtu, .. } => (link, mtu),
            answer => return Err(ProcessError::unexpected(&order, &answer).into()),
        };
        let mtu = device.query_port().active_mtu.bytes().min(peer_mtu);
        self.pairs.push(Pair { device, peer_link, mtu });
        Ok(self.pairs.len() - 1)
    }

    /// The largest path MTU of a pair of devices, in bytes.
    pub fn mtu(&self, devices: usize) -> usize {
        self.pairs[devices].mtu
    }

    /// That `mtu` fits a pair of devices; their largest if `None`.
    ///
    /// # Errors
    /// [`PerfError::MtuTooLarge`].
    pub fn fitting_mtu(&self, devices: usize, mtu: Option<PathMtu>) -> Result<usize, PerfError> {
        let allowed = self.mtu(devices);
        match mtu {
            Some(given) if given.bytes() > allowed => {
                Err(PerfError::MtuTooLarge { given, allowed })
            }
            Some(given) => Ok(given.bytes()),
            None => Ok(allowed),
        }
    }

    /// The links of a pair of devices.
    pub fn links(&self, devices: usize) -> (String, String) {
        let pair = &self.pairs[devices];
        let own = pair
            .device
            .link()
            .map_or_else(|| pair.device.name().to_owned(), |link| link.spec.to_string());
        (own, pair.peer_link.clone())
    }

    /// What each counter of this end's device counted.
    pub fn retries(&self, devices: usize) -> u64 {
        self.pairs[devices].device.counter(urxe::Counter::CompleterRetryErr)
    }

    /// The most memory that either process has had in use, in bytes.
    ///
    /// # Errors
    /// [`PerfError::Process`].
    pub fn resident(&mut self) -> Result<u64, PerfError> {
        match self.peer.ask(&Order::Resident, ANSWER_LIMIT)? {
            Answer::Resident { bytes } => Ok(bytes.max(resident())),
            answer => Err(ProcessError::unexpected(&Order::Resident, &answer).into()),
        }
    }

    /// Runs the contenders in turn, so many times. `told` hears of each round before it.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn contest(
        &mut self,
        contenders: &[Contender],
        rounds: u32,
        mut told: impl FnMut(&Contender),
    ) -> Result<Vec<Outcome>, PerfError> {
        let mut entered = Vec::new();
        for contender in contenders {
            entered.push(self.enter(contender)?);
        }
        let mut outcomes =
            vec![
                Outcome { median: Sample::default(), rounds: Vec::new(), verified: 0 };
                contenders.len()
            ];
        for _ in 0..rounds {
            for ((contender, entered), outcome) in
                contenders.iter().zip(&mut entered).zip(&mut outcomes)
            {
                told(contender);
                let (sample, verified) = self.round(entered)?;
                outcome.rounds.push(sample);
                outcome.verified += verified;
            }
        }
        for Entered { session, work } in entered {
            drop(work);
            self.order(Order::Close { session })?;
        }
        for outcome in &mut outcomes {
            outcome.median = median_sample(&outcome.rounds);
        }
        Ok(outcomes)
    }

    fn order(&mut self, order: Order) -> Result<(), PerfError> {
        match self.peer.ask(&order, ANSWER_LIMIT)? {
            Answer::Ok => Ok(()),
            answer => Err(ProcessError::unexpected(&order, &answer).into()),
        }
    }

    fn enter(&mut self, contender: &Contender) -> Result<Entered, PerfError> {
        match *contender {
            Contender::Case { devices, case } => {
                let mut of = Session::new(&self.pairs[devices].device, case)?;
                let order = Order::Prepare { device: devices, case };
                let (session, ends) = match self.peer.ask(&order, ANSWER_LIMIT)? {
                    Answer::Prepared { session, ends } => (session, ends),
                    answer => return Err(ProcessError::unexpected(&order, &answer).into()),
                };
                of.connect(&ends)?;
                self.order(Order::Connect { session, ends: of.ends() })?;
                Ok(Entered { session, work: Work::Verbs(Box::new(of)) })
            }
            Contender::Floor(floor) => {
                let address: IpAddr = address_of(&self.pairs[0].device)?;
                let mut end = FloorEnd::new(floor, address, false)?;
                let order = Order::PrepareFloor { device: 0, floor };
                let (session, sockets) = match self.peer.ask(&order, ANSWER_LIMIT)? {
                    Answer::FloorPrepared { session, sockets } => (session, sockets),
                    answer => return Err(ProcessError::unexpected(&order, &answer).into()),
                };
                end.connect(&sockets)?;
                let own: Sockets = end.sockets()?;
                self.order(Order::ConnectFloor { session, sockets: own })?;
                Ok(Entered { session, work: Work::Floor(Box::new(end)) })
            }
        }
    }

    fn round(&mut self, entered: &mut Entered) -> Result<(Sample, u64), PerfError> {
        if let Work::Verbs(of) = &mut entered.work {
            of.begin()?;
        }
        let order = Order::Begin { session: entered.session };
        match self.peer.ask(&order, ANSWER_LIMIT)? {
            Answer::Begun => {}
            answer => return Err(ProcessError::unexpected(&order, &answer).into()),
        }
        match &mut entered.work {
            Work::Verbs(of) => verbs_round(&mut self.peer, of),
            Work::Floor(end) => {
                let (sent, received_here) = end.ask()?;
                let (received, _) = stop(&mut self.peer, Vec::new())?;
                Ok((floor_figure(sent, received, received_here), 0))
            }
        }
    }
}

/// What a floor's round is worth: a stream, what arrived; a message to and fro, its times.
fn floor_figure(sent: Sample, received: Sample, received_here: Sample) -> Sample {
    if sent.usec.is_some() {
        return sent;
    }
    let lost = 1.0 - received.messages as f64 / sent.messages.max(1) as f64;
    Sample { lost: lost.clamp(0.0, 1.0), ..received.with(received_here) }
}

/// Ends the round at the other end: what was received there, and the messages compared.
fn stop(
    peer: &mut Peer<Answer>,
    sent: Vec<super::protocol::Sent>,
) -> Result<(Sample, u64), PerfError> {
    let order = Order::Stop { sent };
    match peer.ask(&order, ANSWER_LIMIT)? {
        Answer::Stopped { received, verified } => Ok((received, verified)),
        answer => Err(ProcessError::unexpected(&order, &answer).into()),
    }
}

fn verbs_round(peer: &mut Peer<Answer>, of: &mut Session) -> Result<(Sample, u64), PerfError> {
    let case = *of.case();
    // Its messages count for what is verified, not for the time. Where messages are counted, all of
    // them are.
    if let Some(time) = case.limit.time().filter(|_| !case.bidirectional) {
        ask(peer, of, Limit::after(time / WARM_UP_DIVISOR))?;
    }
    let mut sample = ask(peer, of, case.limit)?;
    let mut verified = 0;
    if case.bidirectional {
        let mut other = None;
        of.answer(|| {
            if let Some(Answer::Sent { sample, sent }) = peer.try_hear()? {
                other = Some((sample, sent));
            }
            Ok(other.is_some())
        })?;
        if let Some((there, sent)) = other {
            sample = sample.with(there);
            verified += of.verify_target(&sent)?;
        }
    }
    let (_, there) = stop(peer, of.sent())?;
    verified += there + of.verify_requester()?;
    if case.metric == Metric::Latency && case.operation.is_ping_pong() {
        // Each message was answered by one.
        verified += of.verify_target(&of.sent())?;
    }
    of.end_round();
    Ok((sample, verified))
}

/// Asks. When it fails because the other end has failed, that is the better reason.
fn ask(peer: &mut Peer<Answer>, of: &mut Session, limit: Limit) -> Result<Sample, PerfError> {
    of.ask(limit).map_err(|error| match stop(peer, Vec::new()) {
        Err(PerfError::Process(there @ (ProcessError::Failed(_) | ProcessError::Ended { .. }))) => {
            there.into()
        }
        _ => error,
    })
}

/// Time that contests of these rounds take, about.
pub fn budget(contenders: &[Contender], rounds: u32) -> Duration {
    contenders.iter().map(Contender::round).sum::<Duration>() * rounds
}
