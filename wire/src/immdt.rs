//! Immediate data (IBTA vol. 1, 9.3.6).

use crate::fields::header;

header! {
    /// Immediate data (IBTA vol. 1, 9.3.6): four bytes for the receiver's completion.
    ///
    /// ```text
    ///  0          4
    /// +-----------+
    /// | immediate |
    /// +-----------+
    /// ```
    ImmDt, "imm 0x{data:08x}" {
        /// The four bytes as a number in host order. `imm_data` of libibverbs holds network order.
        data: u32, 0, Hex 8;
    }
}
