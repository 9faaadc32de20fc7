//! Multicast groups of datagram queue pairs.

use std::ffi::c_int;

use urxe_wire::Gid;

use crate::border;
use crate::error::VerbError;
use crate::layout::ibv_qp;
use crate::qp::QpObject;

/// A `union ibv_gid`, as its 16 bytes: a program may have it anywhere.
type GidBytes = [u8; 16];

/// `ibv_attach_mcast`: the group's LID means nothing on Ethernet.
pub unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, group: *const GidBytes, _lid: u16) -> c_int {
    border::number("ibv_attach_mcast", || {
        // SAFETY: the ABI's contract.
        let ((object, context), group) = unsafe { (QpObject::from_c(qp)?, read(group)?) };
        Ok(context.device().attach_mcast(object.handle, group)?)
    })
}

/// `ibv_detach_mcast`
pub unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, group: *const GidBytes, _lid: u16) -> c_int {
    border::number("ibv_detach_mcast", || {
        // SAFETY: the ABI's contract.
        let ((object, context), group) = unsafe { (QpObject::from_c(qp)?, read(group)?) };
        Ok(context.device().detach_mcast(object.handle, group)?)
    })
}

/// # Safety
/// The ABI's contract: NULL or a GID.
unsafe fn read(group: *const GidBytes) -> Result<Gid, VerbError> {
    // SAFETY: as above; bytes have no alignment.
    unsafe { group.as_ref() }.map(|bytes| Gid(*bytes)).ok_or(VerbError::Null("gid"))
}
