//! Connecting by addresses and ports, as `rdma_cm` does it: with peers of this crate, with C
//! programs over librdmacm, with kernels.
//!
//! ```text
//!   connect(addr) ──────── request ───────> Listener ──> ConnectRequest
//!        │        <── accepted, refused ──     accept, reject ──┘
//!   Connection    ───── queue pairs ──────  Connection
//! ```
//! # A few lines
//! ```
//! use urxe::{Access, Data, Device, RecvRequest, SendRequest, cm};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let here = Device::open_address([127, 49, 11, 5])?;
//! # let on_here = cm::Listener::builder().device(&here);
//! // One end listens. Without `builder().device(…)`, on the configured devices: cm::Listener::bind("0.0.0.0:7471").
//! let listener = on_here.bind("0.0.0.0:0")?;
//! let port = listener.local_addr().port();
//! let server = std::thread::spawn(move || -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
//!     let pending = listener.wait(None)?.prepare(&cm::Options::new())?;
//!     let inbox = pending.pd().allocate(4096, Access::LOCAL_WRITE)?;
//!     pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
//!     let connection = pending.establish()?;
//!     let message = connection.recv_cq().wait_one(None)?;
//!     Ok(inbox.read_vec(0, message.byte_len as usize)?)
//! });
//!
//! // The other connects; without options by cm::connect("127.49.11.5:7471").
//! # let there = Device::open_address([127, 49, 11, 6])?;
//! let connection = cm::prepare(("127.49.11.5", port), &cm::Options::new().device(&there))?.establish()?;
//! connection.qp().post_send(&SendRequest::send(Data::inline(b"hello")).signaled())?;
//! assert!(connection.send_cq().wait_one(None)?.status.is_success());
//! assert_eq!(server.join().unwrap().unwrap(), b"hello");
//! # Ok(())
//! # }
//! ```
//! # Devices
//! Without further ado the configured devices ([`devices`](crate::devices)) connect and listen; the
//! first call opens them, and they stay open. A device that the program opened itself is named by
//! [`Options::device`] and [`ListenerBuilder::device`]. Ports are shared with all processes of an
//! address, C programs among them.
//!
//! # Waiting
//! As everywhere in this crate: [`establish`](Pending::establish), [`Listener::wait`] and
//! [`ConnectionEvents::wait`] sleep; `.await` of a [`Pending`], [`Listener::next`] and
//! [`ConnectionEvents::next`] wait in a task of any executor.
//!
//! Sources: IBTA annex A11; the kernel's `drivers/infiniband/core/cma.c`; librdmacm's manual pages.

mod connection;
mod connection_state;
mod datagram;
mod error;
mod listener;
mod options;
mod pending;
mod service;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

pub use self::connection::{Connection, ConnectionEvent, ConnectionEvents, NextConnectionEvent};
pub use self::datagram::{
    DATAGRAM_QKEY, DatagramListener, DatagramRequest, DatagramService, Resolving, resolve,
};
pub use self::error::{ConnectError, ListenError, NoServiceError, ResolveError};
pub use self::listener::{ConnectRequest, Incoming, Listener, ListenerBuilder, NextRequest};
pub use self::options::{ACCEPT_DATA_MAX, CONNECT_DATA_MAX, Options, REJECT_DATA_MAX};
pub use self::pending::{Establish, Establishing, Pending};
pub(crate) use self::service::Service;

pub use urxe_stack::cma::{CmaError, ConnEvent as PeerParameters};
pub use urxe_wire::mad::{RejReason, SidrStatus};

/// Connects with the default [`Options`]: sleeps until the peer has accepted.
///
/// # Errors
/// [`ConnectError`]; of several addresses that a name has, the last one's.
pub fn connect(addr: impl ToSocketAddrs) -> Result<Connection, ConnectError> {
    let attempt = |addr| pending::prepare(addr, &Options::new())?.establish();
    try_each_address(addr, ConnectError::Address, attempt)
}

/// Looks for the way to `addr`, and makes what a connection needs: a queue pair that takes
/// receives. Of several addresses that a name has, the first that there is a way to. Says nothing
/// to the peer yet; [`Pending::establish`] does, and awaiting it.
///
/// # Errors
/// [`ConnectError`].
pub fn prepare(addr: impl ToSocketAddrs, options: &Options) -> Result<Pending, ConnectError> {
    try_each_address(addr, ConnectError::Address, |addr| pending::prepare(addr, options))
}

/// What `attempt` makes of the first address with which it succeeds, or says of the last.
fn try_each_address<T, E>(
    addr: impl ToSocketAddrs,
    no_address: impl Fn(io::Error) -> E,
    attempt: impl Fn(SocketAddr) -> Result<T, E>,
) -> Result<T, E> {
    let mut failed = no_address(io::ErrorKind::NotFound.into());
    for addr in addr.to_socket_addrs().map_err(&no_address)? {
        match attempt(addr) {
            Ok(made) => return Ok(made),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
