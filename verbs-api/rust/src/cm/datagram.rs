//! Datagram services: asking which queue pair serves a port (SIDR), and answering.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_stack::cma::{CmaEvent, CmaEventType, ConnParam, EventParam, UdEvent};
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::{PortSpace, SidrStatus};
use urxe_wire::{QKey, Qpn};

use super::error::{ConnectError, ListenError, ResolveError};
use super::listener::{IncomingRequest, Listener, ListenerBuilder, request_accessors};
use super::options::Options;
use super::pending::DeviceSelection;
use super::service::CmId;
use crate::ah::AddressHandle;
use crate::blocking_wait::BlockingWait;
use crate::cq::WaitError;
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;
use crate::waker_list::{WakerList, WakerSlot};

/// The Q_Key of datagram services (`RDMA_UDP_QKEY`): what their queue pairs begin with
/// ([`QueuePair::start_datagrams`]).
pub const DATAGRAM_QKEY: QKey = PortSpace::UDP_QKEY;

/// A datagram service that was found: what a datagram to it needs
/// ([`SendRequest::to`](crate::SendRequest::to)).
#[derive(Debug)]
pub struct DatagramService {
    /// The way there.
    pub ah: AddressHandle,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: QKey,
    /// What its program says, with the zeros behind that fill the message.
    pub private_data: Vec<u8>,
}

/// Asks which queue pair serves datagrams at an address and port of port space UDP. Of the options
/// count the device, the protection domain, which the way there is made in, the source, private
/// data (up to 180 bytes) and the timeout.
///
/// # Errors
/// [`ResolveError`].
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
    let asked = id.call(|cma, now, id| cma.connect(now, id, &param));
    id.service.run_ready_wakers();
    asked?;
    Ok(Resolving { id, slot: WakerSlot::new(wakers), pd, peer, timeout: options.timeout })
}

/// A datagram service that is being looked for: [`wait`](Self::wait), or await it.
#[must_use = "the answer is wanted"]
pub struct Resolving {
    id: CmId,
    slot: WakerSlot<Arc<WakerList>>,
    pd: ProtectionDomain,
    peer: SocketAddr,
    timeout: Option<Duration>,
}

impl Resolving {
    /// Sleeps until the answer is there.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn wait(self) -> Result<DatagramService, ResolveError> {
        let wait = BlockingWait::new(self.pd.device(), self.timeout);
        let event = wait.until(self.slot.list(), || Ok(self.id.next_event()), || false);
        self.answer(event.map_err(|error| ConnectError::of_wait(error, self.peer, self.timeout))?)
    }

    fn answer(&self, event: CmaEvent) -> Result<DatagramService, ResolveError> {
        let peer = self.peer;
        let EventParam::Ud(UdEvent { private_data, ah, qpn, qkey }) = event.param else {
            return Err(ConnectError::Unreachable { peer }.into());
        };
        if event.event_type == CmaEventType::Established {
            let ah = self.pd.address_handle_with(&ah)?;
            return Ok(DatagramService { ah, qpn, qkey, private_data });
        }
        let status = SidrStatus(u8::try_from(event.status).unwrap_or(u8::MAX));
        Err(ResolveError::Refused { peer, status, private_data })
    }
}

impl Future for Resolving {
    type Output = Result<DatagramService, ResolveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { id, slot, .. } = &mut *self;
        slot.poll(cx, || id.next_event()).map(|event| self.answer(event))
    }
}

impl fmt::Debug for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Takes the questions which queue pair serves datagrams at a port, of port space UDP.
#[derive(Debug)]
pub struct DatagramListener {
    listener: Listener,
}

impl DatagramListener {
    /// Listens on an address and port of the configured devices; on all of them with `0.0.0.0` or
    /// `[::]`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, ListenError> {
        Self::bind_with(Listener::builder(), addr)
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind_with(
        options: ListenerBuilder,
        addr: impl ToSocketAddrs,
    ) -> Result<Self, ListenError> {
        Ok(Self { listener: options.bind_space(addr, PortSpace::UDP, QpType::Ud)? })
    }

    /// What it listens on, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Takes the oldest question, if one waits.
    pub fn try_next(&self) -> Option<DatagramRequest> {
        self.listener.take().and_then(|(incoming, param)| match param {
            EventParam::Ud(UdEvent { private_data, .. }) => {
                Some(DatagramRequest { incoming, private_data })
            }
            _ => None,
        })
    }

    /// Sleeps until a question comes, and takes it. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<DatagramRequest, WaitError> {
        self.listener.wait_for(timeout, || self.try_next())
    }

    /// Waits in a task until a question comes, and takes it.
    pub async fn next(&self) -> DatagramRequest {
        let mut slot = self.listener.slot();
        std::future::poll_fn(|cx| slot.poll(cx, || self.try_next())).await
    }
}

/// Somebody asks which queue pair serves. Dropping it says that none does.
#[must_use = "dropping it refuses it"]
pub struct DatagramRequest {
    incoming: IncomingRequest,
    private_data: Vec<u8>,
}

request_accessors!(DatagramRequest);

impl DatagramRequest {
    /// What the peer's program says, with the zeros behind that fill the message.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Answers that `qp` serves, a datagram queue pair of the device that was begun with
    /// [`DATAGRAM_QKEY`]; with up to 136 bytes for the peer's program.
    ///
    /// # Errors
    /// [`ConnectError`]; the question is refused then.
    pub fn accept(self, qp: &QueuePair, private_data: &[u8]) -> Result<(), ConnectError> {
        let IncomingRequest { id, device, peer, .. } = self.incoming;
        if !qp.pd().device().is_same(&device) {
            return Err(ConnectError::OtherDevice { object: "queue pair", peer: peer.ip() });
        }
        let param = ConnParam { private_data, qpn: qp.qpn(), ..ConnParam::default() };
        id.call(|cma, now, id| cma.accept(now, id, &param))
    }

    /// Answers that no queue pair serves, with up to 136 bytes for the peer's program.
    ///
    /// # Errors
    /// [`ConnectError::Cm`]: more private data than that; it is refused without any then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.incoming.reject(private_data)
    }
}
