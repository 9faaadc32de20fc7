//! Queue pairs: creation, states, attributes, destruction and multicast groups.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::Arc;

use urxe_stack::device::QpHandle;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpAttrMask, QpState, QpType};
use urxe_wire::Gid;

use crate::context::Context;
use crate::cq::CqObject;
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::events;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_sge, set_fields,
};
use crate::pd::Domain;
use crate::qp_attr;
use crate::qp_ex::{self, WrBuilder};
use crate::srq::SrqObject;
use crate::xrc::{XrcdObject, XrcdUse};

/// `IBV_QPT_RAW_PACKET`
const RAW_PACKET: u32 = 8;
/// `IBV_QPT_DRIVER`
const DRIVER: u32 = 0xff;
/// `IBV_QP_INIT_ATTR_PD`
const WITH_PD: u32 = 1;
/// `IBV_QP_INIT_ATTR_XRCD`
const WITH_XRCD: u32 = 1 << 1;
/// `IBV_QP_INIT_ATTR_CREATE_FLAGS`
const WITH_CREATE_FLAGS: u32 = 1 << 2;
/// `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`
const WITH_SEND_OPS: u32 = 1 << 6;

/// A queue pair, beginning with its C structure. The structure is always the extended one, whose
/// beginning is the plain one.
#[repr(C)]
pub struct QpObject {
    c: UnsafeCell<ibv_qp_ex>,
    pub handle: QpHandle,
    pub qp_type: QpType,
    sq_sig_all: bool,
    /// The work request builder, if the queue pair was created with one.
    pub build: Option<WrBuilder>,
    /// For a target queue pair: the use of the XRC domain handle.
    _xrcd_use: Option<XrcdUse>,
}

handle_registry::object!(pub QpObject, ibv_qp, "qp");

/// `ibv_create_qp`: stores the real queue sizes in `attr`.
pub unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    ffi::return_ptr("ibv_create_qp", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("qp_init_attr"))?;
        // SAFETY: the ABI's contract.
        unsafe { create(pd, attr, None) }
    })
}

/// `ibv_create_qp_ex`, through `verbs_context`
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    ffi::return_ptr("ibv_create_qp_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(VerbError::Null("qp_init_attr_ex"))?;
        let offered = WITH_PD | WITH_XRCD | WITH_CREATE_FLAGS | WITH_SEND_OPS;
        check_bits("comp_mask", attr.comp_mask.into(), offered.into())?;
        if attr.comp_mask & WITH_CREATE_FLAGS != 0 {
            check_bits("create_flags", attr.create_flags.into(), 0)?;
        }
        if attr.qp_type == u32::from(QpType::XrcRecv.number()) {
            // SAFETY: the ABI's contract.
            return unsafe { create_target(context, attr) };
        }
        if attr.comp_mask & WITH_PD == 0 {
            return Err(VerbError::Null("pd"));
        }
        let send_ops = (attr.comp_mask & WITH_SEND_OPS != 0).then_some(attr.send_ops_flags);
        // SAFETY: the structure consists of integers and pointers, for which zero is valid.
        let mut plain: ibv_qp_init_attr = unsafe { zeroed() };
        set_fields!(plain, attr; qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
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
    let qp_type = match (QpType::from_number(attr.qp_type), attr.qp_type) {
        // Only the extended call creates the receiving end of an XRC connection.
        (Some(qp_type), _) if qp_type != QpType::XrcRecv => qp_type,
        (_, RAW_PACKET | DRIVER) => return Err(VerbError::Unsupported("this qp_type")),
        (_, given) => {
            let allowed =
                "an enum ibv_qp_type is needed, and for IBV_QPT_XRC_RECV ibv_create_qp_ex";
            return Err(VerbError::value("qp_type", given, allowed));
        }
    };
    // The sending end of an XRC connection receives nothing, and programs pass no receive queue.
    let recv_cq = if qp_type == QpType::XrcSend { attr.send_cq } else { attr.recv_cq };
    // SAFETY: the ABI's contract.
    let (domain, context) = unsafe { Domain::from_c(pd) }?;
    // SAFETY: the ABI's contract, for all objects that the arguments name.
    let (send_cq, recv_cq, srq) = unsafe {
        let srq = match attr.srq.is_null() {
            true => None,
            false => Some(Arc::clone(&SrqObject::from_c_in(context, "srq", attr.srq)?.srq)),
        };
        let send_cq = CqObject::from_c_in(context, "send_cq", attr.send_cq)?;
        (send_cq, CqObject::from_c_in(context, "recv_cq", recv_cq)?, srq)
    };
    if let Some(given) = send_ops {
        qp_ex::check_ops(qp_type, given)?;
    }
    let mut cap = qp_attr::cap_from_c(&attr.cap);
    // As in rdma_rxe (rxe_qp_init_req), inline data may have at least the size of the
    // scatter-gather list. rdma-core's examples send inline data without a request for inline room.
    let entries = cap.max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32);
    cap.max_inline_data =
        cap.max_inline_data.max(entries.min(context.device().limits().max_inline_data));
    let handle = context.device().create_qp(&QpInit {
        qp_type,
        pd: domain.id,
        send_cq: Arc::clone(&send_cq.cq),
        recv_cq: Arc::clone(&recv_cq.cq),
        srq,
        cap,
        sq_sig_all: attr.sq_sig_all != 0,
    })?;
    if let Some(as_xrcd_use) = context.device().query_qp(handle) {
        attr.cap = qp_attr::cap_to_c(&as_xrcd_use.cap);
    }
    // SAFETY: the structure consists of integers, pointers and optional functions, for which zero
    // is valid, and of a mutex and a condition, whose initial value is zero on Linux.
    let mut c: ibv_qp = unsafe { zeroed() };
    // SAFETY: the domain is there, because the new object keeps it.
    c.context = unsafe { (*pd).context };
    set_fields!(c, attr; qp_context, send_cq, recv_cq, srq);
    c.pd = pd;
    Ok(to_ibv_qp(context, c, handle, qp_type, attr.sq_sig_all != 0, send_ops.is_some(), None))
}

/// Creates the receiving end of an XRC connection.
///
/// # Safety
/// The ABI's contract.
unsafe fn create_target(
    context: *mut ibv_context,
    attr: &ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, VerbError> {
    if attr.comp_mask & WITH_XRCD == 0 {
        return Err(VerbError::Null("xrcd"));
    }
    // SAFETY: the ABI's contract.
    let shared = unsafe { Context::from_c(context) }?;
    // SAFETY: the ABI's contract.
    let domain = unsafe { XrcdObject::from_c_in(shared, "xrcd", attr.xrcd) }?;
    let handle = shared.device().create_xrc_target(&domain.xrcd)?;
    // SAFETY: integers, pointers, a mutex and a condition, for all of which zero is valid.
    let mut c: ibv_qp = unsafe { zeroed() };
    c.context = context;
    c.qp_context = attr.qp_context;
    Ok(to_ibv_target(shared, c, handle, domain.add_use()))
}

/// Makes the C structure of the receiving end of an XRC connection, created or opened through a
/// handle of its domain.
pub fn to_ibv_target(
    context: &Context,
    c: ibv_qp,
    handle: QpHandle,
    xrcd_use: XrcdUse,
) -> *mut ibv_qp {
    to_ibv_qp(context, c, handle, QpType::XrcRecv, false, false, Some(xrcd_use))
}

/// Makes the C structure of a queue pair. `builds`: the program may post by the `ibv_wr_*`
/// functions.
fn to_ibv_qp(
    context: &Context,
    mut c: ibv_qp,
    handle: QpHandle,
    qp_type: QpType,
    sq_sig_all: bool,
    builds: bool,
    xrcd_use: Option<XrcdUse>,
) -> *mut ibv_qp {
    c.handle = context.new_handle();
    c.qp_num = handle.qpn().value();
    c.qp_type = qp_type.number().into();
    // SAFETY: integers, pointers and optional functions, for all of which zero is valid, and what
    // `c` has.
    let mut extended: ibv_qp_ex = unsafe { zeroed() };
    extended.qp_base = c;
    let build = builds.then(|| qp_ex::install(&mut extended));
    let object = QpObject {
        c: UnsafeCell::new(extended),
        handle,
        qp_type,
        sq_sig_all,
        build,
        _xrcd_use: xrcd_use,
    };
    let made = handle_registry::into_raw(Box::new(object));
    context.objects().add_qp(handle);
    context.register_events(events::qp_object(handle), made.cast::<c_void>());
    made.cast()
}

/// `ibv_destroy_qp`: waits until the program has acknowledged the events of the queue pair.
pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let end = |object: &QpObject, context: &Context| {
        context.engine().flush_acks(object.handle);
        context.device().destroy_qp(context.engine().now(), object.handle)?;
        context.objects().remove_qp(object.handle);
        context.unregister_events(events::qp_object(object.handle));
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { QpObject::destroy("ibv_destroy_qp", qp, end) }
}

/// Returns the attributes that only the other end of an XRC connection has. The kernel removes them
/// before it checks the mask (drivers/infiniband/core/uverbs_cmd.c), because perftest passes the
/// same attributes at both ends.
const fn of_other_end(qp_type: QpType) -> QpAttrMask {
    match qp_type {
        QpType::XrcSend => QpAttrMask::MAX_DEST_RD_ATOMIC.union(QpAttrMask::MIN_RNR_TIMER),
        QpType::XrcRecv => {
            QpAttrMask::MAX_QP_RD_ATOMIC.union(QpAttrMask::RETRY_CNT).union(QpAttrMask::RNR_RETRY)
        }
        _ => QpAttrMask::empty(),
    }
}

/// `ibv_modify_qp`
pub unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    ffi::return_errno("ibv_modify_qp", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        // SAFETY: the ABI's contract.
        let given = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        let mask = mask.cast_unsigned();
        let unknown = mask & !QpAttrMask::all().bits();
        if unknown != 0 {
            return Err(VerbError::Bits {
                field: "attr_mask",
                given: mask.into(),
                unknown: unknown.into(),
            });
        }
        let mask = QpAttrMask::from_bits_truncate(mask) - of_other_end(object.qp_type);
        let attr = qp_attr::from_c(given, mask)?;
        if mask.contains(QpAttrMask::STATE)
            && matches!(attr.qp_state, QpState::Err | QpState::Reset)
        {
            // Sends acknowledgements that wait for a reply, as before the destruction of a queue
            // pair. rdma_disconnect follows the last message at once, and the peer would otherwise
            // wait for its acknowledgement.
            let _nothing_to_refuse = context.engine().post_send(object.handle, &[]);
        }
        context.engine().modify_qp(object.handle, &attr, mask)?;
        context.deliver_events();
        if mask.contains(QpAttrMask::STATE) {
            // SAFETY: the ABI's contract; the field is an integer.
            unsafe { ffi::store_field(&raw mut (*qp).state, given.qp_state) };
        }
        Ok(())
    })
}

/// `ibv_query_qp`: stores all attributes, whichever bits the mask has. As in libibverbs (verbs.c),
/// the state in the structure of the queue pair changes only if the mask has the state.
pub unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    ffi::return_errno("ibv_query_qp", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c(qp) }?;
        // The mask covers all bits up to the last attribute, because rdma-core's tests pass all of
        // them.
        let known = (QpAttrMask::RATE_LIMIT.bits() << 1) - 1;
        check_bits("attr_mask", mask.cast_unsigned().into(), known.into())?;
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
            if QpAttrMask::from_bits_truncate(mask.cast_unsigned()).contains(QpAttrMask::STATE) {
                ffi::store_field(&raw mut (*qp).state, found.qp_state.number().into());
            }
        }
        Ok(())
    })
}

/// `ibv_qp_to_qp_ex`: returns NULL unless the queue pair was created with `send_ops_flags`.
pub unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the ABI's contract.
    match unsafe { QpObject::from_c(qp) } {
        Ok((object, _)) if object.build.is_some() => qp.cast(),
        _ => std::ptr::null_mut(),
    }
}

/// `ibv_query_ece`: reports no enhancements.
pub unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    ffi::return_errno("ibv_query_ece", || Err(VerbError::Unsupported("connection enhancement")))
}

/// `ibv_set_ece`
pub unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    ffi::return_errno("ibv_set_ece", || Err(VerbError::Unsupported("connection enhancement")))
}

/// `ibv_query_qp_data_in_order`: a program that polls memory may rely only on the last byte of a
/// message.
pub unsafe extern "C" fn query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: c_int,
    _flags: u32,
) -> c_int {
    0
}

/// A `union ibv_gid` as bytes, because the program's GID may be unaligned.
type GidBytes = [u8; 16];

/// `ibv_attach_mcast`: the LID of the group has no meaning on Ethernet.
pub unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, group: *const GidBytes, _lid: u16) -> c_int {
    ffi::return_errno("ibv_attach_mcast", || {
        // SAFETY: the ABI's contract.
        let ((object, context), group) = unsafe { (QpObject::from_c(qp)?, group_from_c(group)?) };
        Ok(context.device().attach_mcast(object.handle, group)?)
    })
}

/// `ibv_detach_mcast`
pub unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, group: *const GidBytes, _lid: u16) -> c_int {
    ffi::return_errno("ibv_detach_mcast", || {
        // SAFETY: the ABI's contract.
        let ((object, context), group) = unsafe { (QpObject::from_c(qp)?, group_from_c(group)?) };
        Ok(context.device().detach_mcast(object.handle, group)?)
    })
}

/// Reads the GID of a group.
///
/// # Safety
/// The ABI's contract: `group` is NULL or points to a GID.
unsafe fn group_from_c(group: *const GidBytes) -> Result<Gid, VerbError> {
    // SAFETY: as above; bytes have no alignment.
    unsafe { group.as_ref() }.map(|bytes| Gid(*bytes)).ok_or(VerbError::Null("gid"))
}
