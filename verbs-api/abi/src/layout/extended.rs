//! Queue pairs and completion queues with tables of operations.

use std::ffi::{c_int, c_void};

use super::{Slot, ibv_ah, ibv_cq, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_sge};

type Qpx = *mut ibv_qp_ex;
type Cqx = *mut ibv_cq_ex;

#[repr(C)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(Qpx, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(Qpx, u32, u64, u64)>,
    pub wr_bind_mw: Option<unsafe extern "C" fn(Qpx, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Option<unsafe extern "C" fn(Qpx, u32)>,
    pub wr_rdma_read: Option<unsafe extern "C" fn(Qpx, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(Qpx, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(Qpx, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(Qpx)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(Qpx, u32)>,
    pub wr_send_inv: Option<unsafe extern "C" fn(Qpx, u32)>,
    pub wr_send_tso: Option<unsafe extern "C" fn(Qpx, *mut c_void, u16, u16)>,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(Qpx, *mut ibv_ah, u32, u32)>,
    pub wr_set_xrc_srqn: Option<unsafe extern "C" fn(Qpx, u32)>,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(Qpx, *const c_void, usize)>,
    pub wr_set_inline_data_list: Option<unsafe extern "C" fn(Qpx, usize, *const ibv_data_buf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(Qpx, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(Qpx, usize, *const ibv_sge)>,
    pub wr_start: Option<unsafe extern "C" fn(Qpx)>,
    pub wr_complete: Option<unsafe extern "C" fn(Qpx) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(Qpx)>,
    pub wr_atomic_write: Option<unsafe extern "C" fn(Qpx, u32, u64, *const c_void)>,
    /// From rdma-core 45 on.
    pub wr_flush: Option<unsafe extern "C" fn(Qpx, u32, u64, usize, u8, u8)>,
}

#[repr(C)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(Cqx, *mut c_void) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(Cqx) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(Cqx)>,
    pub read_opcode: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_vendor_err: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_slid: Option<unsafe extern "C" fn(Cqx) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(Cqx) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(Cqx) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(Cqx) -> u64>,
    pub read_cvlan: Slot,
    pub read_flow_tag: Slot,
    pub read_tm_info: Slot,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(Cqx) -> u64>,
}
