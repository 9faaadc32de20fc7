//! Memory of one end that the other end writes by offset, without a call of the owner's program:
//! `riomap` and `riowrite` of rsockets.
//!
//! ```text
//!   owner: map(region) ── message: offset, length, key ──> list of mappings of the peer
//!   owner's memory  <── RDMA WRITE without a message ───── peer: write_at(offset, bytes)
//!   owner: drop(mapping) ── message: length 0 ───────────> the offset is free again
//! ```
//!
//! The owner tells the peer of a mapping before the next bytes of the stream. A peer that has read
//! these bytes can write. The mapping owns its region. Dropping it deregisters the memory, so no
//! later WRITE reaches it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use urxe_rsocket::protocol::segment::{Iomap, Segment};
use urxe_stack::memory::Access;

use super::RdmaStream;
use super::error::StreamError;
use super::io::Io;
use super::split::OwnedWriteHalf;
use super::traits::Blocking;
use crate::memory::MemoryRegion;
use crate::pd::ProtectionDomain;

/// Memory that the peer of a stream can write, made by [`RdmaStream::map`]. It dereferences to its
/// [`MemoryRegion`].
///
/// Dropping the mapping deregisters and frees the memory. With its next message, the stream tells
/// the peer, whose later calls fail with [`StreamError::NotMapped`]. A peer that writes before it
/// knows breaks the stream. So the peer should say by bytes of the stream that it has finished.
///
/// If a [window](crate::MemoryWindow) is bound to the region, the memory stays until the last
/// window is unbound, as with any region.
///
/// The mapping does not keep the stream open, and keeps its memory after the end of the stream.
///
/// ```
/// use std::io::{Read, Write};
/// use urxe::Access;
/// use urxe::stream::{IoMapping, MapError, RdmaStream};
/// # use urxe::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 12, 17])?;
/// # let there = Device::open_address([127, 49, 12, 18])?;
/// # let builder = RdmaStream::builder().device(&here);
/// # let listener = builder.bind(([127, 49, 12, 17], 0).into())?;
/// # let to = listener.local_addr();
/// // The client writes into memory of the server, and accepts mappings for that.
/// let builder = RdmaStream::builder().device(&there).peer_mappings(1);
/// let client = std::thread::spawn(move || -> std::io::Result<()> {
///     let client = builder.connect(to).wait()?;
///     // After these bytes, the mapping is known.
///     client.blocking().read_exact(&mut [0; 5])?;
///     client.blocking().write_at(100, b"hello")?;
///     client.blocking().write_all(b"written")?;
///     client.blocking().shutdown()
/// });
/// let (server, _) = listener.wait(None)?;
/// let region = server.pd().allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let mapping: IoMapping = server.map_at(region, 100)?;
///
/// // The client accepts one mapping.
/// let region = server.pd().allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let error: MapError = server.map(region).unwrap_err();
/// assert!(matches!(error, MapError::Full { allowed: 1, .. }));
///
/// server.blocking().write_all(b"ready")?;
/// // After these bytes, the written memory is here.
/// server.blocking().read_exact(&mut [0; 7])?;
/// assert_eq!(mapping.read_vec(0, 5)?, b"hello");
/// # client.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
pub struct IoMapping {
    io: Weak<Io>,
    region: MemoryRegion,
    index: u16,
    offset: u64,
}

urxe_stack::errors! {
    /// The reason why memory was not mapped. The region of the call is dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum MapError {
        /// The peer announced when it connected that it accepts no mappings.
        #[error("{peer} accepts no mappings: let its program set StreamBuilder::peer_mappings, or \
                 RDMA_IOMAPSIZE of its rsocket")]
        NoneAccepted { peer: SocketAddr } = EOPNOTSUPP,
        /// `allowed`: the number that the peer announced when it connected.
        #[error("{peer} accepts {allowed} mappings and all are in use: drop one first")]
        Full { peer: SocketAddr, allowed: u32 } = ENOMEM,
        /// The queue pair of the stream cannot use the region.
        #[error("the region belongs to another protection domain: allocate it in RdmaStream::pd")]
        OtherDomain = EINVAL,
        /// `access`: the rights of the region.
        #[error("the peer may not write a region with {access:?}: allocate it with LOCAL_WRITE and \
                 REMOTE_WRITE")]
        NotWritable { access: Access } = EACCES,
        /// `len`: the length of the region in bytes.
        #[error("a mapping of {len} bytes exceeds the {} bytes of the protocol", u32::MAX)]
        TooLong { len: usize } = EOVERFLOW,
        /// The last byte of the mapping has no offset.
        #[error("{len} bytes from offset {offset} exceed the offsets of 64 bits")]
        OutOfRange { offset: u64, len: usize } = EOVERFLOW,
        /// `other`: the offset of the mapping that exists.
        #[error("{len} bytes from offset {offset} overlap the mapping at offset {other}: drop that \
                 one first, or use another offset")]
        Overlaps { offset: u64, len: usize, other: u64 } = EINVAL,
        /// The stream has failed or has ended, so the peer cannot be told.
        #[error(transparent)] Stream(#[from] StreamError),
    }
}

impl From<MapError> for io::Error {
    fn from(error: MapError) -> Self {
        let kind = match error {
            MapError::NoneAccepted { .. } => io::ErrorKind::Unsupported,
            MapError::Full { .. } => io::ErrorKind::OutOfMemory,
            MapError::NotWritable { .. } => io::ErrorKind::PermissionDenied,
            MapError::OtherDomain
            | MapError::TooLong { .. }
            | MapError::OutOfRange { .. }
            | MapError::Overlaps { .. } => io::ErrorKind::InvalidInput,
            MapError::Stream(error) => return error.into(),
        };
        Self::new(kind, error)
    }
}

/// Memory that the peer writes.
impl RdmaStream {
    /// Returns the protection domain of the stream, for regions to [`map`](Self::map).
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        self.io.connection.pd()
    }

    /// Lets the peer write `region`, from the end of the last mapping on, or from offset 0. The
    /// peer knows the mapping when it has read bytes that this end writes after the call.
    ///
    /// The peer must accept mappings, by
    /// [`StreamBuilder::peer_mappings`](super::StreamBuilder::peer_mappings) or `RDMA_IOMAPSIZE` of
    /// rsockets. The region needs [`Access::LOCAL_WRITE`] and
    /// [`Access::REMOTE_WRITE`] in the [domain](Self::pd) of the stream.
    ///
    /// # Errors
    /// Fails with [`MapError`], and drops the region.
    pub fn map(&self, region: MemoryRegion) -> Result<IoMapping, MapError> {
        self.map_region(region, None)
    }

    /// Lets the peer write `region` as [`map`](Self::map) does, from `offset` on. The offset is a
    /// name that both programs know. It need not be related to an address.
    ///
    /// # Errors
    /// Fails with [`MapError`], and drops the region.
    pub fn map_at(&self, region: MemoryRegion, offset: u64) -> Result<IoMapping, MapError> {
        self.map_region(region, Some(offset))
    }

    fn map_region(&self, region: MemoryRegion, offset: Option<u64>) -> Result<IoMapping, MapError> {
        let memory = self.memory_for_peer(&region)?;
        let (index, offset) = self.io.map(memory, offset)?;
        Ok(IoMapping { io: Arc::downgrade(&self.io), region, index, offset })
    }

    fn memory_for_peer(&self, region: &MemoryRegion) -> Result<Segment, MapError> {
        let (pd, access, len) = (self.pd(), region.access(), region.len());
        let is_of_device = region.pd().device().identity() == pd.device().identity();
        if !is_of_device || region.pd().memory_id() != pd.memory_id() {
            return Err(MapError::OtherDomain);
        }
        if !access.contains(Access::LOCAL_WRITE | Access::REMOTE_WRITE) {
            return Err(MapError::NotWritable { access });
        }
        let length = u32::try_from(len).map_err(|_| MapError::TooLong { len })?;
        Ok(Segment { addr: region.iova(), key: region.rkey().0, length })
    }

    /// Writes `bytes` into memory that the peer has mapped, from `offset` on. The whole range must
    /// be inside one mapping. Bytes that this end writes to the stream after the call arrive after
    /// these bytes. The peer gets no other message.
    ///
    /// This end must accept mappings of the peer, by
    /// [`peer_mappings`](super::StreamBuilder::peer_mappings). A mapping is known when this end has
    /// read bytes that the peer wrote after its call of [`map`](Self::map).
    ///
    /// The returned future resolves when the bytes are in the send buffer.
    /// [`poll_end`](Self::poll_end) waits until they are in the memory of the peer. If the future
    /// is dropped, the first bytes may have been written.
    ///
    /// # Errors
    /// Fails with an error that contains a [`StreamError`]. After [`StreamError::NotMapped`],
    /// [`StreamError::OutsideMapping`] and [`StreamError::NoPeerMappings`], the stream is as
    /// before.
    pub async fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Self { io, writing, .. } = self;
        let mut sent = 0;
        poll_fn(|cx| io.poll(writing, cx, || write_rest_at(io, offset, bytes, &mut sent))).await
    }

    /// Writes the first of `bytes` as [`write_at`](Self::write_at) does, and returns their number.
    /// Waits while the send buffer is full.
    ///
    /// # Errors
    /// Fails as [`write_at`](Self::write_at) does.
    pub fn poll_write_at(
        &mut self,
        cx: &Context<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { io, writing, .. } = self;
        io.poll(writing, cx, || io.try_write_at(offset, bytes))
    }
}

impl OwnedWriteHalf {
    /// Writes into memory of the peer as [`RdmaStream::write_at`] does.
    ///
    /// # Errors
    /// Fails as [`RdmaStream::write_at`] does.
    pub async fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (io, slot) = self.parts();
        let mut sent = 0;
        poll_fn(|cx| io.poll(slot, cx, || write_rest_at(io, offset, bytes, &mut sent))).await
    }
}

impl Blocking<'_> {
    /// Writes into memory of the peer as [`RdmaStream::write_at`] does.
    ///
    /// # Errors
    /// Fails as [`RdmaStream::write_at`] does.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (io, timeout) = self.parts();
        let mut sent = 0;
        io.wait(timeout, || write_rest_at(io, offset, bytes, &mut sent))
    }
}

/// Writes what is left of `bytes`. Returns `None` until all are written.
fn write_rest_at(
    io: &Io,
    offset: u64,
    bytes: &[u8],
    sent: &mut usize,
) -> Option<Result<(), StreamError>> {
    loop {
        let rest = &bytes[*sent..];
        match io.try_write_at(offset.wrapping_add(*sent as u64), rest)? {
            Ok(written) => *sent += written,
            Err(error) => return Some(Err(error)),
        }
        if *sent == bytes.len() {
            return Some(Ok(()));
        }
    }
}

impl IoMapping {
    /// Returns the offset of the first byte in calls of the peer.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Deref for IoMapping {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl Drop for IoMapping {
    fn drop(&mut self) {
        if let Some(io) = self.io.upgrade() {
            io.unmap(self.index);
        }
    }
}

impl fmt::Debug for IoMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mapping = f.debug_struct("IoMapping");
        mapping.field("offset", &self.offset).field("region", &self.region).finish_non_exhaustive()
    }
}

/// Returns the mapping of `memory` at `offset`. By default, it begins after the `mapped` ones.
pub(super) fn place<'a>(
    memory: Segment,
    offset: Option<u64>,
    mapped: impl Iterator<Item = &'a Iomap>,
) -> Result<Iomap, MapError> {
    let len = memory.length as usize;
    let end = |start: u64, length: u32| start.saturating_add(length.into());
    let others: Vec<_> = mapped.map(|other| (other.offset, other.memory.length)).collect();
    let after = others.iter().map(|(start, length)| end(*start, *length)).max().unwrap_or(0);
    let offset = offset.unwrap_or(after);
    if offset.checked_add(memory.length.into()).is_none() {
        return Err(MapError::OutOfRange { offset, len });
    }
    let overlap = others.iter().find(|(start, length)| {
        *start < end(offset, memory.length) && offset < end(*start, *length)
    });
    match overlap {
        Some((other, _)) => Err(MapError::Overlaps { offset, len, other: *other }),
        None => Ok(Iomap { offset, memory }),
    }
}
