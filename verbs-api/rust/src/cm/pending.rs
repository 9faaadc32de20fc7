//! Connections that are about to be made: the queue pair is there, and receives can be posted,
//! before the peer can send anything.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::{CmaError, CmaEventType, ConnEvent, ConnParam};
use urxe_stack::cq::Wake;
use urxe_stack::driver::Host;
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::PortSpace;

use super::connection::Connection;
use super::connection_state::{ConnectionState, Depths, EventHandler, accessors, resolve_error};
use super::error::ConnectError;
use super::options::{ACCEPT_DATA_MAX, CONNECT_DATA_MAX, Options};
use super::service::{self, CmId, Service};
use crate::blocking_wait::BlockingWait;
use crate::device::Device;
use crate::waker_list::{WakerList, WakerSlot};

/// A connection that is about to be made, by [`prepare`](super::prepare) or
/// [`ConnectRequest::prepare`](super::ConnectRequest::prepare): with its queue pair, which takes
/// receives now, and its protection domain. [`establish`](Self::establish), or awaiting it, goes
/// on. Dropped instead, it takes a request of the peer's as refused.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use urxe::{Access, RecvRequest, cm};
/// let pending = cm::prepare("10.0.0.1:7471", &cm::Options::new())?;
/// let inbox = pending.pd().allocate(4096, Access::LOCAL_WRITE)?;
/// pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
/// let connection = pending.establish()?;
/// # let _ = connection;
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

/// Resolves the address of `peer` and makes what a connection to it needs, of reliable service and
/// port space TCP. Nothing is sent yet.
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

/// The devices that options leave to choose from.
pub(super) struct DeviceSelection {
    pub service: Arc<Service>,
    /// Open as long as one is chosen.
    _devices: Vec<Device>,
}

impl DeviceSelection {
    pub fn new(options: &Options) -> Result<Self, ConnectError> {
        let (service, devices) = service::of_device(options.selected_device())?;
        Ok(Self { service, _devices: devices })
    }

    /// An identifier that knows its way to `peer`.
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
            cma.resolve_addr(id.core, options.source, peer, &Host)
        });
        resolved.map_err(|error| match error {
            CmaError::NoRoute { errno, .. } => ConnectError::NoRoute { peer, errno },
            error => ConnectError::Cm(error),
        })?;
        // It is told at once, as everything is that needs no answer.
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
            ConnectionState::new(qp, id, handler, peer, peer_addr, options.min_rnr_timer)?;
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
        // What came before anybody served it.
        pending.connection.handle_events();
        Ok(pending)
    }

    /// Asks the peer, or accepts its request, and sleeps until the connection is made.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn establish(self) -> Result<Connection, ConnectError> {
        let timeout = self.timeout;
        let establishing = self.start()?;
        let connection = &establishing.connection;
        let wait = BlockingWait::new(connection.qp.pd().device(), timeout);
        wait.until(&connection.wakers, || Ok(connection.outcome()), || false)
            .map_err(|error| ConnectError::of_wait(error, connection.peer_addr, timeout))??;
        Ok(Connection::new(Arc::clone(connection)))
    }

    /// Asks the peer, or accepts its request; the future is ready when the connection is made.
    /// Needs no runtime. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// [`ConnectError`], here and as the future's output.
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

/// Future of an awaited [`Pending`].
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
                // Polled once more after it was ready.
                _ => Poll::Pending,
            },
        }
    }
}

/// Future of [`Pending::start`]: a connection that is being made.
#[derive(Debug)]
#[must_use = "dropping it gives the connection up"]
pub struct Establishing {
    connection: Arc<ConnectionState>,
    slot: WakerSlot<Arc<WakerList>>,
}

impl Future for Establishing {
    type Output = Result<Connection, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, slot } = &mut *self;
        slot.poll(cx, || connection.outcome())
            .map(|outcome| outcome.map(|()| Connection::new(Arc::clone(connection))))
    }
}
