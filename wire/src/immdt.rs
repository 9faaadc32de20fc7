//! Immediate data (IBTA vol. 1, 9.3.6): four bytes that travel to the receiver's completion
//! untouched.
//!
//! ```text
//!  0          4
//! +-----------+
//! | immediate |
//! +-----------+
//! ```

use crate::fields::header;

header! {
    /// Immediate data.
    ImmDt, "imm 0x{data:08x}" {
        /// The four bytes as a number in host order; `imm_data` of libibverbs holds them in network
        /// order.
        data: u32, 0, Hex 8;
    }
}
