//! Halves of a stream for two tasks, and a handle that checks the peer beside them.
//!
//! The halves share the connection and its state, whose lock no waiting task holds. Each has the
//! registration of its own task.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::RdmaStream;
use super::io::{Io, Slot};

impl RdmaStream {
    /// Divides the stream into halves for two tasks.
    ///
    #[cfg_attr(feature = "tokio", doc = "```")]
    #[cfg_attr(not(feature = "tokio"), doc = "```ignore")]
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use urxe::stream::{OwnedReadHalf, OwnedWriteHalf, RdmaListener, RdmaStream};
    /// # use urxe::Device;
    ///
    /// /// Sends `question` and reads the answer at the same time.
    /// async fn ask(stream: RdmaStream, question: &'static [u8]) -> std::io::Result<Vec<u8>> {
    ///     let (mut reader, mut writer): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
    ///     let sending = tokio::spawn(async move {
    ///         writer.write_all(question).await?;
    ///         writer.shutdown().await
    ///     });
    ///     let mut answer = Vec::new();
    ///     reader.read_to_end(&mut answer).await?;
    ///     sending.await??;
    ///     Ok(answer)
    /// }
    /// # async fn serve(listener: RdmaListener) -> std::io::Result<()> {
    /// #     let (mut reader, mut writer) = listener.accept().await?.0.into_split();
    /// #     tokio::io::copy(&mut reader, &mut writer).await?;
    /// #     writer.shutdown().await
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let here = Device::open_address([127, 49, 12, 13])?;
    /// # let there = Device::open_address([127, 49, 12, 14])?;
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// # let builder = RdmaStream::builder().device(&here);
    /// # let listener = builder.bind(([127, 49, 12, 13], 0).into())?;
    /// # let to = listener.local_addr();
    /// # let server = tokio::spawn(serve(listener));
    /// let stream = RdmaStream::builder().device(&there).connect(to).await?;
    /// assert_eq!(ask(stream, b"an echo?").await?, b"an echo?");
    /// # server.await??;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let Self { io, reading, writing } = self;
        let reader = OwnedReadHalf { io: Arc::clone(&io), slot: reading };
        (reader, OwnedWriteHalf { io, slot: writing })
    }

    /// Copies the bytes that the next read returns, and leaves them in the stream. Waits for at
    /// least one byte, and returns 0 at the end of the stream.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub async fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_peek(cx, into)).await
    }

    /// Returns a handle that checks whether the peer is there, for a task beside those that use the
    /// stream:
    ///
    #[cfg_attr(feature = "tokio", doc = "```")]
    #[cfg_attr(not(feature = "tokio"), doc = "```ignore")]
    /// use std::time::Duration;
    /// use urxe::stream::{KeepAlive, RdmaStream};
    ///
    /// /// Relays until both directions have ended, or one of the peers is gone.
    /// async fn relay<T>(mut tcp: T, mut rdma: RdmaStream) -> std::io::Result<()>
    /// where
    ///     T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    /// {
    ///     let keep_alive: KeepAlive = rdma.keep_alive();
    ///     tokio::spawn(async move {
    ///         while keep_alive.send() {
    ///             tokio::time::sleep(Duration::from_secs(10)).await;
    ///         }
    ///     });
    ///     tokio::io::copy_bidirectional(&mut tcp, &mut rdma).await?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive(Arc::downgrade(&self.io))
    }
}

/// A handle of a stream that checks whether its peer is there, made by [`RdmaStream::keep_alive`].
/// It does not keep the stream open.
#[derive(Clone)]
pub struct KeepAlive(Weak<Io>);

impl KeepAlive {
    /// Sends a message, as [`RdmaStream::send_keepalive`] does. Returns `false` if the stream has
    /// failed, or if it was dropped with its halves.
    #[must_use = "a task ends when the stream has ended"]
    pub fn send(&self) -> bool {
        self.0.upgrade().is_some_and(|io| io.send_keepalive())
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.0.strong_count() > 0;
        f.debug_struct("KeepAlive").field("is_open", &is_open).finish()
    }
}

/// The half of a stream that reads, made by [`RdmaStream::into_split`]. The stream ends when both
/// halves are dropped.
///
/// ```
/// use std::future::poll_fn;
/// use urxe::stream::{KeepAlive, OwnedReadHalf, OwnedWriteHalf, RdmaStream};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 12, 15])?;
/// # let there = Device::open_address([127, 49, 12, 16])?;
/// # let builder = RdmaStream::builder().device(&here);
/// # let listener = builder.bind(([127, 49, 12, 15], 0).into())?;
/// # let connect = RdmaStream::builder().device(&there).connect(listener.local_addr());
/// # let client = std::thread::spawn(move || connect.wait());
/// # let (accepted, _) = listener.wait(None)?;
/// # let stream = client.join().unwrap()?;
/// let keep_alive: KeepAlive = stream.keep_alive();
/// let (mut reader, mut writer): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
/// # let (_peer_reader, mut peer_writer) = accepted.into_split();
/// # pollster::block_on(poll_fn(|cx| peer_writer.poll_write_bytes(cx, b"an answer")))?;
/// // Without the traits of a runtime.
/// let sent = pollster::block_on(poll_fn(|cx| writer.poll_write_bytes(cx, b"a question")))?;
/// let mut answer = [0; 9];
/// let got = pollster::block_on(poll_fn(|cx| reader.poll_read_bytes(cx, &mut answer)))?;
/// assert_eq!((sent, got), (10, 9));
/// assert!(keep_alive.send());
/// # Ok(())
/// # }
/// ```
pub struct OwnedReadHalf {
    io: Arc<Io>,
    slot: Slot,
}

impl OwnedReadHalf {
    /// Reads as [`RdmaStream::poll_read_bytes`] does.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub fn poll_read_bytes(
        &mut self,
        cx: &Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { io, slot } = self;
        io.poll(slot, cx, || io.try_read(into))
    }

    /// Copies the bytes that the next read returns, as [`RdmaStream::peek`] does.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub async fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Self { io, slot } = self;
        poll_fn(|cx| io.poll(slot, cx, || io.try_peek(into))).await
    }

    /// Returns the address and port of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.io.connection.peer_addr()
    }
}

/// The half of a stream that writes, made by [`RdmaStream::into_split`]. Dropping it ends this side
/// without waiting for the peer.
pub struct OwnedWriteHalf {
    io: Arc<Io>,
    slot: Slot,
}

impl OwnedWriteHalf {
    /// Writes as [`RdmaStream::poll_write_bytes`] does.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub fn poll_write_bytes(&mut self, cx: &Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let Self { io, slot } = self;
        io.poll(slot, cx, || io.try_write(from))
    }

    /// Ends this side as [`RdmaStream::poll_end`] does.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub fn poll_end(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, slot } = self;
        io.poll(slot, cx, || io.try_shut_down())
    }

    /// Sends bytes as [`RdmaStream::send_deferred`] does.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError).
    pub fn send_deferred(&self) -> io::Result<()> {
        Ok(self.io.flush()?)
    }

    /// Returns the address and port of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.io.connection.peer_addr()
    }

    pub(super) fn parts(&mut self) -> (&Io, &mut Slot) {
        (&self.io, &mut self.slot)
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if !self.io.connection.device().inner.backend.is_inherited() {
            // The message leaves now, or when the peer lends memory for it.
            let _ = self.io.try_shut_down();
        }
    }
}

impl fmt::Debug for OwnedReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer_addr = self.peer_addr();
        f.debug_struct("OwnedReadHalf").field("peer_addr", &peer_addr).finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedWriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer_addr = self.peer_addr();
        f.debug_struct("OwnedWriteHalf").field("peer_addr", &peer_addr).finish_non_exhaustive()
    }
}
