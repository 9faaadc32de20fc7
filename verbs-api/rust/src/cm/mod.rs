//! Connections by IP address and port, as in `rdma_cm`.
//!
//! Peers may be programs of this crate, C programs with librdmacm, and kernels.
//!
//! ```text
//!   connect(addr) ──────── request ───────> Listener ──> ConnectRequest
//!        │        <─ accepted, rejected ──     accept, reject ──┘
//!   Connection    ───── queue pairs ──────  Connection
//! ```
//!
//! # A client and a server
//! ```
//! use urxe::cm::{self, Connection, Listener, Options, Pending};
//! use urxe::{Access, Data, Device, RecvRequest, SendRequest};
//!
//! type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//!
//! fn serve(listener: &Listener) -> Result<Vec<u8>> {
//!     // The queue pair accepts receives before the connection is established.
//!     let pending: Pending = listener.wait(None)?.prepare(&Options::new())?;
//!     let inbox = pending.pd().allocate(4096, Access::LOCAL_WRITE)?;
//!     pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
//!     let connection: Connection = pending.establish()?;
//!     let message = connection.recv_cq().wait_one(None)?;
//!     Ok(inbox.read_vec(0, message.byte_len as usize)?)
//! }
//!
//! # fn main() -> Result<()> {
//! // Two devices of this process. With configured devices, `Listener::bind("0.0.0.0:7471")` and
//! // `cm::connect("10.0.0.1:7471")` are enough.
//! let here = Device::open_address([127, 49, 11, 5])?;
//! let there = Device::open_address([127, 49, 11, 6])?;
//! let listener = Listener::builder().device(&here).bind("127.49.11.5:0")?;
//! let port = listener.local_addr().port();
//! let server = std::thread::spawn(move || serve(&listener));
//!
//! let options = Options::new().device(&there);
//! let connection = cm::prepare(("127.49.11.5", port), &options)?.establish()?;
//! connection.qp().post_send(&SendRequest::send(Data::inline(b"hello")).signaled())?;
//! let _sent = connection.send_cq().wait_one(None)?;
//! assert_eq!(server.join().unwrap()?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Devices
//! By default, connections and listeners use the configured devices ([`devices`](crate::devices)).
//! The first call opens them, and they stay open. [`Options::device`] and
//! [`ListenerBuilder::device`] select a device that the program opened itself. [`DefaultDevices`]
//! replaces the configured devices. All processes that use an address share its ports, including C
//! programs.
//!
//! # Waiting
//! [`establish`](Pending::establish), [`Listener::wait`] and [`ConnectionEvents::wait`] block the
//! thread, as does [`Close::wait`]. A task of any executor awaits a [`Pending`],
//! [`Listener::next`], [`ConnectionEvents::next`] or [`Connection::close`]. The module
//! [`aio`](crate::aio) has connections whose operations are futures, too.
//!
//! [`prepare`], [`connect`], [`resolve`] and `bind` take `impl ToSocketAddrs`. If it is a host
//! name, the system resolves the name, which blocks the thread. A task passes a [`SocketAddr`],
//! for example of `tokio::net::lookup_host`. The first call without a device also opens the
//! configured devices, which blocks: for some milliseconds, or for up to three seconds while
//! another process of an address does not answer. A program opens its devices before its tasks
//! start, by [`Device::open`](crate::Device::open) or [`DefaultDevices::open`]. Nothing else in
//! these functions blocks.
//!
//! ```
//! use urxe::cm::{self, Connection, ConnectionEvent, ConnectionEvents, Establish};
//! use urxe::cm::{Establishing, NextConnectionEvent, NextRequest, Options};
//! # use urxe::Device;
//!
//! async fn accept(listener: &cm::Listener) -> Result<Connection, Box<dyn std::error::Error>> {
//!     let next: NextRequest<'_> = listener.next();
//!     let establish: Establish = next.await?.prepare(&Options::new())?.into_future();
//!     Ok(establish.await?)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let here = Device::open_address([127, 49, 11, 13])?;
//! # let there = Device::open_address([127, 49, 11, 14])?;
//! # let listener = cm::Listener::builder().device(&here).bind("127.49.11.13:0")?;
//! # let options = Options::new().device(&there);
//! // The request is sent before the task waits.
//! let client: Establishing = cm::prepare(listener.local_addr(), &options)?.start()?;
//! let accepted = pollster::block_on(accept(&listener))?;
//! let connected = pollster::block_on(client)?;
//! drop(connected);
//! let events: ConnectionEvents<'_> = accepted.events();
//! let next: NextConnectionEvent<'_> = events.next();
//! let event = pollster::block_on(next)?;
//! assert_eq!(event, ConnectionEvent::Disconnected);
//! # Ok(())
//! # }
//! ```
//!
//! # Tests
//! Devices of a [simulated network] connect in virtual time, with faults that follow from a seed.
//!
//! # The end
//! [`Connection::close`] completes the sends, disconnects and waits for the confirmation of the
//! peer. [`Connection::disconnect`] and `drop` discard what is not acknowledged yet.
//!
//! # The death of a peer
//! | event | this end notices | after |
//! |---|---|---|
//! | the peer closes, disconnects or drops the connection | a disconnection | a packet |
//! | the peer's process ends otherwise, or is killed | a disconnection | at most 0.5 s |
//! | the same, over the kernel's `rdma_rxe` | a disconnection | a packet |
//! | the peer's host vanishes, this end sends | a send fails with `RetryExcErr` | 4.3 s |
//! | the same, this end only waits | nothing, or a disconnection | see below |
//!
//! A disconnection is [`ConnectionEvent::Disconnected`]. The queue pair is in the error state then,
//! and all its outstanding requests complete with `WrFlushErr`.
//!
//! A process that ends without dropping its connections cannot send messages. A second process, the
//! [watcher](crate::DeviceBuilder::watcher), sends them in its place. It needs 0.4 s to repeat
//! them. A peer counts as a vanished host if its watcher is off or dies with it, for example with
//! its container.
//!
//! A send without an acknowledgement fails after `1 + retry_count` times
//! [`ack_timeout`](Options::ack_timeout), by default 8 times 0.54 s. An end that only waits has two
//! ways to notice that a host vanished:
//!
//! * [`DeviceBuilder::keep_alive`](crate::DeviceBuilder::keep_alive) at the accepting end,
//! * messages of the program, such as a WRITE of no bytes at intervals.
//!
//! # Several connections on one completion queue
//! A completion names its queue pair, so a table of queue pair numbers tells which peer it belongs
//! to. [`WaitError::Failed`](crate::WaitError::Failed) contains a [`WcError`](crate::WcError),
//! which names it, too. [`Connection::is_disconnected`] tells a peer that is gone from one that
//! sent a bad request:
//!
//! ```
//! use std::collections::HashMap;
//! use urxe::cm::{self, Connection, Listener, Options};
//! use urxe::{Access, Device, Qpn, RecvRequest, WaitError, WcStatus};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
//! # fn main() -> Result<()> {
//! # let here = Device::open_address([127, 49, 11, 31])?;
//! # let there = Device::open_address([127, 49, 11, 32])?;
//! # let listener = Listener::builder().device(&here).bind("127.49.11.31:0")?;
//! # let to = listener.local_addr();
//! # let client = || cm::prepare(to, &Options::new().device(&there))?.start();
//! # let clients = [client()?, client()?];
//! // The default capacities of two connections are 256 requests each.
//! let (pd, cq) = (here.alloc_pd()?, here.create_cq(2 * 256)?);
//! let options = Options::new().pd(&pd).cq(&cq);
//! let inbox = pd.allocate(4096, Access::LOCAL_WRITE)?;
//! let mut connections: HashMap<Qpn, Connection> = HashMap::new();
//! for _ in 0..2 {
//!     let pending = listener.wait(None)?.prepare(&options)?;
//!     pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
//!     let connection = pending.establish()?;
//!     connections.insert(connection.qp().qpn(), connection);
//! }
//! # let [first, _second] = clients.map(|client| pollster::block_on(client).unwrap());
//! # let gone = first.local_addr();
//! # drop(first);
//! // One of the peers ends.
//! match cq.wait_one(None) {
//!     Ok(done) => println!("{} sent a message", connections[&done.qp_num].peer_addr()),
//!     Err(WaitError::Failed(error)) => {
//!         // More requests of this queue pair fail. Their completions find no entry.
//!         let Some(connection) = connections.remove(&error.qp_num) else { return Ok(()) };
//!         let peer = connection.peer_addr();
//!         match connection.is_disconnected() {
//!             true => println!("{peer} is gone"),
//!             false => println!("{peer}: {error}"),
//!         }
//! #       assert_eq!((peer, error.status), (gone, WcStatus::WrFlushErr));
//! #       assert!(connection.is_disconnected());
//!     }
//!     Err(error) => return Err(error.into()),
//! }
//! # assert_eq!(connections.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//! Each operation has an error type of its own: [`ConnectError`], [`ListenError`], [`CloseError`]
//! and [`ResolveError`]. [`NoServiceError`] is the reason of all three when no device is available.
//! The message says what to do:
//!
//! ```
//! use urxe::cm::{self, CmaError, ConnectError, ListenError, Listener, NoServiceError, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = urxe::sim::Fabric::new(1).device([10, 0, 0, 1])?;
//! // This device has no IPv6 address.
//! match cm::prepare("[fd00::2]:7471", &Options::new().device(&device)).unwrap_err() {
//!     ConnectError::NoRoute { .. } => {}
//!     ConnectError::Service(NoServiceError::NothingConfigured) => println!("select a device"),
//!     other => panic!("{other}"),
//! }
//! let error = Listener::builder().device(&device).bind("10.0.0.9:7471").unwrap_err();
//! println!("{error} (errno {})", error.errno());
//!
//! let device = urxe::Device::open_address([127, 49, 11, 17])?;
//! let first = Listener::builder().device(&device).bind("127.49.11.17:0")?;
//! match Listener::builder().device(&device).bind(first.local_addr()).unwrap_err() {
//!     ListenError::InUse { addr, reason: CmaError::PortTaken { .. } } => {
//!         assert_eq!(addr, first.local_addr());
//!     }
//!     other => panic!("{other}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`CmaError`] names the identifier of the connection, its state, and the refused call. The
//! connection manager below reports a [`CmError`]:
//!
//! ```
//! use urxe::cm::{ClaimError, CmError, CmInput, CmState, CmaError, CmaId, IdState};
//!
//! fn describe(error: CmaError) -> String {
//!     match error {
//!         CmaError::State { id, state, call } => {
//!             let (id, state): (CmaId, IdState) = (id, state);
//!             format!("{id:?} is {state}, so it cannot {call}")
//!         }
//!         CmaError::Claim(ClaimError::InUse { owner: Some(owner), .. }) => {
//!             format!("stop {}", owner.name())
//!         }
//!         CmaError::Cm(CmError::State { state, call, .. }) => {
//!             let (state, call): (CmState, CmInput) = (state, call);
//!             format!("{state} does not allow {call}")
//!         }
//!         other => other.to_string(),
//!     }
//! }
//! # assert_eq!(describe(CmaError::UnknownChannel), "the event channel does not exist");
//! ```
//!
//! The error of a connection that is not established depends on the peer:
//!
//! | at the peer | error | after |
//! |---|---|---|
//! | a device is open, no program listens on the port | `Rejected`, [no service] | a round trip |
//! | the program rejects or drops the request | `Rejected`, [by the program] | its answer |
//! | no device: neither a program with urxe nor `rdma_rxe` | `Unreachable`, with ICMP | 77 s |
//! | no host, or a firewall drops UDP port 4791 | `Unreachable` | 77 s |
//!
//! [`Options::timeout`] replaces the 77 s. The error of a thread that it ends is `TimedOut` in
//! place of `Unreachable`.
//!
//! [no service]: RejReason::INVALID_SERVICE_ID
//! [by the program]: RejReason::CONSUMER_DEFINED
//!
//! The order in which the two programs start matters only once a device is open at the peer's
//! address: from then on, a request for a port without a listener is rejected at once. Before, this
//! end repeats its request every 4.8 s, and a listener that starts meanwhile accepts it. A client
//! that may start first connects again after `Rejected` with `INVALID_SERVICE_ID`.
//!
//! A peer that does not answer is reported after all repetitions of the request, or after
//! [`Options::timeout`]. If an ICMP message arrived meanwhile, the error names it as the likely
//! reason. The message itself ends nothing, because any host can forge it, and because the peer may
//! start later:
//!
//! ```
//! use std::time::Duration;
//! use urxe::cm::{self, ConnectError, Options, PathError, PathErrorReason};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = urxe::Device::open_address([127, 49, 11, 21])?;
//! let options = Options::new().device(&device).timeout(Duration::from_millis(200));
//! // No stack listens on this address.
//! match cm::prepare("127.49.11.22:7471", &options)?.establish().unwrap_err() {
//!     ConnectError::TimedOut { likely: Some(PathError { reason, .. }), .. } => {
//!         assert_eq!(reason, PathErrorReason::PortUnreachable);
//!     }
//!     other => println!("the system reports no ICMP errors: {other}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Sources: IBTA annex A11; the kernel's `drivers/infiniband/core/cma.c`; librdmacm's manual pages.
//!
#![cfg_attr(feature = "sim", doc = "[simulated network]: crate::sim#connections")]
#![cfg_attr(not(feature = "sim"), doc = "[simulated network]: crate#features")]

mod closing;
mod connection;
mod connection_state;
mod datagram;
mod default_devices;
mod error;
mod listener;
mod options;
mod pending;
mod private_data;
mod service;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

pub use self::closing::{Close, CloseError};
pub use self::connection::{Connection, ConnectionEvent, ConnectionEvents, NextConnectionEvent};
#[cfg(feature = "stream")]
pub use self::datagram::DatagramRequestStream;
pub use self::datagram::{
    DATAGRAM_QKEY, DatagramListener, DatagramRequest, DatagramService, Resolving, resolve,
};
pub use self::default_devices::DefaultDevices;
pub use self::error::{ConnectError, ListenError, NoServiceError, ResolveError};
#[cfg(feature = "stream")]
pub use self::listener::RequestStream;
pub use self::listener::{ConnectRequest, Incoming, Listener, ListenerBuilder, NextRequest};
pub(crate) use self::options::NewQueues;
pub use self::options::{ACCEPT_DATA_MAX, CONNECT_DATA_MAX, Options, REJECT_DATA_MAX};
pub use self::pending::{Establish, Establishing, Pending};
pub use self::private_data::PrivateData;
pub(crate) use self::service::Service;

pub use urxe_stack::cm::CmError;
pub use urxe_stack::cm::table::{CmState, Input as CmInput};
pub use urxe_stack::cma::{CmaError, CmaId, ConnEvent as PeerParameters, IdState};
pub use urxe_stack::port::sharing::ListenError as ClaimError;
pub use urxe_stack::port::udp::{PathError, PathErrorReason};
pub use urxe_wire::mad::{RejReason, SidrStatus};

/// Connects with the default [`Options`] and blocks until the peer accepts.
///
/// # Errors
/// Fails with [`ConnectError`]. For a name with several addresses, the error is that of the last
/// address.
pub fn connect(addr: impl ToSocketAddrs) -> Result<Connection, ConnectError> {
    let attempt = |addr| pending::prepare(addr, &Options::new())?.establish();
    try_each_address(addr, ConnectError::Address, attempt)
}

/// Resolves the route to `addr` and creates the queue pair of a connection, which accepts receives
/// at once.
///
/// A host name is resolved by the system, which blocks the thread. A task passes an address.
///
/// For a name with several addresses, the call uses the first address with a route. The peer
/// receives no message until the [`Pending`] connection is [established](Pending::establish) or
/// awaited.
///
/// # Errors
/// Fails with [`ConnectError`]. For a name with several addresses, the error is that of the last
/// address.
pub fn prepare(addr: impl ToSocketAddrs, options: &Options) -> Result<Pending, ConnectError> {
    try_each_address(addr, ConnectError::Address, |addr| pending::prepare(addr, options))
}

/// Calls `attempt` with each address until one succeeds. Returns the error of the last address.
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
