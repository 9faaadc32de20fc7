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
    ///
    /// ```
    /// use urxe_wire::{XrcEth, Qpn};
    ///
    /// let header = XrcEth { srq: Qpn::masked(7) };
    /// let mut bytes = [0; XrcEth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 0, 0, 7]);
    /// assert_eq!(XrcEth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "xrcsrq 0x000007");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    XrcEth, "xrcsrq {srq}" {
        /// Number of the shared receive queue, 24 bits.
        srq: Qpn, 0, Hex 6;
    }
}
