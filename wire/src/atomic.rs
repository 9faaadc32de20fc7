//! Headers of atomic operations: AtomicETH (IBTA vol. 1, 9.3.4) and AtomicAckETH (9.5.3).
//!
//! ```text
//!  0                8          12               20               28
//! +----------------+-----------+----------------+----------------+
//! | virtual address|  R_Key    | swap (or add)  | compare        |   AtomicETH
//! +----------------+-----------+----------------+----------------+
//! | original value |                                                AtomicAckETH
//! +----------------+
//! ```

use crate::Rkey;
use crate::fields::header;

header! {
    /// Atomic extended transport header.
    AtomicEth, "va 0x{va:x} rkey {rkey} swap/add 0x{swap_or_add:x} compare 0x{compare:x}" {
        /// Address in the responder's memory region, a multiple of eight.
        va: u64, 0, Hex 16;
        /// Key of that region or window.
        rkey: Rkey, 8, Hex 8;
        /// The value to store (compare and swap) or to add (fetch and add).
        swap_or_add: u64, 12, Hex 16;
        /// The value expected (compare and swap).
        compare: u64, 20, Hex 16;
    }
}

header! {
    /// Atomic ACK extended transport header.
    AtomicAckEth, "original 0x{original:x}" {
        /// What the memory held before the operation.
        original: u64, 0, Hex 16;
    }
}
