//! The queue pair of an identifier, and its states.

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;

use rustix::io::Errno;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState, QpType};
use urxe_wire::Psn;

use super::address::qp_state;
use super::connect::MAX_AVAILABLE;
use super::id::IdObject;
use super::process::{self, connections};
use super::queues::{drop_cqs, make_cqs};
use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{
    ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, rdma_cm_id,
    set_fields,
};
use crate::pd::Domain;
use crate::{qp, qp_attr};

/// `IBV_QP_INIT_ATTR_PD`, `_XRCD`
const QP_PD: u32 = 1;
const QP_XRCD: u32 = 1 << 1;
/// Numbers of READs and atomics at a time, as initiator and as responder.
#[derive(Clone, Copy)]
pub struct Depths {
    pub initiator: u8,
    pub responder: u8,
}

impl Depths {
    /// The numbers that both sides agreed on.
    pub const AS_AGREED: Self = Self { initiator: MAX_AVAILABLE, responder: MAX_AVAILABLE };
}

/// # Safety
/// The ABI's contract.
unsafe fn modify(
    queue_pair: *mut ibv_qp,
    attr: &QpAttr,
    mask: QpAttrMask,
) -> Result<(), VerbError> {
    let mut c = qp_attr::to_c(attr);
    // SAFETY: the ABI's contract.
    match unsafe { qp::modify_qp(queue_pair, &mut c, mask.bits().cast_signed()) } {
        0 => Ok(()),
        errno => {
            let errno = Errno::from_raw_os_error(errno);
            Err(VerbError::system("the queue pair's state", errno))
        }
    }
}

fn attributes(object: &IdObject, state: QpState) -> Result<(QpAttr, QpAttrMask), VerbError> {
    Ok(connections().inspect(|cma| cma.qp_attr(object.core, state))?)
}

/// Moves the identifier's queue pair, if there is one, to RTS with the attributes of its
/// connection.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn to_rts(id: *mut rdma_cm_id, depths: Depths) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, queue_pair) = unsafe { (IdObject::from_c(id)?, (*id).qp) };
    if queue_pair.is_null() {
        return Ok(());
    }
    // The access rights of the peer were set when the queue pair was made.
    let states = [QpState::Init, QpState::Rtr, QpState::Rts];
    let all = connections().inspect(|cma| states.map(|state| cma.qp_attr(object.core, state)));
    for (state, attributes) in states.into_iter().zip(all) {
        let (mut attr, mask) = attributes?;
        if state == QpState::Rtr && depths.responder != MAX_AVAILABLE {
            attr.max_dest_rd_atomic = depths.responder;
        }
        if state == QpState::Rts && depths.initiator != MAX_AVAILABLE {
            attr.max_rd_atomic = depths.initiator;
        }
        // SAFETY: the ABI's contract.
        unsafe { modify(queue_pair, &attr, mask) }?;
    }
    Ok(())
}

/// Moves the queue pair to RTS after the passive side has accepted, and sends the confirmation.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn finish_connecting(id: *mut rdma_cm_id, depths: Depths) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let done = unsafe { IdObject::from_c(id) }.and_then(|object| {
        // SAFETY: the ABI's contract.
        unsafe { to_rts(id, depths) }?;
        Ok(connections().call(|cma, now| cma.establish(now, object.core))?)
    });
    if done.is_err() {
        // SAFETY: the ABI's contract.
        let _ = unsafe { to_error(id) };
    }
    done
}

/// Moves the identifier's queue pair, if there is one, to the error state.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn to_error(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let queue_pair = unsafe { (*id).qp };
    if queue_pair.is_null() {
        return Ok(());
    }
    let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
    // SAFETY: the ABI's contract.
    unsafe { modify(queue_pair, &attr, QpAttrMask::STATE) }
}

/// `rdma_init_qp_attr`
pub unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    ffi::return_minus_one("rdma_init_qp_attr", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("qp_attr"))?;
        ffi::non_null(mask, "qp_attr_mask")?;
        let (found, bits) = attributes(object, qp_state(attr.qp_state)?)?;
        *attr = qp_attr::to_c(&found);
        // SAFETY: the ABI's contract: a place for the result.
        unsafe { mask.write(bits.bits().cast_signed()) };
        Ok(())
    })
}

/// `rdma_create_qp`
pub unsafe extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_create_qp", || unsafe { make_plain_qp(id, pd, attr) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn make_plain_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    unsafe {
        IdObject::from_c(id)?;
        let attr = attr.as_mut().ok_or(VerbError::Null("qp_init_attr"))?;
        // SAFETY: integers and pointers, for which zero is valid.
        let mut extended: ibv_qp_init_attr_ex = zeroed();
        set_fields!(extended, attr; qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
        extended.comp_mask = QP_PD;
        extended.pd = if pd.is_null() { (*id).pd } else { pd };
        make_qp(id, &mut extended)?;
        set_fields!(attr, extended; cap, send_cq, recv_cq, srq);
    }
    Ok(())
}

/// `rdma_create_qp_ex`
pub unsafe extern "C" fn create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    ffi::return_minus_one("rdma_create_qp_ex", || {
        // SAFETY: the ABI's contract.
        unsafe {
            IdObject::from_c(id)?;
            make_qp(id, attr.as_mut().ok_or(VerbError::Null("qp_init_attr"))?)
        }
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn make_qp(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), VerbError> {
    let wrong = |field, allowed| VerbError::value(field, 0_u8, allowed);
    // SAFETY: the ABI's contract, for all objects that the arguments name.
    unsafe {
        let object = IdObject::from_c(id)?;
        if !(*id).qp.is_null() {
            return Err(wrong("qp", "the identifier has one already"));
        }
        ffi::non_null((*id).verbs, "the identifier's device: it is not bound, and it")?;
        if attr.comp_mask & QP_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= QP_PD;
            attr.pd = (*id).pd;
        } else if !ptr::eq(Domain::from_c(attr.pd)?.1, Context::container_of((*id).verbs)) {
            return Err(wrong("pd", "it must be of the identifier's context (id->verbs)"));
        }
        let differs = |of_id: *mut ibv_cq, given: *mut ibv_cq| {
            !of_id.is_null() && !given.is_null() && of_id != given
        };
        if differs((*id).recv_cq, attr.recv_cq) || differs((*id).send_cq, attr.send_cq) {
            return Err(wrong("cq", "it must be the identifier's, which has one"));
        }
        if (*id).qp_type == u32::from(QpType::XrcRecv.number())
            && (attr.comp_mask & QP_XRCD == 0 || attr.xrcd.is_null())
        {
            attr.xrcd = own_xrcd(object)?;
            attr.comp_mask |= QP_XRCD;
        }
        let needs = |given: *mut ibv_cq, of_id: *mut ibv_cq, size| {
            if given.is_null() && of_id.is_null() { size } else { 0 }
        };
        let send = needs(attr.send_cq, (*id).send_cq, attr.cap.max_send_wr);
        let recv = needs(attr.recv_cq, (*id).recv_cq, attr.cap.max_recv_wr);
        make_cqs(id, send, recv)?;
        if attr.send_cq.is_null() {
            attr.send_cq = (*id).send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = (*id).recv_cq;
        }
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        let made = qp::create_qp_ex((*id).verbs, attr);
        if made.is_null() {
            let error = VerbError::last("a queue pair");
            drop_cqs(id);
            return Err(error);
        }
        if let Err(error) =
            initialize(object, made, (*id).qp_type == u32::from(QpType::Ud.number()))
        {
            qp::destroy_qp(made);
            drop_cqs(id);
            return Err(error);
        }
        // The receiving end of XRC has no protection domain.
        if !(*made).pd.is_null() {
            (*id).pd = (*made).pd;
        }
        (*id).qp = made;
    }
    Ok(())
}

/// Moves a queue pair to INIT, and a datagram queue pair, which needs no peer, to RTS.
///
/// # Safety
/// The ABI's contract.
unsafe fn initialize(
    object: &IdObject,
    made: *mut ibv_qp,
    is_datagram: bool,
) -> Result<(), VerbError> {
    let (attr, mask) = attributes(object, QpState::Init)?;
    // SAFETY: the ABI's contract.
    unsafe {
        modify(made, &attr, mask)?;
        if is_datagram {
            let rtr = QpAttr { qp_state: QpState::Rtr, ..QpAttr::default() };
            modify(made, &rtr, QpAttrMask::STATE)?;
            let rts = QpAttr { qp_state: QpState::Rts, sq_psn: Psn::new(0), ..rtr };
            modify(made, &rts, QpAttrMask::STATE | QpAttrMask::SQ_PSN)?;
        }
    }
    Ok(())
}

/// Returns the domain of an XRC queue pair or shared queue for which the program passed none.
pub fn own_xrcd(object: &IdObject) -> Result<*mut crate::layout::ibv_xrcd, VerbError> {
    let key = connections().inspect(|cma| cma.device_of(object.core));
    process::xrcd(key.ok_or(VerbError::Null("the identifier's device: it is not bound, and it"))?)
}

/// `rdma_destroy_qp`
pub unsafe extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        unsafe {
            if id.is_null() || (*id).qp.is_null() {
                return;
            }
            qp::destroy_qp((*id).qp);
            (*id).qp = ptr::null_mut();
            drop_cqs(id);
        }
    });
}
