//! Address binding and resolution, and the address, device and route fields of an identifier.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;

use urxe_stack::driver::Host;
use urxe_stack::qp::attr::QpState;
use urxe_stack::sys::address::RawAddress;

use super::id::{self, IdObject};
use super::process::{self, connections, open_devices};
use crate::error::VerbError;
use crate::ffi;
use crate::gid;
use crate::layout::{ibv_sa_path_rec, rdma_cm_id};

/// The default partition.
const PKEY: u16 = 0xffff;
/// `IBV_PATH_RECORD` selector of an exact value.
const EXACT: u8 = 2;
/// `IBV_RATE_2_5_GBPS`, the lowest rate, which every link supports.
const RATE: u8 = 2;

/// Converts an address from C.
///
/// # Safety
/// The ABI's contract: `addr` is NULL, or an address of its family's length.
pub unsafe fn from_c(addr: *const libc::sockaddr) -> Result<SocketAddr, VerbError> {
    ffi::non_null(addr, "addr")?;
    // SAFETY: the ABI's contract: at least a family is there, wherever it is.
    let family = c_int::from(unsafe { (&raw const (*addr).sa_family).read_unaligned() });
    let allowed = "AF_INET and AF_INET6 are allowed";
    let unknown = VerbError::value("sa_family", family.unsigned_abs(), allowed);
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return Err(unknown),
    };
    // SAFETY: the ABI's contract: an address of that family is so long; bytes have no alignment.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len) };
    RawAddress::parse(bytes).ok_or(unknown)
}

/// Stores an address for the program.
///
/// # Safety
/// `to` is valid for a write of an address.
unsafe fn write_address(to: *mut libc::sockaddr_storage, address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    let raw = RawAddress::new(address);
    let bytes = raw.as_bytes();
    // SAFETY: a storage is longer than any address.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) };
}

/// Updates the address fields of an identifier and, once the identifier is bound, its device.
///
/// # Safety
/// The ABI's contract: no other thread changes the identifier.
pub unsafe fn update(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    let ((src, dst), (local, remote), device) = connections().inspect(|cma| {
        let device = cma.device_of(object.core);
        Ok::<_, VerbError>((cma.addresses(object.core)?, cma.gids(object.core)?, device))
    })?;
    let device = device.and_then(process::device);
    // SAFETY: the ABI's contract; the fields are plain data.
    unsafe {
        let addr = &raw mut (*id).route.addr;
        write_address(&raw mut (*addr).src_storage, src);
        write_address(&raw mut (*addr).dst_storage, dst);
        (*addr).ibaddr.sgid = gid::to_c(local);
        (*addr).ibaddr.dgid = gid::to_c(remote);
        if let Some(device) = device
            && (*id).verbs.is_null()
        {
            (*id).verbs = device.context;
            (*id).pd = device.pd;
            (*id).port_num = 1;
            (*addr).ibaddr.pkey = PKEY.to_be();
        }
    }
    Ok(())
}

/// Updates the route of an identifier: one path, allocated as by the original.
///
/// # Safety
/// As [`update`].
pub unsafe fn update_route(id: *mut rdma_cm_id) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let object = unsafe { IdObject::from_c(id) }?;
    let ((local, remote), mtu, (traffic_class, packet_life_time)) =
        connections().inspect(|cma| {
            Ok::<_, VerbError>((
                cma.gids(object.core)?,
                cma.path_mtu(object.core)?,
                cma.route(object.core)?,
            ))
        })?;
    let record = ibv_sa_path_rec {
        dgid: gid::to_c(remote),
        sgid: gid::to_c(local),
        dlid: 0,
        slid: 0,
        raw_traffic: 0,
        flow_label: 0,
        hop_limit: 64,
        traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: PKEY.to_be(),
        sl: 0,
        mtu_selector: EXACT,
        mtu: mtu.number(),
        rate_selector: EXACT,
        rate: RATE,
        packet_life_time_selector: EXACT,
        packet_life_time,
        preference: 0,
    };
    // SAFETY: allocates; the result is checked, and freed with the identifier.
    let place = unsafe { libc::malloc(size_of::<ibv_sa_path_rec>()) }.cast::<ibv_sa_path_rec>();
    if place.is_null() {
        return Err(VerbError::system("a path record", rustix::io::Errno::NOMEM));
    }
    // SAFETY: as long as a record and aligned for anything; the identifier as in `update`.
    unsafe {
        place.write(record);
        libc::free((*id).route.path_rec.cast());
        (*id).route.path_rec = place;
        (*id).route.num_paths = 1;
    }
    Ok(())
}

/// `rdma_bind_addr`
pub unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_bind_addr", || unsafe { bind(id, addr) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn bind(id: *mut rdma_cm_id, addr: *const libc::sockaddr) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, addr) = unsafe { (IdObject::from_c(id)?, from_c(addr)?) };
    open_devices()?;
    connections().call(|cma, _| cma.bind(object.core, addr, &Host))?;
    // SAFETY: the ABI's contract.
    unsafe { update(id) }
}

/// `rdma_resolve_addr`
pub unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut libc::sockaddr,
    dst_addr: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_minus_one("rdma_resolve_addr", || unsafe { resolve(id, src_addr, dst_addr) })
}

/// # Safety
/// The ABI's contract.
pub unsafe fn resolve(
    id: *mut rdma_cm_id,
    src: *const libc::sockaddr,
    dst: *const libc::sockaddr,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (object, dst) = unsafe { (IdObject::from_c(id)?, from_c(dst)?) };
    // SAFETY: the ABI's contract.
    let src = if src.is_null() { None } else { Some(unsafe { from_c(src) }?) };
    open_devices()?;
    // The address is stored before the event, because another thread may take the event.
    // SAFETY: the ABI's contract.
    unsafe { write_address(&raw mut (*id).route.addr.dst_storage, Some(dst)) };
    connections().call(|cma, _| cma.resolve_addr(object.core, src, dst, &Host))?;
    // SAFETY: the ABI's contract.
    unsafe { id::wait_if_sync(id) }
}

/// `rdma_resolve_route`
pub unsafe extern "C" fn resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    ffi::return_minus_one("rdma_resolve_route", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        connections().call(|cma, _| cma.resolve_route(object.core))?;
        // SAFETY: the ABI's contract.
        unsafe { id::wait_if_sync(id) }
    })
}

/// Returns the port of an address, in network byte order.
///
/// # Safety
/// The ABI's contract: `id` is NULL or an identifier.
unsafe fn port_of(
    id: *mut rdma_cm_id,
    which: impl FnOnce(&crate::layout::rdma_addr) -> &libc::sockaddr_storage,
) -> u16 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: the ABI's contract; a copy of plain data.
    let addr = unsafe { (*id).route.addr };
    // SAFETY: a storage is an address of any family.
    let found = unsafe { from_c(ptr::from_ref(which(&addr)).cast()) };
    found.map_or(0, |address| address.port().to_be())
}

/// `rdma_get_src_port`
pub unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the ABI's contract.
    unsafe { port_of(id, |addr| &addr.src_storage) }
}

/// `rdma_get_dst_port`
pub unsafe extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the ABI's contract.
    unsafe { port_of(id, |addr| &addr.dst_storage) }
}

/// Converts the queue pair state for which a program queries attributes.
pub fn qp_state(number: u32) -> Result<QpState, VerbError> {
    let allowed = "IBV_QPS_INIT (1), RTR (2) and RTS (3) are allowed";
    QpState::from_number(number).ok_or(VerbError::value("qp_state", number, allowed))
}
