//! The handshake of a stream: the memory that each end offers to the other, in the private data of
//! the connection.
//!
//! ```text
//!   connecting end                                     listening end
//!   queue pair, buffers, receives
//!                       REQ with ConnData ──────────>  checks the version; queue pair, buffers
//!   checks the version  <────────── REP with ConnData
//!                       RTU ────────────────────────>
//! ```
//!
//! A peer of another version is rejected, as `rs_accept` and `rs_do_connect` do (rdma-core,
//! `librdmacm/rsocket.c`).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use urxe_rsocket::protocol::connect::ConnData;
use urxe_rsocket::protocol::message::Work;
use urxe_rsocket::protocol::stream::{LocalMemory, Sizes, Stream as Protocol};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpCap;
use urxe_stack::qp::work_request::RecvRequest;

use super::RdmaStream;
use super::builder::StreamBuilder;
use super::error::{StreamError, of_connect};
use super::io::Io;
use crate::cm::{ConnectError, Connection, Establishing, NewQueues, Options, Pending};
use crate::memory::MemoryRegion;

/// Numbers of messages in flight, and of inline bytes, as in librdmacm.
const QUEUE: u16 = 384;
const INLINE: u32 = 64;
/// The number of receives that are posted in one call.
const BATCH: usize = 64;

/// The registered memory of one end.
pub(super) struct Buffers {
    pub send: MemoryRegion,
    pub receive: MemoryRegion,
    /// The list of lent and mapped memory, which the peer writes.
    pub list: MemoryRegion,
    pub sizes: Sizes,
}

impl Buffers {
    fn new(pending: &Pending, builder: &StreamBuilder) -> Result<Self, ConnectError> {
        let sizes = Sizes {
            send_queue: QUEUE,
            recv_queue: QUEUE,
            inline: INLINE,
            send_buffer: builder.send_buffer,
            recv_buffer: builder.receive_buffer,
            iomaps: builder.peer_mappings,
        };
        let (pd, written) = (pending.pd(), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        Ok(Self {
            send: pd.allocate(sizes.send_buffer as usize, Access::empty())?,
            receive: pd.allocate(sizes.recv_buffer as usize, written)?,
            list: pd.allocate(sizes.list_len(), written)?,
            sizes,
        })
    }

    /// Returns the addresses and keys for the peer.
    pub fn for_peer(&self) -> LocalMemory {
        let place = |region: &MemoryRegion| (region.iova(), region.rkey().0);
        LocalMemory { list: place(&self.list), recv_buffer: place(&self.receive) }
    }
}

/// Returns the options of a builder, with the queues of a stream.
pub(super) fn with_queues(builder: &StreamBuilder) -> Options {
    let requests = u32::from(QUEUE);
    let cap = QpCap {
        max_send_wr: requests,
        max_recv_wr: requests,
        max_send_sge: 2,
        max_recv_sge: 1,
        max_inline_data: INLINE,
    };
    builder.options.clone().cap(cap).new_queues(NewQueues::One { entries: 2 * requests })
}

/// Posts receives. They need no memory, because the data of the peer arrives by WRITE.
pub(super) fn post_receives(qp: &crate::QueuePair, count: u32) -> Result<(), crate::PostError> {
    let receives = [RecvRequest { wr_id: Work::RECEIVE_ID, sges: &[] }; BATCH];
    let mut left = count as usize;
    while left > 0 {
        let batch = &receives[..left.min(BATCH)];
        qp.post_recv_without_wake(batch)?;
        left -= batch.len();
    }
    Ok(())
}

/// A stream whose handshake is in progress.
pub(super) struct Opening {
    establishing: Establishing,
    /// Taken when the handshake is complete.
    buffers: Option<Buffers>,
    /// The private data of a request. A connecting end has that of the reply later.
    peer: Option<ConnData>,
    timeout: Option<Duration>,
}

impl Opening {
    /// Creates the buffers, and sends the request or the reply.
    pub fn start(
        mut pending: Pending,
        builder: &StreamBuilder,
        peer: Option<ConnData>,
    ) -> io::Result<Self> {
        let buffers = Buffers::new(&pending, builder).map_err(of_connect)?;
        post_receives(pending.qp(), buffers.sizes.recv_queue.into()).map_err(of_connect)?;
        let offer = Protocol::conn_data(&buffers.sizes, &buffers.for_peer()).to_bytes();
        pending.set_private_data(&offer).map_err(of_connect)?;
        let timeout = pending.timeout();
        let establishing = pending.start().map_err(of_connect)?;
        Ok(Self { establishing, buffers: Some(buffers), peer, timeout })
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<RdmaStream>> {
        Pin::new(&mut self.establishing).poll(cx).map(|outcome| self.finish(outcome))
    }

    /// Registers `waker`, and returns the stream if the handshake is complete.
    pub fn try_finish(&mut self, waker: &Waker) -> Option<io::Result<RdmaStream>> {
        let outcome = self.establishing.try_finish(waker)?;
        Some(self.finish(outcome))
    }

    /// Blocks until the handshake is complete.
    pub fn wait(self) -> io::Result<RdmaStream> {
        let Self { establishing, buffers, peer, timeout } = self;
        stream(establishing.wait(timeout), buffers, peer)
    }

    fn finish(&mut self, outcome: Result<Connection, ConnectError>) -> io::Result<RdmaStream> {
        stream(outcome, self.buffers.take(), self.peer)
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("establishing", &self.establishing).finish_non_exhaustive()
    }
}

/// Returns the stream of a connection.
fn stream(
    outcome: Result<Connection, ConnectError>,
    buffers: Option<Buffers>,
    peer: Option<ConnData>,
) -> io::Result<RdmaStream> {
    let connection = outcome.map_err(of_connect)?;
    let peer = peer.or_else(|| ConnData::parse(&connection.peer_private_data()));
    let Some(peer) = peer else {
        return Err(StreamError::NoStream { peer: connection.peer_addr() }.into());
    };
    // The handshake returns its result once.
    let Some(buffers) = buffers else { return Err(io::ErrorKind::NotConnected.into()) };
    Ok(RdmaStream::new(Io::new(connection, buffers, &peer)?))
}
