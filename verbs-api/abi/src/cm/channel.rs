//! Event channels: descriptors that a program sleeps on.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use urxe_stack::cma::ChannelId;
use urxe_stack::driver::eventfd::EventFd;

use super::process::connections;
use crate::border;
use crate::error::VerbError;
use crate::layout::rdma_event_channel;
use crate::logging;

/// A channel, with what C sees of it in front.
#[repr(C)]
pub struct ChannelObject {
    c: rdma_event_channel,
    pub fd: Arc<EventFd>,
    pub core: ChannelId,
}

impl ChannelObject {
    /// The channel that a program means.
    ///
    /// # Safety
    /// The ABI's contract: `channel` is NULL, or created and not destroyed while the result is used.
    pub unsafe fn from_c<'a>(channel: *mut rdma_event_channel) -> Result<&'a Self, VerbError> {
        // SAFETY: it came from `create`, so it is the first field of a ChannelObject.
        unsafe { channel.cast::<Self>().as_ref() }.ok_or(VerbError::Null("channel"))
    }
}

/// Makes a channel.
pub fn create() -> Result<*mut rdma_event_channel, VerbError> {
    let made = EventFd::new();
    let fd = Arc::new(made.map_err(|errno| VerbError::System { what: "a descriptor", errno })?);
    let wake = Arc::clone(&fd);
    let core = connections().call(|cma, _| cma.create_channel(wake));
    let c = rdma_event_channel { fd: fd.as_raw_fd() };
    Ok(Box::into_raw(Box::new(ChannelObject { c, fd, core })).cast())
}

/// Destroys a channel.
///
/// # Safety
/// The ABI's contract: nobody uses it any more.
pub unsafe fn destroy(channel: *mut rdma_event_channel) {
    // SAFETY: the ABI's contract.
    if let Ok(object) = unsafe { ChannelObject::from_c(channel) } {
        connections().call(|cma, _| cma.destroy_channel(object.core));
        // SAFETY: made by Box::into_raw in `create`; the program does not use it again.
        drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
    }
}

/// `rdma_create_event_channel`
pub unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    logging::start();
    border::pointer("rdma_create_event_channel", create)
}

/// `rdma_destroy_event_channel`
pub unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the ABI's contract.
    border::guard((), || unsafe { destroy(channel) });
}
