//! Thread domains, parent domains, and importing protection domains and regions by number.
//!
//! A library may receive numbers instead of values (`ibv_import_pd`, `ibv_import_mr`). Every clone
//! of the [`Device`] finds the objects by these numbers while the objects exist. A clone of the
//! device corresponds to a second context of libibverbs (`ibv_import_device`).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use urxe_stack::device::{AllocParentDomainError, TdId};
use urxe_stack::memory::{Mr, PdId};
use urxe_wire::Lkey;

use crate::device::Device;
use crate::memory::region;
use crate::pd::{Inner as PdInner, ProtectionDomain};
use crate::waker_list::lock;

/// All thread domains of the device are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {allowed} thread domains and all are in use")]
#[non_exhaustive]
pub struct AllocTdError {
    /// The number of thread domains that the device supports.
    pub allowed: u32,
}

impl AllocTdError {
    /// Returns the errno that `ibv_alloc_td` sets.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::ENOMEM
    }
}

urxe_stack::errors! {
    /// The reason why a protection domain or a region was not imported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ImportError {
        /// `given`: the handle.
        #[error("the device has no protection domain {given}: it was dropped or never existed")]
        NoPd { given: u32 } = ENOENT,
        /// `given`: the handle, which is the local key.
        #[error("the device has no region {given:#010x}: it was dropped or never existed")]
        NoRegion { given: u32 } = ENOENT,
        /// The region exists, but another domain than the imported one has it.
        #[error("region {given:#010x} belongs to another protection domain")]
        OtherPd { given: u32 } = ENOENT,
        /// The memory of the region has another owner than the device
        /// ([`ProtectionDomain::register`]), or the key is that of a fast-registration region.
        #[error("the device does not own the memory of region {given:#010x}, so only the code \
                 that registered the memory may use it")]
        OtherOwner { given: u32 } = EPERM,
    }
}

/// A thread domain (`struct ibv_td`): a promise that only one thread at a time uses the objects of
/// a parent domain.
///
/// Cloning is cheap. A provider may omit locks for such objects. This crate keeps its locks, so
/// breaking the promise only costs waiting time.
#[derive(Clone)]
pub struct ThreadDomain {
    inner: Arc<TdInner>,
}

struct TdInner {
    device: Device,
    id: TdId,
}

impl Drop for TdInner {
    fn drop(&mut self) {
        self.device.destroy("parent domains keep it", |core| core.dealloc_td(self.id));
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ThreadDomain").field(&self.inner.id.0).finish()
    }
}

impl Device {
    /// Allocates a thread domain (`ibv_alloc_td`).
    ///
    /// ```
    /// use urxe::{AllocTdError, Limits, sim::{DeviceOptions, Fabric}};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits { max_pd: 1, ..Limits::default() };
    /// let options = DeviceOptions::new().limits(limits);
    /// let device = Fabric::new(1).device_with(&[[10, 0, 0, 1].into()], options)?;
    /// let only = device.alloc_thread_domain()?;
    /// let error: AllocTdError = device.alloc_thread_domain().unwrap_err();
    /// assert_eq!(error.allowed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`AllocTdError`] if the device has no free thread domain.
    pub fn alloc_thread_domain(&self) -> Result<ThreadDomain, AllocTdError> {
        let id =
            self.core().alloc_td().ok_or(AllocTdError { allowed: self.core().limits().max_pd })?;
        Ok(ThreadDomain { inner: Arc::new(TdInner { device: self.clone(), id }) })
    }

    /// Returns the protection domain with this [number](ProtectionDomain::handle)
    /// (`ibv_import_pd`).
    ///
    /// The domain exists as long as any of its handles. Dropping the imported handle does not
    /// affect the others (`ibv_unimport_pd`). A domain alone gives no access to memory, because a
    /// request names memory by a slice of a region.
    ///
    /// ```
    /// use urxe::{Access, ImportError, ImportedRegion, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let pd = device.alloc_pd()?;
    /// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
    /// let numbers = (pd.handle(), region.handle());
    ///
    /// // Another part of the process knows the device and the numbers only.
    /// let same = device.import_pd(numbers.0)?;
    /// let region: ImportedRegion = same.import_region(numbers.1)?;
    /// assert_eq!(region.len(), 4096);
    /// let unknown = numbers.0 ^ 1;
    /// assert_eq!(device.import_pd(unknown).unwrap_err(), ImportError::NoPd { given: unknown });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`ImportError::NoPd`] if the device has no such domain.
    pub fn import_pd(&self, handle: u32) -> Result<ProtectionDomain, ImportError> {
        self.inner.domains.get(PdId(handle)).ok_or(ImportError::NoPd { given: handle })
    }
}

impl ProtectionDomain {
    /// Allocates a parent domain of this protection domain (`ibv_alloc_parent_domain`).
    ///
    /// A parent domain is used like a protection domain. Its regions belong to this domain: regions
    /// of either domain serve the queue pairs of both.
    ///
    /// ```
    /// use urxe::{AllocParentDomainError, ThreadDomain, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fabric = Fabric::new(1);
    /// let (device, other) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// let pd = device.alloc_pd()?;
    /// let thread: ThreadDomain = device.alloc_thread_domain()?;
    /// let mine = pd.parent_domain(Some(&thread))?;
    /// let cq = device.create_cq(16)?;
    /// let qp = mine.queue_pair(&cq).create()?;
    /// assert!(qp.pd().is_parent_domain());
    /// let error: AllocParentDomainError =
    ///     pd.parent_domain(Some(&other.alloc_thread_domain()?)).unwrap_err();
    /// assert_eq!(error, AllocParentDomainError::NoTd);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`AllocParentDomainError`] if the device has no free domain, or if the thread
    /// domain belongs to another device.
    pub fn parent_domain(&self, td: Option<&ThreadDomain>) -> Result<Self, AllocParentDomainError> {
        let device = self.device();
        // The same number may denote another thread domain on another device.
        if td.is_some_and(|td| !td.inner.device.is_same(device)) {
            return Err(AllocParentDomainError::NoTd);
        }
        let id = device.core().alloc_parent_domain(self.id(), td.map(|td| td.inner.id))?;
        Ok(Self::with(device, id, Some((self.base().clone(), td.cloned()))))
    }

    /// Returns whether this is a parent domain.
    #[must_use]
    pub fn is_parent_domain(&self) -> bool {
        self.parent().is_some()
    }

    /// Returns the thread domain of a parent domain.
    #[must_use]
    pub fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.parent()?.1.as_ref()
    }

    /// Returns the number of the domain in its device, for [`Device::import_pd`] (`pd->handle`).
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.id().0
    }

    /// Returns the region with this [number](crate::MemoryRegion::handle) in this protection domain
    /// (`ibv_import_mr`).
    ///
    /// A caller can try all numbers, and gets safe slices of every region that it finds. So the
    /// call returns only regions whose memory the device owns, such as a
    /// [`MemoryRegion`](crate::MemoryRegion). Memory with another owner is in use by code that
    /// promised how requests access it.
    ///
    /// # Errors
    /// Fails with [`ImportError`] in these cases:
    /// * There is no such region.
    /// * The region is in another protection domain.
    /// * The memory of the region has another owner.
    pub fn import_region(&self, handle: u32) -> Result<ImportedRegion, ImportError> {
        let (memory, given) = (self.device().core().memory(), handle);
        let mr = memory.query(Lkey(handle)).ok_or(ImportError::NoRegion { given })?;
        if mr.pd != self.memory_id() {
            return Err(ImportError::OtherPd { given });
        }
        if !memory.owns_memory_of(mr.lkey) {
            return Err(ImportError::OtherOwner { given });
        }
        Ok(ImportedRegion { pd: self.clone(), mr })
    }
}

/// A handle of a region that another part of the process registered, made by
/// [`ProtectionDomain::import_region`].
///
/// The handle has the keys and the length of the region at the time of the import, but not its
/// memory. Dropping the handle deregisters nothing (`ibv_unimport_mr`). It keeps nothing alive: a
/// work request that names a region which is gone or changed fails with a protection error.
pub struct ImportedRegion {
    pd: ProtectionDomain,
    mr: Mr,
}

region!(ImportedRegion);

/// The protection domains of a device by number. The registry does not keep them alive.
#[derive(Debug, Default)]
pub(crate) struct DomainRegistry(Mutex<HashMap<PdId, Weak<PdInner>>>);

impl DomainRegistry {
    pub(crate) fn insert(&self, id: PdId, domain: &Arc<PdInner>) {
        lock(&self.0).insert(id, Arc::downgrade(domain));
    }

    pub(crate) fn remove(&self, id: PdId) {
        lock(&self.0).remove(&id);
    }

    fn get(&self, id: PdId) -> Option<ProtectionDomain> {
        // The lock is released before a domain can be dropped, because dropping a domain takes the
        // lock.
        let found = lock(&self.0).get(&id).and_then(Weak::upgrade);
        found.map(ProtectionDomain::of)
    }
}
