//! Shared receive queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::Arc;

use urxe_stack::cq::EventObject;
use urxe_stack::srq::{Srq, SrqAttr, SrqAttrMask, SrqInit, XrcSrqInit};

use crate::context::Context;
use crate::cq::CqObject;
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::pd::Domain;
use crate::qp_attr;
use crate::xrc::{XrcdObject, XrcdUse};

/// `IBV_SRQ_INIT_ATTR_TYPE`
const WITH_TYPE: u32 = 1;
/// `IBV_SRQ_INIT_ATTR_PD`
const WITH_PD: u32 = 1 << 1;
/// `IBV_SRQ_INIT_ATTR_XRCD`
const WITH_XRCD: u32 = 1 << 2;
/// `IBV_SRQ_INIT_ATTR_CQ`
const WITH_CQ: u32 = 1 << 3;
/// `IBV_SRQT_BASIC`
const BASIC: u32 = 0;
/// `IBV_SRQT_XRC`
const XRC: u32 = 1;

/// A shared receive queue, beginning with its C structure.
#[repr(C)]
pub struct SrqObject {
    c: UnsafeCell<ibv_srq>,
    pub srq: Arc<Srq>,
    /// The use of the XRC domain handle through which the queue was created.
    _xrcd_use: Option<XrcdUse>,
}

handle_registry::object!(pub SrqObject, ibv_srq, "srq");

/// `ibv_create_srq`: stores the real queue sizes in `attr`.
pub unsafe extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    ffi::return_ptr("ibv_create_srq", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("srq_init_attr"))?;
        // SAFETY: the ABI's contract.
        unsafe { create(pd, attr, None) }
    })
}

/// `ibv_create_srq_ex`, through `verbs_context`
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    ffi::return_ptr("ibv_create_srq_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("srq_init_attr_ex"))?;
        let has = |bit| attr.comp_mask & bit != 0;
        check_bits(
            "comp_mask",
            attr.comp_mask.into(),
            (WITH_TYPE | WITH_PD | WITH_XRCD | WITH_CQ).into(),
        )?;
        if !has(WITH_PD) {
            return Err(VerbError::Null("pd"));
        }
        let xrc = match if has(WITH_TYPE) { attr.srq_type } else { BASIC } {
            BASIC => None,
            XRC if !has(WITH_XRCD) => return Err(VerbError::Null("xrcd")),
            XRC if !has(WITH_CQ) => return Err(VerbError::Null("cq")),
            XRC => {
                // SAFETY: the ABI's contract, for all objects that the arguments name.
                let (domain, cq) = unsafe {
                    let (_, context) = Domain::from_c(attr.pd)?;
                    let domain = XrcdObject::from_c_in(context, "xrcd", attr.xrcd)?;
                    (domain, CqObject::from_c_in(context, "cq", attr.cq)?)
                };
                let xrc = XrcSrqInit { xrcd: Arc::clone(&domain.xrcd), cq: Arc::clone(&cq.cq) };
                Some((xrc, domain.add_use()))
            }
            given => {
                let allowed = "IBV_SRQT_BASIC (0) and IBV_SRQT_XRC (1) are allowed";
                return Err(VerbError::value("srq_type", given, allowed));
            }
        };
        let mut plain = ibv_srq_init_attr { srq_context: attr.srq_context, attr: attr.attr };
        // SAFETY: the ABI's contract.
        let srq = unsafe { create(attr.pd, &mut plain, xrc) }?;
        attr.attr = plain.attr;
        Ok(srq)
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_init_attr,
    xrc: Option<(XrcSrqInit, XrcdUse)>,
) -> Result<*mut ibv_srq, VerbError> {
    // SAFETY: the ABI's contract.
    let (domain, context) = unsafe { Domain::from_c(pd) }?;
    let (attr_c, srq_context) = (&mut attr.attr, attr.srq_context);
    // The manual page calls the limit irrelevant here, and programs arm it by ibv_modify_srq.
    // rdma_rxe applies the limit at once (rxe_srq.c).
    let sizes = SrqAttr { srq_limit: 0, ..qp_attr::srq_from_c(attr_c) };
    let (xrc, xrcd_use) = xrc.unzip();
    let srq =
        context.device().create_srq(&SrqInit { pd: domain.id, attr: sizes, context: 0, xrc })?;
    *attr_c = qp_attr::srq_to_c(&srq.query());
    // SAFETY: the structure consists of integers and pointers, for which zero is valid, and of a
    // mutex and a condition, whose initial value is zero on Linux.
    let mut c: ibv_srq = unsafe { zeroed() };
    // SAFETY: the domain is there, because the new object keeps it.
    c.context = unsafe { (*pd).context };
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = srq.id().0;
    let object = EventObject::Srq(srq.id());
    context.objects().srqs.insert(object, Arc::clone(&srq));
    let made = handle_registry::into_raw(Box::new(SrqObject {
        c: UnsafeCell::new(c),
        srq,
        _xrcd_use: xrcd_use,
    }));
    context.register_events(object, made.cast());
    Ok(made.cast())
}

/// `ibv_modify_srq`
pub unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    ffi::return_errno("ibv_modify_srq", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { SrqObject::from_c(srq) }?;
        // SAFETY: the ABI's contract.
        let given = unsafe { attr.as_ref() }.ok_or(VerbError::Null("srq_attr"))?;
        let attr = qp_attr::srq_from_c(given);
        object.srq.modify(&attr, SrqAttrMask::from_bits_retain(mask.cast_unsigned()))?;
        context.deliver_events();
        Ok(())
    })
}

/// `ibv_query_srq`
pub unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    ffi::return_errno("ibv_query_srq", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { SrqObject::from_c(srq) }?;
        ffi::non_null(attr, "srq_attr")?;
        // SAFETY: the ABI's contract: a place for the attributes.
        unsafe { attr.write(qp_attr::srq_to_c(&object.srq.query())) };
        Ok(())
    })
}

/// `ibv_get_srq_num`, through `verbs_context`: the number by which the sending ends of XRC
/// connections name the queue.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    ffi::return_errno("ibv_get_srq_num", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { SrqObject::from_c(srq) }?;
        ffi::non_null(number, "srq_num")?;
        if !object.srq.is_xrc() {
            return Err(VerbError::Unsupported(
                "a number of a shared receive queue outside XRC domains",
            ));
        }
        // SAFETY: the ABI's contract: a place for the number.
        unsafe { number.write(object.srq.id().0) };
        Ok(())
    })
}

/// `ibv_destroy_srq`: fails with EBUSY while queue pairs use the queue. Waits until the program has
/// acknowledged the events of the queue.
pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    let end = |object: &SrqObject, context: &Context| {
        context.device().destroy_srq(&object.srq)?;
        context.objects().srqs.remove(&EventObject::Srq(object.srq.id()));
        context.unregister_events(EventObject::Srq(object.srq.id()));
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { SrqObject::destroy("ibv_destroy_srq", srq, end) }
}
