//! Listeners for connection requests.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::{ConnEvent, EventParam, Options as IdOptions};
use urxe_stack::qp::attr::QpType;
use urxe_wire::AckTimeout;
use urxe_wire::mad::{PortSpace, RejReason};

use super::connection::Connection;
use super::connection_state::EventHandler;
use super::default_devices;
use super::error::{ConnectError, ListenError};
use super::options::Options;
use super::pending::Pending;
use super::private_data::PrivateData;
use super::service::CmId;
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot};

/// The options of a new listener, made by [`Listener::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ListenerBuilder {
    device: Option<Device>,
    backlog: Option<u16>,
    id: IdOptions,
}

impl ListenerBuilder {
    /// Listens on this device only. By default the listener uses all configured devices that have
    /// the address, or all configured devices with a wildcard address.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// Sets the number of requests that may wait to be taken. The default and the maximum are
    /// 16,384. A peer repeats a request that exceeds the backlog.
    pub fn backlog(mut self, requests: u16) -> Self {
        self.backlog = Some(requests);
        self
    }

    /// Excludes IPv4 addresses from an IPv6 wildcard (`RDMA_OPTION_ID_AFONLY`).
    pub fn only_own_family(mut self) -> Self {
        self.id.af_only = Some(true);
        self
    }

    /// Sets the type of service of the packets of all connections (`RDMA_OPTION_ID_TOS`).
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.id.tos = tos;
        self
    }

    /// Sets the acknowledgement timeout of all connections, as [`Options::ack_timeout`] does.
    pub fn ack_timeout(mut self, timeout: impl Into<AckTimeout>) -> Self {
        self.id.ack_timeout = Some(timeout.into().exponent());
        self
    }

    /// Listens on the first address that is available. Port 0 selects a free port; see
    /// [`Listener::local_addr`].
    ///
    /// # Errors
    /// Fails with [`ListenError`], for the last address.
    pub fn bind(self, addr: impl ToSocketAddrs) -> Result<Listener, ListenError> {
        self.bind_space(addr, PortSpace::TCP, QpType::Rc)
    }

    pub(super) fn bind_space(
        self,
        addr: impl ToSocketAddrs,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<Listener, ListenError> {
        super::try_each_address(addr, ListenError::Address, |addr| {
            self.bind_one(addr, space, qp_type)
        })
    }

    fn bind_one(
        &self,
        addr: SocketAddr,
        space: PortSpace,
        qp_type: QpType,
    ) -> Result<Listener, ListenError> {
        let (service, devices) = default_devices::of_device(self.device.as_ref())?;
        let wakers = Arc::new(WakerList::new(Arc::clone(service.ready())));
        let id = CmId::new(&service, space, qp_type, Arc::clone(&wakers) as _)
            .map_err(ListenError::Cm)?;
        let bound = service.call(|cma, _| {
            *cma.options_mut(id.core)? = IdOptions { is_inherited: true, ..self.id };
            cma.bind(id.core, addr, service.system())?;
            cma.listen(id.core, self.backlog.unwrap_or(0).into(), service.system())
        });
        bound.map_err(|error| ListenError::new(addr, error))?;
        let local_addr = id.addresses().0.unwrap_or(addr);
        // A listener with an address needs only the device of this address.
        let devices = id.device().map_or(devices, |device| vec![device]);
        Ok(Listener { id, wakers, devices, local_addr })
    }
}

/// A listener for connection requests to a port of port space TCP. Dropping the listener rejects
/// all waiting requests.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use urxe::cm::{self, ConnectRequest, Incoming, ListenerBuilder, PeerParameters};
/// # use urxe::Device;
/// # let here = Device::open_address([127, 49, 11, 3])?;
/// # let there = Device::open_address([127, 49, 11, 4])?;
/// let builder: ListenerBuilder = cm::Listener::builder().device(&here);
/// let listener = builder.bind("0.0.0.0:0")?;
/// let port = listener.local_addr().port();
/// # let client = std::thread::spawn(move || {
/// #     let options = cm::Options::new().device(&there).private_data(b"hello");
/// #     cm::prepare(("127.49.11.3", port), &options).unwrap().establish().unwrap().disconnect();
/// # });
/// let mut requests: Incoming<'_> = listener.incoming();
/// let request: ConnectRequest = requests.next().unwrap()?;
/// let peer: &PeerParameters = request.parameters();
/// println!("queue pair {} asks for a connection", peer.qpn);
/// assert!(request.peer_private_data().starts_with(b"hello"));
/// let connection = request.accept()?;
/// # client.join().unwrap();
/// # assert_eq!(connection.events().wait(None)?, cm::ConnectionEvent::Disconnected);
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    // This field is dropped before the devices, because the identifier may be the last user of a
    // device.
    id: CmId,
    wakers: Arc<WakerList>,
    devices: Vec<Device>,
    local_addr: SocketAddr,
}

impl Listener {
    /// Listens on an address and port of the configured devices, or on all of them with `0.0.0.0`
    /// or `[::]`.
    ///
    /// # Errors
    /// Fails with [`ListenError`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, ListenError> {
        Self::builder().bind(addr)
    }

    /// Returns the builder of a listener.
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder::default()
    }

    /// Returns the address and port of the listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the devices of the listener.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Takes the oldest request. Returns `None` if no request is pending.
    pub fn try_next(&self) -> Option<ConnectRequest> {
        self.take().and_then(|(incoming, param)| match param {
            EventParam::Conn(param) => Some(ConnectRequest { incoming, param }),
            _ => None,
        })
    }

    /// Blocks until a request arrives, and takes it. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<ConnectRequest, WaitError> {
        self.wait_for(timeout, || self.try_next())
    }

    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        take: impl Fn() -> Option<T>,
    ) -> Result<T, WaitError> {
        // A listener has at least one device. Any of them will do, because the background threads
        // of the others receive their requests.
        let Some(device) = self.devices.first() else { return Err(WaitError::Quiet) };
        BlockingWait::new(device, timeout).until(&self.wakers, || Ok(take()), || false)
    }

    /// Returns a future that waits for a request and takes it. The future needs no runtime. If
    /// several tasks wait, each request goes to one of them.
    ///
    /// # Errors
    /// The result has the type of all waits. Over UDP the future does not fail.
    pub fn next(&self) -> NextRequest<'_> {
        NextRequest { listener: self, slot: self.slot() }
    }

    /// Returns an iterator over all requests, which blocks and never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns the wakers of the threads and tasks that wait for requests.
    pub(crate) fn wakers(&self) -> &Arc<WakerList> {
        &self.wakers
    }

    pub(crate) fn slot(&self) -> WakerSlot<&WakerList> {
        WakerSlot::new(&self.wakers)
    }

    /// Polls a future that waits for a request.
    pub(crate) fn poll<T>(
        &self,
        slot: &mut WakerSlot<&WakerList>,
        cx: &Context<'_>,
        take: impl Fn() -> Option<T>,
    ) -> Poll<T> {
        match self.devices.first() {
            Some(device) => slot.poll(device, cx, take),
            // Not reached: a listener has at least one device.
            None => Poll::Pending,
        }
    }

    /// Takes the next request whose device is still open.
    pub(super) fn take(&self) -> Option<(IncomingRequest, EventParam)> {
        let service = &self.id.service;
        loop {
            let handler = EventHandler::new(service.ready());
            let (id, param) = service.call(|cma, _| {
                let (event, made) =
                    std::iter::from_fn(|| cma.next_event(self.id.channel(), |_, _| 0))
                        .find_map(|event| event.new_id.map(|made| (event, made)))?;
                // The new identifier gets its own channel in the same step, so all later events of
                // the identifier arrive there.
                Some((CmId::adopt(service, cma, made, Arc::clone(&handler) as _), event.param))
            })?;
            let (Some(device), (Some(local), Some(peer))) = (id.device(), id.addresses()) else {
                continue;
            };
            return Some((IncomingRequest { id, handler, device, local, peer }, param));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

/// The identifier, the device and the addresses of a request.
pub(super) struct IncomingRequest {
    pub id: CmId,
    pub handler: Arc<EventHandler>,
    pub device: Device,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl IncomingRequest {
    /// Rejects the request.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), ConnectError> {
        let refused = self
            .id
            .call(|cma, now, id| cma.reject(now, id, RejReason::CONSUMER_DEFINED, private_data));
        self.id.service.run_ready_wakers();
        refused
    }
}

/// Defines the methods that connection requests and datagram requests share.
macro_rules! request_accessors {
    ($of:ident) => {
        impl $of {
            /// Returns the address and port of the peer.
            #[must_use]
            pub fn peer_addr(&self) -> std::net::SocketAddr {
                self.incoming.peer
            }

            /// Returns the address and port that the peer asked for.
            #[must_use]
            pub fn local_addr(&self) -> std::net::SocketAddr {
                self.incoming.local
            }

            /// Returns the device of the request. The queue pair must belong to this device.
            #[must_use]
            pub fn device(&self) -> &$crate::Device {
                &self.incoming.device
            }
        }

        impl std::fmt::Debug for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($of))
                    .field("peer_addr", &self.incoming.peer)
                    .field("local_addr", &self.incoming.local)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(super) use request_accessors;

/// The future of [`Listener::next`].
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct NextRequest<'a> {
    listener: &'a Listener,
    slot: WakerSlot<&'a WakerList>,
}

impl Future for NextRequest<'_> {
    type Output = Result<ConnectRequest, WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { listener, slot } = &mut *self;
        listener.poll(slot, cx, || listener.try_next()).map(Ok)
    }
}

/// The requests of a listener as a [`Stream`](futures_core::Stream), which never ends. An item has
/// the result of [`Listener::next`].
///
/// ```
/// use smol::stream::StreamExt;
/// use urxe::cm::{self, ConnectRequest, Listener, RequestStream};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 27])?;
/// # let there = Device::open_address([127, 49, 11, 28])?;
/// let listener = Listener::builder().device(&here).bind("127.49.11.27:0")?;
/// # let options = cm::Options::new().device(&there);
/// # let client = cm::prepare(listener.local_addr(), &options)?.start()?;
/// let mut requests: RequestStream<'_> = listener.stream();
/// let request: Option<Result<ConnectRequest, _>> = pollster::block_on(requests.next());
/// let accepting = request.unwrap()?.prepare(&cm::Options::new())?.start()?;
/// # pollster::block_on(client)?;
/// let connection = pollster::block_on(accepting)?;
/// println!("{} is connected", connection.peer_addr());
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "stream")]
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct RequestStream<'a>(NextRequest<'a>);

#[cfg(feature = "stream")]
impl Listener {
    /// Returns the requests as a stream, for the adapters of `futures` and of executors.
    pub fn stream(&self) -> RequestStream<'_> {
        RequestStream(self.next())
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for RequestStream<'_> {
    type Item = Result<ConnectRequest, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll(cx).map(Some)
    }
}

/// The iterator of [`Listener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a Listener,
}

impl Iterator for Incoming<'_> {
    type Item = Result<ConnectRequest, WaitError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.wait(None))
    }
}

/// A request for a connection. Dropping the request rejects it.
///
/// ```
/// use urxe::cm::{self, ConnectError, RejReason};
/// # use urxe::Device;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 11])?;
/// # let there = Device::open_address([127, 49, 11, 12])?;
/// let listener = cm::Listener::builder().device(&here).bind("127.49.11.11:0")?;
/// let to = listener.local_addr();
/// # let options = cm::Options::new().device(&there);
/// let client = std::thread::spawn(move || cm::prepare(to, &options).unwrap().establish());
/// let request = listener.wait(None)?;
/// println!("{} asks for a connection", request.peer_addr());
/// request.reject(b"not today")?;
/// match client.join().unwrap().unwrap_err() {
///     ConnectError::Rejected { reason: RejReason::CONSUMER_DEFINED, peer_private_data, .. } => {
///         assert!(peer_private_data.starts_with(b"not today"));
///     }
///     other => panic!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it refuses it"]
pub struct ConnectRequest {
    incoming: IncomingRequest,
    param: ConnEvent,
}

request_accessors!(ConnectRequest);

impl ConnectRequest {
    /// Returns the private data of the peer, padded with zeros to the length of the message.
    #[must_use]
    pub fn peer_private_data(&self) -> PrivateData<'_> {
        PrivateData::new(&self.param.private_data)
    }

    /// Returns the parameters of the peer: its numbers of READs and atomics, its retry counts and
    /// its queue pair number.
    #[must_use]
    pub fn parameters(&self) -> &ConnEvent {
        &self.param
    }

    /// Accepts with the default [`Options`] and blocks until the connection is established.
    ///
    /// # Errors
    /// Fails with [`ConnectError`].
    pub fn accept(self) -> Result<Connection, ConnectError> {
        self.prepare(&Options::new())?.establish()
    }

    /// Creates the queue pair of the connection, which accepts receives at once. The peer receives
    /// no answer yet.
    ///
    /// # Errors
    /// Fails with [`ConnectError`]. The request is rejected then.
    pub fn prepare(self, options: &Options) -> Result<Pending, ConnectError> {
        let Self { incoming, param } = self;
        Pending::accepting(
            incoming.id,
            &incoming.handler,
            &incoming.device,
            param,
            incoming.peer,
            options,
        )
    }

    /// Rejects the request with up to [`REJECT_DATA_MAX`](super::REJECT_DATA_MAX) bytes of private
    /// data.
    ///
    /// # Errors
    /// Fails with [`ConnectError::Cm`] if there is more private data. The request is rejected
    /// without private data then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.incoming.reject(private_data)
    }
}
