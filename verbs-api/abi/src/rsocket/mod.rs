//! The C functions of rsockets. They convert arguments and results, and call [`urxe_rsocket`].

mod data;
mod sockets;
mod waiting;

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::{ptr, slice};

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;
use urxe_rsocket::{Device, Result};
use urxe_stack::driver::Connections;
use urxe_stack::sys::address::RawAddress;

pub use self::data::{
    iomap, iounmap, iowrite, read, readv, recv, recvfrom, recvmsg, send, sendmsg, sendto, write,
    writev,
};
pub use self::sockets::{
    accept, bind, close, connect, fcntl, getpeername, getsockname, getsockopt, listen, setsockopt,
    shutdown, socket,
};
pub use self::waiting::{epoll_create, epoll_ctl, epoll_wait, poll, select};
use crate::cm::process;
use crate::ffi::{catch_panic, set_errno};

/// The process behind rsockets, which use the connections and the devices of librdmacm.
#[derive(Debug)]
struct Process;

impl urxe_rsocket::Process for Process {
    fn connections(&self) -> &'static Arc<Connections> {
        process::connections()
    }

    fn devices(&self) -> Result<Vec<Device>> {
        let open = process::open_devices().map_err(|error| {
            tracing::info!(target: "urxe_abi", "rsocket: {error}");
            Errno::from_raw_os_error(error.errno())
        })?;
        Ok(open.iter().map(process::CmDevice::for_rsockets).collect())
    }
}

/// Converts an address of `len` bytes from C.
///
/// # Safety
/// The ABI's contract.
unsafe fn address_from_c(addr: *const sockaddr, len: socklen_t) -> Result<SocketAddr> {
    if addr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the ABI's contract.
    let bytes = unsafe { slice::from_raw_parts(addr.cast::<u8>(), len as usize) };
    RawAddress::parse(bytes).ok_or(Errno::INVAL)
}

/// Stores an address, truncated to the room that `len` states, and stores the address length in
/// `len`.
///
/// # Safety
/// The ABI's contract: `len` is NULL, or holds the number of bytes at `addr`.
unsafe fn write_address(address: SocketAddr, addr: *mut sockaddr, len: *mut socklen_t) {
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

/// A C result type with one value that means that `errno` was set.
trait CResult: Copy {
    const FAILED: Self;
}

impl CResult for c_int {
    const FAILED: Self = -1;
}

impl CResult for isize {
    const FAILED: Self = -1;
}

impl CResult for i64 {
    const FAILED: Self = -1;
}

impl CResult for usize {
    const FAILED: Self = Self::MAX;
}

/// Runs a call. Errors are logged at `debug`, because a call that would block is no fault.
fn return_value<T: CResult>(call: &'static str, run: impl FnOnce() -> Result<T>) -> T {
    catch_panic(T::FAILED, || match run() {
        Ok(value) => value,
        Err(errno) => {
            tracing::debug!(target: "urxe_abi", %errno, "{call}");
            set_errno(errno.raw_os_error());
            T::FAILED
        }
    })
}

/// Runs a call whose C result is 0.
fn return_zero(call: &'static str, run: impl FnOnce() -> Result<()>) -> c_int {
    return_value(call, || run().map(|()| 0))
}

/// Converts a length to C; no buffer in memory is longer than the maximum.
fn to_ssize(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
