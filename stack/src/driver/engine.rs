//! A device with its ports and its background thread.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use urxe_wire::Gid;

use super::alarm::Alarm;
use super::background;
use super::connections::{Attached, Connections};
use super::eventfd::EventFd;
use super::groups::GroupPorts;
use super::lead::Lead;
use super::management::ReceivedMad;
use super::ports::{Ports, Receiver};
use crate::cma::{DeviceKey, Listing};
use crate::cq::{Completion, Cq, CqError, Wake};
use crate::device::counters::Counter;
use crate::device::{Device, DeviceConfig, IcrcPolicy, Limits, QpHandle};
use crate::link::interface::interfaces;
use crate::link::{Changes, GidEntry, LinkError, LinkSpec, LivePort, OperState, ResolvedLink};
use crate::path::window::EARLY_TIMEOUT_MIN;
use crate::port::Transmit;
use crate::port::faults::{BadLink, FaultSpec};
use crate::port::sharing::ListenError;
use crate::port::tap::Tap;
use crate::port::udp::{OpenPortError, UdpConfig, UdpPort};
use crate::qp::attr::{QpAttr, QpAttrMask, QpState};
use crate::qp::wr::{PostError, RecvRequest, SendRequest};
use crate::rng::Rng;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock, try_lock, yield_now};
use crate::sys::fork::Maker;
use crate::sys::{clock, thread};
use crate::time::Time;

/// So many empty polls in a row give the processor away: the peer may be waiting for it.
const POLLS_BEFORE_YIELD: u32 = 50;
/// READ responses asked for at once: this share of the receive buffer, in eighths. Single 4 KiB packets (from a kernel, whose
/// packets do not merge) take more than twice their size.
const READ_BUDGET_EIGHTHS: u64 = 3;
/// More than this at once only fills queues.
const READ_BUDGET_MAX: u64 = 180 << 10;

/// How to open an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Bytes of receive buffer to ask for; as much as is useful if `None`.
    pub receive_buffer: Option<usize>,
    /// Send runs of several packets in one call where the kernel can.
    pub gso: bool,
    /// Receive merged datagrams where the kernel can.
    pub gro: bool,
    /// How received ICRCs are checked.
    pub icrc_policy: IcrcPolicy,
    /// Where to record all packets.
    pub tap: Option<Arc<Tap>>,
    /// Where keys, numbers and first PSNs come from; of the operating system if `None`.
    pub seed: Option<u64>,
    /// What the device can do.
    pub limits: Limits,
    /// What happens to packets that arrived before the device sees them: a simulated bad network.
    pub faults: FaultSpec,
    /// No retransmission before the local ACK timeout comes earlier than this, whatever round trips were measured. Longer
    /// is better where the peer may stall: an emulated machine, a process in a debugger.
    pub early_timeout_min: Duration,
    /// Whom to tell, beside the descriptors.
    pub hooks: Hooks,
    /// The connections that the device's management datagrams are for; without them they wait to be [taken](Engine::take_mad).
    pub connections: Option<Arc<Connections>>,
}

/// Whom an engine tells what happens, beside its descriptors: for callers that wait without one.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Woken like the descriptor of asynchronous events, under a lock of the core.
    pub events: Option<Arc<dyn Wake>>,
    /// Called by the background thread each time it has received and handled timeouts, under no lock. A [`Wake`] may
    /// not call back into the core; what it took note of can be acted upon here. It may drop the engine.
    pub after_progress: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("events", &self.events.is_some())
            .field("after_progress", &self.after_progress.is_some())
            .finish()
    }
}

/// Wakes a descriptor and, if there is one, a hook.
pub struct EventWake {
    /// Counts the events.
    pub descriptor: Arc<EventFd>,
    /// Is told, but counts nothing.
    pub hook: Option<Arc<dyn Wake>>,
}

impl Wake for EventWake {
    fn wake(&self) {
        self.descriptor.wake();
        if let Some(hook) = &self.hook {
            hook.wake();
        }
    }

    fn withdraw(&self, events: u32) -> u32 {
        self.descriptor.withdraw(events)
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            receive_buffer: None,
            gso: true,
            gro: true,
            icrc_policy: IcrcPolicy::default(),
            tap: None,
            seed: None,
            limits: Limits::default(),
            faults: FaultSpec::default(),
            early_timeout_min: EARLY_TIMEOUT_MIN,
            hooks: Hooks::default(),
            connections: None,
        }
    }
}

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenEngineError {
    /// The link's interface or address.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A socket.
    #[error(transparent)]
    Port(#[from] OpenPortError),
    /// A descriptor.
    #[error("cannot make an event descriptor: {0}; raise the limit of open files (ulimit -n)")]
    EventFd(Errno),
    /// Random numbers.
    #[error("the operating system gives no random numbers: {0}")]
    Random(Errno),
    /// The thread.
    #[error("cannot start the background thread: {0}")]
    Thread(io::Error),
}

impl OpenEngineError {
    /// The errno that `ibv_open_device` sets.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Link(_) => libc::ENODEV,
            Self::Port(error) => error.errno(),
            Self::EventFd(errno) | Self::Random(errno) => errno.raw_os_error(),
            Self::Thread(error) => error.raw_os_error().unwrap_or(libc::EAGAIN),
        }
    }
}

/// A device that is moving packets. Dropping it stops its thread and closes its sockets.
pub struct Engine {
    shared: Arc<Shared>,
    link: ResolvedLink,
    events: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    maker: Maker,
}

/// What the application's threads and the background thread share.
pub(super) struct Shared {
    pub device: Device,
    pub ports: Arc<Ports>,
    /// Held by the one thread that receives.
    pub receiver: Mutex<Receiver>,
    pub alarm: Arc<Alarm<EventFd>>,
    /// Which of the threads that wait receives.
    pub lead: Lead<EventFd>,
    /// When a thread last polled, in nanoseconds.
    pub polled_at_ns: AtomicU64,
    empty_polls: AtomicU32,
    pub stop: AtomicBool,
    pub after_progress: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Tells of changes of interfaces and addresses, where the system allows it.
    pub changes: Option<Changes>,
    port: Mutex<LivePort>,
    attached: OnceLock<Attached>,
}

impl Engine {
    /// Opens the device of `link`: binds UDP port 4791 on each of its addresses and starts its thread.
    ///
    /// # Errors
    /// [`OpenEngineError`]: what was wrong and what to do.
    pub fn open(link: &LinkSpec, config: EngineConfig) -> Result<Self, OpenEngineError> {
        // Before the first look, so that no change is missed.
        let changes = watch();
        let link = crate::link::resolve(link)?;
        let udp = |address: &IpAddr| UdpConfig {
            receive_buffer: config.receive_buffer,
            gso: config.gso,
            gro: config.gro,
            tap: config.tap.clone(),
            ..UdpConfig::on(link.interface.index, *address)
        };
        let mut claims = Rng::stream(random_seed()?, 0x636c_6169_6d73);
        let configs: Vec<UdpConfig> = link.addresses.iter().map(udp).collect();
        let groups = GroupPorts::new(&configs).map_err(OpenEngineError::EventFd)?;
        let seed = config.seed.map_or_else(random_seed, Ok)?;
        let bad_link = |slot| bad_link(&config.faults, seed, &link, slot);
        let ports = Arc::new(Ports::open(&configs, groups, bad_link, || claims.next_u64())?);
        let events = Arc::new(EventFd::new().map_err(OpenEngineError::EventFd)?);
        let alarm = Arc::new(Alarm::new(EventFd::new().map_err(OpenEngineError::EventFd)?));
        let lead = Lead::new(EventFd::new().map_err(OpenEngineError::EventFd)?);
        let buffer = ports.iter().map(UdpPort::receive_buffer).min().unwrap_or(0) as u64;
        let gids: Vec<Gid> = link.gids.iter().map(|entry| entry.gid).collect();
        let device = Device::new(DeviceConfig {
            active_mtu: link.path_mtu,
            port_active: link.is_active(),
            process_slot: ports.slot(),
            source_ports: Box::new(Arc::clone(&ports)),
            groups: Box::new(Arc::clone(&ports)),
            max_run_segments: ports.max_run_segments(),
            read_budget: (buffer * READ_BUDGET_EIGHTHS / 8).min(READ_BUDGET_MAX),
            early_timeout_min: config.early_timeout_min,
            icrc_policy: config.icrc_policy,
            limits: config.limits,
            event_wake: Box::new(EventWake { descriptor: Arc::clone(&events), hook: config.hooks.events }),
            timer_wake: alarm.clone(),
            ..DeviceConfig::new(gids, seed)
        });
        let shared = Arc::new(Shared {
            device,
            ports,
            receiver: Mutex::new(Receiver::new()),
            alarm,
            lead,
            polled_at_ns: AtomicU64::new(0),
            empty_polls: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            after_progress: config.hooks.after_progress,
            changes,
            port: Mutex::new(LivePort::new(&link)),
            attached: OnceLock::new(),
        });
        if let Some(connections) = &config.connections {
            shared.ports.refuses.store(true, Ordering::Relaxed);
            let attached = connections.attach(&shared, &link, random_seed()?);
            shared.attached.get_or_init(|| attached);
        }

        let for_thread = Arc::clone(&shared);
        let builder = Builder::new().name(format!("urxe-{}", link.spec.name));
        let thread = thread::spawn_without_signals(builder, move || background::run(&for_thread));
        let thread = Some(thread.map_err(OpenEngineError::Thread)?);
        Ok(Self { shared, link, events, thread, maker: Maker::this() })
    }

    /// The device itself. Work posted to it directly is sent with the next call here.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Whether this process is a forked child of the one that opened it: it has none of the engine's threads and sockets, and
    /// locks that other threads held at the fork stay locked.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.maker.is_other()
    }

    /// Whether the interface carries packets now.
    #[must_use]
    pub fn port_state(&self) -> OperState {
        lock(&self.shared.port).state()
    }

    /// The GID table as it is now. A place whose address went has the zero GID.
    #[must_use]
    pub fn gids(&self) -> Vec<GidEntry> {
        lock(&self.shared.port).gids().to_vec()
    }

    /// The link it was opened for, as it was then.
    #[must_use]
    pub fn link(&self) -> &ResolvedLink {
        &self.link
    }

    /// Its sockets, those of addresses that came late last.
    pub fn ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.shared.ports.iter()
    }

    /// Its slot among the processes that share its addresses: the upper six bits of its queue pair numbers.
    #[must_use]
    pub fn process_slot(&self) -> u8 {
        self.shared.ports.slot()
    }

    /// What the system refused that sharing an address takes, and how; `None` if other processes can use the addresses too.
    #[must_use]
    pub fn alone(&self) -> Option<(&'static str, Errno)> {
        self.shared.ports.alone()
    }

    /// Claims a service id ((port space << 16) + port) on all addresses: requests for it come to this device,
    /// whichever process of the address they arrive in.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, service_id: u64) -> Result<(), ListenError> {
        self.shared.ports.listen_at(None, service_id)
    }

    /// Gives a service id back; whether this device had it.
    pub fn unlisten(&self, service_id: u64) -> bool {
        self.shared.ports.unlisten_at(None, service_id)
    }

    /// Takes a management datagram that came for this device, if one waits.
    #[must_use]
    pub fn take_mad(&self) -> Option<ReceivedMad> {
        self.shared.ports.inbox.take()
    }

    /// What the device is called among its process's connections, if it is part of any.
    #[must_use]
    pub fn connection_key(&self) -> Option<DeviceKey> {
        self.shared.attached.get().map(|attached| attached.key)
    }

    /// Readable while asynchronous events wait.
    #[must_use]
    pub fn event_descriptor(&self) -> &Arc<EventFd> {
        &self.events
    }

    /// The engine's clock, which is the system's monotonic one.
    #[must_use]
    pub fn now(&self) -> Time {
        clock::now()
    }

    /// Changes a queue pair, and sends what that sets free.
    ///
    /// # Errors
    /// As [`Device::modify_qp`].
    pub fn modify_qp(
        &self,
        qp: QpHandle,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), crate::device::ModifyError> {
        let now = clock::now();
        if mask.contains(QpAttrMask::STATE) && matches!(attr.qp_state, QpState::Err | QpState::Reset) {
            self.send_owed(qp);
        }
        self.device().modify_qp(now, qp, attr, mask)?;
        self.shared.transmit(now);
        Ok(())
    }

    /// Sends what a queue pair has ready, an acknowledgement that waits for a reply to take it along included. Called before it goes: the
    /// program has seen a message complete, and its sender would wait for its own completion in vain.
    pub fn send_owed(&self, qp: QpHandle) {
        self.device().transmit_of(qp, clock::now(), &*self.shared.ports);
    }

    /// Sends requests that wait for others to be posted. Called where a program asks for an event, since it may sleep next.
    pub fn send_held(&self) {
        self.device().transmit_urgent(clock::now(), &*self.shared.ports);
    }

    /// Posts send work requests and sends what can be sent, on this thread. Of many that are posted one by one to a peer that has yet to
    /// acknowledge the first, the later ones leave together: when they fill a run, at the next poll, when an event is asked for, or a millisecond later.
    ///
    /// # Errors
    /// As [`Device::post_send`].
    pub fn post_send(&self, qp: QpHandle, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        let now = clock::now();
        // A round ends when somebody polls.
        let round = self.shared.polled_at_ns.load(Ordering::Relaxed);
        let (result, is_due) = self.device().post_send_in_round(now, qp, requests, round);
        if is_due {
            self.shared.transmit(now);
        }
        result
    }

    /// Posts receive work requests.
    ///
    /// # Errors
    /// As [`Device::post_recv`].
    pub fn post_recv(&self, qp: QpHandle, requests: &[RecvRequest<'_>]) -> Result<(), (usize, PostError)> {
        self.device().post_recv(clock::now(), qp, requests)
    }

    /// Takes completions. When there are none, receives on this thread and looks again. Never sleeps.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = cq.poll(out)?;
        if taken > 0 || out.is_empty() {
            return Ok(taken);
        }
        self.shared.progress();
        cq.poll(out)
    }

    /// Sleeps until `is_done`, or until `descriptor` is readable, and receives meanwhile; whether that was before `deadline`. So a packet
    /// wakes the thread that waits for it, and no other. `is_done` is asked again and again, and stays true once
    /// it is; what makes it true in another thread has to make `descriptor` readable, too.
    ///
    /// # Errors
    /// [`Errno::INTR`] if a signal came whose handler interrupts calls; the system's if `descriptor` is none.
    pub fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        mut is_done: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        self.shared.wait(descriptor, deadline, &mut is_done)
    }

    /// Receives and sends what there is, on this thread, once: for programs that watch memory instead of polling.
    pub fn progress(&self) {
        self.shared.progress();
    }
}

impl Shared {
    pub fn transmit(&self, now: Time) {
        self.device.transmit_pending(now, &*self.ports);
    }

    /// Looks at the interfaces if something was told about them, and opens ports for new addresses. On one thread.
    pub fn follow_changes(&self) {
        if !self.changes.as_ref().is_some_and(Changes::take) {
            return;
        }
        let interfaces = match interfaces() {
            Ok(interfaces) => interfaces,
            Err(error) => return tracing::warn!(%error, "cannot tell how the interface changed"),
        };
        let mut port = lock(&self.port);
        let changed = port.look(&interfaces, |address| self.open_late(address));
        let (active, gids) = (port.state() == OperState::Up, port.gids().to_vec());
        drop(port);
        if changed.active {
            tracing::info!(active, "the port changed");
            self.device.set_port_active(active);
        }
        if changed.gids {
            tracing::info!("the GID table changed");
            self.device.set_gids(gids.iter().map(|entry| entry.gid).collect());
        }
    }

    /// Whether an address that came late has a port.
    fn open_late(&self, address: IpAddr) -> bool {
        let opened = match random_seed() {
            Ok(random) => self.ports.open_late(address, random).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(()) => tracing::info!(%address, "a new address"),
            Err(ref error) => {
                tracing::warn!(%address, error, "a new address: it is in the GID table, but peers cannot reach it");
            }
        }
        opened.is_ok()
    }

    /// Hands management datagrams on to the connections that they are for.
    pub fn serve_management(&self) {
        if self.ports.inbox.is_empty() {
            return;
        }
        if let Some(Attached { connections, key }) = self.attached.get() {
            connections.receive(*key, std::iter::from_fn(|| self.ports.inbox.take()));
        }
    }

    /// Does what is due, of the device and of its connections.
    pub fn handle_timeouts(&self, now: Time) {
        self.device.handle_timeouts(now);
        self.ports.look_at_parked(&self.device, now);
        self.serve_management();
        if let Some(Attached { connections, .. }) = self.attached.get() {
            connections.handle_timeout(now);
        }
    }

    /// The connections on the device.
    pub fn listing(&self) -> Listing {
        let attached = self.attached.get();
        attached.and_then(|Attached { connections, key }| connections.listing(*key)).unwrap_or_default()
    }

    /// When [`Shared::handle_timeouts`] is to be called at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let connections = self.attached.get().map(|attached| attached.connections.deadline());
        let parked = self.ports.park.next_look();
        self.device
            .next_deadline()
            .into_iter()
            .chain(connections)
            .chain(parked)
            .chain(self.ports.common_rest())
            .min()
            .filter(|at| *at != Time::NEVER)
    }

    /// One round of a polling thread.
    fn progress(&self) {
        let now = clock::now();
        self.polled_at_ns.store(now.as_ns(), Ordering::Relaxed);
        // Acknowledgements that the last round left for a reply to take along.
        self.transmit(now);
        let received = match try_lock(&self.receiver) {
            Some(mut receiver) => self.ports.receive(&mut receiver, &self.device, false),
            None => 0,
        };
        if received == 0 {
            let empty = self.empty_polls.fetch_add(1, Ordering::Relaxed);
            if empty >= POLLS_BEFORE_YIELD {
                self.empty_polls.store(0, Ordering::Relaxed);
                yield_now();
            }
            return;
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        self.serve_management();
        if !self.ports.park.is_empty() {
            self.alarm.wake();
        }
        self.device.transmit_urgent(clock::now(), &*self.ports);
        if self.device.has_pending() || self.ports.next_due().is_some() {
            // Acknowledgements wait for a reply to take them along. None may come, and this thread may not poll again:
            // then the background thread sends them, which must not sleep until something else happens. Likewise what a
            // simulated bad network holds.
            self.alarm.wake();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_inherited() {
            // A forked child has neither the thread nor the sockets, and what the thread has locked stays locked.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Some(Attached { connections, key }) = self.shared.attached.get() {
            connections.detach(*key);
        }
        self.shared.transmit(clock::now());
        self.shared.stop.store(true, Ordering::Release);
        self.shared.alarm.descriptor().wake();
        if self.shared.ports.has_bad_link() {
            let value = |counter| self.device().counters().value(counter);
            tracing::warn!(
                device = %self.link.spec,
                received = value(Counter::RcvdPkts),
                lost = value(Counter::DropSimulated),
                duplicated = value(Counter::SimulatedDuplicate),
                reordered = value(Counter::SimulatedReorder),
                corrupted = value(Counter::SimulatedCorrupt),
                "faults suffered",
            );
        }
        // A hook that dropped the engine runs on the background thread, which ends when the hook returns.
        if let Some(thread) = self.thread.take_if(|handle| !thread::is_current(handle))
            && thread.join().is_err()
        {
            tracing::error!("the background thread had panicked");
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("link", &self.link.spec)
            .field("device", self.device())
            .finish_non_exhaustive()
    }
}

/// Asks to be told when interfaces and addresses change. Without that a device works, but tells of no such change.
fn watch() -> Option<Changes> {
    Changes::watch()
        .inspect_err(|error| {
            tracing::warn!(%error, "netlink is refused: the port's state and GIDs stay as they are now");
        })
        .ok()
}

/// The simulated bad network of a device, if one was asked for. Devices of one seed differ by address and slot.
fn bad_link(faults: &FaultSpec, seed: u64, link: &ResolvedLink, slot: u8) -> Option<BadLink> {
    if faults.is_harmless() {
        return None;
    }
    let faults = FaultSpec { seed: Some(faults.seed.unwrap_or(seed)), ..faults.clone() };
    tracing::warn!(device = %link.spec, slot, "what arrives suffers faults: {faults}");
    let low = |address: &IpAddr| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64,
    };
    let stream = link.addresses.first().map_or(0, low).rotate_left(8) ^ u64::from(slot);
    Some(BadLink::new(faults.link, faults.seed.unwrap_or(seed), stream))
}

fn random_seed() -> Result<u64, OpenEngineError> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(OpenEngineError::Random(Errno::IO)),
        Err(errno) => Err(OpenEngineError::Random(errno)),
    }
}

#[cfg(test)]
mod tests;
