//! Headers of atomic operations: AtomicETH (IBTA vol. 1, 9.3.4) and AtomicAckETH (9.5.3).
//!
//! ```text
//!  0                8          12               20               28
//! +----------------+-----------+----------------+----------------+
//! | virtual address|  R_Key    | swap (or add)  | compare        |   AtomicETH
//! +----------------+-----------+----------------+----------------+
//! | original value |                                                AtomicAckETH
//! +----------------+
//! ```

use std::fmt;

use crate::Rkey;
use crate::bytes::{be32, be64, head, put};
use crate::error::{Header, ParseError};

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address in the responder's memory region, a multiple of eight.
    pub va: u64,
    /// Key of that region or window.
    pub rkey: Rkey,
    /// The value to store (compare and swap) or to add (fetch and add).
    pub swap_or_add: u64,
    /// The value expected (compare and swap).
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::AtomicEth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::AtomicEth)?;
        Ok(Self {
            va: be64(b, 0),
            rkey: Rkey(be32(b, 8)),
            swap_or_add: be64(b, 12),
            compare: be64(b, 20),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.va.to_be_bytes());
        put(buf, 8, self.rkey.0.to_be_bytes());
        put(buf, 12, self.swap_or_add.to_be_bytes());
        put(buf, 20, self.compare.to_be_bytes());
    }
}

impl fmt::Display for AtomicEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "va 0x{:x} rkey {} swap/add 0x{:x} compare 0x{:x}",
            self.va, self.rkey, self.swap_or_add, self.compare
        )
    }
}

/// Atomic ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What the memory held before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::AtomicAckEth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::AtomicAckEth)?;
        Ok(Self { original: u64::from_be_bytes(*b) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.original.to_be_bytes());
    }
}

impl fmt::Display for AtomicAckEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "original 0x{:x}", self.original)
    }
}
