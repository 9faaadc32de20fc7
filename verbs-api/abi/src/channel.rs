//! Completion channels: descriptors that a program sleeps on.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use urxe_stack::cq::{CompletionChannel, CqEvent};
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::time::Time;

use crate::context::Context;
use crate::cq::CqObject;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq};

/// A completion channel, with what C sees of it in front.
#[repr(C)]
pub struct ChannelObject {
    c: UnsafeCell<ibv_comp_channel>,
    pub channel: Arc<CompletionChannel>,
    fd: Arc<EventFd>,
}

impl ChannelObject {
    /// The channel that a program means. What is not there (any more) is refused.
    ///
    /// # Safety
    /// The ABI's contract: `channel` is NULL, or created and not destroyed while the result is
    /// used.
    pub unsafe fn from_c<'a>(channel: *mut ibv_comp_channel) -> Result<&'a Self, VerbError> {
        if !channel.is_null() {
            handle_registry::check(channel.cast::<Self>())?;
        }
        // SAFETY: it came from create_comp_channel, so it is the first field of a ChannelObject.
        unsafe { channel.cast::<Self>().as_ref() }.ok_or(VerbError::Null("channel"))
    }

    /// The same with its context.
    ///
    /// # Safety
    /// As `from_c`.
    pub unsafe fn with_context<'a>(
        channel: *mut ibv_comp_channel,
    ) -> Result<(&'a Self, &'a Context), VerbError> {
        // SAFETY: the ABI's contract.
        let object = unsafe { Self::from_c(channel) }?;
        // SAFETY: from_c found the channel there. Its context is there as long as the channel, and
        // the field does not change.
        Ok((object, unsafe { Context::from_c_unchecked((*channel).context) }))
    }

    /// Takes an event. Waits for it as `read` would, but receives meanwhile.
    pub fn take_event(&self, context: &Context) -> Result<CqEvent, Errno> {
        if context.is_inherited() {
            return self.fd.take_event(|| self.channel.next_event_for_count());
        }
        loop {
            if self.fd.try_take()? {
                match self.channel.next_event_for_count() {
                    Some(event) => return Ok(event),
                    None => continue,
                }
            }
            if fcntl_getfl(&*self.fd)?.contains(OFlags::NONBLOCK) {
                return Err(Errno::AGAIN);
            }
            context.engine().wait(self.fd.as_fd(), Time::NEVER, || self.channel.has_events())?;
        }
    }

    /// Writes the number of its queues where the program may look for it.
    ///
    /// # Safety
    /// As `from_c`.
    pub unsafe fn count(channel: *mut ibv_comp_channel) {
        // SAFETY: the ABI's contract; the field is an integer that this library alone writes, and
        // no reference to it exists.
        unsafe {
            let cqs = (*channel.cast::<Self>()).channel.cq_count();
            (&raw mut (*channel).refcnt).write(c_int::try_from(cqs).unwrap_or(c_int::MAX));
        }
    }
}

impl AsFd for ChannelObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `ibv_create_comp_channel`
pub unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    ffi::return_ptr("ibv_create_comp_channel", || {
        // SAFETY: the ABI's contract.
        unsafe { Context::from_c(context) }?;
        let made = EventFd::new();
        let fd = Arc::new(made.map_err(|errno| VerbError::system("a descriptor", errno))?);
        let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&fd))));
        let c = UnsafeCell::new(ibv_comp_channel { context, fd: fd.as_raw_fd(), refcnt: 0 });
        Ok(handle_registry::into_raw(Box::new(ChannelObject { c, channel, fd })).cast())
    })
}

/// `ibv_destroy_comp_channel`: EBUSY while a completion queue reports to it.
pub unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    ffi::return_errno("ibv_destroy_comp_channel", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { ChannelObject::with_context(channel) }?;
        if context.is_inherited() {
            return Ok(());
        }
        match object.channel.cq_count() {
            0 => {
                // SAFETY: handed out above; the program does not use it again.
                drop(unsafe { handle_registry::from_raw(channel.cast::<ChannelObject>()) });
                Ok(())
            }
            cqs => Err(VerbError::ChannelBusy { cqs }),
        }
    })
}

/// `ibv_get_cq_event`: waits for an event, unless the program made the descriptor non-blocking.
pub unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    ffi::return_minus_one("ibv_get_cq_event", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { ChannelObject::with_context(channel) }?;
        let taken = object.take_event(context);
        let event = taken.map_err(|errno| VerbError::system("no completion event", errno))?;
        // The queue was made with the address of its structure as its context.
        let object: *mut CqObject = ptr::with_exposed_provenance_mut(event.context as usize);
        // SAFETY: destroying the queue waits until this event is acknowledged, so it is there. The
        // ABI's contract: places for the results.
        unsafe {
            if !cq_context.is_null() {
                cq_context.write((*object.cast::<ibv_cq>()).cq_context);
            }
            if !cq.is_null() {
                cq.write(object.cast());
            }
        }
        Ok(())
    })
}

/// `ibv_ack_cq_events`
pub unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        if let Ok((object, _)) = unsafe { CqObject::from_c_unchecked(cq) } {
            object.cq.ack_events(nevents);
        }
    });
}
