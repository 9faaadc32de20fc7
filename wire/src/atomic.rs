//! Headers of atomic operations: AtomicETH (IBTA vol. 1, 9.3.4) and AtomicAckETH (9.5.3).

use crate::Rkey;
use crate::fields::header;

header! {
    /// Atomic extended transport header (IBTA vol. 1, 9.3.4): the target and the operands of an
    /// atomic.
    ///
    /// ```text
    ///  0                8          12               20               28
    /// +----------------+-----------+----------------+----------------+
    /// | virtual address|  R_Key    | swap (or add)  | compare        |
    /// +----------------+-----------+----------------+----------------+
    /// ```
    ///
    /// ```
    /// use urxe_wire::{AtomicEth, Rkey};
    ///
    /// // A fetch and add of 2.
    /// let header = AtomicEth { va: 0x1000, rkey: Rkey(0x12345), swap_or_add: 2, compare: 0 };
    /// let mut bytes = [0; AtomicEth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 0x23, 0x45]);
    /// assert_eq!(bytes[12..], [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    /// assert_eq!(AtomicEth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "va 0x1000 rkey 0x00012345 swap/add 0x2 compare 0x0");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    AtomicEth, "va 0x{va:x} rkey {rkey} swap/add 0x{swap_or_add:x} compare 0x{compare:x}" {
        /// Virtual address in the responder's memory region, a multiple of eight.
        va: u64, 0, Hex 16;
        /// Key of that region or window.
        rkey: Rkey, 8, Hex 8;
        /// The value to store (compare and swap) or to add (fetch and add).
        swap_or_add: u64, 12, Hex 16;
        /// The expected value (compare and swap).
        compare: u64, 20, Hex 16;
    }
}

header! {
    /// Atomic ACK extended transport header (IBTA vol. 1, 9.5.3): the result of an atomic.
    ///
    /// ```text
    ///  0                8
    /// +----------------+
    /// | original value |
    /// +----------------+
    /// ```
    ///
    /// ```
    /// use urxe_wire::{AtomicAckEth};
    ///
    /// let header = AtomicAckEth { original: 40 };
    /// let mut bytes = [0; AtomicAckEth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 40]);
    /// assert_eq!(AtomicAckEth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "original 0x28");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    AtomicAckEth, "original 0x{original:x}" {
        /// The content of the memory before the operation.
        original: u64, 0, Hex 16;
    }
}
