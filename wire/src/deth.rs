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
    Deth, "from {src_qp} qkey {qkey}" {
        /// The Q_Key, which must equal that of the receiving queue pair.
        qkey: QKey, 0, Hex 8;
        /// The sending queue pair.
        src_qp: Qpn, 4, Hex 6;
    }
}
