//! Pending connections. The queue pair exists and accepts receives before the peer can send a
//! message.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use urxe_stack::cma::{CmaError, CmaEventType, ConnEvent, ConnParam};
use urxe_stack::cq::Wake;
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::PortSpace;

use super::connection::Connection;
use super::connection_state::{ConnectionState, Depths, EventHandler, accessors, resolve_error};
use super::default_devices;
use super::error::ConnectError;
use super::options::{ACCEPT_DATA_MAX, CONNECT_DATA_MAX, Options};
use super::service::{CmId, Service};
use crate::blocking_wait::BlockingWait;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot};

/// A connection that is not established yet, made by [`prepare`](super::prepare) or
/// [`ConnectRequest::prepare`](super::ConnectRequest::prepare).
///
/// The queue pair accepts receives already. [`establish`](Self::establish), or awaiting the value,
/// performs the handshake. Dropping a pending connection from a request rejects the request.
///
/// ```
/// use urxe::cm::{self, Listener, Options};
/// use urxe::{Access, Data, Device, RecvRequest, SendRequest};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 15])?;
/// # let there = Device::open_address([127, 49, 11, 16])?;
/// # let listener = Listener::builder().device(&here).bind("127.49.11.15:0")?;
/// # let to = listener.local_addr();
/// let pending = cm::prepare(to, &Options::new().device(&there))?;
/// let inbox = pending.pd().allocate(4096, Access::LOCAL_WRITE)?;
/// pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
/// # let server = std::thread::spawn(move || listener.wait(None).unwrap().accept().unwrap());
/// let connection = pending.establish()?;
/// # let accepted = server.join().unwrap();
/// # accepted.qp().post_send(&SendRequest::send(Data::inline(b"first")))?;
/// assert_eq!(connection.recv_cq().wait_one(None)?.byte_len, 5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is said to the peer until it is established"]
pub struct Pending {
    connection: Arc<ConnectionState>,
    side: Side,
    private_data: Vec<u8>,
    depths: Depths,
    retry_count: u8,
    rnr_retry_count: u8,
    timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Active,
    Passive,
}

/// Resolves the address of `peer` and creates the objects of a connection, of reliable service and
/// port space TCP. Sends no message.
pub(super) fn prepare(peer: SocketAddr, options: &Options) -> Result<Pending, ConnectError> {
    options.check()?;
    let selection = DeviceSelection::new(options)?;
    let handler = EventHandler::new(selection.service.ready());
    let id = selection.resolve(
        peer,
        options,
        (PortSpace::TCP, QpType::Rc),
        Arc::clone(&handler) as _,
    )?;
    let device = id.device().ok_or(ConnectError::DeviceRemoved)?;
    Pending::new(id, &handler, &device, ConnEvent::default(), peer, Side::Active, options)
}

/// The devices that the options allow.
pub(super) struct DeviceSelection {
    pub service: Arc<Service>,
    /// Keeps the devices open until one is selected.
    _devices: Vec<Device>,
}

impl DeviceSelection {
    pub fn new(options: &Options) -> Result<Self, ConnectError> {
        let (service, devices) = default_devices::of_device(options.selected_device())?;
        Ok(Self { service, _devices: devices })
    }

    /// Returns an identifier with a resolved route to `peer`.
    pub fn resolve(
        &self,
        peer: SocketAddr,
        options: &Options,
        (space, qp_type): (PortSpace, QpType),
        wake: Arc<dyn Wake>,
    ) -> Result<CmId, ConnectError> {
        let service = &self.service;
        let id = CmId::new(service, space, qp_type, wake).map_err(ConnectError::Cm)?;
        let resolved = service.call(|cma, _| {
            *cma.options_mut(id.core)? = options.for_id();
            cma.resolve_addr(id.core, options.source, peer, service.system())
        });
        resolved.map_err(|error| match error {
            CmaError::NoRoute { errno, .. } => ConnectError::NoRoute { peer, errno },
            error => ConnectError::Cm(error),
        })?;
        // The event is already in the channel, because the resolution needs no answer of the
        // network.
        while let Some(event) = id.next_event() {
            if event.event_type == CmaEventType::AddrError {
                return Err(resolve_error(event.status, peer));
            }
        }
        service.call(|cma, _| cma.resolve_route(id.core)).map_err(ConnectError::Cm)?;
        while id.next_event().is_some() {}
        Ok(id)
    }
}

accessors!(Pending);

impl Pending {
    fn new(
        id: CmId,
        handler: &EventHandler,
        device: &Device,
        peer: ConnEvent,
        peer_addr: SocketAddr,
        side: Side,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let limits = device.core().limits();
        let (initiator, responder) = match side {
            Side::Active => (u8::MAX, u8::MAX),
            Side::Passive => (peer.initiator_depth, peer.responder_resources),
        };
        let initiator = initiator.min(limits.max_qp_init_rd_atom);
        let responder = responder.min(limits.max_qp_rd_atom);
        let depths = Depths {
            initiator: options.initiator_depth.unwrap_or(initiator),
            responder: options.responder_resources.unwrap_or(responder),
        };
        let numbers = [
            ("initiator_depth", depths.initiator, limits.max_qp_init_rd_atom),
            ("responder_resources", depths.responder, limits.max_qp_rd_atom),
        ];
        super::options::check(numbers)?;
        let (given, max) = (options.private_data.len(), side.private_data_max());
        if given > max {
            return Err(ConnectError::Cm(CmaError::PrivateData { given, max }));
        }
        let qp = options.make_qp(device, peer_addr)?;
        let connection =
            ConnectionState::new(qp, id, handler, peer, peer_addr, options.min_rnr_timer.code())?;
        Ok(Self {
            connection,
            side,
            private_data: options.private_data.clone(),
            depths,
            retry_count: options.retry_count,
            rnr_retry_count: options.rnr_retry_count,
            timeout: options.timeout,
        })
    }

    pub(super) fn accepting(
        id: CmId,
        handler: &EventHandler,
        device: &Device,
        request: ConnEvent,
        peer_addr: SocketAddr,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        options.check()?;
        let pending = Self::new(id, handler, device, request, peer_addr, Side::Passive, options)?;
        // This handles events that arrived before the handler knew its connection.
        pending.connection.handle_events();
        Ok(pending)
    }

    /// Replaces the private data of the options.
    pub(crate) fn set_private_data(&mut self, data: &[u8]) -> Result<(), ConnectError> {
        let (given, max) = (data.len(), self.side.private_data_max());
        if given > max {
            return Err(ConnectError::Cm(CmaError::PrivateData { given, max }));
        }
        self.private_data = data.to_vec();
        Ok(())
    }

    /// Returns the time limit of the options.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Sends the request, or accepts it, and blocks until the connection is established.
    ///
    /// # Errors
    /// Fails with [`ConnectError`].
    pub fn establish(self) -> Result<Connection, ConnectError> {
        let timeout = self.timeout;
        self.start()?.wait(timeout)
    }

    /// Sends the request, or accepts it, and returns a future for the connection. The future needs
    /// no runtime. Dropping the future cancels the connection.
    ///
    /// # Errors
    /// Fails with [`ConnectError`], and so does the future.
    pub fn start(self) -> Result<Establishing, ConnectError> {
        let started = match self.side {
            Side::Active => self.send_request(),
            Side::Passive => self.accept(),
        };
        self.connection.id.service.run_ready_wakers();
        started?;
        let slot = WakerSlot::new(Arc::clone(&self.connection.wakers));
        Ok(Establishing { connection: self.connection, slot })
    }

    fn param(&self) -> ConnParam<'_> {
        ConnParam {
            private_data: &self.private_data,
            responder_resources: self.depths.responder,
            initiator_depth: self.depths.initiator,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: self.qp().shared_receive_queue().is_some(),
            qpn: self.qp().qpn(),
            ..ConnParam::default()
        }
    }

    fn send_request(&self) -> Result<(), ConnectError> {
        self.connection.id.call(|cma, now, id| cma.connect(now, id, &self.param()))
    }

    fn accept(&self) -> Result<(), ConnectError> {
        let accepted = self.connection.to_rts(Some(self.depths)).and_then(|()| {
            self.connection.await_peer();
            self.connection.id.call(|cma, now, id| cma.accept(now, id, &self.param()))
        });
        match accepted {
            Err(ConnectError::Cm(CmaError::Cm(_) | CmaError::NoConnection { .. })) => {
                Err(ConnectError::Withdrawn { peer: self.connection.peer_addr })
            }
            other => other,
        }
    }
}

impl Side {
    const fn private_data_max(self) -> usize {
        match self {
            Self::Active => CONNECT_DATA_MAX,
            Self::Passive => ACCEPT_DATA_MAX,
        }
    }
}

impl IntoFuture for Pending {
    type Output = Result<Connection, ConnectError>;
    type IntoFuture = Establish;

    fn into_future(self) -> Establish {
        Establish(Some(self.start()))
    }
}

/// The future of an awaited [`Pending`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Establish(Option<Result<Establishing, ConnectError>>);

impl Future for Establish {
    type Output = Result<Connection, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(Ok(establishing)) => Pin::new(establishing).poll(cx),
            _ => match self.0.take() {
                Some(Err(error)) => Poll::Ready(Err(error)),
                // The future was polled again after it had returned its result.
                _ => Poll::Pending,
            },
        }
    }
}

/// The future of [`Pending::start`].
#[derive(Debug)]
#[must_use = "dropping it gives the connection up"]
pub struct Establishing {
    connection: Arc<ConnectionState>,
    slot: WakerSlot<Arc<WakerList>>,
}

impl Establishing {
    /// Blocks until the connection is established.
    pub(crate) fn wait(self, timeout: Option<Duration>) -> Result<Connection, ConnectError> {
        let connection = &self.connection;
        let wait = BlockingWait::new(connection.qp.pd().device(), timeout);
        wait.until(&connection.wakers, || Ok(connection.outcome()), || false).map_err(
            |error| {
                let likely = || connection.path_error();
                ConnectError::of_wait(error, connection.peer_addr, timeout, likely)
            },
        )??;
        Ok(Connection::new(Arc::clone(connection)))
    }

    /// Registers `waker`, and returns the result if there is one. Unlike a poll, this calls no
    /// waker and does not advance virtual time.
    pub(crate) fn try_finish(&mut self, waker: &Waker) -> Option<Result<Connection, ConnectError>> {
        self.slot.register(waker);
        let outcome = self.connection.outcome()?;
        Some(outcome.map(|()| Connection::new(Arc::clone(&self.connection))))
    }
}

impl Future for Establishing {
    type Output = Result<Connection, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, slot } = &mut *self;
        slot.poll(connection.qp.pd().device(), cx, || connection.outcome())
            .map(|outcome| outcome.map(|()| Connection::new(Arc::clone(connection))))
    }
}
