//! Datagram sockets: claimed addresses, forged messages, restarted peers.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use urxe_rsocket::ScatterList;
use urxe_stack::device::Limits;
use urxe_stack::device::counters::Counter;

use crate::{Host, LIMIT, SOON, host, opens_descriptors};

/// Operations of messages over UDP (`struct ds_udp_header`).
const DATA: u8 = 0;
const ANSWER: u8 = 7;

fn socket(host: &'static Host, at: SocketAddr) -> RawFd {
    let fd = urxe_rsocket::socket(host, libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
    urxe_rsocket::bind(fd, at).unwrap();
    fd
}

fn send(fd: RawFd, text: &str, to: SocketAddr) {
    assert_eq!(urxe_rsocket::send(fd, &[text.as_bytes()], 0, Some(to)), Ok(text.len()));
}

/// Returns the next datagram and its sender.
fn receive(fd: RawFd) -> (String, SocketAddr) {
    let started = Instant::now();
    loop {
        let mut bytes = [0; 2048];
        let mut places = ScatterList::new(vec![&mut bytes]);
        let got = urxe_rsocket::receive(fd, &mut places, libc::MSG_DONTWAIT);
        match got {
            Ok((len, from)) => {
                return (String::from_utf8_lossy(&bytes[..len]).into_owned(), from.unwrap());
            }
            Err(Errno::AGAIN) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
        assert!(started.elapsed() < LIMIT, "no datagram arrives");
    }
}

/// A peer that speaks only UDP, and has no queue pair.
struct UdpPeer(UdpSocket);

impl UdpPeer {
    fn new(at: SocketAddr) -> Self {
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Self(socket)
    }

    /// Sends a message with this queue pair in the name of an address.
    fn say(&self, to: SocketAddr, op: u8, qpn: u32, name: Ipv4Addr, data: &[u8]) {
        let mut message = vec![0x55, 0x55, 0x55, 0x55, 4, op, 16, 0];
        message.extend(qpn.to_be_bytes());
        message.extend(name.octets());
        message.extend(data);
        self.0.send_to(&message, to).unwrap();
    }

    /// Returns the operation and the data of the next message, if one arrives soon.
    fn hear(&self) -> Option<(u8, String)> {
        let mut bytes = [0; 2048];
        let len = self.0.recv(&mut bytes).ok()?;
        Some((bytes[5], String::from_utf8_lossy(&bytes[16..len]).into_owned()))
    }
}

/// Exchanges questions and answers of two sockets, which are the packets of their queue pairs.
fn exchange(count: usize, [client, server]: [RawFd; 2], [client_at, server_at]: [SocketAddr; 2]) {
    for _ in 0..count {
        send(client, "question", server_at);
        assert_eq!(receive(server), ("question".to_owned(), client_at));
        send(server, "answer", client_at);
        assert_eq!(receive(client), ("answer".to_owned(), server_at));
    }
}

/// Checks that two sockets know each other's queue pairs after some exchanges.
fn check_queue_pairs(host: &Host, sockets: [RawFd; 2], addresses: [SocketAddr; 2]) {
    let sent = || host.device.engine.device().counters().value(Counter::SentPkts);
    exchange(10, sockets, addresses);
    let before = sent();
    exchange(10, sockets, addresses);
    assert_eq!(sent() - before, 20, "datagrams go from queue pair to queue pair");
}

#[test]
fn claimed_addresses_take_no_state() {
    let _guard = opens_descriptors();
    const CLAIMED: u32 = 500;
    let (host, ip) = host(0, Limits { max_ah: 4, ..Limits::default() });
    let [client_at, server_at] = [7001, 7000].map(|port| SocketAddr::from((ip, port)));
    let server = socket(host, server_at);
    let liar = UdpPeer::new((Ipv4Addr::LOCALHOST, 0).into());
    for n in 0..CLAIMED {
        liar.say(server_at, DATA, 5, Ipv4Addr::from(0x7f10_0000 + n), b"x");
        receive(server);
    }
    // A peer with a queue pair still gets one of the four address handles.
    check_queue_pairs(host, [socket(host, client_at), server], [client_at, server_at]);
}

#[test]
fn a_program_that_answers_everybody_keeps_its_peers() {
    let _guard = opens_descriptors();
    const CLAIMED: u32 = 3000;
    let (host, ip) = host(1, Limits { max_ah: 4, ..Limits::default() });
    let addresses = [7001, 7000].map(|port| SocketAddr::from((ip, port)));
    let sockets = addresses.map(|at| socket(host, at));
    check_queue_pairs(host, sockets, addresses);
    let liar = UdpPeer::new((Ipv4Addr::LOCALHOST, 0).into());
    for n in 0..CLAIMED {
        let name = Ipv4Addr::from(0x7f20_0000 + n);
        liar.say(addresses[1], DATA, 5, name, b"x");
        let (_, from) = receive(sockets[1]);
        // On loopback the name in the message counts.
        assert_eq!(from.ip(), name);
        send(sockets[1], "echo", from);
    }
    check_queue_pairs(host, sockets, addresses);
}

#[test]
fn a_forged_message_does_not_replace_the_queue_pair_of_a_peer() {
    let _guard = opens_descriptors();
    const OLD: u32 = 0x111;
    const FORGED: u32 = 0x666;
    for op in [DATA, ANSWER] {
        let (host, ip) = host(2 + op, Limits::default());
        let [to, own] = [7001, 7000].map(|port| SocketAddr::from((ip, port)));
        let socket = socket(host, own);
        let peer = UdpPeer::new(to);
        // The peer answers, and from then on datagrams go to its queue pair.
        send(socket, "first", to);
        assert_eq!(peer.hear(), Some((DATA, "first".to_owned())));
        peer.say(own, ANSWER, OLD, ip, b"");
        thread::sleep(SOON);
        send(socket, "second", to);
        assert_eq!(peer.hear(), None);

        peer.say(own, op, FORGED, ip, b"");
        if op == DATA {
            assert_eq!(peer.hear(), Some((ANSWER, String::new())));
        }
        thread::sleep(SOON);
        // In doubt, the owner of the address gets the datagram, whatever is forged.
        for text in ["third", "fourth"] {
            send(socket, text, to);
            assert_eq!(peer.hear(), Some((DATA, text.to_owned())));
            peer.say(own, ANSWER, FORGED, ip, b"");
        }
        peer.say(own, ANSWER, OLD, ip, b"");
        thread::sleep(SOON);
        send(socket, "fifth", to);
        assert_eq!(peer.hear(), None, "the old queue pair is believed");
        urxe_rsocket::close(socket).unwrap();
    }
}

#[test]
fn a_restarted_peer_is_believed_when_it_sends_from_its_queue_pair() {
    let _guard = opens_descriptors();
    let (host, ip) = host(12, Limits::default());
    let addresses = [7001, 7000].map(|port| SocketAddr::from((ip, port)));
    let server = socket(host, addresses[1]);
    for _ in 0..3 {
        let client = socket(host, addresses[0]);
        check_queue_pairs(host, [client, server], addresses);
        urxe_rsocket::close(client).unwrap();
    }
}
