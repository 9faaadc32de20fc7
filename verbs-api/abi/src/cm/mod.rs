//! librdmacm: connections by IP addresses and ports.
//!
//! The original is a thin layer over the kernel's `rdma_cm`; here the same layer stands over the
//! stack's [`Cma`](urxe_stack::cma). What the original does in the program's process is done here:
//! queues and queue pairs made for an identifier, the queue pair's way from INIT to RTS,
//! synchronous identifiers, acknowledged events. Facts: rdma-core, `librdmacm/cma.c` and its manual
//! pages.
//!
//! | file | subject |
//! |---|---|
//! | [`process`] | what a process has once: its connections, its devices |
//! | [`channel`], [`event`] | event channels, and the events they give |
//! | [`id`] | identifiers |
//! | [`address`] | binding, resolving, what an identifier shows of its addresses and route |
//! | [`connect`] | listening, connecting, accepting, refusing, disconnecting |
//! | [`qp`], [`queues`], [`srq`] | queue pair, completion queues and shared queue of an identifier |
//! | [`endpoint`] | `rdma_create_ep` and `rdma_get_request` |
//! | [`addrinfo`] | `rdma_getaddrinfo` |
//! | [`multicast`] | groups |
//! | [`option`] | `rdma_set_option` |
//! | [`user_events`] | events that programs write, addresses resolved with an event |

pub mod address;
pub mod addrinfo;
pub mod channel;
pub mod connect;
pub mod endpoint;
pub mod event;
pub mod id;
pub mod multicast;
pub mod option;
pub mod process;
pub mod qp;
pub mod queues;
pub mod srq;
pub mod user_events;
