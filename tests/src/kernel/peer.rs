//! The urxe end of the control protocol of `tests/kernel/guest/peer.c`: SEND, WRITE, READ, atomics
//! and memory windows against a kernel, in both roles. Both ends verify every byte.
//!
//! | file | subject |
//! |---|---|
//! | `wire` | the lines, the pattern, the operations |
//! | `resources` | a device with one queue pair, and one region with guard bytes |
//! | `client`, `server` | the two roles |

mod client;
mod resources;
mod server;
mod wire;

use std::{io, net::IpAddr, num::ParseIntError, time::Duration};

use clap::Args;
use urxe::{
    AllocMwError, AllocPdError, AllocateError, BufferError, CqError, CreateCqError, CreateQpError,
    ModifyError, OpenError, PathMtu, PostError, SliceError, WcStatus,
};

pub use client::run_client;
pub use server::serve;
pub use wire::{Operation, pattern};

/// The configuration of both roles.
#[derive(Debug, Clone, Args)]
pub struct PeerConfig {
    /// This end's address
    #[arg(long)]
    pub address: IpAddr,
    /// TCP port of the control connection
    #[arg(short, default_value_t = 18600)]
    pub port: u16,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the server takes the client's
    #[arg(short, default_value = "1024", value_parser = path_mtu)]
    pub mtu: PathMtu,
    /// Outstanding READs and atomics; the server takes the client's
    #[arg(short = 'a', default_value_t = 4)]
    pub rd_atomic: u8,
    /// Scatter-gather entries of each work request
    #[arg(short = 'S', default_value_t = 1)]
    pub sges: u32,
    /// Local ACK timeout, as a code
    #[arg(short, default_value_t = 14)]
    pub timeout: u8,
    /// Retransmit nothing before the local ACK timeout
    #[arg(long)]
    pub patient: bool,
    /// Retry count
    #[arg(short, default_value_t = 7)]
    pub retry_cnt: u8,
    /// RNR retry count
    #[arg(short = 'R', default_value_t = 7)]
    pub rnr_retry: u8,
    /// Minimum RNR timer, as a code
    #[arg(short = 'T', default_value_t = 12)]
    pub min_rnr_timer: u8,
    /// Server: delay of the receives after the client may begin, in milliseconds
    #[arg(short = 'D', default_value_t = 0)]
    pub delay_ms: u64,
}

/// The configuration of the client.
#[derive(Debug, Clone, Args)]
pub struct ClientConfig {
    /// Message size in bytes
    #[arg(short, default_value_t = 4096)]
    pub size: u32,
    /// Messages of each operation
    #[arg(short = 'n', default_value_t = 16)]
    pub count: u32,
    /// Outstanding messages
    #[arg(short = 'q', default_value_t = 16)]
    pub depth: u32,
    /// Send inline
    #[arg(short = 'I')]
    pub inline: bool,
    /// Flip these bits of the rkey (hexadecimal)
    #[arg(short = 'k', default_value = "0", value_parser = hexadecimal)]
    pub rkey_flip: u32,
    /// The operations, one after the other
    pub operations: Vec<Operation>,
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let found = PathMtu::ALL.into_iter().find(|mtu| mtu.bytes().to_string() == text);
    found.ok_or_else(|| "256, 512, 1024, 2048 or 4096".to_owned())
}

fn hexadecimal(text: &str) -> Result<u32, ParseIntError> {
    u32::from_str_radix(text, 16)
}

/// Why a peer stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum PeerError {
    /// The control connection failed.
    #[error("control connection: {0}")]
    Control(#[from] io::Error),
    /// The other end closed the connection (`received` is empty), or sent a line that the protocol
    /// does not allow there.
    #[error("the peer sent {received:?}, expected {wanted}")]
    Protocol { received: String, wanted: &'static str },
    /// The device did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The protection domain was refused.
    #[error(transparent)]
    AllocPd(#[from] AllocPdError),
    /// The region was refused.
    #[error(transparent)]
    Region(#[from] AllocateError),
    /// Part of the region was refused.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// A local access to the region failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A memory window was refused.
    #[error(transparent)]
    AllocMw(#[from] AllocMwError),
    /// Binding a memory window failed.
    #[error("binding a memory window: {status}")]
    Bind { status: WcStatus },
    /// The completion queue was refused.
    #[error(transparent)]
    CreateCq(#[from] CreateCqError),
    /// Polling failed.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// The queue pair was refused.
    #[error(transparent)]
    CreateQp(#[from] CreateQpError),
    /// A transition of the queue pair failed.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// No completion came in time.
    #[error("no completion for {limit:?}; counters: {counters}")]
    Stalled { limit: Duration, counters: String },
    /// A work request was refused.
    #[error("message {message}: {source}")]
    Post { message: u32, source: PostError },
}

/// A fault of an operation: the subject of the test, not an error of the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum Mismatch {
    /// A work request failed. The text is that of `peer.c`.
    #[error("wc status {} ({status}) at message {message}", status.number())]
    Status { status: WcStatus, message: u64 },
    /// A completion does not belong to the next message.
    #[error("completions out of order: {found}, expected {wanted}")]
    Order { found: u64, wanted: u32 },
    /// A field of a completion is wrong: opcode, length, immediate data or invalidated key.
    #[error("{field} of completion {message}")]
    Completion { field: &'static str, message: u32 },
    /// There are fewer completions than messages.
    #[error("{done} of {count} completions")]
    Missing { done: u32, count: u32 },
    /// A byte differs from the message.
    #[error("message {message}, byte {byte}")]
    Byte { message: u32, byte: usize },
    /// A byte changed that no operation may write.
    #[error("written outside the slots, at {offset} bytes from the start of the region")]
    Outside { offset: i64 },
    /// An atomic operation found another value.
    #[error("atomic {message} found {found:#x}, expected {wanted:#x}")]
    Atomic { message: u32, found: u64, wanted: u64 },
    /// The counter has another final value.
    #[error("the counter is {found:#x}, expected {wanted:#x}")]
    Counter { found: u64, wanted: u64 },
    /// The other end reported a fault.
    #[error("{0}")]
    Other(String),
}
