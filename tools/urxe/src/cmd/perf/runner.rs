//! The measuring end: the devices of both ends, and comparisons between cases and floors.
//!
//! A comparison runs its workloads alternately, A B C A B C ..., and uses the median of each. Other
//! load on the machine affects all workloads, so their ratios are stable even where the figures are
//! not.

use std::time::Duration;

use urxe::{Counter, Device, PathMtu};

use super::case::{Case, Limit, Metric};
use super::error::PerfError;
use super::floor::{Floor, FloorEnd};
use super::protocol::{Command, DeviceOptions, Ends, Opened, Sent, Sockets};
use super::session::{Session, Work};
use super::statistics::{Sample, median_sample};
use super::{builder, resident, verify};
use crate::traffic::device::{self, Choice, address_of};
use crate::traffic::error::TrafficError;
use crate::traffic::peer::{Peer, ProcessError};

/// The divisor of a round's duration for the warm-up.
const WARM_UP_DIVISOR: u32 = 10;

/// The address of the second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Addresses {
    /// The address of the first process
    One,
    /// Another address
    Two,
}

/// A workload of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Queue pairs.
    Case {
        /// The number of the pair of devices.
        devices: usize,
        /// The case.
        case: Case,
    },
    /// A floor.
    Floor(Floor),
}

impl Workload {
    /// Returns how long its round takes, about; counted messages are taken for a second.
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

/// The result of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The median.
    pub median: Sample,
    /// Each round.
    pub rounds: Vec<Sample>,
    /// Messages whose bytes were verified.
    pub verified: u64,
}

/// A pair of devices.
struct Pair {
    device: Device,
    peer_link: String,
    mtu: usize,
}

/// Both ends. The peer is dropped last, because it must reply while packets may be outstanding.
pub struct Runner {
    pairs: Vec<Pair>,
    peer: Peer,
}

/// A prepared workload.
struct Prepared {
    session: usize,
    work: Work,
}

impl Runner {
    /// Returns a runner with this peer and no device.
    pub const fn new(peer: Peer) -> Self {
        Self { pairs: Vec::new(), peer }
    }

    /// Opens a device here and one at the other end. Returns the number of the pair.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open(
        &mut self,
        choice: &Choice,
        options: &DeviceOptions,
        addresses: Addresses,
    ) -> Result<usize, PerfError> {
        let device = choice.open(&builder(options)?)?;
        let links = match addresses {
            Addresses::One => own_link(&device),
            Addresses::Two => device::peer_links(address_of(&device)?)?,
        };
        self.pair(device, links, options)
    }

    /// Adds a pair of an open device and one on the same address at the other end.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn open_on_one_address(
        &mut self,
        beside: usize,
        options: &DeviceOptions,
    ) -> Result<usize, PerfError> {
        let device = self.pairs[beside].device.clone();
        let links = own_link(&device);
        self.pair(device, links, options)
    }

    /// Adds a pair of this device and one at the other end. The other end opens the first of
    /// `links` whose address is free, or the device of the listening host if there are none.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn pair(
        &mut self,
        device: Device,
        links: Vec<String>,
        options: &DeviceOptions,
    ) -> Result<usize, PerfError> {
        let opened: Opened = self.peer.call(&Command::Open { links, options: options.clone() })?;
        let mtu = device.query_port().active_mtu.bytes().min(opened.mtu);
        self.pairs.push(Pair { device, peer_link: opened.link, mtu });
        Ok(self.pairs.len() - 1)
    }

    /// Checks that `mtu` fits a pair of devices. Returns the largest path MTU if `mtu` is `None`.
    ///
    /// # Errors
    /// [`PerfError::MtuTooLarge`].
    pub fn fitting_mtu(&self, devices: usize, mtu: Option<PathMtu>) -> Result<usize, PerfError> {
        let allowed = self.pairs[devices].mtu;
        match mtu {
            Some(given) if given.bytes() > allowed => {
                Err(TrafficError::MtuTooLarge { given, allowed }.into())
            }
            Some(given) => Ok(given.bytes()),
            None => Ok(allowed),
        }
    }

    /// Returns the links of a pair of devices.
    pub fn links(&self, devices: usize) -> (String, String) {
        let pair = &self.pairs[devices];
        (device::link_of(&pair.device), pair.peer_link.clone())
    }

    /// Returns the retransmissions of this end's device.
    pub fn retries(&self, devices: usize) -> u64 {
        device::retries_of(&self.pairs[devices].device)
    }

    /// Returns the packets that this end's device received through shared memory.
    pub fn received_in_memory(&self, devices: usize) -> u64 {
        self.pairs[devices].device.counter(Counter::RcvdInMemory)
    }

    /// Returns the most memory that either process has had in use, in bytes.
    ///
    /// # Errors
    /// [`PerfError::Process`].
    pub fn resident(&mut self) -> Result<u64, PerfError> {
        let bytes: u64 = self.peer.call(&Command::Resident)?;
        Ok(bytes.max(resident()))
    }

    /// Runs the workloads alternately, `rounds` times. Calls `on_round` before each round.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn compare(
        &mut self,
        workloads: &[Workload],
        rounds: u32,
        mut on_round: impl FnMut(&Workload),
    ) -> Result<Vec<Outcome>, PerfError> {
        let mut prepared = Vec::new();
        for workload in workloads {
            prepared.push(self.prepare(workload)?);
        }
        let mut outcomes = vec![Outcome::default(); workloads.len()];
        for _ in 0..rounds {
            for ((workload, prepared), outcome) in
                workloads.iter().zip(&mut prepared).zip(&mut outcomes)
            {
                on_round(workload);
                let (sample, verified) = self.round(prepared)?;
                outcome.rounds.push(sample);
                outcome.verified += verified;
            }
        }
        for Prepared { session, work } in prepared {
            drop(work);
            self.peer.call::<()>(&Command::Close { session })?;
        }
        for outcome in &mut outcomes {
            outcome.median = median_sample(&outcome.rounds);
        }
        Ok(outcomes)
    }

    fn prepare(&mut self, workload: &Workload) -> Result<Prepared, PerfError> {
        match *workload {
            Workload::Case { devices, case } => {
                let mut of = Session::new(&self.pairs[devices].device, case)?;
                let (session, ends): (usize, Ends) =
                    self.peer.call(&Command::Prepare { device: devices, case })?;
                of.end.connect(&ends)?;
                self.peer.call::<()>(&Command::Connect { session, ends: of.end.ends() })?;
                Ok(Prepared { session, work: Work::Verbs(Box::new(of)) })
            }
            Workload::Floor(floor) => {
                let mut end = FloorEnd::new(floor, address_of(&self.pairs[0].device)?, false)?;
                let (session, sockets): (usize, Sockets) =
                    self.peer.call(&Command::PrepareFloor { device: 0, floor })?;
                end.connect(&sockets)?;
                let sockets = end.sockets()?;
                self.peer.call::<()>(&Command::ConnectFloor { session, sockets })?;
                Ok(Prepared { session, work: Work::Floor(Box::new(end)) })
            }
        }
    }

    fn round(&mut self, prepared: &mut Prepared) -> Result<(Sample, u64), PerfError> {
        if let Work::Verbs(of) = &mut prepared.work {
            of.begin()?;
        }
        self.peer.call::<()>(&Command::Begin { session: prepared.session })?;
        match &mut prepared.work {
            Work::Verbs(of) => verbs_round(&mut self.peer, of),
            Work::Floor(end) => {
                let (sent, received_here) = end.measure()?;
                let (received, _) = stop(&mut self.peer, Vec::new())?;
                Ok((floor_figure(sent, received, received_here), 0))
            }
        }
    }
}

/// Returns the link of a device, if any.
fn own_link(device: &Device) -> Vec<String> {
    device.link().map(|link| link.spec.to_string()).into_iter().collect()
}

/// Returns the figure of a floor's round: the received data of a stream, or the times of a
/// ping-pong.
fn floor_figure(sent: Sample, received: Sample, received_here: Sample) -> Sample {
    if sent.usec.is_some() {
        return sent;
    }
    let lost = 1.0 - received.messages as f64 / sent.messages.max(1) as f64;
    Sample { lost: lost.clamp(0.0, 1.0), ..received.with(received_here) }
}

/// Ends the round at the other end. Returns its received data and the number of verified messages.
fn stop(peer: &mut Peer, sent: Vec<Sent>) -> Result<(Sample, u64), ProcessError> {
    peer.call(&Command::Stop { sent })
}

fn verbs_round(peer: &mut Peer, of: &mut Session) -> Result<(Sample, u64), PerfError> {
    let case = of.end.case;
    // The warm-up messages count as verified, but not for the time. A case with a message count has
    // no warm-up.
    if let Some(time) = case.limit.time().filter(|_| !case.bidirectional) {
        measure(peer, of, Limit::after(time / WARM_UP_DIVISOR))?;
    }
    let mut sample = measure(peer, of, case.limit)?;
    let mut verified = 0;
    if case.bidirectional {
        let mut other = None;
        of.respond(|| {
            other = peer.try_receive::<(Sample, Vec<Sent>)>()?;
            Ok(other.is_some())
        })?;
        if let Some((there, sent)) = other {
            sample = sample.with(there);
            verified += verify::target(of, &sent)?;
        }
    }
    let (_, there) = stop(peer, of.states.sent())?;
    verified += there + verify::requester(of)?;
    if case.metric == Metric::Latency && case.operation.is_ping_pong() {
        // The peer replied to each message with one message.
        verified += verify::target(of, &of.states.sent())?;
    }
    of.end_round();
    Ok((sample, verified))
}

/// Measures. If the other end has failed, returns its error, because that is the cause.
fn measure(peer: &mut Peer, of: &mut Session, limit: Limit) -> Result<Sample, PerfError> {
    of.measure(limit).map_err(|error| match stop(peer, Vec::new()) {
        Err(there @ (ProcessError::Failed(_) | ProcessError::Ended { .. })) => there.into(),
        _ => error,
    })
}

/// Returns the time that comparisons of these rounds take, about.
pub fn budget(workloads: &[Workload], rounds: u32) -> Duration {
    workloads.iter().map(Workload::round).sum::<Duration>() * rounds
}
