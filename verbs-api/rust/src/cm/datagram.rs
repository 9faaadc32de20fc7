//! Datagram services: resolving a port to a queue pair (SIDR), and answering such requests.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::{CmaEvent, CmaEventType, ConnParam, EventParam, UdEvent};
use urxe_stack::port::udp::PathError;
use urxe_stack::qp::attr::QpType;
use urxe_stack::time::Time;
use urxe_wire::mad::{PortSpace, SidrStatus};
use urxe_wire::{QKey, Qpn};

use super::error::{ConnectError, ListenError, ResolveError};
use super::listener::{IncomingRequest, Listener, ListenerBuilder, request_accessors};
use super::options::Options;
use super::pending::DeviceSelection;
use super::private_data::PrivateData;
use super::service::CmId;
use crate::ah::AddressHandle;
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;
use crate::waker_list::{WakerList, WakerSlot};

/// The Q_Key of datagram services (`RDMA_UDP_QKEY`), for [`QueuePair::start_datagrams`].
pub const DATAGRAM_QKEY: QKey = PortSpace::UDP_QKEY;

/// The destination of a datagram service, for [`SendRequest::to`](crate::SendRequest::to). The
/// result of [`resolve`].
#[derive(Debug)]
pub struct DatagramService {
    /// The address handle of the host.
    pub ah: AddressHandle,
    /// The number of the queue pair.
    pub qpn: Qpn,
    /// The Q_Key of the queue pair.
    pub qkey: QKey,
    /// The private data of the peer, padded with zeros to the length of the message, for
    /// [`PrivateData::new`].
    pub peer_private_data: Vec<u8>,
}

/// Resolves an address and port of port space UDP to the queue pair that serves it.
///
/// A host name is resolved by the system, which blocks the thread. A task passes an address.
///
/// These options apply: the device, the protection domain of the address handle, the source, up to
/// 180 bytes of private data, and the timeout.
///
/// # Errors
/// Fails with [`ResolveError`].
pub fn resolve(addr: impl ToSocketAddrs, options: &Options) -> Result<Resolving, ResolveError> {
    let no_address = |error| ConnectError::Address(error).into();
    super::try_each_address(addr, no_address, |addr| send_request(addr, options))
}

fn send_request(peer: SocketAddr, options: &Options) -> Result<Resolving, ResolveError> {
    options.check()?;
    let selection = DeviceSelection::new(options)?;
    let wakers = Arc::new(WakerList::new(Arc::clone(selection.service.ready())));
    let wake = Arc::clone(&wakers) as _;
    let id = selection.resolve(peer, options, (PortSpace::UDP, QpType::Ud), wake)?;
    let device = id.device().ok_or(ConnectError::DeviceRemoved)?;
    let pd = options.pd_on(&device, peer)?;
    let param = ConnParam { private_data: &options.private_data, ..ConnParam::default() };
    let since = device.inner.backend.now();
    let asked = id.call(|cma, now, id| cma.connect(now, id, &param));
    id.service.run_ready_wakers();
    asked?;
    Ok(Resolving { id, slot: WakerSlot::new(wakers), pd, peer, timeout: options.timeout, since })
}

/// A pending resolution of a datagram service. Call [`wait`](Self::wait), or await the value.
#[must_use = "the answer is wanted"]
pub struct Resolving {
    id: CmId,
    slot: WakerSlot<Arc<WakerList>>,
    pd: ProtectionDomain,
    peer: SocketAddr,
    timeout: Option<Duration>,
    /// The time of the request.
    since: Time,
}

impl Resolving {
    /// Blocks until the peer answers.
    ///
    /// # Errors
    /// Fails with [`ResolveError`].
    pub fn wait(self) -> Result<DatagramService, ResolveError> {
        let wait = BlockingWait::new(self.pd.device(), self.timeout);
        let event = wait.until(self.slot.list(), || Ok(self.id.next_event()), || false);
        let event = event.map_err(|error| {
            ConnectError::of_wait(error, self.peer, self.timeout, || self.path_error())
        });
        self.answer(event?)
    }

    /// Returns the error of the path that may explain why the peer does not answer.
    fn path_error(&self) -> Option<PathError> {
        self.pd.device().inner.backend.path_error(self.peer.ip(), self.since)
    }

    fn answer(&self, event: CmaEvent) -> Result<DatagramService, ResolveError> {
        let peer = self.peer;
        let EventParam::Ud(UdEvent { private_data, ah, qpn, qkey }) = event.param else {
            return Err(ConnectError::Unreachable { peer, likely: self.path_error() }.into());
        };
        if event.event_type == CmaEventType::Established {
            let ah = self.pd.address_handle_with(&ah)?;
            return Ok(DatagramService { ah, qpn, qkey, peer_private_data: private_data });
        }
        let status = SidrStatus(u8::try_from(event.status).unwrap_or(u8::MAX));
        Err(ResolveError::Refused { peer, status, peer_private_data: private_data })
    }
}

impl Future for Resolving {
    type Output = Result<DatagramService, ResolveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { id, slot, pd, .. } = &mut *self;
        slot.poll(pd.device(), cx, || id.next_event()).map(|event| self.answer(event))
    }
}

impl fmt::Debug for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A listener for requests that resolve a port of port space UDP.
///
/// ```
/// use urxe::cm::{self, DatagramListener, DatagramRequest, DatagramService};
/// use urxe::cm::{ResolveError, Resolving, SidrStatus};
/// use urxe::{Device, QpType};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 9])?;
/// # let there = Device::open_address([127, 49, 11, 10])?;
/// let (pd, cq) = (here.alloc_pd()?, here.create_cq(16)?);
/// let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
/// qp.start_datagrams(cm::DATAGRAM_QKEY)?;
/// let options = cm::Listener::builder().device(&here);
/// let listener = DatagramListener::bind_with(options, "127.49.11.9:0")?;
/// let to = listener.local_addr();
/// # let options = cm::Options::new().device(&there);
/// let resolving: Resolving = cm::resolve(to, &options)?;
/// let request: DatagramRequest = listener.wait(None)?;
/// request.accept(&qp, b"")?;
/// let service: DatagramService = resolving.wait()?;
/// assert_eq!(service.qpn, qp.qpn());
/// // Without a listener, the host refuses.
/// drop(listener);
/// match cm::resolve(to, &options)?.wait().unwrap_err() {
///     ResolveError::Refused { status, .. } => assert_eq!(status, SidrStatus::UNSUPPORTED),
///     other => panic!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DatagramListener {
    listener: Listener,
}

impl DatagramListener {
    /// Listens on an address and port of the configured devices, or on all of them with `0.0.0.0`
    /// or `[::]`.
    ///
    /// # Errors
    /// Fails with [`ListenError`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, ListenError> {
        Self::bind_with(Listener::builder(), addr)
    }

    /// Listens with these options.
    ///
    /// # Errors
    /// Fails with [`ListenError`].
    pub fn bind_with(
        options: ListenerBuilder,
        addr: impl ToSocketAddrs,
    ) -> Result<Self, ListenError> {
        Ok(Self { listener: options.bind_space(addr, PortSpace::UDP, QpType::Ud)? })
    }

    /// Returns the address and port of the listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Takes the oldest request. Returns `None` if no request is pending.
    pub fn try_next(&self) -> Option<DatagramRequest> {
        self.listener.take().and_then(|(incoming, param)| match param {
            EventParam::Ud(UdEvent { private_data, .. }) => {
                Some(DatagramRequest { incoming, private_data })
            }
            _ => None,
        })
    }

    /// Blocks until a request arrives, and takes it. With `None` the wait has no time limit.
    ///
    /// # Errors
    /// Fails with [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<DatagramRequest, WaitError> {
        self.listener.wait_for(timeout, || self.try_next())
    }

    /// Waits for a request, and takes it.
    ///
    /// # Errors
    /// The result has the type of all waits. Over UDP the future does not fail.
    pub async fn next(&self) -> Result<DatagramRequest, WaitError> {
        let mut slot = self.listener.slot();
        let next = std::future::poll_fn(|cx| self.listener.poll(&mut slot, cx, || self.try_next()));
        Ok(next.await)
    }

    /// Returns the requests as a stream, for the adapters of `futures` and of executors.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> DatagramRequestStream<'_> {
        DatagramRequestStream { listener: self, slot: self.listener.slot() }
    }
}

/// The requests of a listener as a [`Stream`](futures_core::Stream), which never ends. An item has
/// the result of [`DatagramListener::next`].
///
/// ```
/// use smol::stream::StreamExt;
/// use urxe::cm::{self, DatagramListener, DatagramRequestStream, Listener, ResolveError};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 33])?;
/// # let there = Device::open_address([127, 49, 11, 34])?;
/// let options = Listener::builder().device(&here);
/// let listener = DatagramListener::bind_with(options, "127.49.11.33:0")?;
/// # let options = cm::Options::new().device(&there);
/// let resolving = cm::resolve(listener.local_addr(), &options)?;
/// let mut requests: DatagramRequestStream<'_> = listener.stream();
/// let request = pollster::block_on(requests.next()).unwrap()?;
/// request.reject(b"closed")?;
/// assert!(matches!(resolving.wait(), Err(ResolveError::Refused { .. })));
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "stream")]
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct DatagramRequestStream<'a> {
    listener: &'a DatagramListener,
    slot: WakerSlot<&'a WakerList>,
}

#[cfg(feature = "stream")]
impl futures_core::Stream for DatagramRequestStream<'_> {
    type Item = Result<DatagramRequest, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { listener, slot } = &mut *self;
        let request = listener.listener.poll(slot, cx, || listener.try_next());
        request.map(|request| Some(Ok(request)))
    }
}

/// A request for the queue pair of a datagram service. Dropping the request rejects it.
#[must_use = "dropping it refuses it"]
pub struct DatagramRequest {
    incoming: IncomingRequest,
    private_data: Vec<u8>,
}

request_accessors!(DatagramRequest);

impl DatagramRequest {
    /// Returns the private data of the peer, padded with zeros to the length of the message.
    #[must_use]
    pub fn peer_private_data(&self) -> PrivateData<'_> {
        PrivateData::new(&self.private_data)
    }

    /// Answers that `qp` serves the port. The queue pair must be a datagram queue pair of the same
    /// device with [`DATAGRAM_QKEY`]. The answer has up to 136 bytes of private data.
    ///
    /// # Errors
    /// Fails with [`ConnectError`]. The request is rejected then.
    pub fn accept(self, qp: &QueuePair, private_data: &[u8]) -> Result<(), ConnectError> {
        let IncomingRequest { id, device, peer, .. } = self.incoming;
        if !qp.pd().device().is_same(&device) {
            return Err(ConnectError::OtherDevice { object: "queue pair", peer: peer.ip() });
        }
        let param = ConnParam { private_data, qpn: qp.qpn(), ..ConnParam::default() };
        let accepted = id.call(|cma, now, id| cma.accept(now, id, &param));
        id.service.run_ready_wakers();
        accepted
    }

    /// Answers that no queue pair serves the port, with up to 136 bytes of private data.
    ///
    /// # Errors
    /// Fails with [`ConnectError::Cm`] if there is more private data. The request is rejected
    /// without private data then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.incoming.reject(private_data)
    }
}
