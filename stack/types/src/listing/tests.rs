//! Listings as bytes.

use super::*;

#[test]
fn listings_of_another_version_are_read_with_defaults() {
    #[derive(serde::Serialize)]
    struct Other {
        ids: Vec<BTreeMap<&'static str, &'static str>>,
        weather: (u8, &'static str),
    }
    let id = BTreeMap::from([("state", "CONNECT"), ("speed", "warp")]);
    let mut bytes = Vec::new();
    ciborium::into_writer(&Other { ids: vec![id], weather: (3, "fine") }, &mut bytes).unwrap();
    let listing = Listing::from_cbor(&bytes).unwrap();
    assert_eq!(listing.ids, [ListedId { state: "CONNECT".to_owned(), ..ListedId::default() }]);
    for bytes in [&b""[..], &bytes[..20], b"\x83", b"\xff", b"no listing"] {
        assert_eq!(Listing::from_cbor(bytes), Err(ListingError));
    }
}

/// Each length of a number and of a text, all fields, and none.
#[test]
fn the_writer_writes_what_ciborium_writes() {
    let all = ListedId {
        cm_idn: u64::MAX,
        lqpn: 0xff_ffff,
        rqpn: Some(1),
        qp_type: "RC".to_owned(),
        state: "x".repeat(70_000),
        cm_state: Some("ESTABLISHED".to_owned()),
        ps: String::new(),
        src_addr: Some("10.0.0.2:9".parse().unwrap()),
        dst_addr: Some("[fe80::ff]:65535".parse().unwrap()),
    };
    let qp = ListedQp {
        lqpn: 23,
        pdn: 24,
        rqpn: Some(255),
        qp_type: "UD".to_owned(),
        state: "RTS".to_owned(),
        rq_psn: Some(256),
        sq_psn: 0xffff,
        path_mig_state: Some("MIGRATED".to_owned()),
    };
    let numbers = [0, 23, 24, 255, 256, 0xffff, 0x1_0000, 0xffff_ffff, 1 << 32, u64::MAX];
    let counts: BTreeMap<_, _> = numbers.iter().map(|n| (format!("count {n}"), *n)).collect();
    let full = Listing {
        ids: vec![all, ListedId::default()],
        communications: counts.clone(),
        counters: counts.clone(),
        resources: counts.clone(),
        qps: vec![qp; 30],
        hw_counters: counts,
    };
    for listing in [full, Listing::default()] {
        let mut expected = Vec::new();
        ciborium::into_writer(&listing, &mut expected).unwrap();
        assert!(listing.to_cbor() == expected, "{listing:?}");
        assert_eq!(Listing::from_cbor(&expected), Ok(listing));
    }
}
