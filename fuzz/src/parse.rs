//! Any bytes, as a UDP payload, as an IP datagram and as an Ethernet frame.

use urxe_wire::packet::{ICRC_LEN, MAX_PACKET_LEN};
use urxe_wire::{Bth, Frame, Grh, HeaderSet, PacketView};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    packet(bytes);
    let _ = (Bth::parse(bytes), Grh::parse(bytes));
    for frame in [Frame::parse(bytes), Frame::parse_ip(bytes)] {
        match frame {
            Ok(frame) => {
                let _ = (
                    frame.icrc(),
                    frame.icrc_holds(),
                    frame.ip_checksum_holds(),
                    frame.udp_checksum_holds(),
                );
                packet(frame.udp_payload);
                let _ = frame.repr.build(frame.udp_payload);
            }
            Err(reason) => assert!(!reason.to_string().is_empty()),
        }
    }
}

fn packet(bytes: &[u8]) {
    let view = match PacketView::parse(bytes) {
        Ok(view) => view,
        Err(reason) => return assert!(!reason.to_string().is_empty()),
    };
    assert!(!view.to_string().is_empty());
    assert!(!urxe_wire::display::fields(&view).is_empty());
    assert_eq!(view.bytes(), bytes);
    let mut again = [0xa5; MAX_PACKET_LEN];
    let end =
        view.to_repr().emit(view.payload(), &mut again).expect("a parsed packet can be emitted");
    assert_eq!(end + ICRC_LEN, bytes.len());
    again[end..end + ICRC_LEN].copy_from_slice(&view.icrc().to_le_bytes());
    // Reserved bits and the pad are not kept, so the parsed values are compared.
    let second = PacketView::parse(&again[..end + ICRC_LEN]).expect("an emitted packet parses");
    assert_eq!(second.to_repr(), view.to_repr());
    assert_eq!(second.payload(), view.payload());
    if !view.info().has(HeaderSet::FETH) {
        // After the BTH, all bytes are unchanged, except the reserved bits of FETH, XRCETH and
        // DETH.
        let headers = view.info().headers.difference(HeaderSet::XRCETH | HeaderSet::DETH);
        if headers == view.info().headers {
            let payload_end = view.info().headers_len() + view.payload_len();
            assert_eq!(again[Bth::LEN..payload_end], bytes[Bth::LEN..payload_end]);
        }
    }
}
