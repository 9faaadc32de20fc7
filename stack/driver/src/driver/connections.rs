//! Connections over engines: one [`Cma`] a process, which gets the MADs of all engines.
//!
//! ```text
//!   engine: a MAD for this process ──> inbox ──> Connections ──> Cma ──> events (eventfd)
//!   program: connect, accept, ... ─────────────────^      └──> MADs, sent at once by this thread
//!   engine's background thread: sleeps until the next deadline of the Cma
//! ```
//! The thread that receives a MAD passes it to the `Cma`, whether it polls or is a background
//! thread. The thread that calls the `Cma` sends the resulting MADs. One lock protects the `Cma`;
//! the data path does not take it.
//!
//! System calls follow after the lock is released: a thread that they wake takes the same lock.
//! MADs leave in the order in which the `Cma` made them; those to one process of a peer leave
//! together.
//!
//! After each call, `last_messages` has the messages for the peers of a process that ends without
//! its library.

use urxe_wire::Gid;

use super::last_messages::LastMessages;
use super::management::ReceivedMad;
use super::outgoing_mads::{self, OutgoingMad, Uplink};
use crate::cm::{CmConfig, CmPath};
use crate::cma::{Cma, DeviceKey, LocalDevice};
use crate::cq::Wake;
use crate::listing::Listing;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock, try_lock, yield_now};
use crate::sys::clock;
use crate::time::Time;

/// The connections of a process over all engines that were opened with it, or of a simulated host.
pub struct Connections {
    core: Mutex<Core>,
    clock: Box<Clock>,
    /// MADs to be sent. This lock may be taken while the core is locked.
    outbox: Mutex<Vec<OutgoingMad>>,
    /// Locked by the thread that sends the MADs.
    sender: Mutex<Sender>,
    /// The next deadline of the core in nanoseconds.
    deadline_ns: AtomicU64,
}

/// Returns the current time.
type Clock = dyn Fn() -> Time + Send + Sync;

/// The buffers of the sending thread.
#[derive(Default)]
struct Sender {
    batch: Vec<OutgoingMad>,
    bytes: Vec<u8>,
}

struct Core {
    cma: Cma,
    engines: Vec<AttachedEngine>,
    last_messages: LastMessages,
}

struct AttachedEngine {
    key: DeviceKey,
    /// The engine's sockets and thread.
    uplink: Arc<dyn Uplink>,
    /// The index of its interface, for link-local addresses.
    interface: u32,
}

impl Connections {
    /// Makes connections without engines and identifiers. Ports, packet sequence numbers and
    /// communication ids follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_clock(seed, clock::now)
    }

    /// Makes connections as [`new`](Self::new) does, with another clock than that of the system.
    /// The clock is called without a lock.
    #[must_use]
    pub fn with_clock(seed: u64, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        let core = Core {
            cma: Cma::new(seed),
            engines: Vec::new(),
            last_messages: LastMessages::default(),
        };
        let deadline_ns = AtomicU64::new(Time::NEVER.as_ns());
        Self {
            core: Mutex::new(core),
            clock: Box::new(clock),
            outbox: Mutex::default(),
            sender: Mutex::default(),
            deadline_ns,
        }
    }

    /// Calls the core, sends the resulting MADs, and signals the resulting events.
    pub fn call<T>(&self, call: impl FnOnce(&mut Cma, Time) -> T) -> T {
        let now = (self.clock)();
        let mut core = lock(&self.core);
        let result = call(&mut core.cma, now);
        core.record_last_messages();
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

    /// Destroys all identifiers at the end of the process: established peers get a DREQ, others a
    /// REJ. The MADs are sent once. Gives up after 100 ms if a lock stays taken, such as by a call
    /// of this thread whose signal handler ends the process.
    pub fn end(&self) {
        const PATIENCE_NS: u64 = 100_000_000;
        let until = clock::now().plus_ns(PATIENCE_NS);
        while try_lock(&self.core).is_none() || try_lock(&self.sender).is_none() {
            if clock::now() >= until {
                return tracing::debug!("the peers get no message about the end of the process");
            }
            yield_now();
        }
        self.call(Cma::destroy_all);
    }

    /// Reads the core.
    pub fn inspect<T>(&self, read: impl FnOnce(&Cma) -> T) -> T {
        read(&lock(&self.core).cma)
    }

    /// Moves the core's MADs to the outbox. Returns whether there were any.
    fn queue_mads(&self, core: &mut Core) -> bool {
        let Core { cma, engines, .. } = core;
        let Some(first) = cma.poll_transmit() else { return false };
        let mut outbox = lock(&self.outbox);
        for (key, transmit) in
            std::iter::once(first).chain(std::iter::from_fn(|| cma.poll_transmit()))
        {
            if let Some(engine) = engines.iter().find(|engine| engine.key == key) {
                outbox.push(OutgoingMad { uplink: Arc::clone(&engine.uplink), transmit });
            }
        }
        true
    }

    /// Sends the MADs in the outbox, or waits until another thread has sent them.
    fn send(&self) {
        let mut sender = lock(&self.sender);
        let Sender { batch, bytes } = &mut *sender;
        std::mem::swap(batch, &mut lock(&self.outbox));
        outgoing_mads::send(batch, bytes);
        batch.clear();
    }

    /// Stores the next deadline of the core. Returns the engine whose background thread must wake
    /// up if the deadline is earlier than before.
    fn update_deadline(&self, core: &Core) -> Option<Arc<dyn Uplink>> {
        let deadline_ns = core.cma.next_deadline().unwrap_or(Time::NEVER).as_ns();
        let is_earlier = deadline_ns < self.deadline_ns.swap(deadline_ns, Ordering::AcqRel);
        let engine = core.engines.first().filter(|_| is_earlier)?;
        Some(Arc::clone(&engine.uplink))
    }

    /// Returns the next deadline of the core.
    pub(super) fn deadline(&self) -> Time {
        Time::from_ns(self.deadline_ns.load(Ordering::Acquire))
    }

    /// Returns the connections of an engine.
    pub(super) fn listing(&self, key: DeviceKey) -> Option<Listing> {
        self.inspect(|cma| cma.listing(key))
    }

    /// Handles the timeouts of the core that are due.
    pub(super) fn handle_timeout(&self, now: Time) {
        if self.deadline() <= now {
            self.call(|cma, now| cma.handle_timeout(now));
        }
    }

    /// Passes MADs that arrived at an engine's queue pair 1 to the core.
    pub(super) fn receive(&self, key: DeviceKey, mads: impl Iterator<Item = ReceivedMad>) {
        self.call(|cma, now| {
            // Processes that share an address may log to one terminal.
            let _span = tracing::info_span!("process", id = std::process::id()).entered();
            for mad in mads {
                let path = CmPath { local: Gid::from_ip(mad.to), remote: Gid::from_ip(mad.from) };
                cma.receive(now, key, path, &*mad.mad);
            }
        });
    }

    /// Adds an engine on the interface with this index. `device` answers the core's queries, and
    /// MADs leave through `uplink`.
    pub(super) fn attach(
        &self,
        device: Box<dyn LocalDevice>,
        config: CmConfig,
        (uplink, interface): (Arc<dyn Uplink>, u32),
    ) -> DeviceKey {
        let mut core = lock(&self.core);
        let key = core.cma.attach(device, config);
        core.engines.push(AttachedEngine { key, uplink, interface });
        key
    }

    /// Removes an engine. Its peers get no further MAD, as if a device were unplugged.
    pub(super) fn detach(&self, key: DeviceKey) {
        let mut core = lock(&self.core);
        core.cma.detach(key);
        core.engines.retain(|engine| engine.key != key);
        core.last_messages.remove_device(key);
        // All remaining engines wake up below.
        self.update_deadline(&core);
        // The other background threads may have relied on this engine's thread for the deadlines.
        for engine in &core.engines {
            engine.uplink.wake();
        }
    }
}

impl Core {
    /// Records the messages that the peers must receive if the process ends now.
    fn record_last_messages(&mut self) {
        while let Some((key, id, message)) = self.cma.poll_last_message() {
            let engine = self.engines.iter().find(|engine| engine.key == key);
            let interface = engine.map_or(0, |engine| engine.interface);
            self.last_messages.set((key, id), interface, message.as_ref());
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
