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

use urxe_wire::Gid;

use super::management::{self, OutgoingMad, ReceivedMad, Uplink};
use crate::cm::{CmConfig, CmPath};
use crate::cma::{Cma, DeviceKey, Listing, LocalDevice};
use crate::cq::Wake;
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
    engines: Vec<(DeviceKey, Arc<dyn Uplink>)>,
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
        let has_mads = self.queue_mads(&mut core);
        let engine = self.update_deadline(&core);
        let notifications: Vec<_> = std::iter::from_fn(|| core.cma.poll_notification()).collect();
        drop(core);
        if has_mads {
            self.send();
        }
        notifications.iter().for_each(Wake::notify);
        if let Some(engine) = engine {
            engine.wake();
        }
        result
    }

    /// Looks at the core, which changes nothing there.
    pub fn inspect<T>(&self, read: impl FnOnce(&Cma) -> T) -> T {
        read(&lock(&self.core).cma)
    }

    /// Puts the core's MADs into the outbox; whether there are any.
    fn queue_mads(&self, core: &mut Core) -> bool {
        let Core { cma, engines } = core;
        let Some(first) = cma.poll_transmit() else { return false };
        let mut outbox = lock(&self.outbox);
        for (key, transmit) in
            std::iter::once(first).chain(std::iter::from_fn(|| cma.poll_transmit()))
        {
            if let Some((_, uplink)) = engines.iter().find(|(of, _)| *of == key) {
                outbox.push(OutgoingMad { uplink: Arc::clone(uplink), transmit });
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
    fn update_deadline(&self, core: &Core) -> Option<Arc<dyn Uplink>> {
        let deadline_ns = core.cma.next_deadline().unwrap_or(Time::NEVER).as_ns();
        let is_earlier = deadline_ns < self.deadline_ns.swap(deadline_ns, Ordering::AcqRel);
        let (_, engine) = core.engines.first().filter(|_| is_earlier)?;
        Some(Arc::clone(engine))
    }

    /// When something of it is due.
    pub(super) fn deadline(&self) -> Time {
        Time::from_ns(self.deadline_ns.load(Ordering::Acquire))
    }

    /// What there is on an engine.
    pub(super) fn listing(&self, key: DeviceKey) -> Option<Listing> {
        self.inspect(|cma| cma.listing(key))
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

    /// Adds an engine: what the core asks of it, and how MADs leave it.
    pub(super) fn attach(
        &self,
        device: Box<dyn LocalDevice>,
        config: CmConfig,
        uplink: Arc<dyn Uplink>,
    ) -> DeviceKey {
        let mut core = lock(&self.core);
        let key = core.cma.attach(device, config);
        core.engines.push((key, uplink));
        key
    }

    /// An engine goes. Its peers hear nothing more, as when a device is unplugged.
    pub(super) fn detach(&self, key: DeviceKey) {
        let mut core = lock(&self.core);
        core.cma.detach(key);
        core.engines.retain(|(of, _)| *of != key);
        // The others' threads may have left the deadlines to this one's.
        for (_, engine) in &core.engines {
            engine.wake();
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
