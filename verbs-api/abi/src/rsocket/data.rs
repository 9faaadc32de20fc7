//! Data transfer through rsockets, and mapped memory.

use std::ffi::{c_int, c_void};
use std::slice;

use libc::{iovec, msghdr, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;
use urxe_rsocket::{MapRequest, Result, ScatterList};
use urxe_stack::allocate;
use urxe_stack::memory::Memory;

use super::{address_from_c, return_value, return_zero, to_ssize, write_address};

/// Maximum number of pieces of a message (`IOV_MAX`).
const MOST_PIECES: usize = 1024;
/// Maximum length of a slice. Some programs pass `SIZE_MAX` for "as many as there are".
const LONGEST: usize = isize::MAX as usize;

/// Returns the pieces of a program's message.
///
/// # Safety
/// The ABI's contract: each piece names memory of the program that stays valid during the call.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<Vec<&'a [u8]>> {
    // SAFETY: the caller's.
    let each = unsafe { vectors(iov, count) }?.iter();
    // SAFETY: as above.
    let each = each.map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) });
    allocate::collected(each).map_err(|_| Errno::NOMEM)
}

/// Returns the program's buffers for received data.
///
/// # Safety
/// As [`pieces`]; no other thread uses the memory during the call.
unsafe fn places<'a>(iov: *const iovec, count: usize) -> Result<ScatterList<'a>> {
    // SAFETY: the caller's.
    let each = unsafe { vectors(iov, count) }?.iter();
    // SAFETY: as above.
    let each = each.map(|place| unsafe { room(place.iov_base, place.iov_len) });
    Ok(ScatterList::new(allocate::collected(each).map_err(|_| Errno::NOMEM)?))
}

/// Returns an array of `iovec`. Fails with EINVAL if the sum of the lengths exceeds `ssize_t`, as
/// readv(2) does.
///
/// # Safety
/// The ABI's contract: `count` entries are at `iov`.
unsafe fn vectors<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count > MOST_PIECES {
        return Err(Errno::INVAL);
    }
    if count == 0 || iov.is_null() {
        return Ok(&[]);
    }
    // SAFETY: the caller's.
    let vectors = unsafe { slice::from_raw_parts(iov, count) };
    let mut lengths = vectors.iter().map(|piece| piece.iov_len.min(LONGEST));
    let sum = lengths.try_fold(0, |sum: usize, len| sum.checked_add(len));
    sum.filter(|sum| *sum <= LONGEST).map(|_| vectors).ok_or(Errno::INVAL)
}

/// # Safety
/// The ABI's contract.
pub(super) unsafe fn bytes<'a>(addr: *const c_void, len: usize) -> &'a [u8] {
    if addr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(addr.cast(), len.min(LONGEST)) }
}

/// # Safety
/// The ABI's contract.
unsafe fn room<'a>(addr: *mut c_void, len: usize) -> &'a mut [u8] {
    if addr.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts_mut(addr.cast(), len.min(LONGEST)) }
}

/// `rrecv`
pub unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the ABI's contract.
    let mut places = ScatterList::new(vec![unsafe { room(buf, len) }]);
    return_value("rrecv", || Ok(to_ssize(urxe_rsocket::receive(fd, &mut places, flags)?.0)))
}

/// `rrecvfrom`
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the ABI's contract.
    let mut places = ScatterList::new(vec![unsafe { room(buf, len) }]);
    return_value("rrecvfrom", || {
        let (got, from) = urxe_rsocket::receive(fd, &mut places, flags)?;
        if let Some(from) = from
            && !addr.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { write_address(from, addr, addr_len) };
        }
        Ok(to_ssize(got))
    })
}

/// `rrecvmsg`
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    return_value("rrecvmsg", || {
        // SAFETY: the ABI's contract.
        let msg = unsafe { msg.as_mut() }.ok_or(Errno::FAULT)?;
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the ABI's contract.
        let mut places = unsafe { places(msg.msg_iov, msg.msg_iovlen) }?;
        let (got, from) = urxe_rsocket::receive(fd, &mut places, flags)?;
        if let Some(from) = from
            && !msg.msg_name.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { write_address(from, msg.msg_name.cast(), &raw mut msg.msg_namelen) };
        }
        msg.msg_flags = 0;
        Ok(to_ssize(got))
    })
}

/// `rread`
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: the ABI's contract.
    unsafe { recv(fd, buf, count, 0) }
}

/// `rreadv`
pub unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    return_value("rreadv", || {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: the ABI's contract.
        let mut places = unsafe { places(iov, count) }?;
        Ok(to_ssize(urxe_rsocket::receive(fd, &mut places, 0)?.0))
    })
}

/// `rsend`
pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the ABI's contract.
    let piece = [unsafe { bytes(buf, len) }];
    return_value("rsend", || urxe_rsocket::send(fd, &piece, flags, None).map(to_ssize))
}

/// `rsendto`
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: the ABI's contract.
    let piece = [unsafe { bytes(buf, len) }];
    return_value("rsendto", || {
        let to = match addr.is_null() {
            true => None,
            // SAFETY: the ABI's contract.
            false => Some(unsafe { address_from_c(addr, addr_len) }?),
        };
        urxe_rsocket::send(fd, &piece, flags, to).map(to_ssize)
    })
}

/// `rsendmsg`
pub unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    return_value("rsendmsg", || {
        // SAFETY: the ABI's contract.
        let msg = unsafe { msg.as_ref() }.ok_or(Errno::FAULT)?;
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the ABI's contract, for both.
        let (pieces, to) = unsafe {
            let has_address = urxe_rsocket::is_datagram(fd)? && !msg.msg_name.is_null();
            let to = match has_address {
                true => Some(address_from_c(msg.msg_name.cast(), msg.msg_namelen)?),
                false => None,
            };
            (pieces(msg.msg_iov, msg.msg_iovlen)?, to)
        };
        urxe_rsocket::send(fd, &pieces, flags, to).map(to_ssize)
    })
}

/// `rwrite`
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, count: usize) -> ssize_t {
    // SAFETY: the ABI's contract.
    unsafe { send(fd, buf, count, 0) }
}

/// `rwritev`
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    return_value("rwritev", || {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: the ABI's contract.
        urxe_rsocket::send(fd, &unsafe { pieces(iov, count) }?, 0, None).map(to_ssize)
    })
}

/// `riomap`
pub unsafe extern "C" fn iomap(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: i64,
) -> i64 {
    return_value("riomap", || {
        let addr = buf.expose_provenance() as u64;
        let offset = (offset != -1).then(|| offset.cast_unsigned());
        let register = |memory: &Memory, pd, access| {
            // SAFETY: the ABI's contract: the program keeps the memory until it unmaps it or closes
            // the socket.
            unsafe { memory.register(pd, buf.cast(), len, addr, access) }
        };
        let mapped = urxe_rsocket::map(fd, &MapRequest { addr, len, prot, offset }, register)?;
        Ok(mapped.cast_signed())
    })
}

/// `riounmap`
pub unsafe extern "C" fn iounmap(fd: c_int, buf: *mut c_void, len: usize) -> c_int {
    return_zero("riounmap", || urxe_rsocket::unmap(fd, buf.addr() as u64, len))
}

/// `riowrite`
pub unsafe extern "C" fn iowrite(
    fd: c_int,
    buf: *const c_void,
    count: usize,
    offset: i64,
    flags: c_int,
) -> usize {
    // SAFETY: the ABI's contract.
    let piece = unsafe { bytes(buf, count) };
    return_value("riowrite", || {
        urxe_rsocket::write_mapped(fd, piece, offset.cast_unsigned(), flags)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_all_memory_is_no_fault() {
        let mut buffer = [0_u8; 8];
        let at: *mut c_void = buffer.as_mut_ptr().cast();
        let iov = iovec { iov_base: at, iov_len: usize::MAX };
        // SAFETY: there is no such socket, so no byte is read or written.
        let results = unsafe {
            [
                recv(-1, at, usize::MAX, 0),
                send(-1, at, usize::MAX, 0),
                readv(-1, &raw const iov, 1),
                writev(-1, &raw const iov, 1),
            ]
        };
        assert_eq!(results, [-1; 4]);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
