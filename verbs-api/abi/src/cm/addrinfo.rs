//! `rdma_getaddrinfo`: the system's `getaddrinfo` with port spaces and queue pair types.

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr;

use rustix::io::Errno;
use urxe_stack::qp::attr::QpType;
use urxe_wire::mad::PortSpace;

use crate::ffi::{catch_panic, set_errno};
use crate::layout::rdma_addrinfo;

/// `RAI_PASSIVE`
pub const PASSIVE: c_int = 1;
/// `RAI_NUMERICHOST`
pub const NUMERIC_HOST: c_int = 2;
/// `RAI_SA`, `RAI_DNS`: the sources of an address resolution.
pub const SERVICE_RECORDS: c_int = 0x10;
pub const DNS: c_int = 0x20;

fn stream(qp_type: c_int) -> Option<c_int> {
    match QpType::from_number(qp_type.cast_unsigned())? {
        QpType::Ud => Some(libc::SOCK_DGRAM),
        _ => Some(libc::SOCK_STREAM),
    }
}

fn is_space(number: c_int, space: PortSpace) -> bool {
    number == c_int::from(space.0)
}

/// Converts the hints for the system's resolver.
fn system_hints(hints: &rdma_addrinfo) -> libc::addrinfo {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut system: libc::addrinfo = unsafe { zeroed() };
    if hints.ai_flags & PASSIVE != 0 {
        system.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & NUMERIC_HOST != 0 {
        system.ai_flags |= libc::AI_NUMERICHOST;
    }
    system.ai_family = hints.ai_family;
    system.ai_socktype = stream(hints.ai_qp_type).unwrap_or(0);
    let space = hints.ai_port_space;
    system.ai_protocol = if is_space(space, PortSpace::TCP) {
        libc::IPPROTO_TCP
    } else if is_space(space, PortSpace::UDP) || is_space(space, PortSpace::IPOIB) {
        libc::IPPROTO_UDP
    } else {
        match system.ai_socktype {
            libc::SOCK_STREAM if is_space(space, PortSpace::IB) => libc::IPPROTO_TCP,
            libc::SOCK_DGRAM if is_space(space, PortSpace::IB) => libc::IPPROTO_UDP,
            _ => 0,
        }
    };
    system
}

/// Copies an address into memory from `malloc`, as the original does.
///
/// # Safety
/// `len` bytes are at `from`.
unsafe fn copy(from: *const libc::sockaddr, len: libc::socklen_t) -> *mut libc::sockaddr {
    // SAFETY: allocates; the result is checked; the caller's.
    unsafe {
        let place = libc::malloc(len as usize);
        if !place.is_null() {
            ptr::copy_nonoverlapping(from.cast::<u8>(), place.cast::<u8>(), len as usize);
        }
        place.cast()
    }
}

/// Fills in the result of the resolver.
///
/// # Safety
/// The ABI's contract; `found` came from the resolver.
unsafe fn fill(
    made: &mut rdma_addrinfo,
    hints: &rdma_addrinfo,
    found: &libc::addrinfo,
    is_passive: bool,
) {
    made.ai_qp_type = match (hints.ai_qp_type, found.ai_socktype) {
        (0, libc::SOCK_DGRAM) => QpType::Ud.number().into(),
        (0, libc::SOCK_STREAM) => QpType::Rc.number().into(),
        (asked, _) => asked,
    };
    made.ai_port_space = match (hints.ai_port_space, found.ai_protocol) {
        (0, libc::IPPROTO_TCP) => PortSpace::TCP.0.into(),
        (0, libc::IPPROTO_UDP) => PortSpace::UDP.0.into(),
        (asked, _) => asked,
    };
    made.ai_family = found.ai_family;
    // SAFETY: the resolver's result is whole.
    unsafe {
        let address = copy(found.ai_addr, found.ai_addrlen);
        let name = match found.ai_canonname {
            name if name.is_null() => ptr::null_mut(),
            name => libc::strdup(name),
        };
        if is_passive {
            made.ai_flags = PASSIVE;
            (made.ai_src_addr, made.ai_src_len, made.ai_src_canonname) =
                (address, found.ai_addrlen, name);
        } else {
            (made.ai_dst_addr, made.ai_dst_len, made.ai_dst_canonname) =
                (address, found.ai_addrlen, name);
        }
    }
}

/// `rdma_getaddrinfo`: returns 0, an error of `getaddrinfo`, or -1.
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    catch_panic(-1, || {
        if res.is_null() || (node.is_null() && service.is_null() && hints.is_null()) {
            set_errno(Errno::INVAL.raw_os_error());
            return -1;
        }
        // SAFETY: the ABI's contract, for all that the arguments point to.
        unsafe {
            // SAFETY: integers and pointers, for which zero is valid.
            let nothing: rdma_addrinfo = zeroed();
            let given = hints.as_ref();
            let hints = given.unwrap_or(&nothing);
            // `freeaddrinfo` frees this memory, so it comes from calloc.
            let made = libc::calloc(1, size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
            let Some(info) = made.as_mut() else { return -1 };
            if node.is_null() && service.is_null() {
                info.ai_flags = hints.ai_flags;
                info.ai_family = hints.ai_family;
                info.ai_qp_type = hints.ai_qp_type;
                info.ai_port_space = hints.ai_port_space;
                if hints.ai_dst_len > 0 {
                    info.ai_dst_addr = copy(hints.ai_dst_addr, hints.ai_dst_len);
                    info.ai_dst_len = hints.ai_dst_len;
                }
            } else {
                let asked = given.map(system_hints);
                let asked_c = asked.as_ref().map_or(ptr::null(), ptr::from_ref);
                let mut found = ptr::null_mut();
                let failed = libc::getaddrinfo(node, service, asked_c, &mut found);
                if failed != 0 {
                    freeaddrinfo(made);
                    return failed;
                }
                fill(info, hints, &*found, hints.ai_flags & PASSIVE != 0);
                libc::freeaddrinfo(found);
            }
            if info.ai_src_len == 0 && hints.ai_src_len > 0 {
                info.ai_src_addr = copy(hints.ai_src_addr, hints.ai_src_len);
                info.ai_src_len = hints.ai_src_len;
            }
            res.write(made);
        }
        0
    })
}

/// `rdma_freeaddrinfo`
pub unsafe extern "C" fn freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    // SAFETY: the ABI's contract: a list that `getaddrinfo` made; NULL is nothing to free.
    unsafe {
        while let Some(info) = next.as_ref() {
            let this = next;
            next = info.ai_next;
            for part in [info.ai_connect, info.ai_route] {
                libc::free(part);
            }
            for part in [info.ai_src_canonname, info.ai_dst_canonname] {
                libc::free(part.cast::<c_void>());
            }
            for part in [info.ai_src_addr, info.ai_dst_addr] {
                libc::free(part.cast::<c_void>());
            }
            libc::free(this.cast::<c_void>());
        }
    }
}
