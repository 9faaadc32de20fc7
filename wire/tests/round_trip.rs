//! Every value that can be constructed can be emitted and parses to the same value, and no bytes
//! make the parsers panic.
//!
//! proptest prints the seed of a failing case and keeps the case in `proptest-regressions`, where
//! it runs first the next time.

use proptest::prelude::*;
use urxe_wire::packet::{ICRC_LEN, MAX_PACKET_LEN, MAX_PAYLOAD, emit_pad, packet_len, pad_count};
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, EmitError, Ext, Feth, Frame, FrameRepr, Gid, Grh,
    HeaderSet, IcrcSeed, IcrcSolver, IcrcVerdict, Ieth, ImmDt, Msn, Opcode, PKey, PacketRepr,
    PacketView, PayloadRule, PlacementType, Psn, QKey, Qpn, Reth, Rkey, SelectivityLevel, Syndrome,
    XrcEth,
};

fn opcode() -> impl Strategy<Value = Opcode> {
    prop::sample::select(Opcode::all().collect::<Vec<_>>())
}

/// Returns the extension headers that an opcode requires, with any values.
fn ext(opcode: Opcode) -> BoxedStrategy<Ext> {
    let reth = any::<(u64, u32, u32)>().prop_map(|(va, rkey, dma_len)| Reth {
        va,
        rkey: Rkey(rkey),
        dma_len,
    });
    let aeth = any::<(u8, u32)>().prop_map(|(byte, msn)| Aeth {
        syndrome: Syndrome::from_byte(byte),
        msn: Msn::masked(msn),
    });
    let deth =
        any::<(u32, u32)>().prop_map(|(k, q)| Deth { qkey: QKey(k), src_qp: Qpn::masked(q) });
    let imm = any::<u32>().prop_map(|data| ImmDt { data });
    let feth = (0u8..16, any::<bool>()).prop_map(|(placement, region)| Feth {
        placement: PlacementType::from_bits_retain(placement),
        selectivity: if region { SelectivityLevel::Region } else { SelectivityLevel::Range },
    });
    let atomic = any::<(u64, u32, u64, u64)>().prop_map(|(va, rkey, swap_or_add, compare)| {
        AtomicEth { va, rkey: Rkey(rkey), swap_or_add, compare }
    });
    let headers = opcode.info().headers - HeaderSet::XRCETH;
    match headers.bits() {
        _ if headers.is_empty() => Just(Ext::None).boxed(),
        b if b == HeaderSet::IMM.bits() => imm.prop_map(Ext::Imm).boxed(),
        b if b == HeaderSet::IETH.bits() => {
            any::<u32>().prop_map(|k| Ext::Ieth(Ieth { rkey: Rkey(k) })).boxed()
        }
        b if b == HeaderSet::RETH.bits() => reth.prop_map(Ext::Reth).boxed(),
        b if b == (HeaderSet::RETH | HeaderSet::IMM).bits() => {
            (reth, imm).prop_map(|(r, i)| Ext::RethImm(r, i)).boxed()
        }
        b if b == (HeaderSet::RETH | HeaderSet::FETH).bits() => {
            (feth, reth).prop_map(|(f, r)| Ext::Flush(f, r)).boxed()
        }
        b if b == HeaderSet::AETH.bits() => aeth.prop_map(Ext::Aeth).boxed(),
        b if b == (HeaderSet::AETH | HeaderSet::ATOMIC_ACK_ETH).bits() => (aeth, any::<u64>())
            .prop_map(|(a, original)| Ext::AtomicAck(a, AtomicAckEth { original }))
            .boxed(),
        b if b == HeaderSet::ATOMIC_ETH.bits() => atomic.prop_map(Ext::Atomic).boxed(),
        b if b == HeaderSet::DETH.bits() => deth.prop_map(Ext::Deth).boxed(),
        b if b == (HeaderSet::DETH | HeaderSet::IMM).bits() => {
            (deth, imm).prop_map(|(d, i)| Ext::DethImm(d, i)).boxed()
        }
        _ => panic!("{opcode} has headers {headers:?} that no extension holds"),
    }
}

fn payload(opcode: Opcode) -> BoxedStrategy<Vec<u8>> {
    match opcode.info().payload {
        PayloadRule::None => Just(Vec::new()).boxed(),
        PayloadRule::Exactly(n) => prop::collection::vec(any::<u8>(), n as usize).boxed(),
        PayloadRule::Any => prop_oneof![4 => 0..70usize, 1 => 0..=MAX_PAYLOAD]
            .prop_map(|len| (0..len).map(|i| i as u8).collect())
            .boxed(),
    }
}

/// Returns any packet that can be constructed, with a matching payload.
fn packet() -> impl Strategy<Value = (PacketRepr, Vec<u8>)> {
    let flags = any::<(bool, bool, bool, bool, bool)>();
    (opcode(), flags, any::<(u16, u32, u32, u32)>()).prop_flat_map(
        |(opcode, flags, (pkey, qpn, psn, srq))| {
            let mut bth = Bth::new(opcode, Qpn::masked(qpn), Psn::new(psn));
            (bth.solicited, bth.mig_req, bth.fecn, bth.becn, bth.ack_req) = flags;
            bth.pkey = PKey(pkey);
            let xrceth =
                opcode.info().has(HeaderSet::XRCETH).then_some(XrcEth { srq: Qpn::masked(srq) });
            (ext(opcode).prop_map(move |ext| PacketRepr { bth, xrceth, ext }), payload(opcode))
        },
    )
}

proptest! {
    #[test]
    fn constructed_packets_are_emitted_and_parse_to_the_same((repr, payload) in packet()) {
        // The buffer holds 0xa5 everywhere, so that a byte left unwritten is detected.
        let mut buf = [0xa5; MAX_PACKET_LEN + 8];
        let end = repr.emit(&payload, &mut buf).unwrap();
        prop_assert_eq!(end + ICRC_LEN, packet_len(repr.headers_len(), payload.len()));
        prop_assert!(buf[end..].iter().all(|&b| b == 0xa5), "nothing behind the pad");
        prop_assert_eq!(repr.emit(&payload, &mut buf[..end + ICRC_LEN]), Ok(end));
        let view = PacketView::parse(&buf[..end + ICRC_LEN]).unwrap();
        let mut want = repr;
        want.bth.pad_count = pad_count(payload.len());
        prop_assert_eq!(view.to_repr(), want);
        prop_assert_eq!(view.payload(), &payload[..]);
        prop_assert_eq!(Bth::parse(&buf).unwrap(), want.bth);
        prop_assert!(!view.to_string().is_empty());

        // The data path emits a packet in parts, here into a buffer with other contents.
        let mut other = [0x5a; MAX_PACKET_LEN + 8];
        let start = want.emit_headers(&mut other).unwrap();
        other[start..start + payload.len()].copy_from_slice(&payload);
        prop_assert_eq!(emit_pad(&mut other, start + payload.len()), Some(end));
        prop_assert_eq!(&other[..end], &buf[..end]);
    }

    /// A view reads each field in place.
    #[test]
    fn accessors_agree_with_the_emitted_values((repr, payload) in packet()) {
        let mut buf = [0; MAX_PACKET_LEN];
        let end = repr.emit(&payload, &mut buf).unwrap();
        let bytes = &buf[..end + ICRC_LEN];
        let (view, bth) = (PacketView::parse(bytes).unwrap(), repr.bth);
        prop_assert_eq!(
            (view.solicited(), view.mig_req(), view.fecn(), view.becn(), view.ack_req()),
            (bth.solicited, bth.mig_req, bth.fecn, bth.becn, bth.ack_req)
        );
        let numbers = (view.pkey(), view.dest_qp(), view.psn());
        prop_assert_eq!(numbers, (bth.pkey, bth.dest_qp, bth.psn));
        prop_assert_eq!(view.pad_count(), pad_count(payload.len()));
        prop_assert_eq!((view.packet_len(), view.payload_len()), (bytes.len(), payload.len()));
        prop_assert_eq!((view.bytes(), view.without_icrc()), (bytes, &bytes[..end]));
        prop_assert_eq!(Bth::dest_qp_of(bytes), Some(bth.dest_qp));
    }

    #[test]
    fn a_buffer_too_small_is_an_error_and_stays_untouched(
        (repr, payload) in packet(),
        missing in 1usize..40,
    ) {
        let need = packet_len(repr.headers_len(), payload.len());
        let have = need.saturating_sub(missing);
        let mut buf = vec![0xa5; have];
        let error = EmitError::BufferTooSmall { need, have };
        prop_assert_eq!(repr.emit(&payload, &mut buf), Err(error));
        prop_assert!(buf.iter().all(|&b| b == 0xa5));
        let have = repr.headers_len().saturating_sub(missing);
        let error = EmitError::BufferTooSmall { need: repr.headers_len(), have };
        let room = have.min(need - missing.min(need));
        prop_assert_eq!(repr.emit_headers(&mut buf[..room]), Err(error));
    }

    #[test]
    fn headers_of_another_opcode_are_refused((repr, _) in packet(), other in opcode()) {
        let mut wrong = repr;
        wrong.bth.opcode = other;
        let got = wrong.emit_headers(&mut [0; 64]);
        if other.info().headers == repr.bth.opcode.info().headers {
            prop_assert_eq!(got, Ok(other.info().headers_len()));
        } else {
            prop_assert_eq!(got, Err(EmitError::HeadersMismatch { opcode: other }));
        }
    }

    #[test]
    fn any_bytes_parse_or_give_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(view) = PacketView::parse(&bytes) {
            let _ = (view.to_repr(), view.to_string(), urxe_wire::display::fields(&view));
        }
        let _ = (Bth::parse(&bytes), Grh::parse(&bytes), Frame::parse_ip(&bytes));
        if let Ok(frame) = Frame::parse(&bytes) {
            let _ = (frame.icrc_holds(), frame.ip_checksum_holds(), frame.udp_checksum_holds());
        }
    }

    #[test]
    fn bytes_that_almost_are_a_packet_do_not_panic(
        (repr, payload) in packet(),
        edits in prop::collection::vec((0usize..80, any::<u8>()), 0..4),
        cut in 0usize..8,
    ) {
        let mut buf = [0; MAX_PACKET_LEN];
        let end = repr.emit(&payload, &mut buf).unwrap();
        let [src, dst] = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|text| text.parse().unwrap());
        let frame = FrameRepr::new(src, dst);
        let mut frame = frame.build(&buf[..end + ICRC_LEN]).unwrap();
        let len = frame.len();
        for (at, value) in edits {
            frame[at % len] = value;
        }
        frame.truncate(len - cut);
        if let Ok(frame) = Frame::parse(&frame) {
            let _ = (frame.icrc_holds(), frame.ip_checksum_holds(), frame.udp_checksum_holds());
            if let Ok(view) = PacketView::parse(frame.udp_payload) {
                let _ = (view.to_repr(), view.to_string());
            }
        }
    }

    #[test]
    fn reserved_bits_are_ignored((repr, payload) in packet(), a in 0u8..0x40, b in 0u8..0x80) {
        let mut buf = [0; MAX_PACKET_LEN];
        let end = repr.emit(&payload, &mut buf).unwrap();
        let before = PacketView::parse(&buf[..end + ICRC_LEN]).unwrap().to_repr();
        buf[4] |= a;
        buf[8] |= b;
        prop_assert_eq!(PacketView::parse(&buf[..end + ICRC_LEN]).unwrap().to_repr(), before);
    }

    #[test]
    fn grh_reads_back(
        word in any::<u32>(),
        len in any::<u16>(),
        ids in any::<([u8; 16], [u8; 16])>(),
    ) {
        let grh = Grh {
            traffic_class: (word >> 24) as u8,
            flow_label: word & 0x000f_ffff,
            payload_len: len,
            next_header: 17,
            hop_limit: word as u8,
            sgid: Gid(ids.0),
            dgid: Gid(ids.1),
        };
        let mut buf = [0xa5; Grh::LEN];
        grh.emit(&mut buf);
        prop_assert_eq!(Grh::parse(&buf), Ok(grh));
        prop_assert_eq!(grh.sgid.to_string().parse(), Ok(grh.sgid));
        prop_assert_eq!(Gid::from_ip(grh.dgid.to_ip()), grh.dgid);
    }

    #[test]
    fn the_seed_agrees_with_the_whole_frame(
        (repr, payload) in packet(),
        v6 in any::<bool>(),
        hosts in any::<(u128, u128)>(),
        ports in any::<(u16, u16)>(),
        (identification, dont_fragment, marks) in any::<(u16, bool, u8)>(),
    ) {
        use std::net::{IpAddr, SocketAddr};
        use urxe_wire::IpRepr;
        let ip = |h: u128| match v6 {
            true => IpAddr::from(h.to_be_bytes()),
            false => IpAddr::from((h as u32).to_be_bytes()),
        };
        let src = SocketAddr::new(ip(hosts.0), ports.0);
        let dst = SocketAddr::new(ip(hosts.1), ports.1);
        let seed = IcrcSeed::new(src.ip(), src.port(), dst.ip(), dst.port()).unwrap();
        let mut buf = [0; MAX_PACKET_LEN];
        let end = repr.emit(&payload, &mut buf).unwrap();
        let icrc = seed.icrc(identification, dont_fragment, &buf[..end]);
        buf[end..end + ICRC_LEN].copy_from_slice(&icrc.to_le_bytes());
        // Changes that a router makes do not affect the ICRC.
        buf[4] ^= marks & 0xc0;
        let mut frame = FrameRepr::new(src, dst);
        frame.ip = match frame.ip {
            IpRepr::V4 { .. } => {
                IpRepr::V4 { tos: marks, identification, dont_fragment, ttl: marks }
            }
            IpRepr::V6 { .. } => {
                let flow_label = marks.into();
                IpRepr::V6 { traffic_class: marks, flow_label, hop_limit: marks }
            }
        };
        let frame = frame.build(&buf[..end + ICRC_LEN]).unwrap();
        prop_assert!(Frame::parse(&frame).unwrap().icrc_holds());
        let verdict = seed.verify(&mut IcrcSolver::new(), &buf[..end + ICRC_LEN], identification);
        if v6 {
            prop_assert_eq!(verdict, IcrcVerdict::Exact { identification: 0 });
        } else if dont_fragment {
            prop_assert_eq!(verdict, IcrcVerdict::Exact { identification });
        }
    }
}
