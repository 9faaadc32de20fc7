//! Socket options that no crate names, and what a socket's memory holds.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::last_errno;

/// A socket option whose value is an int.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntOption {
    level: libc::c_int,
    name: libc::c_int,
}

/// An option of the socket level (socket(7)).
pub(super) const fn socket_level(name: libc::c_int) -> IntOption {
    IntOption { level: libc::SOL_SOCKET, name }
}

/// `UDP_SEGMENT` (udp(7)): segment size of generic segmentation offload; 0 is off.
pub const UDP_SEGMENT: IntOption = IntOption { level: libc::SOL_UDP, name: 103 };
/// `UDP_GRO` (udp(7)): hand over several datagrams of one sender merged into one.
pub const UDP_GRO: IntOption = IntOption { level: libc::SOL_UDP, name: 104 };
/// `UDP_NO_CHECK6_RX` (linux/udp.h): take IPv6 datagrams whose UDP checksum is 0, as the kernel's
/// rxe sends.
pub const UDP_NO_CHECK6_RX: IntOption = IntOption { level: libc::SOL_UDP, name: 102 };
/// `IP_RECVTTL` (ip(7)): a control message with each datagram's time to live.
pub const IP_RECVTTL: IntOption = IntOption { level: libc::IPPROTO_IP, name: libc::IP_RECVTTL };
/// `IP_RECVERR` (ip(7)): queue ICMP errors for [`receive_error`](super::message::receive_error).
pub const IP_RECVERR: IntOption = IntOption { level: libc::IPPROTO_IP, name: libc::IP_RECVERR };
/// `IPV6_RECVERR` (ipv6(7)).
pub const IPV6_RECVERR: IntOption =
    IntOption { level: libc::IPPROTO_IPV6, name: libc::IPV6_RECVERR };
/// `IPV6_DONTFRAG` (RFC 3542, 11.2): refuse what does not fit the path rather than fragment it.
pub const IPV6_DONTFRAG: IntOption =
    IntOption { level: libc::IPPROTO_IPV6, name: libc::IPV6_DONTFRAG };

/// Sets an option.
///
/// # Errors
/// What setsockopt(2) answers; `ENOPROTOOPT` where the kernel does not know the option.
pub fn set_int(socket: impl AsFd, option: IntOption, value: i32) -> Result<(), Errno> {
    // SAFETY: the pointer and length describe `value`, which lives through the call; the kernel
    // only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            option.level,
            option.name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads an option.
///
/// # Errors
/// What getsockopt(2) answers; `ENOPROTOOPT` where the kernel does not know the option.
pub fn int(socket: impl AsFd, option: IntOption) -> Result<i32, Errno> {
    let mut value = 0_i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which lives through the call; the kernel
    // writes at most `length` bytes, and every pattern of bytes is an i32.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            option.level,
            option.name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(value) } else { Err(last_errno()) }
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
    let mut values = [0_u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the pointer and length describe `values`, which lives through the call; the kernel
    // writes at most `length` bytes, and every pattern of bytes is a u32.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    let [receive_queued, receive_limit, send_queued, send_limit, _, _, _, _, dropped] = values;
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
    // SAFETY: it describes `len` instructions that are borrowed through the call; the kernel copies
    // and verifies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const described).cast(),
            size_of::<SockFprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
