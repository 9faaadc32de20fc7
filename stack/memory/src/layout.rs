//! What a key stands for: a range, its rights, and where its bytes lie in this process.

use urxe_wire::Qpn;

use crate::{Access, PdId};

/// How the bytes of a region lie in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One after the other, from `base` on.
    Flat,
    /// Everywhere: an address is the process's own, and `base` means nothing.
    Whole,
    /// In pages of 2^`shift` bytes, whose addresses stand at `base`; the region begins `skip` bytes
    /// into the first.
    Paged { shift: u8, skip: u64 },
}

/// Who may use a key, beside the protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessScope {
    /// A region's: the owner's work requests, and peers.
    All,
    /// A type 1 window's: peers.
    Peers,
    /// A type 2 window's: the peer of the queue pair that bound it.
    PeerOf(Qpn),
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// First byte in this process, or the page list.
    pub(super) base: *mut u8,
    /// First address as peers name it.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) pd: PdId,
    pub(super) access: Access,
    pub(super) layout: Layout,
    pub(super) scope: AccessScope,
    /// Its bytes may be missing: they move by system calls.
    pub(super) checked: bool,
}

impl Region {
    /// Whether `len` bytes at `addr`, as peers name it, lie inside.
    pub(super) fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.start && len <= self.len && addr - self.start <= self.len - len
    }

    /// Where `addr`, which is inside, is in this process, and how many bytes follow there, beyond
    /// the region's end or not.
    ///
    /// # Safety
    /// The list of a paged region is neither changed nor freed meanwhile.
    #[inline(always)] // as `Slot::region`: of what is not asked for, nothing is read
    pub(super) unsafe fn place(self, addr: u64) -> (*mut u8, usize) {
        // Registering made sure that the region is inside this process's address space, so its
        // length fits.
        let offset = addr - self.start;
        match self.layout {
            Layout::Flat => (self.base.wrapping_add(offset as usize), usize::MAX),
            // Reached by system calls, and by atomic operations on a page that was found mapped.
            Layout::Whole => (std::ptr::with_exposed_provenance_mut(addr as usize), usize::MAX),
            Layout::Paged { shift, skip } => {
                let (at, size) = (skip + offset, 1 << shift);
                let (page, into_page) = ((at >> shift) as usize, at as usize & (size - 1));
                let list = self.base.cast::<*mut u8>().cast_const();
                // SAFETY: mapping made sure that the list has an entry for each page of the region;
                // the caller keeps it.
                let base = unsafe { *list.add(page) };
                (base.wrapping_add(into_page), size - into_page)
            }
        }
    }
}
