//! The group of an address: its sockets, its table, and the devices of this process that use them.
//!
//! Within a process record locks exclude no thread, and closing the table's descriptor would
//! release all of the process's locks. So a process has one `Group` for an address, with a mutex of
//! its own, which all its devices share. The lock of the address in the [`Registry`] protects
//! finding and dropping the group.

use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use rustix::io::Errno;
use socket2::Socket;

use super::socket_pool::SocketPool;
use super::table::{Process, Record, Service, Table};
use crate::rendezvous::SharedAddress;
use crate::sys::fork::{CloseOnFork, PerProcess};
use crate::sys::{clock, steering};
use crate::udp::{OpenPortError, UdpConfig, bind_alone, bind_shared, failed, set_shared};
use urxe_types::sync::atomic::{AtomicBool, Ordering};
use urxe_types::sync::{Arc, Mutex, MutexGuard, lock, try_lock};

/// How long a thread tries to lock the group. The holder has the lock for microseconds, unless
/// stopped by a signal.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The groups that this process uses.
pub(super) static REGISTRY: PerProcess<Registry> = PerProcess::new(Registry::default);

/// The groups of a process, each under its own lock, which is held while the group is searched for
/// or dropped. A search may last seconds; searches for other addresses do not wait.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<Vec<(SharedAddress, Entry)>>,
}

type Entry = Arc<Mutex<Weak<Group>>>;

impl Registry {
    /// Returns the group of `address`, which `find` finds if this process does not use it yet.
    pub fn group<E>(
        &self,
        address: SharedAddress,
        find: impl FnOnce() -> Result<Group, E>,
    ) -> Result<Arc<Group>, E> {
        let entry = self.entry(address);
        let mut known = lock(&entry);
        if let Some(group) = known.upgrade() {
            return Ok(group);
        }
        let group = Arc::new(find()?);
        *known = Arc::downgrade(&group);
        Ok(group)
    }

    /// Drops a group under its lock. Without the lock, another thread could get the group through
    /// another process and claim a slot. The kernel would release that slot's lock when this thread
    /// closes its descriptor.
    pub fn release(&self, group: Arc<Group>) {
        let entry = self.entry(group.address);
        let _known = lock(&entry);
        match Arc::into_inner(group) {
            // Another copy of this library in the process has its own locks on the table, so the
            // descriptor must stay open.
            Some(group) if group.has_foreign_claims() => std::mem::forget(group),
            _ => {}
        }
    }

    /// Returns the entry of `address`. Removes entries that no thread uses and that have no group.
    fn entry(&self, address: SharedAddress) -> Entry {
        let mut entries = lock(&self.entries);
        entries.retain(|(_, entry)| {
            let is_used = Arc::strong_count(entry) > 1;
            is_used || try_lock(entry).is_none_or(|group| group.strong_count() > 0)
        });
        if let Some((_, entry)) = entries.iter().find(|(of, _)| *of == address) {
            return Arc::clone(entry);
        }
        let entry = Entry::default();
        entries.push((address, Arc::clone(&entry)));
        entry
    }
}

/// This process's view of the group of an address.
#[derive(Debug)]
pub(super) struct Group {
    pub address: SharedAddress,
    pub table: Table,
    pub pool: SocketPool,
    /// Whether another process has used the address at any time.
    pub has_been_shared: AtomicBool,
    process: Process,
    /// The claim of this process's device in each slot, or 0.
    claims: Mutex<[u64; 64]>,
}

/// The outcome of claiming a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The slot belongs to the caller now.
    Claimed,
    /// Another device has the slot.
    Taken,
    /// Another copy of this library in this process has the slot, or a program had it that executed
    /// this one. Locks do not exclude that copy.
    OfOtherCopy,
}

/// The services in the table.
pub(super) struct Services {
    /// Services of living processes, each with its index in the table.
    pub alive: Vec<(usize, Service)>,
    /// A free index in the table.
    pub free: Option<usize>,
}

/// The group, locked against all other threads and processes.
pub(super) struct Locked<'a> {
    group: &'a Group,
    claims: MutexGuard<'a, [u64; 64]>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.group.table.unlock_group();
    }
}

impl Group {
    /// Makes a new group with the common socket, the socket of slot 0 and the steering program.
    ///
    /// The common socket is bound without SO_REUSEPORT, which succeeds only if no socket of an
    /// older group is left. The option is set after that, so no other process can create a group in
    /// between. The second socket makes the two a group of the kernel (`reuseport_add_sock` in
    /// net/core/sock_reuseport.c).
    pub fn create(address: SharedAddress, config: &UdpConfig) -> Result<Self, CreateGroupError> {
        let refused = |call| move |errno| CreateGroupError::Refused { call, errno };
        let common = bind_alone(config).map_err(CreateGroupError::Port)?;
        let table = Table::new().map_err(refused("memfd_create"))?;
        let pool = SocketPool::new().map_err(refused("socketpair"))?;
        set_shared(&common, config.address).map_err(CreateGroupError::Port)?;
        let first = bind_shared(config).map_err(CreateGroupError::Port)?;
        steering::attach(&*common).map_err(refused("SO_ATTACH_REUSEPORT_CBPF"))?;
        for socket in [&common, &first] {
            pool.put(socket).map_err(refused("SCM_RIGHTS"))?;
        }
        let group = Self::new(address, table, pool, false);
        // Some systems that report themselves as Linux do not duplicate descriptors on a peek.
        match group.locked().and_then(|locked| locked.peek(steering::COMMON_SOCKET)) {
            Ok(Some(again)) if again.local_addr().ok() == common.local_addr().ok() => Ok(group),
            Ok(_) => Err(CreateGroupError::Refused { call: "MSG_PEEK", errno: Errno::OPNOTSUPP }),
            Err(errno) => Err(CreateGroupError::Refused { call: "MSG_PEEK", errno }),
        }
    }

    /// Makes the group that another process sent: the table, and both ends of the pool.
    pub fn passed(
        address: SharedAddress,
        [table, end_in, end_out]: [CloseOnFork<OwnedFd>; 3],
    ) -> Self {
        Self::new(address, Table::passed(table), SocketPool::passed(end_in, end_out), true)
    }

    fn new(address: SharedAddress, table: Table, pool: SocketPool, has_been_shared: bool) -> Self {
        let has_been_shared = AtomicBool::new(has_been_shared);
        Self {
            address,
            table,
            pool,
            has_been_shared,
            process: Process::this(),
            claims: Mutex::new([0; 64]),
        }
    }

    /// Locks the group, unless another thread or process has locked it.
    pub fn try_locked(&self) -> Result<Option<Locked<'_>>, Errno> {
        let Some(claims) = try_lock(&self.claims) else { return Ok(None) };
        Ok(self.table.try_lock_group()?.then_some(Locked { group: self, claims }))
    }

    /// Locks the group, or fails with `EBUSY` after [`LOCK_TIMEOUT`].
    pub fn locked(&self) -> Result<Locked<'_>, Errno> {
        let claims = lock(&self.claims);
        let deadline = clock::now() + LOCK_TIMEOUT;
        while !self.table.try_lock_group()? {
            if clock::now() >= deadline {
                return Err(Errno::BUSY);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(Locked { group: self, claims })
    }

    /// Claims a slot with the number `claim`.
    pub fn try_claim(&self, slot: u8, claim: u64) -> Result<Claim, Errno> {
        let mut claims = lock(&self.claims);
        if claims[usize::from(slot)] != 0 {
            return Ok(Claim::Taken);
        }
        let record = self.table.record(slot)?;
        if record.claim != 0 && record.process == self.process {
            return Ok(Claim::OfOtherCopy);
        }
        if !self.table.try_lock_slot(slot)? {
            return Ok(Claim::Taken);
        }
        self.table.set_record(slot, Record { process: self.process, claim })?;
        claims[usize::from(slot)] = claim;
        Ok(Claim::Claimed)
    }

    /// Releases a slot.
    pub fn release_slot(&self, slot: u8) {
        let mut claims = lock(&self.claims);
        claims[usize::from(slot)] = 0;
        // If the write fails, the record looks like that of a killed process.
        let _ = self.table.set_record(slot, Record::NONE);
        self.table.unlock_slot(slot);
    }

    /// Returns whether a device of this or another process has the slot. The slot may change hands
    /// meanwhile, because the group is not locked. Never waits: a slot counts as taken if another
    /// thread has locked the group.
    pub fn is_taken_now(&self, slot: u8) -> bool {
        let is_own = |claims: &[u64; 64]| claims.get(usize::from(slot)).is_some_and(|by| *by != 0);
        try_lock(&self.claims).is_none_or(|claims| is_own(&claims)) || self.is_taken_elsewhere(slot)
    }

    /// Returns whether a device of another process has the slot. Without other processes the lock
    /// need not be queried, which costs a system call.
    fn is_taken_elsewhere(&self, slot: u8) -> bool {
        self.has_been_shared.load(Ordering::Relaxed) && self.table.is_slot_held_elsewhere(slot)
    }

    fn has_foreign_claims(&self) -> bool {
        (0..64).any(|slot| {
            self.table
                .record(slot)
                .is_ok_and(|record| record.claim != 0 && record.process == self.process)
        })
    }
}

impl Locked<'_> {
    /// Returns the socket at `index`, if the group has it.
    pub fn peek(&self, index: u32) -> Result<Option<CloseOnFork<Socket>>, Errno> {
        self.group.pool.peek(index)
    }

    /// Returns the socket at `index`. Adds sockets to the group until it has that one.
    pub fn socket(
        &self,
        index: u32,
        config: &UdpConfig,
    ) -> Result<CloseOnFork<Socket>, OpenPortError> {
        let peek = |index| self.peek(index).map_err(failed(config.address, "MSG_PEEK"));
        if let Some(socket) = peek(index)? {
            return Ok(socket);
        }
        let mut count = 0;
        while peek(count)?.is_some() {
            count += 1;
        }
        loop {
            let socket = bind_shared(config)?;
            self.group.pool.put(&socket).map_err(failed(config.address, "SCM_RIGHTS"))?;
            if count == index {
                return Ok(socket);
            }
            count += 1;
        }
    }

    /// Returns whether a device of this or another process has the slot. While the group is locked
    /// no thread of this process can claim the slot, but another process can.
    pub fn is_taken(&self, slot: u8) -> bool {
        self.claims[usize::from(slot)] != 0 || self.group.is_taken_elsewhere(slot)
    }

    /// Returns the services of living processes.
    pub fn services(&self) -> Result<Services, Errno> {
        let mut services = Services { alive: Vec::new(), free: None };
        for (index, service) in self.group.table.services()?.into_iter().enumerate() {
            match service {
                Some(service) if self.is_alive(&service)? => services.alive.push((index, service)),
                _ => services.free = services.free.or(Some(index)),
            }
        }
        Ok(services)
    }

    fn is_alive(&self, service: &Service) -> Result<bool, Errno> {
        let slot = service.slot & 63;
        if self.claims[usize::from(slot)] != 0 {
            return Ok(self.claims[usize::from(slot)] == service.claim);
        }
        Ok(self.group.table.record(slot)?.claim == service.claim
            && self.group.table.is_slot_held_elsewhere(slot))
    }
}

/// Why a group cannot be created.
#[derive(Clone, Debug)]
pub(super) enum CreateGroupError {
    /// The system refused a call that sharing needs.
    Refused {
        /// The system call.
        call: &'static str,
        /// The error.
        errno: Errno,
    },
    /// The port cannot be opened.
    Port(OpenPortError),
}
