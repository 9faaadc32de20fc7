//! The memory of a key: a range, its access rights, and the location of its bytes in this process.

use urxe_wire::Qpn;

use crate::{Access, PdId};

/// The location of the bytes of a region in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Contiguous bytes from `base` on.
    Flat,
    /// The whole address space: an address is an address of the process, and `base` is unused.
    Whole,
    /// Pages of 2^`shift` bytes, whose addresses are in the list at `base`. The region begins
    /// `skip` bytes into the first page.
    Paged { shift: u8, skip: u64 },
}

/// The users of a key, in addition to the protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessScope {
    /// For a region: work requests of the owner, and peers.
    All,
    /// For a type 1 window: peers.
    Peers,
    /// For a type 2 window: the peer of the queue pair that bound it.
    PeerOf(Qpn),
}

/// The memory of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// First byte in this process, or the page list.
    pub(super) base: *mut u8,
    /// First address for peers.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) pd: PdId,
    pub(super) access: Access,
    pub(super) layout: Layout,
    pub(super) scope: AccessScope,
    /// The bytes may be missing, so they move by system calls.
    pub(super) checked: bool,
}

impl Region {
    /// Returns whether `len` bytes at `addr`, an address for peers, are inside.
    pub(super) fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && len <= self.len && addr - self.start <= self.len - len
    }

    /// Returns the location in this process of `addr`, which must be inside, and the number of
    /// contiguous bytes from there on. The number may exceed the end of the region.
    ///
    /// # Safety
    /// The list of a paged region is neither changed nor freed during the call.
    #[inline(always)] // as `Slot::region`: unused fields are not loaded
    pub(super) unsafe fn place(self, addr: u64) -> (*mut u8, usize) {
        // Registration ensured that the region is inside the address space of this process, so the
        // length fits.
        let offset = addr - self.start;
        match self.layout {
            Layout::Flat => (self.base.wrapping_add(offset as usize), usize::MAX),
            // Accessed by system calls, and by atomic operations on a page that was found mapped.
            Layout::Whole => (std::ptr::with_exposed_provenance_mut(addr as usize), usize::MAX),
            Layout::Paged { shift, skip } => {
                let (at, size) = (skip + offset, 1 << shift);
                let (page, into_page) = ((at >> shift) as usize, at as usize & (size - 1));
                let list = self.base.cast::<*mut u8>().cast_const();
                // SAFETY: mapping ensured that the list has an entry for each page of the region;
                // the caller keeps the list.
                let base = unsafe { *list.add(page) };
                (base.wrapping_add(into_page), size - into_page)
            }
        }
    }
}
