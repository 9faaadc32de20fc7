use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use super::*;
use crate::sys::socket::{IP_RECVERR, set_int};

fn pair() -> (UdpSocket, UdpSocket) {
    (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap())
}

#[test]
fn each_payload_is_a_datagram() {
    let (a, b) = pair();
    let to = RawAddress::new(b.local_addr().unwrap());
    let payloads: Vec<Vec<u8>> = (1..=5_u8).map(|n| vec![n; usize::from(n) * 10]).collect();
    let sent = send_each(&a, &to, &Control::EMPTY, payloads.iter().map(Vec::as_slice)).unwrap();
    assert_eq!(sent, 5);
    assert_eq!(send_each(&a, &to, &Control::EMPTY, std::iter::empty()), Ok(0));

    let mut slots = [(); 3].map(|()| ReceiveSlot::new().unwrap());
    assert_eq!(receive(&b, &mut slots), Ok(3));
    for (slot, payload) in slots.iter().zip(&payloads) {
        assert_eq!(slot.payload(), payload);
        assert_eq!(slot.from(), Some(a.local_addr().unwrap()));
        assert!(!slot.is_truncated());
    }
    assert_eq!(receive(&b, &mut slots), Ok(2));
    assert_eq!(slots[1].payload(), payloads[4]);
    assert_eq!(receive(&b, &mut slots), Err(Errno::AGAIN));
}

#[test]
fn cut_off_payload_is_noticed() {
    let (a, b) = pair();
    let to = RawAddress::new(b.local_addr().unwrap());
    send(&a, &to, &Control::EMPTY, &[7; 100]).unwrap();
    let mut slots = [ReceiveSlot::with_capacity(10).unwrap()];
    assert_eq!(receive(&b, &mut slots), Ok(1));
    assert!(slots[0].is_truncated());
    assert_eq!(slots[0].payload(), [7; 10]);
}

#[test]
fn the_error_queue_reports_the_closed_port() {
    let (a, b) = pair();
    set_int(&a, IP_RECVERR, 1).unwrap();
    let closed: SocketAddr = b.local_addr().unwrap();
    drop(b);
    assert_eq!(receive_error(&a), Err(Errno::AGAIN));
    send(&a, &RawAddress::new(closed), &Control::EMPTY, b"x").unwrap();
    let error = receive_error(&a).unwrap();
    assert_eq!(error.to, closed.ip());
    assert_eq!(error.errno, Errno::CONNREFUSED);
    assert_eq!((error.origin, error.icmp_type, error.icmp_code), (libc::SO_EE_ORIGIN_ICMP, 3, 3));
    assert_eq!(error.offender, Some(closed.ip()));
    assert_eq!(receive_error(&a), Err(Errno::AGAIN));
}

#[test]
fn an_error_message_cut_off_is_none() {
    let whole = {
        let mut data = [0_u8; 32];
        data[0..4].copy_from_slice(&111_i32.to_ne_bytes());
        data[4] = libc::SO_EE_ORIGIN_ICMP;
        data[5] = 3;
        data[6] = 3;
        data[16..32]
            .copy_from_slice(RawAddress::new(SocketAddr::from(([10, 0, 0, 1], 0))).as_bytes());
        data
    };
    let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for length in 0..=32 {
        let mut control = Control::EMPTY;
        assert!(control.push(libc::IPPROTO_IP, libc::IP_RECVERR, &whole[..length]));
        let parsed = parse_error(to, &control);
        assert_eq!(parsed.is_some(), length >= 12, "{length} bytes");
        assert_eq!(parsed.and_then(|error| error.offender).is_some(), length == 32);
    }
    assert_eq!(parse_error(to, &Control::EMPTY), None);
}
