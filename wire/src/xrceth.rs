//! XRC extended transport header (IBTA vol. 1, A14.4.1): the shared receive queue that an XRC
//! request is for.
//!
//! ```text
//!  0          4
//! +-----------+
//! | 0 | XRCSRQ |
//! +-----------+
//! ```

use crate::Qpn;
use crate::fields::header;

header! {
    /// XRC extended transport header.
    XrcEth, "xrcsrq {srq}" {
        /// Number of the shared receive queue, 24 bits like a QPN; the top byte is reserved.
        srq: Qpn, 0, Hex 6;
    }
}
