//! Streams of two processes: one that echoes, and one that exits or dies.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use urxe::Device;
use urxe::stream::{RdmaStream, StreamError};

use super::ends::assert_all_calls_fail;
use super::{bytes, client, reason};
use crate::cm::address;
use crate::common::LONG;

const SERVER_ADDRESS: &str = "URXE_TEST_STREAM_SERVER";
const SIZE: u64 = 1 << 20;
/// The status of a server that exits.
const STATUS: i32 = 7;

/// The server of the other tests, in a process of its own: echoes each stream. With the option
/// `exits`, it echoes one byte, and exits after the second.
#[test]
#[ignore = "other tests start it"]
fn echo_server() {
    let Ok(host) = std::env::var(SERVER_ADDRESS) else { return };
    let (host, option) = host.split_once(' ').unwrap_or((&host, ""));
    let host: IpAddr = host.parse().unwrap();
    let device = Device::builder().watcher(option != "unwatched").open_address(host).unwrap();
    let listener = RdmaStream::builder().device(&device).bind((host, 0).into()).unwrap();
    println!("\nlistening on {}", listener.local_addr());
    loop {
        let (stream, _) = listener.wait(LONG).unwrap();
        if option == "exits" {
            let (mut stream, mut byte) = (stream.blocking(), [0]);
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
            // Drops neither the stream nor the device.
            std::process::exit(STATUS);
        }
        thread::spawn(move || {
            let mut stream = stream.blocking();
            std::io::copy(&mut { stream }, &mut stream).unwrap();
            stream.shutdown().unwrap();
        });
    }
}

struct Server {
    process: Child,
    addr: SocketAddr,
}

impl Server {
    /// Starts a server whose device has the first address of `net`.
    fn start(net: u8, option: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stream::processes::echo_server", "--ignored", "--nocapture"])
            .env(SERVER_ADDRESS, format!("{} {option}", address(net, 1)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let addr = lines
            .find_map(|line| Some(line.unwrap().strip_prefix("listening on ")?.parse().unwrap()));
        Self { process, addr: addr.unwrap() }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The test may have killed it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn two_processes_exchange_a_large_stream() {
    let server = Server::start(145, "");
    let stream = client(145).connect(server.addr).wait().unwrap();
    let mut echo = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            stream.blocking().write_all(&bytes(0..SIZE)).unwrap();
            stream.blocking().shutdown().unwrap();
        });
        stream.blocking().read_to_end(&mut echo).unwrap();
    });
    assert!(echo == bytes(0..SIZE), "the echo differs");
}

#[test]
fn a_process_that_dies_resets_its_streams() {
    let mut server = Server::start(146, "");
    let stream = client(146).connect(server.addr).wait().unwrap();
    let mut byte = [0];
    stream.blocking().write_all(b"x").unwrap();
    stream.blocking().read_exact(&mut byte).unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| stream.blocking().timeout(LONG.unwrap()).read(&mut byte));
        server.kill();
        let error = reading.join().unwrap().unwrap_err();
        assert_eq!(reason(&error), StreamError::Reset { peer: server.addr });
    });
    assert_all_calls_fail(&stream, StreamError::Reset { peer: server.addr });
}

#[test]
fn a_process_that_exits_without_dropping_resets_its_streams() {
    let mut server = Server::start(148, "exits");
    let stream = client(148).connect(server.addr).wait().unwrap();
    let mut blocking = stream.blocking().timeout(LONG.unwrap());
    let mut byte = [0];
    blocking.write_all(b"x").unwrap();
    blocking.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    blocking.write_all(b"y").unwrap();
    assert_eq!(server.process.wait().unwrap().code(), Some(STATUS));
    assert_all_calls_fail(&stream, StreamError::Reset { peer: server.addr });
}

/// No one tells this end that the peer is gone, as when its host loses power.
#[test]
fn a_keepalive_detects_a_peer_that_vanished() {
    let mut server = Server::start(147, "unwatched");
    let builder = client(147).ack_timeout(Duration::from_millis(16));
    let stream = builder.connect(server.addr).wait().unwrap();
    server.kill();
    let mut idle = stream.blocking().timeout(Duration::from_millis(20));
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let keep_alive = stream.keep_alive();
    assert!(keep_alive.send());
    let error = stream.blocking().timeout(LONG.unwrap()).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(matches!(reason(&error), StreamError::Lost { .. }), "{error}");
    assert!(!keep_alive.send(), "the stream has failed");
}
