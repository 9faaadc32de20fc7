//! Local memory of awaitable operations, which stays registered until the operation completes.

use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use urxe_stack::memory::Access;

use super::operation::Local;
use crate::memory::{AllocateError, MemoryRegion, RegionSlice, SliceError};
use crate::pd::ProtectionDomain;

/// A slice of a region that it keeps alive, made by [`MemoryRegion::share`].
///
/// An operation that a program stops awaiting may still read or write its memory. Therefore the
/// queue pair keeps the region registered until the operation has completed.
///
/// ```
/// use std::sync::Arc;
/// use urxe::aio::SharedSlice;
/// use urxe::{Access, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
/// let region = Arc::new(pd.allocate(4096, Access::LOCAL_WRITE)?);
/// let slice: SharedSlice = region.share(64..128)?;
/// drop(region);
/// assert_eq!((slice.len(), slice.region().len()), (64, 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedSlice {
    region: Arc<MemoryRegion>,
    slice: RegionSlice<'static>,
}

impl MemoryRegion {
    /// Returns a slice that keeps the region alive, for operations of an
    /// [`AsyncQueuePair`](crate::aio::AsyncQueuePair). `range` counts bytes from 0.
    ///
    /// # Errors
    /// Fails as [`slice`](Self::slice) does.
    pub fn share(
        self: &Arc<Self>,
        range: impl RangeBounds<usize>,
    ) -> Result<SharedSlice, SliceError> {
        let slice = self.slice(range)?.detached();
        Ok(SharedSlice { region: Arc::clone(self), slice })
    }
}

impl ProtectionDomain {
    /// Returns a copy of `bytes` in a region of its own, for a SEND or WRITE of an
    /// [`AsyncQueuePair`](crate::aio::AsyncQueuePair). The region is dropped when the operation has
    /// completed. [`MemoryRegion::share`] avoids the allocation and registration of each call.
    ///
    /// ```
    /// use urxe::aio::AsyncQueuePair;
    /// # use urxe::{ConnectOptions, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let qp = AsyncQueuePair::builder().create(&a.alloc_pd()?)?;
    /// # let peer = AsyncQueuePair::builder().create(&b.alloc_pd()?)?;
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let text = "a text of any length ".repeat(100);
    /// pollster::block_on(async {
    ///     qp.send(qp.pd().share_bytes(text.as_bytes())?).await?;
    ///     assert_eq!(peer.recv().await?.to_vec(), text.as_bytes());
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`allocate`](Self::allocate) does, and if there are more than 2^32 - 1 bytes.
    pub fn share_bytes(&self, bytes: &[u8]) -> Result<SharedSlice, AllocateError> {
        let len = bytes.len();
        let error = || io::Error::from_raw_os_error(libc::EMSGSIZE);
        if u32::try_from(len).is_err() {
            return Err(AllocateError::Memory { len, error: error() });
        }
        // A region has at least one byte.
        let region = Arc::new(self.allocate(len.max(1), Access::empty())?);
        let written = region.write(0, bytes);
        debug_assert_eq!(written, Ok(()), "the region has room for the bytes");
        region.share(..len).map_err(|_| AllocateError::Memory { len, error: error() })
    }
}

impl SharedSlice {
    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// Returns the slice and the region that the caller must keep until the request completes.
    pub(super) fn into_parts(self) -> (RegionSlice<'static>, Arc<MemoryRegion>) {
        (self.slice, self.region)
    }
}

impl fmt::Debug for SharedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slice.fmt(f)
    }
}

/// The data of an awaitable SEND or WRITE: a slice of a region, or bytes that are copied when the
/// request is posted.
///
/// Methods take `impl Into<Payload>`: a [`SharedSlice`], or `&[u8]` for bytes up to the limit of
/// the queue pair
/// ([`max_inline_data`](crate::aio::AsyncQueuePairBuilder::max_inline_data)).
///
/// ```
/// use urxe::aio::Payload;
///
/// let bytes: Payload<'_> = b"hello".into();
/// assert!(matches!(bytes, Payload::Inline(b"hello")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Payload<'a> {
    /// A slice of a region. The device reads it when it builds packets, so the program must not
    /// change it until the operation has completed.
    Shared(SharedSlice),
    /// Bytes that need no registration.
    Inline(&'a [u8]),
}

impl<'a> Payload<'a> {
    pub(super) fn into_parts(self) -> (Local<'a>, Option<Arc<MemoryRegion>>) {
        match self {
            Self::Shared(slice) => {
                let (slice, region) = slice.into_parts();
                (Local::Slice(slice), Some(region))
            }
            // A message without bytes needs no inline data, which a queue pair may not support.
            Self::Inline([]) => (Local::None, None),
            Self::Inline(bytes) => (Local::Inline(bytes), None),
        }
    }
}

impl From<SharedSlice> for Payload<'_> {
    fn from(slice: SharedSlice) -> Self {
        Self::Shared(slice)
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Inline(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Inline(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Payload<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Inline(bytes)
    }
}
