//! A plain, unconnected UDP socket, with GSO and GRO for floors of runs.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::{Floor, Kind};
use crate::cmd::perf::error::{PerfError, floor};

/// Bytes of receive buffer that a device requests.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Empty receives between two yields.
const EMPTY_BETWEEN_YIELDS: u32 = 50;

/// A UDP socket.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    sleeps: bool,
}

impl Socket {
    /// Opens a socket on any port of `address`.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn open(of: &Floor, address: IpAddr) -> Result<Self, PerfError> {
        let socket = RawSocket::new(
            Domain::for_address((address, 0).into()),
            Type::DGRAM,
            Some(Protocol::UDP),
        )
        .map_err(floor("cannot make a socket"))?;
        // The kernel may grant less, as for a device.
        let _ = socket.set_recv_buffer_size(of.receive_buffer.unwrap_or(RECEIVE_BUFFER));
        socket
            .bind(&SocketAddr::from((address, 0)).into())
            .map_err(floor("cannot bind a socket"))?;
        let spins = !matches!(of.kind, Kind::PingPong { blocking: true });
        socket.set_nonblocking(spins).map_err(floor("cannot make a socket nonblocking"))?;
        if !spins {
            // A sleeping thread must notice the end of the round.
            let limit = std::time::Duration::from_millis(20);
            socket.set_read_timeout(Some(limit)).map_err(floor("cannot limit a sleep"))?;
        }
        if matches!(of.kind, Kind::Stream { .. } | Kind::PingPong { .. }) && of.datagram() > 0 {
            let segment = i32::try_from(of.datagram()).unwrap_or(i32::MAX);
            let lacks = |errno: nix::Error| io::Error::from(errno);
            setsockopt(&socket, sockopt::UdpGsoSegment, &segment)
                .map_err(lacks)
                .map_err(floor("the kernel has no UDP GSO"))?;
            setsockopt(&socket, sockopt::UdpGroSegment, &true)
                .map_err(lacks)
                .map_err(floor("the kernel has no UDP GRO"))?;
        }
        Ok(Self { socket: socket.into(), sleeps: !spins })
    }

    /// Returns the socket's address.
    pub fn address(&self) -> Result<SocketAddr, PerfError> {
        self.socket.local_addr().map_err(floor("a socket without an address"))
    }

    /// Returns whether receiving sleeps.
    pub const fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Yields the processor after a number of empty receives, as a device's poll does. Otherwise
    /// two spinning ends on one processor would wait for each other's time slices.
    pub fn pause(&self, empty: u32) {
        if !self.sleeps && empty.is_multiple_of(EMPTY_BETWEEN_YIELDS) {
            std::thread::yield_now();
        }
    }

    /// Sends a run; waits while the send buffer is full.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<(), PerfError> {
        loop {
            match self.socket.send_to(bytes, to) {
                Ok(_) => return Ok(()),
                Err(error)
                    if is_nothing(&error) || error.raw_os_error() == Some(nix::libc::ENOBUFS) =>
                {
                    std::hint::spin_loop();
                }
                Err(error) => return Err(floor("cannot send")(error)),
            }
        }
    }

    /// Receives one datagram, or several merged ones. Returns 0 if none has arrived.
    ///
    /// # Errors
    /// [`PerfError::Floor`].
    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize, PerfError> {
        match self.socket.recv_from(bytes) {
            Ok((len, _)) => Ok(len),
            Err(error) if is_nothing(&error) => Ok(0),
            Err(error) => Err(floor("cannot receive")(error)),
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
