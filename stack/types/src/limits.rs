//! What a device can do, as `ibv_query_device` reports it. The numbers are `rdma_rxe`'s
//! (`rxe_param.h`) where a program may have come to rely on them.

use crate::attr::PathMtu;
use urxe_wire::FlushIcrc;

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest message in bytes.
    pub max_msg_sz: u64,
    /// Longest region in bytes.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Scatter-gather entries of a work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Regions.
    pub max_mr: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Pages of a fast-registration region.
    pub max_fast_reg_page_list_len: u32,
    /// Bytes of device memory in all.
    pub max_dm_size: u64,
    /// Address handles.
    pub max_ah: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Attachments of queue pairs to multicast groups, in all.
    pub max_total_mcast_qp_attach: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter-gather entries of a shared receive queue's receives.
    pub max_srq_sge: u32,
    /// XRC domains.
    pub max_xrcd: u32,
    /// READs and atomics outstanding towards a queue pair.
    pub max_qp_rd_atom: u8,
    /// READs and atomics outstanding from a queue pair.
    pub max_qp_init_rd_atom: u8,
    /// Entries of the P_Key table.
    pub max_pkeys: u16,
    /// Largest path MTU.
    pub max_mtu: PathMtu,
    /// Set M (migrated) in packets: some NICs want it, the kernel's `rdma_rxe` leaves it clear.
    pub mig_req: bool,
    /// What the ICRC of the FLUSHes that are sent covers: what `rdma_rxe` wants, or what the
    /// specification says.
    pub flush_icrc: FlushIcrc,
}

impl Limits {
    /// The same for a process that may have so many descriptors: each multicast group that the
    /// device joins takes one.
    #[must_use]
    pub fn within_descriptors(self, descriptors: u64) -> Self {
        let groups = u32::try_from(descriptors).unwrap_or(u32::MAX);
        Self { max_mcast_grp: self.max_mcast_grp.min(groups), ..self }
    }

    /// The part of them that is about memory.
    #[must_use]
    pub const fn memory(&self) -> MemoryLimits {
        MemoryLimits {
            max_mr: self.max_mr,
            max_mr_size: self.max_mr_size,
            max_mw: self.max_mw,
            max_pages: self.max_fast_reg_page_list_len,
            max_dm: self.max_dm_size,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_msg_sz: 1 << 31,
            max_mr_size: u64::MAX,
            max_qp: crate::qpn::MAX_QPS - 16,
            max_qp_wr: 1 << 20,
            max_sge: 32,
            max_inline_data: 1024,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 524_287,
            max_mw: 524_287,
            max_fast_reg_page_list_len: 512,
            max_dm_size: 1 << 20,
            max_ah: 1 << 20,
            max_mcast_grp: 8192,
            max_mcast_qp_attach: 56,
            max_total_mcast_qp_attach: 0x7_0000,
            max_pd: 1 << 20,
            max_srq: 1 << 16,
            max_srq_wr: 1 << 20,
            max_srq_sge: 32,
            max_xrcd: 1 << 16,
            max_qp_rd_atom: 128,
            max_qp_init_rd_atom: 128,
            max_pkeys: 1,
            max_mtu: PathMtu::Mtu4096,
            mig_req: false,
            flush_icrc: FlushIcrc::Rxe,
        }
    }
}

/// What a table may hold. Never more than 2²⁴ less 64 objects in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Regions, fast-registration ones included.
    pub max_mr: u32,
    /// Bytes of a region.
    pub max_mr_size: u64,
    /// Windows.
    pub max_mw: u32,
    /// Pages of a fast-registration region.
    pub max_pages: u32,
    /// Bytes of device memory in all.
    pub max_dm: u64,
}
