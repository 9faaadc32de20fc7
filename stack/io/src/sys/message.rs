//! Sends and receives datagrams with control messages, one or several a call, and reads the error
//! queue.
//!
//! Every function returns at once (`MSG_DONTWAIT`), allocates nothing, and fails with the errno.
//! The calls of the data path skip the C library's wrappers, because those are cancellation points
//! (pthreads(7)). Verbs must not be cancellation points: a thread cancelled there would leave locks
//! behind.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;

use super::address::RawAddress;
use super::control::Control;
use super::last_errno;
use urxe_types::allocate::{self, OutOfMemory};

/// Bytes of the largest datagram, merged or not.
pub const DATAGRAM_CAPACITY: usize = 65_536;
/// The most datagrams that one call sends.
pub const SEND_BATCH: usize = 64;
/// The most datagrams that one call receives.
pub const RECEIVE_BATCH: usize = 8;

/// Returns an empty header. (Some C libraries have private padding there, which rules out a
/// literal.)
fn blank_header() -> libc::msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns the header of a message to send, which points at the arguments and is valid only as long
/// as they are.
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

/// Returns the header of a message to receive, without a buffer for a payload. The header points at
/// the buffers of the arguments, and is valid only as long as they are.
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

/// Sends one datagram, or several if `control` has `UDP_SEGMENT` (sendmsg(2)).
///
/// # Errors
/// Those of sendmsg(2); once also the error of an earlier datagram.
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

/// Sends each of `payloads`, at most [`SEND_BATCH`], as its own datagram (sendmmsg(2)). Returns how
/// many were taken, at least one unless there are none.
///
/// # Errors
/// As [`send`], if the first was not taken.
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

/// A buffer for one received datagram, its sender and its control messages.
#[derive(Debug)]
pub struct ReceiveSlot {
    /// The payload received last, with room for [`DATAGRAM_CAPACITY`] bytes. Room that no datagram
    /// has used takes no memory.
    data: Vec<u8>,
    address: RawAddress,
    control: Control,
    flags: libc::c_int,
}

impl ReceiveSlot {
    /// Makes an empty buffer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<Self, OutOfMemory> {
        Self::with_capacity(DATAGRAM_CAPACITY)
    }

    fn with_capacity(capacity: usize) -> Result<Self, OutOfMemory> {
        Ok(Self {
            data: allocate::vec(capacity)?,
            address: RawAddress::EMPTY,
            control: Control::EMPTY,
            flags: 0,
        })
    }

    /// Returns the payload received last.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.data
    }

    /// Returns the sender, if the kernel gave an IP address.
    #[must_use]
    pub fn from(&self) -> Option<SocketAddr> {
        self.address.socket_address()
    }

    /// Returns the control messages.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns whether the payload or the control messages were truncated.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }

    /// Returns the header of a message to receive here, which points at this slot's buffers and at
    /// `vector`, and is valid only as long as they are.
    fn incoming(&mut self, vector: &mut libc::iovec) -> libc::msghdr {
        self.data.clear();
        let iov_base = self.data.as_mut_ptr().cast();
        *vector = libc::iovec { iov_base, iov_len: self.data.capacity() };
        let mut header = incoming(&mut self.address, &mut self.control);
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header
    }

    /// Records the lengths and flags that the kernel wrote to the header of
    /// [`incoming`](Self::incoming).
    ///
    /// # Safety
    /// The kernel has written `length` bytes to the buffer of that header, or filled the buffer.
    #[allow(clippy::unnecessary_cast, reason = "the control length is a u32 in some C libraries")]
    unsafe fn note(&mut self, header: &libc::msghdr, length: usize) {
        let length = length.min(self.data.capacity());
        // SAFETY: the length is at most the capacity, and the kernel has written these bytes.
        unsafe { self.data.set_len(length) };
        self.address.set_length(header.msg_namelen);
        self.control.set_length(header.msg_controllen as usize);
        self.flags = header.msg_flags;
    }
}

/// Receives waiting datagrams into the first of `slots`, at most [`RECEIVE_BATCH`]. Uses recvmsg(2)
/// for one slot, which costs less if one datagram or none waits, and recvmmsg(2) for several.
/// Returns their number.
///
/// # Errors
/// `EAGAIN` if none waits; once the error of an earlier datagram; those of the call.
pub fn receive(socket: impl AsFd, slots: &mut [ReceiveSlot]) -> Result<usize, Errno> {
    match slots {
        [slot] => receive_one(socket, slot).map(|()| 1),
        slots => receive_many(socket, slots),
    }
}

fn receive_one(socket: impl AsFd, slot: &mut ReceiveSlot) -> Result<(), Errno> {
    let mut vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let mut header = slot.incoming(&mut vector);
    // SAFETY: the header points at a vector that lives through the call and at the buffers of the
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
    // SAFETY: the call returned the number of bytes that it wrote to the buffer of the header.
    unsafe { slot.note(&header, length) };
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
    // buffers of as many distinct slots, exclusively borrowed through the call, with their lengths;
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
        // SAFETY: the call filled this header, and set `msg_len` to the number of bytes that it
        // wrote to the buffer of the header.
        unsafe { slot.note(&header.msg_hdr, header.msg_len as usize) };
    }
    Ok(received)
}

/// One entry of a socket's error queue (`struct sock_extended_err`, ip(7), IP_RECVERR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// The destination of the failed datagram.
    pub to: IpAddr,
    /// The kernel's error number.
    pub errno: Errno,
    /// The origin: `SO_EE_ORIGIN_LOCAL`, `SO_EE_ORIGIN_ICMP` or `SO_EE_ORIGIN_ICMP6`.
    pub origin: u8,
    /// The ICMP type.
    pub icmp_type: u8,
    /// The ICMP code.
    pub icmp_code: u8,
    /// The path's MTU in bytes, for `EMSGSIZE`.
    pub info: u32,
    /// The host that sent the ICMP message.
    pub offender: Option<IpAddr>,
}

/// Takes one entry from the error queue. Skips entries without an IP address or an error.
///
/// # Errors
/// `EAGAIN` if the queue is empty, and those of recvmsg(2).
#[allow(clippy::unnecessary_cast, reason = "the control length is a u32 in some C libraries")]
pub fn receive_error(socket: impl AsFd) -> Result<QueuedError, Errno> {
    loop {
        let mut address = RawAddress::EMPTY;
        let mut control = Control::EMPTY;
        // No buffer for the failed datagram, which is not needed; the kernel truncates the
        // datagram.
        let mut header = incoming(&mut address, &mut control);
        // SAFETY: the header points at the buffers of `address` and `control`, which live through
        // the call, with their lengths; there is no payload vector.
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

/// Parses `struct sock_extended_err` and the address after it: errno u32, origin u8, type u8, code
/// u8, pad u8, info u32, data u32, offender's sockaddr.
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
