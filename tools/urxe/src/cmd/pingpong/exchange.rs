//! The TCP exchange of `ibv_rc_pingpong`: the addresses that two hosts exchange before they
//! connect.
//!
//! ```text
//! client                                server
//!   connect, port 18515 ----------------> accept
//!   52 bytes: its address --------------> connects its queue pair to it (RTR, RTS)
//!   <---------------- 52 bytes: its address
//!   "done", zero ----------------------->
//!   close                                 close
//!   connects its queue pair
//! ```
//! An address is `LID:QPN:PSN:GID` in hexadecimal (4, 6, 6 and 32 digits) and a zero byte. The
//! client sends the first message, so the server must be ready to receive before its reply. The
//! other program treats the result of one `read` as the whole message, so one `write` sends each
//! message. Facts: rdma-core, `libibverbs/examples/rc_pingpong.c` and `pingpong.c`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use urxe_wire::{Gid, Psn, Qpn};

use crate::traffic;

#[cfg(test)]
mod tests;

/// Bytes of an address on the connection.
const ADDRESS_LEN: usize = 52;
/// The last message of the client.
const DONE: &[u8; 5] = b"done\0";
/// Time limit for one step of the exchange.
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// The address of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Queue pair.
    pub qpn: Qpn,
    /// First packet sequence number that this end sends.
    pub psn: Psn,
    /// Address; zero if the program was given no GID index.
    pub gid: Gid,
}

impl Address {
    /// The address of a queue pair that an end does not have.
    pub const UNUSED: Self = Self { lid: 0, qpn: Qpn::masked(0), psn: Psn::new(0), gid: Gid::ZERO };
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:06x}:{:06x}:", self.lid, self.qpn.value(), self.psn.value())?;
        self.gid.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not LID:QPN:PSN:GID in hexadecimal")]
pub struct NotAnAddress;

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let mut fields = text.split(':');
        let mut field =
            || fields.next().filter(|field| field.chars().all(|c| c.is_ascii_hexdigit()));
        let (lid, qpn, psn, gid) = (
            field().ok_or(NotAnAddress)?,
            field().ok_or(NotAnAddress)?,
            field().ok_or(NotAnAddress)?,
            field(),
        );
        let gid = gid.filter(|gid| gid.len() == 32).ok_or(NotAnAddress)?;
        if fields.next().is_some() {
            return Err(NotAnAddress);
        }
        let number = |field| u32::from_str_radix(field, 16).map_err(|_| NotAnAddress);
        let psn = number(psn)?;
        if psn > 0xff_ffff {
            return Err(NotAnAddress);
        }
        Ok(Self {
            lid: number(lid)?.try_into().map_err(|_| NotAnAddress)?,
            qpn: Qpn::new(number(qpn)?).ok_or(NotAnAddress)?,
            psn: Psn::new(psn),
            gid: Gid(u128::from_str_radix(gid, 16).map_err(|_| NotAnAddress)?.to_be_bytes()),
        })
    }
}

/// Errors of the exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The host's name cannot be resolved.
    #[error("cannot resolve {host}")]
    UnknownHost {
        host: String,
        #[source]
        error: io::Error,
    },
    /// No address of the host accepts the connection.
    #[error(
        "cannot connect to {address}: {error}; start `urxe pingpong --listen` or ibv_rc_pingpong \
         there, and allow TCP port {}",
        address.port()
    )]
    Connect { address: SocketAddr, error: io::Error },
    /// The port is not available.
    #[error("cannot listen on TCP {address}: {error}; choose another --port")]
    Listen { address: SocketAddr, error: io::Error },
    /// The connection failed.
    #[error("the connection to {peer} failed: {doing}")]
    Connection {
        doing: &'static str,
        peer: IpAddr,
        #[source]
        error: io::Error,
    },
    /// The other end sent other bytes.
    #[error(
        "{peer} sent {given:?} instead of an address such as 0000:000012:0a1b2c:…; another program \
         may use this port"
    )]
    NotAnAddress { peer: IpAddr, given: String },
}

/// A connection for the exchange. Dropping an exchange closes the connection.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Exchange {
    /// Connects to a host that listens.
    pub fn connect(host: &str, port: u16) -> Result<Self, ExchangeError> {
        match traffic::connect(host, port, STEP_LIMIT) {
            Ok(stream) => Self::over(stream),
            Err((Some(address), error)) => Err(ExchangeError::Connect { address, error }),
            Err((None, error)) => Err(ExchangeError::UnknownHost { host: host.to_owned(), error }),
        }
    }

    /// Waits for a host that connects.
    pub fn accept(listener: &TcpListener) -> Result<Self, ExchangeError> {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::over(stream),
                // The client disconnected before the accept, or a signal arrived.
                Err(error)
                    if matches!(
                        error.kind(),
                        ConnectionAborted | ConnectionReset | Interrupted
                    ) => {}
                Err(error) => {
                    let address =
                        listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
                    return Err(ExchangeError::Listen { address, error });
                }
            }
        }
    }

    fn over(stream: TcpStream) -> Result<Self, ExchangeError> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = stream.peer_addr().unwrap_or(unknown);
        let failed =
            |error| ExchangeError::Connection { doing: "starting", peer: peer.ip(), error };
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(STEP_LIMIT)).map_err(failed)?;
        stream.set_write_timeout(Some(STEP_LIMIT)).map_err(failed)?;
        let local = stream.local_addr().map_err(failed)?;
        Ok(Self { stream, peer, local })
    }

    /// Returns the other host's address on this connection.
    pub fn peer(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Returns this host's address on this connection.
    pub fn local(&self) -> IpAddr {
        self.local.ip().to_canonical()
    }

    /// Sends this end's address.
    pub fn send(&mut self, address: &Address) -> Result<(), ExchangeError> {
        let mut text = address.to_string().into_bytes();
        text.push(0);
        let sent = self.stream.write_all(&text);
        sent.map_err(|error| self.failed("sending the own address", error))
    }

    /// Receives the other end's address.
    pub fn receive(&mut self) -> Result<Address, ExchangeError> {
        let mut bytes = [0; ADDRESS_LEN];
        let received = self.stream.read_exact(&mut bytes);
        received.map_err(|error| self.failed("waiting for the peer's address", error))?;
        let text = bytes.strip_suffix(&[0]).and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).ok_or_else(|| ExchangeError::NotAnAddress {
            peer: self.peer(),
            given: String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned(),
        })
    }

    /// Client: confirms that the server's address has arrived.
    pub fn send_done(&mut self) -> Result<(), ExchangeError> {
        let sent = self.stream.write_all(DONE);
        sent.map_err(|error| self.failed("confirming", error))
    }

    /// Server: waits until the client has the address.
    pub fn receive_done(&mut self) -> Result<(), ExchangeError> {
        let mut bytes = [0; DONE.len()];
        let received = self.stream.read_exact(&mut bytes);
        received.map_err(|error| self.failed("waiting for the peer's confirmation", error))
    }

    fn failed(&self, doing: &'static str, error: io::Error) -> ExchangeError {
        let error = match error.kind() {
            // The error text of a read timeout would be "Resource temporarily unavailable".
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "no answer in 10 seconds")
            }
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the peer closed it"),
            _ => error,
        };
        ExchangeError::Connection { doing, peer: self.peer(), error }
    }
}

/// Listens for the exchange. A loopback `address` is used as given, so that no port is open to the
/// network. Otherwise the listener accepts on all addresses of both families.
pub fn listen(address: IpAddr, port: u16) -> Result<TcpListener, ExchangeError> {
    let everywhere = [SocketAddr::from(([0u16; 8], port)), SocketAddr::from(([0, 0, 0, 0], port))];
    let own = [SocketAddr::new(address, port)];
    let candidates: &[SocketAddr] = if address.is_loopback() { &own } else { &everywhere };
    let listen = |error| ExchangeError::Listen { address: candidates[0], error };
    TcpListener::bind(candidates).map_err(listen)
}
