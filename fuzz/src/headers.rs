//! Extension headers out of a few numbers, by what an opcode has.

use arbitrary::Arbitrary;
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Ext, Feth, HeaderSet, Ieth, ImmDt, Msn, Opcode,
    PlacementType, QKey, Qpn, ReservedLevel, Reth, Rkey, SelectivityLevel, Syndrome,
};

/// The values of all extension headers together.
#[derive(Arbitrary, Clone, Copy, Debug, Default)]
pub struct Values {
    /// Address of RETH and AtomicETH.
    pub va: u64,
    /// Key of RETH, AtomicETH and IETH.
    pub rkey: u32,
    /// DMA length.
    pub dma_len: u32,
    /// Swap or add.
    pub swap_or_add: u64,
    /// Compare.
    pub compare: u64,
    /// Immediate data.
    pub imm: u32,
    /// Syndrome of an AETH.
    pub syndrome: u8,
    /// MSN of an AETH.
    pub msn: u32,
}

/// The extension of `opcode` with these values.
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
