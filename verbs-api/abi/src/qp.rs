//! Queue pairs: creating, changing, asking, destroying.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::Arc;

use urxe_stack::device::QpHandle;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpAttrMask, QpType};

use crate::border;
use crate::context::Context;
use crate::cq::CqObject;
use crate::cq_ex::refuse_bits;
use crate::error::VerbError;
use crate::events;
use crate::layout::{
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::pd::PdObject;
use crate::qp_attr;
use crate::qp_ex::{self, Build};
use crate::srq::SrqObject;

/// `IBV_QP_INIT_ATTR_PD`
const WITH_PD: u32 = 1;
/// `IBV_QP_INIT_ATTR_CREATE_FLAGS`
const WITH_CREATE_FLAGS: u32 = 1 << 2;
/// `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`
const WITH_SEND_OPS: u32 = 1 << 6;

/// A queue pair, with what C sees of it in front: always the extended form, whose beginning is the plain one.
#[repr(C)]
pub struct QpObject {
    c: UnsafeCell<ibv_qp_ex>,
    pub handle: QpHandle,
    sq_sig_all: bool,
    /// The work requests being built, if it was created for that.
    pub build: Option<Build>,
}

impl QpObject {
    /// The queue pair that a program means, and its context.
    ///
    /// # Safety
    /// The ABI's contract: `qp` is NULL, or created and not destroyed while the result is used.
    pub unsafe fn from_c<'a>(qp: *mut ibv_qp) -> Result<(&'a Self, &'a Context), VerbError> {
        // SAFETY: it came from `create`, so it is the first field of a QpObject in an open context.
        unsafe {
            let object = qp.cast::<Self>().as_ref().ok_or(VerbError::Null("qp"))?;
            Ok((object, Context::of_object((*qp).context)))
        }
    }
}

/// `ibv_create_qp`: writes the sizes that the queues really have into `attr`.
pub unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    border::pointer("ibv_create_qp", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("qp_init_attr"))?;
        // SAFETY: the ABI's contract.
        unsafe { create(pd, attr, None) }
    })
}

/// `ibv_create_qp_ex`, through `verbs_context`
pub unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    border::pointer("ibv_create_qp_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("qp_init_attr_ex"))?;
        let offered = WITH_PD | WITH_CREATE_FLAGS | WITH_SEND_OPS;
        refuse_bits("comp_mask", attr.comp_mask.into(), offered.into())?;
        if attr.comp_mask & WITH_PD == 0 {
            return Err(VerbError::Null("pd"));
        }
        if attr.comp_mask & WITH_CREATE_FLAGS != 0 {
            refuse_bits("create_flags", attr.create_flags.into(), 0)?;
        }
        let send_ops = (attr.comp_mask & WITH_SEND_OPS != 0).then_some(attr.send_ops_flags);
        let mut plain = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        // SAFETY: the ABI's contract.
        let qp = unsafe { create(attr.pd, &mut plain, send_ops) }?;
        attr.cap = plain.cap;
        Ok(qp)
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    send_ops: Option<u64>,
) -> Result<*mut ibv_qp, VerbError> {
    // SAFETY: the ABI's contract, for all objects that the arguments name.
    let ((domain, context), (send_cq, _), (recv_cq, _)) =
        unsafe { (PdObject::from_c(pd)?, CqObject::from_c(attr.send_cq)?, CqObject::from_c(attr.recv_cq)?) };
    let qp_type = QpType::from_number(attr.qp_type).ok_or(VerbError::Unsupported("this qp_type"))?;
    // SAFETY: the ABI's contract.
    let srq = match unsafe { SrqObject::from_c(attr.srq) } {
        Ok((object, _)) => Some(Arc::clone(&object.srq)),
        Err(_) => None,
    };
    if let Some(given) = send_ops {
        qp_ex::check(qp_type, given)?;
    }
    let handle = context.device().create_qp(&QpInit {
        qp_type,
        pd: domain.id,
        send_cq: Arc::clone(&send_cq.cq),
        recv_cq: Arc::clone(&recv_cq.cq),
        srq,
        cap: qp_attr::cap_from_c(&attr.cap),
        sq_sig_all: attr.sq_sig_all != 0,
    })?;
    if let Some(as_made) = context.device().query_qp(handle) {
        attr.cap = qp_attr::cap_to_c(&as_made.cap);
    }
    // SAFETY: the structure consists of integers, pointers and optional functions, for which zero is valid, and of a mutex and a
    // condition, whose initial value is zero on Linux.
    let mut c: ibv_qp_ex = unsafe { zeroed() };
    // SAFETY: from_c found the protection domain there.
    c.qp_base.context = unsafe { (*pd).context };
    c.qp_base.qp_context = attr.qp_context;
    c.qp_base.pd = pd;
    c.qp_base.send_cq = attr.send_cq;
    c.qp_base.recv_cq = attr.recv_cq;
    c.qp_base.srq = attr.srq;
    c.qp_base.handle = context.new_handle();
    c.qp_base.qp_num = handle.qpn().value();
    c.qp_base.qp_type = attr.qp_type;
    let build = send_ops.map(|_| qp_ex::fill(&mut c));
    let sq_sig_all = attr.sq_sig_all != 0;
    let made = Box::into_raw(Box::new(QpObject { c: UnsafeCell::new(c), handle, sq_sig_all, build }));
    context.owned().qps.insert(handle);
    context.adopt(events::of_qp(handle), made.cast::<c_void>());
    Ok(made.cast())
}

/// `ibv_destroy_qp`: waits until its events are acknowledged.
pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    border::number("ibv_destroy_qp", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        if context.is_inherited() {
            return Ok(());
        }
        // Posting nothing sends what is ready: an acknowledgement may still wait for a reply to go along with, and the peer
        // would ask for it in vain.
        let _nothing_to_refuse = context.node.engine.post_send(object.handle, &[]);
        context.device().destroy_qp(context.node.engine.now(), object.handle)?;
        context.owned().qps.remove(&object.handle);
        context.disown(events::of_qp(object.handle));
        // SAFETY: made by Box::into_raw in `create`; the program does not use it again.
        drop(unsafe { Box::from_raw(qp.cast::<QpObject>()) });
        Ok(())
    })
}

/// `ibv_modify_qp`
pub unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    border::number("ibv_modify_qp", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        // SAFETY: the ABI's contract.
        let given = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        let mask = mask.cast_unsigned();
        let unknown = mask & !QpAttrMask::all().bits();
        if unknown != 0 {
            let allowed = "it has bits that no attribute has";
            return Err(VerbError::Value { field: "attr_mask", given: mask.into(), allowed });
        }
        let mask = QpAttrMask::from_bits_truncate(mask);
        let attr = qp_attr::from_c(given, mask)?;
        context.node.engine.modify_qp(object.handle, &attr, mask)?;
        context.node.settle();
        if mask.contains(QpAttrMask::STATE) {
            // SAFETY: the ABI's contract; who reads the field reads an integer.
            unsafe { (&raw mut (*qp).state).write(given.qp_state) };
        }
        Ok(())
    })
}

/// `ibv_query_qp`: all attributes, whatever the mask asks for.
pub unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    border::number("ibv_query_qp", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        let found = context.device().query_qp(object.handle);
        let found = found.ok_or(urxe_stack::device::DestroyQpError::NoQp)?;
        // SAFETY: the ABI's contract: NULL or places for the results; the queue pair is there.
        unsafe {
            if !attr.is_null() {
                attr.write(qp_attr::to_c(&found));
            }
            if !init_attr.is_null() {
                init_attr.write(ibv_qp_init_attr {
                    qp_context: (*qp).qp_context,
                    send_cq: (*qp).send_cq,
                    recv_cq: (*qp).recv_cq,
                    srq: (*qp).srq,
                    cap: qp_attr::cap_to_c(&found.cap),
                    qp_type: (*qp).qp_type,
                    sq_sig_all: object.sq_sig_all.into(),
                });
            }
            (&raw mut (*qp).state).write(found.qp_state.number().into());
        }
        Ok(())
    })
}

/// `ibv_qp_to_qp_ex`: NULL unless the queue pair was created with `send_ops_flags`.
pub unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the ABI's contract.
    match unsafe { QpObject::from_c(qp) } {
        Ok((object, _)) if object.build.is_some() => qp.cast(),
        _ => std::ptr::null_mut(),
    }
}

/// `ibv_query_ece`: there are no enhancements to tell of.
pub unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    border::number("ibv_query_ece", || Err(VerbError::Unsupported("connection enhancement")))
}

/// `ibv_set_ece`
pub unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    border::number("ibv_set_ece", || Err(VerbError::Unsupported("connection enhancement")))
}

/// `ibv_query_qp_data_in_order`: a program that polls memory may rely on the last byte of a message alone.
pub unsafe extern "C" fn query_qp_data_in_order(_qp: *mut ibv_qp, _op: c_int, _flags: u32) -> c_int {
    0
}
