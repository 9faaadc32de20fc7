//! Datagram extended transport header (IBTA vol. 1, 9.3.2): who sent a datagram, and the key that
//! lets it in.
//!
//! ```text
//!  0          4          5          8
//! +-----------+----------+----------+
//! |   Q_Key   | reserved | source QP|
//! +-----------+----------+----------+
//! ```

use std::fmt;

use crate::bytes::{be32, head, put};
use crate::error::{Header, ParseError};
use crate::{QKey, Qpn};

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Must equal the key of the receiving queue pair.
    pub qkey: QKey,
    /// The sending queue pair.
    pub src_qp: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = Header::Deth.wire_len();

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::ShortHeader`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b: &[u8; Self::LEN] = head(bytes, Header::Deth)?;
        Ok(Self { qkey: QKey(be32(b, 0)), src_qp: Qpn::masked(be32(b, 4)) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        put(buf, 0, self.qkey.0.to_be_bytes());
        put(buf, 4, self.src_qp.value().to_be_bytes());
    }
}

impl fmt::Display for Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} qkey {}", self.src_qp, self.qkey)
    }
}
