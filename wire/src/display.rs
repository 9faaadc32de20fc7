//! Packets for people: one line a packet, and its fields one by one.
//!
//! The line's form is `RC RDMA_WRITE_ONLY qp 0x000011 psn 1234 ack len 64 va 0x7f00 rkey 0x00001f2e
//! dmalen 64`. Words that say nothing (flags that are off, the default partition) are left out.
//! [`fields`] gives the same packet as a flat list, for verbose and machine-readable output,
//! without deciding its format.

use std::fmt;

use crate::PacketView;

impl fmt::Display for PacketView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bth())?;
        if self.info().has_payload() {
            write!(f, " len {}", self.payload_len())?;
        }
        header(f, self.xrceth())?;
        header(f, self.deth())?;
        header(f, self.feth())?;
        header(f, self.reth())?;
        header(f, self.atomic_eth())?;
        header(f, self.aeth())?;
        header(f, self.atomic_ack_eth())?;
        header(f, self.imm())?;
        header(f, self.ieth())
    }
}

/// Writes a header, if it is there.
fn header(f: &mut fmt::Formatter<'_>, header: Option<impl fmt::Display>) -> fmt::Result {
    header.map_or(Ok(()), |header| write!(f, " {header}"))
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number best read in decimal.
    Decimal(u64),
    /// A number best read in hexadecimal, with so many digits.
    Hex(u64, usize),
    /// A flag.
    Flag(bool),
    /// A word, such as an opcode's name.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Decimal(v) => write!(f, "{v}"),
            Self::Hex(v, digits) => write!(f, "0x{v:0digits$x}"),
            Self::Flag(v) => write!(f, "{}", u8::from(v)),
            Self::Word(v) => f.write_str(v),
        }
    }
}

/// A field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The header it is in: `bth`, `reth`, `aeth`, ...
    pub header: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

/// Every field of every header of a packet in wire order, payload length and ICRC last.
#[must_use]
pub fn fields(packet: &PacketView<'_>) -> Vec<Field> {
    use Value::{Decimal, Hex};
    let mut out = Vec::with_capacity(24);
    let mut header = |header, fields: &[(&'static str, Value)]| {
        out.extend(fields.iter().map(|&(name, value)| Field { header, name, value }));
    };
    header("bth", &bth_fields(packet));
    if let Some(h) = packet.xrceth() {
        header("xrceth", &[("srq", Hex(h.srq.value().into(), 6))]);
    }
    if let Some(h) = packet.deth() {
        header(
            "deth",
            &[("qkey", Hex(h.qkey.value().into(), 8)), ("src_qp", Hex(h.src_qp.value().into(), 6))],
        );
    }
    if let Some(h) = packet.feth() {
        let level = u64::from(h.selectivity.level());
        header(
            "feth",
            &[("placement", Hex(h.placement.bits().into(), 1)), ("selectivity", Decimal(level))],
        );
    }
    if let Some(h) = packet.reth() {
        header(
            "reth",
            &[
                ("va", Hex(h.va, 16)),
                ("rkey", Hex(h.rkey.value().into(), 8)),
                ("dma_len", Decimal(h.dma_len.into())),
            ],
        );
    }
    if let Some(h) = packet.atomic_eth() {
        header(
            "atomic_eth",
            &[
                ("va", Hex(h.va, 16)),
                ("rkey", Hex(h.rkey.value().into(), 8)),
                ("swap_or_add", Hex(h.swap_or_add, 16)),
                ("compare", Hex(h.compare, 16)),
            ],
        );
    }
    if let Some(h) = packet.aeth() {
        header(
            "aeth",
            &[
                ("syndrome", Hex(h.syndrome.byte().into(), 2)),
                ("msn", Decimal(h.msn.value().into())),
            ],
        );
    }
    if let Some(h) = packet.atomic_ack_eth() {
        header("atomic_ack_eth", &[("original", Hex(h.original, 16))]);
    }
    if let Some(h) = packet.imm() {
        header("immdt", &[("data", Hex(h.data.into(), 8))]);
    }
    if let Some(h) = packet.ieth() {
        header("ieth", &[("rkey", Hex(h.rkey.value().into(), 8))]);
    }
    header("payload", &[("len", Decimal(packet.payload_len() as u64))]);
    header("icrc", &[("value", Hex(packet.icrc().into(), 8))]);
    out
}

/// Returns the fields of the BTH, which every packet has.
fn bth_fields(packet: &PacketView<'_>) -> [(&'static str, Value); 12] {
    use Value::{Decimal, Flag, Hex, Word};
    let bth = packet.bth();
    [
        ("opcode", Hex(bth.opcode.byte().into(), 2)),
        ("name", Word(packet.info().name)),
        ("solicited", Flag(bth.solicited)),
        ("mig_req", Flag(bth.mig_req)),
        ("pad_count", Decimal(bth.pad_count.into())),
        ("version", Decimal(bth.version.into())),
        ("pkey", Hex(bth.pkey.value().into(), 4)),
        ("fecn", Flag(bth.fecn)),
        ("becn", Flag(bth.becn)),
        ("dest_qp", Hex(bth.dest_qp.value().into(), 6)),
        ("ack_req", Flag(bth.ack_req)),
        ("psn", Decimal(bth.psn.value().into())),
    ]
}

#[cfg(test)]
mod tests;
