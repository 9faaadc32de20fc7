//! Rights to memory: access flags, accessors, memory windows and binds.

use urxe_wire::{Lkey, Qpn, Rkey};

use crate::ids::PdId;

bitflags::bitflags! {
    /// The rights that a region grants or an access needs, with libibverbs' values
    /// (`ibv_access_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Local work requests may write the region (receives, READ responses, atomic results).
        const LOCAL_WRITE = 1;
        /// Peers may write the region.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read the region.
        const REMOTE_READ = 1 << 2;
        /// Peers may execute atomic operations on the region.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses of the region start at 0.
        const ZERO_BASED = 1 << 5;
        /// The pages of the region may be absent. Accesses use system calls that report absent
        /// pages. Atomic operations and ATOMIC WRITE use a helper process that shares the address
        /// space, which costs tens of microseconds for each.
        ///
        /// Where the system does not allow a helper (a filter, valgrind), these are instructions on
        /// a page that was checked before. If the page disappears in between, the process receives
        /// SIGSEGV or SIGBUS.
        const ON_DEMAND = 1 << 6;
        /// The region uses huge pages. This flag has no effect.
        const HUGETLB = 1 << 7;
        /// Peers may flush the region to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush the region to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Placement may be reordered. This flag has no effect. It is the first optional flag (bits
        /// 20 to 29). Unknown optional flags are ignored.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The bits that a provider may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    pub const OPTIONAL: u32 = 0x3ff0_0000;

    /// The rights that let a peer change memory.
    pub const REMOTE_CHANGE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
}

/// The user of a key: a queue pair of a protection domain, or the domain alone. Only type 2 windows
/// require a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The protection domain.
    pub pd: PdId,
    /// The queue pair, if any.
    pub qpn: Option<Qpn>,
}

impl From<PdId> for Accessor {
    fn from(pd: PdId) -> Self {
        Self { pd, qpn: None }
    }
}

/// Returns `key` with its low 8 bits incremented (`ibv_inc_rkey`).
///
/// Binding or registering with the new key makes the old key of the region or window stale.
#[must_use]
pub const fn inc_rkey(key: Rkey) -> Rkey {
    Rkey(key.0 & !0xff | (key.0.wrapping_add(1) & 0xff))
}

/// The type of a memory window (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MwType {
    /// A window that belongs to a protection domain.
    Type1 = 1,
    /// A window that belongs to a protection domain and, while bound, to a queue pair (type 2B).
    Type2 = 2,
}

/// The parameters of a bind (`struct ibv_send_wr`, `bind_mw`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Current key of the window. For windows with a handle, the low 8 bits do not matter.
    pub window: Rkey,
    /// New key of the window, of which only the low 8 bits are used.
    pub new_rkey: Rkey,
    /// The region. Ignored if `length` is 0.
    pub region: Lkey,
    /// First address, as work requests name it in the region.
    pub addr: u64,
    /// Length in bytes. 0 unbinds a type 1 window.
    pub length: u64,
    /// The rights of peers.
    pub access: Access,
}
