//! The watcher's process. See the rules in the [parent module](super): nothing here allocates,
//! locks, panics or uses thread-local storage.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ip_tos,
    set_ipv6_mtu_discover, set_ipv6_tclass,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, getsockname, ipproto, sendto,
    socket_with,
};
use urxe_wire::{IcrcSeed, ROCE_PORT};

use super::Task;
use super::records::LastMessage;

/// The pauses in milliseconds before each time that all messages are sent. A packet may be lost,
/// and the peer's reply cannot be received.
const PAUSES_MS: [i64; 4] = [0, 30, 100, 250];
/// After so many messages the watcher sleeps for a millisecond, because a socket of a peer holds
/// only some thousands.
const BURST: usize = 128;
/// Descriptors that are closed one by one if they cannot be listed.
const MAX_DESCRIPTORS: RawFd = 4096;

pub(super) fn run(task: Task) {
    close_others(task);
    // The calls fail only in a sandbox. The watcher then ends with the process group.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir(c"/");
    let _ = rustix::thread::set_name(c"urxe-watcher");
    if !wait_for_end(task) || task.records.iter().next().is_none() {
        return;
    }
    for pause_ms in PAUSES_MS {
        sleep_ms(pause_ms);
        for (index, message) in task.records.iter().enumerate() {
            if index % BURST == BURST - 1 {
                sleep_ms(1);
            }
            // The peer notices a lost message by its timeouts.
            let _ = send(message);
        }
    }
}

/// Closes the descriptors that the process had, except those of the task.
fn close_others(task: Task) {
    let close = |number: RawFd| {
        if number != task.socket && number != task.pidfd {
            // SAFETY: the table of descriptors is this process's copy, in which nothing owns this
            // number. Closing a free number has no effect.
            unsafe { rustix::io::close(number) };
        }
    };
    let folder = openat(
        rustix::fs::CWD,
        c"/proc/self/fd",
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    );
    let Ok(folder) = folder else { return (0..MAX_DESCRIPTORS).for_each(close) };
    let listing = std::os::fd::AsRawFd::as_raw_fd(&folder);
    // Closing during the listing may skip entries, so the listing starts again until it is empty.
    loop {
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(&folder, &mut buffer);
        let mut closed = 0;
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return (0..MAX_DESCRIPTORS).for_each(close) };
            let Some(number) = number_of(entry.file_name().to_bytes()) else { continue };
            if number != listing && number != task.socket && number != task.pidfd {
                close(number);
                closed += 1;
            }
        }
        if closed == 0 || rustix::fs::seek(&folder, rustix::fs::SeekFrom::Start(0)).is_err() {
            return;
        }
    }
}

fn number_of(name: &[u8]) -> Option<RawFd> {
    if name.is_empty() {
        return None;
    }
    name.iter().try_fold(0, |number: RawFd, digit| {
        let digit = digit.is_ascii_digit().then(|| RawFd::from(*digit & 0xf))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Waits for the end of the process. Returns whether the watcher must send the messages.
fn wait_for_end(task: Task) -> bool {
    let [socket, pidfd] = [task.socket, task.pidfd].map(|number| {
        // SAFETY: `close_others` left both descriptors open, and nothing closes them.
        unsafe { BorrowedFd::borrow_raw(number) }
    });
    loop {
        let mut descriptors =
            [PollFd::new(&socket, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        }
        let [at_socket, at_pidfd] = descriptors.each_ref().map(|one| !one.revents().is_empty());
        if at_socket {
            return rustix::io::read(socket, &mut [0; 1]) == Ok(0);
        }
        if at_pidfd {
            return true;
        }
    }
}

fn sleep_ms(ms: i64) {
    if ms > 0 {
        let time = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        let _ = poll(&mut [], Some(&time));
    }
}

/// Sends a message from a socket of its own: the port of the process may belong to others.
fn send(message: LastMessage) -> Result<(), Errno> {
    let LastMessage { from, to, scope_id, traffic_class, mut packet, len } = message;
    let scoped = |address, port| match address {
        IpAddr::V4(v4) => SocketAddr::from((v4, port)),
        IpAddr::V6(v6) => {
            let scope_id = if v6.is_unicast_link_local() { scope_id } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope_id))
        }
    };
    let socket = open(scoped(from, 0), traffic_class)?;
    let port = SocketAddr::try_from(getsockname(&socket)?).map_err(|_| Errno::AFNOSUPPORT)?.port();
    let seed = IcrcSeed::new(from, port, to, ROCE_PORT).ok_or(Errno::AFNOSUPPORT)?;
    let end = seed.append(0, &mut packet, len).ok_or(Errno::MSGSIZE)?;
    let bytes = packet.get(..end).ok_or(Errno::MSGSIZE)?;
    sendto(&socket, bytes, SendFlags::DONTWAIT, &scoped(to, ROCE_PORT)).map(drop)
}

/// Opens a socket whose datagrams have the IPv4 identification 0, as the ICRC expects.
fn open(from: SocketAddr, traffic_class: u8) -> Result<OwnedFd, Errno> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    if from.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        set_ip_tos(&socket, traffic_class)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
        set_ipv6_tclass(&socket, traffic_class.into())?;
    }
    bind(&socket, &from)?;
    Ok(socket)
}
