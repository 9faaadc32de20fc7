//! Streams: over UDP and in simulated networks.

mod data;
mod ends;
mod hostile;
mod listening;
mod mappings;
mod processes;

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use urxe::Device;
use urxe::sim::Fabric;
use urxe::stream::{RdmaListener, RdmaStream, StreamBuilder, StreamError};

use crate::cm::{address, device};
use crate::common::LONG;

/// Returns a listener on a device of its own, with any port.
fn listener(net: u8) -> RdmaListener {
    let builder = RdmaStream::builder().device(&device(net, 1));
    builder.bind((address(net, 1), 0).into()).unwrap()
}

/// Returns the builder of a client on a device of its own.
fn client(net: u8) -> StreamBuilder {
    RdmaStream::builder().device(&device(net, 2)).timeout(LONG.unwrap())
}

/// Returns both ends of a stream, the listening end first.
fn pair(net: u8) -> [RdmaStream; 2] {
    pair_of(&listener(net), client(net))
}

fn pair_of(listener: &RdmaListener, client: StreamBuilder) -> [RdmaStream; 2] {
    let connect = client.connect(listener.local_addr());
    thread::scope(|scope| {
        let connecting = scope.spawn(|| connect.wait());
        let (accepted, _) = listener.wait(LONG).unwrap();
        [accepted, connecting.join().unwrap().unwrap()]
    })
}

/// Returns the devices of a server and a client in a simulated network, and the address of the
/// server.
fn simulated(fabric: &Fabric) -> ([Device; 2], SocketAddr) {
    let devices = [1, 2].map(|host| fabric.device([10, 0, 0, host]).unwrap());
    (devices, ([10, 0, 0, 1], 7471).into())
}

/// Returns both ends of a stream in a simulated network, the listening end first, and the device of
/// that end.
fn simulated_pair(fabric: &Fabric) -> ([RdmaStream; 2], Device) {
    let ([here, there], to) = simulated(fabric);
    let listener = RdmaStream::builder().device(&here).bind(to).unwrap();
    let connect = RdmaStream::builder().device(&there).connect(to);
    let (accepted, connected) = smol::block_on(smol::future::zip(listener.accept(), connect));
    ([accepted.unwrap().0, connected.unwrap()], here)
}

/// Returns the byte at a position of a stream. No two blocks of 4 GiB are equal.
fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(positions: std::ops::Range<u64>) -> Vec<u8> {
    positions.map(byte_at).collect()
}

/// Returns the reason that an error contains.
#[track_caller]
fn reason(error: &io::Error) -> StreamError {
    StreamError::of(error).unwrap_or_else(|| panic!("{error:?}"))
}

/// Repeats `check` until it returns true.
#[track_caller]
fn eventually(mut check: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !check() {
        assert!(started.elapsed() < LONG.unwrap(), "never");
        thread::sleep(Duration::from_millis(5));
    }
}
