//! Compares each header, field by field and in both directions, with bytes written by hand from the
//! figures of the specification.

use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Gid, Grh, Ieth, ImmDt, Msn, NakCode, Opcode,
    PKey, PlacementType, Psn, QKey, Qpn, Reth, Rkey, SelectivityLevel, Syndrome, XrcEth,
};

/// Checks that `$bytes` parse to `$value`, and that `$value` emits `$bytes` into a used buffer.
macro_rules! both_ways {
    ($kind:ident, $value:expr, $bytes:expr, $text:expr) => {{
        let (value, bytes) = ($value, $bytes);
        assert_eq!($kind::parse(&bytes), Ok(value));
        let mut buf = [0xa5; $kind::LEN];
        value.emit(&mut buf);
        assert_eq!(buf, bytes);
        assert_eq!(value.to_string(), $text);
    }};
}

#[test]
fn bth() {
    let mut want = Bth::new(Opcode::RcSendOnlyImm, Qpn::masked(0x01_0203), Psn::new(0xa0_b0c0));
    both_ways!(
        Bth,
        want,
        [5, 0, 0xff, 0xff, 0, 1, 2, 3, 0, 0xa0, 0xb0, 0xc0],
        "RC SEND_ONLY_IMM qp 0x010203 psn 10531008"
    );
    want.solicited = true;
    want.mig_req = true;
    want.pad_count = 2;
    want.version = 9;
    want.pkey = PKey(0x1234);
    want.fecn = true;
    want.becn = true;
    want.ack_req = true;
    both_ways!(
        Bth,
        want,
        [5, 0xe9, 0x12, 0x34, 0xc0, 1, 2, 3, 0x80, 0xa0, 0xb0, 0xc0],
        "RC SEND_ONLY_IMM qp 0x010203 psn 10531008 ack se migreq fecn becn pkey 0x1234 tver 9"
    );
}

/// IBTA 9.3.3.
#[test]
fn reth() {
    both_ways!(
        Reth,
        Reth { va: 0x0102_0304_0506_0708, rkey: Rkey(0x0a0b_0c0d), dma_len: 0x1000 },
        [1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0x10, 0],
        "va 0x102030405060708 rkey 0x0a0b0c0d dmalen 4096"
    );
}

/// IBTA 9.5.2.
#[test]
fn aeth() {
    both_ways!(
        Aeth,
        Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: Msn::masked(0x01_0203) },
        [0x62, 1, 2, 3],
        "NAK remote access error msn 66051"
    );
}

/// IBTA 9.3.4 and 9.5.3.
#[test]
fn atomic_headers() {
    both_ways!(
        AtomicEth,
        AtomicEth {
            va: 0x08,
            rkey: Rkey(0x0a0b_0c0d),
            swap_or_add: 0x1112,
            compare: 0xff00_0000_0000_0021
        },
        [
            0, 0, 0, 0, 0, 0, 0, 8, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0, 0, 0, 0x11, 0x12, 0xff, 0,
            0, 0, 0, 0, 0, 0x21
        ],
        "va 0x8 rkey 0x0a0b0c0d swap/add 0x1112 compare 0xff00000000000021"
    );
    both_ways!(
        AtomicAckEth,
        AtomicAckEth { original: 0x0102_0304_0506_0708 },
        [1, 2, 3, 4, 5, 6, 7, 8],
        "original 0x102030405060708"
    );
}

/// IBTA 9.3.6, 9.3.7 and A14.4.1.
#[test]
fn one_word_headers() {
    both_ways!(ImmDt, ImmDt { data: 0x0102_0304 }, [1, 2, 3, 4], "imm 0x01020304");
    both_ways!(Ieth, Ieth { rkey: Rkey(0x0102_0304) }, [1, 2, 3, 4], "invalidate 0x01020304");
    both_ways!(XrcEth, XrcEth { srq: Qpn::masked(0x01_0203) }, [0, 1, 2, 3], "xrcsrq 0x010203");
    assert_eq!(XrcEth::parse(&[0xff, 1, 2, 3]), XrcEth::parse(&[0, 1, 2, 3]), "reserved byte");
}

/// IBTA 9.3.2.
#[test]
fn deth() {
    both_ways!(
        Deth,
        Deth { qkey: QKey(0x0111_1111), src_qp: Qpn::masked(0x0a_0b0c) },
        [1, 0x11, 0x11, 0x11, 0, 0x0a, 0x0b, 0x0c],
        "from 0x0a0b0c qkey 0x01111111"
    );
    assert_eq!(
        Deth::parse(&[0, 0, 0, 1, 0xff, 0, 0, 2]),
        Deth::parse(&[0, 0, 0, 1, 0, 0, 0, 2]),
        "reserved byte"
    );
}

#[test]
fn feth() {
    let both = PlacementType::GLOBAL_VISIBILITY | PlacementType::PERSISTENCE;
    both_ways!(
        Feth,
        Feth { placement: both, selectivity: SelectivityLevel::Range },
        [0, 0, 0, 3],
        "plt 0x3 sel Range"
    );
    both_ways!(
        Feth,
        Feth { placement: PlacementType::PERSISTENCE, selectivity: SelectivityLevel::Region },
        [0, 0, 0, 0x12],
        "plt 0x2 sel Region"
    );
    // The six defined bits survive a round trip, and the other bits are ignored.
    for bits in 0..0x40u8 {
        let feth = Feth::parse(&[0, 0, 0, bits]).unwrap();
        let mut buf = [0xa5; 4];
        feth.emit(&mut buf);
        assert_eq!(buf, [0, 0, 0, bits]);
        assert_eq!(Feth::parse(&[0xff, 0xff, 0xff, bits | 0xc0]), Ok(feth));
    }
}

#[test]
fn grh() {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0x01, 0x18, 0x11, 0x40]);
    bytes[8] = 0xfe;
    bytes[9] = 0x80;
    bytes[23] = 1;
    bytes[24..28].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    both_ways!(
        Grh,
        Grh {
            traffic_class: 0xab,
            flow_label: 0x1_2345,
            payload_len: 280,
            next_header: 17,
            hop_limit: 64,
            sgid: "fe80::1".parse::<Gid>().unwrap(),
            dgid: "2001:db8::".parse::<Gid>().unwrap(),
        },
        bytes,
        "fe80:0000:0000:0000:0000:0000:0000:0001 > 2001:0db8:0000:0000:0000:0000:0000:0000 \
         tclass 171 hops 64"
    );
}
