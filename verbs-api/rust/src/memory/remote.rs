//! A peer's memory: what one side tells the other so that it can read and write there.

use std::fmt;
use std::ops::RangeBounds;
use std::str::FromStr;

use urxe_stack::qp::work_request::Remote;
use urxe_wire::Rkey;

use super::slice::resolve_range;
use crate::endpoint::{decimal, fields, hex, serde_as_text};

/// A region of a peer: address, length and key, told by the peer's
/// [`MemoryRegion::remote`](crate::MemoryRegion::remote).
///
/// As text, `addr=0x0000000000001000,len=4096,rkey=0x00012345`: `Display` writes it, `FromStr`
/// reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Address of the first byte, in the peer region's address space.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The key.
    pub rkey: Rkey,
}

/// Why there is no such part of a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {start}..{end} are not inside the peer's region of {region_len} bytes")]
pub struct RemoteSliceError {
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// The region's length.
    pub region_len: u64,
}

impl RemoteRegion {
    /// A part of it. `range` counts bytes from 0.
    ///
    /// # Errors
    /// [`RemoteSliceError`] if it is not inside.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self, RemoteSliceError> {
        let (start, end) = resolve_range(&range, 0..self.len, |byte| byte.saturating_add(1));
        if start > end || end > self.len {
            return Err(RemoteSliceError { start, end, region_len: self.len });
        }
        Ok(Self { addr: self.addr.wrapping_add(start), len: end - start, rkey: self.rkey })
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

/// Why a text names no peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteParseError {
    /// Not three fields.
    #[error("not a remote region: it reads addr=0x1000,len=4096,rkey=0x00012345")]
    Shape,
    /// The address.
    #[error("addr is not 0x and up to 16 hexadecimal digits")]
    Addr,
    /// The length.
    #[error("len is not a number of bytes")]
    Len,
    /// The key.
    #[error("rkey is not 0x and up to 8 hexadecimal digits")]
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
