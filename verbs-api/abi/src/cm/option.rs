//! `rdma_set_option`.

use std::ffi::{c_int, c_void};

use rustix::io::Errno;
use urxe_stack::cma::Route;
use urxe_stack::qp::attr::{PathMtu, QpType};
use urxe_wire::Gid;

use super::id::IdObject;
use super::process::connections;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::rdma_cm_id;

/// `RDMA_OPTION_ID`
const LEVEL_ID: c_int = 0;
/// `RDMA_OPTION_ID_TOS`, `_REUSEADDR`, `_AFONLY`, `_ACK_TIMEOUT`
const TOS: c_int = 0;
const REUSE_ADDR: c_int = 1;
const AF_ONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;
/// `RDMA_OPTION_IB`, `RDMA_OPTION_IB_PATH`
const LEVEL_IB: c_int = 1;
const PATH: c_int = 1;
/// Maximum length of path records. A subnet returns at most a few.
const MAX_PATHS: usize = 1 << 16;
/// The maximum of the five-bit timeout.
const MAX_TIMEOUT: u8 = 31;

/// Reads the value of an option.
///
/// # Safety
/// The ABI's contract: `len` bytes are at `value`.
unsafe fn read<T: Copy>(value: *const c_void, len: usize) -> Result<T, VerbError> {
    ffi::non_null(value, "optval")?;
    if len != size_of::<T>() {
        let allowed = "the option has 1 byte for a number and 4 bytes for a flag";
        return Err(VerbError::value("optlen", len as u64, allowed));
    }
    // SAFETY: the caller's; it need not be aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// `rdma_set_option`
pub unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    ffi::return_minus_one("rdma_set_option", || {
        // SAFETY: the ABI's contract.
        let object = unsafe { IdObject::from_c(id) }?;
        let core = object.core;
        // SAFETY: the ABI's contract, of each option's own type.
        unsafe {
            match (level, name) {
                (LEVEL_ID, TOS) => {
                    let tos = read::<u8>(value, len)?;
                    connections()
                        .call(|cma, _| cma.options_mut(core).map(|options| options.tos = tos))?;
                }
                (LEVEL_ID, ACK_TIMEOUT) => {
                    let timeout = read::<u8>(value, len)?;
                    let qp_type = (*id).qp_type;
                    if ![QpType::Rc, QpType::XrcSend]
                        .map(|of| u32::from(of.number()))
                        .contains(&qp_type)
                    {
                        let allowed = "only RC (2) and XRC_SEND (9) have an ACK timeout";
                        return Err(VerbError::value("qp_type", qp_type, allowed));
                    }
                    if timeout > MAX_TIMEOUT {
                        return Err(VerbError::value("ACK timeout", timeout, "0 to 31 is allowed"));
                    }
                    connections().call(|cma, _| {
                        cma.options_mut(core).map(|options| options.ack_timeout = Some(timeout))
                    })?;
                }
                (LEVEL_ID, REUSE_ADDR) => {
                    let reuse = read::<c_int>(value, len)? != 0;
                    connections().call(|cma, _| cma.set_reuse_addr(core, reuse))?;
                }
                (LEVEL_ID, AF_ONLY) => {
                    let only = read::<c_int>(value, len)? != 0;
                    connections().call(|cma, _| cma.set_af_only(core, only))?;
                }
                (LEVEL_IB, PATH) => {
                    ffi::non_null(value, "optval")?;
                    if len > MAX_PATHS {
                        let allowed = "path records of at most 64 KiB are allowed";
                        return Err(VerbError::value("optlen", len as u64, allowed));
                    }
                    let records = std::slice::from_raw_parts(value.cast::<u8>(), len);
                    let gids = connections().inspect(|cma| cma.gids(core))?;
                    let route = route_of(records, gids)?;
                    connections().call(|cma, _| cma.set_route(core, route))?;
                }
                _ => {
                    return Err(VerbError::system("there is no such option", Errno::NOSYS));
                }
            }
        }
        Ok(())
    })
}

/// Returns the route of the path records (`struct ibv_path_data`, 72 bytes each): the first one
/// that is marked as bidirectional. The addresses of the record must be those of the connection.
fn route_of(records: &[u8], (local, remote): (Gid, Gid)) -> Result<Route, VerbError> {
    /// `IBV_PATH_FLAG_GMP`, `_PRIMARY` and `_BIDIRECTIONAL`.
    const FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
    /// Length of the flags, the reserved field and the record behind them.
    const LEN: usize = 72;
    /// Offsets in `struct ibv_path_record`. The MTU and the packet life time are six bits wide;
    /// their selectors are above.
    const DGID: usize = 16;
    const SGID: usize = 32;
    const CLASS: usize = 56;
    const MTU: usize = 62;
    const LIFE_TIME: usize = 64;
    let (records, rest) = records.as_chunks::<LEN>();
    let is_fit =
        |record: &&[u8; LEN]| record.first_chunk().copied().map(u32::from_ne_bytes) == Some(FLAGS);
    let Some(record) = records.iter().find(is_fit).filter(|_| rest.is_empty()) else {
        let given = (records.len() * LEN + rest.len()) as u64;
        let allowed = "one record of 72 bytes must have the flags GMP, PRIMARY and BIDIRECTIONAL";
        return Err(VerbError::value("path records", given, allowed));
    };
    let gids = [SGID, DGID].map(|at| record[at..].first_chunk().copied().map(Gid));
    if gids != [Some(local), Some(remote)] {
        return Err(VerbError::system(
            "the path is between other GIDs than the identifier's",
            Errno::INVAL,
        ));
    }
    let [class, mtu, life_time] = [CLASS, MTU, LIFE_TIME].map(|at| record[at]);
    let (mtu, packet_life_time) = (mtu & 0x3f, life_time & 0x3f);
    let path_mtu = PathMtu::from_number(mtu.into()).ok_or(VerbError::value(
        "mtu of the path",
        mtu,
        "IBV_MTU_256 (1) to IBV_MTU_4096 (5) are allowed",
    ))?;
    if packet_life_time > MAX_TIMEOUT {
        return Err(VerbError::value("packet life time", packet_life_time, "0 to 31 is allowed"));
    }
    Ok(Route { traffic_class: class, packet_life_time, path_mtu })
}
