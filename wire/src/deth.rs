//! Datagram extended transport header (IBTA vol. 1, 9.3.2).

use crate::fields::header;
use crate::{QKey, Qpn};

header! {
    /// Datagram extended transport header (IBTA vol. 1, 9.3.2): the sender of a datagram and its
    /// Q_Key.
    ///
    /// ```text
    ///  0          4          5          8
    /// +-----------+----------+----------+
    /// |   Q_Key   | reserved | source QP|
    /// +-----------+----------+----------+
    /// ```
    ///
    /// ```
    /// use urxe_wire::{Deth, QKey, Qpn};
    ///
    /// let header = Deth { qkey: QKey(0x11), src_qp: Qpn::masked(0x12) };
    /// let mut bytes = [0; Deth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 0, 0, 0x11, 0, 0, 0, 0x12]);
    /// assert_eq!(Deth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "from 0x000012 qkey 0x00000011");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    Deth, "from {src_qp} qkey {qkey}" {
        /// The Q_Key, which must equal that of the receiving queue pair.
        qkey: QKey, 0, Hex 8;
        /// The sending queue pair.
        src_qp: Qpn, 4, Hex 6;
    }
}
