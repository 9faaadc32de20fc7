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
    ///
    /// ```
    /// use urxe_wire::{Ieth, Rkey};
    ///
    /// let header = Ieth { rkey: Rkey(0x12345) };
    /// let mut bytes = [0; Ieth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 1, 0x23, 0x45]);
    /// assert_eq!(Ieth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "invalidate 0x00012345");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    Ieth, "invalidate {rkey}" {
        /// Key of a memory region or window of the receiver.
        rkey: Rkey, 0, Hex 8;
    }
}
