//! The shared receive queue of an identifier.

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;

use urxe_stack::qp::attr::QpType;

use super::id::IdObject;
use super::qp::own_xrcd;
use super::queues::{drop_cqs, make_cqs};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id};
use crate::srq;

/// `IBV_SRQ_INIT_ATTR_TYPE`, `_PD`, `_XRCD`, `_CQ`
const SRQ_TYPE: u32 = 1;
const SRQ_PD: u32 = 1 << 1;
const SRQ_XRCD: u32 = 1 << 2;
const SRQ_CQ: u32 = 1 << 3;
/// `IBV_SRQT_XRC`
const SRQT_XRC: u32 = 1;

/// `rdma_create_srq`
pub unsafe extern "C" fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    ffi::return_minus_one("rdma_create_srq", || {
        // SAFETY: the ABI's contract.
        unsafe {
            IdObject::from_c(id)?;
            let attr = attr.as_mut().ok_or(VerbError::Null("srq_init_attr"))?;
            // SAFETY: integers and pointers, for which zero is valid.
            let mut extended: ibv_srq_init_attr_ex = zeroed();
            extended.srq_context = attr.srq_context;
            extended.attr = attr.attr;
            extended.comp_mask = SRQ_TYPE | SRQ_PD;
            extended.srq_type = u32::from((*id).qp_type == u32::from(QpType::XrcRecv.number()));
            extended.pd = pd;
            make_srq(id, &mut extended)?;
            attr.attr = extended.attr;
        }
        Ok(())
    })
}

/// `rdma_create_srq_ex`
pub unsafe extern "C" fn create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    ffi::return_minus_one("rdma_create_srq_ex", || {
        // SAFETY: the ABI's contract.
        unsafe {
            IdObject::from_c(id)?;
            make_srq(id, attr.as_mut().ok_or(VerbError::Null("srq_init_attr_ex"))?)
        }
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn make_srq(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), VerbError> {
    if attr.comp_mask & SRQ_TYPE == 0 {
        return Err(VerbError::value(
            "comp_mask",
            attr.comp_mask,
            "IBV_SRQ_INIT_ATTR_TYPE is required",
        ));
    }
    // SAFETY: the ABI's contract, for all objects that the arguments name.
    unsafe {
        if attr.comp_mask & SRQ_PD == 0 || attr.pd.is_null() {
            attr.pd = (*id).pd;
            attr.comp_mask |= SRQ_PD;
        }
        if attr.srq_type == SRQT_XRC {
            if attr.comp_mask & SRQ_XRCD == 0 || attr.xrcd.is_null() {
                attr.xrcd = own_xrcd(IdObject::from_c(id)?)?;
            }
            if attr.comp_mask & SRQ_CQ == 0 || attr.cq.is_null() {
                make_cqs(id, 0, attr.attr.max_wr)?;
                attr.cq = (*id).recv_cq;
            }
            attr.comp_mask |= SRQ_XRCD | SRQ_CQ;
        }
        let made = srq::create_srq_ex((*id).verbs, attr);
        if made.is_null() {
            let error = VerbError::last("a shared receive queue");
            drop_cqs(id);
            return Err(error);
        }
        if (*id).pd.is_null() {
            (*id).pd = attr.pd;
        }
        (*id).srq = made;
    }
    Ok(())
}

/// `rdma_destroy_srq`
pub unsafe extern "C" fn destroy_srq(id: *mut rdma_cm_id) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        unsafe {
            if id.is_null() || (*id).srq.is_null() {
                return;
            }
            srq::destroy_srq((*id).srq);
            (*id).srq = ptr::null_mut();
            drop_cqs(id);
        }
    });
}
