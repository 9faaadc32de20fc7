//! Frames that another implementation made: scapy 2.8.0, whose `contrib.roce` computes the ICRC.
//!
//! They were made once, by hand:
//!
//! ```python
//! from scapy.all import *
//! from scapy.contrib.roce import *
//! import struct
//! mac = dict(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
//! v4 = lambda **k: (Ether(**mac)/IP(src="192.0.2.1", dst="198.51.100.7", **k)/
//!                   UDP(sport=49321, dport=4791))
//! v6 = lambda **k: (Ether(**mac)/IPv6(src="2001:db8::1", dst="fe80::2", **k)/
//!                   UDP(sport=50000, dport=4791))
//! reth = struct.pack("!QII", 0x7f0011223344, 0x1234, 5)
//! SEND = (v4(id=0x1234, flags="DF", ttl=7, tos=0x12)/
//!         BTH(opcode=4, dqpn=0x11, psn=0xabcdef, padcount=1, ackreq=1, solicited=1)/
//!         Raw(b"sevenby\0"))
//! WRITE = (v6(tc=2, fl=0xbeef, hlim=3)/
//!          BTH(opcode=10, dqpn=0xfffffe, psn=0, padcount=3, becn=1)/Raw(reth+b"hello\0\0\0"))
//! NAK = v4(id=0)/BTH(opcode=17, dqpn=0x12, psn=5)/AETH(syndrome=0x62, msn=9)
//! CNP = v4(id=1, flags="DF")/BTH(opcode=0x81, dqpn=0x33, becn=1)/CNPPadding()
//! # scapy 2.8.0 has no DETH and no XRCETH: they are bytes to it, its ICRC covers them.
//! deth = struct.pack("!II", 0x11111111, 0x9c)
//! xrceth = struct.pack("!I", 0x345)
//! imm = struct.pack("!I", 0xdeadbeef)
//! reth6 = struct.pack("!QII", 0x7f0011223344, 0x1234, 6)
//! UC_SEND = (v4(id=7, flags="DF")/
//!            BTH(opcode=0x24, dqpn=0x21, psn=9, padcount=3)/Raw(b"unrel\0\0\0"))
//! UD_SEND = (v6(hlim=64)/
//!            BTH(opcode=0x65, dqpn=0x22, psn=0xffffff, solicited=1)/Raw(deth+imm+b"datagram"))
//! XRC_SEND = (v4(id=0, flags="DF")/
//!             BTH(opcode=0xa4, dqpn=0x23, psn=1, padcount=1, ackreq=1)/Raw(xrceth+b"xrcsend\0"))
//! XRC_WRITE = (v4(id=3, flags="DF")/
//!              BTH(opcode=0xab, dqpn=0x24, psn=2, padcount=2, ackreq=1)/
//!              Raw(xrceth+reth6+imm+b"window\0\0"))
//! print(raw(frame).hex())
//! ```
//!
//! Here the same frames are made from our own values, and must be the same bytes, ICRC and
//! checksums included.

use std::net::SocketAddr;

use urxe_wire::packet::MAX_PACKET_LEN;
use urxe_wire::{
    Aeth, Bth, Deth, Ext, Frame, FrameRepr, IcrcSeed, ImmDt, IpRepr, LinkRepr, Msn, NakCode,
    Opcode, PacketRepr, Psn, QKey, Qpn, Reth, Rkey, Syndrome, XrcEth,
};

const SEND: &str = "\
    0200000000020200000000010800451200341234400007117537c0000201c6336407c0a912b70020\
    efe80490ffff0000001180abcdef736576656e627900ac6a7f53";
const WRITE: &str = "\
    02000000000202000000000186dd6020beef0030110320010db8000000000000000000000001fe80\
    0000000000000000000000000002c35012b70030d9690a30ffff40fffffe0000000000007f001122\
    3344000012340000000568656c6c6f000000b1ba0d85";
const NAK: &str = "\
    0200000000020200000000010800450000300000000040118e81c0000201c6336407c0a912b7001c\
    c6b41100ffff00000012000000056200000948b2bd91";
const CNP: &str = "\
    02000000000202000000000108004500003c0001400040114e74c0000201c6336407c0a912b70028\
    1b458100ffff4000003300000000000000000000000000000000000000005c600728";

const UC_SEND: &str = "\
    0200000000020200000000010800450000340007400040114e76c0000201c6336407c0a912b70020\
    6dfb2430ffff0000002100000009756e72656c0000007033e9b3";
const UD_SEND: &str = "\
    02000000000202000000000186dd60000000002c114020010db8000000000000000000000001fe80\
    0000000000000000000000000002c35012b7002cad106580ffff0000002200ffffff111111110000\
    009cdeadbeef646174616772616dfcc18adf";
const XRC_SEND: &str = "\
    0200000000020200000000010800450000380000400040114e79c0000201c6336407c0a912b70024\
    996ba410ffff00000023800000010000034578726373656e6400872e52a0";
const XRC_WRITE: &str = "\
    02000000000202000000000108004500004c0003400040114e62c0000201c6336407c0a912b70038\
    d737ab20ffff00000024800000020000034500007f00112233440000123400000006deadbeef7769\
    6e646f7700003d5d343c";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// Builds the frame from our values, computes all checksums, and compares with `golden`.
fn check(golden: &str, src: &str, dst: &str, ip: IpRepr, packet: PacketRepr, payload: &[u8]) {
    let golden = unhex(golden);
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    let (identification, dont_fragment) = match ip {
        IpRepr::V4 { identification, dont_fragment, .. } => (identification, dont_fragment),
        IpRepr::V6 { .. } => (0, true),
    };
    let seed = IcrcSeed::new(src.ip(), src.port(), dst.ip(), dst.port()).unwrap();
    let mut buf = [0xa5; MAX_PACKET_LEN];
    let end = packet.emit(payload, &mut buf).unwrap();
    let icrc = seed.icrc(identification, dont_fragment, &buf[..end]);
    buf[end..end + 4].copy_from_slice(&icrc.to_le_bytes());

    let mut frame = FrameRepr::new(src, dst);
    frame.link = Some(LinkRepr { src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 0, 2], vlan: vec![] });
    frame.ip = ip;
    assert_eq!(frame.build(&buf[..end + 4]).unwrap(), golden);

    let parsed = Frame::parse(&golden).unwrap();
    assert!(parsed.icrc_holds() && parsed.ip_checksum_holds() && parsed.udp_checksum_holds());
    assert_eq!(parsed.repr, frame);
}

const V4_SRC: &str = "192.0.2.1:49321";
const V4_DST: &str = "198.51.100.7:4791";

#[test]
fn send_only_with_pad() {
    let mut bth = Bth::new(Opcode::RcSendOnly, Qpn::masked(0x11), Psn::new(0xab_cdef));
    bth.ack_req = true;
    bth.solicited = true;
    let ip = IpRepr::V4 { tos: 0x12, identification: 0x1234, dont_fragment: true, ttl: 7 };
    check(SEND, V4_SRC, V4_DST, ip, PacketRepr::new(bth, Ext::None), b"sevenby");
}

#[test]
fn write_only_over_ipv6_marked_for_congestion() {
    let mut bth = Bth::new(Opcode::RcWriteOnly, Qpn::masked(0xff_fffe), Psn::new(0));
    bth.becn = true;
    let reth = Reth { va: 0x7f00_1122_3344, rkey: Rkey(0x1234), dma_len: 5 };
    let ip = IpRepr::V6 { traffic_class: 2, flow_label: 0xbeef, hop_limit: 3 };
    let packet = PacketRepr::new(bth, Ext::Reth(reth));
    check(WRITE, "[2001:db8::1]:50000", "[fe80::2]:4791", ip, packet, b"hello");
}

#[test]
fn nak_without_df() {
    let bth = Bth::new(Opcode::RcAcknowledge, Qpn::masked(0x12), Psn::new(5));
    let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: Msn::masked(9) };
    let ip = IpRepr::V4 { tos: 0, identification: 0, dont_fragment: false, ttl: 64 };
    check(NAK, V4_SRC, V4_DST, ip, PacketRepr::new(bth, Ext::Aeth(aeth)), b"");
}

#[test]
fn congestion_notification() {
    let mut bth = Bth::new(Opcode::Cnp, Qpn::masked(0x33), Psn::new(0));
    bth.becn = true;
    let ip = IpRepr::V4 { tos: 0, identification: 1, dont_fragment: true, ttl: 64 };
    check(CNP, V4_SRC, V4_DST, ip, PacketRepr::new(bth, Ext::None), &[0; 16]);
}

const IMM: ImmDt = ImmDt { data: 0xdead_beef };

#[test]
fn unreliable_send() {
    let bth = Bth::new(Opcode::UcSendOnly, Qpn::masked(0x21), Psn::new(9));
    let ip = IpRepr::V4 { tos: 0, identification: 7, dont_fragment: true, ttl: 64 };
    check(UC_SEND, V4_SRC, V4_DST, ip, PacketRepr::new(bth, Ext::None), b"unrel");
}

#[test]
fn datagram_over_ipv6_with_an_immediate() {
    let mut bth = Bth::new(Opcode::UdSendOnlyImm, Qpn::masked(0x22), Psn::new(0xff_ffff));
    bth.solicited = true;
    let deth = Deth { qkey: QKey(0x1111_1111), src_qp: Qpn::masked(0x9c) };
    let ip = IpRepr::V6 { traffic_class: 0, flow_label: 0, hop_limit: 64 };
    let packet = PacketRepr::new(bth, Ext::DethImm(deth, IMM));
    check(UD_SEND, "[2001:db8::1]:50000", "[fe80::2]:4791", ip, packet, b"datagram");
}

#[test]
fn extended_reliable_connection() {
    let xrceth = Some(XrcEth { srq: Qpn::masked(0x345) });
    let mut bth = Bth::new(Opcode::XrcSendOnly, Qpn::masked(0x23), Psn::new(1));
    bth.ack_req = true;
    let ip = |identification| IpRepr::V4 { tos: 0, identification, dont_fragment: true, ttl: 64 };
    check(XRC_SEND, V4_SRC, V4_DST, ip(0), PacketRepr { bth, xrceth, ext: Ext::None }, b"xrcsend");

    let mut bth = Bth::new(Opcode::XrcWriteOnlyImm, Qpn::masked(0x24), Psn::new(2));
    bth.ack_req = true;
    let reth = Reth { va: 0x7f00_1122_3344, rkey: Rkey(0x1234), dma_len: 6 };
    let ext = Ext::RethImm(reth, IMM);
    check(XRC_WRITE, V4_SRC, V4_DST, ip(3), PacketRepr { bth, xrceth, ext }, b"window");
}
