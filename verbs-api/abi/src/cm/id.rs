//! Identifiers: `struct rdma_cm_id` with the library's own state.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use urxe_stack::cma::CmaId;
use urxe_stack::qp::attr::QpType;
use urxe_stack::sync::lock;
use urxe_stack::time::Time;
use urxe_wire::mad::PortSpace;

use super::channel;
use super::process::{self, CmDevice, connections};
use super::user_events::{self, Resolving};
use super::{event, multicast};
use crate::environment;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_qp_init_attr, rdma_cm_id, rdma_event_channel};

/// An identifier, beginning with its C structure.
#[repr(C)]
pub struct IdObject {
    /// This library and the program write the fields by pointers, while shared references to the
    /// object exist.
    c: UnsafeCell<rdma_cm_id>,
    pub core: CmaId,
    pub state: Mutex<IdState>,
    acknowledged: Condvar,
}

/// The library's own state of an identifier.
#[derive(Default)]
pub struct IdState {
    /// Number of events that the program has taken, and number that it has acknowledged.
    pub delivered_events: u64,
    pub acknowledged_events: u64,
    /// Number of threads that wait for acknowledgements.
    waiters: u32,
    /// The identifier has its own channel, and its calls wait for their outcome.
    pub is_sync: bool,
    pub initiator_depth: u8,
    pub responder_resources: u8,
    pub local_ece: (u32, u32),
    pub remote_ece: (u32, u32),
    /// The queue pair could not change its state after the peer accepted. The program gets no
    /// further events about the connection.
    pub connect_error: bool,
    /// Attributes of the queue pairs for connection requests.
    pub qp_init_attr: Option<ibv_qp_init_attr>,
    /// Private data that precedes the program's data in a connection request.
    pub connect: Vec<u8>,
    pub memberships: Vec<Arc<multicast::MembershipObject>>,
    pub resolving: Resolving,
    /// The time of the connection request, by the clock of the devices.
    pub connecting_since: Option<Time>,
}

impl IdObject {
    /// Returns the identifier behind a C pointer.
    ///
    /// # Safety
    /// The ABI's contract: `id` is NULL, or valid while the result is used.
    pub unsafe fn from_c<'a>(id: *mut rdma_cm_id) -> Result<&'a Self, VerbError> {
        // SAFETY: `allocate` made the identifier, so the pointer is to the first field of an
        // IdObject. The fields behind are shared.
        unsafe { id.cast::<Self>().as_ref() }.ok_or(VerbError::Null("id"))
    }

    /// Returns the user value of the identifier in the core.
    pub fn to_user(id: *mut rdma_cm_id) -> u64 {
        id.expose_provenance() as u64
    }

    /// Returns the identifier of a user value of the core.
    pub fn from_user(user: u64) -> *mut rdma_cm_id {
        ptr::with_exposed_provenance_mut(user as usize)
    }

    /// Returns the device of the identifier.
    pub fn device(&self) -> Option<CmDevice> {
        connections().inspect(|cma| cma.device_of(self.core)).and_then(process::device)
    }

    /// Counts an acknowledged event.
    pub fn acknowledge(&self) {
        let mut state = lock(&self.state);
        state.acknowledged_events += 1;
        // Only threads that destroy or migrate the identifier wait, and a notification costs a
        // system call.
        if state.waiters > 0 {
            self.acknowledged.notify_all();
        }
    }

    /// Waits for acknowledgements until `is_done` returns true.
    pub fn wait_for_acknowledgements(&self, is_done: impl Fn(&IdState) -> bool) {
        let mut state = lock(&self.state);
        state.waiters += 1;
        while !is_done(&state) {
            state = self.acknowledged.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiters -= 1;
    }
}

/// Allocates the structure of an identifier.
pub fn allocate(core: CmaId, is_sync: bool) -> *mut rdma_cm_id {
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let c: UnsafeCell<rdma_cm_id> = unsafe { zeroed() };
    let state = Mutex::new(IdState { is_sync, ..IdState::default() });
    Box::into_raw(Box::new(IdObject { c, core, state, acknowledged: Condvar::new() })).cast()
}

/// Makes an identifier. Without a channel, the identifier gets its own channel and is synchronous.
///
/// # Safety
/// The ABI's contract: `channel` is NULL or a channel.
pub unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    space: u32,
    qp_type: QpType,
) -> Result<*mut rdma_cm_id, VerbError> {
    environment::start_logging();
    let allowed = "RDMA_PS_TCP, _UDP, _IB and _IPOIB are allowed";
    let wrong = VerbError::value("ps", space, allowed);
    let known = u16::try_from(space).ok().map(PortSpace).filter(|space| space.name().is_some());
    let port_space = known.ok_or(wrong)?;
    let is_sync = channel.is_null();
    let channel = if is_sync { channel::create()? } else { channel };
    let place = channel::find(channel)?.core;
    let made = connections().call(|cma, _| {
        let core = cma.create_id(place, port_space, qp_type, 0)?;
        let id = allocate(core, is_sync);
        cma.set_user(core, IdObject::to_user(id))?;
        Ok(id)
    });
    match made {
        Ok(id) => {
            // SAFETY: just allocated, and unknown to other threads.
            unsafe {
                (*id).channel = channel;
                (*id).context = context;
                (*id).ps = space;
                (*id).qp_type = qp_type.number().into();
            }
            Ok(id)
        }
        Err(error) => {
            if is_sync {
                // SAFETY: made above for this identifier alone.
                unsafe { channel::destroy(channel) };
            }
            Err(VerbError::Cma(error))
        }
    }
}

/// `rdma_create_id`
pub unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    ffi::return_minus_one("rdma_create_id", || {
        ffi::non_null(id, "id")?;
        let is_datagram =
            [PortSpace::UDP, PortSpace::IPOIB].iter().any(|space| u32::from(space.0) == ps);
        let qp_type = if is_datagram { QpType::Ud } else { QpType::Rc };
        // SAFETY: the ABI's contract; a place for the result.
        unsafe { id.write(create(channel, context, ps, qp_type)?) };
        Ok(())
    })
}

/// `rdma_destroy_id`: waits until the program has acknowledged the events that it took.
pub unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_destroy_id", || unsafe { destroy(id) })
}

/// Destroys an identifier.
///
/// # Safety
/// The ABI's contract: the identifier is not used again.
pub unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    // The identifier has ended already if the program destroyed its channel first.
    let _ = connections().call(|cma, now| cma.destroy_id(now, object.core));
    // SAFETY: the ABI's contract: no other thread uses the identifier.
    unsafe {
        if let Ok(channel) = channel::find((*id).channel) {
            user_events::discard(&channel, id);
        }
        event::ack_pending(id)?;
    }
    object.wait_for_acknowledgements(|state| state.acknowledged_events >= state.delivered_events);
    let is_sync = lock(&object.state).is_sync;
    // SAFETY: as above; the path record was made by malloc, the rest by Box::into_raw in
    // `allocate`.
    unsafe {
        libc::free((*id).route.path_rec.cast());
        let channel = (*id).channel;
        drop(Box::from_raw(id.cast::<IdObject>()));
        if is_sync {
            channel::destroy(channel);
        }
    }
    Ok(())
}

/// `rdma_migrate_id`: moves the identifier to another channel, or to its own channel. Waits until
/// the program has acknowledged the events of the old channel.
pub unsafe extern "C" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_migrate_id", || unsafe { migrate(id, channel) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    let (was_sync, becomes_sync) = (lock(&object.state).is_sync, to.is_null());
    if was_sync && becomes_sync {
        let allowed = "the identifier has its own channel already";
        return Err(VerbError::value("channel", 0_u8, allowed));
    }
    let to = if becomes_sync { channel::create()? } else { to };
    let becomes = channel::find(to)?;
    if let Err(error) = connections().call(|cma, _| cma.migrate(object.core, becomes.core)) {
        if becomes_sync {
            // SAFETY: made above for this identifier alone.
            unsafe { channel::destroy(to) };
        }
        return Err(error.into());
    }
    // SAFETY: the ABI's contract: no other thread changes the identifier.
    unsafe {
        if let Ok(was) = channel::find((*id).channel) {
            user_events::migrate(&was, &becomes, id);
        }
        if was_sync {
            event::ack_pending(id)?;
            channel::destroy((*id).channel);
        }
        (*id).channel = to;
    }
    lock(&object.state).is_sync = becomes_sync;
    object.wait_for_acknowledgements(|state| state.acknowledged_events >= state.delivered_events);
    Ok(())
}

/// In a synchronous identifier, waits for the outcome of a call.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn wait_if_sync(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    if !lock(&object.state).is_sync {
        return Ok(());
    }
    // SAFETY: the ABI's contract: no other thread changes the identifier.
    unsafe {
        event::ack_pending(id)?;
        let taken = event::take((*id).channel)?;
        (*id).event = taken;
        event::outcome(&*taken)
    }
}
