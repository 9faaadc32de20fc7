//! Completion channels: descriptors that threads block on until a completion queue has an event.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cq::{CompletionChannel, CqEvent};
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::sys::clock;

use crate::context::Context;
use crate::cq::CqObject;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::shared_engine::SharedEngine;

/// How long a thread that waits for a completion event receives packets itself, which saves a
/// wake-up for each packet. A cancelled thread ends at most that much later.
const LEAD_NS: u64 = 50_000_000;

/// A completion channel. The C structure is its first field.
#[repr(C)]
pub struct ChannelObject {
    c: UnsafeCell<ibv_comp_channel>,
    pub channel: Arc<CompletionChannel>,
    fd: Arc<EventDescriptor>,
}

impl ChannelObject {
    /// Returns the channel behind a C pointer. Fails for a channel that is not in the handle
    /// registry.
    ///
    /// # Safety
    /// The ABI's contract: `channel` is NULL, or was created and is not destroyed while the result
    /// is used.
    pub unsafe fn from_c<'a>(channel: *mut ibv_comp_channel) -> Result<&'a Self, VerbError> {
        if !channel.is_null() {
            handle_registry::check(channel.cast::<Self>())?;
        }
        // SAFETY: the pointer came from create_comp_channel, so a ChannelObject begins there.
        unsafe { channel.cast::<Self>().as_ref() }.ok_or(VerbError::Null("channel"))
    }

    /// Returns the channel behind a C pointer, and its context.
    ///
    /// # Safety
    /// As for `from_c`.
    pub unsafe fn with_context<'a>(
        channel: *mut ibv_comp_channel,
    ) -> Result<(&'a Self, &'a Context), VerbError> {
        // SAFETY: the ABI's contract. from_c found the channel there, and the field does not
        // change. The context may be closed.
        let (object, context) = unsafe { (Self::from_c(channel)?, (*channel).context) };
        // SAFETY: the ABI's contract.
        Ok((object, unsafe { Context::from_c(context) }?))
    }

    /// Updates `refcnt`, the number of completion queues that use the channel. Programs may read
    /// the field.
    ///
    /// # Safety
    /// As for `from_c`.
    pub unsafe fn count(channel: *mut ibv_comp_channel) {
        // SAFETY: the ABI's contract; the field is an integer that this library alone writes, and
        // no reference to it exists.
        unsafe {
            let cqs = (*channel.cast::<Self>()).channel.cq_count();
            let refcnt = (&raw mut (*channel).refcnt).cast();
            ffi::store_field(refcnt, c_int::try_from(cqs).unwrap_or(c_int::MAX).cast_unsigned());
        }
    }
}

/// The objects that a thread waits with. They stay while the thread waits, also if another thread
/// destroys the channel or closes the device, which libibverbs allows during its `read`.
struct Waiter {
    channel: Arc<CompletionChannel>,
    fd: Arc<EventDescriptor>,
    /// Released by `Drop`.
    shared_engine: Option<Arc<SharedEngine>>,
}

impl Waiter {
    /// # Safety
    /// The ABI's contract: `channel` is NULL, or was created. It may be destroyed.
    unsafe fn new(channel: *mut ibv_comp_channel) -> Result<Self, VerbError> {
        ffi::non_null(channel, "channel")?;
        let parts = |object: &ChannelObject| {
            // SAFETY: the field does not change.
            let context = unsafe { (*object.c.get()).context };
            (context, Arc::clone(&object.channel), Arc::clone(&object.fd))
        };
        let engine = |context: &Context| Arc::clone(&context.shared_engine);
        // SAFETY: the caller's; the context of a channel is not NULL.
        unsafe {
            let channel = channel.cast::<ChannelObject>();
            let (context, channel, fd) = handle_registry::read(channel, "channel", parts)?;
            let context = Context::container_of(context);
            let shared_engine = Some(handle_registry::read(context, "context", engine)?);
            Ok(Self { channel, fd, shared_engine })
        }
    }

    /// Takes an event. If there is none, the thread receives packets for [`LEAD_NS`], and then
    /// returns `None`: the background thread receives while the thread sleeps.
    fn take_event(&self) -> Result<Option<CqEvent>, Errno> {
        let until = clock::now().plus_ns(LEAD_NS);
        loop {
            let taken = self.fd.try_take_event(|| self.channel.next_event_for_count())?;
            let engine = self.shared_engine.as_ref().map(|shared| &shared.engine);
            let Some(engine) = engine.filter(|engine| taken.is_none() && !engine.is_inherited())
            else {
                return Ok(taken);
            };
            if !engine.wait(self.fd.counter().as_fd(), until, || self.channel.has_events())? {
                return Ok(None);
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(shared_engine) = self.shared_engine.take() {
            shared_engine.close();
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
        let made = EventDescriptor::new();
        let fd = Arc::new(made.map_err(|errno| VerbError::system("a descriptor", errno))?);
        let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&fd))));
        let c = UnsafeCell::new(ibv_comp_channel { context, fd: fd.as_raw_fd(), refcnt: 0 });
        Ok(handle_registry::into_raw(Box::new(ChannelObject { c, channel, fd })).cast())
    })
}

/// `ibv_destroy_comp_channel`: fails with EBUSY while completion queues use the channel. The
/// context may be closed.
pub unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    ffi::return_errno("ibv_destroy_comp_channel", || {
        // SAFETY: the ABI's contract; the field does not change.
        let (object, context) = unsafe { (ChannelObject::from_c(channel)?, (*channel).context) };
        // SAFETY: the ABI's contract.
        if unsafe { Context::from_c(context) }.is_ok_and(Context::is_inherited) {
            return Ok(());
        }
        match object.channel.cq_count() {
            0 => {
                // SAFETY: create_comp_channel made the object, and the program does not use it
                // again.
                drop(unsafe { handle_registry::from_raw(channel.cast::<ChannelObject>()) });
                Ok(())
            }
            cqs => Err(VerbError::ChannelBusy { cqs }),
        }
    })
}

/// `ibv_get_cq_event`: blocks until an event arrives, unless the descriptor is non-blocking.
pub unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    ffi::return_after_sleep("ibv_get_cq_event", || {
        // SAFETY: the ABI's contract.
        let waiter = unsafe { Waiter::new(channel) }?;
        let taken = waiter.take_event();
        let taken = taken.map_err(|errno| VerbError::system("no completion event", errno))?;
        let Some(event) = taken else { return Ok(Some(waiter.fd.as_raw_fd())) };
        // The context of a completion queue is the address of its structure.
        let object: *mut CqObject = ptr::with_exposed_provenance_mut(event.context as usize);
        // SAFETY: ibv_destroy_cq waits until this event is acknowledged, so the queue exists. The
        // ABI's contract: places for the results.
        unsafe {
            if !cq_context.is_null() {
                cq_context.write((*object.cast::<ibv_cq>()).cq_context);
            }
            if !cq.is_null() {
                cq.write(object.cast());
            }
        }
        Ok(None)
    })
}

/// `ibv_ack_cq_events`: also counts the acknowledged events in the structure of the queue, which
/// programs may read.
pub unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        if let Ok((object, _)) = unsafe { CqObject::from_c_unchecked(cq) } {
            // SAFETY: the queue exists at least until its last event is acknowledged.
            unsafe { ffi::add_to_field(&raw mut (*cq).comp_events_completed, nevents) };
            object.cq.ack_events(nevents);
        }
    });
}
