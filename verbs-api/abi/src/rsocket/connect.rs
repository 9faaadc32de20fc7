//! How a stream gets its connection, step by step. The service's thread makes all steps after the
//! first; nobody sleeps under the lock.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use urxe_stack::cma::CmaEventType;
use urxe_stack::sys::address::RawAddress;

use super::answer::{Result, errno};
use super::endpoint::Endpoint;
use super::link::{Link, Wait};
use super::protocol::connect::ConnData;
use super::protocol::stream::Stream as Protocol;
use super::service::Service;
use super::stream::Stream;
use crate::cm::process::connections;
use crate::cm::{address, connect as cm_connect, id as cm_id};
use crate::layout::rdma_conn_param;
use crate::node::lock;

/// How often a message is sent again that the peer does not answer, or has no receive for: without
/// end.
const RETRIES: u8 = 7;

/// Where a stream stands on its way to a connection.
pub enum Phase {
    Unbound,
    Bound,
    Listening,
    ResolvingAddress,
    ResolvingRoute,
    /// The request is under way.
    Connecting(Box<Endpoint>),
    /// The answer is; a listener waits for the connection.
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
    /// Begins to connect; waits for the outcome if it may.
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
            let raw = RawAddress::new(to);
            let to = raw.as_bytes().as_ptr().cast();
            // SAFETY: nobody else changes the identifier while the phase is locked; the address is
            // whole.
            let begun = unsafe { address::resolve(self.id.0, std::ptr::null(), to) };
            match begun.map_err(errno) {
                Ok(()) => self.step_from(&mut phase)?,
                Err(Errno::AGAIN) => {}
                Err(error) => {
                    *phase = Phase::Failed;
                    return Err(error);
                }
            }
        }
        Service::get().watch_stream(self)?;
        match self.wait_connected(wait) {
            Err(Errno::AGAIN) => Err(Errno::INPROGRESS),
            Err(Errno::NOTCONN) => {
                let failed = self.error.swap(0, std::sync::atomic::Ordering::AcqRel);
                Err(if failed == 0 { Errno::NOTCONN } else { Errno::from_raw_os_error(failed) })
            }
            other => other,
        }
    }

    /// Something came by its channel.
    pub fn advance(self: &Arc<Self>) {
        let mut phase = self.phase();
        if phase.is_opening() {
            let listener = match &*phase {
                Phase::Accepting(listener) => listener.upgrade(),
                _ => None,
            };
            let stepped = self.next_event().and_then(|event| match event {
                // Of a connection that is being made, nothing else is expected.
                Some(_) => self.step_from(&mut phase),
                None => Ok(()),
            });
            if let Err(error) = stepped {
                tracing::info!(target: "urxe_abi", %error, "rsocket {}: no connection", self.fd);
                *phase = Phase::Failed;
                self.error.store(error.raw_os_error(), std::sync::atomic::Ordering::Release);
            }
            let (is_over, has_failed) = (!phase.is_opening(), matches!(*phase, Phase::Failed));
            drop(phase);
            if has_failed
                && let Some(queue) = listener.as_ref().and_then(|listener| listener.queue.get())
            {
                queue.give_up(self);
            }
            if is_over {
                self.announce();
            }
            return;
        }
        let is_listening = matches!(*phase, Phase::Listening);
        drop(phase);
        if is_listening {
            self.admit_all();
        } else if let Ok(Some(CmaEventType::Disconnected)) = self.next_event() {
            self.disconnected();
        }
    }

    /// The next event, as the outcome of the call before. `None`: it has not come.
    fn next_event(&self) -> Result<Option<CmaEventType>> {
        if !self.has_event() {
            return Ok(None);
        }
        // SAFETY: the service's thread alone takes events.
        let taken = unsafe { cm_id::complete(self.id.0) };
        match taken.map_err(errno) {
            Ok(()) => {
                // SAFETY: the event was taken into the identifier just now.
                let number = unsafe { (*(*self.id.0).event).event };
                Ok(CmaEventType::ALL.into_iter().find(|event| u32::from(event.number()) == number))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the outcome of one step leads to.
    pub fn step_from(self: &Arc<Self>, phase: &mut Phase) -> Result<()> {
        match std::mem::replace(phase, Phase::Failed) {
            Phase::ResolvingAddress => {
                let core = self.id.object()?.core;
                connections()
                    .call(|cma, _| cma.resolve_route(core))
                    .map_err(|error| errno(error.into()))?;
                *phase = Phase::ResolvingRoute;
            }
            Phase::ResolvingRoute => {
                let sizes = lock(&self.options).sizes;
                // SAFETY: the identifier has a device since its address is resolved, and is this
                // thread's under the phase's lock.
                let endpoint = Box::new(unsafe { Endpoint::new(&self.id, sizes) }?);
                let said = Protocol::introduction(&endpoint.sizes, &endpoint.places()).to_bytes();
                let param = rdma_conn_param {
                    private_data: said.as_ptr().cast(),
                    private_data_len: said.len() as u8,
                    responder_resources: 0,
                    initiator_depth: 0,
                    flow_control: 1,
                    retry_count: RETRIES,
                    rnr_retry_count: RETRIES,
                    srq: 0,
                    qp_num: 0,
                };
                // SAFETY: as above; the data is there during the call.
                let begun = unsafe { cm_connect::connect_to(self.id.0, &param) };
                let begun = begun.map_err(errno);
                *phase = Phase::Connecting(endpoint);
                match begun {
                    Ok(()) => return self.step_from(phase),
                    Err(Errno::AGAIN) => {}
                    Err(error) => {
                        *phase = Phase::Failed;
                        return Err(error);
                    }
                }
            }
            Phase::Connecting(endpoint) => {
                // SAFETY: the event that brought this step is the identifier's, and has a
                // connection's parameters.
                let peer = unsafe { self.introduction() }.ok_or(Errno::OPNOTSUPP)?;
                lock(&self.options).sizes = endpoint.sizes;
                let link = self.link.get_or_init(|| Link::new(*endpoint, &peer));
                *phase = Phase::Connected;
                link.progress()?;
            }
            Phase::Accepting(listener) => {
                *phase = Phase::Connected;
                if let Some(link) = self.link.get() {
                    link.progress()?;
                }
                if let Some(queue) =
                    listener.upgrade().as_ref().and_then(|listener| listener.queue.get())
                {
                    queue.push(Arc::clone(self));
                }
            }
            other => *phase = other,
        }
        Ok(())
    }

    /// What the peer says of itself in the event that the identifier has.
    ///
    /// # Safety
    /// The identifier's event is a request or an answer, and nobody takes another meanwhile.
    pub unsafe fn introduction(&self) -> Option<ConnData> {
        // SAFETY: the caller's; private data is there as long as the event.
        unsafe {
            let conn = (*self.id.0).event.as_ref()?.param.conn;
            if conn.private_data.is_null() {
                return None;
            }
            let data = std::slice::from_raw_parts(
                conn.private_data.cast::<u8>(),
                usize::from(conn.private_data_len),
            );
            ConnData::parse(data)
        }
    }

    /// The connection manager says that the peer is gone.
    fn disconnected(&self) {
        if let Some(link) = self.link.get() {
            // What it sent before may still be taken.
            let _ = link.progress();
            link.inner().protocol.disconnect();
            self.end_queue_pair();
        }
        self.announce();
    }
}
