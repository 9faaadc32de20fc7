//! The steps by which a stream gets its connection. The service thread makes all steps after the
//! first. No thread sleeps while it holds the lock.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use urxe_stack::cma::{CmaEvent, CmaEventType};
use urxe_stack::sync::lock;

use super::endpoint::Endpoint;
use super::stream_io::StreamIo;
use crate::error::Result;
use crate::options::Wait;
use crate::protocol::connect::ConnData;
use crate::protocol::stream::Stream as Protocol;
use crate::stream::Stream;
use crate::transport::id::conn_event;

/// The phase of a stream on the way to a connection.
pub enum Phase {
    Unbound,
    Bound,
    Listening,
    ResolvingAddress,
    ResolvingRoute,
    /// The request is sent.
    Connecting(Box<Endpoint>),
    /// The reply is sent; the listener waits for the connection.
    Accepting(Weak<Stream>),
    Connected,
    Failed,
    Closed,
}

impl Phase {
    pub const fn is_opening(&self) -> bool {
        matches!(
            self,
            Self::ResolvingAddress
                | Self::ResolvingRoute
                | Self::Connecting(_)
                | Self::Accepting(_)
        )
    }
}

impl Stream {
    /// Begins to connect. Waits for the outcome if `wait` allows it.
    pub fn connect(self: &Arc<Self>, to: SocketAddr, wait: Wait) -> Result<()> {
        {
            let mut phase = self.phase();
            match &*phase {
                Phase::Unbound | Phase::Bound => {}
                Phase::Connected => return Ok(()),
                phase if phase.is_opening() => return Err(Errno::ALREADY),
                Phase::Failed => return Err(Errno::NOTCONN),
                _ => return Err(Errno::INVAL),
            }
            *phase = Phase::ResolvingAddress;
            let resolved = self.id.resolve_address(to).and_then(|()| self.id.next_event());
            let begun = match resolved {
                Ok(Some(event)) => self.advance(&mut phase, &event),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            begun.inspect_err(|_| *phase = Phase::Failed)?;
        }
        self.watch()?;
        match self.wait_connected(wait) {
            Err(Errno::AGAIN) => Err(Errno::INPROGRESS),
            Err(Errno::NOTCONN) => {
                let failed = self.error.swap(0, Ordering::AcqRel);
                Err(if failed == 0 { Errno::NOTCONN } else { Errno::from_raw_os_error(failed) })
            }
            other => other,
        }
    }

    /// Takes an event from the channel of the identifier.
    pub(super) fn handle_event(self: &Arc<Self>) {
        let mut phase = self.phase();
        if phase.is_opening() {
            let listener = match &*phase {
                Phase::Accepting(listener) => listener.upgrade(),
                _ => None,
            };
            let stepped = self.id.next_event().and_then(|event| match event {
                // While the connection is being made, every event advances the phase.
                Some(event) => self.advance(&mut phase, &event),
                None => Ok(()),
            });
            if let Err(error) = stepped {
                tracing::info!(%error, "rsocket {}: no connection", self.fd);
                *phase = Phase::Failed;
                self.end_queue_pair();
                self.error.store(error.raw_os_error(), Ordering::Release);
            }
            let (is_over, has_failed) = (!phase.is_opening(), matches!(*phase, Phase::Failed));
            drop(phase);
            if has_failed
                && let Some(listener) = listener.as_ref()
                && let Some(queue) = listener.queue.get()
            {
                queue.remove_opening(listener.as_fd(), self);
            }
            if is_over {
                self.notify_waiters();
            }
            return;
        }
        let is_listening = matches!(*phase, Phase::Listening);
        drop(phase);
        if is_listening {
            self.answer_requests();
        } else if let Ok(Some(event)) = self.id.next_event()
            && event.event_type == CmaEventType::Disconnected
        {
            self.disconnected();
        }
    }

    /// Makes the step that follows an event.
    fn advance(self: &Arc<Self>, phase: &mut Phase, event: &CmaEvent) -> Result<()> {
        match std::mem::replace(phase, Phase::Failed) {
            Phase::ResolvingAddress => {
                self.id.call(|cma, _, id| cma.resolve_route(id))?;
                *phase = Phase::ResolvingRoute;
            }
            Phase::ResolvingRoute => {
                let endpoint = Box::new(Endpoint::new(&self.id, lock(&self.options).sizes)?);
                let said =
                    Protocol::conn_data(&endpoint.sizes, &endpoint.local_memory()).to_bytes();
                self.id.connect(&endpoint.queues, &said)?;
                *phase = Phase::Connecting(endpoint);
            }
            Phase::Connecting(endpoint) => {
                self.id.confirm(&endpoint.queues)?;
                let peer = conn_event(event).and_then(|conn| ConnData::parse(&conn.private_data));
                let peer = peer.ok_or(Errno::OPNOTSUPP)?;
                lock(&self.options).sizes = endpoint.sizes;
                let io = StreamIo::new(*endpoint, &peer)?;
                let io = self.io.get_or_init(|| io);
                *phase = Phase::Connected;
                io.progress()?;
            }
            Phase::Accepting(listener) => {
                *phase = Phase::Connected;
                if let Some(io) = self.io.get() {
                    io.progress()?;
                }
                let listener = listener.upgrade();
                if let Some(queue) = listener.as_ref().and_then(|of| of.queue.get()) {
                    queue.push(Arc::clone(self));
                }
            }
            other => *phase = other,
        }
        Ok(())
    }

    /// Handles a disconnect event of the connection manager.
    fn disconnected(&self) {
        if let Some(io) = self.io.get() {
            // The program may still take data that the peer sent before.
            let _ = io.progress();
            io.inner().protocol.disconnect();
            self.end_queue_pair();
        }
        self.notify_waiters();
    }
}
