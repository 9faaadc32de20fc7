//! Regions of a peer, as text and in work requests.

use std::fmt;
use std::ops::RangeBounds;
use std::str::FromStr;

use urxe_stack::qp::work_request::Remote;
use urxe_wire::Rkey;

use super::slice::resolve_range;
use crate::endpoint::{decimal, fields, hex, serde_as_text};

/// The bytes of a word.
const WORD: u64 = 8;

/// A region of a peer, as returned by the peer's
/// [`MemoryRegion::remote`](crate::MemoryRegion::remote).
///
/// A program can make any value. The peer checks the key, the range and the rights, so the value
/// gives only access that the owner of the region granted to each holder of the key.
///
/// `Display` and `FromStr` convert it to and from the text form
/// `addr=0x0000000000001000,len=4096,rkey=0x00012345`.
///
/// ```
/// use urxe::{Remote, RemoteParseError, RemoteRegion, RemoteSliceError, Rkey};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let region: RemoteRegion = "addr=0x1000,len=4096,rkey=0x00012345".parse()?;
/// let second = region.slice(2048..)?;
/// assert_eq!((second.addr, second.len, second.rkey), (0x1800, 2048, Rkey(0x12345)));
/// let error: RemoteSliceError = region.slice(..5000).unwrap_err();
/// assert_eq!((error.start, error.end, error.region_len), (0, 5000, 4096));
/// // Work requests need the address and the key only.
/// assert_eq!(Remote::from(second), Remote { addr: 0x1800, rkey: Rkey(0x12345) });
/// let error: RemoteParseError = "addr=0x1000".parse::<RemoteRegion>().unwrap_err();
/// println!("{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// The address of the first byte, in the address space of the region.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// The remote key.
    pub rkey: Rkey,
}

/// The range exceeds the region of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {start}..{end} exceed the peer's region of {region_len} bytes")]
#[non_exhaustive]
pub struct RemoteSliceError {
    /// The first byte of the range.
    pub start: u64,
    /// The first byte after the range.
    pub end: u64,
    /// The length of the region in bytes.
    pub region_len: u64,
}

impl RemoteRegion {
    /// The number of bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 20;

    /// Returns the region as bytes for a message or private data: the address, the length and the
    /// key, each big-endian.
    ///
    /// ```
    /// use urxe::{RemoteBytesError, RemoteRegion, Rkey};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let region = RemoteRegion { addr: 0x1000, len: 4096, rkey: Rkey(0x12345) };
    /// let bytes = region.to_bytes();
    /// assert_eq!(RemoteRegion::from_bytes(&bytes)?, region);
    /// let error = RemoteRegion::from_bytes(&bytes[..16]).unwrap_err();
    /// assert_eq!(error, RemoteBytesError::Length { given: 16 });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes
    }

    /// Returns the region of these bytes, which must be exactly those of
    /// [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// Fails with [`RemoteBytesError`] if the number of bytes is not [`BYTES`](Self::BYTES), or if
    /// the region exceeds the address space.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RemoteBytesError> {
        let Ok(bytes) = <&[u8; Self::BYTES]>::try_from(bytes) else {
            return Err(RemoteBytesError::Length { given: bytes.len() });
        };
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let (addr, len) = (number(0), number(8));
        // The last byte may be the last of the address space.
        if len != 0 && addr.checked_add(len - 1).is_none() {
            return Err(RemoteBytesError::Range { addr, len });
        }
        let rkey = Rkey(u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]));
        Ok(Self { addr, len, rkey })
    }

    /// Returns a part of the region. `range` counts bytes from 0.
    ///
    /// # Errors
    /// Fails with [`RemoteSliceError`] if the range exceeds the region.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, RemoteSliceError> {
        let (start, end) = resolve_range(&range, 0..self.len, |byte| byte.saturating_add(1));
        if start > end || end > self.len {
            return Err(RemoteSliceError { start, end, region_len: self.len });
        }
        Ok(Self { addr: self.addr.wrapping_add(start), len: end - start, rkey: self.rkey })
    }

    /// Returns the 8 bytes of number `index` in the region, for an atomic operation or an ATOMIC
    /// WRITE. The region is an array of `u64`, and `index` counts from 0. Memory of
    /// [`ProtectionDomain::allocate`](crate::ProtectionDomain::allocate) has the alignment that
    /// atomic operations need.
    ///
    /// ```
    /// use urxe::{Access, ConnectOptions, RemoteSliceError, aio::AsyncQueuePair, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    /// # let qp = AsyncQueuePair::builder().create(&pd)?;
    /// # let peer = AsyncQueuePair::builder().create(&peer_pd)?;
    /// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
    /// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// // Four counters.
    /// let counters = peer_pd.allocate(4 * 8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    /// let there = counters.remote();
    /// pollster::block_on(qp.fetch_add(there.word(3)?, 5))?;
    /// assert_eq!(counters.load_u64(3 * 8)?, 5);
    /// let error: RemoteSliceError = there.word(4).unwrap_err();
    /// assert_eq!((error.start, error.end, error.region_len), (32, 40, 32));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`RemoteSliceError`] if the region has fewer bytes.
    pub fn word(&self, index: u64) -> Result<Self, RemoteSliceError> {
        let start = index.saturating_mul(WORD);
        self.slice(start..start.saturating_add(WORD))
    }
}

impl From<RemoteRegion> for Remote {
    fn from(region: RemoteRegion) -> Self {
        Self { addr: region.addr, rkey: region.rkey }
    }
}

impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addr={:#018x},len={},rkey={}", self.addr, self.len, self.rkey)
    }
}

/// The reason why bytes are not a region of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteBytesError {
    /// The number of bytes is wrong.
    #[error("{given} bytes are no remote region; it has {} bytes", RemoteRegion::BYTES)]
    Length {
        /// The number of bytes.
        given: usize,
    },
    /// The region exceeds the address space.
    #[error("a region of {len} bytes at {addr:#x} exceeds the address space")]
    Range {
        /// The address of the first byte.
        addr: u64,
        /// The length in bytes.
        len: u64,
    },
}

/// The reason why a text is not a region of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteParseError {
    /// The text does not have the three fields `addr`, `len` and `rkey` in this order.
    #[error("not a remote region; expected addr=0x1000,len=4096,rkey=0x00012345")]
    Shape,
    /// The address is invalid.
    #[error("addr is not 0x followed by up to 16 hexadecimal digits")]
    Addr,
    /// The length is invalid.
    #[error("len is not a decimal number of bytes")]
    Len,
    /// The key is invalid.
    #[error("rkey is not 0x followed by up to 8 hexadecimal digits")]
    Rkey,
}

impl FromStr for RemoteRegion {
    type Err = RemoteParseError;

    fn from_str(text: &str) -> Result<Self, RemoteParseError> {
        let named = fields(text, ["addr", "len", "rkey"]);
        let [addr, len, rkey] = named.ok_or(RemoteParseError::Shape)?;
        let addr = hex(addr).ok_or(RemoteParseError::Addr)?;
        let len = decimal(len).ok_or(RemoteParseError::Len)?;
        let rkey = hex(rkey).ok_or(RemoteParseError::Rkey)?;
        let rkey = u32::try_from(rkey).map_err(|_| RemoteParseError::Rkey)?;
        Ok(Self { addr, len, rkey: Rkey(rkey) })
    }
}

serde_as_text!(RemoteRegion);
