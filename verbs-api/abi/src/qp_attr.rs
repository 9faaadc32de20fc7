//! Conversion of queue pair attributes from and to C.

use std::mem::zeroed;

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{
    AddressVector, PathMigState, PathMtu, QpAttr, QpAttrMask, QpCap, QpState,
};
use urxe_stack::srq::SrqAttr;
use urxe_wire::{Psn, QKey, Qpn};

use crate::error::VerbError;
use crate::gid;
use crate::layout::{
    ibv_ah_attr, ibv_global_route, ibv_qp_attr, ibv_qp_cap, ibv_srq_attr, set_fields,
};

/// Converts the attributes that `mask` selects; programs leave the others uninitialized.
pub fn from_c(c: &ibv_qp_attr, mask: QpAttrMask) -> Result<QpAttr, VerbError> {
    let mut attr = QpAttr::default();
    let has = |bit| mask.contains(bit);
    if has(QpAttrMask::STATE) {
        attr.qp_state = state(c.qp_state, "qp_state")?;
    }
    if has(QpAttrMask::CUR_STATE) {
        attr.cur_qp_state = state(c.cur_qp_state, "cur_qp_state")?;
    }
    if has(QpAttrMask::PATH_MTU) {
        attr.path_mtu = PathMtu::from_number(c.path_mtu).ok_or_else(|| {
            value("path_mtu", c.path_mtu, "IBV_MTU_256 (1) to IBV_MTU_4096 (5) are allowed")
        })?;
    }
    if has(QpAttrMask::PATH_MIG_STATE) {
        attr.path_mig_state = PathMigState::from_number(c.path_mig_state)
            .ok_or_else(|| value("path_mig_state", c.path_mig_state, "0 to 2 are allowed"))?;
    }
    if has(QpAttrMask::AV) {
        attr.ah = address_from_c(&c.ah_attr);
    }
    if has(QpAttrMask::ALT_PATH) {
        attr.alt_ah = address_from_c(&c.alt_ah_attr);
        set_fields!(attr, c; alt_pkey_index, alt_port_num, alt_timeout);
    }
    if has(QpAttrMask::DEST_QPN) {
        attr.dest_qp_num = Qpn::masked(c.dest_qp_num);
    }
    attr.en_sqd_async_notify = c.en_sqd_async_notify != 0;
    let unknown = c.qp_access_flags & !Access::all().bits() & !Access::OPTIONAL;
    if has(QpAttrMask::ACCESS_FLAGS) && unknown != 0 {
        return Err(value(
            "qp_access_flags",
            c.qp_access_flags,
            "it has bits that no enum ibv_access_flags has",
        ));
    }
    attr.access_flags = Access::from_bits_truncate(c.qp_access_flags);
    attr.qkey = QKey(c.qkey);
    (attr.rq_psn, attr.sq_psn) = (Psn::new(c.rq_psn), Psn::new(c.sq_psn));
    set_fields!(attr, c; pkey_index, port_num, timeout, retry_cnt, rnr_retry, min_rnr_timer);
    set_fields!(attr, c; max_rd_atomic, max_dest_rd_atomic, rate_limit);
    attr.cap = cap_from_c(&c.cap);
    Ok(attr)
}

fn value(field: &'static str, given: u32, allowed: &'static str) -> VerbError {
    VerbError::value(field, given, allowed)
}

fn state(number: u32, field: &'static str) -> Result<QpState, VerbError> {
    QpState::from_number(number)
        .ok_or_else(|| value(field, number, "IBV_QPS_RESET (0) to ERR (6) are allowed"))
}

/// Converts all attributes.
pub fn to_c(attr: &QpAttr) -> ibv_qp_attr {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut c: ibv_qp_attr = unsafe { zeroed() };
    c.qp_state = attr.qp_state.number().into();
    c.cur_qp_state = attr.cur_qp_state.number().into();
    c.path_mtu = attr.path_mtu.number().into();
    c.path_mig_state = attr.path_mig_state.number().into();
    c.qkey = attr.qkey.0;
    (c.rq_psn, c.sq_psn) = (attr.rq_psn.value(), attr.sq_psn.value());
    c.dest_qp_num = attr.dest_qp_num.value();
    c.qp_access_flags = attr.access_flags.bits();
    c.cap = cap_to_c(&attr.cap);
    (c.ah_attr, c.alt_ah_attr) = (address_to_c(&attr.ah), address_to_c(&attr.alt_ah));
    set_fields!(c, attr, u8::from; en_sqd_async_notify, sq_draining);
    set_fields!(c, attr; pkey_index, port_num, timeout, retry_cnt, rnr_retry, min_rnr_timer);
    set_fields!(c, attr; max_rd_atomic, max_dest_rd_atomic, rate_limit);
    set_fields!(c, attr; alt_pkey_index, alt_port_num, alt_timeout);
    c
}

/// Converts an address vector from C.
pub fn address_from_c(c: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        dgid: gid::from_c(c.grh.dgid),
        flow_label: c.grh.flow_label,
        sgid_index: c.grh.sgid_index,
        hop_limit: c.grh.hop_limit,
        traffic_class: c.grh.traffic_class,
        sl: c.sl,
        src_path_bits: c.src_path_bits,
        static_rate: c.static_rate,
        dlid: c.dlid,
        port_num: c.port_num,
        is_global: c.is_global != 0,
    }
}

/// Converts an address vector to C.
pub fn address_to_c(ah: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid::to_c(ah.dgid),
            flow_label: ah.flow_label,
            sgid_index: ah.sgid_index,
            hop_limit: ah.hop_limit,
            traffic_class: ah.traffic_class,
        },
        dlid: ah.dlid,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: ah.is_global.into(),
        port_num: ah.port_num,
    }
}

/// Implements both conversions of structures with equal field names and types.
macro_rules! alike {
    ($from_c:ident, $to_c:ident: $stack:ident, $c:ident { $($field:ident),* }) => {
        pub const fn $from_c(c: &$c) -> $stack {
            $stack { $($field: c.$field),* }
        }

        pub const fn $to_c(stack: &$stack) -> $c {
            $c { $($field: stack.$field),* }
        }
    };
}

alike! {
    cap_from_c, cap_to_c: QpCap, ibv_qp_cap {
        max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data
    }
}
alike! { srq_from_c, srq_to_c: SrqAttr, ibv_srq_attr { max_wr, max_sge, srq_limit } }
