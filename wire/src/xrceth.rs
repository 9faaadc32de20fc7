//! XRC extended transport header (IBTA vol. 1, A14.4.1).

use crate::Qpn;
use crate::fields::header;

header! {
    /// XRC extended transport header (IBTA vol. 1, A14.4.1): the shared receive queue of an XRC
    /// request.
    ///
    /// ```text
    ///  0          1           4
    /// +----------+-----------+
    /// | reserved | XRCSRQ    |
    /// +----------+-----------+
    /// ```
    XrcEth, "xrcsrq {srq}" {
        /// Number of the shared receive queue, 24 bits.
        srq: Qpn, 0, Hex 6;
    }
}
