//! Limits of a device, as `ibv_query_device` reports them.
//!
//! The values are those of `rdma_rxe` (`rxe_param.h`) where programs may depend on them.
//!
//! A new limit begins with a row of the table here. Programs read the limit through
//! `verbs-api/abi/src/attributes.rs` and `tools/urxe/src/cmd/devinfo/attributes.rs`.

use crate::attr::PathMtu;
use urxe_wire::FlushIcrc;

/// Defines a struct whose fields state their default.
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
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Limits {
        /// Largest message in bytes.
        max_msg_sz: u64 = 1 << 31;
        /// Largest memory region in bytes.
        max_mr_size: u64 = u64::MAX;
        /// Number of queue pairs.
        max_qp: u32 = crate::qpn::MAX_QPS - 16;
        /// Number of work requests in a queue.
        max_qp_wr: u32 = 1 << 20;
        /// Number of scatter-gather entries in a work request.
        max_sge: u32 = 32;
        /// Number of inline bytes in a work request.
        max_inline_data: u32 = 1024;
        /// Number of completion queues.
        max_cq: u32 = 1 << 20;
        /// Number of entries in a completion queue.
        max_cqe: u32 = 1 << 22;
        /// Number of memory regions.
        max_mr: u32 = 524_287;
        /// Number of memory windows.
        max_mw: u32 = 524_287;
        /// Number of pages in a fast-registration region.
        max_fast_reg_page_list_len: u32 = 512;
        /// Total device memory in bytes.
        max_dm_size: u64 = 1 << 20;
        /// Number of address handles.
        max_ah: u32 = 1 << 20;
        /// Number of multicast groups.
        max_mcast_grp: u32 = 8192;
        /// Number of queue pairs attached to one multicast group.
        max_mcast_qp_attach: u32 = 56;
        /// Total number of attachments of queue pairs to multicast groups.
        max_total_mcast_qp_attach: u32 = 0x7_0000;
        /// Number of protection domains.
        max_pd: u32 = 1 << 20;
        /// Number of shared receive queues.
        max_srq: u32 = 1 << 16;
        /// Number of receives in a shared receive queue.
        max_srq_wr: u32 = 1 << 20;
        /// Number of scatter-gather entries in a shared receive queue's receives.
        max_srq_sge: u32 = 32;
        /// Number of XRC domains.
        max_xrcd: u32 = 1 << 16;
        /// Number of outstanding READs and atomics that target a queue pair.
        max_qp_rd_atom: u8 = 128;
        /// Number of outstanding READs and atomics that a queue pair initiates.
        max_qp_init_rd_atom: u8 = 128;
        /// Number of entries in the P_Key table.
        max_pkeys: u16 = 1;
        /// Largest path MTU.
        max_mtu: PathMtu = PathMtu::Mtu4096;
        /// Whether packets set M (migrated). Some adapters expect 1, the kernel's `rdma_rxe` sends
        /// 0.
        mig_req: bool = false;
        /// The ICRC of FLUSH packets that are sent.
        flush_icrc: FlushIcrc = FlushIcrc::Rxe;
    }
}

impl Limits {
    /// Returns the limits for a process with this number of file descriptors, because each
    /// multicast group of the device needs a descriptor.
    #[must_use]
    pub fn within_descriptors(self, descriptors: u64) -> Self {
        let groups = u32::try_from(descriptors).unwrap_or(u32::MAX);
        Self { max_mcast_grp: self.max_mcast_grp.min(groups), ..self }
    }

    /// Returns the limits that concern memory.
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

/// Limits of a memory table. Of larger values, the table uses 917,504 regions and about 3.8 million
/// windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryLimits {
    /// Number of regions, including fast-registration regions.
    pub max_mr: u32,
    /// Largest region in bytes.
    pub max_mr_size: u64,
    /// Number of windows.
    pub max_mw: u32,
    /// Number of pages in a fast-registration region.
    pub max_pages: u32,
    /// Total device memory in bytes.
    pub max_dm: u64,
}
