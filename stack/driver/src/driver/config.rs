//! The configuration of an engine, its hooks, and the errors of opening it.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::Connections;
use crate::allocate::OutOfMemory;
use crate::cq::Wake;
use crate::device::{IcrcPolicy, Limits};
use crate::errno::OsError;
use crate::link::LinkError;
use crate::memory::CopyMode;
use crate::path::EARLY_TIMEOUT_MIN;
use crate::port::PacketTap;
#[cfg(feature = "sim")]
use crate::port::faults::FaultSpec;
use crate::port::udp::OpenPortError;
use crate::sync::Arc;

/// The default of [`EngineConfig::spin_share`], in percent.
pub const SPIN_SHARE: u8 = 20;

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Bytes of receive buffer to ask for; `None` for the port's default.
    pub receive_buffer: Option<usize>,
    /// Whether to send runs of several packets in one call, if the kernel can.
    pub gso: bool,
    /// Whether to receive merged datagrams, if the kernel can.
    pub gro: bool,
    /// How the device checks received ICRCs.
    pub icrc_policy: IcrcPolicy,
    /// How the device copies bytes of registered memory.
    pub copies: CopyMode,
    /// The observer that records all packets.
    pub tap: Option<Arc<dyn PacketTap>>,
    /// The seed of keys, numbers and first PSNs; `None` for a random seed of the operating system.
    pub seed: Option<u64>,
    /// The limits of the device.
    pub limits: Limits,
    /// The simulated impairment of received packets, before the device processes them.
    #[cfg(feature = "sim")]
    pub faults: FaultSpec,
    /// The shortest time to a retransmission before the local ACK timeout, whatever round trip was
    /// measured. A longer time helps if the peer may stall: an emulated machine, or a process in a
    /// debugger.
    pub early_timeout_min: Duration,
    /// Whether packets to devices of this process that also set this flag skip the socket. Tools on
    /// the interface (tcpdump, netem) do not see such packets; captures and counters of the devices
    /// do.
    pub direct: bool,
    /// Whether packets to other processes of this user on this host go through memory that both
    /// processes share. Both must set this flag. Tools on the interface do not see such packets.
    /// A device with [`faults`](Self::faults) uses sockets.
    pub shared_memory: bool,
    /// The most time that the background thread looks for the next request instead of sleeping, in
    /// percent of one processor. It looks while requests arrive close to each other and no other
    /// thread answers them. 0 turns that off.
    pub spin_share: u8,
    /// Whether packets of reliable connections are marked ECN-capable (ECT(0)), because the sender
    /// reduces its rate on congestion notifications.
    pub ecn: bool,
    /// Whether a packet from another UDP source port than the peer's needs the expected PSN.
    pub port_check: bool,
    /// Whether entries of send queues stay in use until a completion of theirs, or of a later
    /// request, is polled.
    pub strict_queues: bool,
    /// Whether sockets believe the path MTU of ICMP messages, which any host can forge.
    pub icmp_mtu: bool,
    /// Whether sockets take ICMP errors of sent packets, if the system can.
    pub icmp_errors: bool,
    /// Whether the background thread runs on the processors of the process
    /// ([`affinity`](crate::sys::affinity)) and not only on those of the thread that opens the
    /// engine. The caller must have called [`remember`](crate::sys::affinity::remember) before the
    /// program could pin a thread.
    pub original_affinity: bool,
    /// Whether a second process, the [watcher](crate::sys::watcher), sends messages to the peers
    /// of connections if this process is killed, calls `_exit` or executes another program.
    pub watcher: bool,
    /// The time after which the passive side of a connection checks whether its peer still has the
    /// connection, and again after each such time; `None` for no checks. A peer that gives no reply
    /// for five seconds more has lost the connection, and this side ends it.
    pub keep_alive: Option<Duration>,
    /// Callbacks beside the event descriptors.
    pub hooks: Hooks,
    /// The connections that get the MADs of the device. Without them the MADs wait for
    /// `Engine::take_mad`. In a build without the feature `cm` they are dropped.
    pub connections: Option<Arc<Connections>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            receive_buffer: None,
            gso: true,
            gro: true,
            icrc_policy: IcrcPolicy::default(),
            copies: CopyMode::default(),
            tap: None,
            seed: None,
            limits: Limits::default(),
            #[cfg(feature = "sim")]
            faults: FaultSpec::default(),
            early_timeout_min: EARLY_TIMEOUT_MIN,
            direct: true,
            shared_memory: true,
            spin_share: SPIN_SHARE,
            ecn: true,
            port_check: true,
            strict_queues: false,
            icmp_mtu: false,
            icmp_errors: true,
            original_affinity: false,
            watcher: true,
            keep_alive: None,
            hooks: Hooks::default(),
            connections: None,
        }
    }
}

/// Callbacks of an engine, for callers that wait without its descriptors.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Woken with the descriptor of asynchronous events, under a lock of the core.
    pub events: Option<Arc<dyn Wake>>,
    /// Called by the background thread each time it has received and handled timeouts.
    pub after_progress: Option<Arc<dyn AfterProgress>>,
}

/// Acts on the records that callbacks made under locks. A [`Wake`] must not call the core; this
/// trait may.
pub trait AfterProgress: Send + Sync {
    /// Returns whether there is a record. Called often, without a lock.
    fn is_due(&self) -> bool;

    /// Acts on the records, without a lock. This call may drop the engine.
    fn act(&self);
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("events", &self.events.is_some())
            .field("after_progress", &self.after_progress.is_some())
            .finish()
    }
}

/// Reduces the limits to those that the process's limit of open files allows (`ulimit -n`).
#[must_use]
pub fn limits_here(limits: Limits) -> Limits {
    limits.within_descriptors(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

urxe_types::errors! {
    /// Why an engine could not be opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenEngineError {
        /// The interface or the address of the link.
        #[error(transparent)] Link(#[from] LinkError),
        /// A socket.
        #[error(transparent)] Port(#[from] OpenPortError),
        #[error("cannot create an event descriptor: {0}; raise the limit of open files \
                 (ulimit -n)")]
        EventFd(OsError) => |errno| errno.raw_os_error(),
        #[error("cannot get random numbers from the operating system: {0}")]
        Random(OsError) => |errno| errno.raw_os_error(),
        #[error("cannot start the background thread: {0}")]
        Thread(io::Error) => |error| error.raw_os_error().unwrap_or(EAGAIN),
        /// The system has no memory for the device or its buffers.
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }
}
