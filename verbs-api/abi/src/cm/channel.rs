//! Event channels: descriptors on which a program waits for events.
//!
//! A program may destroy a channel while another of its threads is about to wait on the channel
//! (rping does, when its connection is refused). In the original, the system call of that thread
//! then fails. The state of a channel is therefore found by the address of the C structure and is
//! not part of the structure.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use urxe_stack::cma::ChannelId;
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::driver::eventfd::Deferred;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use super::process::connections;
use super::user_events;
use crate::environment;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::rdma_event_channel;

/// The state of a channel.
pub struct Channel {
    pub events: Arc<Deferred<EventDescriptor>>,
    pub core: ChannelId,
    /// Events that programs wrote into the channel.
    pub user_events: user_events::Queue,
}

/// The channels of this process, by the address of their C structures.
static CHANNELS: PerProcess<Mutex<HashMap<usize, Arc<Channel>>>> = PerProcess::new(Mutex::default);

/// Returns the state of a channel.
pub fn find(channel: *mut rdma_event_channel) -> Result<Arc<Channel>, VerbError> {
    ffi::non_null(channel, "channel")?;
    let found = lock(CHANNELS.get()).get(&channel.addr()).cloned();
    found.ok_or(VerbError::system("no such event channel", Errno::BADF))
}

/// Creates a channel.
pub fn create() -> Result<*mut rdma_event_channel, VerbError> {
    let system = |errno| VerbError::system("a descriptor", errno);
    let events = Arc::new(Deferred::new(EventDescriptor::new().map_err(system)?));
    let c = rdma_event_channel { fd: events.descriptor().as_raw_fd() };
    let core = connections().call(|cma, _| cma.create_channel(Arc::clone(&events) as _));
    let channel = Arc::new(Channel { events, core, user_events: user_events::Queue::default() });
    let made = Box::into_raw(Box::new(c));
    lock(CHANNELS.get()).insert(made.addr(), channel);
    Ok(made)
}

/// Destroys a channel. Identifiers that still use it end, and established peers get a DREQ or DREP.
/// qperf 0.4.11 disconnects its server in this way. The structures of the identifiers stay valid.
///
/// # Safety
/// The ABI's contract: no thread uses the channel any more, except threads that wait on it.
pub unsafe fn destroy(channel: *mut rdma_event_channel) {
    let Some(known) = lock(CHANNELS.get()).remove(&channel.addr()) else { return };
    connections().call(|cma, now| cma.destroy_channel(now, known.core));
    // SAFETY: Box::into_raw in `create` made the pointer. The channel was in the table until now,
    // so this happens once.
    drop(unsafe { Box::from_raw(channel) });
}

/// `rdma_create_event_channel`
pub unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    environment::start_logging();
    ffi::return_ptr("rdma_create_event_channel", create)
}

/// `rdma_destroy_event_channel`
pub unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the ABI's contract.
    ffi::catch_panic((), || unsafe { destroy(channel) });
}
