//! The floor: the performance of this machine without RDMA, between the same two processes. It is
//! measured in alternation with the results.
//!
//! | floor | traffic |
//! |---|---|
//! | stream, GSO and GRO | runs of datagrams in one direction; CRC-32 and a copy on both sides |
//! | stream, one a call | the same with one datagram for each system call |
//! | ping-pong | round trips, spinning or blocking; no CRC, no copy |
//! | TCP | one stream of 128 KiB writes and reads, as in `iperf3` |
//! | ring | records in shared memory, in one direction; a copy on both sides, no CRC |
//!
//! Each end of a ping-pong is bound to its own processor ([`cpu_affinity`](super::cpu_affinity)).
//!
//! The sockets are unconnected, like those of a device, and request the same receive buffer. Lost
//! datagrams are not sent again; the result counts the datagrams that arrived. Datagrams have the
//! payload and header length of the packets that they are compared with. The payload covers the
//! same amount of memory.

mod pingpong;
mod ring;
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

pub use ring::Place;
pub use socket::Socket;

/// The largest run in bytes, as the stack sends with one call.
pub const RUN_MAX: usize = 65_469;
/// The largest number of datagrams of a run (`UDP_MAX_SEGMENTS` of older kernels).
const SEGMENTS_MAX: usize = 64;

/// The kind of a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Runs of datagrams, in one direction or in both at once.
    Stream {
        /// Whether both ends send.
        both: bool,
    },
    /// One datagram for each call.
    Single,
    /// Round trips.
    PingPong {
        /// Whether the receiver sleeps in the system call instead of spinning.
        blocking: bool,
    },
    /// A TCP stream.
    Tcp,
    /// A ring in shared memory.
    Ring,
}

/// A floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Floor {
    /// The kind.
    pub kind: Kind,
    /// Bytes of a message (ping-pong).
    pub size: usize,
    /// Payload of each datagram.
    pub payload: usize,
    /// Bytes of each datagram besides the payload.
    pub overhead: usize,
    /// Bytes of the memory that holds the payload.
    pub working_set: usize,
    /// Bytes of receive buffer to request; `None` for the device's default.
    pub receive_buffer: Option<usize>,
    /// The duration of a round in microseconds.
    pub micros: u64,
}

impl Floor {
    /// Returns the floor of that kind under `case`.
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
            // The same for all sizes, so that it is measured once.
            Kind::Tcp => Self { size: 0, payload: 0, overhead: 0, working_set: 0, ..floor },
            Kind::Stream { .. } | Kind::Single => Self { size: 0, ..floor },
            Kind::Ring => floor,
            Kind::PingPong { .. } => {
                let most = floor.run_len() * payload;
                Self { size: case.size.min(most), working_set: 0, ..floor }
            }
        }
    }

    /// Returns the floors of a case, the one that its figure is first compared with first.
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
        // A message larger than one run takes the time of one run, plus the rest as a stream.
        if case.metric == Metric::Latency && floors[0].size < case.size {
            floors.push(Self::under(case, Kind::Stream { both: false }, round));
        }
        floors
    }

    /// Returns the bytes of each datagram.
    pub const fn datagram(&self) -> usize {
        self.payload + self.overhead
    }

    /// Returns the number of datagrams of a run.
    pub fn run_len(&self) -> usize {
        (RUN_MAX / self.datagram().max(1)).clamp(1, SEGMENTS_MAX)
    }

    /// Returns the bytes of a record of a ring: a message, or the payload of the longest run.
    pub fn record(&self) -> usize {
        self.size.clamp(1, self.run_len() * self.payload.max(1))
    }

    /// Returns how long a round is.
    pub const fn round(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns a short description.
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
            Kind::Ring => format!("bare ring, {} B", self.record()),
        }
    }
}

/// One end of a floor. The end that accepts makes the memory of a ring.
pub struct FloorEnd {
    floor: Floor,
    socket: Socket,
    tcp: tcp::End,
    ring: ring::End,
    peer: Option<SocketAddr>,
    buffers: stream::Buffers,
}

impl FloorEnd {
    /// Opens sockets at `address`. The end with `accepts` accepts the TCP stream of the other end.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn new(floor: Floor, address: IpAddr, accepts: bool) -> Result<Self, PerfError> {
        let socket = Socket::open(&floor, address)?;
        let tcp = if floor.kind == Kind::Tcp && accepts {
            tcp::End::listen(address)?
        } else {
            tcp::End::default()
        };
        let ring = if floor.kind == Kind::Ring && accepts {
            ring::End::create(&floor)?
        } else {
            ring::End::default()
        };
        Ok(Self { floor, socket, tcp, ring, peer: None, buffers: stream::Buffers::new(&floor) })
    }

    /// Returns the addresses that the other end needs.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn sockets(&self) -> Result<Sockets, PerfError> {
        let (udp, tcp) = (self.socket.address()?, self.tcp.address());
        Ok(Sockets { udp, tcp, ring: self.ring.place() })
    }

    /// Sets the addresses of the other end.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn connect(&mut self, peer: &Sockets) -> Result<(), PerfError> {
        self.peer = Some(peer.udp);
        if let Some(place) = peer.ring {
            return self.ring.open(&self.floor, place);
        }
        match peer.tcp {
            Some(address) => self.tcp.connect(address),
            None if self.floor.kind == Kind::Tcp => self.tcp.accept(),
            None => Ok(()),
        }
    }

    fn peer(&self) -> Result<SocketAddr, PerfError> {
        Ok(self.peer.ok_or_else(|| unexpected("a floor that is not connected"))?)
    }

    /// Sends for `time`, if given, and receives if `receives`.
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

    /// Runs one round at the measuring end. Returns the samples of sent and received data. For a
    /// stream, the other end's received data is the result.
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
            Kind::Ring => Ok((self.ring.send(&self.floor, round)?, Sample::default())),
        }
    }

    /// Runs the other end until `is_over`. Returns the samples of sent and received data.
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
            Kind::Ring => Ok((Sample::default(), self.ring.receive(&self.floor, is_over)?)),
        }
    }
}
