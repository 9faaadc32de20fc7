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
    AtomicAckEth, "original 0x{original:x}" {
        /// The content of the memory before the operation.
        original: u64, 0, Hex 16;
    }
}
