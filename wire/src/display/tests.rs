use super::*;
use crate::*;

fn packet(repr: PacketRepr, payload: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; packet::MAX_PACKET_LEN];
    let end = repr.emit(payload, &mut buf).unwrap();
    buf.truncate(end + packet::ICRC_LEN);
    buf
}

fn line(repr: PacketRepr, payload: &[u8]) -> String {
    PacketView::parse(&packet(repr, payload)).unwrap().to_string()
}

fn bth(opcode: Opcode) -> Bth {
    Bth::new(opcode, Qpn::masked(0x11), Psn::new(1234))
}

#[test]
fn one_line_a_packet() {
    let mut b = bth(Opcode::RcSendOnly);
    b.ack_req = true;
    assert_eq!(
        line(PacketRepr::new(b, Ext::None), &[7; 64]),
        "RC SEND_ONLY qp 0x000011 psn 1234 ack len 64"
    );

    let reth = Reth { va: 0x7f00, rkey: Rkey(0x1f2e), dma_len: 3 };
    let mut b = bth(Opcode::RcWriteOnlyImm);
    b.solicited = true;
    b.becn = true;
    b.pkey = PKey(0x7fff);
    assert_eq!(
        line(PacketRepr::new(b, Ext::RethImm(reth, ImmDt { data: 0xbeef })), b"abc"),
        "RC RDMA_WRITE_ONLY_IMM qp 0x000011 psn 1234 se becn pkey 0x7fff len 3 \
         va 0x7f00 rkey 0x00001f2e dmalen 3 imm 0x0000beef"
    );

    let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: Msn::masked(9) };
    assert_eq!(
        line(PacketRepr::new(bth(Opcode::RcAcknowledge), Ext::Aeth(aeth)), b""),
        "RC ACKNOWLEDGE qp 0x000011 psn 1234 NAK remote access error msn 9"
    );

    let deth = Deth { qkey: QKey::GSI, src_qp: Qpn::QP1 };
    assert_eq!(
        line(PacketRepr::new(bth(Opcode::UdSendOnly), Ext::Deth(deth)), &[0; 256]),
        "UD SEND_ONLY qp 0x000011 psn 1234 len 256 from 0x000001 qkey 0x80010000"
    );

    let feth =
        Feth { placement: PlacementType::PERSISTENCE, selectivity: SelectivityLevel::Region };
    let flush = PacketRepr {
        bth: bth(Opcode::XrcFlush),
        xrceth: Some(XrcEth { srq: Qpn::masked(5) }),
        ext: Ext::Flush(feth, reth),
    };
    assert_eq!(
        line(flush, b""),
        "XRC FLUSH qp 0x000011 psn 1234 xrcsrq 0x000005 plt 0x2 sel Region \
         va 0x7f00 rkey 0x00001f2e dmalen 3"
    );
}

#[test]
fn fields_name_every_header() {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(9) };
    let repr = PacketRepr::new(
        bth(Opcode::RcAtomicAcknowledge),
        Ext::AtomicAck(aeth, AtomicAckEth { original: 0xff }),
    );
    let bytes = packet(repr, b"");
    let fields = fields(&PacketView::parse(&bytes).unwrap());
    let text: Vec<_> =
        fields.iter().map(|f| format!("{}.{}={}", f.header, f.name, f.value)).collect();
    assert_eq!(text[..2], ["bth.opcode=0x12", "bth.name=RC ATOMIC_ACKNOWLEDGE"]);
    assert_eq!(
        text[12..],
        [
            "aeth.syndrome=0x1f",
            "aeth.msn=9",
            "atomic_ack_eth.original=0x00000000000000ff",
            "payload.len=0",
            "icrc.value=0x00000000"
        ]
    );
}

#[test]
fn fields_of_every_opcode_stand_in_wire_order() {
    for opcode in Opcode::all() {
        let info = opcode.info();
        let mut bytes = vec![0; info.headers_len() + packet::ICRC_LEN];
        if let PayloadRule::Exactly(len) = info.payload {
            bytes.extend(vec![0; len.into()]);
        }
        bytes[0] = opcode.byte();
        let mut headers: Vec<_> =
            fields(&PacketView::parse(&bytes).unwrap()).iter().map(|field| field.header).collect();
        headers.dedup();
        let present = [
            (HeaderSet::XRCETH, "xrceth"),
            (HeaderSet::DETH, "deth"),
            (HeaderSet::FETH, "feth"),
            (HeaderSet::RETH, "reth"),
            (HeaderSet::ATOMIC_ETH, "atomic_eth"),
            (HeaderSet::AETH, "aeth"),
            (HeaderSet::ATOMIC_ACK_ETH, "atomic_ack_eth"),
            (HeaderSet::IMM, "immdt"),
            (HeaderSet::IETH, "ieth"),
        ];
        let present = present.into_iter().filter(|(header, _)| info.has(*header));
        let expected = present.map(|(_, name)| name);
        assert!(
            headers
                .iter()
                .copied()
                .eq(["bth"].into_iter().chain(expected).chain(["payload", "icrc"])),
            "{opcode}: {headers:?}"
        );
    }
}
