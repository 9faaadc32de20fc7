//! Stream sockets: connections beyond the backlog.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use urxe_stack::device::Limits;

use crate::{Host, LIMIT, SOON, counts_descriptors, host, opens_descriptors};

fn socket(host: &'static Host) -> RawFd {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    urxe_rsocket::socket(host, libc::AF_INET, kind, 0).unwrap()
}

/// Makes a listener with this backlog, and clients that begin to connect.
fn listener_and_clients(of_test: u8, backlog: i32, clients: usize) -> (RawFd, Clients) {
    let (host, ip) = host(of_test, Limits::default());
    let at = SocketAddr::from((ip, 7100));
    let listener = socket(host);
    urxe_rsocket::bind(listener, at).unwrap();
    urxe_rsocket::listen(listener, backlog).unwrap();
    let begin = |_| {
        let client = socket(host);
        assert_eq!(urxe_rsocket::connect(client, at), Err(Errno::INPROGRESS));
        client
    };
    (listener, Clients { sockets: (0..clients).map(begin).collect(), at })
}

struct Clients {
    sockets: Vec<RawFd>,
    at: SocketAddr,
}

impl Clients {
    /// Returns the number of clients that are connected.
    fn connected(&self) -> usize {
        let is_connected = |client: &&RawFd| urxe_rsocket::connect(**client, self.at).is_ok();
        self.sockets.iter().filter(is_connected).count()
    }

    /// Waits until this number of clients is connected.
    fn wait(&self, count: usize) {
        let started = Instant::now();
        while self.connected() < count {
            assert!(started.elapsed() < LIMIT, "{} of {count} connected", self.connected());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn connections_beyond_the_backlog_wait() {
    let _guard = counts_descriptors();
    const CLIENTS: usize = 40;
    /// One more than the backlog, as in TCP.
    const CAPACITY: usize = 3;
    let before = descriptors();
    let (listener, clients) = listener_and_clients(20, CAPACITY as i32 - 1, CLIENTS);
    thread::sleep(SOON * 3);
    assert_eq!(clients.connected(), CAPACITY);
    // The sockets of the clients have two descriptors each, the connections of the listener, too.
    // The device, the service and the listener have some.
    let made = descriptors() - before;
    assert!(made < CLIENTS * 2 + CAPACITY * 2 + 40, "{made} descriptors");

    let started = Instant::now();
    let mut accepted = 0;
    while accepted < 2 * CAPACITY {
        match urxe_rsocket::accept(listener) {
            Ok(_) => accepted += 1,
            Err(Errno::AGAIN) => thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
        assert!(started.elapsed() < LIMIT, "only {accepted} were accepted");
    }
    clients.wait(2 * CAPACITY);
}

#[test]
fn a_larger_backlog_makes_room_at_once() {
    let _guard = opens_descriptors();
    let (listener, clients) = listener_and_clients(21, 0, 2);
    thread::sleep(SOON * 2);
    assert_eq!(clients.connected(), 1);
    urxe_rsocket::listen(listener, 1).unwrap();
    clients.wait(2);
}

/// Otherwise `select` of librspreload may miss the events of an rsocket.
#[test]
fn rsockets_have_high_descriptors() {
    let _guard = opens_descriptors();
    let (listener, clients) = listener_and_clients(22, 1, 1);
    clients.wait(1);
    let started = Instant::now();
    let accepted = loop {
        match urxe_rsocket::accept(listener) {
            Ok((accepted, _)) => break accepted,
            Err(error) => assert_eq!(error, Errno::AGAIN),
        }
        assert!(started.elapsed() < LIMIT, "no connection to accept");
        thread::sleep(Duration::from_millis(5));
    };
    let (host, _) = host(23, Limits::default());
    let datagram = urxe_rsocket::socket(host, libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
    let numbers = [listener, clients.sockets[0], accepted, datagram];
    assert!(numbers.iter().all(|number| (512..1024).contains(number)), "{numbers:?}");
}
