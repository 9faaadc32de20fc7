//! Multicast groups of an identifier. As in the original, the queue pair is attached when the
//! program takes the event.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use urxe_stack::cma::{CmaEvent, EventParam, Membership};
use urxe_stack::sync::lock;

use super::id::{self, IdObject};
use super::process::connections;
use super::{address, event};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use crate::qp::{attach_mcast, detach_mcast};

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS`, `_JOIN_FLAGS`
const WITH_ADDRESS: u32 = 1;
const WITH_FLAGS: u32 = 1 << 1;
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`, `_SENDONLY_FULLMEMBER`
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;

/// A membership on the heap, because events refer to its address.
pub struct MembershipObject {
    address: SocketAddr,
    flags: u32,
    /// The address of the program's context.
    context: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    delivered_events: u64,
    acknowledged_events: u64,
    /// The group to which the queue pair is attached.
    attached: Option<[u8; 16]>,
}

impl MembershipObject {
    fn name(&self) -> Membership {
        Membership(ptr::from_ref(self).expose_provenance() as u64)
    }

    /// Returns the membership behind a name of the core.
    pub fn of_name(name: Membership) -> *const Self {
        ptr::with_exposed_provenance(name.0 as usize)
    }

    /// Returns the program's own pointer, which the event carries.
    pub fn context(&self) -> *const c_void {
        ptr::with_exposed_provenance(self.context)
    }

    pub fn count_delivered(&self) {
        lock(&self.counts).delivered_events += 1;
    }

    pub fn acknowledge(&self) {
        lock(&self.counts).acknowledged_events += 1;
    }

    /// Attaches the queue pair of the identifier, if it has one and the membership receives.
    ///
    /// # Safety
    /// The ABI's contract.
    pub unsafe fn attach(&self, id: *mut rdma_cm_id, event: &CmaEvent) -> Result<(), VerbError> {
        // SAFETY: the ABI's contract.
        let qp = unsafe { (*id).qp };
        let EventParam::Ud(ud) = &event.param else { return Ok(()) };
        if event.status != 0 || qp.is_null() || self.flags == SEND_ONLY {
            return Ok(());
        }
        let group = ud.ah.dgid.0;
        // SAFETY: the ABI's contract.
        match unsafe { attach_mcast(qp, &group, 0) } {
            0 => lock(&self.counts).attached = Some(group),
            errno => {
                let errno = Errno::from_raw_os_error(errno);
                return Err(VerbError::system("the queue pair cannot join the group", errno));
            }
        }
        Ok(())
    }
}

/// # Safety
/// The ABI's contract.
unsafe fn join(
    id: *mut rdma_cm_id,
    address: SocketAddr,
    flags: u32,
    context: *const c_void,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    let context = context.expose_provenance();
    let membership =
        Arc::new(MembershipObject { address, flags, context, counts: Mutex::default() });
    let name = membership.name();
    lock(&object.state).memberships.push(membership);
    if let Err(error) = connections().call(|cma, _| cma.join_multicast(object.core, address, name))
    {
        lock(&object.state).memberships.retain(|membership| membership.name() != name);
        return Err(error.into());
    }
    // SAFETY: the ABI's contract.
    unsafe { id::wait_if_sync(id) }
}

/// `rdma_join_multicast`
pub unsafe extern "C" fn join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_join_multicast", || unsafe {
        join(id, address::from_c(addr)?, FULL_MEMBER, context)
    })
}

/// `rdma_join_multicast_ex`
pub unsafe extern "C" fn join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    ffi::return_minus_one("rdma_join_multicast_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("mc_join_attr"))?;
        let unknown = attr.comp_mask & !(WITH_ADDRESS | WITH_FLAGS);
        if unknown != 0 {
            let given = attr.comp_mask.into();
            return Err(VerbError::Bits { field: "comp_mask", given, unknown: unknown.into() });
        }
        if attr.comp_mask != WITH_ADDRESS | WITH_FLAGS || attr.join_flags > SEND_ONLY {
            let allowed = "an address and one of the join flags 0 and 1 are needed";
            return Err(VerbError::value("join_flags", attr.join_flags, allowed));
        }
        // SAFETY: the ABI's contract.
        unsafe { join(id, address::from_c(attr.addr)?, attr.join_flags, context) }
    })
}

/// `rdma_leave_multicast`: waits until the program has acknowledged the events of the group.
pub unsafe extern "C" fn leave_multicast(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    ffi::return_minus_one("rdma_leave_multicast", || {
        // SAFETY: the ABI's contract.
        let (object, address) = unsafe { (IdObject::from_c(id)?, address::from_c(addr)?) };
        let found = {
            let mut state = lock(&object.state);
            let place =
                state.memberships.iter().position(|membership| membership.address == address);
            place.map(|place| state.memberships.remove(place))
        };
        let absent = VerbError::system("no such membership", Errno::ADDRNOTAVAIL);
        let membership = found.ok_or(absent)?;
        connections().call(|cma, _| cma.leave_multicast(object.core, membership.name()))?;
        if lock(&object.state).is_sync {
            // The call that joined the group holds its event.
            // SAFETY: the ABI's contract.
            unsafe { event::ack_pending(id) }?;
        }
        object.wait_for_acknowledgements(|_| {
            let counts = lock(&membership.counts);
            counts.acknowledged_events >= counts.delivered_events
        });
        // At the end, because an event that another thread has taken may attach the queue pair.
        let attached = lock(&membership.counts).attached;
        // SAFETY: the ABI's contract.
        unsafe {
            if let Some(group) = attached
                && !(*id).qp.is_null()
            {
                detach_mcast((*id).qp, &group, 0);
            }
        }
        Ok(())
    })
}
