//! `rdma_set_option`.

use std::ffi::{c_int, c_void};

use urxe_stack::qp::attr::QpType;

use super::id::IdObject;
use super::process::connections;
use crate::border;
use crate::error::VerbError;
use crate::layout::rdma_cm_id;

/// `RDMA_OPTION_ID`
const LEVEL_ID: c_int = 0;
/// `RDMA_OPTION_ID_TOS`, `_REUSEADDR`, `_AFONLY`, `_ACK_TIMEOUT`
const TOS: c_int = 0;
const REUSE_ADDR: c_int = 1;
const AF_ONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;
/// `RDMA_OPTION_IB`, `RDMA_OPTION_IB_PATH`
const LEVEL_IB: c_int = 1;
const PATH: c_int = 1;
/// The timeout has five bits.
const MAX_TIMEOUT: u8 = 31;

/// An option's value.
///
/// # Safety
/// The ABI's contract: `len` bytes are at `value`.
unsafe fn read<T: Copy>(value: *const c_void, len: usize) -> Result<T, VerbError> {
    if value.is_null() {
        return Err(VerbError::Null("optval"));
    }
    if len != size_of::<T>() {
        let allowed = "it must be the size of the option: 1 of a number, 4 of a flag";
        return Err(VerbError::Value { field: "optlen", given: len as u64, allowed });
    }
    // SAFETY: the caller's; it need not be aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// `rdma_set_option`
pub unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    border::minus_one("rdma_set_option", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        let core = object.core;
        // SAFETY: the ABI's contract, of each option's own type.
        unsafe {
            match (level, name) {
                (LEVEL_ID, TOS) => {
                    let tos = read::<u8>(value, len)?;
                    connections().call(|cma, _| cma.options_mut(core).map(|options| options.tos = tos))?;
                }
                (LEVEL_ID, ACK_TIMEOUT) => {
                    let timeout = read::<u8>(value, len)?;
                    let qp_type = (*id).qp_type;
                    if ![QpType::Rc, QpType::XrcSend].map(|of| u32::from(of.number())).contains(&qp_type) {
                        let allowed = "RC (2) and XRC_SEND (9) wait for acknowledgements";
                        return Err(VerbError::Value { field: "qp_type", given: qp_type.into(), allowed });
                    }
                    if timeout > MAX_TIMEOUT {
                        let allowed = "0 to 31 is allowed";
                        return Err(VerbError::Value {
                            field: "ACK timeout",
                            given: timeout.into(),
                            allowed,
                        });
                    }
                    connections().call(|cma, _| {
                        cma.options_mut(core).map(|options| options.ack_timeout = Some(timeout))
                    })?;
                }
                (LEVEL_ID, REUSE_ADDR) => {
                    let reuse = read::<c_int>(value, len)? != 0;
                    connections().call(|cma, _| cma.set_reuse_addr(core, reuse))?;
                }
                (LEVEL_ID, AF_ONLY) => {
                    let only = read::<c_int>(value, len)? != 0;
                    connections().call(|cma, _| cma.set_af_only(core, only))?;
                }
                // In RoCE addresses say all of a path: none that a program brings is of use.
                (LEVEL_IB, PATH) => {
                    let allowed = "no path records are taken: rdma_resolve_route finds the path";
                    return Err(VerbError::Value { field: "path records", given: len as u64, allowed });
                }
                _ => {
                    let errno = rustix::io::Errno::NOSYS;
                    return Err(VerbError::System { what: "there is no such option", errno });
                }
            }
        }
        Ok(())
    })
}
