//! rsockets: the sockets of librdmacm over queue pairs. A SOCK_STREAM uses a reliable connection, a
//! SOCK_DGRAM uses datagrams.
//!
//! The original is a layer over the C calls of librdmacm and libibverbs. This crate is the same
//! layer over the stack: the connection manager ([`urxe_stack::cma`]) and the engine. The C ABI
//! converts a program's arguments, calls the functions of this crate, and provides the connections
//! and devices of the process ([`Process`]). Sources: rdma-core, `librdmacm/rsocket.c`,
//! `librdmacm/man/rsocket.7`.
//!
//! ```text
//!   C ABI --> calls --> descriptors --> stream ----> stream_io --> protocol::stream
//!                                  |       `-> connect           work requests, completions
//!                                  `--> datagram                 run by the service thread
//! ```
//! | file | subject |
//! |---|---|
//! | `protocol` | the messages between two peers, without I/O |
//! | `calls` | the functions on descriptors |
//! | `descriptors` | the table of rsockets; rpoll, rselect and repoll |
//! | `stream` | SOCK_STREAM: connections, data transfer, riomap and riowrite |
//! | `datagram` | SOCK_DGRAM: datagrams and the addresses of peers |
//! | `transport` | identifiers, queue pairs and registered memory |
//! | `service` | the thread that advances connections and sends keepalives |
//! | `poll_waiters` | threads that sleep in rpoll |
//! | `options`, `config` | socket options, `/etc/rdma/rsocket` |
//! | `iovec` | scatter and gather lists of a program |
//! | `numbers` | the numbers of the descriptors of rsockets |
//! | `process` | the services that the process provides |
//! | `error` | conversion of errors of the stack to error numbers |
//!
//! The feature `sockets`, on by default, has all of these except `protocol`. Streams of the crate
//! `urxe` use the protocol alone.
//!
//! # Differences from the original
//! - `raccept` returns only established connections, so a blocking `rrecv` after `raccept` waits.
//!   The original may return EAGAIN.
//! - `rrecvmsg` and `rreadv` fill all buffers, not only the first.
//! - rpoll reports POLLHUP after the program has taken the last data, not when the disconnect
//!   arrives.
//! - A peer that violates the protocol loses its connection; the original does not check.
//! - A disconnect event of the connection manager also wakes threads that sleep in `rrecv` and
//!   `rsend`.
//! - A forked child has no rsockets: each call fails with EBADF. In the original, the child cannot
//!   use inherited rsockets either, because their queue pairs stay with the parent. The preload
//!   library's support of children (`RDMAV_FORK_SAFE`) connects again, and works.
//! - AF_IB is refused, because the stack has only IP addresses. Options for iWARP are refused,
//!   because no device supports iWARP.
//!
//! # Example
//!
//! A stream between two sockets of one process:
//!
//! ```
//! # #[cfg(feature = "sockets")] {
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::sync::Arc;
//!
//! use rustix::io::Errno;
//! use urxe_rsocket::{Device, Process, ScatterList};
//! use urxe_stack::driver::{AfterProgress, Connections, Engine, EngineConfig};
//!
//! /// A process with one device, which stays open.
//! #[derive(Debug)]
//! struct Host {
//!     connections: &'static Arc<Connections>,
//!     device: Device,
//! }
//!
//! impl Process for Host {
//!     fn connections(&self) -> &'static Arc<Connections> {
//!         self.connections
//!     }
//!
//!     fn devices(&self) -> Result<Vec<Device>, Errno> {
//!         Ok(vec![self.device])
//!     }
//! }
//!
//! /// The program takes no asynchronous events.
//! struct NoEvents;
//!
//! impl AfterProgress for NoEvents {
//!     fn is_due(&self) -> bool {
//!         false
//!     }
//!
//!     fn act(&self) {}
//! }
//!
//! let connections: &_ = Box::leak(Box::new(Arc::new(Connections::new(1))));
//! let config = EngineConfig { connections: Some(Arc::clone(connections)), ..Default::default() };
//! let engine: &_ = Box::leak(Box::new(Engine::open(&"rxe0=127.77.2.1".parse()?, config)?));
//! let (key, pd) = (engine.connection_key().unwrap(), engine.device().alloc_pd().unwrap());
//! let device = Device { key, engine, pd, events: &NoEvents };
//! let host: &_ = Box::leak(Box::new(Host { connections, device }));
//!
//! let at = SocketAddr::from((Ipv4Addr::new(127, 77, 2, 1), 7100));
//! let listener = urxe_rsocket::socket(host, libc::AF_INET, libc::SOCK_STREAM, 0)?;
//! urxe_rsocket::bind(listener, at)?;
//! urxe_rsocket::listen(listener, 1)?;
//! let client = std::thread::spawn(move || {
//!     let client = urxe_rsocket::socket(host, libc::AF_INET, libc::SOCK_STREAM, 0)?;
//!     urxe_rsocket::connect(client, at)?;
//!     urxe_rsocket::send(client, &[b"hello ", b"world"], 0, None)
//! });
//!
//! let (stream, _) = urxe_rsocket::accept(listener)?;
//! let mut bytes = [0; 11];
//! let mut to = ScatterList::new(vec![&mut bytes]);
//! urxe_rsocket::receive(stream, &mut to, libc::MSG_WAITALL)?;
//! assert_eq!(&bytes, b"hello world");
//! assert_eq!(client.join().unwrap(), Ok(11));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "sockets")]
mod calls;
#[cfg(feature = "sockets")]
mod config;
#[cfg(feature = "sockets")]
mod datagram;
#[cfg(feature = "sockets")]
mod descriptors;
#[cfg(feature = "sockets")]
mod error;
#[cfg(feature = "sockets")]
mod iovec;
#[cfg(feature = "sockets")]
mod numbers;
#[cfg(feature = "sockets")]
mod options;
#[cfg(feature = "sockets")]
mod poll_waiters;
#[cfg(feature = "sockets")]
mod process;
// Public for `urxe::stream`, and for the fuzz targets, which play a hostile peer.
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "sockets")]
mod service;
#[cfg(feature = "sockets")]
mod stream;
#[cfg(feature = "sockets")]
mod transport;

#[cfg(feature = "sockets")]
pub use self::calls::{
    accept, bind, close, connect, epoll_control, epoll_create, epoll_wait, fcntl, get_option,
    is_datagram, listen, local_address, map, peer_address, receive, send, set_option, shutdown,
    socket, unmap, write_mapped,
};
#[cfg(feature = "sockets")]
pub use self::descriptors::poll::wait as poll;
#[cfg(feature = "sockets")]
pub use self::error::Result;
#[cfg(feature = "sockets")]
pub use self::iovec::ScatterList;
#[cfg(feature = "sockets")]
pub use self::options::SOL_RDMA;
#[cfg(feature = "sockets")]
pub use self::process::{Device, Process};
#[cfg(feature = "sockets")]
pub use self::stream::iomap::MapRequest;
