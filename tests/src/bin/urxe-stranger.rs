//! A process of another user that disturbs the processes of an address. Prints `ready`, and runs
//! until its standard input ends.
//!
//! ```text
//! urxe-stranger squat <address>         has the names of all rendezvous servers and of the lock
//! urxe-stranger impersonate <address>   is a rendezvous server with a group of its own sockets
//! urxe-stranger fill <address>          keeps the queues of all rendezvous servers full
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, connect, listen, recv, sendmsg, socket, socket_with,
    socketpair, sockopt,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SLOTS: u8 = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, address] = &arguments[..] else {
        return Err("usage: urxe-stranger squat|impersonate|fill ADDRESS".into());
    };
    let address: IpAddr = address.parse()?;
    let _held = match what.as_str() {
        "squat" => squat(address)?,
        "impersonate" => impersonate(address)?,
        "fill" => {
            thread::spawn(move || fill(address));
            Vec::new()
        }
        other => return Err(format!("unknown: {other}").into()),
    };
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn name(address: IpAddr, last: &str) -> Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("urxe/4791/{address}/{last}").as_bytes())?)
}

fn local_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn listen_at(address: IpAddr, last: &str) -> Result<OwnedFd> {
    let socket = local_socket()?;
    bind(&socket, &name(address, last)?)?;
    listen(&socket, 8)?;
    Ok(socket)
}

fn squat(address: IpAddr) -> Result<Vec<OwnedFd>> {
    let slots = (0..SLOTS).map(|slot| slot.to_string());
    slots.chain(["new".to_owned()]).map(|last| listen_at(address, &last)).collect()
}

/// Serves the first name with descriptors in the order of a reply: the table, and both ends of the
/// pool, which has three sockets.
fn impersonate(address: IpAddr) -> Result<Vec<OwnedFd>> {
    let table = memfd_create("stranger", MemfdFlags::CLOEXEC)?;
    ftruncate(&table, 26_624)?;
    let (first, second) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut held = Vec::new();
    for _ in 0..3 {
        let port = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        sockopt::set_socket_reuseport(&port, true)?;
        bind(&port, &SocketAddr::new(address, 4791))?;
        send(&first, &[0], &[port.as_fd()])?;
        held.push(port);
    }
    let server = listen_at(address, "0")?;
    thread::spawn(move || {
        while let Ok(connection) = accept(&server) {
            let mut request = [0; 16];
            let Ok((_, length)) = recv(&connection, &mut request, RecvFlags::empty()) else {
                continue;
            };
            println!("asked {length}");
            let descriptors = [table.as_fd(), first.as_fd(), second.as_fd()];
            let _ = send(&connection, b"W\x01", &descriptors);
        }
    });
    Ok(held)
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) -> Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err("too many descriptors".into());
    }
    sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Connects until the queue of each existing server is full, again and again.
fn fill(address: IpAddr) {
    let mut held = Vec::new();
    loop {
        for slot in 0..4_u8 {
            while let Ok(connection) = try_connect(address, slot) {
                held.push(connection);
            }
        }
        // The servers close the connections, and the descriptors must be freed.
        if held.len() > 800 {
            held.clear();
        }
        thread::sleep(Duration::from_micros(100));
    }
}

fn try_connect(address: IpAddr, slot: u8) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &name(address, &slot.to_string())?)?;
    Ok(socket)
}
