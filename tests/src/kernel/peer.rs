//! urxe's end of the control protocol that `tests/kernel/guest/peer.c` describes: SEND, WRITE,
//! READ, atomics and memory windows against a kernel, in both roles, every byte verified by both
//! ends.
//!
//! | file | subject |
//! |---|---|
//! | `wire` | the lines, the pattern, the operations |
//! | `station` | a device with one queue pair and one region, guarded before and behind what the peer may use |
//! | `client`, `server` | the two roles |

mod client;
mod server;
mod station;
mod wire;

use std::{io, net::IpAddr, time::Duration};

use urxe::{
    AllocMwError, AllocPdError, AllocateError, BufferError, CqError, CreateCqError, CreateQpError,
    ModifyError, OpenError, PathMtu, PostError, SliceError, WcStatus,
};

pub use client::play;
pub use server::serve;
pub use wire::Operation;

/// What both roles are told.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// The device's address.
    pub address: IpAddr,
    /// TCP port of the control connection.
    pub port: u16,
    /// Path MTU; the server takes the client's.
    pub mtu: PathMtu,
    /// READs and atomics outstanding; the server takes the client's.
    pub rd_atomic: u8,
    /// Scatter-gather entries of each work request.
    pub sges: u32,
    /// Local ACK timeout, as a code.
    pub timeout: u8,
    /// No retransmission comes before it.
    pub patient: bool,
    /// Retry count.
    pub retry_cnt: u8,
    /// RNR retry count.
    pub rnr_retry: u8,
    /// Minimal RNR timer, as a code.
    pub min_rnr_timer: u8,
    /// Server: receives are posted so long after the client may begin.
    pub delay_ms: u64,
}

/// What the client plays.
#[derive(Debug, Clone)]
pub struct PlayConfig {
    /// The operations, one after the other.
    pub operations: Vec<Operation>,
    /// Message size in bytes.
    pub size: u32,
    /// Messages of each operation.
    pub count: u32,
    /// Messages outstanding.
    pub depth: u32,
    /// Send inline.
    pub inline: bool,
    /// Bits of the rkey to flip.
    pub rkey_flip: u32,
}

/// Why a peer gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The control connection.
    #[error("control connection: {0}")]
    Control(#[from] io::Error),
    /// The other end closed it, or said something else than the protocol has there.
    #[error("the other end said {said:?} where {wanted} was due")]
    Protocol {
        /// What it said; empty when it closed the connection.
        said: String,
        /// What the protocol has there.
        wanted: &'static str,
    },
    /// The device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The protection domain.
    #[error(transparent)]
    AllocPd(#[from] AllocPdError),
    /// The region.
    #[error(transparent)]
    Region(#[from] AllocateError),
    /// A part of it.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// An access to it from here.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A memory window.
    #[error(transparent)]
    AllocMw(#[from] AllocMwError),
    /// Binding it.
    #[error("binding a memory window: {status}")]
    Bind {
        /// How it completed.
        status: WcStatus,
    },
    /// The completion queue.
    #[error(transparent)]
    CreateCq(#[from] CreateCqError),
    /// Polling it.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// The queue pair.
    #[error(transparent)]
    CreateQp(#[from] CreateQpError),
    /// Its transitions.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// No completion came.
    #[error("no completion for {limit:?}; counters: {counters}")]
    Stalled {
        /// How long.
        limit: Duration,
        /// Of the device.
        counters: String,
    },
    /// A work request.
    #[error("message {message}: {source}")]
    Post {
        /// Which.
        message: u32,
        /// Why it was refused.
        source: PostError,
    },
}

/// What an operation showed to be wrong. Not an error of the program: the subject of the test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A work request failed. The text is the one of `peer.c`.
    #[error("wc status {} ({status}) at message {message}", status.number())]
    Status {
        /// Its status.
        status: WcStatus,
        /// Which message.
        message: u64,
    },
    /// A completion is not that of the next message.
    #[error("completions out of order: {found} where {wanted} was due")]
    Order {
        /// The message completed.
        found: u64,
        /// The next message.
        wanted: u32,
    },
    /// A completion's opcode, length, immediate data or invalidated key.
    #[error("{field} of completion {message}")]
    Completion {
        /// Which of them.
        field: &'static str,
        /// Which message.
        message: u32,
    },
    /// Fewer completions than messages.
    #[error("{done} of {count} completions")]
    Missing {
        /// Completions.
        done: u32,
        /// Messages.
        count: u32,
    },
    /// A byte is not the message's.
    #[error("message {message}, byte {byte}")]
    Byte {
        /// Which message.
        message: u32,
        /// Which byte of it.
        byte: usize,
    },
    /// A byte changed that nothing may write.
    #[error("written outside the slots, at {offset} from the region's start")]
    Outside {
        /// Where.
        offset: i64,
    },
    /// An atomic operation found another value.
    #[error("atomic {message} found {found:#x}, not {wanted:#x}")]
    Atomic {
        /// Which message.
        message: u32,
        /// What it found.
        found: u64,
        /// What it should have.
        wanted: u64,
    },
    /// The counter has another value in the end.
    #[error("the counter is {found:#x}, not {wanted:#x}")]
    Counter {
        /// What it is.
        found: u64,
        /// What it should be.
        wanted: u64,
    },
    /// The other end's verdict.
    #[error("{0}")]
    Other(String),
}
