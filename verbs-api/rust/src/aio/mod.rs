//! Awaitable operations: each future resolves with its own completion.
//!
//! An [`AsyncQueuePair`] has a completion queue of its own, which no program can poll. Therefore
//! tasks that share the queue pair never receive each other's completions. The futures need no
//! particular executor.
//!
//! ```
//! use std::sync::Arc;
//! use urxe::aio::{AsyncQueuePair, AsyncQueuePairBuilder};
//! use urxe::{Access, ConnectOptions, sim::Fabric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(1);
//! let (pd, peer_pd) =
//!     (fabric.device([10, 0, 0, 1])?.alloc_pd()?, fabric.device([10, 0, 0, 2])?.alloc_pd()?);
//! // 16 receives of 4096 bytes.
//! let builder: AsyncQueuePairBuilder = AsyncQueuePair::builder().receives(16, 4096);
//! let (qp, peer) = (builder.clone().create(&pd)?, builder.create(&peer_pd)?);
//! qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
//! peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
//!
//! let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
//! let table = peer_pd.allocate(4096, rights)?;
//! let local = Arc::new(pd.allocate(4096, Access::LOCAL_WRITE)?);
//! pollster::block_on(async {
//!     qp.send(b"ping").await?;
//!     assert_eq!(peer.recv().await?.to_vec(), b"ping");
//!     qp.write(b"value", table.remote()).await?;
//!     qp.read(local.share(..5)?, table.remote()).await?;
//!     assert_eq!(local.read_vec(0, 5)?, b"value");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Connections
//! [`AsyncQueuePairBuilder::connect`] and [`AsyncQueuePairBuilder::accept`] connect by IP address
//! and port. They return an [`AsyncConnection`].
//!
//! # Data
//! A SEND or WRITE of up to 64 bytes
//! ([`max_inline_data`](AsyncQueuePairBuilder::max_inline_data)) takes `&[u8]`. Longer data is in a
//! region: [`ProtectionDomain::share_bytes`] copies bytes into a new one, and
//! [`MemoryRegion::share`](crate::MemoryRegion::share) names a slice of one that the program keeps,
//! which is faster.
//!
//! # The end of a connection
//! The operations of an [`AsyncConnection`] fail with [`OperationError::Disconnected`] when one end
//! has disconnected or the peer's program has died. A server ends its loop then:
//!
#![cfg_attr(feature = "cm", doc = "```")]
#![cfg_attr(not(feature = "cm"), doc = "```ignore")]
//! use urxe::aio::{AsyncConnection, OperationError};
//!
//! /// Answers each message until the client disconnects.
//! async fn echo(connection: &AsyncConnection) -> Result<(), Box<dyn std::error::Error>> {
//!     loop {
//!         let message = match connection.recv().await {
//!             Ok(message) => message.to_vec(),
//!             Err(OperationError::Disconnected { .. }) => return Ok(()),
//!             Err(error) => return Err(error.into()),
//!         };
//!         // The message may be too long for inline data.
//!         connection.send(connection.pd().share_bytes(&message)?).await?;
//!     }
//! }
//! ```
//!
//! # Dropped futures
//! A program may drop each future at any time, for example by a timeout. A posted request is not
//! cancelled by that; its memory stays registered until it completes, and then its entry of the
//! send queue is free again. A dropped [`Receive`] loses no message.
//!
//! # Order
//! Requests are posted in the order in which their futures are first polled. If the send queue is
//! full, futures wait for an entry in that order. Messages go to waiting tasks in the order in
//! which the tasks began to wait. A queue pair executes its requests in the order of their posts.
//!
//! # Waiting
//! One future of each queue pair polls for up to 50 µs
//! ([`busy_poll`](AsyncQueuePairBuilder::busy_poll)), and gives other tasks a turn after each poll.
//! So an answer that comes soon needs no wake-up of a thread. After that the tasks sleep, and the
//! thread that receives a completion wakes the task of its operation. Polls become rare while they
//! are in vain, because on a busy machine they take the processor from the peer. A program with a
//! thousand queue pairs in one thread sets the time to zero, because their polls delay each other.
//!
//! # Names and devices
//! Functions that run in tasks take addresses. Resolve names before, because
//! [`ToSocketAddrs`](std::net::ToSocketAddrs) blocks the thread. Open devices before, too: without
//! a device in its options, the first connection opens the configured devices.
//!
#![cfg_attr(not(feature = "cm"), doc = "[`AsyncQueuePairBuilder::connect`]: crate#features")]
#![cfg_attr(not(feature = "cm"), doc = "[`AsyncQueuePairBuilder::accept`]: crate#features")]
#![cfg_attr(not(feature = "cm"), doc = "[`AsyncConnection`]: crate#features")]
#![cfg_attr(not(feature = "cm"), doc = "[`OperationError::Disconnected`]: crate#features")]

mod batch;
mod builder;
mod busy_polling;
#[cfg(feature = "cm")]
mod connection;
mod driving;
mod error;
mod local;
mod operation;
mod queue;
mod receive;
mod turns;

use std::fmt;
use std::sync::Arc;

use urxe_stack::device::ModifyError;
use urxe_stack::qp::attr::QpAttr;
use urxe_stack::qp::work_request::{FlushRange, Remote, SendOp};
use urxe_wire::{PlacementType, Qpn};

pub use self::batch::Batch;
pub use self::builder::AsyncQueuePairBuilder;
#[cfg(feature = "cm")]
pub use self::connection::AsyncConnection;
pub use self::error::{OperationError, SetupError};
pub use self::local::{Payload, SharedSlice};
pub use self::operation::{AtomicOperation, Completed, Operation};
pub use self::receive::{Receive, Received};

use self::operation::{Local, Work};
use self::queue::Inner;
use crate::device::Device;
use crate::endpoint::QpEndpoint;
use crate::pd::ProtectionDomain;
use crate::qp::ConnectOptions;

/// A queue pair whose operations are futures. See the [module](self).
///
/// Clones are handles of the same queue pair, for tasks that share it. Dropping the last handle
/// destroys the queue pair.
#[derive(Clone)]
pub struct AsyncQueuePair {
    inner: Arc<Inner>,
}

impl AsyncQueuePair {
    /// Returns the builder of a queue pair.
    pub fn builder() -> AsyncQueuePairBuilder {
        AsyncQueuePairBuilder::default()
    }

    /// Connects to `peer`, as [`QueuePair::connect`](crate::QueuePair::connect) does, and posts the
    /// receives. Sends no packet, so both ends must call this function, in any order.
    ///
    /// # Errors
    /// Fails with [`SetupError`] as `QueuePair::connect` does.
    pub fn connect(&self, peer: &QpEndpoint, options: &ConnectOptions) -> Result<(), SetupError> {
        let qp = self.inner.qp();
        qp.init(options)?;
        self.inner.buffers.post_all(qp)?;
        qp.connect(peer, options)?;
        Ok(())
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        self.inner.qp().pd()
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.inner.device()
    }

    /// Returns the queue pair number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.inner.qp().qpn()
    }

    /// Returns the endpoint that the peer needs to connect.
    #[must_use]
    pub fn endpoint(&self) -> QpEndpoint {
        self.inner.qp().endpoint()
    }

    /// Returns all attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpAttr {
        self.inner.qp().query()
    }

    /// Moves the queue pair to the error state. All futures resolve: posted operations and receives
    /// fail with `WrFlushErr`.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] if the state is RESET.
    pub fn set_error(&self) -> Result<(), ModifyError> {
        self.inner.qp().set_error()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The future fails with [`OperationError`], as all futures of the queue pair.
    pub fn send<'a>(&'a self, data: impl Into<Payload<'a>>) -> Operation<'a> {
        let (data, region) = data.into().into_parts();
        Operation::new(self, Work::new(SendOp::Send, data), region)
    }

    /// Sends a message with four bytes of immediate data, which
    /// [`Received::imm_data`] of the peer returns as this number.
    pub fn send_imm<'a>(&'a self, data: impl Into<Payload<'a>>, imm: u32) -> Operation<'a> {
        let (data, region) = data.into().into_parts();
        Operation::new(self, Work::new(SendOp::SendImm { imm }, data), region)
    }

    /// Writes into memory of the peer.
    pub fn write<'a>(
        &'a self,
        data: impl Into<Payload<'a>>,
        remote: impl Into<Remote>,
    ) -> Operation<'a> {
        let (data, region) = data.into().into_parts();
        let op = SendOp::Write { remote: remote.into() };
        Operation::new(self, Work::new(op, data), region)
    }

    /// Writes into memory of the peer, and completes one of its receives with four bytes of
    /// immediate data.
    ///
    /// [`recv`](Self::recv) of the peer resolves when all bytes are written. The [`Received`] has
    /// no bytes and this `imm`. [`Received::completion`] has the opcode
    /// [`RecvRdmaWithImm`](crate::WcOpcode::RecvRdmaWithImm), and the number of written bytes as
    /// `byte_len`.
    pub fn write_imm<'a>(
        &'a self,
        data: impl Into<Payload<'a>>,
        remote: impl Into<Remote>,
        imm: u32,
    ) -> Operation<'a> {
        let (data, region) = data.into().into_parts();
        let op = SendOp::WriteImm { remote: remote.into(), imm };
        Operation::new(self, Work::new(op, data), region)
    }

    /// Reads memory of the peer into a slice, whose length is that of the READ. The region needs
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    pub fn read(&self, into: SharedSlice, remote: impl Into<Remote>) -> Operation<'_> {
        let (slice, region) = into.into_parts();
        let op = SendOp::Read { remote: remote.into() };
        Operation::new(self, Work::new(op, Local::Slice(slice)), Some(region))
    }

    /// Adds `add` to 8 bytes of the peer and wraps. The future resolves with the former value.
    ///
    /// The peer treats its 8 bytes as a number in its own byte order, as
    /// [`MemoryRegion::load_u64`](crate::MemoryRegion::load_u64) reads it.
    /// [`RemoteRegion::word`](crate::RemoteRegion::word) names one of several numbers.
    ///
    /// The queue pair sends at most `max_rd_atomic` READs and atomics at a time
    /// ([`ConnectOptions::max_rd_atomic`] or `initiator_depth` of `cm::Options`). The futures of
    /// more operations wait for earlier ones.
    ///
    /// # Errors
    /// The future fails with [`OperationError`]:
    ///
    /// * `Failed` with `RemAccessErr`: the region of the peer lacks
    ///   [`REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC), or the key or the range is wrong.
    /// * `Failed` with `RemInvReqErr`: [`access`](ConnectOptions::access) of the peer's connection
    ///   lacks `REMOTE_ATOMIC`, or `max_rd_atomic` exceeds `max_dest_rd_atomic` of the peer.
    /// * `Post` with `AtomicAlignment`: the remote address is not a multiple of 8.
    /// * `Post` with `NoReadDepth`: the connection allows no READs and atomics.
    /// * `Post` with `Unsupported`: the queue pair is unreliable.
    ///
    /// After `Failed` the queue pair is in the error state.
    pub fn fetch_add(&self, remote: impl Into<Remote>, add: u64) -> AtomicOperation<'_> {
        let op = SendOp::FetchAdd { remote: remote.into(), add };
        AtomicOperation(Operation::new(self, Work::new(op, Local::Value), None))
    }

    /// Stores `swap` in 8 bytes of the peer if they equal `compare`. The future resolves with the
    /// former value, whether or not it equals `compare`.
    ///
    /// # Errors
    /// The future fails as that of [`fetch_add`](Self::fetch_add).
    pub fn compare_swap(
        &self,
        remote: impl Into<Remote>,
        compare: u64,
        swap: u64,
    ) -> AtomicOperation<'_> {
        let op = SendOp::CompareSwap { remote: remote.into(), compare, swap };
        AtomicOperation(Operation::new(self, Work::new(op, Local::Value), None))
    }

    /// Writes `value` into 8 bytes of the peer, in the byte order of this host, as
    /// [`SendRequest::atomic_write`](crate::SendRequest::atomic_write) does.
    pub fn atomic_write(&self, remote: impl Into<Remote>, value: u64) -> Operation<'_> {
        let op = SendOp::AtomicWrite { remote: remote.into() };
        Operation::new(self, Work::new(op, Local::Stored(value)), None)
    }

    /// Waits until earlier writes to `len` bytes of the peer have reached `placement`, as
    /// [`SendRequest::flush`](crate::SendRequest::flush) does.
    pub fn flush(
        &self,
        remote: impl Into<Remote>,
        len: u32,
        placement: PlacementType,
    ) -> Operation<'_> {
        let range = FlushRange::Bytes(len);
        let op = SendOp::Flush { remote: remote.into(), placement, range };
        Operation::new(self, Work::new(op, Local::None), None)
    }

    /// Posts several operations together, and waits for all. This is cheaper than a future for each
    /// of them, because they share system calls and one wake-up. Batches have [`Operation`]s, or
    /// [`AtomicOperation`]s without their former values. [`Batch`] has examples.
    ///
    /// # Errors
    /// The future fails with the first error of an operation. It posts nothing and fails with
    /// [`OperationError::NotOfBatch`] if an operation belongs to another queue pair.
    pub fn batch<'a>(
        &'a self,
        operations: impl IntoIterator<Item: Into<Operation<'a>>>,
    ) -> Batch<'a> {
        Batch::new(self, operations)
    }

    /// Receives a message: a SEND of the peer, or a WRITE with immediate data.
    ///
    /// # Errors
    /// The future fails with [`OperationError`]. In the error state, messages that had arrived
    /// before come first.
    pub fn recv(&self) -> Receive<'_> {
        Receive::new(self)
    }
}

impl fmt::Debug for AsyncQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let qp = self.inner.qp();
        f.debug_struct("AsyncQueuePair")
            .field("qpn", &qp.qpn())
            .field("state", &qp.state())
            .finish_non_exhaustive()
    }
}
