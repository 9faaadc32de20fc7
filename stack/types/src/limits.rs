//! What a device can do, as `ibv_query_device` reports it. The numbers are `rdma_rxe`'s
//! (`rxe_param.h`) where a program may have come to rely on them.

use crate::attr::PathMtu;
use urxe_wire::FlushIcrc;

/// Defines the limits, each with its default.
macro_rules! limits {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* $limit:ident: $type:ty = $default:expr;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $limit: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($limit: $default,)* }
            }
        }
    };
}

limits! {
    /// The limits of a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Longest message in bytes.
        max_msg_sz: u64 = 1 << 31;
        /// Longest region in bytes.
        max_mr_size: u64 = u64::MAX;
        /// Queue pairs.
        max_qp: u32 = crate::qpn::MAX_QPS - 16;
        /// Work requests of one queue.
        max_qp_wr: u32 = 1 << 20;
        /// Scatter-gather entries of a work request.
        max_sge: u32 = 32;
        /// Bytes of inline data.
        max_inline_data: u32 = 1024;
        /// Completion queues.
        max_cq: u32 = 1 << 20;
        /// Entries of a completion queue.
        max_cqe: u32 = 1 << 22;
        /// Regions.
        max_mr: u32 = 524_287;
        /// Memory windows.
        max_mw: u32 = 524_287;
        /// Pages of a fast-registration region.
        max_fast_reg_page_list_len: u32 = 512;
        /// Bytes of device memory in all.
        max_dm_size: u64 = 1 << 20;
        /// Address handles.
        max_ah: u32 = 1 << 20;
        /// Multicast groups.
        max_mcast_grp: u32 = 8192;
        /// Queue pairs attached to one multicast group.
        max_mcast_qp_attach: u32 = 56;
        /// Attachments of queue pairs to multicast groups, in all.
        max_total_mcast_qp_attach: u32 = 0x7_0000;
        /// Protection domains.
        max_pd: u32 = 1 << 20;
        /// Shared receive queues.
        max_srq: u32 = 1 << 16;
        /// Receives of a shared receive queue.
        max_srq_wr: u32 = 1 << 20;
        /// Scatter-gather entries of a shared receive queue's receives.
        max_srq_sge: u32 = 32;
        /// XRC domains.
        max_xrcd: u32 = 1 << 16;
        /// READs and atomics outstanding towards a queue pair.
        max_qp_rd_atom: u8 = 128;
        /// READs and atomics outstanding from a queue pair.
        max_qp_init_rd_atom: u8 = 128;
        /// Entries of the P_Key table.
        max_pkeys: u16 = 1;
        /// Largest path MTU.
        max_mtu: PathMtu = PathMtu::Mtu4096;
        /// Set M (migrated) in packets: some NICs want it, the kernel's `rdma_rxe` leaves it clear.
        mig_req: bool = false;
        /// What the ICRC of the FLUSHes that are sent covers: what `rdma_rxe` wants, or what the
        /// specification says.
        flush_icrc: FlushIcrc = FlushIcrc::Rxe;
    }
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
