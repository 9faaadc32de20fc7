//! Memory that survives a power failure: shared mappings of files on disks.
//!
//! *Global visibility* is a fence, because peers' writes are stores of this process. *Persistence*
//! is `msync(MS_SYNC)`, which returns when the device of the file has the data. This stack grants
//! persistence for shared mappings of files on disks. It refuses persistence for memory that would
//! be lost: private and anonymous memory, and files in memory (tmpfs, memfd, huge pages).
//!
//! A region with [`Access::FLUSH_PERSISTENT`] can be registered only over persistent memory.
//! `rdma_rxe` grants this flag only for memory on persistent-memory modules (`rxe_mr.c`,
//! `rxe_flush_pmem_iova`).

use std::fs;

use super::Access;
use super::error::RegMrError;
use super::layout::Region;

/// File systems whose files do not survive a power failure.
const VOLATILE: [&str; 5] = ["tmpfs", "ramfs", "hugetlbfs", "devtmpfs", "rootfs"];

/// Checks that a region with these access flags may be registered over this memory. With
/// [`Access::FLUSH_PERSISTENT`], the memory must be a shared mapping of files on disks.
pub(super) fn check(addr: usize, len: usize, access: Access) -> Result<(), RegMrError> {
    if !access.contains(Access::FLUSH_PERSISTENT) {
        return Ok(());
    }
    let refused = |why| Err(RegMrError::NotPersistent { addr, len, why });
    if access.contains(Access::ON_DEMAND) {
        return refused("an on-demand region, whose pages may become others");
    }
    let (Ok(maps), Ok(mounts)) =
        (fs::read_to_string("/proc/self/maps"), fs::read_to_string("/proc/self/mountinfo"))
    else {
        return refused("unknown: /proc/self cannot be read");
    };
    match check_persistent(&maps, &mounts, addr, addr + len) {
        Ok(()) => Ok(()),
        Err(why) => refused(why),
    }
}

/// Makes the check of [`check`] for all memory of a region. The region may be a window, a fast
/// registration, or the new terms of a reregistration.
///
/// # Safety
/// The list of a paged region is neither changed nor freed during the call.
pub(super) unsafe fn check_region(region: &Region) -> Result<(), RegMrError> {
    if !region.access.contains(Access::FLUSH_PERSISTENT) {
        return Ok(());
    }
    let mut done = 0;
    while done < region.len {
        // SAFETY: the caller's promise.
        let (at, there) = unsafe { region.place(region.start + done) };
        let step = (there as u64).min(region.len - done);
        check(at.addr(), step as usize, region.access)?;
        done += step;
    }
    Ok(())
}

/// Checks that every page of `[addr, end)` is a shared mapping of a file on a disk; fails with the
/// kind of memory otherwise. `maps` and `mounts` are the texts of `/proc/PID/maps` and
/// `/proc/PID/mountinfo` (proc(5)).
pub(super) fn check_persistent(
    maps: &str,
    mounts: &str,
    addr: usize,
    end: usize,
) -> Result<(), &'static str> {
    let mut at = addr;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let Some((from, to)) = fields.next().and_then(|range| range.split_once('-')) else {
            continue;
        };
        let (Some(from), Some(to)) = (hex(from), hex(to)) else { continue };
        if to <= at || from >= end {
            continue;
        }
        if from > at {
            break;
        }
        let rights = fields.next().unwrap_or_default();
        let (_offset, device, inode) = (fields.next(), fields.next(), fields.next());
        if inode.is_none_or(|inode| inode == "0") {
            return Err("anonymous memory");
        }
        if !rights.ends_with('s') {
            return Err("a private mapping, whose changes do not reach its file");
        }
        if device.is_none_or(|device| is_volatile(mounts, device)) {
            return Err("mapped from a file that itself lives in memory");
        }
        at = to;
        if at >= end {
            return Ok(());
        }
    }
    Err("not mapped")
}

/// Returns whether files of this device (`MAJOR:MINOR`, hexadecimal, as in `maps`) are lost in a
/// power failure. That is the case for a device without a mount (memfd), or with a mount of a
/// volatile file system.
fn is_volatile(mounts: &str, device: &str) -> bool {
    let number = |text: &str, base| u32::from_str_radix(text, base).ok();
    let pair = |text: &str, base| {
        let (major, minor) = text.split_once(':')?;
        Some((number(major, base)?, number(minor, base)?))
    };
    let wanted = pair(device, 16);
    let kind = mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let found = pair(mount.split_whitespace().nth(2)?, 10)?;
        (Some(found) == wanted).then(|| system.split_whitespace().next())?
    });
    kind.is_none_or(|kind| VOLATILE.contains(&kind))
}

#[cfg(test)]
mod tests;
