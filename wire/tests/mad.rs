//! MADs of the connection manager: those of real kernels byte for byte, a round trip of every
//! field, and every reason to reject a MAD.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use support::captured_mads;
use urxe_wire::mad::{
    Answered, Attribute, Bits, CmMessage, CmaError, CmaHeader, CommId, MAD_LEN, Mad, MadError,
    MadHeader, MadIds, PortSpace, PrivateData, RejReason, Rep, Req, ServiceId, SidrReq, SidrStatus,
    SpreadVendorId, TransactionId, TransportType,
};
use urxe_wire::{Gid, PKey, Psn, QKey, Qpn};

/// IBTA 13.4.3 (the header), 12.6.5 (REQ), 12.6.7 (REJ), 12.6.8 (REP), 12.6.9 (RTU), 12.6.10
/// (DREQ), 12.6.11 (DREP), 12.11.1 and 12.11.2 (SIDR).
#[test]
fn captured_mads_parse_and_emit_the_same_bytes() {
    let mut counts = BTreeMap::new();
    for (at, bytes) in captured_mads() {
        let mad = Mad::parse(&bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(mad.to_bytes(), bytes, "{at}");
        let mut dirty = [0xa5; MAD_LEN];
        mad.emit(&mut dirty);
        assert_eq!(dirty, bytes, "{at}, into a used buffer");
        let ids = MadIds::parse(&bytes).unwrap();
        assert_eq!((ids.attribute, ids.tid), (mad.message.attribute(), mad.tid), "{at}");
        *counts.entry(mad.message.attribute().name()).or_insert(0) += 1;
    }
    let want = [
        ("DREP", 10),
        ("DREQ", 10),
        ("REJ", 1),
        ("REP", 9),
        ("REQ", 10),
        ("RTU", 9),
        ("SIDR_REP", 1),
        ("SIDR_REQ", 1),
    ];
    assert_eq!(counts, want.into());
}

fn captured(capture: &str, attribute: Attribute) -> Mad {
    captured_mads()
        .into_iter()
        .filter(|(at, _)| at.starts_with(capture))
        .map(|(_, bytes)| Mad::parse(&bytes).unwrap())
        .find(|mad| mad.message.attribute() == attribute)
        .unwrap()
}

#[test]
fn a_captured_req_has_the_values_of_the_programs() {
    let CmMessage::Req(req) = captured("rping", Attribute::Req).message else { panic!() };
    let client: IpAddr = [10, 77, 0, 12].into();
    let server: IpAddr = [10, 77, 0, 11].into();
    let want = Req {
        local_comm_id: CommId(0xca63_8a66),
        service_id: ServiceId::new(PortSpace::TCP, 7174),
        local_ca_guid: req.local_ca_guid,
        local_qpn: Qpn::masked(0x87),
        responder_resources: 1,
        initiator_depth: 1,
        remote_cm_response_timeout: Bits::masked(20),
        transport_type: TransportType::Rc,
        starting_psn: Psn::new(0x6306e3),
        local_cm_response_timeout: Bits::masked(20),
        retry_count: Bits::masked(7),
        pkey: PKey::DEFAULT,
        path_mtu: Bits::masked(3),
        rnr_retry_count: Bits::masked(7),
        max_cm_retries: Bits::masked(15),
        primary_local_lid: 0xffff,
        primary_remote_lid: 0xffff,
        primary_local_gid: client.into(),
        primary_remote_gid: server.into(),
        primary_flow_label: Bits::masked(0xa1339),
        primary_hop_limit: 64,
        primary_ack_timeout: Bits::masked(17),
        private_data: req.private_data,
        ..Req::default()
    };
    assert_eq!(req, want);
    assert_eq!(req.local_ca_guid.to_string(), "5054:00ff:fe77:000c");
    let header = CmaHeader::parse(req.private_data.bytes()).unwrap();
    assert_eq!((header.src(), header.dst()), (SocketAddr::new(client, 0xd66d), server));
    assert_eq!(
        captured("rping", Attribute::Req).message.to_string(),
        "CM REQ id 0xca638a66 service TCP:7174 qp 0x000087 psn 6489827 \
         from 10.77.0.12:54893 > 10.77.0.11"
    );
}

#[test]
fn captured_replies_have_the_values_of_the_kernel() {
    let CmMessage::Rep(rep) = captured("rping", Attribute::Rep).message else { panic!() };
    assert_eq!(rep.remote_comm_id, CommId(0xca63_8a66));
    assert_eq!((rep.local_qpn, rep.starting_psn), (Qpn::masked(0x91), Psn::new(0x17f006)));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.target_ack_delay.value(), rep.rnr_retry_count.value()), (15, 7));
    let CmMessage::Rej(rej) = captured("reject", Attribute::Rej).message else { panic!() };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId::NONE, CommId(0xc963_8a66)));
    assert_eq!((rej.answered, rej.reason), (Answered::Req, RejReason::INVALID_SERVICE_ID));
    let CmMessage::SidrRep(sidr) = captured("udaddy", Attribute::SidrRep).message else { panic!() };
    assert_eq!((sidr.status, sidr.qpn), (SidrStatus::SUCCESS, Qpn::masked(0x92)));
    assert_eq!(sidr.qkey, PortSpace::UDP_QKEY);
    assert_eq!(sidr.service_id, ServiceId::new(PortSpace::UDP, 7174));
    let CmMessage::Dreq(dreq) = captured("rping", Attribute::Dreq).message else { panic!() };
    assert_eq!(dreq.remote_qpn, rep.local_qpn);
}

#[test]
fn every_reason_to_refuse_a_mad() {
    let good = captured("reject", Attribute::Rej).to_bytes();
    let damaged = |at: usize, value: u8| {
        let mut mad = good;
        mad[at] = value;
        Mad::parse(&mad).unwrap_err()
    };
    let reasons = [
        Mad::parse(&good[..255]).unwrap_err(),
        damaged(0, 2),
        damaged(1, 3),
        damaged(2, 1),
        damaged(3, 0x81),
        damaged(17, 0x0f),
        damaged(24 + 9, 73 << 1),
    ];
    let want = [
        MadError::Length { have: 255 },
        MadError::BaseVersion(2),
        MadError::Class(3),
        MadError::ClassVersion(1),
        MadError::Method(0x81),
        MadError::Attribute(0x0f),
        MadError::InfoLength { attribute: Attribute::Rej, have: 73 },
    ];
    assert_eq!(reasons, want);
    let indices: Vec<usize> = reasons.iter().map(|reason| reason.index()).collect();
    assert_eq!(indices, (0..MadError::NAMES.len()).collect::<Vec<_>>());
    let names: BTreeSet<_> = reasons.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), MadError::NAMES.len());
    assert!(damaged(16, 1).to_string().contains("0x0112"));
    for len in [0, 24, 257, 1024] {
        assert_eq!(Mad::parse(&vec![1; len]), Err(MadError::Length { have: len }));
    }
}

#[test]
fn options_of_enhanced_connections_stand_where_the_kernel_puts_them() {
    let vendor = Bits::masked(0x0015_b302);
    let req = Mad {
        attribute_modifier: 0x8000_0001,
        ..Mad::new(TransactionId(1), Req { ece_vendor_id: vendor, ..Req::default() })
    };
    let bytes = req.to_bytes();
    assert_eq!(
        (&bytes[20..24], &bytes[24 + 5..24 + 8]),
        (&[0x80, 0, 0, 1][..], &[0x15, 0xb3, 2][..])
    );
    let rep =
        Mad::new(TransactionId(1), Rep { ece_vendor_id: SpreadVendorId(vendor), ..Rep::default() });
    let bytes = rep.to_bytes();
    assert_eq!([15, 19, 23].map(|at| bytes[24 + at]), [0x15, 0xb3, 2]);
    assert_eq!(Mad::parse(&bytes), Ok(rep));
}

/// A header of the correct length with wrong content.
#[test]
fn every_reason_to_refuse_a_cma_header() {
    let mut bytes = [0; CmaHeader::LEN];
    assert_eq!(CmaHeader::parse(&bytes[..35]), Err(CmaError::Short { have: 35 }));
    assert_eq!(CmaHeader::parse(&bytes), Err(CmaError::IpVersion(0)));
    bytes[0] = 1;
    assert_eq!(CmaHeader::parse(&bytes), Err(CmaError::Version(1)));
    let v4 = SocketAddr::from(([1, 2, 3, 4], 5));
    assert_eq!(CmaHeader::new(v4, Ipv6Addr::LOCALHOST.into()), None);
}

#[test]
fn service_ids_are_made_and_read() {
    for space in [PortSpace::TCP, PortSpace::UDP, PortSpace::IB, PortSpace::IPOIB] {
        let id = ServiceId::new(space, 20886);
        assert_eq!(id.port(), Some((space, 20886)));
        assert_eq!(id.to_string(), format!("{}:20886", space.name().unwrap()));
    }
    assert_eq!(ServiceId::new(PortSpace::TCP, 7174).0, 0x0106_1c06);
    for other in [0, 0xffff, 0x0001_0000_0000, u64::MAX] {
        assert_eq!(ServiceId(other).port(), None);
        assert_eq!(ServiceId(other).to_string(), format!("0x{other:016x}"));
    }
}

proptest! {
    /// Any bytes that parse are emitted with zeros in reserved bits, and parse to the same value.
    #[test]
    fn any_message_survives_a_round_trip(
        attribute in proptest::sample::select(&Attribute::ALL[..]),
        tid in any::<u64>(),
        modifier in any::<u32>(),
        body in proptest::collection::vec(any::<u8>(), MAD_LEN - MadHeader::LEN),
    ) {
        let mut bytes = [0; MAD_LEN];
        let header = MadHeader::new(attribute, TransactionId(tid));
        let header = MadHeader { attribute_modifier: modifier, ..header };
        header.emit(bytes.first_chunk_mut().unwrap());
        bytes[MadHeader::LEN..].copy_from_slice(&body);
        match Mad::parse(&bytes) {
            Ok(mad) => {
                let again = mad.to_bytes();
                prop_assert_eq!(Mad::parse(&again), Ok(mad));
                // Only reserved bits differ, and they become zero.
                prop_assert!(again.iter().zip(&bytes).all(|(&new, &old)| new & !old == 0));
                prop_assert_eq!(&again[..MadHeader::LEN], &bytes[..MadHeader::LEN]);
                prop_assert!(!mad.message.fields().is_empty());
                let ids = MadIds::parse(&bytes).unwrap();
                prop_assert_eq!(ids, MadIds::parse(&again).unwrap());
            }
            Err(reason) => {
                prop_assert!(matches!(reason, MadError::InfoLength { have: 73.., .. }), "{reason}");
            }
        }
    }

    /// Changes one bit at a time, to detect fields that overlap.
    #[test]
    fn each_field_of_a_req_is_its_own(bit in 0_usize..(MAD_LEN - MadHeader::LEN) * 8) {
        let mut bytes = Mad::new(TransactionId(0), Req::default()).to_bytes();
        bytes[MadHeader::LEN + bit / 8] |= 0x80 >> (bit % 8);
        let mad = Mad::parse(&bytes).unwrap();
        let blank = CmMessage::from(Req::default());
        let (fields, blank) = (mad.message.fields(), blank.fields());
        let changed = fields.iter().zip(&blank).filter(|(a, b)| a != b).count();
        let emitted = mad.to_bytes() == bytes;
        prop_assert_eq!(changed, usize::from(emitted), "bit {}", bit);
    }

    #[test]
    fn cma_headers_survive_a_round_trip(
        port in any::<u16>(), a in any::<u128>(), b in any::<u128>(), v6 in any::<bool>(),
    ) {
        let ip = |bits: u128| match v6 {
            true => IpAddr::from(Ipv6Addr::from_bits(bits)),
            false => IpAddr::from(Ipv4Addr::from_bits(bits as u32)),
        };
        let header = CmaHeader::new(SocketAddr::new(ip(a), port), ip(b)).unwrap();
        let mut bytes = [0xa5; CmaHeader::LEN];
        header.emit(&mut bytes);
        prop_assert_eq!(CmaHeader::parse(&bytes), Ok(header));
        prop_assert_eq!((header.src(), header.dst()), (SocketAddr::new(ip(a), port), ip(b)));
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        match Mad::parse(&bytes) {
            Ok(_) => prop_assert_eq!(bytes.len(), MAD_LEN),
            Err(reason) => prop_assert!(!reason.to_string().is_empty()),
        }
    }
}

#[test]
fn texts_name_the_transaction_and_the_addresses() {
    let cma = CmaHeader::new(SocketAddr::from(([10, 0, 0, 1], 4711)), [10, 0, 0, 2].into());
    let mut bytes = [0; CmaHeader::LEN];
    cma.unwrap().emit(&mut bytes);
    let request = |service_id| {
        let private_data = PrivateData::new(&bytes).unwrap();
        let request =
            SidrReq { request_id: CommId(9), service_id, private_data, ..SidrReq::default() };
        Mad::new(TransactionId(0xabc), request).to_string()
    };
    assert_eq!(
        request(ServiceId::new(PortSpace::UDP, 7174)),
        "CM SIDR_REQ id 0x00000009 service UDP:7174 from 10.0.0.1:4711 > 10.0.0.2 \
         tid 0x0000000000000abc"
    );
    // The port space of the next one has no name, and the one of the last is none.
    assert!(request(ServiceId(0x0107_1c06)).contains("service 0x0000000001071c06 from"));
    assert_eq!(
        request(ServiceId(1)),
        "CM SIDR_REQ id 0x00000009 service 0x0000000000000001 tid 0x0000000000000abc"
    );
    let header = MadHeader::new(Attribute::Rep, TransactionId(5));
    assert_eq!(header.to_string(), "REP tid 0x0000000000000005");
}

#[test]
fn fields_are_listed_by_name() {
    let mut rep = Rep {
        local_qkey: QKey::GSI,
        private_data: PrivateData::new(b"\x01\x02").unwrap(),
        ..Rep::default()
    };
    rep.local_qpn = Qpn::masked(0x91);
    let message = CmMessage::from(rep);
    let fields: BTreeMap<_, _> =
        message.fields().into_iter().map(|(name, value)| (name, value.to_string())).collect();
    assert_eq!(fields["local_qpn"], "0x000091");
    assert_eq!(fields["local_qkey"], "0x80010000");
    assert_eq!(fields["private_data"], "0102 and 194 zeros");
    let req = CmMessage::from(Req {
        primary_local_gid: Gid::from_ip([10, 0, 0, 1].into()),
        ..Req::default()
    });
    assert!(
        req.fields()
            .iter()
            .any(|(name, value)| *name == "primary_local_gid" && value.to_string() == "10.0.0.1")
    );
}
