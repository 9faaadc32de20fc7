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
//!   C ABI --> calls --> table --> stream ----> stream_io --> protocol::stream
//!                            |       `-> connect           work requests, completions
//!                            `--> datagram                 moved by the service's thread
//! ```
//! | file | subject |
//! |---|---|
//! | `protocol` | the messages of two ends, without I/O |
//! | `calls` | the functions on descriptors |
//! | `process` | what the process provides |
//! | `error` | how an error of the stack becomes an error number |
//! | `table` | descriptors and their sockets |
//! | `stream`, `connect`, `accept` | a SOCK_STREAM, and how it gets its connection |
//! | `id`, `queues` | identifier, queue pair and registered memory |
//! | `endpoint`, `stream_io` | buffers of a connection; bytes in and out |
//! | `datagram`, `destination` | a SOCK_DGRAM, and the way to its peers |
//! | `options` | socket options |
//! | `iovec` | a program's bytes |
//! | `iomap` | riomap and riowrite |
//! | `poll`, `poll_waiters` | rpoll and rselect, over rsockets and plain descriptors |
//! | `epoll` | repoll |
//! | `service` | the thread that moves connections and sends keepalives |
//! | `config` | `/etc/rdma/rsocket` |
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

mod accept;
mod calls;
mod config;
mod connect;
mod datagram;
mod destination;
mod endpoint;
mod epoll;
mod error;
mod id;
mod iomap;
mod iovec;
mod options;
mod poll;
mod poll_waiters;
mod process;
mod protocol;
mod queues;
mod service;
mod stream;
mod stream_io;
mod table;

pub use self::calls::{
    accept, bind, close, connect, epoll_control, epoll_create, epoll_wait, fcntl, get_option,
    is_datagram, listen, local_address, map, peer_address, receive, send, set_option, shutdown,
    socket, unmap, write_mapped,
};
pub use self::error::Result;
pub use self::iomap::MapRequest;
pub use self::iovec::ScatterList;
pub use self::options::SOL_RDMA;
pub use self::poll::wait as poll;
pub use self::process::{Device, Process};
pub use self::protocol::stream::Shut;
