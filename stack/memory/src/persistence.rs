//! Which memory survives a power failure: shared mappings of files on disks.
//!
//! *Global visibility* is a fence: peers' writes are stores of this process. *Persistence* is
//! `msync(MS_SYNC)`, which returns when the file's device has the data. `rdma_rxe` grants it for
//! memory on persistent-memory modules alone and refuses the registration of any other (`rxe_mr.c`,
//! `rxe_flush_pmem_iova`); here it is granted for shared mappings of files, and refused where
//! nothing would last: private and anonymous memory, and files that live in memory themselves
//! (tmpfs, memfd, huge pages).
//!
//! A region with [`Access::FLUSH_PERSISTENT`] is registered over such memory only. `rdma_rxe`
//! grants the right for memory on persistent-memory modules alone (`rxe_mr.c`,
//! `rxe_flush_pmem_iova`).

use std::fs;

use super::Access;
use super::error::RegMrError;
use super::layout::Region;

/// File systems whose files do not survive a power failure.
const VOLATILE: [&str; 5] = ["tmpfs", "ramfs", "hugetlbfs", "devtmpfs", "rootfs"];

/// Whether a region with these rights may be registered over this memory: with
/// [`Access::FLUSH_PERSISTENT`] it has to be mapped, shared, from files that last.
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

/// The same of all that a region stands for: a window's, one that a fast registration makes, or one
/// as it will be.
///
/// # Safety
/// The list of a paged region is neither changed nor freed meanwhile.
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

/// Whether every page of `[addr, end)` is mapped, shared, from a file that lasts; what it is
/// otherwise. `maps` and `mounts` are the texts of `/proc/PID/maps` and `/proc/PID/mountinfo`
/// (proc(5)).
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

/// Whether files of this device (`MAJOR:MINOR`, hexadecimal, as in `maps`) are lost with the power:
/// it has no mount, as of memfd, or one of such a kind.
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
