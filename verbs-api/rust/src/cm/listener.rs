//! Listening for connections.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::{ConnEvent, EventParam, Options as IdOptions};
use urxe_stack::driver::Host;
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::{PortSpace, RejReason};

use super::connection::Connection;
use super::connection_state::EventHandler;
use super::error::{ConnectError, ListenError};
use super::options::Options;
use super::pending::Pending;
use super::service::{self, CmId};
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot};

/// How to listen; made by [`Listener::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ListenerBuilder {
    device: Option<Device>,
    backlog: Option<u16>,
    id: IdOptions,
}

impl ListenerBuilder {
    /// Listens on this device alone. By default on all configured devices that have the address, or
    /// on all of them with a wildcard.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// How many requests may wait to be taken, up to 16,384, which is the default. Peers whose
    /// requests find no room ask again.
    pub fn backlog(mut self, requests: u16) -> Self {
        self.backlog = Some(requests);
        self
    }

    /// With the IPv6 wildcard: not on IPv4 addresses, too (`RDMA_OPTION_ID_AFONLY`).
    pub fn only_own_family(mut self) -> Self {
        self.id.af_only = Some(true);
        self
    }

    /// The type of service of the connections' packets (`RDMA_OPTION_ID_TOS`).
    pub fn type_of_service(mut self, tos: u8) -> Self {
        self.id.tos = tos;
        self
    }

    /// As [`Options::ack_timeout`], for the connections that come of it.
    pub fn ack_timeout(mut self, timeout: u8) -> Self {
        self.id.ack_timeout = (timeout != 0).then_some(timeout.min(31));
        self
    }

    /// Listens on the first of the addresses that can be had; port 0 takes any, which
    /// [`Listener::local_addr`] tells.
    ///
    /// # Errors
    /// [`ListenError`].
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
        let (service, devices) = service::of_device(self.device.as_ref())?;
        let wakers = Arc::new(WakerList::new(Arc::clone(service.ready())));
        let id = CmId::new(&service, space, qp_type, Arc::clone(&wakers) as _)
            .map_err(ListenError::Cm)?;
        let bound = service.call(|cma, _| {
            *cma.options_mut(id.core)? = IdOptions { is_inherited: true, ..self.id };
            cma.bind(id.core, addr, &Host)?;
            cma.listen(id.core, self.backlog.unwrap_or(0).into(), &Host)
        });
        bound.map_err(|error| ListenError::new(addr, error))?;
        let local_addr = id.addresses().0.unwrap_or(addr);
        // One that is bound to an address needs its device only.
        let devices = id.device().map_or(devices, |device| vec![device]);
        Ok(Listener { id, wakers, devices, local_addr })
    }
}

/// Takes requests for connections to a port, of port space TCP. Dropping it refuses those that
/// wait.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use urxe::{Device, cm};
/// # let (here, there) = (Device::open_address([127, 49, 11, 3])?, Device::open_address([127, 49, 11, 4])?);
/// let listener = cm::Listener::builder().device(&here).bind("0.0.0.0:0")?;
/// let port = listener.local_addr().port();
/// # let client = std::thread::spawn(move || {
/// #     let options = cm::Options::new().device(&there).private_data(b"hello");
/// #     cm::prepare(("127.49.11.3", port), &options).unwrap().establish().unwrap().disconnect();
/// # });
/// let request = listener.wait(None)?;
/// assert!(request.private_data().starts_with(b"hello"));
/// let connection = request.accept()?;
/// # client.join().unwrap();
/// # assert_eq!(connection.events().wait(None)?, cm::ConnectionEvent::Disconnected);
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    // Before the devices, which it may be the last to use.
    id: CmId,
    wakers: Arc<WakerList>,
    devices: Vec<Device>,
    local_addr: SocketAddr,
}

impl Listener {
    /// Listens on an address and port of the configured devices; on all of them with `0.0.0.0` or
    /// `[::]`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, ListenError> {
        Self::builder().bind(addr)
    }

    /// Options, and then listening.
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder::default()
    }

    /// What it listens on, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The devices that it listens on.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Takes the oldest request, if one waits.
    pub fn try_next(&self) -> Option<ConnectRequest> {
        self.take().and_then(|(incoming, param)| match param {
            EventParam::Conn(param) => Some(ConnectRequest { incoming, param }),
            _ => None,
        })
    }

    /// Sleeps until a request comes, and takes it. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<ConnectRequest, WaitError> {
        self.wait_for(timeout, || self.try_next())
    }

    pub(super) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        take: impl Fn() -> Option<T>,
    ) -> Result<T, WaitError> {
        // There is at least one: which does not matter, the others' threads receive for them.
        let Some(device) = self.devices.first() else { return Err(WaitError::Quiet) };
        BlockingWait::new(device, timeout).until(&self.wakers, || Ok(take()), || false)
    }

    /// Waits in a task until a request comes, and takes it. Needs no runtime. Several tasks may
    /// wait; each request goes to one.
    pub fn next(&self) -> NextRequest<'_> {
        NextRequest { listener: self, slot: self.slot() }
    }

    /// The requests, one after the other, for ever.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    pub(super) fn slot(&self) -> WakerSlot<&WakerList> {
        WakerSlot::new(&self.wakers)
    }

    /// Takes the next request whose device is still there.
    pub(super) fn take(&self) -> Option<(IncomingRequest, EventParam)> {
        let service = &self.id.service;
        loop {
            let handler = EventHandler::new(service.ready());
            let (id, param) = service.call(|cma, _| {
                let (event, made) =
                    std::iter::from_fn(|| cma.next_event(self.id.channel(), |_, _| 0))
                        .find_map(|event| event.new_id.map(|made| (event, made)))?;
                // In one step with taking it, so that what else happens to it comes to its own
                // channel.
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

/// Who asks.
pub(super) struct IncomingRequest {
    pub id: CmId,
    pub handler: Arc<EventHandler>,
    pub device: Device,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl IncomingRequest {
    /// Refuses what it asks for.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), ConnectError> {
        let refused = self
            .id
            .call(|cma, now, id| cma.reject(now, id, RejReason::CONSUMER_DEFINED, private_data));
        self.id.service.run_ready_wakers();
        refused
    }
}

/// What requests for connections and questions for datagram services tell of who asks.
macro_rules! request_accessors {
    ($of:ident) => {
        impl $of {
            /// The address and port of who asks.
            #[must_use]
            pub fn peer_addr(&self) -> std::net::SocketAddr {
                self.incoming.peer
            }

            /// The address and port that were asked.
            #[must_use]
            pub fn local_addr(&self) -> std::net::SocketAddr {
                self.incoming.local
            }

            /// The device it came to, which must have the queue pair.
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

/// Future of [`Listener::next`].
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct NextRequest<'a> {
    listener: &'a Listener,
    slot: WakerSlot<&'a WakerList>,
}

impl Future for NextRequest<'_> {
    type Output = ConnectRequest;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectRequest> {
        let Self { listener, slot } = &mut *self;
        slot.poll(cx, || listener.try_next())
    }
}

/// Iterator of [`Listener::incoming`], which never ends.
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

/// A request for a connection. Dropping it refuses it.
#[must_use = "dropping it refuses it"]
pub struct ConnectRequest {
    incoming: IncomingRequest,
    param: ConnEvent,
}

request_accessors!(ConnectRequest);

impl ConnectRequest {
    /// What the peer's program says, with the zeros behind that fill the message.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.param.private_data
    }

    /// What else the peer says: READs and atomics at a time, retries, its queue pair.
    #[must_use]
    pub fn parameters(&self) -> &ConnEvent {
        &self.param
    }

    /// Accepts with the default [`Options`] and sleeps until the connection is made.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn accept(self) -> Result<Connection, ConnectError> {
        self.prepare(&Options::new())?.establish()
    }

    /// Makes what accepting needs: a queue pair that takes receives.
    ///
    /// # Errors
    /// [`ConnectError`]; the request is refused then.
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

    /// Refuses, with up to [`REJECT_DATA_MAX`](super::REJECT_DATA_MAX) bytes for the peer's
    /// program.
    ///
    /// # Errors
    /// [`ConnectError::Cm`]: more private data than that; it is refused without any then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.incoming.reject(private_data)
    }
}
