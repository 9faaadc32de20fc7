//! Immediate data (IBTA vol. 1, 9.3.6): four bytes that travel to the receiver's completion
//! untouched.
//!
//! ```text
//!  0          4
//! +-----------+
//! | immediate |
//! +-----------+
//! ```

use std::fmt;

use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};

/// Immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt {
    /// The four bytes as a number in host order; `imm_data` of libibverbs holds them in network
    /// order.
    pub data: u32,
}

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = Header::ImmDt.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::ImmDt)?;
        Ok(Self { data: be32(b, 0) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.data.to_be_bytes());
    }
}

impl fmt::Display for ImmDt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imm 0x{:08x}", self.data)
    }
}
