//! The protocol of rsockets, sans-IO: numbers in, numbers out. The module uses no socket, no memory
//! and no clock.
//!
//! A stream is a reliable connection. Each side lends the halves of its receive buffer to the peer
//! in turn: it writes their addresses into a short list in the peer's memory (*targets*). The peer
//! fills a half by RDMA WRITE with immediate data, which states the number of bytes. Immediate data
//! also carries the number of messages that the peer may still send (*credits*), and the end of a
//! side. Sources: rdma-core, `librdmacm/rsocket.c`, `librdmacm/man/rsocket.7`.
//!
//! ```text
//!   REQ, REP private data: ConnData             addresses of targets and first half, credits
//!   WRITE with imm  Data(n)     -> lent memory  n bytes of the stream
//!   WRITE with imm  Grant(c)    -> targets      the next half; or without data: credits alone
//!   WRITE with imm  Iomap(i)    -> targets      memory that the peer may write by riowrite
//!   WRITE with imm  Control(..)                 the end of this side
//!   WRITE                       -> iomapped     riowrite
//! ```
//! | file | subject |
//! |---|---|
//! | [`connect`] | private data of a connection |
//! | [`segment`] | memory segments in the form in which they are written to the peer |
//! | [`message`] | immediate data, and identifiers of work requests |
//! | [`stream`] | the state machine of a connection |
//! | [`sender`], [`receiver`] | the two directions of a connection |
//! | [`mappings`] | memory of this side that the peer may write by riowrite |
//! | [`datagram`] | headers of SOCK_DGRAM |
#![deny(unsafe_code)]

pub mod connect;
pub mod datagram;
pub mod mappings;
pub mod message;
pub mod receiver;
pub mod segment;
pub mod sender;
pub mod stream;

#[cfg(test)]
mod tests;
