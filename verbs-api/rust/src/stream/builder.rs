//! The options of streams and listeners, and the future of a connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_rsocket::protocol::connect::{decode_iomaps, encode_iomaps};
use urxe_wire::AckTimeout;

use super::RdmaStream;
use super::error::of_connect;
use super::handshake::Opening;
use super::listener::RdmaListener;
use crate::cm::{self, Options};
use crate::device::Device;

/// The sizes of buffers in bytes, from the smallest to the largest.
const BUFFER_SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 20;
const DEFAULT_BUFFER: u32 = 128 << 10;

/// The options of a new stream or listener, made by [`RdmaStream::builder`].
///
/// ```
/// use std::time::Duration;
/// use urxe::Device;
/// use urxe::stream::{RdmaListener, RdmaStream, StreamBuilder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let here = Device::open_address([127, 49, 12, 1])?;
/// let there = Device::open_address([127, 49, 12, 2])?;
/// let builder: StreamBuilder = RdmaStream::builder().device(&here).receive_buffer(1 << 20);
/// let listener: RdmaListener = builder.bind(([127, 49, 12, 1], 0).into())?;
/// let builder = RdmaStream::builder().device(&there).timeout(Duration::from_secs(5));
/// let connect = builder.connect(listener.local_addr());
/// # let server = std::thread::spawn(move || listener.wait(None));
/// let stream = connect.wait()?;
/// # let (accepted, client) = server.join().unwrap()?;
/// # assert_eq!(client, stream.local_addr());
/// # assert_eq!(accepted.peer_addr(), client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamBuilder {
    pub(super) options: Options,
    listener: cm::ListenerBuilder,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) peer_mappings: u32,
}

impl StreamBuilder {
    pub(super) fn new() -> Self {
        Self {
            options: Options::new(),
            listener: cm::Listener::builder(),
            send_buffer: DEFAULT_BUFFER,
            receive_buffer: DEFAULT_BUFFER,
            peer_mappings: 0,
        }
    }

    /// Selects the device, as [`Options::device`] does. By default, the route to the peer selects
    /// one of the configured devices, and a listener uses all that have its address.
    pub fn device(mut self, device: &Device) -> Self {
        self.options = self.options.device(device);
        self.listener = self.listener.device(device);
        self
    }

    /// Sets the source address and port of a connection, as [`Options::source`] does.
    pub fn source(mut self, addr: impl Into<SocketAddr>) -> Self {
        self.options = self.options.source(addr);
        self
    }

    /// Sets the time limit of connecting and accepting, as [`Options::timeout`] does.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.timeout(timeout);
        self
    }

    /// Sets the time after which an unacknowledged packet is sent again, as
    /// [`Options::ack_timeout`] does. The stream fails after eight such times without an
    /// acknowledgement.
    pub fn ack_timeout(mut self, timeout: impl Into<AckTimeout>) -> Self {
        let timeout = timeout.into();
        self.options = self.options.ack_timeout(timeout);
        self.listener = self.listener.ack_timeout(timeout);
        self
    }

    /// Sets the type of service of the packets, as [`Options::type_of_service`] does.
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.options = self.options.type_of_service(tos);
        self.listener = self.listener.type_of_service(tos);
        self
    }

    /// Sets the number of connection requests that wait for
    /// [`accept`](RdmaListener::accept), as [`cm::ListenerBuilder::backlog`] does.
    pub fn backlog(mut self, requests: u16) -> Self {
        self.listener = self.listener.backlog(requests);
        self
    }

    /// Sets the size of the send buffer, which has the bytes that the peer has not acknowledged.
    /// The default is 128 KiB. Sizes are limited to 4 KiB to 256 MiB.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = buffer_size(bytes);
        self
    }

    /// Sets the size of the receive buffer, which has the bytes that the program has not read. The
    /// default is 128 KiB. Sizes are limited to 4 KiB to 256 MiB.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = buffer_size(bytes);
        self
    }

    /// Sets the number of mappings that the peer may have at a time, for
    /// [`write_at`](RdmaStream::write_at) of this end (`RDMA_IOMAPSIZE` of rsockets). The default
    /// is 0: the peer cannot map memory. The protocol has the numbers up to 128 and multiples of
    /// 256 up to 32,512. Other numbers are rounded down.
    pub fn peer_mappings(mut self, count: u16) -> Self {
        self.peer_mappings = decode_iomaps(encode_iomaps(count.into()));
        self
    }

    /// Connects to `addr`. [Await](Connect) the returned value, or block in its
    /// [`wait`](Connect::wait).
    pub fn connect(self, addr: SocketAddr) -> Connect {
        Connect(Step::Start(Box::new(self), addr))
    }

    /// Listens on `addr`. Port 0 selects a free port; see [`RdmaListener::local_addr`].
    ///
    /// # Errors
    /// Fails with an error that contains a [`ListenError`](cm::ListenError).
    pub fn bind(self, addr: SocketAddr) -> io::Result<RdmaListener> {
        let listener = self.listener.clone().bind(addr).map_err(super::error::of_listen)?;
        Ok(RdmaListener::new(listener, self))
    }
}

fn buffer_size(bytes: usize) -> u32 {
    bytes.clamp(*BUFFER_SIZES.start(), *BUFFER_SIZES.end()) as u32
}

/// A stream that is not connected yet, made by [`RdmaStream::connect`] or
/// [`StreamBuilder::connect`].
///
/// A task awaits the value, and a thread calls [`wait`](Self::wait). Neither does anything before.
/// The future needs no runtime, and does not block. Dropping it gives the connection up.
///
/// ```
/// # use urxe::Device;
/// use urxe::stream::{Connect, RdmaStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Device::open_address([127, 49, 12, 3])?;
/// # let builder = RdmaStream::builder().device(&device);
/// // No program listens on this port.
/// let connect: Connect = builder.connect(([127, 49, 12, 3], 1).into());
/// let error = connect.wait().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
/// println!("{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is connected until this is awaited or waited for"]
pub struct Connect(Step);

#[derive(Debug)]
enum Step {
    Start(Box<StreamBuilder>, SocketAddr),
    Opening(Box<Opening>),
    Done,
}

impl Connect {
    /// Blocks until the stream is connected.
    ///
    /// # Errors
    /// Fails with an error that contains a [`ConnectError`](cm::ConnectError), or
    /// [`StreamError::NoStream`](super::StreamError::NoStream).
    pub fn wait(self) -> io::Result<RdmaStream> {
        match self.0 {
            Step::Start(builder, addr) => start(&builder, addr)?.wait(),
            Step::Opening(opening) => opening.wait(),
            Step::Done => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Future for Connect {
    type Output = io::Result<RdmaStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                Step::Start(builder, addr) => {
                    let started = start(builder, *addr);
                    self.0 = match started {
                        Ok(opening) => Step::Opening(Box::new(opening)),
                        Err(error) => {
                            self.0 = Step::Done;
                            return Poll::Ready(Err(error));
                        }
                    };
                }
                Step::Opening(opening) => {
                    let opened = opening.poll(cx);
                    if opened.is_ready() {
                        self.0 = Step::Done;
                    }
                    return opened;
                }
                // The future was polled again after it had returned its result.
                Step::Done => return Poll::Pending,
            }
        }
    }
}

fn start(builder: &StreamBuilder, addr: SocketAddr) -> io::Result<Opening> {
    let options = super::handshake::with_queues(builder);
    let pending = cm::prepare(addr, &options).map_err(of_connect)?;
    Opening::start(pending, builder, None)
}
