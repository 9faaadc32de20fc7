//! The completion queues that the library makes for an identifier.

use std::ffi::c_int;
use std::ptr;

use urxe_stack::qp::attr::QpType;

use crate::error::VerbError;
use crate::layout::{ibv_comp_channel, ibv_cq, rdma_cm_id};
use crate::{channel, cq};

/// Makes a completion queue of `size` entries with its own channel.
///
/// # Safety
/// The ABI's contract.
unsafe fn make_cq(
    id: *mut rdma_cm_id,
    size: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), VerbError> {
    // SAFETY: the ABI's contract.
    unsafe {
        let channel = channel::create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(VerbError::last("a completion channel"));
        }
        let entries = c_int::try_from(size).unwrap_or(c_int::MAX);
        let made = cq::create_cq((*id).verbs, entries, id.cast(), channel, 0);
        if made.is_null() {
            let error = VerbError::last("a completion queue");
            channel::destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, made))
    }
}

/// Makes the completion queues whose sizes are not 0.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn make_cqs(id: *mut rdma_cm_id, send: u32, recv: u32) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    unsafe {
        if recv > 0 {
            ((*id).recv_cq_channel, (*id).recv_cq) = make_cq(id, recv)?;
        }
        if send > 0 {
            ((*id).send_cq_channel, (*id).send_cq) =
                make_cq(id, send).inspect_err(|_| drop_cqs(id))?;
        }
    }
    Ok(())
}

/// Destroys the identifier's completion queues, except queues that other objects still use.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn drop_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the ABI's contract; NULL is refused by each call, which changes nothing.
    unsafe {
        let is_target = (*id).qp_type == u32::from(QpType::XrcRecv.number());
        if is_target && !(*id).srq.is_null() {
            // The shared receive queue owns these queues.
            return;
        }
        let (send_cq, recv_cq) = ((*id).send_cq, (*id).recv_cq);
        let (send_channel, recv_channel) = ((*id).send_cq_channel, (*id).recv_cq_channel);
        if !recv_cq.is_null() {
            cq::destroy_cq(recv_cq);
        }
        if !send_cq.is_null() && send_cq != recv_cq {
            cq::destroy_cq(send_cq);
        }
        if !recv_channel.is_null() {
            channel::destroy_comp_channel(recv_channel);
        }
        if !send_channel.is_null() && send_channel != recv_channel {
            channel::destroy_comp_channel(send_channel);
        }
        ((*id).send_cq, (*id).recv_cq) = (ptr::null_mut(), ptr::null_mut());
        ((*id).send_cq_channel, (*id).recv_cq_channel) = (ptr::null_mut(), ptr::null_mut());
    }
}
