//! The floor: what the machine does without RDMA, between the same two processes, measured in turn
//! with the results.
//!
//! | floor | what it does |
//! |---|---|
//! | stream, GSO and GRO | one process sends runs of datagrams, the other receives; CRC-32 of each on both sides, payload copied on both |
//! | stream, one a call | the same with one datagram a system call |
//! | ping-pong | a message to and fro, spinning or blocking; no CRC, no copy; each end on a processor of its own ([`cpu_affinity`](super::cpu_affinity)) |
//! | TCP | one stream of 128 KiB writes and reads, as `iperf3` has |
//!
//! The sockets are unconnected, as a device's are, with the receive buffer that a device asks for,
//! and nothing repeats what is lost: what counts is what arrived. Datagrams have the payload and
//! the headers' length of the packets that they are compared with, and the payload walks over as
//! much memory.

mod pingpong;
mod socket;
mod stream;
mod tcp;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::{Case, Metric};
use super::error::PerfError;
use super::protocol::Sockets;
use super::statistics::Sample;
use crate::traffic::error::unexpected;

pub use socket::Socket;

/// Bytes of a run at most: what the stack sends with one call.
pub const RUN_MAX: usize = 65_469;
/// Datagrams of a run at most (`UDP_MAX_SEGMENTS` of older kernels).
const SEGMENTS_MAX: usize = 64;

/// What kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Runs of datagrams, one way or both ways at once.
    Stream {
        /// Both ways.
        both: bool,
    },
    /// One datagram a call.
    Single,
    /// A message to and fro.
    PingPong {
        /// Sleep in the system call instead of spinning.
        blocking: bool,
    },
    /// A TCP stream.
    Tcp,
}

/// One floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Floor {
    /// What kind.
    pub kind: Kind,
    /// Bytes of a message (ping-pong).
    pub size: usize,
    /// Payload of each datagram.
    pub payload: usize,
    /// Other bytes of each.
    pub overhead: usize,
    /// Bytes of memory that the payload comes from and goes to.
    pub working_set: usize,
    /// Bytes of receive buffer to ask for; what a device asks for if `None`.
    pub receive_buffer: Option<usize>,
    /// How long a round is, in microseconds.
    pub micros: u64,
}

impl Floor {
    /// The floor of that kind under `case`.
    pub fn under(case: &Case, kind: Kind, round: Duration) -> Self {
        let (payload, overhead) = (case.payload(), case.overhead());
        let floor = Self {
            kind,
            size: case.size,
            payload,
            overhead,
            working_set: case.touched(),
            receive_buffer: None,
            micros: u64::try_from(round.as_micros()).unwrap_or(u64::MAX),
        };
        match kind {
            // One for all sizes, so that it is measured once.
            Kind::Tcp => Self { size: 0, payload: 0, overhead: 0, working_set: 0, ..floor },
            Kind::Stream { .. } | Kind::Single => Self { size: 0, ..floor },
            Kind::PingPong { .. } => {
                let most = floor.run_len() * payload;
                Self { size: case.size.min(most), working_set: 0, ..floor }
            }
        }
    }

    /// The floors of a case, the one that its figure is first compared with first.
    pub fn all_under(case: &Case, round: Duration) -> Vec<Self> {
        let kinds: &[Kind] = match case.metric {
            Metric::Bandwidth => {
                &[Kind::Stream { both: case.bidirectional }, Kind::Tcp, Kind::Single]
            }
            Metric::Latency => {
                &[Kind::PingPong { blocking: false }, Kind::PingPong { blocking: true }]
            }
        };
        let mut floors: Vec<Self> =
            kinds.iter().map(|kind| Self::under(case, *kind, round)).collect();
        // What does not fit one run takes the time of one run, and of the rest as a stream.
        if case.metric == Metric::Latency && floors[0].size < case.size {
            floors.push(Self::under(case, Kind::Stream { both: false }, round));
        }
        floors
    }

    /// Bytes of each datagram.
    pub const fn datagram(&self) -> usize {
        self.payload + self.overhead
    }

    /// Datagrams of a run.
    pub fn run_len(&self) -> usize {
        (RUN_MAX / self.datagram().max(1)).clamp(1, SEGMENTS_MAX)
    }

    /// How long a round is.
    pub const fn round(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// In few words.
    pub fn name(&self) -> String {
        let datagram = self.datagram();
        match self.kind {
            Kind::Stream { both: false } => format!("UDP GSO+GRO, CRC, copy, {datagram} B"),
            Kind::Stream { both: true } => {
                format!("UDP GSO+GRO, CRC, copy, {datagram} B, both ways")
            }
            Kind::Single => format!("UDP, one {datagram} B datagram a call"),
            Kind::PingPong { blocking: false } => {
                format!("spinning half round trip, {} B", self.size)
            }
            Kind::PingPong { blocking: true } => {
                format!("blocking half round trip, {} B", self.size)
            }
            Kind::Tcp => "TCP stream".to_owned(),
        }
    }
}

/// One end of a floor.
pub struct FloorEnd {
    floor: Floor,
    socket: Socket,
    tcp: tcp::End,
    peer: Option<SocketAddr>,
    buffers: stream::Buffers,
}

impl FloorEnd {
    /// Sockets at `address`; the end that `accepts` lets the other connect its TCP stream.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn new(floor: Floor, address: IpAddr, accepts: bool) -> Result<Self, PerfError> {
        let socket = Socket::open(&floor, address)?;
        let tcp = if floor.kind == Kind::Tcp && accepts {
            tcp::End::listen(address)?
        } else {
            tcp::End::none()
        };
        Ok(Self { floor, socket, tcp, peer: None, buffers: stream::Buffers::new(&floor) })
    }

    /// What the other end needs.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn sockets(&self) -> Result<Sockets, PerfError> {
        Ok(Sockets { udp: self.socket.address()?, tcp: self.tcp.address() })
    }

    /// Tells it where the other end is.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn connect(&mut self, peer: &Sockets) -> Result<(), PerfError> {
        self.peer = Some(peer.udp);
        match peer.tcp {
            Some(address) => self.tcp.connect(address),
            None if self.floor.kind == Kind::Tcp => self.tcp.accept(),
            None => Ok(()),
        }
    }

    fn peer(&self) -> Result<SocketAddr, PerfError> {
        Ok(self.peer.ok_or_else(|| unexpected("a floor that is not connected"))?)
    }

    /// Sends for `time`, if at all, and receives, if it should.
    fn stream(
        &mut self,
        time: Option<Duration>,
        receives: bool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Sample, Sample), PerfError> {
        let peer = self.peer()?;
        let Self { socket, floor, buffers, .. } = self;
        stream::run(socket, peer, floor, buffers, time, receives, is_over)
    }

    /// The end that measures: one round. What counts for a stream is what the other end received;
    /// the sample says what was sent.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn measure(&mut self) -> Result<(Sample, Sample), PerfError> {
        let round = self.floor.round();
        match self.floor.kind {
            Kind::Stream { both } => self.stream(Some(round), both, &|| true),
            Kind::Single => self.stream(Some(round), false, &|| true),
            Kind::PingPong { .. } => {
                let peer = self.peer()?;
                Ok((pingpong::measure(&self.socket, peer, &self.floor)?, Sample::default()))
            }
            Kind::Tcp => Ok((self.tcp.send(round)?, Sample::default())),
        }
    }

    /// The other end: until `is_over`. What it sent and what it received.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn respond(&mut self, is_over: &dyn Fn() -> bool) -> Result<(Sample, Sample), PerfError> {
        match self.floor.kind {
            Kind::Stream { both } => self.stream(both.then(|| self.floor.round()), true, is_over),
            Kind::Single => self.stream(None, true, is_over),
            Kind::PingPong { .. } => {
                pingpong::respond(&self.socket, self.peer()?, &self.floor, is_over)?;
                Ok((Sample::default(), Sample::default()))
            }
            Kind::Tcp => Ok((Sample::default(), self.tcp.receive(is_over)?)),
        }
    }
}
