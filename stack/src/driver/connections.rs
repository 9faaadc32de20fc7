//! Connections over engines: one [`Cma`] a process, fed by the engines' queue pairs 1.
//!
//! ```text
//!   engine: a MAD for this process ──> inbox ──> Connections ──> Cma ──> events in channels (eventfd)
//!   program: connect, accept, ... ─────────────────^      └──> MADs, sent at once by the same thread
//!   engine's background thread: sleeps until the next deadline of the Cma
//! ```
//! Whoever receives a MAD hands it on, a polling thread or an engine's background thread; who calls
//! sends what comes of it. All of it is under one lock, which no path of data takes.
//!
//! What system calls that brings is made after letting go of it: whom they wake would find it
//! taken. MADs leave in the order in which they were made, those to one process of a peer together.

use std::net::IpAddr;

use urxe_wire::Gid;
use urxe_wire::mad::{Guid, ServiceId};

use super::management::{self, OutgoingMad, ReceivedMad};
use super::shared::Shared;
use crate::cm::{CmConfig, CmPath};
use crate::cma::{Cma, DeviceKey, Listing, LocalDevice};
use crate::cq::Wake;
use crate::link::ResolvedLink;
use crate::port::sharing::ListenError;
use crate::qp::attr::PathMtu;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::sys::clock;
use crate::time::Time;

/// The connections of a process over all engines that were opened with it.
pub struct Connections {
    core: Mutex<Core>,
    /// MADs on their way out. Its lock may be taken under the core's.
    outbox: Mutex<Vec<OutgoingMad>>,
    /// Held by who sends them.
    sender: Mutex<Sender>,
    /// When something of the core is due, in nanoseconds.
    deadline_ns: AtomicU64,
}

/// What sending takes.
#[derive(Default)]
struct Sender {
    batch: Vec<OutgoingMad>,
    bytes: Vec<u8>,
}

struct Core {
    cma: Cma,
    /// The engines' sockets and threads.
    engines: Vec<(DeviceKey, Arc<Shared>)>,
}

/// What an engine knows of the connections it is part of.
pub(super) struct Attached {
    pub connections: Arc<Connections>,
    pub key: DeviceKey,
}

impl Connections {
    /// Without engines and identifiers. Ports, packet sequence numbers and communication ids follow
    /// from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let core = Core { cma: Cma::new(seed), engines: Vec::new() };
        let deadline_ns = AtomicU64::new(Time::NEVER.as_ns());
        Self {
            core: Mutex::new(core),
            outbox: Mutex::default(),
            sender: Mutex::default(),
            deadline_ns,
        }
    }

    /// Calls the core, sends what comes of it, and wakes who waits for the events.
    pub fn call<T>(&self, call: impl FnOnce(&mut Cma, Time) -> T) -> T {
        let now = clock::now();
        let mut core = lock(&self.core);
        let result = call(&mut core.cma, now);
        let has_mads = self.put_out(&mut core);
        let alarm = self.take_deadline(&core);
        let announcements: Vec<_> = std::iter::from_fn(|| core.cma.poll_announcement()).collect();
        drop(core);
        if has_mads {
            self.send();
        }
        announcements.iter().for_each(Wake::announce);
        if let Some(shared) = alarm {
            shared.alarm.wake();
        }
        result
    }

    /// Looks at the core, which changes nothing there.
    pub fn look<T>(&self, look: impl FnOnce(&Cma) -> T) -> T {
        look(&lock(&self.core).cma)
    }

    /// Puts the core's MADs into the outbox; whether there are any.
    fn put_out(&self, core: &mut Core) -> bool {
        let Core { cma, engines } = core;
        let Some(first) = cma.poll_transmit() else { return false };
        let mut outbox = lock(&self.outbox);
        for (key, transmit) in
            std::iter::once(first).chain(std::iter::from_fn(|| cma.poll_transmit()))
        {
            if let Some((_, shared)) = engines.iter().find(|(of, _)| *of == key) {
                outbox.push(OutgoingMad { shared: Arc::clone(shared), transmit });
            }
        }
        true
    }

    /// Sends what is in the outbox, or waits until another thread has.
    fn send(&self) {
        let mut sender = lock(&self.sender);
        let Sender { batch, bytes } = &mut *sender;
        std::mem::swap(batch, &mut lock(&self.outbox));
        management::send(batch, bytes);
        batch.clear();
    }

    /// Takes note of when something is due; whose background thread is to be told, if that is
    /// earlier than it knows.
    fn take_deadline(&self, core: &Core) -> Option<Arc<Shared>> {
        let deadline_ns = core.cma.next_deadline().unwrap_or(Time::NEVER).as_ns();
        let is_earlier = deadline_ns < self.deadline_ns.swap(deadline_ns, Ordering::AcqRel);
        let (_, shared) = core.engines.first().filter(|_| is_earlier)?;
        Some(Arc::clone(shared))
    }

    /// When something of it is due.
    pub(super) fn deadline(&self) -> Time {
        Time::from_ns(self.deadline_ns.load(Ordering::Acquire))
    }

    /// What there is on an engine.
    pub(super) fn listing(&self, key: DeviceKey) -> Option<Listing> {
        self.look(|cma| cma.listing(key))
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&self, now: Time) {
        if self.deadline() <= now {
            self.call(|cma, now| cma.handle_timeout(now));
        }
    }

    /// Takes MADs that came to an engine's queue pair 1.
    pub(super) fn receive(&self, key: DeviceKey, mads: impl Iterator<Item = ReceivedMad>) {
        self.call(|cma, now| {
            for mad in mads {
                let path = CmPath { local: Gid::from_ip(mad.to), remote: Gid::from_ip(mad.from) };
                cma.receive(now, key, path, &*mad.mad);
            }
        });
    }

    /// An engine that is there from now on.
    pub(super) fn attach(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        link: &ResolvedLink,
        seed: u64,
    ) -> Attached {
        let local = EngineDevice { shared: Arc::clone(shared), interface: link.interface.index };
        let guid = Guid(u64::from_be_bytes(link.node_guid.to_bytes()));
        let config = CmConfig::new(shared.ports.slot(), seed, guid);
        let mut core = lock(&self.core);
        let key = core.cma.attach(Box::new(local), config);
        core.engines.push((key, Arc::clone(shared)));
        Attached { connections: Arc::clone(self), key }
    }

    /// An engine goes. Its peers hear nothing more, as when a device is unplugged.
    pub(super) fn detach(&self, key: DeviceKey) {
        let mut core = lock(&self.core);
        core.cma.detach(key);
        core.engines.retain(|(of, _)| *of != key);
        // The others' threads may have left the deadlines to this one's.
        for (_, shared) in &core.engines {
            shared.alarm.wake();
        }
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("deadline_ns", &self.deadline_ns)
            .finish_non_exhaustive()
    }
}

/// An engine as the core sees it.
struct EngineDevice {
    shared: Arc<Shared>,
    interface: u32,
}

impl LocalDevice for EngineDevice {
    fn gids(&self) -> Vec<Gid> {
        self.shared.device.gids()
    }

    fn path_mtu(&self) -> PathMtu {
        self.shared.device.active_mtu()
    }

    fn interface(&self) -> u32 {
        self.interface
    }

    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError> {
        self.shared.ports.listen_at(address, service.0)
    }

    fn release(&self, address: Option<IpAddr>, service: ServiceId) {
        self.shared.ports.unlisten_at(address, service.0);
    }
}
