//! The C functions.

mod data;
mod opening;
mod options;
mod waiting;

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::{ptr, slice};

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;
use urxe_stack::sys::address::RawAddress;

pub use self::data::{
    iomap, iounmap, iowrite, read, readv, recv, recvfrom, recvmsg, send, sendmsg, sendto, write,
    writev,
};
pub use self::opening::{
    accept, bind, close, connect, getpeername, getsockname, listen, shutdown, socket,
};
pub use self::options::{fcntl, getsockopt, setsockopt};
pub use self::waiting::{epoll_create, epoll_ctl, epoll_wait, poll, select};
use super::answer::Result;
use super::stream::Stream;
use super::table::{self, Socket};

/// The address that a program gives; `len` bytes of it are there.
///
/// # Safety
/// The ABI's contract.
unsafe fn given(addr: *const sockaddr, len: socklen_t) -> Result<SocketAddr> {
    if addr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the ABI's contract.
    let bytes = unsafe { slice::from_raw_parts(addr.cast::<u8>(), len as usize) };
    RawAddress::parse(bytes).ok_or(Errno::INVAL)
}

/// Writes an address where a program wants it, as much as there is room for, and how long it is.
///
/// # Safety
/// The ABI's contract: `len` is NULL, or says how many bytes there are at `addr`.
unsafe fn put_address(address: SocketAddr, addr: *mut sockaddr, len: *mut socklen_t) {
    let raw = RawAddress::new(address);
    let bytes = raw.as_bytes();
    // SAFETY: the ABI's contract.
    unsafe {
        if len.is_null() {
            return;
        }
        if !addr.is_null() {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                addr.cast::<u8>(),
                bytes.len().min(*len as usize),
            );
        }
        *len = bytes.len() as socklen_t;
    }
}

/// Calls the system with a datagram socket's own descriptor.
fn system(result: c_int) -> Result<()> {
    if result < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        return Err(error.map_or(Errno::IO, Errno::from_raw_os_error));
    }
    Ok(())
}

fn stream(fd: c_int) -> Result<Arc<Stream>> {
    match table::socket(fd)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(Errno::OPNOTSUPP),
    }
}
