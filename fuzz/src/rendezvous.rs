//! Processes of one user that share an address: any messages to a rendezvous server, and any
//! replies of one.
//!
//! Both sides are in this process, over local sockets as in a program. The first part of an input
//! is a plan of connections to the server of a device. The second part is a reply to a process that
//! joins, or to a tool that asks for the listing.
//!
//! Properties: nothing panics or waits without end. The server takes each valid packet once, in
//! order, and replies exactly to requests. It keeps no descriptor of a client. A listing has the
//! bytes of the file that the server sent. A process that gets a damaged group fails with an error,
//! or has a port.

mod clients;
mod servers;

use std::net::{IpAddr, Ipv4Addr};

use arbitrary::{Arbitrary, Unstructured};
use urxe_wire::ROCE_PORT;

#[derive(Arbitrary, Debug)]
struct Plan {
    clients: Vec<clients::Client>,
    server: Option<servers::Server>,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(plan) = Plan::arbitrary(&mut Unstructured::new(bytes)) else { return };
    clients::run(&plan.clients);
    if let Some(server) = plan.server {
        server.run();
    }
}

/// Returns a loopback address that no other process uses.
fn address(which: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 90 + which, high, low.max(1)).into()
}

/// Returns the abstract name of the server of the first slot.
fn server_name(address: IpAddr) -> String {
    format!("urxe/{ROCE_PORT}/{address}/0")
}
