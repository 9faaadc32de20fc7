//! The state that the threads of an engine share, and the work of each thread.

use std::net::IpAddr;
use std::sync::OnceLock;

use urxe_wire::{Gid, Qpn};

use super::attached::Attached;
use super::config::{AfterProgress, OpenEngineError};
use super::eventfd::EventFd;
use super::leader::LeaderElection;
use super::loopback::Namespace;
use super::poll_watchdog::PollWatchdog;
use super::ports::{Ports, ReceiveScope, Receiver};
use super::thread_waker::ThreadWaker;
#[cfg(not(loom))]
use crate::allocate::LARGE;
use crate::cq::Wake;
use crate::device::{Device, QpHandle};
use crate::errno::OsError;
use crate::link::interface::interfaces;
use crate::link::{Changes, OperState, PortState};
use crate::listing::{ListedQp, Listing};
use crate::port::udp::UdpPort;
use crate::qp::attr::{QpAttr, QpType};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock, try_lock, yield_now};
use crate::sys::{self, clock};
use crate::time::Time;
use urxe_types::ids::PdId;

/// Empty polls in a row after which the thread yields the processor, because the peer may be
/// waiting for it.
const POLLS_BEFORE_YIELD: u32 = 50;
/// The queue pairs in a listing, at most. A listing of more takes the background thread too long.
const MAX_LISTED_QPS: usize = 1 << 14;

/// The state that application threads and the background thread share.
pub(super) struct Shared {
    pub device: Device,
    pub ports: Arc<Ports>,
    /// Locked by the one thread that receives.
    pub receiver: Box<Mutex<Receiver>>,
    pub waker: Arc<ThreadWaker<EventFd>>,
    /// Elects the waiting thread that receives.
    pub leader: LeaderElection<EventFd>,
    /// Wakes the background thread when polling stops.
    pub watchdog: PollWatchdog,
    /// The time of the last poll in nanoseconds.
    pub polled_at_ns: AtomicU64,
    /// Whether the last polling thread is likely to poll again soon.
    pub expects_poll: AtomicBool,
    pub empty_polls: AtomicU32,
    /// Whether a thread polled a queue that awaits an event many times in a row, and so does not
    /// sleep. Until a program arms a queue again.
    pub is_spinning: AtomicBool,
    /// Whether a message was sent since the last poll.
    pub has_sent: AtomicBool,
    pub stop: AtomicBool,
    /// See [`EngineConfig::spin_share`](super::EngineConfig::spin_share).
    pub spin_share: u8,
    pub after_progress: Option<Arc<dyn AfterProgress>>,
    /// The namespace in which the engine was opened, if it takes part in the loopback path.
    pub namespace: Option<Namespace>,
    /// The subscription to changes of interfaces and addresses, if the system allows it.
    pub changes: Option<Changes>,
    pub port: Mutex<PortState>,
    pub attached: OnceLock<Attached>,
}

// Shared by an `Arc`, which adds two counts. The locks of loom are larger.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Shared>() + 16 <= LARGE, "an allocation that aborts is too large");
#[cfg(not(loom))]
const _: () = assert!(size_of::<Ports>() + 16 <= LARGE, "an allocation that aborts is too large");

/// What a thread is likely to do after an empty poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterPoll {
    /// Poll again.
    Poll,
    /// Sleep on a descriptor, because the queue awaits an event.
    Sleep,
}

impl Shared {
    /// Sends everything that may leave now.
    pub fn transmit(&self, now: Time) {
        self.device.transmit_pending(now, self);
        self.flush_loopback();
    }

    /// Sends everything that may leave now, unless only acknowledgements are ready.
    pub fn transmit_urgent(&self, now: Time) {
        self.device.transmit_urgent(now, self);
        self.flush_loopback();
    }

    /// Sends the ready packets of a queue pair. Waits for a thread that is using the queue pair or
    /// sending on its path.
    pub fn transmit_of(&self, qp: QpHandle, now: Time) {
        self.device.transmit_of(qp, now, self);
        self.flush_loopback();
    }

    /// Returns the time of the last poll.
    pub fn last_poll(&self) -> Time {
        Time::from_ns(self.polled_at_ns.load(Ordering::Relaxed))
    }

    /// Returns the time of the last poll, or the beginning of time if the polling thread is likely
    /// to sleep.
    pub fn polled_at(&self) -> Time {
        if self.expects_poll.load(Ordering::Relaxed) { self.last_poll() } else { Time::ZERO }
    }

    /// Returns whether the hook has recorded something.
    pub fn is_hook_due(&self) -> bool {
        self.after_progress.as_ref().is_some_and(|hook| hook.is_due())
    }

    /// Returns whether both engines have the same hook.
    pub fn shares_hook_with(&self, other: &Self) -> bool {
        match (&self.after_progress, &other.after_progress) {
            (Some(hook), Some(others)) => std::ptr::addr_eq(Arc::as_ptr(hook), Arc::as_ptr(others)),
            _ => false,
        }
    }

    pub fn call_hook(&self) {
        if let Some(after_progress) = &self.after_progress {
            after_progress.act();
        }
    }

    /// Returns whether MADs wait to be passed on.
    pub fn has_management(&self) -> bool {
        !self.ports.inbox.is_empty() || !self.ports.deferred.is_empty()
    }

    /// Reads the interfaces if they have changed, and opens ports for new addresses. Only one
    /// thread calls this function.
    pub fn refresh_port_state(&self) {
        if !self.changes.as_ref().is_some_and(Changes::take) {
            return;
        }
        let interfaces = match interfaces() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                return tracing::warn!(%error, "cannot read the interfaces after a change");
            }
        };
        let mut port = lock(&self.port);
        let changed = port.refresh(&interfaces, |address| self.add_port(address));
        if let Some(rings) = self.ports.rings() {
            rings.set_interfaces(interfaces);
        }
        let (active, gids) = (port.state() == OperState::Up, port.gids().to_vec());
        drop(port);
        if changed.active {
            tracing::info!(active, "the port state changed");
            self.device.set_port_active(active);
        }
        if changed.gids {
            tracing::info!("the GID table changed");
            for port in self.ports.iter() {
                port.set_address_missing(
                    !gids.iter().any(|entry| entry.gid == Gid::from_ip(port.address())),
                );
            }
            self.device.set_gids(gids.iter().map(|entry| entry.gid).collect());
        }
    }

    /// Opens a port for a new address. Returns whether the address has a port.
    fn add_port(&self, address: IpAddr) -> bool {
        let opened = match sys::random_seed() {
            Ok(random) => self.ports.add(address, random).map_err(|error| error.to_string()),
            Err(errno) => Err(OpenEngineError::Random(OsError::of(errno)).to_string()),
        };
        match opened {
            Ok(()) => tracing::info!(%address, "opened a port for a new address"),
            Err(ref error) => {
                tracing::warn!(
                    %address, error,
                    "cannot open a port for a new address: peers cannot reach its GID"
                );
            }
        }
        opened.is_ok()
    }

    /// Passes the MADs in the inbox to their connections. Returns their number.
    pub fn serve_management(&self) -> usize {
        if self.ports.inbox.is_empty() {
            return 0;
        }
        let Some(attached) = self.attached.get() else { return 0 };
        let mut count = 0;
        let mads = std::iter::from_fn(|| self.ports.inbox.take()).inspect(|_| count += 1);
        attached.receive(mads);
        count
    }

    /// Handles the timeouts of the device and of its connections that are due.
    pub fn handle_timeouts(&self, now: Time) {
        self.device.handle_timeouts(now);
        self.ports.retry_deferred(&self.device, now);
        self.serve_management();
        if let Some(rings) = self.ports.rings() {
            rings.free_idle(now);
        }
        if let Some(attached) = self.attached.get() {
            attached.handle_timeout(now);
        }
    }

    /// Returns the connections, objects and counters of the device.
    pub fn listing(&self) -> Listing {
        let connections = self.attached.get().and_then(Attached::listing).unwrap_or_default();
        let resources = self.device.object_counts().map(|(name, count)| (name.to_owned(), count));
        let values = self.device.counters().snapshot().filter(|(_, value)| *value != 0);
        let hw_counters =
            values.map(|(counter, value)| (counter.name().to_owned(), value)).collect();
        let qps = self.device.queue_pairs().take(MAX_LISTED_QPS);
        let qps = qps.map(|(qpn, qp_type, pd, attr)| listed(qpn, qp_type, pd, &attr)).collect();
        Listing { resources: resources.into(), qps, hw_counters, ..connections }
    }

    /// Returns the time at which [`Shared::handle_timeouts`] must be called at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = self.device.next_deadline().into_iter().chain(self.connection_deadline());
        deadlines.min().filter(|at| *at != Time::NEVER)
    }

    /// Returns the next deadline that no polling thread handles: of connections, of MADs that wait,
    /// of the common sockets and of rings.
    fn connection_deadline(&self) -> Option<Time> {
        let connections = self.attached.get().map(Attached::deadline);
        let deferred = self.ports.deferred.next_retry();
        let rings = self.ports.rings().and_then(|rings| rings.idle_at());
        let others = deferred.into_iter().chain(self.ports.common_backoff()).chain(rings);
        connections.into_iter().chain(others).min()
    }

    /// Returns when the background thread must wake up while a thread polls. That thread handles
    /// the deadlines of the queue pairs, because one of a thousand active queue pairs always has a
    /// near deadline.
    pub fn watchdog_deadline(&self) -> Time {
        if self.ports.iter().any(UdpPort::errors_pending) {
            return Time::ZERO;
        }
        let deadline = self.connection_deadline().into_iter().chain(self.ports.next_due()).min();
        deadline.unwrap_or(Time::NEVER)
    }

    /// Handles the timeouts of the queue pairs that are due.
    fn handle_due_timeouts(&self, now: Time) {
        if self.device.next_deadline().is_some_and(|at| at <= now) {
            self.device.handle_timeouts(now);
            self.transmit(now);
        }
    }

    /// Does one round of a polling thread.
    ///
    /// If the thread is likely to sleep next, it sends and does not receive. A program that takes
    /// an event, arms the queue and polls until the queue is empty posts its receives afterwards.
    /// If each poll received the next message, a fast sender would use up the receives (fio's
    /// `rdma` engine). A program that sleeps in poll(2) or epoll_wait(2) does not call the library
    /// meanwhile, so the background thread reads the sockets at once, and not only 1 ms after this
    /// poll.
    pub fn progress(&self, next: AfterPoll) {
        let now = clock::now();
        self.polled_at_ns.store(now.as_ns(), Ordering::Relaxed);
        let expects_poll = next == AfterPoll::Poll || self.is_spinning.load(Ordering::Relaxed);
        if self.expects_poll.load(Ordering::Relaxed) != expects_poll {
            self.expects_poll.store(expects_poll, Ordering::Relaxed);
        }
        if !expects_poll {
            if self.empty_polls.fetch_add(1, Ordering::Relaxed) >= POLLS_BEFORE_YIELD {
                self.is_spinning.store(true, Ordering::Relaxed);
            }
            return self.transmit(now);
        }
        let has_sent = self.has_sent.load(Ordering::Relaxed);
        if has_sent {
            self.has_sent.store(false, Ordering::Relaxed);
        }
        let is_extended = self.watchdog.extend(now, has_sent, || self.watchdog_deadline());
        if is_extended {
            self.handle_due_timeouts(now);
        }
        // Sends the acknowledgements that the last round kept back for a reply.
        self.transmit(now);
        let looked = try_lock(&self.receiver).map(|mut receiver| {
            let received = self.ports.receive(&mut receiver, &self.device, ReceiveScope::Recent);
            (received, receiver.has_read_sockets())
        });
        if looked.is_none_or(|(received, _)| received == 0) {
            let empty = self.empty_polls.fetch_add(1, Ordering::Relaxed);
            if empty >= POLLS_BEFORE_YIELD {
                self.empty_polls.store(0, Ordering::Relaxed);
                yield_now();
            }
            // Neither a ring nor a socket has a missing packet now.
            if looked.is_some_and(|(_, has_read_sockets)| has_read_sockets) {
                self.handle_due_timeouts(now);
            }
            return;
        }
        self.empty_polls.store(0, Ordering::Relaxed);
        self.serve_management();
        if !self.ports.deferred.is_empty() {
            self.waker.wake();
        }
        self.transmit_urgent(clock::now());
        if self.device.has_pending() || self.ports.next_due().is_some() {
            // Acknowledgements wait for a reply. There may be no reply and no further poll, so the
            // background thread must wake up in time to send them, and to deliver delayed packets.
            self.waker.wake();
        }
    }
}

/// Returns the entry of a queue pair in a listing. Keys and types are those of the kernel's answer
/// to `rdma resource show qp` (`fill_res_qp_entry_query` in nldev.c).
fn listed(qpn: Qpn, qp_type: QpType, pd: PdId, attr: &QpAttr) -> ListedQp {
    let is_connected = matches!(qp_type, QpType::Rc | QpType::Uc);
    let has_path = !matches!(qp_type, QpType::Ud | QpType::Gsi);
    let type_name = match qp_type {
        QpType::XrcSend => "XRC_INI",
        QpType::XrcRecv => "XRC_TGT",
        other => other.as_str(),
    };
    ListedQp {
        lqpn: qpn.value(),
        pdn: pd.0,
        rqpn: is_connected.then(|| attr.dest_qp_num.value()),
        qp_type: type_name.to_owned(),
        state: attr.qp_state.as_str().to_owned(),
        rq_psn: is_connected.then(|| attr.rq_psn.value()),
        sq_psn: attr.sq_psn.value(),
        path_mig_state: has_path.then(|| attr.path_mig_state.as_str().to_owned()),
    }
}
