//! Listeners for streams.
//!
//! A stream is returned when its handshake is complete. Handshakes run side by side, so a peer that
//! does not complete its own delays no other. They advance while a task or a thread waits in
//! `accept`.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use urxe_rsocket::protocol::connect::ConnData;
use urxe_stack::cq::Wake;

use super::RdmaStream;
use super::builder::StreamBuilder;
use super::error::{StreamError, of_connect};
use super::handshake::{Opening, with_queues};
use crate::cm::{ConnectRequest, Listener};
use crate::cq::WaitError;
use crate::waker_list::{WakerList, WakerSlot, lock};

/// The number of handshakes at a time. Each has the buffers of its stream. Further requests wait in
/// the backlog.
const MAX_OPENING: usize = 128;

/// A listener for [`RdmaStream`]s. Dropping it rejects all waiting requests.
///
/// Peers are programs of this crate and C programs with rsockets. A request of any other program is
/// rejected. Requests are answered while a task or a thread waits in [`accept`](Self::accept) or
/// [`wait`](Self::wait). So a server accepts in a task of its own.
///
/// ```
/// use urxe::Device;
/// use urxe::stream::{Accept, RdmaListener, RdmaStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 12, 5])?;
/// # let there = Device::open_address([127, 49, 12, 6])?;
/// // With configured devices, `RdmaListener::bind(addr)` is enough.
/// let builder = RdmaStream::builder().device(&here);
/// let listener: RdmaListener = builder.bind(([127, 49, 12, 5], 0).into())?;
/// # let connect = RdmaStream::builder().device(&there).connect(listener.local_addr());
/// # let client = std::thread::spawn(move || connect.wait());
/// let accept: Accept<'_> = listener.accept();
/// let (stream, peer) = pollster::block_on(accept)?;
/// assert_eq!(stream.peer_addr(), peer);
/// # client.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
pub struct RdmaListener {
    listener: Listener,
    builder: StreamBuilder,
    opening: Mutex<VecDeque<Opening>>,
    /// Wakes all that wait for requests.
    waker: Waker,
}

/// Wakes the threads and tasks that wait for requests when a handshake advances.
struct Relay(Arc<WakerList>);

impl std::task::Wake for Relay {
    fn wake(self: Arc<Self>) {
        // The wakers are called by the thread that calls this one.
        self.0.wake();
    }
}

impl RdmaListener {
    pub(super) fn new(listener: Listener, builder: StreamBuilder) -> Self {
        let waker = Waker::from(Arc::new(Relay(Arc::clone(listener.wakers()))));
        Self { listener, builder, opening: Mutex::default(), waker }
    }

    /// Listens on `addr` of the configured devices, or on all of them with `0.0.0.0` or `[::]`.
    /// Port 0 selects a free port.
    ///
    /// # Errors
    /// Fails with an error that contains a [`ListenError`](crate::cm::ListenError).
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        RdmaStream::builder().bind(addr)
    }

    /// Returns the address and port of the listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Returns a future that waits for a stream, and returns it with the address of its peer. The
    /// future needs no runtime. Dropping it loses no stream. If several tasks wait, each stream
    /// goes to one of them.
    ///
    /// # Errors
    /// The future fails if this end has no resources for a stream, for example memory. The error
    /// contains a [`ConnectError`](crate::cm::ConnectError). The request is rejected, and the
    /// listener stays usable. A peer that does not complete its handshake is no error.
    pub fn accept(&self) -> Accept<'_> {
        Accept { listener: self, slot: self.listener.slot() }
    }

    /// Blocks until there is a stream. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails as [`accept`](Self::accept) does, and with [`StreamError::Wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<(RdmaStream, SocketAddr)> {
        self.listener
            .wait_for(timeout, || self.try_accept())
            .unwrap_or_else(|error: WaitError| Err(StreamError::Wait(error).into()))
    }

    /// Returns the streams as a [`Stream`](futures_core::Stream).
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> AcceptStream<'_> {
        AcceptStream(self.accept())
    }

    /// Advances all handshakes. Returns the first that is complete.
    fn try_accept(&self) -> Option<io::Result<(RdmaStream, SocketAddr)>> {
        while lock(&self.opening).len() < MAX_OPENING
            && let Some(request) = self.listener.try_next()
        {
            match self.start(request) {
                Ok(Some(opening)) => lock(&self.opening).push_back(opening),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        // Streams and failed handshakes are dropped without the lock, because that calls wakers.
        let mut done = Vec::new();
        let mut opening = lock(&self.opening);
        let mut accepted = None;
        let mut index = 0;
        while let Some(next) = opening.get_mut(index) {
            let Some(outcome) = next.try_finish(&self.waker) else {
                index += 1;
                continue;
            };
            done.extend(opening.remove(index));
            match outcome {
                Ok(stream) => {
                    accepted = Some(stream);
                    break;
                }
                Err(error) => tracing::debug!(%error, "a handshake failed"),
            }
        }
        let has_others = !opening.is_empty();
        drop(opening);
        drop(done);
        let stream = accepted?;
        if has_others {
            // Others may be complete, too, and their wake-ups have come here.
            self.waker.wake_by_ref();
        }
        let peer = stream.peer_addr();
        Some(Ok((stream, peer)))
    }

    /// Answers a request. Returns `None` for a peer that has no rsocket.
    fn start(&self, request: ConnectRequest) -> io::Result<Option<Opening>> {
        let Some(peer) = ConnData::parse(&request.peer_private_data()) else {
            tracing::debug!(peer = %request.peer_addr(), "a request of no rsocket is rejected");
            // The request is answered in any case.
            let _ = request.reject(&[]);
            return Ok(None);
        };
        let pending = request.prepare(&with_queues(&self.builder)).map_err(of_connect)?;
        Opening::start(pending, &self.builder, Some(peer)).map(Some)
    }
}

impl fmt::Debug for RdmaListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local_addr = self.local_addr();
        f.debug_struct("RdmaListener").field("local_addr", &local_addr).finish_non_exhaustive()
    }
}

/// The future of [`RdmaListener::accept`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Accept<'a> {
    listener: &'a RdmaListener,
    slot: WakerSlot<&'a WakerList>,
}

impl Future for Accept<'_> {
    type Output = io::Result<(RdmaStream, SocketAddr)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { listener, slot } = &mut *self;
        listener.listener.poll(slot, cx, || listener.try_accept())
    }
}

/// The streams of a listener as a [`Stream`](futures_core::Stream), which never ends. An item has
/// the result of [`RdmaListener::accept`].
///
/// ```
/// use smol::stream::StreamExt;
/// use urxe::stream::{AcceptStream, RdmaStream};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 12, 7])?;
/// # let there = Device::open_address([127, 49, 12, 8])?;
/// let builder = RdmaStream::builder().device(&here);
/// let listener = builder.bind(([127, 49, 12, 7], 0).into())?;
/// # let connect = RdmaStream::builder().device(&there).connect(listener.local_addr());
/// # let client = std::thread::spawn(move || connect.wait());
/// let mut streams: AcceptStream<'_> = listener.stream();
/// let (stream, _) = pollster::block_on(streams.next()).unwrap()?;
/// println!("{} is connected", stream.peer_addr());
/// # client.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "stream")]
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct AcceptStream<'a>(Accept<'a>);

#[cfg(feature = "stream")]
impl futures_core::Stream for AcceptStream<'_> {
    type Item = io::Result<(RdmaStream, SocketAddr)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll(cx).map(Some)
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests;
