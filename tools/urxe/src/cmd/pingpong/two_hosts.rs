//! Two hosts that exchange SENDs. The protocol is that of `ibv_rc_pingpong`, `ibv_uc_pingpong` or
//! `ibv_ud_pingpong`, so either end may be that program.
//!
//! ```text
//! both:   post rx_depth receives, exchange addresses over TCP, connect
//! client: SEND 0 ->            server: receive 0, then SEND 0 back, then receive 1, ...
//! both:   post the next SEND when the last one completed and a message arrived,
//!         until n messages went each way
//! ```
//! UC and UD do not retransmit lost messages. Then both ends time out and report the loss.
//!
//! # Verification
//! Each of these programs uses one buffer for both directions, so each message that it sends is the
//! last one that it received. With `-c` the client sends 0 as the first byte of each page, and the
//! server checks those bytes at the end. Therefore:
//!
//! * The client sends a new pattern each time, with these zeros, and verifies that each message
//!   returns unchanged.
//! * The server compares the first message with such a pattern and with the message of
//!   `ibv_rc_pingpong` (0x7b, zeros with `-c`). If the pattern matches, the server verifies each
//!   message and returns it. Otherwise the server replies with its own patterns, and verifies that
//!   the client returns each of them.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use urxe::{AckTimeout, Device, Gid, PathMtu, SendRequest};

use super::endpoint::{Endpoint, EndpointConfig, USUAL_TIMEOUT};
use super::exchange::{self, Address, Exchange, ExchangeError};
use super::summary::Summary;
use super::transport::Transport;
use super::{Args, PingpongError, Wrong, expect_success, many};
use crate::traffic::device::Choice;
use crate::traffic::error::TrafficError;
use crate::traffic::variables;
use crate::traffic::{Wait, pattern};

/// The initial value of the buffer of `ibv_rc_pingpong`.
const FILL: u8 = 0x7b;
/// The page size of `ibv_rc_pingpong`, or a part of it.
const PAGE: usize = 4096;
/// Outstanding READs and atomics that `ibv_rc_pingpong` requests; it uses none.
const RD_ATOMIC: u8 = 1;
/// Time without a completion after which the run fails.
pub const STALL_LIMIT: Duration = Duration::from_secs(10);
/// Local ACK timeout with `--patient`: 4.3 s.
const PATIENT_TIMEOUT: AckTimeout = AckTimeout::at_least(4096 << 20);
/// Time that an end stays after its last message: three times the acknowledgement timeout of the
/// other end.
pub const LINGER: Duration = Duration::from_millis(200);
/// The identifier of sends, above the numbers of messages.
const SEND: u64 = 1 << 32;

/// An end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server, which waits for the client.
    Server,
    /// The client, which connects to the server at this host.
    Client(String),
}

/// The parameters of a run.
#[derive(Debug)]
pub struct Plan {
    /// The role of this end.
    pub role: Role,
    /// The device.
    pub choice: Choice,
    /// Bytes of a message.
    pub size: usize,
    /// Messages each way.
    pub iterations: u32,
    /// The other options.
    pub args: Args,
}

/// Receives status messages during a run.
pub trait Status {
    /// Reports that the server waits for its client.
    fn listening(&mut self, on: std::net::SocketAddr);
    /// Reports that the addresses are exchanged.
    fn exchanged(&mut self, local: &Address, remote: &Address);
}

impl Plan {
    /// Runs the plan.
    ///
    /// # Errors
    /// A failed call, or wrong data.
    pub fn run(&self, status: &mut dyn Status) -> Result<Summary, PingpongError> {
        let mut builder = variables::builder()?;
        if let Some(path) = &self.args.capture {
            builder = builder.capture(path).capture_headers(self.args.capture_headers);
        }
        if self.args.patient {
            builder = builder.early_timeout_min(Duration::MAX);
        }
        let device = self.choice.open(&builder)?;
        let allowed = device.query_port().active_mtu;
        let mtu = self.mtu_on(&device);
        if mtu > allowed {
            return Err(TrafficError::MtuTooLarge { given: mtu, allowed: allowed.bytes() }.into());
        }
        if self.size > self.args.transport.max_size(mtu) {
            return Err(PingpongError::DatagramTooLong { given: self.size, mtu });
        }
        let entries = device.query_port().gids.len();
        if let Some(given) = self.args.gid_idx.filter(|index| usize::from(*index) >= entries) {
            return Err(PingpongError::NoSuchGid { given, entries });
        }
        if let Some(qps) = self.args.srq {
            return many::run(self, &device, qps, status);
        }
        let endpoint = |gid_index| self.endpoint(device.clone(), gid_index);
        let mut endpoint = self.meet(&device, status, endpoint)?;
        let start = Instant::now();
        MessageLoop::new(self).run(&mut endpoint)?;
        let elapsed = start.elapsed();
        // If the last acknowledgement is lost, the peer retransmits and needs a reply.
        std::thread::sleep(LINGER);
        Ok(Summary::new(self.args.transport, self.size, self.iterations, elapsed, &device))
    }

    /// Returns the path MTU.
    fn mtu_on(&self, device: &Device) -> PathMtu {
        let usual = match self.args.transport {
            Transport::Rc | Transport::Uc => PathMtu::Mtu1024,
            Transport::Ud => device.query_port().active_mtu,
        };
        self.args.mtu.unwrap_or(usual)
    }

    /// Returns the local ACK timeout of its queue pairs.
    pub fn timeout(&self) -> AckTimeout {
        if self.args.patient { PATIENT_TIMEOUT } else { USUAL_TIMEOUT }
    }

    /// Server: waits for a client.
    fn accept(&self, device: &Device, status: &mut dyn Status) -> Result<Exchange, PingpongError> {
        let bound =
            device.query_port().gids.iter().find(|gid| gid.assigned).map(|gid| gid.gid.to_ip());
        let listener: TcpListener =
            exchange::listen(bound.unwrap_or_else(|| Gid::ZERO.to_ip()), self.args.port)?;
        if let Ok(address) = listener.local_addr() {
            status.listening(address);
        }
        Ok(Exchange::accept(&listener)?)
    }

    /// Client: connects to the server.
    fn reach(&self, host: &str) -> Result<Exchange, PingpongError> {
        let exchange = Exchange::connect(host, self.args.port)?;
        if self.choice.is_built_in() && !exchange.local().is_loopback() {
            return Err(PingpongError::LoopbackOnly {
                host: exchange.peer(),
                local: exchange.local(),
            });
        }
        Ok(exchange)
    }

    /// Creates this end, exchanges addresses with the other end, and connects. A peer without a GID
    /// index sends a zero GID; then its address on the TCP connection is used.
    pub fn meet<E: End>(
        &self,
        device: &Device,
        status: &mut dyn Status,
        new: impl FnOnce(u8) -> Result<E, TrafficError>,
    ) -> Result<E, PingpongError> {
        let mut exchange = match &self.role {
            Role::Server => self.accept(device, status)?,
            Role::Client(host) => self.reach(host)?,
        };
        let mut end = new(self.own_gid(device, &exchange))?;
        let local = end.addresses();
        let mut remote = Vec::new();
        let is_client = self.role != Role::Server;
        if is_client {
            send(&mut exchange, &local, E::ADDRESSES)?;
        }
        for nr in 0..E::ADDRESSES {
            match exchange.receive() {
                Ok(address) if nr < local.len() => remote.push(address),
                // Addresses beyond this end's queue pairs are ignored.
                Err(ExchangeError::NotAnAddress { .. }) if nr >= local.len() => {}
                address => drop(address?),
            }
        }
        if is_client {
            exchange.send_done()?;
        }
        let with_gid = |address: &Address| match address.gid {
            Gid::ZERO => Address { gid: Gid::from_ip(exchange.peer()), ..*address },
            _ => *address,
        };
        let peers: Vec<_> = remote.iter().map(with_gid).collect();
        end.connect(&peers, self.mtu_on(device))?;
        if !is_client {
            send(&mut exchange, &local, E::ADDRESSES)?;
            exchange.receive_done()?;
        }
        local.iter().zip(&remote).for_each(|(local, remote)| status.exchanged(local, remote));
        Ok(end)
    }

    /// Returns which of the device's GIDs this end sends from.
    fn own_gid(&self, device: &Device, exchange: &Exchange) -> u8 {
        let gids = device.query_port().gids;
        let index_of = |wanted: &dyn Fn(Gid) -> bool| {
            let index = gids.iter().position(|entry| entry.assigned && wanted(entry.gid));
            index.and_then(|index| u8::try_from(index).ok())
        };
        self.args
            .gid_idx
            .or_else(|| index_of(&|gid| gid.to_ip() == exchange.local()))
            .or_else(|| index_of(&|gid| gid.to_ip().is_ipv4() == exchange.local().is_ipv4()))
            .unwrap_or_else(|| device.default_gid_index())
    }

    /// Returns the queue pair, with its receives posted.
    fn endpoint(&self, device: Device, gid_index: u8) -> Result<Endpoint, TrafficError> {
        let config = EndpointConfig {
            transport: self.args.transport,
            // The send buffer, and one buffer for all receives, as in the other programs.
            region_bytes: 2 * self.size,
            depth: 1,
            receives: self.args.rx_depth,
            rd_atomic: RD_ATOMIC,
            gid_index,
            timeout: self.timeout(),
            wait: Wait::by(self.args.events),
        };
        let endpoint = Endpoint::new(device, config)?;
        for nr in 0..self.args.rx_depth {
            endpoint.post_recv(nr.into(), self.size, self.size)?;
        }
        Ok(endpoint)
    }
}

/// One end of the exchange of addresses.
pub trait End {
    /// The fixed number of addresses that each end sends.
    const ADDRESSES: usize;

    /// Returns the addresses of this end.
    fn addresses(&self) -> Vec<Address>;

    /// Connects to the queue pairs of the other end.
    fn connect(&mut self, remote: &[Address], mtu: PathMtu) -> Result<(), PingpongError>;
}

impl End for Endpoint {
    const ADDRESSES: usize = 1;

    fn addresses(&self) -> Vec<Address> {
        vec![self.address()]
    }

    fn connect(&mut self, remote: &[Address], mtu: PathMtu) -> Result<(), PingpongError> {
        Ok(remote.iter().try_for_each(|remote| self.connect(remote, mtu))?)
    }
}

fn send(exchange: &mut Exchange, local: &[Address], count: usize) -> Result<(), ExchangeError> {
    let unused = std::iter::repeat(&Address::UNUSED);
    local.iter().chain(unused).take(count).try_for_each(|address| exchange.send(address))
}

/// The kind of messages that the other end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Unknown before the first message.
    Unknown,
    /// This end's messages, which the other end returned.
    Returned,
    /// Patterns of the other end, which this end returns.
    Patterns,
}

/// The messages of a run.
struct MessageLoop<'a> {
    plan: &'a Plan,
    mode: Mode,
    received: u32,
    sent: u32,
    /// The expected next message, if known.
    awaited: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> MessageLoop<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mode = if plan.role == Role::Server { Mode::Unknown } else { Mode::Returned };
        let blank = vec![0; plan.size];
        Self { plan, mode, received: 0, sent: 0, awaited: blank.clone(), scratch: blank }
    }

    /// Runs until all messages are sent and received.
    fn run(mut self, endpoint: &mut Endpoint) -> Result<(), PingpongError> {
        let total = self.plan.iterations;
        let (mut receives, mut posted) = (self.plan.args.rx_depth, 0);
        // The events before the next SEND.
        let (mut receive_due, mut send_due) = (true, false);
        if self.plan.role != Role::Server && total > 0 {
            self.prepare(0);
            self.send(endpoint)?;
            (posted, send_due) = (1, true);
        }
        while self.received < total || self.sent < total {
            let completion = endpoint
                .next(STALL_LIMIT)?
                .ok_or_else(|| PingpongError::silence(self.plan.args.transport, STALL_LIMIT))?;
            expect_success(&completion)?;
            if completion.opcode.is_receive() {
                receives -= 1;
                receive_due = false;
                let len = endpoint.received(&completion)?;
                self.take(endpoint, len)?;
                self.received += 1;
                if receives <= 1 {
                    for nr in receives..self.plan.args.rx_depth {
                        endpoint.post_recv(nr.into(), self.plan.size, self.plan.size)?;
                    }
                    receives = self.plan.args.rx_depth;
                }
            } else {
                self.sent += 1;
                send_due = false;
            }
            if posted < total && !receive_due && !send_due {
                self.send(endpoint)?;
                posted += 1;
                (receive_due, send_due) = (true, true);
            }
        }
        Ok(())
    }

    /// Takes a message, verifies it, and prepares the next one.
    fn take(&mut self, endpoint: &mut Endpoint, len: usize) -> Result<(), PingpongError> {
        let message = u64::from(self.received);
        let (found, expected) = (len, self.plan.size);
        if found != expected {
            return Err(Wrong::Length { message, found, expected }.into());
        }
        endpoint.region().read(self.plan.size, &mut self.scratch)?;
        if self.mode == Mode::Unknown {
            self.mode = self.judge_first()?;
        } else {
            if self.mode == Mode::Patterns {
                make(message, &mut self.awaited);
            }
            self.compare(message, &self.awaited)?;
        }
        match self.mode {
            Mode::Patterns => self.awaited.copy_from_slice(&self.scratch),
            // The client's next message, or the server's reply.
            Mode::Returned | Mode::Unknown if self.plan.role == Role::Server => {
                self.prepare(message)
            }
            Mode::Returned | Mode::Unknown => self.prepare(message + 1),
        }
        Ok(())
    }

    /// Server: derives the mode from the client's first message.
    fn judge_first(&mut self) -> Result<Mode, PingpongError> {
        make(0, &mut self.awaited);
        if self.scratch == self.awaited {
            return Ok(Mode::Patterns);
        }
        let checked: Vec<u8> =
            (0..self.plan.size).map(|at| if at.is_multiple_of(PAGE) { 0 } else { FILL }).collect();
        let plain = self.scratch.iter().all(|byte| *byte == FILL);
        if self.plan.args.chk || !plain {
            self.compare(0, &checked)?;
        }
        Ok(Mode::Returned)
    }

    /// Compares the received message with `expected`.
    fn compare(&self, message: u64, expected: &[u8]) -> Result<(), Wrong> {
        Ok(pattern::compare(message, &self.scratch, expected)?)
    }

    /// Prepares a message of this end as the next one.
    fn prepare(&mut self, message: u64) {
        make(message, &mut self.awaited);
    }

    /// Sends the prepared message.
    fn send(&mut self, endpoint: &mut Endpoint) -> Result<(), PingpongError> {
        endpoint.region().write(0, &self.awaited)?;
        endpoint.post(SEND, SendRequest::send(endpoint.slice(0, self.plan.size)?))?;
        Ok(())
    }
}

/// Fills `bytes` with a message of this end: the pattern, with 0 as the first byte of each page.
fn make(message: u64, bytes: &mut [u8]) {
    pattern::fill(message, bytes);
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
}
