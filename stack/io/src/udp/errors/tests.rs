use std::net::Ipv4Addr;

use rustix::io::Errno;

use super::*;

fn queued(origin: u8, icmp_type: u8, icmp_code: u8, errno: Errno, info: u32) -> QueuedError {
    QueuedError {
        to: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        errno,
        origin,
        icmp_type,
        icmp_code,
        info,
        offender: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254))),
    }
}

#[test]
fn icmp_messages_have_their_reasons() {
    use PathErrorReason as R;
    for (icmp_type, icmp_code, info, reason, name) in [
        (3, 0, 0, R::NetworkUnreachable, "network unreachable"),
        (3, 1, 0, R::HostUnreachable, "host unreachable"),
        (3, 2, 0, R::ProtocolUnreachable, "protocol unreachable"),
        (3, 3, 0, R::PortUnreachable, "port unreachable"),
        (3, 4, 1400, R::TooBig { mtu: 1400 }, "packet too big"),
        (3, 13, 0, R::Prohibited, "administratively prohibited"),
        (11, 0, 0, R::TimeExceeded, "time exceeded"),
        (12, 0, 0, R::Other { icmp_type: 12, icmp_code: 0 }, "another message"),
    ] {
        let error = PathError::from_queued(&queued(
            libc::SO_EE_ORIGIN_ICMP,
            icmp_type,
            icmp_code,
            Errno::HOSTUNREACH,
            info,
        ));
        assert_eq!(error.reason, reason);
        let text = error.to_string();
        assert!(text.ends_with(&format!(" (ICMP of 192.0.2.254: {name})")), "{text}");
        let by_peer = PathError { reporter: Some(error.peer), ..error }.to_string();
        assert!(by_peer.ends_with(&format!(" (ICMP: {name})")), "{by_peer}");
    }
    for (icmp_type, icmp_code, info, reason) in [
        (1, 0, 0, R::NetworkUnreachable),
        (1, 1, 0, R::Prohibited),
        (1, 3, 0, R::HostUnreachable),
        (1, 4, 0, R::PortUnreachable),
        (2, 0, 1280, R::TooBig { mtu: 1280 }),
        (3, 0, 0, R::TimeExceeded),
        (4, 1, 0, R::ProtocolUnreachable),
        (4, 0, 0, R::Other { icmp_type: 4, icmp_code: 0 }),
    ] {
        let origin = libc::SO_EE_ORIGIN_ICMP6;
        let error =
            PathError::from_queued(&queued(origin, icmp_type, icmp_code, Errno::PROTO, info));
        assert_eq!(error.reason, reason);
    }
}

#[test]
fn local_errors_have_no_reporter() {
    let error =
        PathError::from_queued(&queued(libc::SO_EE_ORIGIN_LOCAL, 0, 0, Errno::MSGSIZE, 1500));
    assert_eq!(error.reason, PathErrorReason::TooBig { mtu: 1500 });
    assert_eq!(error.reporter, None);
    assert_eq!(
        error.to_string(),
        "a packet to 192.0.2.1 exceeds the path's MTU of 1500 bytes: use a smaller path MTU"
    );
}

#[test]
fn one_message_a_second_passes() {
    let limit = LogLimit::default();
    let at = |ms: u64| Time::from_ns(5_000_000_000 + ms * 1_000_000);
    assert_eq!(limit.pass(at(0)), Some(0));
    assert_eq!(limit.pass(at(1)), None);
    assert_eq!(limit.pass(at(999)), None);
    assert_eq!(limit.pass(at(1000)), Some(2));
    assert_eq!(limit.pass(at(1001)), None);
    assert_eq!(limit.pass(at(2500)), Some(1));
}
