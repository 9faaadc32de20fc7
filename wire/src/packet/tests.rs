use super::*;
use crate::{Msn, Rkey, Syndrome};

#[test]
fn pads() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad_count), [0, 3, 2, 1, 0, 3]);
    assert_eq!(packet_len(12, 5), 24);
    let mut buf = [0xa5; 24];
    assert_eq!(emit_pad(&mut buf, 17), Some(20));
    assert_eq!(buf[16..], [0xa5, 0, 0, 0, 0xa5, 0xa5, 0xa5, 0xa5]);
    assert_eq!(emit_pad(&mut buf, 24), Some(24));
    assert_eq!(emit_pad(&mut buf, 25), None);
    assert_eq!(emit_pad(&mut buf, usize::MAX), None);
}

#[test]
fn a_write_reads_back() {
    let mut bth = Bth::new(Opcode::RcWriteOnly, Qpn::masked(0x11), Psn::new(0xff_ffff));
    bth.ack_req = true;
    let repr = PacketRepr::new(
        bth,
        Ext::Reth(Reth { va: 0x7fff_0000_1234, rkey: Rkey(0x1f2e), dma_len: 5 }),
    );
    let mut buf = [0xa5; 64];
    let end = repr.emit(b"hello", &mut buf).unwrap();
    assert_eq!(end, 36);
    assert_eq!(buf[33..36], [0; 3]);
    buf[36..40].copy_from_slice(&0x1234_5678u32.to_le_bytes());
    let view = PacketView::parse(&buf[..40]).unwrap();
    assert_eq!(view.payload(), b"hello");
    assert_eq!(view.payload_len(), 5);
    assert_eq!(view.icrc(), 0x1234_5678);
    assert_eq!(view.psn(), Psn::new(0xff_ffff));
    let mut want = repr;
    want.bth.pad_count = 3;
    assert_eq!(view.to_repr(), want);
}

#[test]
fn an_acknowledgement_has_no_payload() {
    let bth = Bth::new(Opcode::RcAcknowledge, Qpn::masked(0x11), Psn::new(7));
    let repr =
        PacketRepr::new(bth, Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(1) }));
    let mut buf = [0; 64];
    assert_eq!(
        repr.emit(b"x", &mut buf),
        Err(EmitError::PayloadLength { opcode: Opcode::RcAcknowledge, have: 1 })
    );
    assert_eq!(repr.emit(b"", &mut buf), Ok(16));
    assert_eq!(PacketView::parse(&buf[..20]).unwrap().aeth().unwrap().syndrome, Syndrome::ACK);
    assert_eq!(
        PacketView::parse(&buf[..24]).unwrap_err(),
        ParseError::UnexpectedPayload { opcode: Opcode::RcAcknowledge, have: 4 }
    );
}
