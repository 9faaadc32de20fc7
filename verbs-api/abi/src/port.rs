//! Port attributes: `ibv_query_port`, and the P_Key table.

use std::ffi::c_int;
use std::mem::{offset_of, zeroed};

use urxe_stack::link::{OperState, width_and_speed};

use crate::attributes::mtu;
use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_context, ibv_port_attr};

/// `IBV_PORT_ACTIVE`
const PORT_ACTIVE: u32 = 4;
/// `IBV_PORT_DOWN`
const PORT_DOWN: u32 = 1;
/// `IBV_LINK_LAYER_ETHERNET`
const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_PORT_CM_SUP`, `IBV_PORT_IP_BASED_GIDS`
const PORT_CAP_FLAGS: u32 = 1 << 16 | 1 << 26;

/// Checks a port number; port numbers begin with 1.
pub fn check_port(port: u32) -> Result<(), VerbError> {
    if port == 1 { Ok(()) } else { Err(VerbError::Port { given: port }) }
}

fn attributes(context: &Context) -> ibv_port_attr {
    let engine = &context.engine();
    let (limits, link) = (engine.device().limits(), engine.link());
    // Physical state: 5 link up, 2 polling, 3 disabled (IBTA vol. 1, 14.2.5.6).
    let (state, phys_state) = match engine.port_state() {
        OperState::Up => (PORT_ACTIVE, 5),
        OperState::NoCarrier => (PORT_DOWN, 2),
        OperState::Disabled => (PORT_DOWN, 3),
    };
    let (width, speed) = width_and_speed(link.interface.speed_mbps);
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    attr.state = state;
    attr.max_mtu = mtu(limits.max_mtu);
    attr.active_mtu = mtu(engine.device().active_mtu());
    attr.gid_tbl_len = c_int::try_from(engine.device().gids().len()).unwrap_or(c_int::MAX);
    attr.port_cap_flags = PORT_CAP_FLAGS;
    attr.max_msg_sz = u32::try_from(limits.max_msg_sz).unwrap_or(u32::MAX);
    attr.pkey_tbl_len = limits.max_pkeys;
    attr.max_vl_num = 1;
    attr.active_width = width as u8;
    attr.active_speed = speed as u8;
    attr.phys_state = phys_state;
    attr.link_layer = LINK_LAYER_ETHERNET;
    attr
}

/// Fills the first `len` bytes of the attributes.
///
/// # Safety
/// The ABI's contract; `attr` is NULL or has room for `len` bytes.
unsafe fn query(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let context = unsafe { Context::from_c(context) }?;
    check_port(port.into())?;
    ffi::non_null(attr, "port_attr")?;
    // SAFETY: the caller's.
    unsafe { ffi::write_prefix(attr, len, &attributes(context)) };
    Ok(())
}

/// `ibv_query_port` as the exported symbol, for programs from before 2018, whose structure ends
/// with `link_layer`.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_errno("ibv_query_port", || unsafe {
        query(context, port, attr, offset_of!(ibv_port_attr, flags))
    })
}

/// `ibv_query_port` as the header's inline function calls it, with the structure size of the
/// program.
pub unsafe extern "C" fn query_port_ex(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the ABI's contract.
    ffi::return_errno("ibv_query_port", || unsafe { query(context, port, attr, len) })
}

/// `ibv_query_pkey`: stores the P_Key in network byte order.
pub unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    ffi::return_minus_one("ibv_query_pkey", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        let table = context.device().pkeys();
        let found =
            usize::try_from(index).ok().filter(|_| port == 1).and_then(|index| table.get(index));
        let found =
            found.ok_or(VerbError::NoPkey { port, index: index.into(), len: table.len() })?;
        ffi::non_null(pkey, "pkey")?;
        // SAFETY: the ABI's contract: a place for the P_Key.
        unsafe { pkey.write(found.0.to_be()) };
        Ok(())
    })
}

/// `ibv_get_pkey_index`: returns the index of the P_Key, or -1.
pub unsafe extern "C" fn get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    ffi::catch_panic(-1, || {
        // SAFETY: the ABI's contract.
        let Ok(context) = (unsafe { Context::from_c(context) }) else { return -1 };
        let wanted = u16::from_be(pkey);
        let place = context.device().pkeys().iter().position(|entry| entry.0 == wanted);
        let place = place.filter(|_| port == 1);
        place.and_then(|place| c_int::try_from(place).ok()).unwrap_or(-1)
    })
}
