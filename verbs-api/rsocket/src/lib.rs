//! rsockets: librdmacm's sockets over queue pairs, SOCK_STREAM over a reliable connection and
//! SOCK_DGRAM over datagrams.
//!
//! The original is a layer over librdmacm's and libibverbs' C calls. This crate is the same layer
//! over the stack: its connection manager ([`urxe_stack::cma`]) and its engine. The C ABI converts
//! a program's arguments, calls the functions of this crate, and provides the process's
//! connections and devices ([`Process`]). Facts: rdma-core, `librdmacm/rsocket.c`,
//! `librdmacm/man/rsocket.7`.
//!
//! ```text
//!   C ABI --> calls --> descriptors --> stream ----> stream_io --> protocol::stream
//!                                  |       `-> connect           work requests, completions
//!                                  `--> datagram                 moved by the service's thread
//! ```
//! | file | subject |
//! |---|---|
//! | `protocol` | the messages of two ends, without I/O |
//! | `calls` | the functions on descriptors |
//! | `descriptors` | descriptors and their sockets; rpoll, rselect and repoll |
//! | `stream` | a SOCK_STREAM: its connection, bytes in and out, riomap and riowrite |
//! | `datagram` | a SOCK_DGRAM, and the way to its peers |
//! | `transport` | identifiers, queue pairs and registered memory |
//! | `service` | the thread that moves connections and sends keepalives |
//! | `poll_waiters` | threads that sleep in rpoll |
//! | `options`, `config` | socket options, `/etc/rdma/rsocket` |
//! | `iovec` | a program's bytes |
//! | `process` | what the process provides |
//! | `error` | how an error of the stack becomes an error number |
//!
//! # Differences from the original
//! - A connection is accepted only when it is established, so a blocking `rrecv` after `raccept`
//!   waits, where the original may say EAGAIN.
//! - `rrecvmsg` and `rreadv` fill all pieces, not only the first.
//! - rpoll says POLLHUP when the last data was taken, not when the peer's end came in.
//! - A peer that breaks the protocol ends its connection; the original trusts it.
//! - A disconnect event of the connection manager also wakes threads that sleep in `rrecv` and
//!   `rsend`.
//! - A forked child has no rsockets: each call says EBADF there. In the original they are no use to
//!   it either, since its queue pairs stay the parent's; the preload library's way of serving
//!   children (`RDMAV_FORK_SAFE`) connects them anew, and works.
//! - AF_IB is refused (there are IP addresses only), and so is what iWARP needs, since no device
//!   here speaks it.
#![forbid(unsafe_code)]

mod calls;
mod config;
mod datagram;
mod descriptors;
mod error;
mod iovec;
mod options;
mod poll_waiters;
mod process;
mod protocol;
mod service;
mod stream;
mod transport;

pub use self::calls::{
    accept, bind, close, connect, epoll_control, epoll_create, epoll_wait, fcntl, get_option,
    is_datagram, listen, local_address, map, peer_address, receive, send, set_option, shutdown,
    socket, unmap, write_mapped,
};
pub use self::descriptors::poll::wait as poll;
pub use self::error::Result;
pub use self::iovec::ScatterList;
pub use self::options::SOL_RDMA;
pub use self::process::{Device, Process};
pub use self::stream::iomap::MapRequest;
