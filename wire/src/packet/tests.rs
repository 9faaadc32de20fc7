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

/// The other process changes the headers after they were copied.
#[test]
fn headers_of_a_shared_packet_are_those_of_the_copy() {
    let repr = PacketRepr::new(
        Bth::new(Opcode::RcWriteOnly, Qpn::masked(0x11), Psn::new(7)),
        Ext::Reth(Reth { va: 0x1000, rkey: Rkey(1), dma_len: 5 }),
    );
    let mut bytes = vec![0; 40];
    assert_eq!(repr.emit(b"hello", &mut bytes), Ok(36));
    let mut headers = bytes.clone();
    headers.truncate(MAX_HEADERS_LEN);
    let shared: Vec<AtomicU8> = bytes.iter().copied().map(AtomicU8::new).collect();
    let changed = [(0, 0xff), (1, 0x0f), (7, 0x22), (12, 0xff), (27, 0xff)];
    for (place, value) in changed {
        shared[place].store(value, std::sync::atomic::Ordering::Relaxed);
    }
    let view = PacketView::parse_shared(&headers, &shared).unwrap();
    let whole = PacketView::parse(&bytes).unwrap();
    assert_eq!(view.to_repr(), whole.to_repr());
    assert_eq!((view.packet_len(), view.payload_len(), view.payload()), (40, 5, &[][..]));
    assert_eq!(view.data().to_array(), Some(*b"hello"));
    assert_eq!(view.data().slice(1..3).to_array(), Some(*b"el"));
    assert_eq!(view.data().to_array::<4>(), None);
    let mut stored = b"before".to_vec();
    view.append_to(&mut stored);
    assert_eq!(stored, [b"before", &bytes[..]].concat());
    for len in 0..40 {
        let copied = len.min(MAX_HEADERS_LEN);
        let shared = PacketView::parse_shared(&headers[..copied], &shared[..len]);
        assert_eq!(shared.err(), PacketView::parse(&bytes[..len]).err(), "{len}");
    }
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
