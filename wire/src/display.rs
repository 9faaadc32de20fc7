//! Packets for people: one line a packet, and its fields one by one.
//!
//! The line's form is `RC RDMA_WRITE_ONLY qp 0x000011 psn 1234 ack len 64 va 0x7f00 rkey 0x00001f2e
//! dmalen 64`. Words that say nothing (flags that are off, the default partition) are left out.
//! [`fields`] gives the same packet as a flat list, for verbose and machine-readable output,
//! without deciding its format.

use std::fmt;

use crate::PacketView;
pub use crate::fields::Value;

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
    let mut out = Vec::with_capacity(24);
    let mut header = |header, fields: Option<Vec<(&'static str, Value)>>| {
        let fields = fields.into_iter().flatten();
        out.extend(fields.map(|(name, value)| Field { header, name, value }));
    };
    header("bth", Some(bth_fields(packet)));
    header("xrceth", packet.xrceth().map(|h| h.fields()));
    header("deth", packet.deth().map(|h| h.fields()));
    header("feth", packet.feth().map(|h| h.fields()));
    header("reth", packet.reth().map(|h| h.fields()));
    header("atomic_eth", packet.atomic_eth().map(|h| h.fields()));
    header("aeth", packet.aeth().map(|h| h.fields()));
    header("atomic_ack_eth", packet.atomic_ack_eth().map(|h| h.fields()));
    header("immdt", packet.imm().map(|h| h.fields()));
    header("ieth", packet.ieth().map(|h| h.fields()));
    header("payload", Some(vec![("len", Value::Decimal(packet.payload_len() as u64))]));
    header("icrc", Some(vec![("value", Value::Hex(packet.icrc().into(), 8))]));
    out
}

/// Returns the fields of the BTH, which every packet has.
fn bth_fields(packet: &PacketView<'_>) -> Vec<(&'static str, Value)> {
    use Value::{Decimal, Flag, Hex, Word};
    let bth = packet.bth();
    vec![
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
