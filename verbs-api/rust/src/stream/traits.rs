//! The traits of asynchronous and blocking streams.

use std::io;
use std::time::Duration;

use super::RdmaStream;
use super::io::Io;

#[cfg(any(feature = "tokio", feature = "futures"))]
use super::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(any(feature = "tokio", feature = "futures"))]
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Implements the traits of a type that reads.
macro_rules! reads {
    ($of:ty) => {
        /// With the feature `tokio`.
        #[cfg(feature = "tokio")]
        impl tokio::io::AsyncRead for $of {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let read = self.poll_read_bytes(cx, buf.initialize_unfilled());
                read.map(|read| read.map(|bytes| buf.advance(bytes)))
            }
        }

        /// With the feature `futures`, for the traits of futures, smol and async-std.
        #[cfg(feature = "futures")]
        impl futures_io::AsyncRead for $of {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_read_bytes(cx, buf)
            }
        }
    };
}

/// Implements the traits of a type that writes.
macro_rules! writes {
    ($of:ty) => {
        /// With the feature `tokio`.
        ///
        /// * `poll_write` waits while the peer lends no memory, so a peer that does not read stops
        ///   the writer.
        /// * `poll_flush` sends all bytes, and does not wait for the peer.
        /// * `poll_shutdown` ends this side, and waits until the peer has acknowledged all bytes.
        ///   The peer can send on.
        #[cfg(feature = "tokio")]
        impl tokio::io::AsyncWrite for $of {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_bytes(cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.send_deferred())
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                self.poll_end(cx)
            }
        }

        /// With the feature `futures`. `poll_close` ends this side, as `poll_shutdown` of tokio
        /// does.
        #[cfg(feature = "futures")]
        impl futures_io::AsyncWrite for $of {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_bytes(cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.send_deferred())
            }

            fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_end(cx)
            }
        }
    };
}

reads!(RdmaStream);
reads!(OwnedReadHalf);
writes!(RdmaStream);
writes!(OwnedWriteHalf);

/// A stream for threads, made by [`RdmaStream::blocking`]: [`io::Read`] and [`io::Write`].
///
/// The traits are not those of [`RdmaStream`] itself, so no task blocks by mistake.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use urxe::stream::{Blocking, RdmaStream};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 12, 9])?;
/// # let there = Device::open_address([127, 49, 12, 10])?;
/// # let builder = RdmaStream::builder().device(&here);
/// # let listener = builder.bind(([127, 49, 12, 9], 0).into())?;
/// # let connect = RdmaStream::builder().device(&there).connect(listener.local_addr());
/// let server = std::thread::spawn(move || -> std::io::Result<String> {
///     let (stream, _) = listener.wait(None)?;
///     let mut text = String::new();
///     stream.blocking().read_to_string(&mut text)?;
///     Ok(text)
/// });
/// let stream = connect.wait()?;
/// let mut blocking: Blocking<'_> = stream.blocking().timeout(Duration::from_secs(10));
/// blocking.write_all(b"hello")?;
/// // The end of this side. The server has all bytes.
/// blocking.shutdown()?;
/// assert_eq!(server.join().unwrap()?, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Blocking<'a> {
    stream: &'a RdmaStream,
    timeout: Option<Duration>,
}

impl<'a> Blocking<'a> {
    pub(super) fn new(stream: &'a RdmaStream) -> Self {
        Self { stream, timeout: None }
    }

    pub(super) fn parts(&self) -> (&'a Io, Option<Duration>) {
        (&self.stream.io, self.timeout)
    }

    /// Sets the time limit of each call. A call that exceeds it fails with
    /// [`io::ErrorKind::TimedOut`], and can be repeated.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Ends this side of the stream, and blocks until the peer has acknowledged all bytes. The peer
    /// can send on.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`](super::StreamError) if the peer does not
    /// have all bytes.
    pub fn shutdown(&self) -> io::Result<()> {
        self.stream.io.wait(self.timeout, || self.stream.io.try_shut_down())
    }
}

impl io::Read for Blocking<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.io.wait(self.timeout, || self.stream.io.try_read(buf))
    }
}

impl io::Write for Blocking<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.io.wait(self.timeout, || self.stream.io.try_write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.send_deferred()
    }
}
