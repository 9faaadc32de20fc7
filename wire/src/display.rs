//! Packets as text: one line for a packet, or a list of its fields.
//!
//! A line has the form `RC RDMA_WRITE_ONLY qp 0x000011 psn 1234 ack len 64 va 0x7f00 rkey
//! 0x00001f2e dmalen 64`. It omits flags that are off and the default partition. [`fields`] returns
//! a flat list of fields for verbose and machine-readable output, and leaves the format to the
//! caller.

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

/// Writes a header, if it is present.
fn header(f: &mut fmt::Formatter<'_>, header: Option<impl fmt::Display>) -> fmt::Result {
    header.map_or(Ok(()), |header| write!(f, " {header}"))
}

/// A field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The header that holds the field: `bth`, `reth`, `aeth`, and so on.
    pub header: &'static str,
    /// The name of the field within the header.
    pub name: &'static str,
    /// The value of the field.
    pub value: Value,
}

/// Returns every field of every header in wire order, followed by the payload length and the ICRC.
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
