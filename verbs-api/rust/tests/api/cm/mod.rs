//! Connections by address and port, over UDP.

mod closing;
mod connections;
mod datagrams;
mod listening;
mod refusals;
mod tasks;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use urxe::cm::{self, Connection, Listener, Options};
use urxe::*;

use crate::common::LONG;

/// Returns an address. Each test has its own number, so that tests can run at the same time.
pub fn address(net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 50, net, host)
}

pub fn device(net: u8, host: u8) -> Device {
    Device::open_address(address(net, host)).unwrap()
}

/// Returns a listener on a device of its own, with any port.
pub fn listener(net: u8) -> Listener {
    Listener::builder().device(&device(net, 1)).bind((address(net, 1), 0)).unwrap()
}

/// Returns the options of a client on a device of its own.
pub fn client(net: u8) -> Options {
    Options::new().device(&device(net, 2)).timeout(LONG.unwrap())
}

/// Connects in another thread.
pub fn connecting(
    to: SocketAddr,
    options: Options,
) -> JoinHandle<Result<Connection, cm::ConnectError>> {
    std::thread::spawn(move || cm::prepare(to, &options)?.establish())
}

/// Returns both ends of a connection, the listening end first.
pub fn pair(net: u8) -> (Connection, Connection) {
    let listener = listener(net);
    let connecting = connecting(listener.local_addr(), client(net));
    let accepted = listener.wait(LONG).unwrap().accept().unwrap();
    (accepted, connecting.join().unwrap().unwrap())
}
