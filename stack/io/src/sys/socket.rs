//! UDP sockets that no preloaded library makes something else of, the socket options that no crate
//! names, and what a socket's memory holds.

use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use socket2::Socket;

use super::last_errno;

/// A UDP socket of an address's family, close-on-exec, with further `flags`.
///
/// It is made by the system call itself: the C library's `socket` may be one of a preloaded library
/// that makes something else of it, as librspreload makes an rsocket, which would stand on the very
/// device that the socket is for.
///
/// # Errors
/// The system's.
pub fn udp_for(address: SocketAddr, flags: SocketFlags) -> Result<Socket, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let made =
        socket_with(family, SocketType::DGRAM, flags | SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    Ok(Socket::from(made))
}

/// A socket option whose value is an int.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntOption {
    /// Its name in the manual pages.
    pub name: &'static str,
    level: libc::c_int,
    number: libc::c_int,
}

/// Defines options by level and name, with the numbers of the C library.
macro_rules! int_options {
    ($($level:ident { $($(#[$doc:meta])+ $name:ident,)+ })+) => {$($(
        $(#[$doc])+
        pub const $name: IntOption =
            IntOption { name: stringify!($name), level: libc::$level, number: libc::$name };
    )+)+};
}

int_options! {
    SOL_SOCKET {
        /// Where in the queue the next peek looks, in bytes (socket(7)).
        SO_PEEK_OFF,
    }
    SOL_UDP {
        /// Segment size of generic segmentation offload; 0 is off (udp(7)).
        UDP_SEGMENT,
        /// Hand over several datagrams of one sender merged into one (udp(7)).
        UDP_GRO,
        /// Take IPv6 datagrams whose UDP checksum is 0, as the kernel's rxe sends (linux/udp.h).
        UDP_NO_CHECK6_RX,
    }
    IPPROTO_IP {
        /// Path-MTU discovery (ip(7)).
        IP_MTU_DISCOVER,
        /// Queue ICMP errors for [`receive_error`](super::message::receive_error) (ip(7)).
        IP_RECVERR,
        /// A control message with each datagram's time to live (ip(7)).
        IP_RECVTTL,
        /// A control message with each datagram's type of service (ip(7)).
        IP_RECVTOS,
        /// The type of service of what is sent (ip(7)).
        IP_TOS,
    }
    IPPROTO_IPV6 {
        /// Path-MTU discovery (ipv6(7)).
        IPV6_MTU_DISCOVER,
        /// Refuse what does not fit the path rather than fragment it (RFC 3542, 11.2).
        IPV6_DONTFRAG,
        /// Queue ICMP errors for [`receive_error`](super::message::receive_error) (ipv6(7)).
        IPV6_RECVERR,
        /// A control message with each datagram's hop limit (ipv6(7)).
        IPV6_RECVHOPLIMIT,
        /// A control message with each datagram's traffic class (RFC 3542, 6.5).
        IPV6_RECVTCLASS,
        /// The traffic class of what is sent (RFC 3542, 6.5).
        IPV6_TCLASS,
    }
}

/// Sets an option.
///
/// # Errors
/// What setsockopt(2) answers; `ENOPROTOOPT` where the kernel does not know the option.
pub fn set_int(socket: impl AsFd, option: IntOption, value: i32) -> Result<(), Errno> {
    set(socket, option.level, option.number, &value)
}

/// Reads an option.
///
/// # Errors
/// What getsockopt(2) answers; `ENOPROTOOPT` where the kernel does not know the option.
pub fn int(socket: impl AsFd, option: IntOption) -> Result<i32, Errno> {
    words(socket, option.level, option.number).map(|[value]| value as i32)
}

/// Sets an option to `value`, an int or a [`SockFprog`] with a program that is borrowed.
fn set<T>(
    socket: impl AsFd,
    level: libc::c_int,
    number: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which lives through the call; the kernel
    // only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            number,
            ptr::from_ref(value).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads an option of `COUNT` words; those that the kernel does not fill in are 0.
pub(super) fn words<const COUNT: usize>(
    socket: impl AsFd,
    level: libc::c_int,
    number: libc::c_int,
) -> Result<[u32; COUNT], Errno> {
    let mut values = [0; COUNT];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the pointer and length describe `values`, which lives through the call; the kernel
    // writes at most `length` bytes, and every pattern of bytes is a u32.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            number,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(values) } else { Err(last_errno()) }
}

/// What a socket's queues hold (`SO_MEMINFO`, linux/sock_diag.h), in bytes of kernel memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory that received datagrams, not yet read, take.
    pub receive_queued: u32,
    /// The limit of that, as SO_RCVBUF reads.
    pub receive_limit: u32,
    /// Memory that datagrams on their way out take.
    pub send_queued: u32,
    /// The limit of that, as SO_SNDBUF reads.
    pub send_limit: u32,
    /// Datagrams dropped at this socket since it was made, most often for want of room; wraps. A
    /// merged datagram counts once.
    pub dropped: u32,
}

/// Reads a socket's memory and drop counter.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 4.12.
pub fn memory(socket: impl AsFd) -> Result<SocketMemory, Errno> {
    // SK_MEMINFO_*: the nine values in the kernel's order.
    let [receive_queued, receive_limit, send_queued, send_limit, _, _, _, _, dropped] =
        words(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(SocketMemory { receive_queued, receive_limit, send_queued, send_limit, dropped })
}

/// Makes a socket refuse every datagram that is sent to it. Its error queue goes on.
///
/// # Errors
/// `ENOMEM`; `EPERM` if a filter was locked on it.
pub fn refuse_all_datagrams(socket: impl AsFd) -> Result<(), Errno> {
    let nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    attach(socket, libc::SO_ATTACH_FILTER, &[nothing])
}

/// Attaches a classic BPF program that picks the receiving socket of a SO_REUSEPORT group; it
/// replaces the group's program, if any.
///
/// # Errors
/// `EINVAL` for a program that the kernel refuses, `ENOMEM`.
pub fn attach_reuseport_program(
    socket: impl AsFd,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Between the two fields of `struct sock_fprog`.
const PADDING: usize = offset_of!(libc::sock_fprog, filter) - size_of::<u16>();

/// `struct sock_fprog` without holes: valgrind tells of bytes that the kernel is handed and nobody
/// has written.
#[repr(C)]
struct SockFprog {
    len: u16,
    padding: [u8; PADDING],
    /// The kernel only reads the program.
    filter: *const libc::sock_filter,
}

const _: () = assert!(size_of::<SockFprog>() == size_of::<libc::sock_fprog>());

fn attach(
    socket: impl AsFd,
    option: libc::c_int,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let described = SockFprog { len, padding: [0; PADDING], filter: program.as_ptr() };
    // The kernel copies and verifies the instructions, which are borrowed through the call.
    set(socket, libc::SOL_SOCKET, option, &described)
}
