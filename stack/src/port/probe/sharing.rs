//! Several sockets on one port: processes that share an address, and multicast groups.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use urxe_wire::ROCE_PORT;

use super::{Outcome, PATIENCE, Probe, scratch_port, send, untried, wait_readable};
use crate::sys::message::{self, ReceiveSlot};
use crate::sys::steering;
use crate::sys::{address::RawAddress, clock, control::Control};
use crate::time::Time;

/// Sockets of the group that the steering probe makes: everybody's, and those of the first slots.
const MEMBERS: u32 = 4;

fn shared_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), None)
}

/// Whether a packet reaches the socket that its destination QPN names.
pub(super) fn steering() -> Probe {
    const NAME: &str = "steering by QPN (SO_REUSEPORT, BPF)";
    let without = "each process needs a loopback or interface address of its own";
    let sender = match scratch_port(|_| {}) {
        Ok(port) => port,
        Err(error) => return untried(NAME, &error),
    };
    // A port that was just open there shows that the address is free.
    let address = match scratch_port(|_| {}) {
        Ok(port) => port.address(),
        Err(error) => return untried(NAME, &error),
    };
    let members = match group(address) {
        Ok(members) => members,
        Err(error) => return Probe::new(NAME, Outcome::Limited, error.to_string(), without),
    };
    let mut found = Vec::new();
    for index in 0..MEMBERS {
        let qpn = match index.checked_sub(1) {
            None => 1,
            Some(slot) => slot << steering::QPN_SLOT_SHIFT | 0x0_1234,
        };
        let mut packet = super::marked(64, 8);
        packet[4..8].copy_from_slice(&(qpn | 0x4000_0000).to_be_bytes());
        send(&sender, address, &packet, packet.len());
        found.push(receiver(&members, &packet, clock::now() + PATIENCE));
    }
    if found.iter().zip(0..).all(|(&found, index)| found == Some(index)) {
        let detail =
            format!("{MEMBERS} sockets on one address each got the packets for their QPNs");
        Probe::new(NAME, Outcome::Works, detail, "several processes can share one address")
    } else {
        let list =
            found.iter().map(|found| found.map_or("none".to_owned(), |index| index.to_string()));
        let detail = format!(
            "packets for sockets 0 to {} went to {}",
            MEMBERS - 1,
            list.collect::<Vec<_>>().join(", ")
        );
        Probe::new(NAME, Outcome::Limited, detail, without)
            .advise("needs Linux 4.6 or newer, and no sandbox that emulates the network")
    }
}

fn group(address: IpAddr) -> io::Result<Vec<Socket>> {
    let mut members = Vec::new();
    for _ in 0..MEMBERS {
        let socket = shared_socket()?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::new(address, ROCE_PORT).into())?;
        members.push(socket);
    }
    if let Some(first) = members.first() {
        steering::attach(first)?;
    }
    Ok(members)
}

/// The index of the socket that has `packet`.
fn receiver(members: &[Socket], packet: &[u8], deadline: Time) -> Option<u32> {
    let mut slots = [ReceiveSlot::default()];
    loop {
        for (index, member) in (0..).zip(members) {
            while let Ok(1..) = message::receive(member, &mut slots) {
                if slots[0].payload() == packet {
                    return Some(index);
                }
            }
        }
        if clock::now() >= deadline {
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether a socket bound to a group's address gets what is sent to the group.
pub(super) fn multicast() -> Probe {
    const NAME: &str = "multicast";
    let without = "unreliable datagrams to multicast groups do not work; all else does";
    let failed = |what: &str, error: io::Error| {
        Probe::new(NAME, Outcome::Limited, format!("{what}: {error}"), without)
    };
    // Of the block for use within an organisation (RFC 2365), differing by process.
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = Ipv4Addr::new(239, 255, high, low);
    let interface = Ipv4Addr::LOCALHOST;
    let receiving = || -> io::Result<Socket> {
        let socket = shared_socket()?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((group, ROCE_PORT)).into())?;
        socket.join_multicast_v4(&group, &interface)?;
        socket.set_multicast_all_v4(false)?;
        Ok(socket)
    };
    let receiver = match receiving() {
        Ok(socket) => socket,
        Err(error) => return failed("cannot join a group on the loopback interface", error),
    };
    let sending = || -> io::Result<Socket> {
        let socket = shared_socket()?;
        socket.set_multicast_if_v4(&interface)?;
        socket.set_multicast_ttl_v4(0)?;
        Ok(socket)
    };
    let packet = super::marked(64, 9);
    let to = RawAddress::new(SocketAddr::from((group, ROCE_PORT)));
    let sent =
        sending().and_then(|socket| Ok(message::send(&socket, &to, &Control::EMPTY, &packet)?));
    if let Err(error) = sent {
        return failed("cannot send to a group on the loopback interface", error);
    }
    let deadline = clock::now() + PATIENCE;
    let mut slots = [ReceiveSlot::default()];
    loop {
        match message::receive(&receiver, &mut slots) {
            Ok(1..) if slots[0].payload() == packet => {
                let detail = format!("a socket bound to {group} got what was sent there");
                return Probe::new(
                    NAME,
                    Outcome::Works,
                    detail,
                    "unreliable datagrams to groups work",
                );
            }
            Ok(1..) => {}
            _ if wait_readable(&receiver, deadline) => {}
            _ => {
                let detail = format!(
                    "nothing arrived at a socket bound to {group} on the loopback interface"
                );
                return Probe::new(NAME, Outcome::Limited, detail, without);
            }
        }
    }
}
