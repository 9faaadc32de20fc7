//! What both kinds of sockets stand on: identifiers of the connection manager, queue pairs,
//! registered memory.

pub mod id;
pub mod queues;
