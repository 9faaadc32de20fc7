//! Extension headers from a few numbers, for each opcode.

use arbitrary::Arbitrary;
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Ext, Feth, HeaderSet, Ieth, ImmDt, Msn, Opcode,
    PlacementType, QKey, Qpn, ReservedLevel, Reth, Rkey, SelectivityLevel, Syndrome,
};

/// The values of all extension headers together.
#[derive(Arbitrary, Clone, Copy, Debug, Default)]
pub struct Values {
    /// The address of RETH and AtomicETH.
    pub va: u64,
    /// The key of RETH, AtomicETH and IETH.
    pub rkey: u32,
    /// The DMA length.
    pub dma_len: u32,
    /// The swap or add value.
    pub swap_or_add: u64,
    /// The compare value.
    pub compare: u64,
    /// The immediate data.
    pub imm: u32,
    /// The syndrome of an AETH.
    pub syndrome: u8,
    /// The MSN of an AETH.
    pub msn: u32,
}

/// Returns the extension of `opcode` with these values.
#[must_use]
pub fn ext(opcode: Opcode, v: &Values) -> Ext {
    let reth = Reth { va: v.va, rkey: Rkey(v.rkey), dma_len: v.dma_len };
    let aeth = Aeth { syndrome: Syndrome::from_byte(v.syndrome), msn: Msn::masked(v.msn) };
    let imm = ImmDt { data: v.imm };
    let deth = Deth { qkey: QKey(v.rkey), src_qp: Qpn::masked(v.msn) };
    let atomic =
        AtomicEth { va: v.va, rkey: Rkey(v.rkey), swap_or_add: v.swap_or_add, compare: v.compare };
    let levels = [
        SelectivityLevel::Range,
        SelectivityLevel::Region,
        SelectivityLevel::Reserved(ReservedLevel::Two),
        SelectivityLevel::Reserved(ReservedLevel::Three),
    ];
    let feth = Feth {
        placement: PlacementType::from_bits_retain(v.syndrome & 0x0f),
        selectivity: levels[usize::from(v.syndrome >> 6)],
    };
    let headers = opcode.info().headers.difference(HeaderSet::XRCETH);
    [
        Ext::None,
        Ext::Imm(imm),
        Ext::Ieth(Ieth { rkey: Rkey(v.rkey) }),
        Ext::Reth(reth),
        Ext::RethImm(reth, imm),
        Ext::Flush(feth, reth),
        Ext::Aeth(aeth),
        Ext::AtomicAck(aeth, AtomicAckEth { original: v.swap_or_add }),
        Ext::Atomic(atomic),
        Ext::Deth(deth),
        Ext::DethImm(deth, imm),
    ]
    .into_iter()
    .find(|ext| ext.headers() == headers)
    .expect("every opcode's headers have an extension")
}
