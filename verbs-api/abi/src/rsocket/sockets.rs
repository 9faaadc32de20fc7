//! Creation, addresses, options, flags and closing of rsockets.

use std::ffi::{c_int, c_long, c_void};
use std::net::Shutdown;
use std::ptr;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;
use urxe_rsocket::{Result, SOL_RDMA};

use super::data::bytes;
use super::{Process, address_from_c, return_value, return_zero, write_address};
use crate::environment;

/// `rsocket`
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    environment::start_logging();
    return_value("rsocket", || urxe_rsocket::socket(&Process, domain, kind, protocol))
}

/// `rbind`
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the ABI's contract.
    return_zero("rbind", || urxe_rsocket::bind(fd, unsafe { address_from_c(addr, len) }?))
}

/// `rlisten`
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    return_zero("rlisten", || urxe_rsocket::listen(fd, backlog))
}

/// `raccept`
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    return_value("raccept", || {
        let (made, peer) = urxe_rsocket::accept(fd)?;
        if let Some(peer) = peer
            && !addr.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { write_address(peer, addr, len) };
        }
        Ok(made)
    })
}

/// `rconnect`
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the ABI's contract.
    return_zero("rconnect", || urxe_rsocket::connect(fd, unsafe { address_from_c(addr, len) }?))
}

/// `rshutdown`
pub extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    return_zero("rshutdown", || {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        urxe_rsocket::shutdown(fd, how)
    })
}

/// `rclose`
pub extern "C" fn close(fd: c_int) -> c_int {
    return_zero("rclose", || urxe_rsocket::close(fd))
}

/// `rgetpeername`
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    return_zero("rgetpeername", || {
        // SAFETY: the ABI's contract.
        unsafe { write_address(urxe_rsocket::peer_address(fd)?, addr, len) };
        Ok(())
    })
}

/// `rgetsockname`
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    return_zero("rgetsockname", || {
        // SAFETY: the ABI's contract.
        unsafe { write_address(urxe_rsocket::local_address(fd)?, addr, len) };
        Ok(())
    })
}

/// Returns whether the system handles an option, on the UDP socket of a SOCK_DGRAM.
fn is_of_system(fd: c_int, level: c_int) -> Result<bool> {
    Ok(urxe_rsocket::is_datagram(fd)? && level != SOL_RDMA)
}

/// Converts the result of a system call.
fn system(result: c_int) -> Result<()> {
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}

/// `rsetsockopt`
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    return_zero("rsetsockopt", || {
        if is_of_system(fd, level)? {
            // SAFETY: the ABI's contract.
            system(unsafe { libc::setsockopt(fd, level, name, value, len) })?;
        }
        // SAFETY: the ABI's contract.
        urxe_rsocket::set_option(fd, level, name, unsafe { bytes(value, len as usize) })
    })
}

/// `rgetsockopt`
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    return_zero("rgetsockopt", || {
        if is_of_system(fd, level)? {
            // SAFETY: the ABI's contract.
            return system(unsafe { libc::getsockopt(fd, level, name, value, len) });
        }
        let found = urxe_rsocket::get_option(fd, level, name)?;
        // SAFETY: the ABI's contract: `len` says how many bytes there are at `value`.
        unsafe {
            let room = len.as_mut().ok_or(Errno::FAULT)?;
            let fits = found.len().min(*room as usize);
            if !value.is_null() {
                ptr::copy_nonoverlapping(found.as_ptr(), value.cast::<u8>(), fits);
            }
            *room = fits as socklen_t;
        }
        Ok(())
    })
}

/// `rfcntl`. Only commands that take an argument read `argument`.
pub extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    return_value("rfcntl", || urxe_rsocket::fcntl(fd, command, argument))
}
