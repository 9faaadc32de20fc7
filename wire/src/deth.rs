//! Datagram extended transport header (IBTA vol. 1, 9.3.2): who sent a datagram, and the key that
//! lets it in.
//!
//! ```text
//!  0          4          5          8
//! +-----------+----------+----------+
//! |   Q_Key   | reserved | source QP|
//! +-----------+----------+----------+
//! ```

use crate::fields::header;
use crate::{QKey, Qpn};

header! {
    /// Datagram extended transport header.
    Deth, "from {src_qp} qkey {qkey}" {
        /// Must equal the key of the receiving queue pair.
        qkey: QKey, 0, Hex 8;
        /// The sending queue pair.
        src_qp: Qpn, 4, Hex 6;
    }
}
