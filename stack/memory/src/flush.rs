//! FLUSH: making what was written seen by every processor, or lasting (IBTA vol. 1, A19).
//!
//! *Global visibility* is a fence: peers' writes are stores of this process. *Persistence* is
//! `msync(MS_SYNC)`, which returns when the file's device has the data. `rdma_rxe` grants it for
//! memory on persistent-memory modules alone and refuses the registration of any other (`rxe_mr.c`,
//! `rxe_flush_pmem_iova`); here it is granted for shared mappings of files, and refused where
//! nothing would last: private and anonymous memory, and files that live in memory themselves
//! (tmpfs, memfd, huge pages).

use super::error::Fault;
use super::{Access, Pin, guarded, persistence};
use rustix::mm::MsyncFlags;
use std::sync::atomic::{Ordering, fence};

#[cfg(test)]
mod tests;

impl Pin<'_> {
    /// Makes what was written to `len` bytes at an address, or to the whole region, visible to
    /// every processor, and with `persist` has it survive a power failure: then it blocks until the
    /// file's device has it.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]; [`Fault::NotFlushed`] with the `errno` of `msync`, or EINVAL for
    /// memory that does not last.
    pub fn flush(&self, range: Option<(u64, u64)>, persist: bool) -> Result<(), Fault> {
        let region = self.region();
        let (addr, len) = range.unwrap_or((region.start, region.len));
        self.inside(addr, len)?;
        fence(Ordering::SeqCst);
        if !persist {
            return Ok(());
        }
        // `inside` found the range inside the region, so its length fits.
        self.each_run(addr, len as usize, |at, _, len| {
            // What was mapped when it was registered may be another mapping by now.
            let lasts = persistence::check(at.addr(), len, Access::FLUSH_PERSISTENT);
            lasts.map_err(|error| Fault::NotFlushed { errno: error.errno() })?;
            let offset = at.addr() % guarded::page_size();
            let (from, len) = (at.wrapping_sub(offset).cast(), len + offset);
            // SAFETY: `msync` without MS_INVALIDATE changes no byte and no mapping; it only has
            // pages written that are mapped from a file in this range, and answers ENOMEM for what
            // is not mapped.
            let synced = unsafe { rustix::mm::msync(from, len, MsyncFlags::SYNC) };
            synced.map_err(|errno| Fault::NotFlushed { errno: errno.raw_os_error() })
        })
    }
}
