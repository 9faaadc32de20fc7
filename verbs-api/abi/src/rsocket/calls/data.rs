//! What goes through sockets, and mapped memory.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::slice;

use libc::{iovec, msghdr, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use super::{given, put_address, stream};
use crate::pd::PdObject;
use crate::rsocket::answer::{Result, answer, errno, length};
use crate::rsocket::iomap::Wanted;
use crate::rsocket::link::Wait;
use crate::rsocket::table::{self, Socket};
use crate::rsocket::transfer::{Pieces, Places};

/// Pieces of a message at most, as everywhere (`IOV_MAX`).
const MOST_PIECES: usize = 1024;

/// A program's pieces.
///
/// # Safety
/// The ABI's contract: each names memory that is the program's during the call.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<Vec<&'a [u8]>> {
    // SAFETY: the caller's.
    let each = unsafe { vectors(iov, count) }?.iter();
    // SAFETY: as above.
    Ok(each.map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) }).collect())
}

/// Where a program wants what it receives.
///
/// # Safety
/// As [`pieces`]; nobody else uses the memory during the call.
unsafe fn places<'a>(iov: *const iovec, count: usize) -> Result<Places<'a>> {
    // SAFETY: the caller's.
    let each = unsafe { vectors(iov, count) }?.iter();
    // SAFETY: as above.
    Ok(Places::new(each.map(|place| unsafe { room(place.iov_base, place.iov_len) }).collect()))
}

/// # Safety
/// The ABI's contract: so many are there.
unsafe fn vectors<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count > MOST_PIECES {
        return Err(Errno::INVAL);
    }
    if count == 0 || iov.is_null() {
        return Ok(&[]);
    }
    // SAFETY: the caller's.
    Ok(unsafe { slice::from_raw_parts(iov, count) })
}

/// # Safety
/// The ABI's contract.
pub(super) unsafe fn bytes<'a>(addr: *const c_void, len: usize) -> &'a [u8] {
    if addr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(addr.cast(), len) }
}

/// # Safety
/// The ABI's contract.
unsafe fn room<'a>(addr: *mut c_void, len: usize) -> &'a mut [u8] {
    if addr.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts_mut(addr.cast(), len) }
}

fn receive_into(
    fd: c_int,
    places: &mut Places<'_>,
    flags: c_int,
) -> Result<(usize, Option<SocketAddr>)> {
    let peeks = flags & libc::MSG_PEEK != 0;
    match table::socket(fd)? {
        Socket::Datagram(datagram) => {
            let (len, from) = datagram.receive(places, datagram.wait(flags), peeks)?;
            Ok((len, Some(from)))
        }
        Socket::Stream(stream) => {
            let wait = stream.wait(flags);
            let link = stream.connected(wait)?;
            let got = link.receive(places, wait, peeks, flags & libc::MSG_WAITALL != 0)?;
            let peer = if got > 0 { stream.addresses()?.1 } else { None };
            Ok((got, peer))
        }
    }
}

/// `rrecv`
pub unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the ABI's contract.
    let mut places = Places::new(vec![unsafe { room(buf, len) }]);
    answer("rrecv", || Ok(length(receive_into(fd, &mut places, flags)?.0)))
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
    let mut places = Places::new(vec![unsafe { room(buf, len) }]);
    answer("rrecvfrom", || {
        let (got, from) = receive_into(fd, &mut places, flags)?;
        if let Some(from) = from
            && !addr.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { put_address(from, addr, addr_len) };
        }
        Ok(length(got))
    })
}

/// `rrecvmsg`
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    answer("rrecvmsg", || {
        // SAFETY: the ABI's contract.
        let msg = unsafe { msg.as_mut() }.ok_or(Errno::FAULT)?;
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the ABI's contract.
        let mut places = unsafe { places(msg.msg_iov, msg.msg_iovlen) }?;
        let (got, from) = receive_into(fd, &mut places, flags)?;
        if let Some(from) = from
            && !msg.msg_name.is_null()
        {
            // SAFETY: the ABI's contract.
            unsafe { put_address(from, msg.msg_name.cast(), &raw mut msg.msg_namelen) };
        }
        msg.msg_flags = 0;
        Ok(length(got))
    })
}

/// `rread`
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: the ABI's contract.
    unsafe { recv(fd, buf, count, 0) }
}

/// `rreadv`
pub unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    answer("rreadv", || {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: the ABI's contract.
        let mut places = unsafe { places(iov, count) }?;
        Ok(length(receive_into(fd, &mut places, 0)?.0))
    })
}

fn send_from(fd: c_int, pieces: &[&[u8]], flags: c_int, to: Option<SocketAddr>) -> Result<ssize_t> {
    let pieces = Pieces::new(pieces);
    let sent = match table::socket(fd)? {
        Socket::Stream(_) if to.is_some() => return Err(Errno::ISCONN),
        Socket::Stream(stream) => {
            let wait = stream.wait(flags);
            stream.connected(wait)?.send(&pieces, wait)?
        }
        Socket::Datagram(datagram) => datagram.send(&pieces, to, datagram.wait(flags))?,
    };
    Ok(length(sent))
}

/// `rsend`
pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: the ABI's contract.
    let piece = [unsafe { bytes(buf, len) }];
    answer("rsend", || send_from(fd, &piece, flags, None))
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
    answer("rsendto", || {
        // SAFETY: the ABI's contract.
        let to = if addr.is_null() { None } else { Some(unsafe { given(addr, addr_len) }?) };
        send_from(fd, &piece, flags, to)
    })
}

/// `rsendmsg`
pub unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    answer("rsendmsg", || {
        // SAFETY: the ABI's contract.
        let msg = unsafe { msg.as_ref() }.ok_or(Errno::FAULT)?;
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the ABI's contract, for both.
        let (pieces, to) = unsafe {
            let to = match table::socket(fd)? {
                Socket::Datagram(_) if !msg.msg_name.is_null() => {
                    Some(given(msg.msg_name.cast(), msg.msg_namelen)?)
                }
                _ => None,
            };
            (pieces(msg.msg_iov, msg.msg_iovlen)?, to)
        };
        send_from(fd, &pieces, flags, to)
    })
}

/// `rwrite`
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, count: usize) -> ssize_t {
    // SAFETY: the ABI's contract.
    unsafe { send(fd, buf, count, 0) }
}

/// `rwritev`
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    answer("rwritev", || {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: the ABI's contract.
        send_from(fd, &unsafe { pieces(iov, count) }?, 0, None)
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
    answer("riomap", || {
        let stream = stream(fd)?;
        let is_remote = Wanted::is_remote(prot)?;
        let link = stream.connected(Wait::Here)?;
        // SAFETY: a connected identifier has a domain, which stays.
        let (pd, _) = unsafe { PdObject::from_c((*stream.id.0).pd) }.map_err(errno)?;
        let offset = (offset != -1).then(|| offset.cast_unsigned());
        let wanted = Wanted { addr: buf.expose_provenance() as u64, len, is_remote, offset };
        // SAFETY: the ABI's contract: the program keeps the memory until it unmaps it or closes the
        // socket.
        Ok(unsafe { link.map(pd.memory, &wanted) }?.cast_signed())
    })
}

/// `riounmap`
pub unsafe extern "C" fn iounmap(fd: c_int, buf: *mut c_void, len: usize) -> c_int {
    answer("riounmap", || {
        let stream = stream(fd)?;
        stream.connected(Wait::Never)?.unmap(buf.addr() as u64, len)?;
        Ok(0)
    })
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
    let piece = [unsafe { bytes(buf, count) }];
    answer("riowrite", || {
        let stream = stream(fd)?;
        let wait = stream.wait(flags);
        stream.connected(wait)?.write_mapped(&Pieces::new(&piece), offset.cast_unsigned(), wait)
    })
}
