//! UDP sockets that bypass preloaded libraries, socket options that no crate names, and the memory
//! of a socket.

use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use socket2::Socket;

use super::last_errno;

/// Opens a UDP socket of an address's IP version, close-on-exec, with further `flags`.
///
/// The function makes the system call itself, because a preloaded library may replace the C
/// library's `socket`. For example, librspreload would make an rsocket, which would need the very
/// device that opens this socket.
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
    /// The name in the manual pages.
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
        /// The offset in the queue of the next peek, in bytes (socket(7)).
        SO_PEEK_OFF,
    }
    SOL_UDP {
        /// The segment size of generic segmentation offload; 0 is off (udp(7)).
        UDP_SEGMENT,
        /// Whether to merge received datagrams of one sender (udp(7)).
        UDP_GRO,
        /// Whether to accept IPv6 datagrams whose UDP checksum is 0, as the kernel's rxe sends
        /// (linux/udp.h).
        UDP_NO_CHECK6_RX,
    }
    IPPROTO_IP {
        /// The mode of path-MTU discovery (ip(7)).
        IP_MTU_DISCOVER,
        /// Whether to queue ICMP errors for [`receive_error`](super::message::receive_error)
        /// (ip(7)).
        IP_RECVERR,
        /// Whether each datagram has a control message with its time to live (ip(7)).
        IP_RECVTTL,
        /// Whether each datagram has a control message with its type of service (ip(7)).
        IP_RECVTOS,
        /// The type of service of sent datagrams (ip(7)).
        IP_TOS,
    }
    IPPROTO_IPV6 {
        /// The mode of path-MTU discovery (ipv6(7)).
        IPV6_MTU_DISCOVER,
        /// Whether to refuse datagrams that do not fit the path instead of fragmenting them (RFC
        /// 3542, 11.2).
        IPV6_DONTFRAG,
        /// Whether to queue ICMP errors for [`receive_error`](super::message::receive_error)
        /// (ipv6(7)).
        IPV6_RECVERR,
        /// Whether each datagram has a control message with its hop limit (ipv6(7)).
        IPV6_RECVHOPLIMIT,
        /// Whether each datagram has a control message with its traffic class (RFC 3542, 6.5).
        IPV6_RECVTCLASS,
        /// The traffic class of sent datagrams (RFC 3542, 6.5).
        IPV6_TCLASS,
    }
}

/// Sets an option.
///
/// # Errors
/// Those of setsockopt(2); `ENOPROTOOPT` if the kernel does not know the option.
pub fn set_int(socket: impl AsFd, option: IntOption, value: i32) -> Result<(), Errno> {
    set(socket, option.level, option.number, &value)
}

/// Reads an option.
///
/// # Errors
/// Those of getsockopt(2); `ENOPROTOOPT` if the kernel does not know the option.
pub fn int(socket: impl AsFd, option: IntOption) -> Result<i32, Errno> {
    words(socket, option.level, option.number).map(|[value]| value as i32)
}

/// Sets an option to `value`, which is an int, or a [`SockFprog`] with a borrowed program.
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

/// Reads an option of `COUNT` words. Words that the kernel does not write are 0.
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

/// The kernel memory of a socket's queues (`SO_MEMINFO`, linux/sock_diag.h), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of received datagrams that are not read yet.
    pub receive_queued: u32,
    /// The limit of that memory, as SO_RCVBUF reads.
    pub receive_limit: u32,
    /// Memory of datagrams to be sent.
    pub send_queued: u32,
    /// The limit of that memory, as SO_SNDBUF reads.
    pub send_limit: u32,
    /// Datagrams dropped at this socket since it was opened, most often because the buffer was
    /// full; wraps. A merged datagram counts once.
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

/// Makes a socket refuse every datagram. Its error queue still works.
///
/// # Errors
/// `ENOMEM`; `EPERM` if a filter was locked on the socket.
pub fn refuse_all_datagrams(socket: impl AsFd) -> Result<(), Errno> {
    let nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    attach(socket, libc::SO_ATTACH_FILTER, &[nothing])
}

/// Attaches a classic BPF program that picks the receiving socket of a SO_REUSEPORT group. Replaces
/// the group's program, if any.
///
/// # Errors
/// `EINVAL` for a program that the kernel refuses, `ENOMEM`.
pub fn attach_reuseport_program(
    socket: impl AsFd,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Bytes between the two fields of `struct sock_fprog`.
const PADDING: usize = offset_of!(libc::sock_fprog, filter) - size_of::<u16>();

/// `struct sock_fprog` with explicit padding, because valgrind reports uninitialised bytes that the
/// kernel gets.
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
