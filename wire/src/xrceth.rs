//! XRC extended transport header (IBTA vol. 1, A14.4.1): the shared receive queue that an XRC
//! request is for.
//!
//! ```text
//!  0          4
//! +-----------+
//! | 0 | XRCSRQ |
//! +-----------+
//! ```

use std::fmt;

use crate::Qpn;
use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};

/// XRC extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// Number of the shared receive queue, 24 bits like a QPN; the top byte is reserved.
    pub srq: Qpn,
}

impl XrcEth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::XrcEth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::XrcEth)?;
        Ok(Self { srq: Qpn::masked(be32(b, 0)) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.srq.value().to_be_bytes());
    }
}

impl fmt::Display for XrcEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xrcsrq {}", self.srq)
    }
}
