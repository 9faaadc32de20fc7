//! Endpoints: an identifier and its queue pair in one call, and the connection requests of a
//! listening endpoint.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use rustix::io::Errno;
use urxe_stack::cma::CmaEventType;
use urxe_stack::qp::attr::QpType;
use urxe_stack::sync::lock;

use super::addrinfo::PASSIVE;
use super::id::{self, IdObject};
use super::process::{connections, open_devices};
use super::{address, event, qp, srq};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_context, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};

/// Maximum length of data for a connection request, which `rdma_conn_param` can state.
const MAX_CONNECT: usize = u8::MAX as usize;

/// `rdma_create_ep`
pub unsafe extern "C" fn create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    ffi::return_minus_one("rdma_create_ep", || {
        // SAFETY: the ABI's contract, for all calls below.
        unsafe {
            let res = res.as_ref().ok_or(VerbError::Null("res"))?;
            ffi::non_null(id, "id")?;
            if res.ai_connect_len > MAX_CONNECT {
                let allowed = "private data has at most 255 bytes";
                return Err(VerbError::value("ai_connect_len", res.ai_connect_len as u64, allowed));
            }
            let unknown = VerbError::Unsupported("this ai_qp_type");
            let qp_type = QpType::from_number(res.ai_qp_type.cast_unsigned()).ok_or(unknown)?;
            let space = res.ai_port_space.cast_unsigned();
            let made = id::create(ptr::null_mut(), ptr::null_mut(), space, qp_type)?;
            let prepared = match res.ai_flags & PASSIVE {
                0 => active(made, res, pd, qp_init_attr),
                _ => passive(made, res, pd, qp_init_attr),
            };
            if let Err(error) = prepared {
                let _ = id::destroy(made);
                return Err(error);
            }
            id.write(made);
        }
        Ok(())
    })
}

/// # Safety
/// The ABI's contract.
unsafe fn passive(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    unsafe {
        address::bind(id, res.ai_src_addr)?;
        if !pd.is_null() {
            (*id).pd = pd;
        }
        if let Some(attr) = qp_init_attr.as_ref() {
            let attr =
                ibv_qp_init_attr { qp_type: res.ai_qp_type.cast_unsigned(), ..ptr::read(attr) };
            lock(&IdObject::from_c(id)?.state).qp_init_attr = Some(attr);
        }
    }
    Ok(())
}

/// # Safety
/// The ABI's contract.
unsafe fn active(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    unsafe {
        address::resolve(id, res.ai_src_addr, res.ai_dst_addr)?;
        let object = IdObject::from_c(id)?;
        connections().call(|cma, _| cma.resolve_route(object.core))?;
        id::wait_if_sync(id)?;
        if let Some(attr) = qp_init_attr.as_mut() {
            attr.qp_type = res.ai_qp_type.cast_unsigned();
            qp::make_plain_qp(id, pd, attr)?;
        }
        if res.ai_connect_len > 0 && !res.ai_connect.is_null() {
            let connect = slice::from_raw_parts(res.ai_connect.cast::<u8>(), res.ai_connect_len);
            lock(&object.state).connect = connect.to_vec();
        }
    }
    Ok(())
}

/// `rdma_destroy_ep`
pub unsafe extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        unsafe {
            if id.is_null() {
                return;
            }
            qp::destroy_qp(id);
            srq::destroy_srq(id);
            let _ = id::destroy(id);
        }
    });
}

/// `rdma_get_request`: waits for a request to a synchronous identifier. If the endpoint was made
/// with attributes, the new identifier gets a queue pair.
pub unsafe extern "C" fn get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    ffi::return_minus_one("rdma_get_request", || {
        // Before a request is taken. The original takes the request and then stores to NULL.
        ffi::non_null(id, "id")?;
        // SAFETY: the ABI's contract: a place for the result.
        unsafe { id.write(take_request(listen)?) };
        Ok(())
    })
}

/// Takes the next connection request.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn take_request(listen: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, VerbError> {
    // SAFETY: the ABI's contract, for all calls below.
    unsafe {
        let object = IdObject::from_c(listen)?;
        if !lock(&object.state).is_sync {
            let allowed = "the program's channel of the identifier delivers the requests";
            return Err(VerbError::value("channel", 1_u8, allowed));
        }
        event::ack_pending(listen)?;
        let taken = event::take((*listen).channel)?;
        let of_request = || {
            event::outcome(&*taken)?;
            if (*taken).event != u32::from(CmaEventType::ConnectRequest.number()) {
                return Err(VerbError::system("no request but an event", Errno::INVAL));
            }
            // A copy, because creating the queue pair overwrites the sizes.
            let attr = lock(&object.state).qp_init_attr.as_ref().map(|attr| ptr::read(attr));
            match attr {
                Some(mut attr) => qp::make_plain_qp((*taken).id, (*listen).pd, &mut attr),
                None => Ok(()),
            }
        };
        if let Err(error) = of_request() {
            (*listen).event = taken;
            return Err(error);
        }
        let request = (*taken).id;
        (*request).event = taken;
        Ok(request)
    }
}

/// `rdma_get_devices`: returns the contexts that identifiers use.
pub unsafe extern "C" fn get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    ffi::return_ptr("rdma_get_devices", || {
        if !num_devices.is_null() {
            // SAFETY: the ABI's contract: NULL or a place for the number.
            unsafe { num_devices.write(0) };
        }
        let devices = open_devices()?;
        // SAFETY: allocates; the result is checked.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_context>()) };
        if list.is_null() {
            return Err(VerbError::system("the list of devices", Errno::NOMEM));
        }
        let list = list.cast::<*mut ibv_context>();
        // SAFETY: there is room for all and a NULL behind them; a place for the number as above.
        unsafe {
            for (place, device) in devices.iter().enumerate() {
                list.add(place).write(device.context);
            }
            if !num_devices.is_null() {
                num_devices.write(c_int::try_from(devices.len()).unwrap_or(c_int::MAX));
            }
        }
        Ok(list)
    })
}

/// `rdma_free_devices`
pub unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the ABI's contract: NULL, or an array from get_devices.
    unsafe { libc::free(list.cast::<c_void>()) };
}
