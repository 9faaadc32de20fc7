//! The GID table: `ibv_query_gid`, `ibv_query_gid_ex`, `ibv_query_gid_table`, and the type of an
//! entry.

use std::ffi::c_int;

use urxe_wire::Gid;

use crate::context::Context;
use crate::error::VerbError;
use crate::ffi::{self, catch_panic, log_and_set_errno};
use crate::layout::{ibv_context, ibv_gid_entry};
use crate::port::check_port;

/// `IBV_GID_TYPE_ROCE_V2`
const ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`, of the private enumeration that `ibv_query_gid_type` uses.
const SYSFS_ROCE_V2: u32 = 1;

/// Converts to a `union ibv_gid`: 16 bytes in network order, aligned as two 64-bit words.
pub fn to_c(gid: Gid) -> [u64; 2] {
    let [high, low] = [&gid.0[..8], &gid.0[8..]];
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}

/// Converts from a `union ibv_gid`.
pub fn from_c(gid: [u64; 2]) -> Gid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&gid[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&gid[1].to_ne_bytes());
    Gid(bytes)
}

fn entry(context: &Context, port: u32, index: i64) -> Result<Gid, VerbError> {
    check_port(port)?;
    let gids = context.device().gids();
    let found = usize::try_from(index).ok().and_then(|index| gids.get(index));
    found.copied().ok_or(VerbError::Index { table: "GID", given: index, len: gids.len() })
}

/// `ibv_query_gid`: an empty entry reads as zeros.
pub unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut [u64; 2],
) -> c_int {
    ffi::return_minus_one("ibv_query_gid", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        let found = entry(context, port.into(), index.into())?;
        ffi::non_null(gid, "gid")?;
        // SAFETY: the ABI's contract: a place for the GID, which need not be aligned.
        unsafe { gid.write_unaligned(to_c(found)) };
        Ok(())
    })
}

/// `ibv_query_gid_ex`: fails with ENODATA for an empty entry.
pub unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    ffi::return_errno("ibv_query_gid_ex", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        check_flags(flags)?;
        let gid = entry(context, port, index.into())?;
        if gid.is_zero() {
            return Err(VerbError::EmptyGid { index });
        }
        ffi::non_null(to, "entry")?;
        // SAFETY: the ABI's contract: entry_size bytes are the program's.
        unsafe { put(to.cast(), entry_size, gid, index, context) };
        Ok(())
    })
}

/// `ibv_query_gid_table`: writes all entries that are not empty. Returns their number, or a
/// negative error number.
pub unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let failed = |error: &VerbError| -(log_and_set_errno("ibv_query_gid_table", error) as isize);
    catch_panic(-(libc::EIO as isize), || {
        // SAFETY: the ABI's contract.
        let context = match unsafe { Context::from_c(context) } {
            Ok(context) => context,
            Err(error) => return failed(&error),
        };
        if let Err(error) = check_flags(flags) {
            return failed(&error);
        }
        let gids = context.device().gids();
        let valid = (0..).zip(&gids).filter(|(_, gid)| !gid.is_zero());
        let count = valid.clone().count();
        if count > max_entries || (entries.is_null() && count > 0) {
            let given = max_entries as u64;
            return failed(&VerbError::value("max_entries", given, "the table has more entries"));
        }
        for (place, (index, gid)) in valid.enumerate() {
            // SAFETY: the ABI's contract: max_entries times entry_size bytes are the program's.
            unsafe {
                put(entries.cast::<u8>().add(place * entry_size), entry_size, *gid, index, context)
            };
        }
        count as isize
    })
}

/// `ibv_query_gid_type`, which rdma-core's own programs import.
pub unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    ffi::return_minus_one("ibv_query_gid_type", || {
        // SAFETY: the ABI's contract.
        let context = unsafe { Context::from_c(context) }?;
        entry(context, port.into(), index.into())?;
        ffi::non_null(gid_type, "type")?;
        // SAFETY: the ABI's contract: a place for the type.
        unsafe { gid_type.write(SYSFS_ROCE_V2) };
        Ok(())
    })
}

fn check_flags(flags: u32) -> Result<(), VerbError> {
    match flags {
        0 => Ok(()),
        given => Err(VerbError::value("flags", given, "only 0 is allowed")),
    }
}

/// Writes an entry, as much as fits into `size` bytes.
///
/// # Safety
/// `size` bytes at `to` can be written.
unsafe fn put(to: *mut u8, size: usize, gid: Gid, index: u32, context: &Context) {
    let ndev_ifindex = context.engine().link().interface.index;
    let entry = ibv_gid_entry {
        gid: to_c(gid),
        gid_index: index,
        port_num: 1,
        gid_type: ROCE_V2,
        ndev_ifindex,
    };
    // SAFETY: the caller's.
    unsafe { ffi::write_prefix(to.cast(), size, &entry) };
}
