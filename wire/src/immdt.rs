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
    ///
    /// ```
    /// use urxe_wire::{ImmDt};
    ///
    /// let header = ImmDt { data: 42 };
    /// let mut bytes = [0; ImmDt::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 0, 0, 42]);
    /// assert_eq!(ImmDt::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "imm 0x0000002a");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    ImmDt, "imm 0x{data:08x}" {
        /// The four bytes as a number in host order. `imm_data` of libibverbs holds network order.
        data: u32, 0, Hex 8;
    }
}
