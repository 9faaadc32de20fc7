//! Asynchronous events of a context.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use urxe_stack::cq::{AsyncEvent, CqEventType, EventObject, QpEventType, SrqEventType};

use crate::context::Context;
use crate::cq::CqObject;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// `ibv_get_async_event`: blocks until an event arrives, unless the descriptor is non-blocking.
pub unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    ffi::return_after_sleep("ibv_get_async_event", || {
        ffi::non_null(context, "context")?;
        ffi::non_null(event, "event")?;
        let context = Context::container_of(context);
        // Another thread may close the context while this thread sleeps.
        let queue =
            |context: &Context| (Arc::clone(&context.events), Arc::clone(&context.events_fd));
        // SAFETY: the ABI's contract.
        let (events, fd) = unsafe { handle_registry::read(context, "context", queue) }?;
        let taken = fd.try_take_event(|| events.next_event_for_count());
        let taken = taken.map_err(|errno| VerbError::system("no asynchronous event", errno))?;
        let Some(taken) = taken else { return Ok(Some(fd.as_raw_fd())) };
        let element = match (taken, taken.object()) {
            (AsyncEvent::Port(_, port), _) => ptr::without_provenance_mut(port.into()),
            (_, None) => ptr::null_mut(),
            // The object exists: destroying it waits until this event is acknowledged.
            (_, Some(object)) => {
                let find = |context: &Context| context.objects().elements.get(&object).copied();
                // SAFETY: the ABI's contract.
                let found = unsafe { handle_registry::read(context, "context", find) }?;
                found.unwrap_or(ptr::null_mut())
            }
        };
        let event_type = taken.event_type().number().into();
        // SAFETY: the ABI's contract: a place for the event.
        unsafe { event.write(ibv_async_event { element, event_type }) };
        Ok(None)
    })
}

/// The kind of object that an event is about.
enum Subject {
    Cq,
    Qp,
    Srq,
    Other,
}

fn subject(event_type: u32) -> Subject {
    // enum ibv_event_type
    match event_type {
        0 => Subject::Cq,
        1..=7 | 16 => Subject::Qp,
        14 | 15 => Subject::Srq,
        _ => Subject::Other,
    }
}

/// `ibv_ack_async_event`: also counts the acknowledged event in the structure of its object, which
/// programs may read.
pub unsafe extern "C" fn ack_async_event(event: *mut ibv_async_event) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        let Some(event) = (unsafe { event.as_ref() }) else { return };
        if event.element.is_null() {
            return;
        }
        // An acknowledgement counts by the object; the kind of event does not matter.
        match subject(event.event_type) {
            Subject::Cq => {
                let cq = event.element.cast::<ibv_cq>();
                // SAFETY: an event's object is there until the event is acknowledged.
                if let Ok((object, context)) = unsafe { CqObject::from_c_unchecked(cq) } {
                    // SAFETY: as above.
                    unsafe { ffi::add_to_field(&raw mut (*cq).async_events_completed, 1) };
                    context.events.ack(&AsyncEvent::Cq(CqEventType::CqErr, object.cq.id()));
                }
            }
            Subject::Qp => {
                let qp = event.element.cast::<ibv_qp>();
                // SAFETY: as above.
                if let Ok((object, context)) = unsafe { QpObject::from_c_unchecked(qp) } {
                    // SAFETY: as above.
                    unsafe { ffi::add_to_field(&raw mut (*qp).events_completed, 1) };
                    context.events.ack(&AsyncEvent::Qp(QpEventType::QpFatal, object.handle.qpn()));
                }
            }
            Subject::Srq => {
                let srq = event.element.cast::<ibv_srq>();
                // SAFETY: as above.
                if let Ok((object, context)) = unsafe { SrqObject::from_c_unchecked(srq) } {
                    // SAFETY: as above.
                    unsafe { ffi::add_to_field(&raw mut (*srq).events_completed, 1) };
                    context.events.ack(&AsyncEvent::Srq(SrqEventType::SrqErr, object.srq.id()));
                }
            }
            Subject::Other => {}
        }
    });
}

/// Returns the name of a queue pair in events.
pub const fn qp_object(qp: urxe_stack::device::QpHandle) -> EventObject {
    EventObject::Qp(qp.qpn())
}
