//! Event channels: descriptors that a program sleeps on.
//!
//! Programs destroy a channel that another of their threads is about to wait on (rping does, when
//! it is refused): the original then fails in the system call. So what belongs to a channel is
//! looked up by its address and never behind it.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use urxe_stack::cma::ChannelId;
use urxe_stack::driver::eventfd::DeferredEventFd;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use super::process::connections;
use super::user_events;
use crate::environment;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::rdma_event_channel;

/// What belongs to a channel.
pub struct Channel {
    pub events: Arc<DeferredEventFd>,
    pub core: ChannelId,
    /// What programs have written into it.
    pub user_events: user_events::Queue,
}

/// This process's channels, by the address of what C sees of them.
static CHANNELS: PerProcess<Mutex<HashMap<usize, Arc<Channel>>>> = PerProcess::new(Mutex::default);

/// The channel that a program means.
pub fn find(channel: *mut rdma_event_channel) -> Result<Arc<Channel>, VerbError> {
    ffi::non_null(channel, "channel")?;
    let found = lock(CHANNELS.get()).get(&channel.addr()).cloned();
    found.ok_or(VerbError::system("no such event channel", Errno::BADF))
}

/// Makes a channel.
pub fn create() -> Result<*mut rdma_event_channel, VerbError> {
    let system = |errno| VerbError::system("a descriptor", errno);
    let events = Arc::new(DeferredEventFd::new().map_err(system)?);
    let c = rdma_event_channel { fd: events.fd().as_raw_fd() };
    let core = connections().call(|cma, _| cma.create_channel(Arc::clone(&events) as _));
    let channel = Arc::new(Channel { events, core, user_events: user_events::Queue::default() });
    let made = Box::into_raw(Box::new(c));
    lock(CHANNELS.get()).insert(made.addr(), channel);
    Ok(made)
}

/// Destroys a channel.
///
/// # Safety
/// The ABI's contract: nobody but a thread that waits on it uses it any more.
pub unsafe fn destroy(channel: *mut rdma_event_channel) {
    let Some(known) = lock(CHANNELS.get()).remove(&channel.addr()) else { return };
    connections().call(|cma, _| cma.destroy_channel(known.core));
    // SAFETY: made by Box::into_raw in `create`, and destroyed once: it was known until now.
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
