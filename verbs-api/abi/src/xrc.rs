//! Extended reliable connections (XRC): domains, and opening a target queue pair of another process
//! or handle.

use std::ffi::c_int;
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use urxe_stack::driver::xrcd_lock::claim_xrcd;
use urxe_stack::qp::attr::QpType;
use urxe_stack::srq::xrcd::{CloseXrcdError, Inode, Xrcd, XrcdFlags};
use urxe_wire::Qpn;

use crate::context::{Context, identity};
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_context, ibv_qp, ibv_qp_open_attr, ibv_xrcd, ibv_xrcd_init_attr};
use crate::qp;

/// `IBV_XRCD_INIT_ATTR_FD`, `IBV_XRCD_INIT_ATTR_OFLAGS`: both are required.
const NEEDED: u32 = 1 | 1 << 1;
/// `IBV_QP_OPEN_ATTR_NUM`, `_XRCD` and `_TYPE` are required; `_CONTEXT` is optional.
const OPEN_NEEDED: u32 = 1 | 1 << 1 | 1 << 3;
/// `IBV_QP_OPEN_ATTR_CONTEXT`
const OPEN_CONTEXT: u32 = 1 << 2;

/// An XRC domain handle, beginning with its C structure.
#[repr(C)]
pub struct XrcdObject {
    c: ibv_xrcd,
    pub xrcd: Arc<Xrcd>,
    uses: XrcdUse,
}

/// The use of a handle by an object that was made through the handle. The handle cannot be closed
/// meanwhile, even if other handles of the domain are open (`ib_uxrcd_object` of the kernel).
#[derive(Clone, Default)]
pub struct XrcdUse(Arc<()>);

impl XrcdObject {
    /// Returns a use for an object that is made through this handle.
    pub fn add_use(&self) -> XrcdUse {
        self.uses.clone()
    }
}

handle_registry::object!(pub XrcdObject, ibv_xrcd, "xrcd");

/// `ibv_open_xrcd`, through `verbs_context`: a descriptor of -1 makes a domain that no other handle
/// shares.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    ffi::return_ptr("ibv_open_xrcd", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("xrcd_init_attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), NEEDED.into())?;
        if attr.comp_mask & NEEDED != NEEDED {
            let allowed =
                "both IBV_XRCD_INIT_ATTR_FD (1) and IBV_XRCD_INIT_ATTR_OFLAGS (2) are needed";
            return Err(VerbError::value("comp_mask", attr.comp_mask, allowed));
        }
        let inode = match attr.fd {
            -1 => None,
            // SAFETY: only looked at during the call below; a number that is no open descriptor is
            // EBADF.
            fd if fd >= 0 => Some(inode(unsafe { BorrowedFd::borrow_raw(fd) })?),
            fd => {
                let given = u64::from(fd.cast_unsigned());
                return Err(VerbError::value("fd", given, "a descriptor or -1 is allowed"));
            }
        };
        let flags = XrcdFlags::from_bits_truncate(attr.oflags.cast_unsigned());
        let gid = shared.device().gids().first().copied().unwrap_or_default();
        let xrcd = shared.device().open_xrcd(inode, flags, |inode| claim_xrcd(gid, inode))?;
        shared.objects().add_xrcd(&xrcd);
        Ok(handle_registry::into_raw(Box::new(XrcdObject {
            c: ibv_xrcd { context },
            xrcd,
            uses: XrcdUse::default(),
        }))
        .cast())
    })
}

fn inode(file: BorrowedFd<'_>) -> Result<Inode, VerbError> {
    let found =
        identity(file).map_err(|errno| VerbError::system("the XRC domain's file", errno))?;
    Ok(Inode { device: found.0, number: found.1 })
}

/// `ibv_close_xrcd`, through `verbs_context`: fails with EBUSY while objects that were made through
/// this handle exist.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let end = |object: &XrcdObject, context: &Context| {
        match Arc::strong_count(&object.uses.0) - 1 {
            0 => context.device().close_xrcd(&object.xrcd)?,
            users => return Err(CloseXrcdError::Busy { users: users as u32 }.into()),
        }
        context.objects().remove_xrcd(&object.xrcd);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { XrcdObject::destroy("ibv_close_xrcd", xrcd, end) }
}

/// `ibv_open_qp`, through `verbs_context`: opens a target queue pair of the domain.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    ffi::return_ptr("ibv_open_qp", || {
        // SAFETY: the ABI's contract.
        let shared = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("qp_open_attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), (OPEN_NEEDED | OPEN_CONTEXT).into())?;
        if attr.comp_mask & OPEN_NEEDED != OPEN_NEEDED {
            let allowed = "the bits of number, XRC domain and type are required";
            return Err(VerbError::value("comp_mask", attr.comp_mask, allowed));
        }
        if attr.qp_type != u32::from(QpType::XrcRecv.number()) {
            let allowed = "only IBV_QPT_XRC_RECV (10) is allowed";
            return Err(VerbError::value("qp_type", attr.qp_type, allowed));
        }
        // SAFETY: the ABI's contract.
        let domain = unsafe { XrcdObject::from_c_in(shared, "xrcd", attr.xrcd) }?;
        let handle = shared.device().open_xrc_target(&domain.xrcd, Qpn::masked(attr.qp_num))?;
        let qp_context =
            if attr.comp_mask & OPEN_CONTEXT == 0 { std::ptr::null_mut() } else { attr.qp_context };
        // SAFETY: integers, pointers, a mutex and a condition, for all of which zero is valid.
        let mut c: ibv_qp = unsafe { zeroed() };
        c.context = context;
        c.qp_context = qp_context;
        Ok(qp::to_ibv_target(shared, c, handle, domain.add_use()))
    })
}
