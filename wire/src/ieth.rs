//! Invalidate extended transport header (IBTA vol. 1, 9.3.7): the key that a SEND with invalidate
//! makes void.
//!
//! ```text
//!  0          4
//! +-----------+
//! | R_Key     |
//! +-----------+
//! ```

use std::fmt;

use crate::Rkey;
use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};

/// Invalidate extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// The remote key (of the receiver's region or window) to invalidate.
    pub rkey: Rkey,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::Ieth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::Ieth)?;
        Ok(Self { rkey: Rkey(be32(b, 0)) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.rkey.0.to_be_bytes());
    }
}

impl fmt::Display for Ieth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalidate {}", self.rkey)
    }
}
