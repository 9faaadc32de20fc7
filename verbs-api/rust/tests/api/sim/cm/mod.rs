//! Connections by address and port in simulated networks, in virtual time.

mod connecting;
mod ends;
mod faults;
mod services;

use std::net::SocketAddr;
use std::time::Duration;

use urxe::cm::{self, Connection, Listener, Options};
use urxe::sim::{DeviceOptions, Fabric, LinkFaults, Probability};
use urxe::{Access, Data, Device, RecvRequest, SendRequest};

use crate::common::LONG;

/// The time in which a request is sent sixteen times, as by the kernel: each time 4.096 µs · 2^20,
/// and two packet lifetimes of 4.096 µs · 2^16.
const ALL_REQUESTS: Duration = Duration::from_nanos(16 * 4096 * ((1 << 20) + (2 << 16)));
const PORT: u16 = 7471;

/// A server and a client.
struct Hosts {
    fabric: Fabric,
    server: Device,
    client: Device,
}

impl Hosts {
    fn new(seed: u64) -> Self {
        Self::on(Fabric::new(seed), DeviceOptions::default())
    }

    fn on(fabric: Fabric, options: DeviceOptions) -> Self {
        let [server, client] = [1, 2]
            .map(|host| fabric.device_with(&[[10, 0, 0, host].into()], options.clone()).unwrap());
        Self { fabric, server, client }
    }

    /// Returns the address and port of the server.
    fn to(&self) -> SocketAddr {
        ([10, 0, 0, 1], PORT).into()
    }

    fn listener(&self) -> Listener {
        Listener::builder().device(&self.server).bind(self.to()).unwrap()
    }

    fn options(&self) -> Options {
        Options::new().device(&self.client)
    }

    /// Sends a request.
    fn ask(&self, options: &Options) -> cm::Establishing {
        cm::prepare(self.to(), options).unwrap().start().unwrap()
    }

    /// Returns both ends of a connection, the listening end first.
    fn connect(&self, listener: &Listener) -> (Connection, Connection) {
        let client = self.ask(&self.options());
        let accepted = listener.wait(LONG).unwrap().accept().unwrap();
        (accepted, pollster::block_on(client).unwrap())
    }

    fn lose(&self, percent: u32) {
        let loss = Probability::from_percent(percent);
        self.fabric.set_faults(LinkFaults { loss, ..LinkFaults::default() });
    }

    /// Returns the virtual time since the start.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.fabric.now().as_ns())
    }
}

/// Sends a message from one end of a connection to the other, which receives the same bytes.
fn transfer(from: &Connection, to: &Connection, message: &[u8]) {
    let inbox = to.pd().allocate(64, Access::LOCAL_WRITE).unwrap();
    to.qp().post_recv(&RecvRequest::new(inbox.slice(..).unwrap())).unwrap();
    from.qp().post_send(&SendRequest::send(Data::inline(message)).signaled()).unwrap();
    let received = to.recv_cq().wait_one(LONG).unwrap();
    assert_eq!(inbox.read_vec(0, received.byte_len as usize).unwrap(), message);
    let _sent = from.send_cq().wait_one(LONG).unwrap();
}
