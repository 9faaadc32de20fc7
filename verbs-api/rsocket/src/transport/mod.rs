//! The transport of both socket types: identifiers of the connection manager, queue pairs,
//! registered memory.

pub mod id;
pub mod queues;
