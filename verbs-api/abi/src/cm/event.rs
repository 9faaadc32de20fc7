//! Connection events: taking them, the library's own actions before the program gets them, and
//! acknowledging them.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::ptr;

use rustix::io::Errno;
use urxe_stack::cma::{CmaEvent, CmaEventType, ConnEvent, EventParam, UdEvent};
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::sync::lock;

use super::address;
use super::channel::{self, Channel};
use super::id::{self, IdObject};
use super::multicast::MembershipObject;
use super::process::connections;
use super::qp::{self, Depths};
use super::user_events::{self, UserEvent};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_event_param, rdma_ud_param,
};
use crate::qp_attr;

/// An event, beginning with its C structure.
#[repr(C)]
struct EventObject {
    c: rdma_cm_event,
    /// The identifier of the event.
    of: *mut rdma_cm_id,
    membership: *const MembershipObject,
    /// The bytes to which `c` points.
    private_data: Vec<u8>,
}

/// `rdma_get_cm_event`: waits for an event, unless the program made the descriptor non-blocking.
pub unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    ffi::return_after_sleep("rdma_get_cm_event", || {
        ffi::non_null(event, "event")?;
        let object = channel::find(channel)?;
        // SAFETY: the ABI's contract.
        let taken = unsafe { take_next(&object, |fd, redeem| fd.try_take_event(redeem)) }?;
        let Some(taken) = taken else { return Ok(Some(object.events.descriptor().as_raw_fd())) };
        // SAFETY: the ABI's contract: a place for the result.
        unsafe { event.write(taken) };
        Ok(None)
    })
}

/// `rdma_ack_cm_event`
pub unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_ack_cm_event", || unsafe { ack(event) })
}

/// Acknowledges an event.
///
/// # Safety
/// The ABI's contract: `event` is NULL, or an event that was taken and not yet acknowledged.
pub unsafe fn ack(event: *mut rdma_cm_event) -> Result<(), VerbError> {
    ffi::non_null(event, "event")?;
    // SAFETY: Box::into_raw in `present` made the pointer, and the program does not use it again.
    let event = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    // SAFETY: destroying the identifier, and leaving the group, wait until this event is given
    // back.
    unsafe {
        if let Some(membership) = event.membership.as_ref() {
            membership.acknowledge();
        }
        IdObject::from_c(event.of)?.acknowledge();
    }
    Ok(())
}

/// Acknowledges the event that a synchronous identifier holds, if there is one.
///
/// # Safety
/// The ABI's contract: no other thread changes the identifier.
pub unsafe fn ack_pending(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the caller's.
    let held = unsafe { std::mem::replace(&mut (*id).event, ptr::null_mut()) };
    // SAFETY: the caller's; it was taken and not given back.
    if held.is_null() { Ok(()) } else { unsafe { ack(held) } }
}

/// An event from a channel.
enum Taken {
    Core(CmaEvent),
    User(UserEvent),
}

fn present_user_event(event: &UserEvent) -> *mut rdma_cm_event {
    let param = rdma_event_param { arg: event.arg };
    let (id, listen_id) = (event.of, ptr::null_mut());
    let c = rdma_cm_event { id, listen_id, event: event.event, status: event.status, param };
    let made = EventObject { c, of: event.of, membership: ptr::null(), private_data: Vec::new() };
    Box::into_raw(Box::new(made)).cast()
}

/// Takes the next event for the program, and waits for one if there is none.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn take(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, VerbError> {
    let object = channel::find(channel)?;
    loop {
        // SAFETY: the caller's.
        let taken = unsafe { take_next(&object, |fd, redeem| fd.take_event(redeem).map(Some)) }?;
        if let Some(event) = taken {
            return Ok(event);
        }
    }
}

/// Returns the event behind a count of the descriptor.
type Redeem<'a> = &'a mut dyn FnMut() -> Option<Taken>;

/// Takes the next event for the program by `take_event`. `None` means that `take_event` returned
/// none.
///
/// # Safety
/// The ABI's contract.
unsafe fn take_next(
    object: &Channel,
    take_event: impl Fn(&EventDescriptor, Redeem<'_>) -> Result<Option<Taken>, Errno>,
) -> Result<Option<*mut rdma_cm_event>, VerbError> {
    let mut redeem = || {
        // SAFETY: the listener has an event, so the identifier behind its user value is valid.
        let request_id = |new, listener| unsafe { request_id(new, IdObject::from_user(listener)) };
        let event = connections().call(|cma, _| {
            let event = cma.next_event(object.core, request_id)?;
            // SAFETY: the identifier is valid, because its destruction first takes the core's lock.
            if let Ok(of) = unsafe { IdObject::from_c(IdObject::from_user(event.user)) } {
                lock(&of.state).delivered_events += 1;
            }
            let membership = event.membership.map(MembershipObject::of_name);
            // SAFETY: the membership is valid, because leaving the group first takes the core's
            // lock.
            if let Some(membership) = membership.and_then(|of| unsafe { of.as_ref() }) {
                membership.count_delivered();
            }
            Some(event)
        });
        event.map(Taken::Core).or_else(|| user_events::take(&object.user_events).map(Taken::User))
    };
    loop {
        let event = take_event(object.events.descriptor(), &mut redeem);
        let presented = match event.map_err(|errno| VerbError::system("no event", errno))? {
            None => return Ok(None),
            // SAFETY: destroying the identifier waits until this event is given back.
            Some(Taken::Core(event)) => unsafe { present(event) },
            Some(Taken::User(event)) => Some(present_user_event(&event)),
        };
        if presented.is_some() {
            return Ok(presented);
        }
    }
}

/// Makes the structure of the identifier of a connection request.
///
/// # Safety
/// `listener` is an identifier.
unsafe fn request_id(core: urxe_stack::cma::CmaId, listener: *mut rdma_cm_id) -> u64 {
    let new = id::allocate(core, false);
    // SAFETY: only this thread knows the new identifier. Of the listener, only constant fields and
    // its channel are read.
    unsafe {
        (*new).channel = (*listener).channel;
        (*new).context = (*listener).context;
        (*new).ps = (*listener).ps;
        (*new).qp_type = (*listener).qp_type;
    }
    IdObject::to_user(new)
}

/// Performs the library's own actions for an event, and makes its C structure. Returns `None` if
/// the event is not for the program.
///
/// # Safety
/// The event was just taken.
unsafe fn present(event: CmaEvent) -> Option<*mut rdma_cm_event> {
    let of = IdObject::from_user(event.user);
    // SAFETY: the caller's.
    let object = unsafe { IdObject::from_c(of) }.ok()?;
    // SAFETY: integers and pointers, for which zero is valid.
    let mut made = Box::new(EventObject {
        c: rdma_cm_event {
            id: of,
            listen_id: ptr::null_mut(),
            event: event.event_type.number().into(),
            status: event.status,
            // SAFETY: as above.
            param: unsafe { zeroed::<rdma_event_param>() },
        },
        of,
        membership: ptr::null(),
        private_data: Vec::new(),
    });
    fill(&mut made, &event.param);
    // SAFETY: the identifier is there until this event is given back.
    let handled = unsafe { handle(&mut made, object, &event) };
    match handled {
        Disposition::Deliver => {}
        Disposition::DeliverAs(event_type) => {
            made.c.event = event_type.number().into();
            // The original reports its own failures by this status only.
            made.c.status = -1;
        }
        Disposition::Discard => {
            object.acknowledge();
            return None;
        }
    }
    Some(Box::into_raw(made).cast())
}

enum Disposition {
    Deliver,
    DeliverAs(CmaEventType),
    Discard,
}

/// Logs an action that failed, and returns the disposition of the event.
fn failed(event_type: CmaEventType, error: &VerbError) -> Disposition {
    tracing::warn!(target: "urxe_abi", "RDMA_CM_EVENT_{event_type}: {error}");
    Disposition::DeliverAs(event_type)
}

/// Logs the ICMP error that may be the reason why a peer does not answer. Such an error does not
/// change events and their times, because any host can forge it.
fn explain(object: &IdObject) {
    let Some(since) = lock(&object.state).connecting_since else { return };
    let addresses = connections().inspect(|cma| cma.addresses(object.core));
    let Some(peer) = addresses.ok().and_then(|(_, peer)| peer) else { return };
    let error = object.device().and_then(|device| device.path_error(peer.ip(), since));
    if let Some(error) = error {
        tracing::warn!(
            target: "urxe_abi",
            "RDMA_CM_EVENT_UNREACHABLE: {peer} does not answer; the likely reason: {error}"
        );
    }
}

/// Performs the library's own actions for an event.
///
/// # Safety
/// `made` belongs to the identifier `object`, which is valid.
unsafe fn handle(made: &mut EventObject, object: &IdObject, event: &CmaEvent) -> Disposition {
    use CmaEventType::*;
    let of = made.of;
    // SAFETY: the caller's, for all calls below.
    unsafe {
        match event.event_type {
            AddrResolved => match address::update(of) {
                Ok(()) => Disposition::Deliver,
                Err(error) => failed(AddrError, &error),
            },
            RouteResolved => match address::update_route(of) {
                Ok(()) => Disposition::Deliver,
                Err(error) => failed(RouteError, &error),
            },
            ConnectRequest => on_request(made, object, event),
            ConnectResponse => {
                lock(&object.state).remote_ece = event.ece;
                if (*of).qp.is_null() {
                    return Disposition::Deliver;
                }
                match qp::finish_connecting(of, Depths::AS_AGREED) {
                    Ok(()) => made.c.event = Established.number().into(),
                    Err(error) => {
                        lock(&object.state).connect_error = true;
                        return failed(ConnectError, &error);
                    }
                }
                Disposition::Deliver
            }
            Unreachable => {
                explain(object);
                Disposition::Deliver
            }
            Rejected | Disconnected if lock(&object.state).connect_error => Disposition::Discard,
            Rejected => {
                // A queue pair without a connection may be in any state.
                let _ = qp::to_error(of);
                Disposition::Deliver
            }
            MulticastJoin | MulticastError => {
                let Some(membership) = event.membership else { return Disposition::Deliver };
                made.membership = MembershipObject::of_name(membership);
                let Some(membership) = made.membership.as_ref() else {
                    return Disposition::Deliver;
                };
                made.c.param.ud.private_data = membership.context();
                match membership.attach(of, event) {
                    Ok(()) => Disposition::Deliver,
                    Err(error) => failed(MulticastError, &error),
                }
            }
            _ => Disposition::Deliver,
        }
    }
}

/// Performs the library's own actions for a connection request.
///
/// # Safety
/// As [`handle`].
unsafe fn on_request(made: &mut EventObject, listener: &IdObject, event: &CmaEvent) -> Disposition {
    let Some(core) = event.new_id else { return Disposition::Discard };
    let Ok(user) = connections().inspect(|cma| cma.user(core)) else {
        return Disposition::Discard;
    };
    let new = IdObject::from_user(user);
    // SAFETY: `request_id` made the identifier, and the program does not know it yet.
    unsafe {
        made.c.listen_id = made.c.id;
        made.c.id = new;
        let Ok(object) = IdObject::from_c(new) else { return Disposition::Discard };
        {
            let mut state = lock(&object.state);
            state.remote_ece = event.ece;
            if let EventParam::Conn(conn) = &event.param {
                state.initiator_depth = conn.initiator_depth;
                state.responder_resources = conn.responder_resources;
            }
        }
        let is_sync = lock(&listener.state).is_sync;
        let moved = if is_sync { id::migrate(new, ptr::null_mut()) } else { Ok(()) };
        let shown =
            moved.and_then(|()| address::update(new)).and_then(|()| address::update_route(new));
        if let Err(error) = shown {
            tracing::warn!(target: "urxe_abi", "a request is dropped: {error}");
            let _ = id::destroy(new);
            return Disposition::Discard;
        }
    }
    Disposition::Deliver
}

fn fill(made: &mut EventObject, param: &EventParam) {
    match param {
        EventParam::None => {}
        EventParam::Conn(conn) => {
            made.private_data.clone_from(&conn.private_data);
            let (data, len) = data(&made.private_data);
            made.c.param.conn = conn_to_c(conn, data, len);
        }
        EventParam::Ud(ud) => {
            made.private_data.clone_from(&ud.private_data);
            let (data, len) = data(&made.private_data);
            made.c.param.ud = ud_to_c(ud, data, len);
        }
    }
}

/// Returns the pointer and the length of private data. The bytes are on the heap, so the pointer
/// stays valid when the event moves.
fn data(bytes: &[u8]) -> (*const c_void, u8) {
    match bytes {
        [] => (ptr::null(), 0),
        bytes => (bytes.as_ptr().cast(), u8::try_from(bytes.len()).unwrap_or(u8::MAX)),
    }
}

fn conn_to_c(
    conn: &ConnEvent,
    private_data: *const c_void,
    private_data_len: u8,
) -> rdma_conn_param {
    rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control.into(),
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        srq: conn.srq.into(),
        qp_num: conn.qpn.value(),
    }
}

fn ud_to_c(ud: &UdEvent, private_data: *const c_void, private_data_len: u8) -> rdma_ud_param {
    let ah_attr = qp_attr::address_to_c(&ud.ah);
    rdma_ud_param {
        private_data,
        private_data_len,
        ah_attr,
        qp_num: ud.qpn.value(),
        qkey: ud.qkey.0,
    }
}

/// The largest error number of Linux (`MAX_ERRNO` of `include/linux/err.h`).
const MAX_ERRNO: c_int = 4095;

/// Returns the outcome of the call that an event reports.
///
/// A program may have written the event, with any status (`rdma_write_cm_event`). A status that is
/// no error number becomes EINVAL.
pub fn outcome(event: &rdma_cm_event) -> Result<(), VerbError> {
    let what = "the call's outcome";
    match event.status {
        0 => Ok(()),
        _ if event.event == u32::from(CmaEventType::Rejected.number()) => {
            Err(VerbError::system(what, Errno::CONNREFUSED))
        }
        status => {
            let number = status.saturating_abs();
            let is_errno = (1..=MAX_ERRNO).contains(&number);
            let errno = if is_errno { Errno::from_raw_os_error(number) } else { Errno::INVAL };
            Err(VerbError::system(what, errno))
        }
    }
}

#[cfg(test)]
mod tests;
