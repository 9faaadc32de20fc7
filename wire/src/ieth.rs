//! Invalidate extended transport header (IBTA vol. 1, 9.3.7): the key that a SEND with invalidate
//! makes void.
//!
//! ```text
//!  0          4
//! +-----------+
//! | R_Key     |
//! +-----------+
//! ```

use crate::Rkey;
use crate::fields::header;

header! {
    /// Invalidate extended transport header.
    Ieth, "invalidate {rkey}" {
        /// The remote key (of the receiver's region or window) to invalidate.
        rkey: Rkey, 0, Hex 8;
    }
}
