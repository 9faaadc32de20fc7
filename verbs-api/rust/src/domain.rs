//! Thread domains, parent domains, and finding protection domains and regions by their numbers.
//!
//! A library that is handed numbers rather than values (`ibv_import_pd`, `ibv_import_mr`) finds
//! what they name as long as it is there, through any clone of the [`Device`]: clones are what
//! libibverbs calls contexts of one device (`ibv_import_device`).

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

/// Why there is no more thread domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {allowed} thread domains and all are in use")]
pub struct AllocTdError {
    /// How many there are.
    pub allowed: u32,
}

impl AllocTdError {
    /// The errno that `ibv_alloc_td` sets.
    #[must_use]
    pub const fn errno(self) -> i32 {
        libc::ENOMEM
    }
}

urxe_stack::errors! {
    /// Why nothing was imported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ImportError {
        #[error("the device has no protection domain {given}: it is gone, or was never there")]
        NoPd { given: u32 } = ENOENT,
        #[error("the device has no region {given:#010x}: it is gone, or was never there")]
        NoRegion { given: u32 } = ENOENT,
        #[error("region {given:#010x} is in another protection domain")]
        OtherPd { given: u32 } = ENOENT,
    }
}

/// A thread domain (`struct ibv_td`): a promise that one thread at a time uses what is made with a
/// parent domain that has it. Cheap to clone. A provider may leave out locks for it; here they
/// stay, so breaking the promise costs nothing but waiting.
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
    /// Makes a thread domain (`ibv_alloc_td`).
    ///
    /// # Errors
    /// [`AllocTdError`]: the device has no more.
    pub fn alloc_thread_domain(&self) -> Result<ThreadDomain, AllocTdError> {
        let id =
            self.core().alloc_td().ok_or(AllocTdError { allowed: self.core().limits().max_pd })?;
        Ok(ThreadDomain { inner: Arc::new(TdInner { device: self.clone(), id }) })
    }

    /// The protection domain of that [number](ProtectionDomain::handle) (`ibv_import_pd`), which
    /// lives as long as any of its handles. Dropping this one takes nothing from the others
    /// (`ibv_unimport_pd`).
    ///
    /// ```
    /// use urxe::{Access, sim::Fabric};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let pd = device.alloc_pd()?;
    /// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
    /// let numbers = (pd.handle(), region.handle());
    ///
    /// // Elsewhere in the process, where nothing but the numbers is known.
    /// let same = device.import_pd(numbers.0)?;
    /// assert_eq!(same.import_region(numbers.1)?.len(), 4096);
    /// assert!(device.import_pd(numbers.0 ^ 1).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ImportError::NoPd`].
    pub fn import_pd(&self, handle: u32) -> Result<ProtectionDomain, ImportError> {
        self.inner.domains.get(PdId(handle)).ok_or(ImportError::NoPd { given: handle })
    }
}

impl ProtectionDomain {
    /// Makes a parent domain of this protection domain (`ibv_alloc_parent_domain`), with a thread
    /// domain or without. It is used like a protection domain, and what is made with it belongs to
    /// this one: regions of either serve the queue pairs of both.
    ///
    /// ```
    /// # use urxe::sim::Fabric;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let pd = device.alloc_pd()?;
    /// let mine = pd.parent_domain(Some(&device.alloc_thread_domain()?))?;
    /// let cq = device.create_cq(16)?;
    /// let qp = mine.queue_pair(&cq).create()?;
    /// assert!(qp.pd().is_parent_domain());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AllocParentDomainError`]: the device has no more, the thread domain is of another device.
    pub fn parent_domain(&self, td: Option<&ThreadDomain>) -> Result<Self, AllocParentDomainError> {
        let device = self.device();
        // Another device does not know it, whatever has the same number there.
        if td.is_some_and(|td| !td.inner.device.is_same(device)) {
            return Err(AllocParentDomainError::NoTd);
        }
        let id = device.core().alloc_parent_domain(self.id(), td.map(|td| td.inner.id))?;
        Ok(Self::with(device, id, Some((self.base().clone(), td.cloned()))))
    }

    /// Whether it is a parent domain.
    #[must_use]
    pub fn is_parent_domain(&self) -> bool {
        self.parent().is_some()
    }

    /// A parent domain's thread domain.
    #[must_use]
    pub fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.parent()?.1.as_ref()
    }

    /// Its number within its device, by which [`Device::import_pd`] finds it (`pd->handle`).
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.id().0
    }

    /// The region of that [number](crate::MemoryRegion::handle) in this protection domain
    /// (`ibv_import_mr`).
    ///
    /// # Errors
    /// [`ImportError`]: there is none, or it is in another protection domain.
    pub fn import_region(&self, handle: u32) -> Result<ImportedRegion, ImportError> {
        let found = self.device().core().memory().query(Lkey(handle));
        // Whoever names parts of the whole address space has promises to make, and the number none.
        let found = found.filter(|mr| mr.len != usize::MAX);
        let mr = found.ok_or(ImportError::NoRegion { given: handle })?;
        if mr.pd != self.memory_id() {
            return Err(ImportError::OtherPd { given: handle });
        }
        Ok(ImportedRegion { pd: self.clone(), mr })
    }
}

/// A region that somebody else registered, made by [`ProtectionDomain::import_region`]: its keys
/// and its length as they were then, without its memory. Dropping it deregisters nothing
/// (`ibv_unimport_mr`), and it keeps nothing alive: a work request with it ends with a protection
/// error when the region is gone or has changed.
pub struct ImportedRegion {
    pd: ProtectionDomain,
    mr: Mr,
}

region!(ImportedRegion);

/// The protection domains of a device by their numbers. Keeps none of them alive.
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
        // Out of the lock before a value can be dropped, which takes it.
        let found = lock(&self.0).get(&id).and_then(Weak::upgrade);
        found.map(ProtectionDomain::of)
    }
}
