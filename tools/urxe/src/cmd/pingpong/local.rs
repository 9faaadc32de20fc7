//! The default run: a peer process on another loopback address, all operations, all bytes verified.
//!
//! Each row of the table moves its messages in bursts:
//!
//! ```text
//! prepare: fill memory, post receives | timed: post, wait for completions | verify every byte
//! ```
//! Each row runs twice: with one outstanding message (latency), and with as many as fit
//! (throughput). Only the middle part is timed.
//!
//! The latency of SEND is half a round trip, because the peer returns each message. For other
//! operations it is the time from post to completion. Over an unreliable service, the peer returns
//! all messages (`echoes`).

mod echoes;

use std::time::{Duration, Instant};

use urxe::{Completion, Device, PathMtu, Remote, RemoteRegion, SendRequest};

use super::endpoint::{Endpoint, EndpointConfig, USUAL_TIMEOUT};
use super::exchange::Address;
use super::protocol::{Burst, Command, Opened, Setup};
use super::report::{Report, Row};
use super::transport::Transport;
use super::{Args, DEPTH, PEER_OPTION, PingpongError, RD_ATOMIC, Wrong, expect};
use crate::output;
use crate::traffic::Wait;
use crate::traffic::device::{self, Choice};
use crate::traffic::error::{TrafficError, unexpected};
use crate::traffic::operation::{ATOMIC_SIZE, Operation};
use crate::traffic::peer::Peer;
use crate::traffic::variables;

/// Bytes of the outstanding messages, unless one message is larger.
const WINDOW_BYTES: usize = 16 << 20;
/// Time between two checks that the peer process is alive.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// Time without a completion after which the run fails.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// The addend of FETCH_ADD.
const ADDEND: u64 = 3;
/// The counter's initial value for an atomic row; additions soon change both halves.
const COUNTER_START: u64 = 0xffff_fff0;

/// The parameters of a run.
#[derive(Debug)]
pub struct Plan {
    /// The device.
    pub choice: Choice,
    /// The largest number of messages of each row and phase.
    pub iterations: u32,
    /// Time limit for each row and phase; `None` for no limit.
    pub budget: Option<Duration>,
    /// The other options.
    pub args: Args,
}

impl Plan {
    /// Runs the plan.
    ///
    /// # Errors
    /// A failed call, or wrong data.
    pub fn run(&self) -> Result<Report, PingpongError> {
        let mut builder = variables::builder()?;
        if let Some(path) = &self.args.capture {
            builder = builder.capture(path).capture_headers(self.args.capture_headers);
        }
        let device = self.choice.open(&builder)?;
        let mut run = Run::start(self, device)?;
        let rows = run.rows(self)?;
        run.finish(rows)
    }

    /// Returns the rows of the table: each size for the operations that have one, then the atomics.
    fn rows(&self, mtu: PathMtu) -> Vec<(Operation, usize)> {
        let (sizes, service) = (self.sizes(mtu), self.args.transport.properties());
        let of = |operation| sizes.iter().map(move |&size| (operation, size));
        let messages = service.operations.iter().flat_map(|&operation| of(operation));
        messages.chain(service.atomics.iter().map(|&operation| (operation, ATOMIC_SIZE))).collect()
    }

    fn sizes(&self, mtu: PathMtu) -> Vec<usize> {
        if let Some(sizes) = &self.args.sizes {
            return sizes.iter().map(|size| size.bytes()).collect();
        }
        let (transport, service) = (self.args.transport, self.args.transport.properties());
        let usual = if self.args.quick { service.quick_sizes } else { service.sizes };
        usual.iter().copied().filter(|&size| size <= transport.max_size(mtu)).collect()
    }

    /// Returns the bytes for the messages of one direction.
    fn window_bytes(&self) -> usize {
        let largest = self.args.sizes.iter().flatten().map(|size| size.bytes()).max().unwrap_or(0);
        // The halves of the region must be aligned for atomics.
        WINDOW_BYTES.max(largest).next_multiple_of(8)
    }
}

/// Returns the number of outstanding messages of `size` bytes.
fn slots(size: usize) -> u32 {
    u32::try_from(WINDOW_BYTES / size).unwrap_or(u32::MAX).clamp(1, DEPTH)
}

/// A run in progress.
struct Run {
    endpoint: Endpoint,
    // Dropped after the endpoint, because the peer must reply while packets may be outstanding.
    peer: Peer,
    /// The peer's region.
    remote: Remote,
    peer_link: String,
    transport: Transport,
    mtu: PathMtu,
    /// The offset of returned data.
    back: usize,
    /// The number of the next message; each number is used once.
    next_message: u64,
}

/// The way in which the messages of a burst are posted.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Each message after the completion of the previous one.
    OneAtATime,
    /// All messages together.
    AllAtOnce,
}

/// The measurements of a phase.
#[derive(Debug, Default)]
struct Measured {
    messages: u64,
    /// The sum of the timed parts.
    elapsed: Duration,
    /// Time of each message, with one outstanding message.
    each: Vec<Duration>,
}

impl Run {
    fn start(plan: &Plan, device: Device) -> Result<Self, PingpongError> {
        let own_mtu = device.query_port().active_mtu;
        let gid_index = device.default_gid_index();
        let window = plan.window_bytes();
        let wait = Wait::by(plan.args.events);
        let transport = plan.args.transport;
        let config = EndpointConfig {
            transport,
            region_bytes: 2 * window,
            depth: DEPTH,
            receives: DEPTH,
            rd_atomic: RD_ATOMIC,
            gid_index,
            timeout: USUAL_TIMEOUT,
            wait,
        };
        let mut endpoint = Endpoint::new(device, config)?;
        let links = device::peer_links(endpoint.address().gid.to_ip())?;
        let setup = Setup { links, transport, region_bytes: window, wait };
        let mut peer = Peer::start(&["pingpong", PEER_OPTION])?;
        let Opened { link, end, mtu: peer_mtu } = peer.call(&Command::Open(setup))?;
        // The two devices may be on links with different MTUs.
        let allowed = PathMtu::at_most(peer_mtu).map_or(own_mtu, |peer_mtu| peer_mtu.min(own_mtu));
        let mtu = plan.args.mtu.unwrap_or(allowed);
        if mtu > allowed {
            return Err(TrafficError::MtuTooLarge { given: mtu, allowed: allowed.bytes() }.into());
        }
        if let Some(size) = plan.sizes(mtu).into_iter().find(|&size| size > transport.max_size(mtu))
        {
            return Err(PingpongError::DatagramTooLong { given: size, mtu });
        }
        let address: Address = end.address.parse().map_err(|_| unexpected(end.address))?;
        let region: RemoteRegion = end.region.parse().map_err(|_| unexpected(end.region))?;
        endpoint.connect(&address, mtu)?;
        peer.call::<()>(&Command::Connect { peer: endpoint.end(), mtu: mtu.bytes() })?;
        let remote = region.into();
        Ok(Self {
            endpoint,
            peer,
            remote,
            peer_link: link,
            transport,
            mtu,
            back: window,
            next_message: 1,
        })
    }

    fn rows(&mut self, plan: &Plan) -> Result<Vec<Row>, PingpongError> {
        let wanted = plan.rows(self.mtu);
        let bar = output::progress_bar(wanted.len());
        let mut rows = Vec::new();
        for (operation, size) in wanted {
            bar.set_message(format!("{operation} {size} B"));
            rows.push(self.row(plan, operation, size)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    fn finish(mut self, rows: Vec<Row>) -> Result<Report, PingpongError> {
        let peer_retries: u64 = self.peer.call(&Command::Count)?;
        let device = self.endpoint.device();
        Ok(Report {
            device: device::link_of(device),
            peer: self.peer_link.clone(),
            transport: self.transport,
            mtu: self.mtu.bytes(),
            retries: device::retries_of(device) + peer_retries,
            rows,
        })
    }

    fn row(
        &mut self,
        plan: &Plan,
        operation: Operation,
        size: usize,
    ) -> Result<Row, PingpongError> {
        let returns = operation == Operation::Send || !self.transport.is_reliable();
        let alone = |run: &mut Self, burst| match returns {
            true => run.echo(operation, burst, 1),
            false => run.burst(operation, burst, Pace::OneAtATime),
        };
        let latency = self.phase(plan, alone, size)?;
        let together = |run: &mut Self, burst| match run.transport.is_reliable() {
            true => run.burst(operation, burst, Pace::AllAtOnce),
            false => run.echo(operation, burst, echoes::in_flight(size)),
        };
        let throughput = self.phase(plan, together, size)?;
        Ok(Row::new(operation, size, latency.each, throughput.messages, throughput.elapsed))
    }

    /// Runs bursts until the message count or the time limit is reached.
    fn phase(
        &mut self,
        plan: &Plan,
        mut burst: impl FnMut(&mut Self, Burst) -> Result<Measured, PingpongError>,
        size: usize,
    ) -> Result<Measured, PingpongError> {
        let start = Instant::now();
        let mut all = Measured::default();
        while all.messages < u64::from(plan.iterations) {
            let left = u64::from(plan.iterations) - all.messages;
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(slots(size));
            let first = self.next_message;
            self.next_message += u64::from(count);
            let measured = burst(self, Burst { size, first, count })?;
            all.messages += u64::from(count);
            all.elapsed += measured.elapsed;
            all.each.extend(measured.each);
            if plan.budget.is_some_and(|budget| start.elapsed() > budget) {
                break;
            }
        }
        Ok(all)
    }

    fn command(&mut self, what: Command) -> Result<(), PingpongError> {
        Ok(self.peer.call(&what)?)
    }

    /// Prepares, moves and verifies one burst.
    fn burst(
        &mut self,
        operation: Operation,
        burst: Burst,
        pace: Pace,
    ) -> Result<Measured, PingpongError> {
        match operation {
            Operation::Send => self.command(Command::Receive(burst))?,
            Operation::Read => self.command(Command::Fill(burst))?,
            Operation::Write | Operation::WriteImm => {}
            Operation::FetchAdd | Operation::CmpSwap => {
                self.command(Command::SetCounter(COUNTER_START))?;
            }
        }
        if matches!(operation, Operation::Send | Operation::Write) {
            for (message, offset) in burst.slots() {
                self.endpoint.fill(offset, message, burst.size)?;
            }
        }
        let measured = match pace {
            Pace::OneAtATime => self.one_at_a_time(operation, burst)?,
            Pace::AllAtOnce => self.all_at_once(operation, burst)?,
        };
        match operation {
            Operation::Send => self.command(Command::CheckReceived(burst))?,
            Operation::Write | Operation::WriteImm => self.command(Command::CheckWritten(burst))?,
            Operation::Read => {
                for (message, offset) in burst.slots() {
                    self.endpoint.check(self.back + offset, message, burst.size)?;
                }
            }
            Operation::FetchAdd | Operation::CmpSwap => self.check_atomics(operation, burst)?,
        }
        Ok(measured)
    }

    fn one_at_a_time(
        &mut self,
        operation: Operation,
        burst: Burst,
    ) -> Result<Measured, PingpongError> {
        let mut measured = Measured::default();
        for (nr, (message, offset)) in (0..).zip(burst.slots()) {
            let request = self.request(operation, nr, offset, offset, burst.size)?;
            let start = Instant::now();
            self.endpoint.post(message, request)?;
            let completion = self.next()?;
            measured.each.push(start.elapsed());
            expect(&completion, message)?;
        }
        Ok(measured)
    }

    fn all_at_once(
        &mut self,
        operation: Operation,
        burst: Burst,
    ) -> Result<Measured, PingpongError> {
        let start = Instant::now();
        let numbered = (0..).zip(burst.slots());
        let requests = numbered.map(|(nr, (message, offset))| {
            Ok(self.request(operation, nr, offset, offset, burst.size)?.wr_id(message))
        });
        self.endpoint.post_batch(&requests.collect::<Result<Vec<_>, TrafficError>>()?)?;
        for (message, _) in burst.slots() {
            expect(&self.next()?, message)?;
        }
        Ok(Measured { elapsed: start.elapsed(), ..Measured::default() })
    }

    /// Returns the work request of message `nr` of a burst, with the local offset `here` and the
    /// remote offset `there`.
    fn request(
        &self,
        operation: Operation,
        nr: u32,
        here: usize,
        there: usize,
        size: usize,
    ) -> Result<SendRequest<'_>, TrafficError> {
        let remote = Remote { addr: self.remote.addr + there as u64, ..self.remote };
        let source = || self.endpoint.slice(here, size);
        let target = || self.endpoint.slice(self.back + here, size);
        Ok(match operation {
            Operation::Send => SendRequest::send(source()?),
            Operation::Write => SendRequest::write(source()?, remote),
            Operation::WriteImm => SendRequest::write_imm(source()?, remote, nr),
            Operation::Read => SendRequest::read(target()?, remote),
            Operation::FetchAdd => SendRequest::fetch_add(target()?, self.remote, ADDEND),
            Operation::CmpSwap => {
                let (compare, swap) = compare_and_swap(nr);
                SendRequest::compare_swap(target()?, self.remote, compare, swap)
            }
        })
    }

    /// Checks that each atomic operation returned the value that its predecessor stored, and that
    /// the final value is correct.
    fn check_atomics(&mut self, operation: Operation, burst: Burst) -> Result<(), PingpongError> {
        let mut expected = COUNTER_START;
        for (nr, (message, offset)) in (0..).zip(burst.slots()) {
            let found = self.endpoint.region().load_u64(self.back + offset)?;
            if found != expected {
                return Err(Wrong::Atomic { message, found, expected }.into());
            }
            let (compare, swap) = compare_and_swap(nr);
            expected = match operation {
                Operation::CmpSwap if expected == compare => swap,
                Operation::CmpSwap => expected,
                _ => expected.wrapping_add(ADDEND),
            };
        }
        self.command(Command::CheckCounter(expected))
    }

    /// Returns the next completion. Checks periodically that the peer process is alive.
    fn next(&mut self) -> Result<Completion, PingpongError> {
        let start = Instant::now();
        loop {
            match self.endpoint.next(LOOK_AFTER) {
                Ok(Some(completion)) => return Ok(completion),
                Ok(None) if start.elapsed() > STALL_LIMIT => {
                    return Err(PingpongError::silence(self.transport, STALL_LIMIT));
                }
                Ok(None) => self.peer.check_alive()?,
                Err(error) => {
                    // The end of the peer process is the cause.
                    self.peer.check_alive()?;
                    return Err(error.into());
                }
            }
        }
    }
}

/// Returns the compare and swap values of the `nr`-th CMP_SWAP of a burst. Each fourth compare
/// value is wrong, so the counter must stay unchanged.
fn compare_and_swap(nr: u32) -> (u64, u64) {
    let hits = u64::from(nr - nr / 4);
    let there = COUNTER_START + hits;
    if nr % 4 == 3 { (!there, 0) } else { (there, there + 1) }
}
