//! rsockets: librdmacm's sockets over queue pairs, SOCK_STREAM over a reliable connection and
//! SOCK_DGRAM over datagrams.
//!
//! The original is a layer over librdmacm's and libibverbs' own calls; here the same layer stands
//! over `cm` and the engine. What two ends say to each other is [`protocol`], without I/O; the rest
//! moves bytes, sleeps, and answers C. Facts: rdma-core, `librdmacm/rsocket.c`,
//! `librdmacm/man/rsocket.7`.
//!
//! ```text
//!   calls (C) --> table --> stream ----> link --> protocol::stream   work requests, completions
//!                      |       `-> connect    } moved by the service's thread
//!                      `--> datagram          }
//! ```
//! | file | subject |
//! |---|---|
//! | [`protocol`] | what two ends say to each other |
//! | [`calls`], [`transfer`], [`options`] | the C functions |
//! | [`answer`] | how a result becomes a C result |
//! | [`table`] | descriptors and what they stand for |
//! | [`stream`], [`connect`], [`accept`] | a SOCK_STREAM, and how it gets its connection |
//! | [`endpoint`], [`link`] | queue pair and buffers of a connection; bytes in and out |
//! | [`datagram`], [`destination`] | a SOCK_DGRAM, and the way to its peers |
//! | [`iomap`] | riomap and riowrite |
//! | [`poll`], [`sleepers`] | rpoll and rselect, over rsockets and plain descriptors |
//! | [`epoll`] | repoll |
//! | [`service`] | the thread that moves connections and sends keepalives |
//! | [`config`] | `/etc/rdma/rsocket` |
//!
//! # Where it differs from the original
//! - A connection is accepted only when it stands, so a blocking `rrecv` after `raccept` waits,
//!   where the original may say EAGAIN.
//! - `rrecvmsg` and `rreadv` fill all pieces, not only the first.
//! - rpoll says POLLHUP when the last data was taken, not when the peer's end came in.
//! - A peer that breaks the protocol ends its connection; the original trusts it.
//! - The connection manager's word that a peer is gone also wakes who sleeps in `rrecv` and
//!   `rsend`.
//! - A forked child has no rsockets: each call says EBADF there. In the original they are no use to
//!   it either, since its queue pairs stay the parent's; the preload library's way of serving
//!   children (`RDMAV_FORK_SAFE`) connects them anew, and works.
//! - AF_IB is refused (there are IP addresses only), and so is what iWARP needs, since no device
//!   here speaks it.

pub mod accept;
pub mod answer;
pub mod calls;
pub mod config;
pub mod connect;
pub mod datagram;
pub mod destination;
pub mod endpoint;
pub mod epoll;
pub mod iomap;
pub mod link;
pub mod options;
pub mod poll;
pub mod protocol;
pub mod service;
pub mod sleepers;
pub mod stream;
pub mod table;
pub mod transfer;
