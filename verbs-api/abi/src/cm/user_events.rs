//! Events that a program writes into the channel of an identifier, and addresses that are resolved
//! with an event (rdma-core 60).
//!
//! The kernel keeps such events in the queue of the channel. Here, `Channel::user_events` is a
//! second queue for them, and both queues share the descriptor of the channel.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Mutex;

use rustix::io::Errno;
use urxe_stack::cq::Wake;
use urxe_stack::sync::lock;

use super::addrinfo::{self, DNS, SERVICE_RECORDS};
use super::channel::{self, Channel};
use super::id::{self, IdObject};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{rdma_addrinfo, rdma_cm_id};

/// `RDMA_CM_EVENT_USER`
const USER: u32 = 18;
/// `RDMA_CM_EVENT_ADDRINFO_RESOLVED`
const ADDRINFO_RESOLVED: u32 = 16;

/// An event that waits in a channel.
pub struct UserEvent {
    pub of: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub arg: u64,
}

// SAFETY: the identifier is valid while the event waits, because its destruction first removes the
// event.
unsafe impl Send for UserEvent {}

/// The events that wait in a channel.
pub type Queue = Mutex<VecDeque<UserEvent>>;

/// Takes the oldest event. Its identifier then waits for the acknowledgement.
pub fn take(queue: &Queue) -> Option<UserEvent> {
    let mut waiting = lock(queue);
    let written = waiting.pop_front()?;
    // SAFETY: as for `UserEvent`; the destruction of the identifier waits for the lock of the
    // queue.
    if let Ok(of) = unsafe { IdObject::from_c(written.of) } {
        lock(&of.state).delivered_events += 1;
    }
    Some(written)
}

/// Removes the events of an identifier.
fn remove(channel: &Channel, id: *mut rdma_cm_id) -> VecDeque<UserEvent> {
    let mut waiting = lock(&channel.user_events);
    let (removed, left) = waiting.drain(..).partition::<VecDeque<_>, _>(|written| written.of == id);
    *waiting = left;
    // A thread that took a count in the meantime finds no event for the count, and takes another.
    channel.events.descriptor().withdraw(u32::try_from(removed.len()).unwrap_or(u32::MAX));
    removed
}

/// Removes the events of an identifier that is being destroyed.
pub fn discard(channel: &Channel, id: *mut rdma_cm_id) {
    drop(remove(channel, id));
}

/// Moves the events of an identifier to another channel.
pub fn migrate(from: &Channel, to: &Channel, id: *mut rdma_cm_id) {
    for written in remove(from, id) {
        push(to, written);
    }
}

fn push(channel: &Channel, written: UserEvent) {
    lock(&channel.user_events).push_back(written);
    channel.events.descriptor().wake();
}

/// # Safety
/// The ABI's contract.
unsafe fn write(id: *mut rdma_cm_id, event: u32, status: c_int, arg: u64) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let channel = unsafe {
        IdObject::from_c(id)?;
        channel::find((*id).channel)?
    };
    push(&channel, UserEvent { of: id, event, status, arg });
    Ok(())
}

/// `rdma_write_cm_event`
pub unsafe extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    arg: u64,
) -> c_int {
    ffi::return_minus_one("rdma_write_cm_event", || {
        if event != USER {
            let allowed = "only RDMA_CM_EVENT_USER (18) is allowed";
            return Err(VerbError::value("event", event, allowed));
        }
        // SAFETY: the ABI's contract.
        unsafe { write(id, event, status, arg) }
    })
}

/// The result of a resolution that the program has not queried yet.
pub struct Resolved(*mut rdma_addrinfo);

// SAFETY: no other code knows the list.
unsafe impl Send for Resolved {}

impl Drop for Resolved {
    fn drop(&mut self) {
        // SAFETY: made by getaddrinfo, and freed once.
        unsafe { addrinfo::freeaddrinfo(self.0) };
    }
}

/// The state of an address resolution of an identifier.
#[derive(Default)]
pub enum Resolving {
    #[default]
    No,
    UnderWay,
    Done(Resolved),
}

/// `rdma_resolve_addrinfo`: resolves by names. There are no service records, because RoCE has no
/// subnet administration.
pub unsafe extern "C" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    ffi::return_minus_one("rdma_resolve_addrinfo", || {
        // SAFETY: the ABI's contract, for all calls below.
        unsafe {
            let object = IdObject::from_c(id)?;
            {
                let resolving = &mut lock(&object.state).resolving;
                if !matches!(resolving, Resolving::No) {
                    return Err(VerbError::system("it resolves already", Errno::BUSY));
                }
                *resolving = Resolving::UnderWay;
            }
            let resolved = resolve(node, service, hints);
            let stands = match resolved {
                Ok(list) => Resolving::Done(list),
                Err(error) => {
                    lock(&object.state).resolving = Resolving::No;
                    return Err(error);
                }
            };
            lock(&object.state).resolving = stands;
            write(id, ADDRINFO_RESOLVED, 0, 0)?;
            id::wait_if_sync(id)
        }
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<Resolved, VerbError> {
    // SAFETY: the ABI's contract.
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    if flags & SERVICE_RECORDS != 0 {
        let both = flags & DNS != 0 || !node.is_null();
        let what = "service records of the subnet administration (RAI_SA)";
        let errno = if both || !service.is_null() { Errno::OPNOTSUPP } else { Errno::INVAL };
        return Err(VerbError::system(what, errno));
    }
    let mut list = ptr::null_mut();
    // SAFETY: the ABI's contract; a place for the result.
    let failed = unsafe { addrinfo::getaddrinfo(node, service, hints, &mut list) };
    let errno = match failed {
        0 => return Ok(Resolved(list)),
        // Only these leave a number in errno.
        -1 | libc::EAI_SYSTEM => return Err(VerbError::last("the address")),
        libc::EAI_MEMORY => Errno::NOMEM,
        libc::EAI_AGAIN => Errno::AGAIN,
        libc::EAI_FAMILY | libc::EAI_SOCKTYPE | libc::EAI_SERVICE => Errno::INVAL,
        _ => Errno::NOENT,
    };
    Err(VerbError::system("the address", errno))
}

/// `rdma_query_addrinfo`: returns the resolved addresses, once.
pub unsafe extern "C" fn query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    ffi::return_minus_one("rdma_query_addrinfo", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        ffi::non_null(info, "info")?;
        let mut state = lock(&object.state);
        match std::mem::take(&mut state.resolving) {
            Resolving::Done(list) => {
                // SAFETY: the ABI's contract: a place for the list, which is the program's from now
                // on.
                unsafe { info.write(list.0) };
                std::mem::forget(list);
                Ok(())
            }
            other => {
                state.resolving = other;
                Err(VerbError::system("nothing was resolved", Errno::NOENT))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::cm::addrinfo::NUMERIC_HOST;
    use crate::cm::channel::{create_event_channel, destroy_event_channel};
    use crate::cm::event::{ack_cm_event, get_cm_event};
    use crate::cm::id::{create_id, destroy_id};
    use crate::layout::rdma_cm_event;

    /// `RDMA_PS_TCP`
    const TCP: u32 = 0x106;

    /// Takes and acknowledges the next event; returns event, status and argument.
    ///
    /// # Safety
    /// `id` has a channel in which an event waits.
    unsafe fn next(id: *mut rdma_cm_id) -> (u32, c_int, u64) {
        let mut event: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: the caller's; the event is there until it is given back.
        unsafe {
            assert_eq!(get_cm_event((*id).channel, &mut event), 0);
            assert_eq!((*event).id, id);
            let said = ((*event).event, (*event).status, (*event).param.arg);
            assert_eq!(ack_cm_event(event), 0);
            said
        }
    }

    #[test]
    fn what_is_written_comes_out_and_goes_with_its_identifier() {
        // SAFETY: the calls as a program makes them.
        unsafe {
            let channel = create_event_channel();
            let mut id = ptr::null_mut();
            assert_eq!(create_id(channel, &mut id, ptr::null_mut(), TCP), 0);
            assert_eq!(write_cm_event(id, 9, 0, 0), -1);
            assert_eq!(write_cm_event(id, USER, -5, 77), 0);
            assert_eq!(write_cm_event(id, USER, 0, 78), 0);
            assert_eq!(next(id), (USER, -5, 77));
            assert_eq!(next(id), (USER, 0, 78));
            // Destruction would wait for the acknowledgement of taken events without end.
            assert_eq!(write_cm_event(id, USER, 0, 79), 0);
            assert_eq!(destroy_id(id), 0);
            destroy_event_channel(channel);
        }
    }

    #[test]
    fn addresses_are_resolved_with_an_event_and_handed_out_once() {
        // SAFETY: the calls as a program makes them.
        unsafe {
            let channel = create_event_channel();
            let (mut id, mut list) = (ptr::null_mut(), ptr::null_mut());
            assert_eq!(create_id(channel, &mut id, ptr::null_mut(), TCP), 0);
            assert_eq!(query_addrinfo(id, &mut list), -1);
            let (node, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
            let sa = rdma_addrinfo { ai_flags: SERVICE_RECORDS, ..std::mem::zeroed() };
            assert_eq!(resolve_addrinfo(id, ptr::null(), service, &sa), -1);
            let refused = |node: &CStr, service: &CStr| {
                let hints = rdma_addrinfo { ai_flags: NUMERIC_HOST, ..std::mem::zeroed() };
                ffi::set_errno(0);
                assert_eq!(resolve_addrinfo(id, node.as_ptr(), service.as_ptr(), &hints), -1);
                std::io::Error::last_os_error().raw_os_error().unwrap()
            };
            // The resolver of the C library leaves errno as it is.
            assert_eq!(refused(c"999.1.1.1", c"7471"), libc::ENOENT);
            assert_eq!(refused(c"127.0.0.1", c"no such service"), libc::EINVAL);
            assert_eq!(resolve_addrinfo(id, node, service, ptr::null()), 0);
            assert_eq!(
                resolve_addrinfo(id, node, service, ptr::null()),
                -1,
                "it is not asked for yet"
            );
            assert_eq!(next(id).0, ADDRINFO_RESOLVED);
            assert_eq!(query_addrinfo(id, &mut list), 0);
            assert!(!(*list).ai_dst_addr.is_null());
            addrinfo::freeaddrinfo(list);
            assert_eq!(query_addrinfo(id, &mut list), -1);
            assert_eq!(destroy_id(id), 0);
            destroy_event_channel(channel);
        }
    }
}
