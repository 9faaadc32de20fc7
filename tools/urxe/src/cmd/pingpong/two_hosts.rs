//! Two hosts: SENDs to and fro, in step with `ibv_rc_pingpong`, `ibv_uc_pingpong` or
//! `ibv_ud_pingpong` so that either end may be that program.
//!
//! ```text
//! both: post rx_depth receives, exchange addresses over TCP, connect
//! client: SEND 0 ->            server: receive 0, then SEND 0 back, then receive 1, ...
//! each end posts its next SEND when its last one completed and a message came; until n went each way
//! ```
//! Nothing that UC or UD loses is sent again: then both ends wait in vain, and say so.
//! # What is verified
//! Each of these programs has one buffer for both directions: whatever it receives, it sends. With
//! its `-c` the client sends 0 as the first byte of each page, and the server checks those bytes in
//! the end. So here:
//! * the client sends a new pattern each time, with these zeros, and checks that each comes back,
//!   every byte;
//! * the server takes the first message for such a pattern or for what `ibv_rc_pingpong` sends
//!   (0x7b, zeros with `-c`). In the first case it checks each message for its pattern and sends it
//!   back. In the second case it answers with patterns of its own, and checks that the client sends
//!   each of them in its next message.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use urxe::{ConnectOptions, Device, Gid, PathMtu, SendRequest};

use super::endpoint::{Endpoint, EndpointConfig};
use super::exchange::{self, Address, Exchange, ExchangeError};
use super::summary::Summary;
use super::transport::Transport;
use super::{Args, PingpongError, Wrong, expect_success, many};
use crate::traffic::device::Choice;
use crate::traffic::error::TrafficError;
use crate::traffic::{Wait, pattern};

/// What `ibv_rc_pingpong` fills its buffer with.
const FILL: u8 = 0x7b;
/// Its page size, or a part of it.
const PAGE: usize = 4096;
/// READs and atomics on the way at once, as that program asks for; there are none.
const RD_ATOMIC: u8 = 1;
/// Time without a completion after which the run fails.
pub const STALL_LIMIT: Duration = Duration::from_secs(10);
/// Local ACK timeout with `--patient`: 4.3 s.
const PATIENT_TIMEOUT: u8 = 20;
/// How long an end stays after its last message: three times what the other end waits for an
/// acknowledgement.
pub const LINGER: Duration = Duration::from_millis(200);
/// Work request identifiers, above the numbers of messages.
const SEND: u64 = 1 << 32;

/// Which end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for the client.
    Server,
    /// Connects to the server at this host.
    Client(String),
}

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// Which end.
    pub role: Role,
    /// On which device.
    pub choice: Choice,
    /// Bytes of a message.
    pub size: usize,
    /// Messages each way.
    pub iterations: u32,
    /// The other options.
    pub args: Args,
}

/// What is told while it runs.
pub trait Status {
    /// The server waits for its client.
    fn listening(&mut self, on: std::net::SocketAddr);
    /// The addresses are exchanged.
    fn exchanged(&mut self, local: &Address, remote: &Address);
}

impl Plan {
    /// Runs it.
    ///
    /// # Errors
    /// What failed, or what data was wrong.
    pub fn run(&self, status: &mut dyn Status) -> Result<Summary, PingpongError> {
        let mut builder = Device::builder();
        if let Some(path) = &self.args.capture {
            builder = builder.capture(path);
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
        // The last acknowledgement may get lost, and the peer would then ask for it.
        std::thread::sleep(LINGER);
        Ok(Summary::new(self.args.transport, self.size, self.iterations, elapsed, &device))
    }

    /// The path MTU.
    fn mtu_on(&self, device: &Device) -> PathMtu {
        let usual = match self.args.transport {
            Transport::Rc | Transport::Uc => PathMtu::Mtu1024,
            Transport::Ud => device.query_port().active_mtu,
        };
        self.args.mtu.unwrap_or(usual)
    }

    /// The local ACK timeout of its queue pairs.
    pub fn timeout(&self) -> u8 {
        if self.args.patient { PATIENT_TIMEOUT } else { ConnectOptions::default().timeout }
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

    /// Client: goes to the server.
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

    /// Makes this end, exchanges addresses with the other one, and connects. A peer that was given
    /// no GID index sends a zero GID: then its address on the TCP connection is meant.
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
                // What stands for queue pairs that it does not have is not looked at.
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

    /// Which of the device's GIDs this end sends from.
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

    /// The queue pair, with its receives posted.
    fn endpoint(&self, device: Device, gid_index: u8) -> Result<Endpoint, TrafficError> {
        let config = EndpointConfig {
            transport: self.args.transport,
            // What is sent, and one place for all that is received, as there.
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

/// What one end has in the exchange of addresses.
pub trait End {
    /// Addresses that each end sends, whatever it has.
    const ADDRESSES: usize;

    /// Its addresses.
    fn addresses(&self) -> Vec<Address>;

    /// Connects with the other end's.
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

/// What the messages of the other end are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Not known before the first.
    Unknown,
    /// This end's own messages, come back.
    Returned,
    /// The other end's own patterns, which this end returns.
    Patterns,
}

/// The messages of a run.
struct MessageLoop<'a> {
    plan: &'a Plan,
    mode: Mode,
    received: u32,
    sent: u32,
    /// What the next message must be, if this is known.
    awaited: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> MessageLoop<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mode = if plan.role == Role::Server { Mode::Unknown } else { Mode::Returned };
        let blank = vec![0; plan.size];
        Self { plan, mode, received: 0, sent: 0, awaited: blank.clone(), scratch: blank }
    }

    /// Until all messages have come and gone.
    fn run(mut self, endpoint: &mut Endpoint) -> Result<(), PingpongError> {
        let total = self.plan.iterations;
        let (mut receives, mut posted) = (self.plan.args.rx_depth, 0);
        // What has to complete before the next SEND.
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

    /// Takes a message, checks it, and prepares the next to send.
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
            // The client's next message, or the server's answer to this one.
            Mode::Returned | Mode::Unknown if self.plan.role == Role::Server => {
                self.prepare(message)
            }
            Mode::Returned | Mode::Unknown => self.prepare(message + 1),
        }
        Ok(())
    }

    /// Server: what the client's first message says about it.
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

    /// That what came is `expected`.
    fn compare(&self, message: u64, expected: &[u8]) -> Result<(), Wrong> {
        Ok(pattern::compare(message, &self.scratch, expected)?)
    }

    /// Makes a message of this end's own the next one.
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

/// A message of this end's own: the pattern, with 0 as first byte of each page.
fn make(message: u64, bytes: &mut [u8]) {
    pattern::fill(message, bytes);
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
}
