//! Rights to memory: what a region grants, who asks, and what a window is bound to.

use urxe_wire::{Lkey, Qpn, Rkey};

use crate::ids::PdId;

bitflags::bitflags! {
    /// What a region grants, and what an access needs. The values are libibverbs'
    /// `ibv_access_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The owner's work requests may write it (receives, read responses, atomic results).
        const LOCAL_WRITE = 1;
        /// Peers may write it.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read it.
        const REMOTE_READ = 1 << 2;
        /// Peers may operate on it atomically.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Its addresses count from 0.
        const ZERO_BASED = 1 << 5;
        /// Its pages need not be there: accesses go through calls that say so, an atomic operation
        /// or ATOMIC WRITE through a helper process that shares this one's memory, some tens of
        /// microseconds each. Where the system allows none (a filter, valgrind), those are
        /// instructions on a page that was just found: if it goes between the two, the process ends
        /// by SIGSEGV or SIGBUS.
        const ON_DEMAND = 1 << 6;
        /// Its pages are huge ones. Changes nothing here.
        const HUGETLB = 1 << 7;
        /// Peers may flush it to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush it to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Placement may be reordered. Changes nothing here. The first of the optional flags (bits
        /// 20 to 29), of which unknown ones are ignored.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Bits that a provider may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    pub const OPTIONAL: u32 = 0x3ff0_0000;

    /// The rights that let a peer change memory.
    pub const REMOTE_CHANGE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
}

/// Who uses a key: a queue pair of a protection domain, or the domain alone, which does for
/// everything but type 2 windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The domain.
    pub pd: PdId,
    /// The queue pair.
    pub qpn: Option<Qpn>,
}

impl From<PdId> for Accessor {
    fn from(pd: PdId) -> Self {
        Self { pd, qpn: None }
    }
}

/// The key after `key` of the same region or window: its low 8 bits counted up (`ibv_inc_rkey`).
/// Binding or registering with it makes the former key stale.
#[must_use]
pub const fn inc_rkey(key: Rkey) -> Rkey {
    Rkey(key.0 & !0xff | (key.0.wrapping_add(1) & 0xff))
}

/// The two types of window that there are (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MwType {
    /// Belongs to a protection domain.
    Type1 = 1,
    /// Belongs to a queue pair while it is bound (2B: a protection domain and a queue pair).
    Type2 = 2,
}

/// What a bind asks for (`struct ibv_send_wr`, `bind_mw`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// The window's key as it is; how it ends does not matter for
    /// windows that a handle names.
    pub window: Rkey,
    /// The key that it shall have: its low 8 bits count, the others stay.
    pub new_rkey: Rkey,
    /// The region. Of no meaning when `length` is 0.
    pub region: Lkey,
    /// First address, as work requests name it in the region.
    pub addr: u64,
    /// Length in bytes; 0 takes the binding of a type 1 window away.
    pub length: u64,
    /// What peers may do.
    pub access: Access,
}
