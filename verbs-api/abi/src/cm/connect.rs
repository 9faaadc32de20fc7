//! Listening, connecting, accepting, rejecting, disconnecting.

use std::ffi::{c_int, c_void};

use urxe_stack::cma::ConnParam;
use urxe_stack::driver::Host;
use urxe_stack::qp::attr::QpType;
use urxe_stack::sync::lock;
use urxe_stack::sys::clock;
use urxe_wire::Qpn;
use urxe_wire::mad::{PortSpace, RejReason};

use super::id::{self, IdObject, IdState};
use super::process::{CmDevice, connections, open_devices};
use super::qp::{self, Depths};
use super::{address, event};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_ece, rdma_cm_id, rdma_conn_param};

/// `RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`: the maximum of the device.
pub const MAX_AVAILABLE: u8 = 0xff;
/// `retry_count` and `rnr_retry_count` for programs that pass no parameters.
const MAX_RETRIES: u8 = 7;
/// `IBV_EVENT_COMM_EST`
const COMM_EST: u32 = 4;

/// `rdma_listen`
pub unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_listen", || unsafe { listen_to(id, backlog) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn listen_to(id: *mut rdma_cm_id, backlog: c_int) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    open_devices()?;
    connections().call(|cma, _| cma.listen(object.core, backlog, &Host))?;
    // SAFETY: the ABI's contract.
    unsafe { address::update(id) }
}

/// Returns the bytes at a pointer.
///
/// # Safety
/// The ABI's contract.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the ABI's contract: `len` bytes are there and do not change during the call.
    unsafe { std::slice::from_raw_parts(data.cast(), len.into()) }
}

/// The program's arguments, completed by the queue pair and the identifier.
struct ConnArguments {
    conn: Option<rdma_conn_param>,
    private_data: Vec<u8>,
    qpn: Qpn,
    srq: bool,
}

impl ConnArguments {
    /// # Safety
    /// The ABI's contract.
    unsafe fn new(
        id: *mut rdma_cm_id,
        object: &IdObject,
        device: &CmDevice,
        conn: *const rdma_conn_param,
    ) -> Result<Self, VerbError> {
        // SAFETY: the ABI's contract.
        let (qp, conn, ps) = unsafe { ((*id).qp, conn.as_ref().copied(), (*id).ps) };
        if ps == u32::from(PortSpace::TCP.0) {
            if qp.is_null() && conn.is_none() {
                return Err(VerbError::Null("conn_param of an identifier without queue pair"));
            }
            let limited = |field, given, max| match given {
                MAX_AVAILABLE => Ok(()),
                given if given <= max => Ok(()),
                given => {
                    let allowed =
                        "at most max_qp_rd_atom, or 255 for as many as can be, is allowed";
                    Err(VerbError::value(field, u64::from(given), allowed))
                }
            };
            if let Some(conn) = &conn {
                limited(
                    "responder_resources",
                    conn.responder_resources,
                    device.max_responder_resources,
                )?;
                limited("initiator_depth", conn.initiator_depth, device.max_initiator_depth)?;
            }
        }
        let mut private_data = std::mem::take(&mut lock(&object.state).connect);
        if let Some(conn) = &conn {
            // SAFETY: the ABI's contract.
            private_data
                .extend_from_slice(unsafe { bytes(conn.private_data, conn.private_data_len) });
        }
        // SAFETY: an identifier's queue pair is there.
        let (qpn, srq) = unsafe {
            match qp.as_ref() {
                Some(qp) => (qp.qp_num, !qp.srq.is_null()),
                None => conn.map_or((0, false), |conn| (conn.qp_num, conn.srq != 0)),
            }
        };
        Ok(Self { conn, private_data, qpn: Qpn::masked(qpn), srq })
    }

    fn param(&self, state: &IdState, ece: (u32, u32)) -> ConnParam<'_> {
        let retries = |of: fn(&rdma_conn_param) -> u8| self.conn.as_ref().map_or(MAX_RETRIES, of);
        ConnParam {
            private_data: &self.private_data,
            responder_resources: state.responder_resources,
            initiator_depth: state.initiator_depth,
            flow_control: self.conn.is_some_and(|conn| conn.flow_control != 0),
            retry_count: retries(|conn| conn.retry_count),
            rnr_retry_count: retries(|conn| conn.rnr_retry_count),
            srq: self.srq,
            qpn: self.qpn,
            ece,
        }
    }

    /// Returns a depth of the program's arguments; 255 selects `otherwise`.
    fn depth(&self, of: fn(&rdma_conn_param) -> u8, otherwise: u8) -> u8 {
        self.conn.as_ref().map(of).filter(|depth| *depth != MAX_AVAILABLE).unwrap_or(otherwise)
    }
}

/// # Safety
/// The ABI's contract.
unsafe fn bound_device<'a>(id: *mut rdma_cm_id) -> Result<(&'a IdObject, CmDevice), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    let device = object
        .device()
        .ok_or(VerbError::Null("the identifier's device: its address is not resolved, and it"))?;
    Ok((object, device))
}

/// `rdma_connect`
pub unsafe extern "C" fn connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_connect", || unsafe { connect_to(id, conn_param) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn connect_to(
    id: *mut rdma_cm_id,
    conn_param: *const rdma_conn_param,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, arguments) = unsafe {
        let (object, device) = bound_device(id)?;
        let arguments = ConnArguments::new(id, object, &device, conn_param)?;
        let mut state = lock(&object.state);
        state.initiator_depth =
            arguments.depth(|conn| conn.initiator_depth, device.max_initiator_depth);
        state.responder_resources =
            arguments.depth(|conn| conn.responder_resources, device.max_responder_resources);
        state.connecting_since = Some(clock::now());
        drop(state);
        (object, arguments)
    };
    let param = {
        let state = lock(&object.state);
        arguments.param(&state, state.local_ece)
    };
    connections().call(|cma, now| cma.connect(now, object.core, &param))?;
    // SAFETY: the ABI's contract.
    unsafe { id::wait_if_sync(id) }
}

/// `rdma_accept`
pub unsafe extern "C" fn accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_accept", || unsafe { accept_request(id, conn_param) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn accept_request(
    id: *mut rdma_cm_id,
    conn: *const rdma_conn_param,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract, for all calls below.
    unsafe {
        let (object, device) = bound_device(id)?;
        let arguments = ConnArguments::new(id, object, &device, conn)?;
        let depths = {
            let mut state = lock(&object.state);
            let most = state.initiator_depth.min(device.max_initiator_depth);
            state.initiator_depth = arguments.depth(|conn| conn.initiator_depth, most);
            let most = state.responder_resources.min(device.max_responder_resources);
            state.responder_resources = arguments.depth(|conn| conn.responder_resources, most);
            Depths { initiator: state.initiator_depth, responder: state.responder_resources }
        };
        let is_datagram = (*id).qp_type == u32::from(QpType::Ud.number());
        if !is_datagram {
            qp::to_rts(id, depths)?;
        }
        let param = {
            let state = lock(&object.state);
            // The vendor is the one that the peer sent.
            arguments.param(&state, (state.remote_ece.0, state.local_ece.1))
        };
        if let Err(error) = connections().call(|cma, now| cma.accept(now, object.core, &param)) {
            let _ = qp::to_error(id);
            return Err(error.into());
        }
        if !is_datagram {
            return id::wait_if_sync(id);
        }
        if lock(&object.state).is_sync { event::ack_pending(id) } else { Ok(()) }
    }
}

/// # Safety
/// The ABI's contract.
unsafe fn send_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
    reason: RejReason,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, data) = unsafe { (IdObject::from_c(id)?, bytes(data, len)) };
    Ok(connections().call(|cma, now| cma.reject(now, object.core, reason, data))?)
}

/// `rdma_reject`
pub unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_reject", || unsafe {
        send_reject(id, data, len, RejReason::CONSUMER_DEFINED)
    })
}

/// `rdma_reject_ece`
pub unsafe extern "C" fn reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    let reason = RejReason::VENDOR_OPTION_NOT_SUPPORTED;
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_reject_ece", || unsafe { send_reject(id, data, len, reason) })
}

/// `rdma_disconnect`
pub unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    ffi::return_minus_one("rdma_disconnect", || {
        // SAFETY: the ABI's contract, for all calls below.
        unsafe {
            let (object, _) = bound_device(id)?;
            qp::to_error(id)?;
            connections().call(|cma, now| cma.disconnect(now, object.core))?;
            id::wait_if_sync(id)
        }
    })
}

/// `rdma_establish`: for an identifier whose queue pair the program made.
pub unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    ffi::return_minus_one("rdma_establish", || {
        // SAFETY: the ABI's contract.
        let (object, qp) = unsafe { (IdObject::from_c(id)?, (*id).qp) };
        if !qp.is_null() {
            let allowed = "the library makes the transition of the identifier's queue pair";
            return Err(VerbError::value("qp", 1_u8, allowed));
        }
        Ok(connections().call(|cma, now| cma.establish(now, object.core))?)
    })
}

/// `rdma_notify`
pub unsafe extern "C" fn notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    ffi::return_minus_one("rdma_notify", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        if event != COMM_EST {
            let allowed = "only IBV_EVENT_COMM_EST (4) is allowed";
            return Err(VerbError::value("event", event, allowed));
        }
        Ok(connections().call(|cma, now| cma.communication_established(now, object.core))?)
    })
}

/// `rdma_set_local_ece`: for a queue pair that the program made.
pub unsafe extern "C" fn set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    ffi::return_minus_one("rdma_set_local_ece", || {
        // SAFETY: the ABI's contract.
        let (object, ece) = unsafe { with_ece(id, ece) }?;
        lock(&object.state).local_ece = (ece.vendor_id, ece.options);
        Ok(())
    })
}

/// `rdma_get_remote_ece`: for a queue pair that the program made.
pub unsafe extern "C" fn get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    ffi::return_minus_one("rdma_get_remote_ece", || {
        // SAFETY: the ABI's contract.
        let (object, ece) = unsafe { with_ece(id, ece) }?;
        let (vendor_id, options) = lock(&object.state).remote_ece;
        *ece = ibv_ece { vendor_id, options, comp_mask: 0 };
        Ok(())
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn with_ece<'a>(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> Result<(&'a IdObject, &'a mut ibv_ece), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, ece) =
        unsafe { (IdObject::from_c(id)?, ece.as_mut().ok_or(VerbError::Null("ece"))?) };
    // SAFETY: as above.
    if unsafe { !(*id).qp.is_null() } {
        let allowed = "the library sets the options of the identifier's queue pair";
        return Err(VerbError::value("qp", 1_u8, allowed));
    }
    Ok((object, ece))
}
