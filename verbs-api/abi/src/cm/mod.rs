//! librdmacm: connections by IP addresses and ports.
//!
//! The original is a thin layer over the kernel's `rdma_cm`; here the same layer uses the stack's
//! [`Cma`](urxe_stack::cma). This layer does the work of the original in the program's process: it
//! makes queues and queue pairs for an identifier, moves the queue pair from INIT to RTS, and
//! implements synchronous identifiers and acknowledged events. Sources: rdma-core,
//! `librdmacm/cma.c` and the manual pages of librdmacm.
//!
//! | file | subject |
//! |---|---|
//! | [`process`] | the connections and devices of the process |
//! | [`channel`], [`event`] | event channels and their events |
//! | [`id`] | identifiers |
//! | [`address`] | binding, resolution, and the address and route fields of an identifier |
//! | [`connect`] | listening, connecting, accepting, rejecting, disconnecting |
//! | [`qp`], [`queues`], [`srq`] | the queue pair and the queues of an identifier |
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
