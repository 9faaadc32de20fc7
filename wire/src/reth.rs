//! RDMA extended transport header (IBTA vol. 1, 9.3.3).

use crate::Rkey;
use crate::fields::header;

header! {
    /// RDMA extended transport header (IBTA vol. 1, 9.3.3): the remote memory of a WRITE, READ,
    /// ATOMIC WRITE or FLUSH.
    ///
    /// ```text
    ///  0                8          12          16
    /// +----------------+-----------+-----------+
    /// | virtual address|  R_Key    | DMA length|
    /// +----------------+-----------+-----------+
    /// ```
    ///
    /// ```
    /// use urxe_wire::{Reth, Rkey};
    ///
    /// let header = Reth { va: 0x1000, rkey: Rkey(0x12345), dma_len: 5 };
    /// let mut bytes = [0; Reth::LEN];
    /// header.emit(&mut bytes);
    /// assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 0x23, 0x45, 0, 0, 0, 5]);
    /// assert_eq!(Reth::parse(&bytes)?, header);
    /// assert_eq!(header.to_string(), "va 0x1000 rkey 0x00012345 dmalen 5");
    /// # Ok::<(), urxe_wire::ParseError>(())
    /// ```
    Reth, "va 0x{va:x} rkey {rkey} dmalen {dma_len}" {
        /// Virtual address in the responder's memory region.
        va: u64, 0, Hex 16;
        /// Key of that region or window.
        rkey: Rkey, 8, Hex 8;
        /// Length of the whole operation in bytes, not only of this packet.
        dma_len: u32, 12, Decimal;
    }
}
