//! Events that a program writes into an identifier's channel, and addresses that are resolved with
//! an event (rdma-core 60).
//!
//! The kernel keeps such events in the channel's queue; here a channel has a second one for them
//! (`Channel::written`), whose events have counts of the same descriptor.

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

/// An event that waits to be taken.
pub struct UserEvent {
    pub of: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub arg: u64,
}

// SAFETY: the identifier is there as long as the event waits: destroying it takes the event away
// first.
unsafe impl Send for UserEvent {}

/// The events that wait in a channel.
pub type Queue = Mutex<VecDeque<UserEvent>>;

/// The event that has waited longest. Its identifier then waits for it to be given back.
pub fn take(queue: &Queue) -> Option<UserEvent> {
    let mut waiting = lock(queue);
    let written = waiting.pop_front()?;
    // SAFETY: as for `UserEvent`; whoever destroys the identifier waits for the queue's lock.
    if let Ok(of) = unsafe { IdObject::from_c(written.of) } {
        lock(&of.state).delivered_events += 1;
    }
    Some(written)
}

/// Takes away what waits of an identifier.
fn remove(channel: &Channel, id: *mut rdma_cm_id) -> VecDeque<UserEvent> {
    let mut waiting = lock(&channel.user_events);
    let (removed, left) = waiting.drain(..).partition::<VecDeque<_>, _>(|written| written.of == id);
    *waiting = left;
    // Who has taken a count meanwhile finds nothing for it, and takes another.
    channel.events.fd().withdraw(u32::try_from(removed.len()).unwrap_or(u32::MAX));
    removed
}

/// An identifier is destroyed.
pub fn discard(channel: &Channel, id: *mut rdma_cm_id) {
    drop(remove(channel, id));
}

/// An identifier gets another channel.
pub fn migrate(from: &Channel, to: &Channel, id: *mut rdma_cm_id) {
    for written in remove(from, id) {
        push(to, written);
    }
}

fn push(channel: &Channel, written: UserEvent) {
    lock(&channel.user_events).push_back(written);
    channel.events.fd().wake();
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
            let allowed = "RDMA_CM_EVENT_USER (18) is what a program writes";
            return Err(VerbError::value("event", event, allowed));
        }
        // SAFETY: the ABI's contract.
        unsafe { write(id, event, status, arg) }
    })
}

/// What was resolved for an identifier and not asked for yet.
pub struct Resolved(*mut rdma_addrinfo);

// SAFETY: a list that nobody else knows.
unsafe impl Send for Resolved {}

impl Drop for Resolved {
    fn drop(&mut self) {
        // SAFETY: made by getaddrinfo, and freed once.
        unsafe { addrinfo::freeaddrinfo(self.0) };
    }
}

/// Where an identifier's resolving stands.
#[derive(Default)]
pub enum Resolving {
    #[default]
    No,
    UnderWay,
    Done(Resolved),
}

/// `rdma_resolve_addrinfo`: by names; of service records there are none, since RoCE has no subnet
/// administration.
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
    match unsafe { addrinfo::getaddrinfo(node, service, hints, &mut list) } {
        0 => Ok(Resolved(list)),
        _ => Err(VerbError::last("the address")),
    }
}

/// `rdma_query_addrinfo`: hands out what was resolved, once.
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
    use super::*;
    use crate::cm::channel::{create_event_channel, destroy_event_channel};
    use crate::cm::event::{ack_cm_event, get_cm_event};
    use crate::cm::id::{create_id, destroy_id};
    use crate::layout::rdma_cm_event;

    /// `RDMA_PS_TCP`
    const TCP: u32 = 0x106;

    /// What comes next, and is given back: event, status, argument.
    ///
    /// # Safety
    /// `id` has a channel, in which something waits.
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
            // Destroying would wait for ever for events that somebody has taken.
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
