//! The table of an address: a memory file that its processes pass on, and the locks on it.
//!
//! ```text
//!  0                     2048                            26624
//! | a record per slot    | services that are listened on  |      contents
//! | byte s: slot s taken | byte 64: the group is changed  |      locks
//! ```
//! A process claims a slot by a record lock on the byte of the slot. The kernel releases the lock
//! when the process ends, even while a forked child lives on ([`record_lock`]). The record of the
//! slot names the process and has a new number for each claim. The number distinguishes the
//! services of a dead process from those of the next one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, retry_on_intr};

use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::record_lock;
use urxe_types::allocate::{self, OutOfMemory};
use urxe_types::owner::MAX_SERVICES;

/// The byte of the lock that a process holds while changing the group.
const GROUP_LOCK: u64 = 64;
/// Bytes of a number in the table, in the machine's byte order.
const WORD: usize = 8;
const RECORD_WORDS: usize = 4;
const SERVICES_AT: u64 = 2048;
const SERVICE_WORDS: usize = 3;
/// The number of service entries that a search reads at once.
const SERVICES_AT_ONCE: usize = 64;
const _: () = assert!(MAX_SERVICES.is_multiple_of(SERVICES_AT_ONCE));
const TABLE_LEN: u64 = SERVICES_AT + (MAX_SERVICES * SERVICE_WORDS * WORD) as u64;

/// The identity of a process for others: its number and its start time, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub started: u64,
}

impl Process {
    pub fn this() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The 22nd field. The second field, the name, is in parentheses and may contain anything
        // (proc(5)).
        let started = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok())
            .unwrap_or(0);
        Self { pid: std::process::id(), started }
    }
}

/// The process that has a slot, or had it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub process: Process,
    /// A number that is new for each claim and never 0; 0 after an orderly release.
    pub claim: u64,
}

impl Record {
    pub const NONE: Self = Self { process: Process { pid: 0, started: 0 }, claim: 0 };
}

/// A service that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub id: u64,
    pub claim: u64,
    pub slot: u8,
}

/// The table of an address.
#[derive(Debug)]
pub(super) struct Table {
    file: CloseOnFork<OwnedFd>,
}

impl Table {
    pub fn new() -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = close_on_fork(|| memfd_create("urxe-sharing", flags))?;
        ftruncate(&file, TABLE_LEN)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self { file })
    }

    /// Makes the table that another process sent.
    pub fn passed(file: CloseOnFork<OwnedFd>) -> Self {
        Self { file }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn try_lock_slot(&self, slot: u8) -> Result<bool, Errno> {
        record_lock::try_lock(&self.file, u64::from(slot))
    }

    pub fn unlock_slot(&self, slot: u8) {
        // Fails only for an invalid descriptor.
        let _ = record_lock::unlock(&self.file, u64::from(slot));
    }

    /// Returns whether another process has the slot.
    pub fn is_slot_held_elsewhere(&self, slot: u8) -> bool {
        record_lock::is_held_elsewhere(&self.file, u64::from(slot)).unwrap_or(true)
    }

    pub fn try_lock_group(&self) -> Result<bool, Errno> {
        record_lock::try_lock(&self.file, GROUP_LOCK)
    }

    pub fn unlock_group(&self) {
        let _ = record_lock::unlock(&self.file, GROUP_LOCK);
    }

    pub fn record(&self, slot: u8) -> Result<Record, Errno> {
        let mut words = [[0; 8]; RECORD_WORDS];
        self.read(record_at(slot), words.as_flattened_mut())?;
        let [pid, started, claim, _] = words.map(u64::from_ne_bytes);
        Ok(Record { process: Process { pid: pid as u32, started }, claim })
    }

    pub fn set_record(&self, slot: u8, record: Record) -> Result<(), Errno> {
        let Record { process: Process { pid, started }, claim } = record;
        self.write(record_at(slot), [pid.into(), started, claim, 0])
    }

    /// Returns all service entries in order. The caller must hold the group's lock.
    pub fn services(&self) -> Result<Vec<Option<Service>>, Errno> {
        let no_memory = |_: OutOfMemory| Errno::NOMEM;
        let entries = allocate::slice([[0; 8]; SERVICE_WORDS], MAX_SERVICES);
        let mut entries = entries.map_err(no_memory)?;
        self.read(SERVICES_AT, entries.as_flattened_mut().as_flattened_mut())?;
        let parse = |entry: [_; SERVICE_WORDS]| {
            let [id, claim, slot] = entry.map(u64::from_ne_bytes);
            (claim != 0).then_some(Service { id, claim, slot: slot as u8 })
        };
        allocate::collected(entries.iter().copied().map(parse)).map_err(no_memory)
    }

    /// Returns the index of the service `id` of the process with `claim`. Needs no memory, so that
    /// a process can release its services. The caller must hold the lock of the group.
    pub fn find_service(&self, id: u64, claim: u64) -> Result<Option<usize>, Errno> {
        for first in (0..MAX_SERVICES).step_by(SERVICES_AT_ONCE) {
            let mut entries = [[[0; 8]; SERVICE_WORDS]; SERVICES_AT_ONCE];
            let bytes = entries.as_flattened_mut().as_flattened_mut();
            self.read(SERVICES_AT + (first * SERVICE_WORDS * WORD) as u64, bytes)?;
            let is_it = |[of, by, _]: &[[u8; 8]; SERVICE_WORDS]| {
                u64::from_ne_bytes(*of) == id && u64::from_ne_bytes(*by) == claim
            };
            if let Some(place) = entries.iter().position(is_it) {
                return Ok(Some(first + place));
            }
        }
        Ok(None)
    }

    /// Sets or clears a service entry. The caller must hold the group's lock.
    pub fn set_service(&self, index: usize, service: Option<Service>) -> Result<(), Errno> {
        let words = service
            .map_or([0; SERVICE_WORDS], |Service { id, claim, slot }| [id, claim, slot.into()]);
        self.write(SERVICES_AT + (index * SERVICE_WORDS * WORD) as u64, words)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let wanted = bytes.len();
        let read = retry_on_intr(|| rustix::io::pread(&self.file, &mut *bytes, at))?;
        if read == wanted { Ok(()) } else { Err(Errno::IO) }
    }

    fn write<const WORDS: usize>(&self, at: u64, words: [u64; WORDS]) -> Result<(), Errno> {
        let bytes = words.map(u64::to_ne_bytes);
        let written = retry_on_intr(|| rustix::io::pwrite(&self.file, bytes.as_flattened(), at))?;
        if written == bytes.as_flattened().len() { Ok(()) } else { Err(Errno::IO) }
    }
}

fn record_at(slot: u8) -> u64 {
    u64::from(slot) * (RECORD_WORDS * WORD) as u64
}
