//! Device attributes: `ibv_query_device`, `ibv_query_device_ex`, `ibv_query_rt_values_ex`.
//!
//! Numbers come from the limits of the stack; the number of an unsupported resource is 0. Identity
//! and constants are those of the kernel's `rdma_rxe` (`rxe_param.h`), which programs may check, or
//! of the device's profile.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, zeroed};

use urxe_stack::qp::attr::PathMtu;

use crate::context::Context;
use crate::devices::copy_text;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_odp_caps, ibv_values_ex, set_fields,
};

/// The vendor ID of `rdma_rxe`, which no vendor has.
const VENDOR_ID: u32 = 0x00ff_ffff;
/// `IBV_DEVICE_BAD_PKEY_CNTR`, `IBV_DEVICE_BAD_QKEY_CNTR`, `IBV_DEVICE_UD_AV_PORT_ENFORCE` (an
/// address handle of another port than 1 is refused), `IBV_DEVICE_CURR_QP_STATE_MOD`,
/// `IBV_DEVICE_PORT_ACTIVE_EVENT`
const PORT_CAPS: u32 = 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 10;
/// `IBV_DEVICE_SYS_IMAGE_GUID`, `IBV_DEVICE_RC_RNR_NAK_GEN`, `IBV_DEVICE_SRQ_RESIZE`,
/// `IBV_DEVICE_MEM_WINDOW`, `IBV_DEVICE_XRC`, `IBV_DEVICE_MEM_MGT_EXTENSIONS`,
/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`
const CAP_FLAGS: u32 =
    PORT_CAPS | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24;
/// Flush to global visibility, flush to persistence, ATOMIC WRITE (`IB_UVERBS_DEVICE_*` of the
/// kernel's ib_user_verbs.h).
const CAP_FLAGS_EX: u64 = 1 << 38 | 1 << 39 | 1 << 40;
/// `IBV_ODP_SUPPORT_*`: SEND, RECV, WRITE, READ, atomics, shared receive queue.
const ALL_ODP: u32 = 0x3f;
/// `IBV_ODP_SUPPORT_FLUSH`, `IBV_ODP_SUPPORT_ATOMIC_WRITE`
const NEWER_ODP: u32 = 1 << 6 | 1 << 7;
/// `IBV_ODP_SUPPORT`, `IBV_ODP_SUPPORT_IMPLICIT`, and the operations of each service.
const ODP_CAPS: ibv_odp_caps = ibv_odp_caps {
    general_caps: 1 | 1 << 1,
    rc_odp_caps: ALL_ODP | NEWER_ODP,
    uc_odp_caps: 1 | 1 << 1 | 1 << 2 | 1 << 5,
    ud_odp_caps: 1 | 1 << 1 | 1 << 5,
};
/// Completion timestamps count nanoseconds and use all 64 bits.
const TIMESTAMP_MASK: u64 = u64::MAX;
/// The frequency of the timestamp clock in kHz.
const CORE_CLOCK_KHZ: u64 = 1_000_000;
/// The largest count and period of completion moderation: both fields have 16 bits.
const MODERATION: [u16; 2] = [u16::MAX; 2];
/// `IBV_ATOMIC_HCA`: atomic among all queue pairs of a device.
const ATOMIC_HCA: u32 = 1;
/// The longest delay between a packet's arrival and its acknowledgement: 4.096 µs · 2^15.
const LOCAL_CA_ACK_DELAY: u8 = 15;
/// Pages of 4 KiB and every larger power of two.
const PAGE_SIZE_CAP: u64 = 0xffff_f000;
/// `IBV_VALUES_MASK_RAW_CLOCK`
const RAW_CLOCK: u32 = 1;

/// Converts to `c_int`, clamping to its maximum.
fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

fn attributes(context: &Context) -> ibv_device_attr {
    let limits = context.device().limits();
    let link = context.engine().link();
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut attr: ibv_device_attr = unsafe { zeroed() };
    let profile = link.spec.profile;
    copy_text(&mut attr.fw_ver, profile.map_or(env!("CARGO_PKG_VERSION"), |nic| nic.fw_ver));
    attr.node_guid = link.node_guid.to_bytes();
    attr.sys_image_guid = link.node_guid.to_bytes();
    attr.max_mr_size = limits.max_mr_size;
    attr.page_size_cap = PAGE_SIZE_CAP;
    attr.vendor_id = profile.map_or(VENDOR_ID, |nic| nic.vendor_id);
    attr.vendor_part_id = profile.map_or(0, |nic| nic.vendor_part_id);
    attr.hw_ver = profile.map_or(0, |nic| nic.hw_ver);
    attr.device_cap_flags = CAP_FLAGS & profile.map_or(u32::MAX, |nic| nic.cap_flags);
    set_fields!(attr, limits, int; max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd);
    set_fields!(attr, limits, int; max_qp_rd_atom, max_qp_init_rd_atom, max_mw, max_ah);
    set_fields!(attr, limits, int; max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach);
    set_fields!(attr, limits, int; max_srq, max_srq_wr, max_srq_sge);
    attr.max_sge_rd = attr.max_sge;
    attr.max_res_rd_atom = int(u64::from(limits.max_qp_rd_atom) * u64::from(limits.max_qp));
    attr.atomic_cap = ATOMIC_HCA;
    attr.max_pkeys = limits.max_pkeys;
    attr.local_ca_ack_delay = LOCAL_CA_ACK_DELAY;
    attr.phys_port_cnt = 1;
    attr
}

/// `ibv_query_device`, which is also `ops._compat_query_device`.
pub unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    ffi::return_errno("ibv_query_device", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        ffi::non_null(attr, "device_attr")?;
        // SAFETY: the ABI's contract: a place for the attributes.
        unsafe { attr.write(attributes(context)) };
        Ok(())
    })
}

/// `ibv_query_device_ex`: fills `attr_size` bytes. The program's header may be older or newer than
/// this library, so the size differs.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    ffi::return_errno("ibv_query_device_ex", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        ffi::non_null(attr, "attr")?;
        if attr_size < offset_of!(ibv_device_attr_ex, comp_mask) {
            let allowed = "it must be at least the size of struct ibv_device_attr";
            return Err(VerbError::value("attr_size", attr_size as u64, allowed));
        }
        // SAFETY: the structure consists of integers, for which zero is valid.
        let mut all: ibv_device_attr_ex = unsafe { zeroed() };
        all.orig_attr = attributes(context);
        let profile = context.engine().link().spec.profile;
        all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags)
            | CAP_FLAGS_EX & profile.map_or(u64::MAX, |nic| nic.cap_flags_ex);
        all.odp_caps = ODP_CAPS;
        all.xrc_odp_caps = ALL_ODP;
        all.completion_timestamp_mask = TIMESTAMP_MASK;
        all.hca_core_clock = CORE_CLOCK_KHZ;
        all.cq_mod_caps = MODERATION;
        all.max_dm_size = context.device().limits().max_dm_size;
        all.phys_port_cnt_ex = 1;
        // SAFETY: the ABI's contract: attr_size bytes are the program's.
        unsafe { ffi::write_prefix(attr, attr_size, &all) };
        Ok(())
    })
}

/// `ibv_query_rt_values_ex`: reads the clock of completion timestamps.
pub unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    ffi::return_errno("ibv_query_rt_values_ex", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        // SAFETY: the ABI's contract: NULL or the program's own structure.
        let values = unsafe { values.as_mut() }.ok_or(VerbError::Null("values"))?;
        let unknown = values.comp_mask & !RAW_CLOCK;
        if unknown != 0 {
            let given = values.comp_mask.into();
            return Err(VerbError::Bits { field: "comp_mask", given, unknown: unknown.into() });
        }
        if values.comp_mask & RAW_CLOCK != 0 {
            let now = context.engine().now().as_ns();
            values.raw_clock.tv_sec = (now / 1_000_000_000).cast_signed();
            values.raw_clock.tv_nsec = (now % 1_000_000_000).cast_signed();
        }
        Ok(())
    })
}

/// Returns the `enum ibv_mtu` of an MTU.
pub fn mtu(mtu: PathMtu) -> u32 {
    mtu.number().into()
}
