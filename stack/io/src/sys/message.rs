//! Sending and receiving datagrams with control messages, singly and many a call; and the error
//! queue.
//!
//! Every function returns at once (`MSG_DONTWAIT`), allocates nothing, and answers with the bare
//! errno. The calls of the data path are made without the C library's wrappers: those are
//! cancellation points (pthreads(7)), which verbs are not, and a thread that is cancelled there
//! would leave locks behind.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;

use super::address::RawAddress;
use super::control::Control;
use super::last_errno;

/// Room for the largest datagram, merged or not.
pub const DATAGRAM_CAPACITY: usize = 65_536;
/// Datagrams that one call sends at most.
pub const SEND_BATCH: usize = 64;
/// Datagrams that one call receives at most.
pub const RECEIVE_BATCH: usize = 8;

/// A header of which nothing is set. (Some C libraries have private padding in it, so it has no
/// literal.)
fn blank_header() -> libc::msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// The header of a message to send. It points at what the arguments do, and is only good for as
/// long.
fn outgoing(to: &RawAddress, control: &Control, payload: &mut libc::iovec) -> libc::msghdr {
    let mut header = blank_header();
    let (address, control) = (to.as_bytes(), control.as_bytes());
    header.msg_name = address.as_ptr().cast_mut().cast();
    header.msg_namelen = address.len() as libc::socklen_t;
    header.msg_iov = payload;
    header.msg_iovlen = 1;
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    header
}

/// The header of a message to receive, without room for a payload. It points at the rooms of its
/// arguments, and is only good for as long.
fn incoming(address: &mut RawAddress, control: &mut Control) -> libc::msghdr {
    let mut header = blank_header();
    let (address, control) = (address.buffer_mut(), control.buffer_mut());
    header.msg_name = address.as_mut_ptr().cast();
    header.msg_namelen = address.len() as libc::socklen_t;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    header
}

fn outgoing_payload(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// sendmsg(2): one datagram, or several of one call when `control` says `UDP_SEGMENT`.
///
/// # Errors
/// What sendmsg(2) answers; also an error that an earlier datagram met on its way, once.
pub fn send(
    socket: impl AsFd,
    to: &RawAddress,
    control: &Control,
    payload: &[u8],
) -> Result<usize, Errno> {
    let mut vector = outgoing_payload(payload);
    let header = outgoing(to, control, &mut vector);
    // SAFETY: the header points at the address, control messages, vector and payload, all of which
    // are borrowed or local and live through the call; sendmsg only reads them.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            socket.as_fd().as_raw_fd(),
            &raw const header,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| last_errno())
}

/// sendmmsg(2): each of `payloads`, at most [`SEND_BATCH`], as a datagram of its own. Returns how
/// many were taken, at least one unless there are none.
///
/// # Errors
/// As [`send`], if not even the first was taken.
pub fn send_each<'a>(
    socket: impl AsFd,
    to: &RawAddress,
    control: &Control,
    payloads: impl Iterator<Item = &'a [u8]>,
) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; SEND_BATCH];
    let mut headers = [libc::mmsghdr { msg_hdr: blank_header(), msg_len: 0 }; SEND_BATCH];
    let mut count = 0;
    for ((payload, vector), header) in payloads.zip(&mut vectors).zip(&mut headers) {
        *vector = outgoing_payload(payload);
        header.msg_hdr = outgoing(to, control, vector);
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: the first `count` headers point at the address, control messages, vectors and
    // payloads, all of which are borrowed or local and live through the call; sendmmsg reads those
    // and writes the headers' `msg_len`.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmmsg,
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| last_errno())
}

/// Room for one received datagram, its sender and its control messages.
#[derive(Clone, Debug)]
pub struct ReceiveSlot {
    data: Box<[u8]>,
    length: usize,
    address: RawAddress,
    control: Control,
    flags: libc::c_int,
}

impl Default for ReceiveSlot {
    fn default() -> Self {
        Self {
            data: vec![0; DATAGRAM_CAPACITY].into_boxed_slice(),
            length: 0,
            address: RawAddress::EMPTY,
            control: Control::EMPTY,
            flags: 0,
        }
    }
}

impl ReceiveSlot {
    /// The payload received last.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.data[..self.length]
    }

    /// Who sent it, if the kernel told an IP address.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.address.socket_address()
    }

    /// Its control messages.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Whether the payload or the control messages were cut off for want of room.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }

    /// The header of a message to receive here. It points at this slot's rooms and at `vector`, and
    /// is only good for as long.
    fn incoming(&mut self, vector: &mut libc::iovec) -> libc::msghdr {
        *vector = libc::iovec { iov_base: self.data.as_mut_ptr().cast(), iov_len: self.data.len() };
        let mut header = incoming(&mut self.address, &mut self.control);
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header
    }

    /// Notes what the kernel filled in, by the header that [`incoming`](Self::incoming) made.
    #[allow(clippy::unnecessary_cast, reason = "the control length is a u32 in some C libraries")]
    fn note(&mut self, header: &libc::msghdr, length: usize) {
        self.length = length.min(self.data.len());
        self.address.set_length(header.msg_namelen);
        self.control.set_length(header.msg_controllen as usize);
        self.flags = header.msg_flags;
    }
}

/// Fills the first of `slots`, at most [`RECEIVE_BATCH`], with datagrams that wait: recvmsg(2) for
/// one slot, which costs less when there is one datagram or none, and recvmmsg(2) for more. Returns
/// how many.
///
/// # Errors
/// `EAGAIN` when none waits; an error that an earlier datagram met on its way, once; what the call
/// answers.
pub fn receive(socket: impl AsFd, slots: &mut [ReceiveSlot]) -> Result<usize, Errno> {
    match slots {
        [slot] => receive_one(socket, slot).map(|()| 1),
        slots => receive_many(socket, slots),
    }
}

fn receive_one(socket: impl AsFd, slot: &mut ReceiveSlot) -> Result<(), Errno> {
    let mut vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let mut header = slot.incoming(&mut vector);
    // SAFETY: the header points at a vector that lives through the call and at the rooms of the
    // slot, exclusively borrowed through the call, with their lengths; the kernel writes bytes
    // there and the lengths in the header.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket.as_fd().as_raw_fd(),
            &raw mut header,
            libc::MSG_DONTWAIT,
        )
    };
    let length = usize::try_from(received).map_err(|_| last_errno())?;
    slot.note(&header, length);
    Ok(())
}

fn receive_many(socket: impl AsFd, slots: &mut [ReceiveSlot]) -> Result<usize, Errno> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; RECEIVE_BATCH];
    let mut headers = [libc::mmsghdr { msg_hdr: blank_header(), msg_len: 0 }; RECEIVE_BATCH];
    let mut count = 0;
    for ((slot, vector), header) in slots.iter_mut().zip(&mut vectors).zip(&mut headers) {
        header.msg_hdr = slot.incoming(vector);
        count += 1;
    }
    // SAFETY: the first `count` headers point at vectors that live through the call and at the
    // rooms of as many distinct slots, exclusively borrowed through the call, with their lengths;
    // the kernel writes bytes there and the lengths in the headers.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
            ptr::null_mut::<libc::timespec>(),
        )
    };
    let received = usize::try_from(received).map_err(|_| last_errno())?;
    for (slot, header) in slots.iter_mut().zip(&headers).take(received) {
        slot.note(&header.msg_hdr, header.msg_len as usize);
    }
    Ok(received)
}

/// One entry of a socket's error queue (`struct sock_extended_err`, ip(7), IP_RECVERR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// Where the failed datagram was going.
    pub to: IpAddr,
    /// The error number that the kernel made of it.
    pub errno: Errno,
    /// Who noticed: `SO_EE_ORIGIN_LOCAL`, `SO_EE_ORIGIN_ICMP` or `SO_EE_ORIGIN_ICMP6`.
    pub origin: u8,
    /// The ICMP type.
    pub icmp_type: u8,
    /// The ICMP code.
    pub icmp_code: u8,
    /// For `EMSGSIZE` the path's MTU in bytes.
    pub info: u32,
    /// The host that sent the ICMP message.
    pub offender: Option<IpAddr>,
}

/// Takes one entry from the error queue; entries without an IP address or an error's description
/// are passed over.
///
/// # Errors
/// `EAGAIN` when the queue is empty, and what recvmsg(2) answers.
#[allow(clippy::unnecessary_cast, reason = "the control length is a u32 in some C libraries")]
pub fn receive_error(socket: impl AsFd) -> Result<QueuedError, Errno> {
    loop {
        let mut address = RawAddress::EMPTY;
        let mut control = Control::EMPTY;
        // The failed datagram itself is of no use here, so there is no room for it and the call
        // cuts it off.
        let mut header = incoming(&mut address, &mut control);
        // SAFETY: the header points at the rooms of `address` and `control`, which live through the
        // call, with their lengths; there is no payload vector.
        let received = unsafe {
            libc::recvmsg(
                socket.as_fd().as_raw_fd(),
                &raw mut header,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            )
        };
        if received < 0 {
            return Err(last_errno());
        }
        address.set_length(header.msg_namelen);
        control.set_length(header.msg_controllen as usize);
        if let Some(error) = address.ip().and_then(|to| parse_error(to, &control)) {
            return Ok(error);
        }
    }
}

/// Reads `struct sock_extended_err` and the address after it:
/// errno u32, origin u8, type u8, code u8, pad u8, info u32, data u32, offender's sockaddr.
fn parse_error(to: IpAddr, control: &Control) -> Option<QueuedError> {
    let message = control.messages().find(|message| {
        matches!(
            (message.level, message.kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        )
    })?;
    let errno = i32::from_ne_bytes(*message.data.first_chunk()?);
    let &[origin, icmp_type, icmp_code] = message.data.get(4..7)?.first_chunk()?;
    let info = u32::from_ne_bytes(*message.data.get(8..)?.first_chunk()?);
    let offender = message.data.get(16..).and_then(RawAddress::parse).map(|address| address.ip());
    Some(QueuedError {
        to,
        errno: Errno::from_raw_os_error(errno),
        origin,
        icmp_type,
        icmp_code,
        info,
        offender,
    })
}

#[cfg(test)]
mod tests;
