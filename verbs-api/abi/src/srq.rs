//! Shared receive queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::Arc;

use urxe_stack::cq::EventObject;
use urxe_stack::srq::{Srq, SrqAttr, SrqAttrMask, SrqInit, XrcSrqInit};

use crate::border;
use crate::cq::CqObject;
use crate::cq_ex::refuse_bits;
use crate::error::VerbError;
use crate::layout::{
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::live;
use crate::object::object;
use crate::pd::PdObject;
use crate::xrc::{Made, XrcdObject};

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

/// A shared receive queue, with what C sees of it in front.
#[repr(C)]
pub struct SrqObject {
    c: UnsafeCell<ibv_srq>,
    pub srq: Arc<Srq>,
    /// Keeps the handle of the XRC domain that it was made through.
    _made: Option<Made>,
}

object!(pub SrqObject, ibv_srq, "srq");

/// `ibv_create_srq`: writes the sizes that the queue really has into `attr`.
pub unsafe extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    border::pointer("ibv_create_srq", || {
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
    border::pointer("ibv_create_srq_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("srq_init_attr_ex"))?;
        let has = |bit| attr.comp_mask & bit != 0;
        refuse_bits(
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
                // SAFETY: the ABI's contract.
                let objects =
                    unsafe { (XrcdObject::from_c(attr.xrcd)?, CqObject::from_c(attr.cq)?) };
                let ((domain, of_xrcd), (cq, of_cq)) = objects;
                // SAFETY: the ABI's contract.
                let (_, context) = unsafe { PdObject::from_c(attr.pd) }?;
                context.own("xrcd", of_xrcd)?;
                context.own("cq", of_cq)?;
                let xrc = XrcSrqInit { xrcd: Arc::clone(&domain.xrcd), cq: Arc::clone(&cq.cq) };
                Some((xrc, domain.made()))
            }
            given => {
                let allowed = "IBV_SRQT_BASIC (0) and IBV_SRQT_XRC (1) are there";
                return Err(VerbError::Value { field: "srq_type", given: given.into(), allowed });
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
    xrc: Option<(XrcSrqInit, Made)>,
) -> Result<*mut ibv_srq, VerbError> {
    // SAFETY: the ABI's contract.
    let (domain, context) = unsafe { PdObject::from_c(pd) }?;
    let (attr_c, srq_context) = (&mut attr.attr, attr.srq_context);
    // The manual page calls the limit irrelevant here, and programs arm it by ibv_modify_srq;
    // rdma_rxe takes it at once (rxe_srq.c).
    let sizes = SrqAttr { max_wr: attr_c.max_wr, max_sge: attr_c.max_sge, srq_limit: 0 };
    let (xrc, made) = xrc.unzip();
    let srq =
        context.device().create_srq(&SrqInit { pd: domain.id, attr: sizes, context: 0, xrc })?;
    *attr_c = to_c(&srq.query());
    // SAFETY: the structure consists of integers and pointers, for which zero is valid, and of a
    // mutex and a condition, whose initial value is zero on Linux.
    let mut c: ibv_srq = unsafe { zeroed() };
    // SAFETY: from_c found the protection domain there.
    c.context = unsafe { (*pd).context };
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = srq.id().0;
    let object = EventObject::Srq(srq.id());
    context.owned().srqs.insert(object, Arc::clone(&srq));
    let made = live::hand_out(Box::new(SrqObject { c: UnsafeCell::new(c), srq, _made: made }));
    context.adopt(object, made.cast());
    Ok(made.cast())
}

/// `ibv_modify_srq`
pub unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    border::number("ibv_modify_srq", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { SrqObject::from_c(srq) }?;
        // SAFETY: the ABI's contract.
        let given = unsafe { attr.as_ref() }.ok_or(VerbError::Null("srq_attr"))?;
        let attr =
            SrqAttr { max_wr: given.max_wr, max_sge: given.max_sge, srq_limit: given.srq_limit };
        object.srq.modify(&attr, SrqAttrMask::from_bits_retain(mask.cast_unsigned()))?;
        context.node.settle();
        Ok(())
    })
}

/// `ibv_query_srq`
pub unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    border::number("ibv_query_srq", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { SrqObject::from_c(srq) }?;
        if attr.is_null() {
            return Err(VerbError::Null("srq_attr"));
        }
        // SAFETY: the ABI's contract: a place for the attributes.
        unsafe { attr.write(to_c(&object.srq.query())) };
        Ok(())
    })
}

/// `ibv_get_srq_num`, through `verbs_context`: what the sending ends of XRC connections name it by.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    border::number("ibv_get_srq_num", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { SrqObject::from_c(srq) }?;
        if number.is_null() {
            return Err(VerbError::Null("srq_num"));
        }
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

/// `ibv_destroy_srq`: EBUSY while queue pairs use it; waits until its events are acknowledged.
pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    border::number("ibv_destroy_srq", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { SrqObject::from_c(srq) }?;
        if context.is_inherited() {
            return Ok(());
        }
        context.device().destroy_srq(&object.srq)?;
        context.owned().srqs.remove(&EventObject::Srq(object.srq.id()));
        context.disown(EventObject::Srq(object.srq.id()));
        // SAFETY: handed out by `create`; the program does not use it again.
        unsafe { live::take_back(srq.cast::<SrqObject>()) };
        Ok(())
    })
}

fn to_c(attr: &SrqAttr) -> ibv_srq_attr {
    ibv_srq_attr { max_wr: attr.max_wr, max_sge: attr.max_sge, srq_limit: attr.srq_limit }
}
