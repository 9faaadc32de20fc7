//! The text forms of endpoints and regions: formatting and parsing are inverse, and no other text
//! parses.

use proptest::prelude::*;
use urxe::*;

fn endpoint() -> impl Strategy<Value = QpEndpoint> {
    let v4 = any::<[u8; 4]>().prop_map(|bytes| Gid::from_ip(bytes.into()));
    let gid = prop_oneof![any::<[u8; 16]>().prop_map(Gid), v4];
    (gid, 0..1_u32 << 24, 0..1_u32 << 24).prop_map(|(gid, qpn, psn)| QpEndpoint {
        gid,
        qpn: Qpn::masked(qpn),
        psn: Psn::new(psn),
    })
}

fn remote() -> impl Strategy<Value = RemoteRegion> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(addr, len, rkey)| RemoteRegion {
        addr,
        len,
        rkey: Rkey(rkey),
    })
}

proptest! {
    #[test]
    fn endpoints_come_back(endpoint in endpoint()) {
        prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        prop_assert_eq!(format!(" {endpoint}\n").parse(), Ok(endpoint), "as a line");
    }

    #[test]
    fn regions_come_back(remote in remote()) {
        prop_assert_eq!(remote.to_string().parse(), Ok(remote));
    }

    #[test]
    fn regions_come_back_from_bytes(remote in remote(), extra in any::<u8>()) {
        let bytes = remote.to_bytes();
        let fits = remote.len == 0 || remote.addr.checked_add(remote.len - 1).is_some();
        prop_assert_eq!(RemoteRegion::from_bytes(&bytes).ok(), fits.then_some(remote));
        for len in 0..bytes.len() {
            let error = RemoteRegion::from_bytes(&bytes[..len]).unwrap_err();
            prop_assert_eq!(error, RemoteBytesError::Length { given: len });
        }
        let longer: Vec<u8> = bytes.into_iter().chain([extra]).collect();
        prop_assert!(RemoteRegion::from_bytes(&longer).is_err());
    }

    #[test]
    fn a_cut_text_is_an_error_or_another_value(
        endpoint in endpoint(),
        remote in remote(),
        cut in 0_usize..60,
    ) {
        let text = endpoint.to_string();
        if let Some(part) = text.get(..cut.min(text.len() - 1)) {
            // Only digits of the last field can be missing without an error.
            prop_assert!(part.parse::<QpEndpoint>().is_err() || part.contains("psn=0x"));
        }
        let text = remote.to_string();
        if let Some(part) = text.get(..cut.min(text.len() - 1)) {
            prop_assert!(part.parse::<RemoteRegion>().is_err() || part.contains("rkey=0x"));
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,80}") {
        let _ = text.parse::<QpEndpoint>();
        let _ = text.parse::<RemoteRegion>();
    }

    #[test]
    fn parts_of_a_peers_region_stay_inside(
        remote in remote(),
        start in any::<u64>(),
        end in any::<u64>(),
    ) {
        match remote.slice(start..end) {
            Ok(part) => {
                prop_assert!(start <= end && end <= remote.len);
                let addr = remote.addr.wrapping_add(start);
                let expected = RemoteRegion { addr, len: end - start, ..remote };
                prop_assert_eq!(part, expected);
            }
            Err(error) => {
                prop_assert!(start > end || end > remote.len);
                prop_assert_eq!((error.start, error.end), (start, end));
                prop_assert_eq!(error.region_len, remote.len);
            }
        }
    }
}

#[test]
fn the_formats_are_these() {
    let endpoint = QpEndpoint {
        gid: Gid::from_ip([127, 0, 0, 1].into()),
        qpn: Qpn::masked(0x11),
        psn: Psn::new(0xabcd),
    };
    let text = "gid=0000:0000:0000:0000:0000:ffff:7f00:0001,qpn=0x000011,psn=0x00abcd";
    assert_eq!(endpoint.to_string(), text);
    assert_eq!("gid=127.0.0.1,qpn=0x11,psn=0xabcd".parse(), Ok(endpoint));
    let region = RemoteRegion { addr: 0x1000, len: 4096, rkey: Rkey(0x12345) };
    assert_eq!(region.to_string(), "addr=0x0000000000001000,len=4096,rkey=0x00012345");
}

#[test]
fn parse_errors_name_the_field() {
    let endpoint = |text: &str| text.parse::<QpEndpoint>().unwrap_err();
    assert_eq!(endpoint(""), EndpointParseError::Shape);
    assert_eq!(endpoint("qpn=0x1,gid=::1,psn=0x1"), EndpointParseError::Shape);
    assert_eq!(endpoint("gid=::1,qpn=0x1,psn=0x1,more=1"), EndpointParseError::Shape);
    assert!(matches!(endpoint("gid=::g,qpn=0x1,psn=0x1"), EndpointParseError::Gid(_)));
    assert_eq!(endpoint("gid=::1,qpn=0x1000000,psn=0x1"), EndpointParseError::Qpn);
    assert_eq!(endpoint("gid=::1,qpn=17,psn=0x1"), EndpointParseError::Qpn);
    assert_eq!(endpoint("gid=::1,qpn=0x1,psn=0x"), EndpointParseError::Psn);
    assert_eq!(endpoint("gid=::1,qpn=0x1,psn=0x+1"), EndpointParseError::Psn);
    let remote = |text: &str| text.parse::<RemoteRegion>().unwrap_err();
    assert_eq!(remote("addr=0x1,len=1"), RemoteParseError::Shape);
    assert_eq!(remote("addr=1,len=1,rkey=0x1"), RemoteParseError::Addr);
    assert_eq!(remote("addr=0x1,len=+1,rkey=0x1"), RemoteParseError::Len);
    assert_eq!(remote("addr=0x1,len=1,rkey=0x100000000"), RemoteParseError::Rkey);
}

/// Needs `--features serde`.
#[cfg(feature = "serde")]
#[test]
fn as_serde_values_they_are_their_texts() {
    let region = RemoteRegion { addr: 0x1000, len: 4096, rkey: Rkey(0x12345) };
    let json = serde_json::to_string(&region).unwrap();
    assert_eq!(json, "\"addr=0x0000000000001000,len=4096,rkey=0x00012345\"");
    assert_eq!(serde_json::from_str::<RemoteRegion>(&json).unwrap(), region);
    let error = serde_json::from_str::<QpEndpoint>("\"here\"").unwrap_err();
    assert!(error.to_string().contains("not an endpoint"), "{error}");
}
