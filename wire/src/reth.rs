//! RDMA extended transport header (IBTA vol. 1, 9.3.3): which remote memory a WRITE, READ, ATOMIC
//! WRITE or FLUSH is about.
//!
//! ```text
//!  0                8          12          16
//! +----------------+-----------+-----------+
//! | virtual address|  R_Key    | DMA length|
//! +----------------+-----------+-----------+
//! ```

use std::fmt;

use crate::Rkey;
use crate::bytes::{be32, be64, head, put};
use crate::error::{Header, ParseError};

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address in the responder's memory region.
    pub va: u64,
    /// Key of that region or window.
    pub rkey: Rkey,
    /// Length in bytes of the whole operation, not of this packet.
    pub dma_len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::Reth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::Reth)?;
        Ok(Self { va: be64(b, 0), rkey: Rkey(be32(b, 8)), dma_len: be32(b, 12) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.va.to_be_bytes());
        put(buf, 8, self.rkey.0.to_be_bytes());
        put(buf, 12, self.dma_len.to_be_bytes());
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va 0x{:x} rkey {} dmalen {}", self.va, self.rkey, self.dma_len)
    }
}
