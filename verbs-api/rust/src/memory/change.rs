//! Reregistration: new memory, a new protection domain or new access rights for a region
//! (`ibv_rereg_mr`).

use std::io;
use std::sync::Arc;

use urxe_stack::memory::{Access, Buffer, ReregMrError};

use super::MemoryRegion;
use crate::pd::ProtectionDomain;

/// The changes to a region (`enum ibv_rereg_mr_flags`). At least one of the three must be set.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a change does nothing until a region takes it"]
pub struct RegionChange<'a> {
    memory: Option<(usize, u64)>,
    pd: Option<&'a ProtectionDomain>,
    access: Option<Access>,
}

urxe_stack::errors! {
    /// The reason why a region was not changed.
    #[derive(Debug, thiserror::Error)]
    pub enum ChangeRegionError {
        /// The system has no memory for the new bytes of the region.
        #[error("cannot allocate {len} bytes: {error}")]
        Memory {
            len: usize,
            #[source] error: io::Error,
        } = error.raw_os_error().unwrap_or(ENOMEM),
        /// A region stays on its device.
        #[error("the protection domain and the region belong to different devices")]
        OtherDevice = EINVAL,
        /// The region refuses the change.
        #[error(transparent)] Reregister(#[from] ReregMrError),
    }
}

impl<'a> RegionChange<'a> {
    /// Returns a change without any new property.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets new memory (`IBV_REREG_MR_CHANGE_TRANSLATION`): `len` zeroed bytes, whose addresses
    /// start at `iova`, a multiple of the page size. The former memory is unmapped.
    pub fn memory(mut self, len: usize, iova: u64) -> Self {
        self.memory = Some((len, iova));
        self
    }

    /// Sets a new protection domain of the same device (`IBV_REREG_MR_CHANGE_PD`).
    pub fn pd(mut self, pd: &'a ProtectionDomain) -> Self {
        self.pd = Some(pd);
        self
    }

    /// Sets new access rights (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }
}

impl MemoryRegion {
    /// Changes the region (`ibv_rereg_mr`). The keys stay the same.
    ///
    /// A concurrent access finds the former region, the new region, or for a short time no region.
    /// When this call returns, no access to the former region is in progress.
    ///
    /// ```
    /// use urxe::{Access, ChangeRegionError, RegionChange, ReregMrError, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let (pd, other) = (device.alloc_pd()?, device.alloc_pd()?);
    /// let mut region = pd.allocate(4096, Access::empty())?;
    /// let key = region.rkey();
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// region.change(&RegionChange::new().memory(8192, 0x10_0000).pd(&other).access(rights))?;
    /// assert_eq!((region.len(), region.iova(), region.rkey()), (8192, 0x10_0000, key));
    /// let error: ChangeRegionError = region.change(&RegionChange::new()).unwrap_err();
    /// assert!(matches!(error, ChangeRegionError::Reregister(ReregMrError::Nothing)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`ChangeRegionError`] in these cases, and leaves the region unchanged:
    /// * No memory is available.
    /// * The access rights are inconsistent.
    /// * A window is bound to the region.
    pub fn change(&mut self, change: &RegionChange<'_>) -> Result<(), ChangeRegionError> {
        if change.pd.is_some_and(|pd| !pd.device().is_same(self.pd().device())) {
            return Err(ChangeRegionError::OtherDevice);
        }
        let allocate = |(len, iova)| match Buffer::new(len) {
            Ok(buffer) => Ok((buffer, iova)),
            Err(error) => Err(ChangeRegionError::Memory { len, error }),
        };
        let place = change.memory.map(allocate).transpose()?;
        Ok(self.change_to(place, change.pd, change.access)?)
    }

    /// Sets the properties that are given. The former memory is unmapped unless it has another
    /// user.
    pub(super) fn change_to(
        &mut self,
        place: Option<(Buffer, u64)>,
        pd: Option<&ProtectionDomain>,
        access: Option<Access>,
    ) -> Result<(), ReregMrError> {
        let memory = self.pd.device().core().memory();
        let place = place.map(|(buffer, iova)| (Arc::new(buffer), iova));
        let range = place.as_ref().map(|(buffer, iova)| (buffer, 0..buffer.len(), *iova));
        let pd_id = pd.map(ProtectionDomain::memory_id);
        self.mr = memory.reregister_buffer(self.mr.lkey, range, pd_id, access)?;
        if let Some((buffer, _)) = place {
            self.buffer = buffer;
        }
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }
}
