//! Several sockets on one port: processes that share an address, and multicast groups.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use socket2::{Domain, SockAddr, Socket, Type};
use urxe_stack::link::default_address;
use urxe_stack::sys::shared_memory::SharedMemory;
use urxe_stack::sys::steering;
use urxe_wire::ROCE_PORT;

use super::{ARRIVAL_TIMEOUT, Name, Probe, not_tried, scratch_port, send, wait_readable};

/// Sockets of the steering probe: the shared one, and those of the first slots.
const MEMBERS: u32 = 4;

fn shared_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), None)
}

/// Returns the address of the built-in device, which depends on other users.
pub(super) fn built_in() -> Probe {
    const NAME: Name = Name("address of the built-in device");
    if std::fs::metadata("/proc/net/udp").is_err() {
        let without = "if another user has 127.0.0.1, name another address (urxe link add)";
        return NAME.limited("/proc/net/udp cannot be read", without);
    }
    let found = default_address();
    let address = found.address;
    if !found.is_substitute() {
        return NAME.works(address.to_string(), "another user's device takes another address");
    }
    let owner = found.owner_of_localhost.map(|owner| owner.to_string());
    let owner = owner.unwrap_or_else(|| "another user".to_owned());
    let detail = format!("{address}, because {owner} has 127.0.0.1");
    NAME.works(detail, "this user's programs reach it as 127.0.0.1, too")
}

/// Returns whether two mappings of a ring show the same bytes.
pub(super) fn memory() -> Probe {
    const NAME: Name = Name("shared memory between processes (memfd)");
    const CAPACITY: usize = 1 << 16;
    let exchanged = SharedMemory::create(CAPACITY, 1).and_then(|(ring, file)| {
        let other = SharedMemory::open(&file, CAPACITY, 1)?;
        ring.write(0, b"packet");
        let mut read = [0; 6];
        other.read(0, &mut read);
        Ok(&read == b"packet")
    });
    match exchanged {
        Ok(true) => NAME.works(
            "two mappings show the same bytes",
            "no sockets between processes; tcpdump sees their packets with URXE_SHM=off only",
        ),
        Ok(false) => NAME.limited("two mappings show other bytes", "packets use sockets"),
        Err(errno) => NAME.limited(errno.to_string(), "packets use sockets"),
    }
}

/// Returns whether a packet reaches the socket that its destination QPN names.
pub(super) fn steering() -> Probe {
    const NAME: Name = Name("steering by QPN (SO_REUSEPORT, BPF)");
    let without = "each process needs its own loopback or interface address";
    let sender = match scratch_port() {
        Ok(port) => port,
        Err(error) => return not_tried(NAME, &error),
    };
    // A port that could be opened there proves that the address is free.
    let address = match scratch_port() {
        Ok(port) => port.address(),
        Err(error) => return not_tried(NAME, &error),
    };
    let members = match group(address) {
        Ok(members) => members,
        Err(error) => return NAME.limited(error.to_string(), without),
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
        found.push(receiver(&members, &packet, Instant::now() + ARRIVAL_TIMEOUT));
    }
    if found.iter().zip(0..).all(|(&found, index)| found == Some(index)) {
        let detail =
            format!("{MEMBERS} sockets on one address received the packets for their QPNs");
        NAME.works(detail, "several processes can share one address")
    } else {
        let list =
            found.iter().map(|found| found.map_or("none".to_owned(), |index| index.to_string()));
        let detail = format!(
            "packets for sockets 0 to {} arrived at {}",
            MEMBERS - 1,
            list.collect::<Vec<_>>().join(", ")
        );
        NAME.limited(detail, without)
            .advise("use Linux 4.6 or newer, outside a sandbox that emulates the network")
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

/// Returns the index of the socket that has `packet`.
fn receiver(members: &[Socket], packet: &[u8], deadline: Instant) -> Option<u32> {
    loop {
        for (index, member) in (0..).zip(members) {
            while let Some(received) = receive(member) {
                if received == packet {
                    return Some(index);
                }
            }
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns the next packet that waits in a socket.
fn receive(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 11];
    let len = socket.read(&mut buffer).ok()?;
    buffer.truncate(len);
    Some(buffer)
}

/// Probes whether a socket bound to a group's address receives datagrams to the group.
pub(super) fn multicast() -> Probe {
    const NAME: Name = Name("multicast");
    let without = "only unreliable datagrams to multicast groups fail";
    let failed = |what: &str, error: io::Error| NAME.limited(format!("{what}: {error}"), without);
    // The address is from the block for use within an organisation (RFC 2365), and differs by
    // process.
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
    let to = SockAddr::from(SocketAddr::from((group, ROCE_PORT)));
    if let Err(error) = sending().and_then(|socket| socket.send_to(&packet, &to)) {
        return failed("cannot send to a group on the loopback interface", error);
    }
    let deadline = Instant::now() + ARRIVAL_TIMEOUT;
    loop {
        match receive(&receiver) {
            Some(received) if received == packet => {
                let detail = format!("a socket bound to {group} received a datagram to the group");
                return NAME.works(detail, "unreliable datagrams to groups work");
            }
            Some(_) => {}
            None if wait_readable(&receiver, deadline) => {}
            None => {
                let detail = format!(
                    "no datagram arrived at a socket bound to {group} on the loopback interface"
                );
                return NAME.limited(detail, without);
            }
        }
    }
}
