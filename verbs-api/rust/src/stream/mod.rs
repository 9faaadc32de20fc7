//! Streams of bytes over RDMA, as TCP streams are used.
//!
//! An [`RdmaStream`] connects to the address and port of an [`RdmaListener`]. Its protocol is that
//! of rsockets, librdmacm's sockets over queue pairs. So a C program that calls `rconnect`, or that
//! runs with `librspreload.so`, is a peer, too. Data goes by RDMA WRITE into memory that the peer
//! has lent.
//!
//! ```text
//!   RdmaStream::connect(addr)  ── connection request ──>  RdmaListener::accept
//!        │                                                      │
//!        └─ poll_write ──── RDMA WRITE with immediate ───> poll_read
//!              ▲                                                │
//!              └───────── credits and lent memory <─────────────┘
//! ```
//!
//! # An echo server and a client
//! The features `tokio` and `futures` implement the traits of these crates, and work with any
//! executor. Threads use [`RdmaStream::blocking`]. All addresses are of the type
//! [`SocketAddr`], so nothing resolves a host name in a task.
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use urxe::stream::{OwnedReadHalf, OwnedWriteHalf, RdmaListener, RdmaStream};
//! # use urxe::Device;
//!
//! async fn serve(listener: RdmaListener) -> std::io::Result<()> {
//!     let (stream, peer) = listener.accept().await?;
//!     println!("{peer} is connected");
//!     let (mut reader, mut writer): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
//!     tokio::io::copy(&mut reader, &mut writer).await?;
//!     // Waits until the client has all bytes.
//!     writer.shutdown().await
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let here = Device::open_address([127, 49, 12, 11])?;
//! # let there = Device::open_address([127, 49, 12, 12])?;
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
//! # runtime.block_on(async {
//! // With configured devices, `RdmaListener::bind(addr)` and `RdmaStream::connect(addr)` are
//! // enough.
//! let builder = RdmaStream::builder().device(&here);
//! let listener = builder.bind(([127, 49, 12, 11], 0).into())?;
//! let to = listener.local_addr();
//! let server = tokio::spawn(serve(listener));
//!
//! let mut stream = RdmaStream::builder().device(&there).connect(to).await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?;
//! let mut echo = String::new();
//! stream.read_to_string(&mut echo).await?;
//! assert_eq!(echo, "hello");
//! server.await??;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # The end of a stream
//! `shutdown` (`close` of futures, [`Blocking::shutdown`]) ends one side: it waits until the peer
//! has acknowledged all bytes. The peer reads the end after the last byte, and can send on until it
//! shuts down its own side.
//!
//! Dropping a stream ends both sides at once. It tells the peer, waits for nothing, and discards:
//!
//! * bytes that were written and that the peer has not acknowledged,
//! * bytes of the peer that were not read.
//!
//! The peer then reads the bytes that have arrived, and the end. If some have not arrived, it reads
//! [`StreamError::Reset`] in place of the end.
//!
//! # For programs that use TCP streams
//! | `TcpStream` of tokio | here |
//! |---|---|
//! | `split` | `tokio::io::split`, `smol::io::split` |
//! | `into_split` | [`RdmaStream::into_split`], without a lock between the halves |
//! | `peek` | [`RdmaStream::peek`] |
//! | `set_nodelay` | nothing: no byte waits for an acknowledgement of earlier ones |
//! | `set_linger` of 0 | [`RdmaStream::abort`] |
//! | `SO_KEEPALIVE` | [`RdmaStream::keep_alive`] and a task |
//! | `SO_SNDBUF`, `SO_RCVBUF` | [`StreamBuilder::send_buffer`], [`StreamBuilder::receive_buffer`] |
//!
//! `tokio::io::copy_bidirectional` makes a proxy from a TCP stream and an [`RdmaStream`]. The
//! example `stream_proxy` of the repository also passes a reset on, by
//! [`abort`](RdmaStream::abort) in one direction and a linger time of 0 in the other.
//!
//! # Back-pressure
//! A stream has a send buffer and a receive buffer of fixed sizes ([`StreamBuilder`]). A writer
//! waits while the receive buffer of the peer is full, or 384 messages wait there. No peer can make
//! this end use more memory. A peer that is alive and does not read stops the writer as long as it
//! likes, as with TCP; a program limits the time by its own timeout.
//!
//! # Errors
//! [`io::Error`](std::io::Error) contains a [`StreamError`], which names the peer and says what to
//! do. A reader gets all bytes that arrived before the error. After an error, all later calls of
//! readers and writers fail with it.
//!
//! | event | `read`, after the last bytes | `write` | `shutdown` |
//! |---|---|---|---|
//! | the peer shuts down, or drops its [`OwnedWriteHalf`] | the end (0) | works | works |
//! | the peer drops the stream | the end (0) | `Ended` | works |
//! | the same, but bytes of the peer were lost | `Reset` or `Lost` | the same | the same |
//! | the peer calls [`abort`](RdmaStream::abort) | `Reset` | `Reset` | `Reset` |
//! | the peer's process ends without dropping, or is killed | `Reset` | `Reset` | `Reset` |
//! | the peer's host vanishes, and this end sends nothing | waits | | |
//! | the same, and this end has sent bytes or a keepalive | `Lost` | `Lost` | `Lost` |
//! | this end shuts down | works | `ShutDown` | works |
//! | the peer violates the protocol | `Violation` | `Violation` | `Violation` |
//!
//! A `write` only copies into the send buffer, so the bytes of a successful write may be lost. A
//! successful `shutdown` means that the peer has them all.
//!
//! The times until an end sees `Reset` or `Lost` are those of
//! [`cm`](crate::cm#the-death-of-a-peer): at most half a second if a process is killed, and eight
//! times the [`ack_timeout`](StreamBuilder::ack_timeout) if a host vanishes, by default 4.3 s.
//! Without [`RdmaStream::keep_alive`], a reader does not notice that a host vanished. The
//! `io::ErrorKind` is `ConnectionReset` for `Reset`, `TimedOut` for `Lost` after a vanished host,
//! and `BrokenPipe` for `Ended` and `ShutDown`.
//!
//! # Memory that the peer writes
//! One end can map memory, and the other writes into it at an offset, by RDMA WRITE and without a
//! call of the owner. The end that writes accepts mappings by [`StreamBuilder::peer_mappings`].
//! [`IoMapping`] has an example.
//!
//! | rsockets | here |
//! |---|---|
//! | `riomap` | [`RdmaStream::map`], or [`map_at`](RdmaStream::map_at) with an offset |
//! | `riounmap` | dropping the [`IoMapping`], which also tells the peer |
//! | `riowrite` | [`RdmaStream::write_at`], which fails in place of writing a part |
//! | `RDMA_IOMAPSIZE` | [`StreamBuilder::peer_mappings`] |
//!
//! The owner's memory is a [`MemoryRegion`](crate::MemoryRegion), which peers may write at any
//! time. The peer cannot write outside of it, nor after the mapping is dropped.
//!
//! An rsocket of rdma-core accepts as many messages about mappings in the life of a stream as it
//! has receives (`RDMA_RQSIZE`, by default 384). A mapping and its removal are one message each.
//!
//! # Differences from rsockets
//! A listener returns a stream when its handshake is complete, so that reading never fails for that
//! reason.
//!
//! Sources: rdma-core, `librdmacm/rsocket.c` and `librdmacm/man/rsocket.7`.

mod builder;
mod error;
mod handshake;
mod io;
mod listener;
mod mapping;
mod split;
mod traits;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use self::builder::{Connect, StreamBuilder};
pub use self::error::StreamError;
#[cfg(feature = "stream")]
pub use self::listener::AcceptStream;
pub use self::listener::{Accept, RdmaListener};
pub use self::mapping::{IoMapping, MapError};
pub use self::split::{KeepAlive, OwnedReadHalf, OwnedWriteHalf};
pub use self::traits::Blocking;

/// A stream of bytes to a peer. The [module](self) has examples, and describes its end.
pub struct RdmaStream {
    io: Arc<io::Io>,
    reading: io::Slot,
    writing: io::Slot,
}

impl RdmaStream {
    fn new(io: io::Io) -> Self {
        Self { io: Arc::new(io), reading: None, writing: None }
    }

    /// Connects to `addr` over one of the configured devices. [Await](Connect) the returned value,
    /// or block in its [`wait`](Connect::wait).
    pub fn connect(addr: SocketAddr) -> Connect {
        Self::builder().connect(addr)
    }

    /// Returns the builder of streams and listeners.
    pub fn builder() -> StreamBuilder {
        StreamBuilder::new()
    }

    /// Returns the address and port of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.io.connection.local_addr()
    }

    /// Returns the address and port of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.io.connection.peer_addr()
    }

    /// Returns the stream for a thread, which blocks in reads and writes.
    #[must_use]
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking::new(self)
    }

    /// Sends a message without data, which the queue pair of the peer acknowledges. If the peer is
    /// gone, the stream fails after the repetitions of the message, so that a reader does not wait
    /// for ever. Peers do not notice the message. A program that must detect vanished hosts calls
    /// this at intervals, or [`KeepAlive::send`] in a task of its own.
    pub fn send_keepalive(&self) {
        self.io.send_keepalive();
    }

    /// Ends both sides at once, as an error of the program: the peer reads the bytes that have
    /// arrived, and then [`StreamError::Reset`] in place of the end. A proxy passes a broken
    /// connection on in this way. `TcpStream` has this as a linger time of 0.
    pub fn abort(self) {
        self.io.abort();
    }
}

/// The operations of a task, for runtimes with traits of their own. The traits of tokio and futures
/// call them.
impl RdmaStream {
    /// Reads up to `into.len()` bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`].
    pub fn poll_read_bytes(
        &mut self,
        cx: &Context<'_>,
        into: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        let Self { io, reading, .. } = self;
        io.poll(reading, cx, || io.try_read(into))
    }

    /// Copies the bytes that the next read returns, and leaves them in the stream.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`].
    pub fn poll_peek(&mut self, cx: &Context<'_>, into: &mut [u8]) -> Poll<std::io::Result<usize>> {
        let Self { io, reading, .. } = self;
        io.poll(reading, cx, || io.try_peek(into))
    }

    /// Sends the first bytes of `from`, and returns their number. Waits while the peer lends no
    /// memory.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`].
    pub fn poll_write_bytes(
        &mut self,
        cx: &Context<'_>,
        from: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let Self { io, writing, .. } = self;
        io.poll(writing, cx, || io.try_write(from))
    }

    /// Ends this side of the stream, and waits until the peer has acknowledged all bytes. The peer
    /// can send on.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`] if the peer does not have all bytes.
    pub fn poll_end(&mut self, cx: &Context<'_>) -> Poll<std::io::Result<()>> {
        let Self { io, writing, .. } = self;
        io.poll(writing, cx, || io.try_shut_down())
    }

    /// Sends written bytes that wait for others to share a system call. Does not wait for the peer.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`] if the stream has failed.
    pub fn send_deferred(&self) -> std::io::Result<()> {
        Ok(self.io.flush()?)
    }
}

impl fmt::Debug for RdmaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaStream")
            .field("local_addr", &self.local_addr())
            .field("peer_addr", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
