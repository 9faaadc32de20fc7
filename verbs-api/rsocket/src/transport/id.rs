//! Identifiers of the connection manager, each with its own event channel.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cma::{
    ChannelId, Cma, CmaError, CmaEvent, CmaEventType, CmaId, ConnEvent, ConnParam, EventParam,
};
use urxe_stack::driver::eventfd::{Deferred, EventFd};
use urxe_stack::driver::{Connections, Host};
use urxe_stack::qp::attr::QpType;
use urxe_stack::time::Time;
use urxe_wire::mad::{PortSpace, RejReason};

use super::queues::{Depths, Queues};
use crate::error::{Result, errno};
use crate::numbers::numbered;
use crate::process::{Device, Process};

/// The value for retries without limit, for unacknowledged messages and for receiver-not-ready.
const RETRIES: u8 = 7;

/// An identifier. Dropping it ends its connection.
pub struct CmId {
    pub process: &'static dyn Process,
    connections: &'static Connections,
    core: CmaId,
    channel: ChannelId,
    events: Arc<Deferred<EventFd>>,
}

impl CmId {
    pub fn new(process: &'static dyn Process, space: PortSpace, qp_type: QpType) -> Result<Self> {
        // It is the descriptor of a stream socket that the program makes.
        let descriptor = EventFd::from(numbered(EventFd::new()?)?);
        let events = Arc::new(Deferred::new(descriptor));
        let connections = process.connections();
        let made = connections.call(|cma, _| {
            let channel = cma.create_channel(Arc::clone(&events) as _);
            cma.create_id(channel, space, qp_type, 0).map(|core| (core, channel))
        });
        let (core, channel) = made.map_err(errno)?;
        Ok(Self { process, connections, core, channel, events })
    }

    /// Calls the connection manager for this identifier.
    pub fn call<T>(
        &self,
        call: impl FnOnce(&mut Cma, Time, CmaId) -> std::result::Result<T, CmaError>,
    ) -> Result<T> {
        self.connections.call(|cma, now| call(cma, now, self.core)).map_err(errno)
    }

    /// Reads the connection manager's state of this identifier.
    pub fn inspect<T>(
        &self,
        inspect: impl FnOnce(&Cma, CmaId) -> std::result::Result<T, CmaError>,
    ) -> Result<T> {
        self.connections.inspect(|cma| inspect(cma, self.core)).map_err(errno)
    }

    /// Returns the device to which the identifier is bound.
    pub fn device(&self) -> Result<Device> {
        let key = self.connections.inspect(|cma| cma.device_of(self.core)).ok_or(Errno::INVAL)?;
        Device::find(self.process, key)
    }

    /// Returns the local address and the peer's address.
    pub fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        self.inspect(Cma::addresses)
    }

    pub fn bind(&self, to: SocketAddr) -> Result<()> {
        self.process.devices()?;
        self.call(|cma, _, id| cma.bind(id, to, &Host))
    }

    pub fn listen(&self, backlog: i32) -> Result<()> {
        self.process.devices()?;
        self.call(|cma, _, id| cma.listen(id, backlog, &Host))
    }

    /// Begins to resolve the peer's address; an event reports the outcome.
    pub fn resolve_address(&self, peer: SocketAddr) -> Result<()> {
        self.process.devices()?;
        self.call(|cma, _, id| cma.resolve_addr(id, None, peer, &Host))
    }

    /// Sends a connection request.
    pub fn connect(&self, queues: &Queues, private_data: &[u8]) -> Result<()> {
        let param = ConnParam {
            private_data,
            flow_control: true,
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            qpn: queues.qp.qpn(),
            ..ConnParam::default()
        };
        self.call(|cma, now, id| cma.connect(now, id, &param))
    }

    /// Moves the queue pair to RTS with the accepted attributes, and sends the confirmation.
    pub fn confirm(&self, queues: &Queues) -> Result<()> {
        queues
            .to_rts(self, None)
            .and_then(|()| self.call(|cma, now, id| cma.establish(now, id)))
            .inspect_err(|_| queues.to_error())
    }

    /// Accepts the connection request of this identifier with the peer's attributes.
    pub fn accept(
        &self,
        queues: &Queues,
        request: &ConnEvent,
        ece_vendor: u32,
        private_data: &[u8],
    ) -> Result<()> {
        let limits = queues.device.engine.device().limits();
        let depths = Depths {
            initiator: request.initiator_depth.min(limits.max_qp_init_rd_atom),
            responder: request.responder_resources.min(limits.max_qp_rd_atom),
        };
        queues.to_rts(self, Some(depths))?;
        let param = ConnParam {
            private_data,
            responder_resources: depths.responder,
            initiator_depth: depths.initiator,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            qpn: queues.qp.qpn(),
            // The vendor is the one that the peer sent.
            ece: (ece_vendor, 0),
            ..ConnParam::default()
        };
        let accepted = self.call(|cma, now, id| cma.accept(now, id, &param));
        accepted.inspect_err(|_| queues.to_error())
    }

    /// Rejects the connection request of this identifier.
    pub fn reject(&self) {
        // The request may be answered already.
        let _ = self.call(|cma, now, id| cma.reject(now, id, RejReason::CONSUMER_DEFINED, &[]));
    }

    /// Takes the next event, if there is one. Fails for an event that reports a failure.
    pub fn next_event(&self) -> Result<Option<CmaEvent>> {
        while self.events.descriptor().try_take()? {
            let event = self.connections.call(|cma, _| cma.next_event(self.channel, |_, _| 0));
            if let Some(event) = event {
                return outcome(&event).map(|()| Some(event));
            }
        }
        Ok(None)
    }

    /// Takes the next request of a listening identifier, with an identifier for its connection.
    pub fn next_request(&self) -> Result<Option<(Self, CmaEvent)>> {
        while self.events.descriptor().try_take()? {
            let events = Arc::new(Deferred::new(EventFd::new()?));
            let taken = self.connections.call(|cma, _| {
                let event = cma.next_event(self.channel, |_, _| 0)?;
                let new = event.new_id.map(|core| {
                    let channel = cma.create_channel(Arc::clone(&events) as _);
                    // Both exist, because the event of the request was just taken.
                    let moved = cma.migrate(core, channel);
                    debug_assert_eq!(moved, Ok(()));
                    (core, channel)
                });
                Some((event, new))
            });
            let Some((event, new)) = taken else { continue };
            let (process, connections) = (self.process, self.connections);
            let new =
                new.map(|(core, channel)| Self { process, connections, core, channel, events });
            outcome(&event)?;
            return new.map(|new| Some((new, event))).ok_or(Errno::INVAL);
        }
        Ok(None)
    }
}

impl AsFd for CmId {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.descriptor().as_fd()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.connections.call(|cma, now| {
            let gone = cma.destroy_id(now, self.core);
            debug_assert_eq!(gone, Ok(()), "only its handle destroys an identifier");
            cma.destroy_channel(now, self.channel);
        });
    }
}

/// Returns the outcome of the call that an event reports.
fn outcome(event: &CmaEvent) -> Result<()> {
    match event.status {
        0 => Ok(()),
        _ if event.event_type == CmaEventType::Rejected => Err(Errno::CONNREFUSED),
        status => Err(Errno::from_raw_os_error(status.saturating_abs())),
    }
}

/// Returns the connection data of an event.
pub const fn conn_event(event: &CmaEvent) -> Option<&ConnEvent> {
    match &event.param {
        EventParam::Conn(conn) => Some(conn),
        _ => None,
    }
}
