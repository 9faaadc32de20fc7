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
    Reth, "va 0x{va:x} rkey {rkey} dmalen {dma_len}" {
        /// Virtual address in the responder's memory region.
        va: u64, 0, Hex 16;
        /// Key of that region or window.
        rkey: Rkey, 8, Hex 8;
        /// Length of the whole operation in bytes, not only of this packet.
        dma_len: u32, 12, Decimal;
    }
}
