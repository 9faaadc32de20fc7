//! What rsockets say to each other, sans-IO: numbers in, numbers out. No socket, no memory, no
//! clock.
//!
//! A stream is a reliable connection. Each side lends the other halves of its receive buffer, by
//! writing their places into a short list in the lender's peer's memory (*targets*); the other
//! fills them by RDMA WRITE with immediate data, which says how many bytes there are. Immediate
//! data also says how many messages may still come (*credits*), and that a side ends. Facts:
//! rdma-core, `librdmacm/rsocket.c`, `librdmacm/man/rsocket.7`.
//!
//! ```text
//!   REQ, REP private data: ConnData             where targets and first half are, credits
//!   WRITE with imm  Data(n)     -> lent memory  n bytes of the stream
//!   WRITE with imm  Grant(c)    -> targets      the next half; or without data: credits alone
//!   WRITE with imm  Iomap(i)    -> targets      memory that the peer may write by riowrite
//!   WRITE with imm  Control(..)                 this side ends
//!   WRITE                       -> iomapped     riowrite
//! ```
//! | file | subject |
//! |---|---|
//! | [`connect`] | private data of a connection |
//! | [`segment`] | places in memory, as they are written into a peer's |
//! | [`message`] | immediate data, and what names a work request |
//! | [`stream`] | the state machine of a connection |
//! | [`sender`], [`receiver`] | its two directions |
//! | [`datagram`] | headers of SOCK_DGRAM |
#![deny(unsafe_code)]

pub mod connect;
pub mod datagram;
pub mod message;
pub mod receiver;
pub mod segment;
pub mod sender;
pub mod stream;

#[cfg(test)]
mod tests;
