//! Invalidate extended transport header (IBTA vol. 1, 9.3.7).

use crate::Rkey;
use crate::fields::header;

header! {
    /// Invalidate extended transport header (IBTA vol. 1, 9.3.7): the key that a SEND with
    /// invalidate invalidates.
    ///
    /// ```text
    ///  0          4
    /// +-----------+
    /// | R_Key     |
    /// +-----------+
    /// ```
    Ieth, "invalidate {rkey}" {
        /// Key of a memory region or window of the receiver.
        rkey: Rkey, 0, Hex 8;
    }
}
