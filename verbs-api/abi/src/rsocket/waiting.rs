//! Waiting for several rsockets.

use std::ffi::c_int;
use std::slice;
use std::time::Duration;

use libc::{nfds_t, pollfd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::return_value;
use crate::ffi::catch_panic;

/// Maximum number of descriptors of a process without a limit (`/proc/sys/fs/nr_open`).
const MOST_FDS: nfds_t = 1 << 20;

/// `rpoll`
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    return_value("rpoll", || {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let fds = match count {
            0 => &mut [],
            // As poll(2). A larger number is no array in memory.
            _ if count > getrlimit(Resource::Nofile).current.unwrap_or(MOST_FDS) => {
                return Err(Errno::INVAL);
            }
            _ if fds.is_null() => return Err(Errno::FAULT),
            // SAFETY: the ABI's contract: `count` entries are there, and no other thread uses them
            // during the call.
            _ => unsafe { slice::from_raw_parts_mut(fds, count as usize) },
        };
        Ok(urxe_rsocket::poll(fds, timeout)? as c_int)
    })
}

/// `rselect`
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    return_value("rselect", || {
        let count = usize::try_from(count).ok().filter(|count| *count <= libc::FD_SETSIZE);
        let sets = [(read, libc::POLLIN), (write, libc::POLLOUT), (except, libc::POLLPRI)];
        let mut fds = Vec::new();
        for fd in 0..count.ok_or(Errno::INVAL)? as c_int {
            // SAFETY: the ABI's contract: NULL or a set.
            let asked = sets
                .iter()
                .filter(|(set, _)| !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) });
            let mut asked = asked.peekable();
            if asked.peek().is_some() {
                fds.push(pollfd { fd, events: asked.map(|(_, event)| *event).sum(), revents: 0 });
            }
        }
        // SAFETY: the ABI's contract: NULL or a time.
        let timeout = unsafe { timeout.as_ref() }.map(|time| {
            let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
            seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        });
        urxe_rsocket::poll(&mut fds, timeout)?;
        let says = [
            (read, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
            (write, libc::POLLOUT | libc::POLLERR),
            (except, libc::POLLPRI | libc::POLLNVAL),
        ];
        let mut ready = 0;
        for ((set, says), (_, asks)) in
            says.into_iter().zip(sets).filter(|((set, _), _)| !set.is_null())
        {
            // SAFETY: the ABI's contract: a set.
            unsafe { libc::FD_ZERO(set) };
            for fd in fds.iter().filter(|fd| fd.events & asks != 0 && fd.revents & says != 0) {
                // SAFETY: as above; the number was found in a set.
                unsafe { libc::FD_SET(fd.fd, set) };
                ready += 1;
            }
        }
        Ok(ready)
    })
}

/// `repoll_create`; the flags have no effect.
pub extern "C" fn epoll_create(_flags: c_int) -> c_int {
    return_value("repoll_create", urxe_rsocket::epoll_create)
}

/// `repoll_ctl`: returns 0 or the error number, as the original does.
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    catch_panic(libc::EIO, || {
        // SAFETY: the ABI's contract: NULL or an event, which may be unaligned.
        let event = if event.is_null() { None } else { Some(unsafe { event.read_unaligned() }) };
        let done = urxe_rsocket::epoll_control(set, op, fd, event);
        done.map_or_else(Errno::raw_os_error, |()| 0)
    })
}

/// `repoll_wait`: returns the number of events, or -1 with `errno` set. The original returns the
/// error number, which callers cannot distinguish from a number of events.
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    return_value("repoll_wait", || {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        if events.is_null() {
            return Err(Errno::FAULT);
        }
        let found = urxe_rsocket::epoll_wait(set, most, timeout)?;
        // SAFETY: the ABI's contract: so many places, which may be unaligned.
        unsafe {
            found.iter().enumerate().for_each(|(at, event)| events.add(at).write_unaligned(*event))
        };
        Ok(found.len() as c_int)
    })
}
