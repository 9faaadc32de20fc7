//! Registering memory with the core. The one place of this crate with `unsafe` is the function that registers memory of
//! somebody else, whose caller has to promise what the core asks for.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use urxe_stack::memory::{Access, Advice, AdviseError, AdviseRange, Buffer, Mr, RegMrError, ReregMrError};

use super::region;
use crate::pd::ProtectionDomain;

/// A buffer and its registration. The core keeps the buffer mapped until the deregistration returned.
pub(super) struct OwnedRegistration {
    pd: ProtectionDomain,
    mr: Mr,
    buffer: Arc<Buffer>,
}

impl OwnedRegistration {
    pub(super) fn new(
        pd: &ProtectionDomain,
        buffer: Buffer,
        iova: u64,
        access: Access,
    ) -> Result<Self, RegMrError> {
        let buffer = Arc::new(buffer);
        let mr = pd.device().core().memory().register_buffer(
            pd.memory_id(),
            &buffer,
            0..buffer.len(),
            iova,
            access,
        )?;
        Ok(Self { pd: pd.clone(), mr, buffer })
    }

    /// Changes what it grants. The keys stay.
    pub(super) fn reregister(&mut self, access: Access) -> Result<(), ReregMrError> {
        let memory = self.pd.device().core().memory();
        self.mr = memory.reregister_buffer(self.mr.lkey, None, None, Some(access))?;
        Ok(())
    }

    /// Gives it another place, domain or access, each if given. The keys stay; the former memory goes if nobody else has it.
    pub(super) fn change(
        &mut self,
        place: Option<(Buffer, u64)>,
        pd: Option<&ProtectionDomain>,
        access: Option<Access>,
    ) -> Result<(), ReregMrError> {
        let memory = self.pd.device().core().memory();
        let buffer = place.map(|(buffer, iova)| (Arc::new(buffer), iova));
        let place = buffer.as_ref().map(|(buffer, iova)| (buffer, 0..buffer.len(), *iova));
        let pd_id = pd.map(ProtectionDomain::memory_id);
        self.mr = memory.reregister_buffer(self.mr.lkey, place, pd_id, access)?;
        if let Some((buffer, _)) = buffer {
            self.buffer = buffer;
        }
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }

    /// Follows an advice about `len` bytes from `offset` on.
    pub(super) fn advise(&self, advice: Advice, offset: usize, len: usize) -> Result<(), AdviseError> {
        let addr = self.mr.iova.wrapping_add(offset as u64);
        let range = AdviseRange { addr, len: len as u64, lkey: self.mr.lkey };
        self.pd.device().core().memory().advise(self.pd.memory_id(), advice, &[range])
    }

    pub(super) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(super) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }
}

impl Drop for OwnedRegistration {
    fn drop(&mut self) {
        // Waits for copies in progress.
        self.pd.deregister(self.mr.lkey);
    }
}

/// A registration of memory that the program owns, made by [`ProtectionDomain::register`]. Dropping it deregisters, after which
/// no byte of the memory moves any more.
pub struct ForeignRegion {
    pd: ProtectionDomain,
    mr: Mr,
}

impl ProtectionDomain {
    /// Registers `len` bytes at `addr` that somebody else owns (`ibv_reg_mr`). Peers and work requests name them by addresses
    /// from `iova` on, which has the same offset in a page as `addr`; `addr` itself is the usual choice.
    ///
    /// Prefer [`allocate`](Self::allocate), which is safe.
    ///
    /// # Errors
    /// [`RegMrError`]: what was wrong, what was given, what is allowed.
    ///
    /// # Safety
    /// From this call until the returned value was dropped (for ever if it is leaked):
    /// * `[addr, addr + len)` stays mapped, readable, and with [`Access::LOCAL_WRITE`] writable. With [`Access::ON_DEMAND`] pages may
    ///   come and go, except while a peer's atomic operation on them may be under way.
    /// * What is there may be read by anyone who has the key, and with `LOCAL_WRITE` be overwritten at any time, with any bytes,
    ///   by another thread: no value lives there for which some bytes are invalid.
    /// * No `&mut` to any of it is used, and with `LOCAL_WRITE` no `&` either, except to atomics or inside an `UnsafeCell` whose users
    ///   expect it. The program reads and writes it by atomic or volatile accesses, or when it knows that no peer and no
    ///   work request can touch it.
    pub unsafe fn register(
        &self,
        addr: NonNull<u8>,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<ForeignRegion, RegMrError> {
        let memory = self.device().core().memory();
        // SAFETY: the caller's promise is what is asked for here: the region is registered until `ForeignRegion::drop`.
        let mr = unsafe { memory.register(self.memory_id(), addr.as_ptr(), len, iova, access) }?;
        Ok(ForeignRegion { pd: self.clone(), mr })
    }
}

impl ForeignRegion {
    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    fn mr(&self) -> &Mr {
        &self.mr
    }
}

region!(ForeignRegion);

impl Drop for ForeignRegion {
    fn drop(&mut self) {
        self.pd.deregister(self.mr.lkey);
    }
}

impl fmt::Debug for ForeignRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignRegion").field("mr", &self.mr).finish_non_exhaustive()
    }
}
