//! The sockets of the multicast groups that a device joined.
//!
//! Group sockets are opened and closed while threads receive, and there may be thousands. Therefore
//! an epoll instance reports which sockets have packets. The background thread sleeps on
//! this instance. The receiving thread has its own copy of the list of
//! sockets. It refreshes the copy when the list changed, and takes no lock otherwise.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::errno::OsError;
use crate::port::groups::{JoinError, JoinGroups};
use crate::port::udp::{UdpConfig, UdpPort};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::sys::fork::{CloseOnFork, close_on_fork};

/// The most readable sockets that one call of [`GroupPorts::ready`] returns.
const READY: usize = 8;
/// The epoll data of a socket of no group.
const NO_GROUP: u64 = u64::MAX;

/// The group sockets of a device.
#[derive(Debug)]
pub(super) struct GroupPorts {
    epoll: CloseOnFork<OwnedFd>,
    /// The configuration of each address, the oldest first.
    configs: Mutex<Vec<UdpConfig>>,
    joined: Mutex<Vec<Option<Group>>>,
    count: AtomicUsize,
    changes: AtomicU64,
}

/// A group that the device joined.
#[derive(Debug)]
struct Group {
    port: Arc<UdpPort>,
    /// The address from which the device joined.
    own: IpAddr,
}

/// The receiving thread's copy of the sockets.
#[derive(Debug, Default)]
pub(super) struct View {
    ports: Vec<Option<Arc<UdpPort>>>,
    changes: u64,
}

impl View {
    /// Returns the socket at index `place`, if it is still there.
    pub fn at(&self, place: usize) -> Option<&UdpPort> {
        self.ports.get(place)?.as_deref()
    }
}

impl GroupPorts {
    /// Starts without a group. The device joins each group from the first of the addresses of the
    /// same IP version that the machine still has.
    pub fn new(configs: &[UdpConfig]) -> Result<Self, Errno> {
        Ok(Self {
            epoll: close_on_fork(|| epoll::create(epoll::CreateFlags::CLOEXEC))?,
            configs: Mutex::new(configs.to_vec()),
            joined: Mutex::default(),
            count: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        })
    }

    /// Returns whether no group is joined.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds an address from which groups can be joined. Its socket makes
    /// [`descriptor`](Self::descriptor) readable too, so threads that already sleep wake up for its
    /// packets.
    pub fn add_address(&self, config: &UdpConfig, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(
            &*self.epoll,
            socket,
            epoll::EventData::new_u64(NO_GROUP),
            epoll::EventFlags::IN,
        )?;
        lock(&self.configs).push(config.clone());
        Ok(())
    }

    /// Returns the descriptor that is readable while a socket has packets.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Updates `view`.
    pub fn refresh(&self, view: &mut View) {
        let changes = self.changes.load(Ordering::Acquire);
        if view.changes != changes {
            let joined = lock(&self.joined);
            view.ports.clear();
            view.ports.extend(joined.iter().map(|group| Some(Arc::clone(&group.as_ref()?.port))));
            view.changes = changes;
        }
    }

    /// Returns the indices of some sockets that have packets.
    pub fn ready(&self) -> impl Iterator<Item = usize> + use<> {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; READY];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The descriptor is valid; after an interruption the caller tries again soon.
        let count = epoll::wait(&*self.epoll, &mut events[..], Some(&at_once)).unwrap_or(0);
        let places = events.into_iter().take(count).map(|event| event.data.u64());
        places.filter(|place| *place != NO_GROUP).map(|place| place as usize)
    }

    fn open(&self, group: IpAddr) -> Result<Group, JoinError> {
        let configs = lock(&self.configs);
        let same_version =
            |config: &&UdpConfig| config.address.to_canonical().is_ipv4() == group.is_ipv4();
        let mut failure = None;
        for config in configs.iter().filter(same_version) {
            match UdpPort::join(group, config) {
                Ok(port) => return Ok(Group { port: Arc::new(port), own: config.address }),
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        Err(failure.unwrap_or(JoinError::NoAddress { group }))
    }
}

impl JoinGroups for GroupPorts {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        let opened = self.open(group)?;
        let mut joined = lock(&self.joined);
        let place = joined.iter().position(Option::is_none).unwrap_or(joined.len());
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&*self.epoll, opened.port.as_fd(), data, epoll::EventFlags::IN).map_err(
            |errno| JoinError::System { group, call: "epoll_ctl", errno: OsError::of(errno) },
        )?;
        match joined.get_mut(place) {
            Some(free) => *free = Some(opened),
            None => joined.push(Some(opened)),
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn leave(&self, group: IpAddr) {
        let mut joined = lock(&self.joined);
        let is_it = |place: &&mut Option<Group>| {
            place.as_ref().is_some_and(|joined| joined.port.address() == group)
        };
        let Some(Group { port, own }) = joined.iter_mut().find(is_it).and_then(Option::take) else {
            return;
        };
        // A receiving thread may keep the socket open for a while.
        let _ = epoll::delete(&*self.epoll, port.as_fd());
        port.leave(own);
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }
}
