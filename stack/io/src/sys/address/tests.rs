use super::*;

#[test]
fn layout_is_that_of_the_c_library() {
    let raw = RawAddress::new("10.1.2.3:4791".parse().unwrap());
    let (system, length) = {
        let address = socket2::SockAddr::from("10.1.2.3:4791".parse::<SocketAddr>().unwrap());
        (address.clone(), address.len())
    };
    assert_eq!(raw.as_bytes().len(), length as usize);
    assert_eq!(RawAddress::parse(raw.as_bytes()), system.as_socket());
    assert_eq!(V4_LENGTH, size_of::<libc::sockaddr_in>());
    assert_eq!(CAPACITY, size_of::<libc::sockaddr_in6>());
    assert_eq!(std::mem::offset_of!(libc::sockaddr_in, sin_addr), 4);
    assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_addr), 8);
    assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
}

#[test]
fn round_trip() {
    for address in [
        SocketAddr::from(([127, 0, 0, 1], 4791)),
        SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 4791, 0, 0)),
        SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 0x1_2345, 7)),
    ] {
        assert_eq!(RawAddress::new(address).socket_address(), Some(address));
    }
}

#[test]
fn short_and_foreign_addresses_are_none() {
    let raw = RawAddress::new(SocketAddr::from(([127, 0, 0, 1], 4791)));
    for length in 0..V4_LENGTH {
        assert_eq!(RawAddress::parse(&raw.as_bytes()[..length]), None);
    }
    let mut foreign = raw;
    foreign.buffer_mut()[0..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    assert_eq!(foreign.socket_address(), None);
    let mut claimed = RawAddress::new(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
    claimed.set_length(10_000);
    assert_eq!(claimed.as_bytes().len(), CAPACITY);
}
