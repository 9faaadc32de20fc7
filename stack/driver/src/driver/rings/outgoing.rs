//! The rings that a device writes.
//!
//! ```text
//!   first run ──> wanted ──> offered ──> open ──> closed by the other process, and forgotten
//!                    ^           │         │
//!                    └─ a pause ─┴─────────┘ refused, or broken
//! ```
//! Only the background thread offers and reads replies, because it is the thread whose network
//! namespace is that of the device. Until a ring is open, the runs of its path go over the socket.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use super::ready;
use super::ring::{Ring, RingEnd};
use crate::cq::Wake;
use crate::driver::eventfd::EventFd;
use crate::driver::thread_waker::ThreadWaker;
use crate::link::interface::Interface;
use crate::port::udp::UdpPort;
use crate::port::{Run, SendInMemory, SendOutcome};
use crate::ring::{Budget, Endpoint, Link, Reply, offer, reply};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::sys::clock;
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::shared_memory::SharedMemory;
use crate::time::Time;
use urxe_types::qpn::MAX_PROCESS_SLOTS;

/// The bytes of a ring, as a power of two. An unused part takes no memory.
const CAPACITY: u8 = 20;
/// The most rings to one slot number. Each local address of this host has such a slot.
const MAX_PEERS: usize = 16;
/// Nanoseconds without a record after which an empty ring gives its pages back, or twice as many.
const IDLE_NS: u64 = 1_000_000_000;
/// The pause after the first refusal. Each further one doubles it, up to the longest pause.
const FIRST_PAUSE_NS: u64 = 1_000_000_000;
const LONGEST_PAUSE_NS: u64 = 64_000_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The slot of this device.
    slot: u8,
    /// The peers with each slot. A lock protects the search for a ring, and the ring.
    peers: Box<[Mutex<Vec<Peer>>]>,
    /// The rings that may be offered or open.
    budget: Mutex<Budget>,
    /// The time in nanoseconds of the next search for idle rings; 0 if no ring has pages.
    idle_at_ns: AtomicU64,
    /// Reports the connections of these rings.
    epoll: CloseOnFork<OwnedFd>,
    is_wanted: AtomicBool,
    next_id: AtomicU32,
    waker: Arc<ThreadWaker<EventFd>>,
    interfaces: Mutex<Vec<Interface>>,
}

/// A device of another process, seen from one of the own addresses.
#[derive(Debug)]
struct Peer {
    id: u32,
    from: Endpoint,
    to: Endpoint,
    state: State,
    pause_ns: u64,
}

#[derive(Debug)]
enum State {
    Wanted,
    Offered(Link, SharedMemory),
    Open(Ring),
    /// No offer is made until this time.
    Refused(Time),
}

impl Outgoing {
    pub fn new(
        slot: u8,
        interfaces: Vec<Interface>,
        waker: Arc<ThreadWaker<EventFd>>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            slot,
            peers: (0..MAX_PROCESS_SLOTS).map(|_| Mutex::default()).collect(),
            budget: Mutex::new(Budget::new(1 << CAPACITY, slot)),
            idle_at_ns: AtomicU64::new(0),
            epoll: close_on_fork(|| epoll::create(epoll::CreateFlags::CLOEXEC))?,
            is_wanted: AtomicBool::new(false),
            next_id: AtomicU32::new(0),
            waker,
            interfaces: Mutex::new(interfaces),
        })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub fn set_interfaces(&self, interfaces: Vec<Interface>) {
        *lock(&self.interfaces) = interfaces;
    }

    pub fn is_offer_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Sends a run through the ring of its path, if that is open. Wants an offer otherwise.
    pub fn transmit(&self, sender: &UdpPort, slot: u8, run: &Run<'_>) -> Option<SendOutcome> {
        let mut peers = lock(self.peers.get(usize::from(slot))?);
        let is_it = |peer: &&mut Peer| peer.to.address == run.to && peer.from.address == run.from;
        let Some(peer) = peers.iter_mut().find(is_it) else {
            if peers.len() < MAX_PEERS && self.is_here(run.to) {
                peers.push(self.wanted(sender, slot, run.to));
                self.want();
            }
            return None;
        };
        match &mut peer.state {
            State::Open(ring) => {
                let mut path = ring.path(sender);
                let outcome = path.copy(run);
                self.finish(path.end(), peer);
                return outcome;
            }
            State::Refused(until) if clock::now() >= *until => {
                peer.state = State::Wanted;
                self.want();
            }
            State::Wanted | State::Offered(..) | State::Refused(_) => {}
        }
        None
    }

    /// Calls `send` with the ring of a path, if it is open. Returns whether it did.
    pub fn with_ring(
        &self,
        sender: &UdpPort,
        to: IpAddr,
        slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        let Some(mut peers) = self.peers.get(usize::from(slot)).map(lock) else { return false };
        let is_it =
            |peer: &&mut Peer| peer.to.address == to && peer.from.address == sender.address();
        let Some(peer) = peers.iter_mut().find(is_it) else { return false };
        let State::Open(ring) = &mut peer.state else { return false };
        let mut path = ring.path(sender);
        send(&mut path);
        self.finish(path.end(), peer);
        true
    }

    /// Ends a ring that is broken. Frees the pages of another one some time after its last run.
    fn finish(&self, end: RingEnd, peer: &mut Peer) {
        match end {
            RingEnd::Usual => {}
            RingEnd::HasPages => self.expect_idle(),
            RingEnd::Broken => {
                tracing::warn!(to = ?peer.to, "a ring is broken: sockets take its place");
                self.close(peer);
            }
        }
    }

    /// Returns whether the ring of a path is open.
    #[cfg(feature = "cm")]
    pub fn is_open(&self, from: IpAddr, to: IpAddr, slot: u8) -> bool {
        let Some(peers) = self.peers.get(usize::from(slot)) else { return false };
        let is_it = |peer: &Peer| peer.to.address == to && peer.from.address == from;
        lock(peers).iter().any(|peer| is_it(peer) && matches!(peer.state, State::Open(_)))
    }

    /// Returns whether unread runs fill half of a ring to a device; `None` without such a ring.
    pub fn is_half_full(&self, to: IpAddr, slot: u8) -> Option<bool> {
        let mut peers = lock(self.peers.get(usize::from(slot))?);
        let rings = peers.iter_mut().filter(|peer| peer.to.address == to);
        rings.fold(None, |half_full, peer| match &mut peer.state {
            State::Open(ring) => Some(half_full.unwrap_or(false) || ring.is_half_full()),
            _ => half_full,
        })
    }

    /// Makes the offers that are wanted. Reads the replies, and the ends of connections.
    pub fn serve(&self) {
        if self.is_wanted.swap(false, Ordering::AcqRel) {
            self.offer_all();
        }
        for data in ready(self.epoll.as_fd()) {
            let (slot, id) = ((data >> 32) as usize, data as u32);
            let Some(mut peers) = self.peers.get(slot).map(lock) else { continue };
            let Some(place) = peers.iter().position(|peer| peer.id == id) else { continue };
            let peer = &mut peers[place];
            match &peer.state {
                State::Offered(link, _) => match reply(link) {
                    Reply::Pending => {}
                    Reply::Accepted => open(peer),
                    Reply::Refused => self.close(peer),
                },
                State::Open(ring) if !ring.link.drain() => {
                    tracing::debug!(to = ?peer.to, "the other process closed a ring");
                    self.close(peer);
                    // Another process may have the slot soon.
                    peers.swap_remove(place);
                }
                State::Open(_) | State::Wanted | State::Refused(_) => {}
            }
        }
    }

    /// Returns the time at which [`free_idle`](Self::free_idle) is due.
    pub fn idle_at(&self) -> Option<Time> {
        let at_ns = self.idle_at_ns.load(Ordering::Relaxed);
        (at_ns != 0).then_some(Time::from_ns(at_ns))
    }

    /// Gives the pages of rings back that had no record for a while, if a search is due.
    pub fn free_idle(&self, now: Time) {
        if self.idle_at().is_none_or(|at| now < at) {
            return;
        }
        // Before the search, so that a thread whose ring has pages from now on sets a time.
        self.idle_at_ns.store(0, Ordering::Relaxed);
        let mut has_pages = false;
        for cell in &self.peers {
            for peer in lock(cell).iter_mut() {
                if let State::Open(ring) = &mut peer.state {
                    ring.free_idle();
                    has_pages |= ring.has_pages();
                }
            }
        }
        if has_pages {
            self.idle_at_ns.store(now.plus_ns(IDLE_NS).as_ns(), Ordering::Relaxed);
        }
    }

    /// Lets the background thread look for idle rings later.
    #[cold]
    fn expect_idle(&self) {
        if self.idle_at().is_none() {
            self.idle_at_ns.store(clock::now().plus_ns(IDLE_NS).as_ns(), Ordering::Relaxed);
            self.waker.descriptor().wake();
        }
    }

    fn offer_all(&self) {
        for (slot, cell) in self.peers.iter().enumerate() {
            let is_wanted = |peer: &&Peer| matches!(peer.state, State::Wanted);
            let describe = |peer: &Peer| (peer.id, peer.from, peer.to);
            let wanted: Vec<_> = lock(cell).iter().filter(is_wanted).map(describe).collect();
            for (id, from, to) in wanted {
                // Without the lock, because an offer takes some system calls.
                let offered = self.offer(from, to, (slot as u64) << 32 | u64::from(id));
                let mut peers = lock(cell);
                let Some(peer) = peers.iter_mut().find(|peer| peer.id == id) else { continue };
                match offered {
                    Ok((link, memory)) => peer.state = State::Offered(link, memory),
                    Err(errno) => {
                        tracing::debug!(%errno, ?to, "no ring: packets go over sockets");
                        peer.refuse();
                    }
                }
            }
        }
    }

    fn offer(
        &self,
        from: Endpoint,
        to: Endpoint,
        data: u64,
    ) -> Result<(Link, SharedMemory), Errno> {
        if !lock(&self.budget).take(clock::now()) {
            return Err(Errno::MFILE);
        }
        let watched = offer(from, to, CAPACITY).and_then(|(link, memory)| {
            let data = epoll::EventData::new_u64(data);
            epoll::add(&*self.epoll, link.as_fd(), data, epoll::EventFlags::IN)?;
            Ok((link, memory))
        });
        watched.inspect_err(|_| lock(&self.budget).give_back())
    }

    /// Ends a ring, or the offer of one, and pauses.
    fn close(&self, peer: &mut Peer) {
        if let State::Offered(link, _) | State::Open(Ring { link, .. }) = &peer.state {
            let _ = epoll::delete(&*self.epoll, link.as_fd());
            lock(&self.budget).give_back();
        }
        peer.refuse();
    }

    fn wanted(&self, sender: &UdpPort, slot: u8, to: IpAddr) -> Peer {
        let own = sender.scope_id();
        let is_link_local = matches!(to, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let scope_id = if is_link_local { own } else { 0 };
        Peer {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            from: Endpoint { address: sender.address(), scope_id: own, slot: self.slot },
            to: Endpoint { address: to, scope_id, slot },
            state: State::Wanted,
            pause_ns: FIRST_PAUSE_NS,
        }
    }

    /// Returns whether this host has the address. Only then can a process of this host have it.
    fn is_here(&self, address: IpAddr) -> bool {
        address.is_loopback() || lock(&self.interfaces).iter().any(|own| own.has(address))
    }

    /// Tells the background thread that an offer is wanted. That thread sleeps on its waker in each
    /// of its states, also while a thread polls.
    fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.waker.descriptor().wake();
    }
}

/// Opens the ring of an offer that was accepted.
fn open(peer: &mut Peer) {
    match std::mem::replace(&mut peer.state, State::Wanted) {
        State::Offered(link, memory) => {
            tracing::debug!(from = ?peer.from, to = ?peer.to, "opened a ring");
            peer.pause_ns = FIRST_PAUSE_NS;
            peer.state = State::Open(Ring::new(link, memory));
        }
        other => peer.state = other,
    }
}

impl Peer {
    fn refuse(&mut self) {
        self.state = State::Refused(clock::now().plus_ns(self.pause_ns));
        self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
    }
}
