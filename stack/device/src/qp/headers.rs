//! The opcode and extension headers of a SEND or WRITE packet, by service and position in the
//! message.
//!
//! Source: IBTA vol. 1, table 38. The table of opcodes is in `wire/src/opcode.rs`.

use urxe_wire::Opcode::*;
use urxe_wire::{Ext, Ieth, ImmDt, Opcode, Reth, Service};

use super::work_request::{Remote, SendOp};

/// The opcodes of one operation: FIRST, MIDDLE, LAST, ONLY.
type Family = [Opcode; 4];

/// Returns the opcode and the extension headers of one packet. `length` is the length of the whole
/// message in bytes. `op` must be a SEND or WRITE that the service has.
#[inline] // what it returns is more than registers hold
pub(crate) fn data_headers(
    service: Service,
    op: &SendOp,
    length: u32,
    first: bool,
    last: bool,
) -> (Opcode, Ext) {
    let (send, send_imm, write, write_imm) = match service {
        Service::Uc => (UC_SEND, UC_SEND_IMM, UC_WRITE, UC_WRITE_IMM),
        _ => (RC_SEND, RC_SEND_IMM, RC_WRITE, RC_WRITE_IMM),
    };
    let reth = |remote: Remote| Reth { va: remote.addr, rkey: remote.rkey, dma_len: length };
    let pick = |family: Family| match (first, last) {
        (true, false) => family[0],
        (false, false) => family[1],
        (false, true) => family[2],
        (true, true) => family[3],
    };
    match *op {
        SendOp::Send => (pick(send), Ext::None),
        SendOp::SendImm { imm } => {
            (pick(send_imm), if last { Ext::Imm(ImmDt { data: imm }) } else { Ext::None })
        }
        SendOp::SendInvalidate { rkey } => {
            (pick(RC_SEND_INVALIDATE), if last { Ext::Ieth(Ieth { rkey }) } else { Ext::None })
        }
        SendOp::Write { remote } => {
            (pick(write), if first { Ext::Reth(reth(remote)) } else { Ext::None })
        }
        SendOp::WriteImm { remote, imm } => {
            let ext = match (first, last) {
                (true, true) => Ext::RethImm(reth(remote), ImmDt { data: imm }),
                (true, false) => Ext::Reth(reth(remote)),
                (false, true) => Ext::Imm(ImmDt { data: imm }),
                (false, false) => Ext::None,
            };
            (pick(write_imm), ext)
        }
        SendOp::Read { .. }
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. }
        | SendOp::AtomicWrite { .. }
        | SendOp::Flush { .. } => {
            unreachable!("{op:?} has a response of its own")
        }
        SendOp::BindMw(_) | SendOp::RegMr { .. } | SendOp::LocalInv { .. } => {
            unreachable!("{op:?} sends nothing")
        }
    }
}

const RC_SEND: Family = [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly];
const RC_SEND_IMM: Family = [RcSendFirst, RcSendMiddle, RcSendLastImm, RcSendOnlyImm];
const RC_SEND_INVALIDATE: Family = [RcSendFirst, RcSendMiddle, RcSendLastInv, RcSendOnlyInv];
const RC_WRITE: Family = [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly];
const RC_WRITE_IMM: Family = [RcWriteFirst, RcWriteMiddle, RcWriteLastImm, RcWriteOnlyImm];
const UC_SEND: Family = [UcSendFirst, UcSendMiddle, UcSendLast, UcSendOnly];
const UC_SEND_IMM: Family = [UcSendFirst, UcSendMiddle, UcSendLastImm, UcSendOnlyImm];
const UC_WRITE: Family = [UcWriteFirst, UcWriteMiddle, UcWriteLast, UcWriteOnly];
const UC_WRITE_IMM: Family = [UcWriteFirst, UcWriteMiddle, UcWriteLastImm, UcWriteOnlyImm];
