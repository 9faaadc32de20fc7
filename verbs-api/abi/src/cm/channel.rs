//! Event channels: descriptors that a program sleeps on.
//!
//! Programs destroy a channel that another of their threads is about to wait on (rping does, when
//! it is refused): the original then fails in the system call. So what belongs to a channel is
//! looked up by its address and never behind it.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;
use urxe_stack::cma::ChannelId;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::sys::fork::PerProcess;

use super::process::connections;
use super::written;
use crate::border;
use crate::error::VerbError;
use crate::layout::rdma_event_channel;
use crate::logging;
use crate::node::lock;

/// What belongs to a channel.
pub struct Channel {
    pub fd: EventFd,
    /// Events that the descriptor does not count yet. Who moves them there or takes them back holds
    /// `counting`.
    due: AtomicU32,
    counting: Mutex<()>,
    pub core: ChannelId,
    /// What programs have written into it.
    pub written: written::Queue,
}

/// This process's channels, by the address of what C sees of them.
static CHANNELS: PerProcess<Mutex<HashMap<usize, Arc<Channel>>>> = PerProcess::new(Mutex::default);

/// The channel that a program means.
pub fn find(channel: *mut rdma_event_channel) -> Result<Arc<Channel>, VerbError> {
    if channel.is_null() {
        return Err(VerbError::Null("channel"));
    }
    let found = lock(CHANNELS.get()).get(&channel.addr()).cloned();
    found.ok_or(VerbError::System { what: "no such event channel", errno: Errno::BADF })
}

/// Makes a channel.
pub fn create() -> Result<*mut rdma_event_channel, VerbError> {
    let system = |errno| VerbError::System { what: "a descriptor", errno };
    let fd = EventFd::new().map_err(system)?;
    let c = rdma_event_channel { fd: fd.as_raw_fd() };
    let channel = connections().call(|cma, _| {
        Arc::new_cyclic(|channel| {
            let wake = Arc::new(ChannelWake(channel.clone()));
            let (due, counting) = Default::default();
            Channel {
                fd,
                due,
                counting,
                core: cma.create_channel(wake),
                written: written::Queue::default(),
            }
        })
    });
    let made = Box::into_raw(Box::new(c));
    lock(CHANNELS.get()).insert(made.addr(), channel);
    Ok(made)
}

/// Wakes who waits on a channel, as long as it is there: once for all events of a call, when the
/// core's lock is free again, which who wakes asks for first.
struct ChannelWake(Weak<Channel>);

impl Wake for ChannelWake {
    fn wake(&self) {
        if let Some(channel) = self.0.upgrade() {
            channel.due.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        let Some(channel) = self.0.upgrade() else { return events };
        let _counting = lock(&channel.counting);
        let less = |due: u32| Some(due.saturating_sub(events));
        let due = channel.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        let uncounted = due.min(events);
        uncounted + channel.fd.withdraw(events - uncounted)
    }

    fn announce(&self) {
        let Some(channel) = self.0.upgrade() else { return };
        let _counting = lock(&channel.counting);
        channel.fd.add(channel.due.swap(0, Ordering::Relaxed));
    }
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
    logging::start();
    border::pointer("rdma_create_event_channel", create)
}

/// `rdma_destroy_event_channel`
pub unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the ABI's contract.
    border::guard((), || unsafe { destroy(channel) });
}
