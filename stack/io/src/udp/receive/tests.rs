use std::net::Ipv4Addr;

use super::*;

fn blank() -> Arrival {
    Arrival {
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        from_port: 4791,
        to: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7)),
        bytes: &[],
        segment_size: 100,
        traffic_class: 0,
        hop_limit: 0,
    }
}

#[test]
fn control_messages_are_read() {
    let mut control = Control::EMPTY;
    assert!(control.push(libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]));
    assert!(control.push(libc::IPPROTO_IP, libc::IP_TTL, &64_i32.to_ne_bytes()));
    assert!(control.push(libc::SOL_UDP, libc::UDP_GRO, &1064_i32.to_ne_bytes()));
    assert!(control.push(999, 999, &[]));
    let mut arrival = blank();
    assert_eq!(read_control(&control, &mut arrival), Some(()));
    let expected = Arrival { segment_size: 1064, traffic_class: 0xb8, hop_limit: 64, ..blank() };
    assert_eq!(format!("{arrival:?}"), format!("{expected:?}"));
}

#[test]
fn control_messages_that_are_too_short_or_out_of_range_drop_the_datagram() {
    for (level, kind, data) in [
        (libc::IPPROTO_IP, libc::IP_TOS, &[][..]),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &256_i32.to_ne_bytes()),
        (libc::IPPROTO_IP, libc::IP_TTL, &(-1_i32).to_ne_bytes()),
        (libc::SOL_UDP, libc::UDP_GRO, &(-1_i32).to_ne_bytes()),
    ] {
        let mut control = Control::EMPTY;
        assert!(control.push(level, kind, data));
        assert_eq!(
            read_control(&control, &mut blank()),
            None,
            "level {level} type {kind} {data:?}"
        );
    }
}

#[test]
fn buffers_have_at_least_one_slot_and_no_more_than_a_call_fills() {
    assert_eq!(ReceiveBuffers::new(0).unwrap().slots.len(), 1);
    assert_eq!(ReceiveBuffers::new(3).unwrap().slots.len(), 3);
    assert_eq!(ReceiveBuffers::new(1000).unwrap().slots.len(), ReceiveBuffers::MAX);
    assert_eq!(ReceiveBuffers::new(ReceiveBuffers::MAX).unwrap().iter().count(), 0);
}
