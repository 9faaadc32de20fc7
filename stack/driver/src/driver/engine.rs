//! A device with its ports and its background thread.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;
use urxe_wire::Gid;

use super::attached;
use super::background;
use super::config::{EngineConfig, OpenEngineError, limits_here};
use super::event_descriptor::{EventDescriptor, EventWake};
use super::eventfd::EventFd;
use super::groups::GroupPorts;
use super::impairment;
use super::leader::LeaderElection;
use super::loopback::{self, Namespace};
use super::poll_watchdog::PollWatchdog;
use super::ports::{Ports, Receiver};
use super::rings::Rings;
use super::shared::{AfterPoll, Shared};
use super::thread_waker::ThreadWaker;
use crate::cq::{Completion, Cq, CqError, Wake};
use crate::device::counters::Counter;
use crate::device::{Device, DeviceConfig, QpHandle};
use crate::errno::OsError;
use crate::link::interface::interfaces;
use crate::link::{
    Changes, GidEntry, LinkSpec, OperState, PortState, ResolvedLink, default_address,
};
use crate::port::Transmit;
use crate::port::sharing::ListenError;
use crate::port::udp::{OpenPortError, PathError, UdpConfig, UdpPort};
use crate::qp::attr::{QpAttr, QpAttrMask, QpState};
use crate::qp::work_request::{PostError, RecvRequest, SendRequest};
use crate::rng::Rng;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::sys::fork::ProcessId;
use crate::sys::{self, affinity, clock, thread};
use crate::time::Time;

/// READ responses requested at once, in eighths of the receive buffer. A single 4 KiB packet takes
/// more than twice its size there; packets from a kernel are not merged.
const READ_BUDGET_EIGHTHS: u64 = 3;
/// The most bytes of READ responses requested at once. More would only fill queues.
const READ_BUDGET_MAX: u64 = 400 << 10;

/// A device that moves packets. Dropping it stops its thread and closes its sockets.
pub struct Engine {
    shared: Arc<Shared>,
    link: ResolvedLink,
    events: Arc<EventDescriptor>,
    thread: Option<JoinHandle<()>>,
    process: ProcessId,
}

impl Engine {
    /// Opens the device of `link`: binds UDP port 4791 on each of its addresses and starts its
    /// thread. If another user has just taken the port of the built-in device, opens the device on
    /// its next address ([`default_address`](default_address())).
    ///
    /// # Errors
    /// [`OpenEngineError`], with a message that says what to do.
    pub fn open(link: &LinkSpec, config: EngineConfig) -> Result<Self, OpenEngineError> {
        let mut link = link.clone();
        loop {
            let result = Self::open_once(&link, config.clone());
            let Err(OpenEngineError::Port(OpenPortError::AddressInUse { owner, .. })) = &result
            else {
                return result;
            };
            match default_address::after_conflict(&link, *owner) {
                Some(next) => link = next,
                None => return result,
            }
        }
    }

    fn open_once(link: &LinkSpec, config: EngineConfig) -> Result<Self, OpenEngineError> {
        // Before the interfaces are read, so no change is missed.
        let changes = watch_changes();
        let link = crate::link::resolve(link)?;
        let udp = |address: &IpAddr| UdpConfig {
            receive_buffer: config.receive_buffer,
            gso: config.gso,
            gro: config.gro,
            icmp_mtu: config.icmp_mtu,
            icmp_errors: config.icmp_errors,
            tap: config.tap.clone(),
            ..UdpConfig::on(link.interface.index, *address)
        };
        let random = || sys::random_seed().map_err(random_error);
        let mut claims = Rng::stream(random()?, 0x636c_6169_6d73);
        let configs: Vec<UdpConfig> = link.addresses.iter().map(udp).collect();
        let seed = config.seed.map_or_else(random, Ok)?;
        let waker = Arc::new(ThreadWaker::new(EventFd::new().map_err(event_fd_error)?));
        let claim = || claims.next_u64();
        let ports = Arc::new(open_ports(&configs, &link, &config, seed, &waker, claim)?);
        let events = Arc::new(EventDescriptor::new().map_err(event_fd_error)?);
        let leader = LeaderElection::new(EventFd::new().map_err(event_fd_error)?);
        let buffer = ports.iter().map(UdpPort::receive_buffer).min().unwrap_or(0) as u64;
        let gids: Vec<Gid> = link.gids.iter().map(|entry| entry.gid).collect();
        let device = Device::try_new(DeviceConfig {
            active_mtu: link.path_mtu,
            port_active: link.is_active(),
            process_slot: ports.slot(),
            source_ports: Box::new(Arc::clone(&ports)),
            groups: Box::new(Arc::clone(&ports.groups)),
            max_run_segments: ports.max_run_segments(),
            read_budget: (buffer * READ_BUDGET_EIGHTHS / 8).min(READ_BUDGET_MAX),
            early_timeout_min: config.early_timeout_min,
            ecn: config.ecn,
            port_check: config.port_check,
            strict_queues: config.strict_queues,
            icrc_policy: config.icrc_policy,
            copies: config.copies,
            limits: limits_here(link.spec.limits(config.limits)),
            event_wake: Box::new(EventWake {
                descriptor: Arc::downgrade(&events),
                hook: config.hooks.events,
            }),
            timer_wake: waker.clone(),
            ..DeviceConfig::new(gids, seed)
        })?;
        let shared = Arc::new(Shared {
            device,
            ports,
            receiver: Box::new(Mutex::new(Receiver::new()?)),
            waker,
            leader,
            watchdog: PollWatchdog::new().map_err(event_fd_error)?,
            polled_at_ns: AtomicU64::new(0),
            expects_poll: AtomicBool::new(true),
            empty_polls: AtomicU32::new(0),
            is_spinning: AtomicBool::new(false),
            has_sent: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            spin_share: config.spin_share,
            after_progress: config.hooks.after_progress,
            namespace: config.direct.then(Namespace::current).flatten(),
            changes,
            port: Mutex::new(PortState::new(&link)),
            attached: OnceLock::new(),
        });
        let (for_thread, mut receiver) = (Arc::clone(&shared), Receiver::without_rings()?);
        // From here on, a failure drops the engine, which detaches it from its connections.
        let mut engine = Self { shared, link, events, thread: None, process: ProcessId::this() };
        let options = (random()?, config.watcher, config.keep_alive);
        attached::attach(&engine.shared, &engine.link, config.connections.as_ref(), options);
        let builder = Builder::new().name(format!("urxe-{}", engine.link.spec.name));
        let run = move || {
            if config.original_affinity {
                restore_affinity();
            }
            background::run(&for_thread, &mut receiver);
        };
        let thread = thread::spawn_without_signals(builder, run);
        engine.thread = Some(thread.map_err(OpenEngineError::Thread)?);
        loopback::register(&engine.shared);
        Ok(engine)
    }

    /// Returns the device. Work that is posted directly is sent with the next call of the
    /// engine.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Returns whether this process is a forked child of the process that opened the engine. The
    /// child has none of the engine's threads and sockets, and locks that other threads held at the
    /// fork stay locked.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.process.is_other()
    }

    /// Returns whether the interface carries packets now.
    #[must_use]
    pub fn port_state(&self) -> OperState {
        lock(&self.shared.port).state()
    }

    /// Returns the current GID table. An entry whose address was removed has the zero GID.
    #[must_use]
    pub fn gids(&self) -> Vec<GidEntry> {
        lock(&self.shared.port).gids().to_vec()
    }

    /// Returns the state of the link when the engine was opened.
    #[must_use]
    pub fn link(&self) -> &ResolvedLink {
        &self.link
    }

    /// Returns the ports, those of added addresses last.
    pub fn ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.shared.ports.iter()
    }

    /// Returns the slot of this process on its addresses: the upper six bits of its queue pair
    /// numbers.
    #[must_use]
    pub fn process_slot(&self) -> u8 {
        self.shared.ports.slot()
    }

    /// Returns the system call that failed with its error, if other processes cannot share an
    /// address.
    #[must_use]
    pub fn sharing_error(&self) -> Option<(&'static str, Errno)> {
        self.shared.ports.sharing_error()
    }

    /// Claims a service id ((port space << 16) + port) on all addresses. Its requests reach this
    /// device, whichever process of the address they arrive in.
    ///
    /// # Errors
    /// [`ListenError`], if the service is taken.
    pub fn listen(&self, service_id: u64) -> Result<(), ListenError> {
        self.shared.ports.listen_at(None, service_id)?;
        self.shared.ports.begin_listening(None, service_id);
        Ok(())
    }

    /// Releases a service id. Returns whether this device had claimed it.
    pub fn unlisten(&self, service_id: u64) -> bool {
        self.shared.ports.unlisten_at(None, service_id)
    }

    /// Takes a MAD that arrived for this device, if one waits.
    #[cfg(feature = "cm")]
    #[must_use]
    pub fn take_mad(&self) -> Option<super::management::ReceivedMad> {
        self.shared.ports.inbox.take()
    }

    /// Returns the key of the device among the connections of the process, if it is part of any.
    #[cfg(feature = "cm")]
    #[must_use]
    pub fn connection_key(&self) -> Option<crate::cma::DeviceKey> {
        self.shared.attached.get().map(attached::Attached::key)
    }

    /// Returns the descriptor that is readable while asynchronous events wait.
    #[must_use]
    pub fn event_descriptor(&self) -> &Arc<EventDescriptor> {
        &self.events
    }

    /// Returns the time of the engine's clock, which is the system's monotonic clock.
    #[must_use]
    pub fn now(&self) -> Time {
        clock::now()
    }

    /// Modifies a queue pair, and sends the packets that the new state allows.
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
        if mask.contains(QpAttrMask::STATE)
            && matches!(attr.qp_state, QpState::Err | QpState::Reset)
        {
            self.flush_acks(qp);
        }
        self.device().modify_qp(now, qp, attr, mask)?;
        self.shared.transmit(now);
        Ok(())
    }

    /// Sends the ready packets of a queue pair, including an acknowledgement that waits for a
    /// reply. Callers use this function before they destroy or reset the queue pair. The program
    /// has seen a message complete, and the sender of that message needs the acknowledgement.
    pub fn flush_acks(&self, qp: QpHandle) {
        self.shared.transmit_of(qp, clock::now());
    }

    /// Sends requests that wait for further posts. Called when a program arms a completion queue,
    /// because the program may sleep next.
    pub fn flush_deferred(&self) {
        self.shared.empty_polls.store(0, Ordering::Relaxed);
        self.shared.is_spinning.store(false, Ordering::Relaxed);
        self.shared.transmit_urgent(clock::now());
    }

    /// Posts send work requests, and sends the allowed packets on this thread.
    ///
    /// Requests that are posted one by one to a peer that has not acknowledged the first leave
    /// together: when they fill a run, at the next poll, when a completion queue is armed, or after
    /// 1 ms.
    ///
    /// # Errors
    /// As [`Device::post_send`].
    pub fn post_send(
        &self,
        qp: QpHandle,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        let now = clock::now();
        // A round ends when a thread polls.
        let round = self.shared.polled_at_ns.load(Ordering::Relaxed);
        let (result, is_due) = self.device().post_send_in_epoch(now, qp, requests, Some(round));
        if is_due {
            self.shared.transmit(now);
            self.shared.has_sent.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Posts receive work requests.
    ///
    /// # Errors
    /// As [`Device::post_recv`].
    pub fn post_recv(
        &self,
        qp: QpHandle,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        self.device().post_recv(clock::now(), qp, requests)
    }

    /// Takes completions. If there are none, receives on this thread and tries again, unless the
    /// queue awaits an event. Never sleeps.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn poll(&self, cq: &Cq, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = cq.poll(out)?;
        if taken > 0 || out.is_empty() {
            return Ok(taken);
        }
        self.progress_for(cq);
        cq.poll(out)
    }

    /// Sleeps until `is_done` returns true or `descriptor` is readable, and receives meanwhile.
    /// Returns whether that happened before `deadline`. A packet wakes the waiting thread and no
    /// other thread.
    ///
    /// `is_done` is called repeatedly and must stay true. If another thread makes it true, that
    /// thread must also make `descriptor` readable.
    ///
    /// # Errors
    /// [`Errno::INTR`] if a signal arrived whose handler interrupts calls; [`Errno::BADF`] if
    /// `descriptor` is not open.
    pub fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        mut is_done: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        self.shared.wait(descriptor, deadline, &mut is_done)
    }

    /// Receives and sends once on this thread, which found `cq` empty. Only sends if `cq` awaits an
    /// event, because the program then sleeps next, and another thread receives.
    pub fn progress_for(&self, cq: &Cq) {
        let next = if cq.awaits_event() { AfterPoll::Sleep } else { AfterPoll::Poll };
        self.shared.progress(next);
    }

    /// Returns the last error of packets to `peer` since a time, as an ICMP message or this system
    /// reported it. Any host can forge an ICMP message, so the error explains a failure and causes
    /// none.
    #[must_use]
    pub fn path_error(&self, peer: IpAddr, since: Time) -> Option<PathError> {
        if self.is_inherited() {
            return None;
        }
        self.shared.ports.path_error(peer.to_canonical(), since)
    }

    /// Lets the background thread receive at once, and not only 1 ms after the last poll. Called by
    /// a thread that polled and sleeps next.
    pub fn stop_polling(&self) {
        if self.shared.expects_poll.swap(false, Ordering::Relaxed) {
            self.shared.waker.wake();
        }
    }

    /// Returns whether the background thread leaves the sockets to a thread that polls.
    #[must_use]
    pub fn expects_poll(&self) -> bool {
        self.shared.expects_poll.load(Ordering::Relaxed)
    }

    /// Receives and sends once on this thread, for programs that watch memory instead of polling.
    pub fn progress(&self) {
        self.shared.progress(AfterPoll::Poll);
    }
}

/// Lets the calling thread run on the processors on which the process started.
fn restore_affinity() {
    if let Err(error) = affinity::restore() {
        tracing::debug!(%error, "the background thread runs where its creator runs");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_inherited() {
            // A forked child has neither the thread nor the sockets, and locks that the thread held
            // stay locked.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Some(attached) = self.shared.attached.get() {
            attached.detach();
        }
        self.shared.transmit(clock::now());
        loopback::unregister(&self.shared);
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.descriptor().wake();
        if self.shared.ports.is_impaired() {
            let value = |counter| self.device().counters().value(counter);
            tracing::warn!(
                device = %self.link.spec,
                received = value(Counter::RcvdPkts),
                lost = value(Counter::DropSimulated),
                duplicated = value(Counter::SimulatedDuplicate),
                reordered = value(Counter::SimulatedReorder),
                corrupted = value(Counter::SimulatedCorrupt),
                marked = value(Counter::SimulatedMark),
                rebound = value(Counter::SimulatedRebind),
                unknown_port = value(Counter::DropUnknownPort),
                "faults suffered",
            );
        }
        // A hook that drops the engine runs on the background thread, which ends when the hook
        // returns.
        if let Some(thread) = self.thread.take_if(|handle| !thread::is_current(handle))
            && thread.join().is_err()
        {
            tracing::error!("the background thread panicked");
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

/// Subscribes to changes of interfaces and addresses. If netlink is refused, the device works
/// without them.
fn watch_changes() -> Option<Changes> {
    Changes::watch()
        .inspect_err(|error| {
            tracing::warn!(
                %error,
                "no access to netlink: the device ignores changes of its interface and addresses"
            );
        })
        .ok()
}

fn random_error(errno: Errno) -> OpenEngineError {
    OpenEngineError::Random(OsError::of(errno))
}

fn event_fd_error(errno: Errno) -> OpenEngineError {
    OpenEngineError::EventFd(OsError::of(errno))
}

/// Opens the ports of a device, with its rings. `waker` wakes its background thread.
fn open_ports(
    configs: &[UdpConfig],
    link: &ResolvedLink,
    config: &EngineConfig,
    seed: u64,
    waker: &Arc<ThreadWaker<EventFd>>,
    random: impl FnMut() -> u64,
) -> Result<Ports, OpenEngineError> {
    let groups = GroupPorts::new(configs).map_err(event_fd_error)?;
    let impairment = |slot| impairment::of(config, seed, link, slot);
    let mut ports = Ports::open(configs, groups, impairment, random)?;
    // Faults are those of a network, and apply to packets of sockets.
    if config.shared_memory && !ports.is_impaired() {
        let found = interfaces().unwrap_or_default();
        match Rings::new(ports.slot(), found, Arc::clone(waker)) {
            Ok(rings) => ports.set_rings(rings),
            Err(errno) => {
                tracing::info!(%errno, "no shared memory between processes: sockets only");
            }
        }
    }
    Ok(ports)
}

#[cfg(all(test, feature = "cm", feature = "sim"))]
mod tests;
